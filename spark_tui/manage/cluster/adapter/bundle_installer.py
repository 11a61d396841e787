"""Runs on another machine, by its Python 3.11 or newer: installs the spark-tui that follows on standard input.

Sent as text, so it imports the standard library only. After it come a line of JSON (version, digest, number of files,
compiled modules) and a gzipped tar of what belongs below `site-packages`. It answers in lines of JSON: `step`, then
`ended`. A program has a folder of its own, made by one installer at a time; the link to it is replaced
when it has answered.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
import zlib
from pathlib import Path
from typing import Any, BinaryIO

HOME = Path.home()
PROGRAMS = HOME / ".local/share/spark-tui"
LINK = HOME / ".local/bin/spark-tui"
UNFINISHED = "unfinished"
"""A file in the folder of a program until it has answered."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SECONDS = 120.0
SCRIPT = """\
#!{python}
import sys
from spark_tui.__main__ import main
sys.exit(main())
"""
IMPORTS = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


class InstallProblem(Exception):
    """What was copied does not run."""


def main() -> None:
    for sign in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(sign, lambda *_: sys.exit(1))
    source = sys.stdin.buffer
    try:
        header = json.loads(source.readline() or "{}")
        ended = install(header, source)
    except InstallProblem as problem:
        ended = {"problem": "broken", "detail": str(problem)}
    except (EOFError, KeyError, ValueError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        ended = {"problem": "cut_off", "detail": str(error)}
    except OSError as error:
        ended = {"problem": "disk_full" if error.errno in FULL else "failed", "detail": str(error)}
    report("ended", ended)


def install(header: dict[str, Any], source: BinaryIO) -> dict[str, object]:
    """What there is now: path, the earlier version, and whether anything was copied."""
    folder = PROGRAMS / f"{header['version']}-{header['digest']}"
    PROGRAMS.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (PROGRAMS / ".install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("step", "waiting for another installation")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in PROGRAMS.glob(f"*/{UNFINISHED}"):
            shutil.rmtree(left.parent)
        copied = not folder.is_dir() or why_not(folder, header) != ""
        if copied:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                build(folder, header, source)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        code, text = run(LINK, "--version")
        switch(folder / "bin/spark-tui")
    earlier = text.rpartition(" ")[2] if code == 0 else ""
    return {"path": str(folder / "bin/spark-tui"), "earlier": earlier, "copied": copied}


def build(folder: Path, header: dict[str, Any], source: BinaryIO) -> None:
    """A virtual environment without pip, with the files of the tar, which has answered. Raises EOFError where the
    stream ends early, Problem where the program does not run."""
    folder.mkdir()
    (folder / UNFINISHED).touch()
    report("step", "copying")
    venv.create(folder, symlinks=True)
    packages = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    packed, missing = gzip.GzipFile(fileobj=source), header["files"]
    with tarfile.open(fileobj=packed, mode="r|") as tar:
        for entry in tar:
            content, target = tar.extractfile(entry), packages / entry.name
            if content is None or ".." in target.parts:
                raise InstallProblem(f"{entry.name} is no file of a package")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
            missing -= 1
    packed.read()  # compares the checksum at the end
    if missing:
        raise EOFError(f"{missing} files did not arrive")
    script = folder / "bin/spark-tui"
    script.write_text(SCRIPT.format(python=folder / "bin/python"))
    script.chmod(0o755)
    report("step", "starting it")
    if why := why_not(folder, header):
        raise InstallProblem(why)
    (folder / UNFINISHED).unlink()


def why_not(folder: Path, header: dict[str, Any]) -> str:
    """Why the program there does not run; empty when it does, and is that version."""
    code, text = run(folder / "bin/spark-tui", "--version")
    if code == 0 and text == f"spark-tui {header['version']}":
        code, text = run(folder / "bin/python", "-I", "-c", IMPORTS, *header["compiled"])
        return "" if code == 0 else text or f"exit code {code}"
    return text or f"exit code {code}"


def run(program: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a program, and the last line that it wrote."""
    try:
        done = subprocess.run(
            (program, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, (done.stdout.decode("utf-8", "replace").strip().splitlines() or [""])[-1]


def switch(command: Path) -> None:
    """The link leads to the command, from one moment to the next."""
    LINK.parent.mkdir(parents=True, exist_ok=True)
    new = LINK.with_name(f".spark-tui-{os.getpid()}")
    new.symlink_to(command)
    try:
        new.replace(LINK)
    finally:
        new.unlink(missing_ok=True)


def report(kind: str, value: object) -> None:
    """A reader who has gone does not end an installation."""
    try:
        os.write(1, f"{json.dumps({kind: value})}\n".encode())
    except OSError:
        return


if __name__ == "__main__":
    main()
