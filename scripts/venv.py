#!/usr/bin/env python3
"""Makes or updates .venv in the checkout and installs the project into it, editable.

    python3 scripts/venv.py [EXTRA...]        EXTRA: test, check

A second run does nothing unless pyproject.toml, the constraints or the Python changed. Only the standard library is
used, and nothing outside .venv is written. Exit codes: 0 done, 1 pip failed, 4 this machine lacks something.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "spark-tui-install.json"
PROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / "tests" / "constraints.txt"

OLDEST = (3, 11)
NEWER_NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")

FAILED, LACKING = 1, 4


def stop(code: int, *lines: str) -> None:
    """Ends the program with an explanation."""
    print("\n".join(lines), file=sys.stderr)
    raise SystemExit(code)


def say(text: str) -> None:
    """One line of narration; stdout stays free for the program that is set up."""
    print(text, file=sys.stderr, flush=True)


def is_new_enough(python: str) -> bool:
    """Whether a Python starts (a version manager's stand-in may not) and is no older than OLDEST."""
    code = f"import sys; raise SystemExit(sys.version_info < {OLDEST})"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def ensure_python() -> None:
    """Goes on under a newer Python when this one is too old and there is one."""
    if sys.version_info >= OLDEST:
        return
    for name in NEWER_NAMES:
        found = shutil.which(name)
        if found is not None and is_new_enough(found):
            os.execv(found, [found, *sys.argv])
    stop(
        LACKING,
        f"spark-tui needs Python 3.11 or newer; python3 here is {sys.version_info[0]}.{sys.version_info[1]}.",
        "The system's python3 is new enough on DGX OS 7, Ubuntu 24.04 and Debian 12 and later.",
        "On another system, install python3.11 or newer beside it; it is found by its name.",
    )


def works(python: Path) -> bool:
    """Whether the environment's Python starts and has pip; a system upgrade or a cut-off set-up may have broken it."""
    try:
        done = subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def makers() -> list[list[str]]:
    """The ways to make an environment that this machine has, best first."""
    ways = []
    if importlib.util.find_spec("ensurepip") is not None:
        ways.append([sys.executable, "-m", "venv", str(VENV)])
    uv = shutil.which("uv")
    if uv is not None:
        ways.append([uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(VENV)])
    virtualenv = shutil.which("virtualenv")
    if virtualenv is not None:
        ways.append([virtualenv, "--quiet", "--python", sys.executable, str(VENV)])
    return ways


def ensure_venv() -> None:
    """Makes .venv unless a working one is there."""
    if works(PYTHON):
        return
    say(f"Making {VENV}")
    for command in makers():
        shutil.rmtree(VENV, ignore_errors=True)
        subprocess.run(command, stdout=sys.stderr, check=False)
        if works(PYTHON):
            return
    stop(
        LACKING,
        "Python's venv module is not complete here, and neither uv nor virtualenv is installed.",
        "Install it and run this again:",
        "",
        "    sudo apt install python3-venv",
    )


def fingerprint() -> str:
    """What decides which packages are installed, in one word."""
    digest = hashlib.sha256(os.path.realpath(PYTHON).encode())
    for path in (PROJECT, CONSTRAINTS):
        digest.update(path.read_bytes() if path.exists() else b"-")
    return digest.hexdigest()


def installed() -> tuple[str, set[str]]:
    """The fingerprint and the extras of the last installation."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
        return str(stamp["fingerprint"]), set(stamp["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", set()


def up_to_date(extras: set[str]) -> bool:
    """Whether the last installation is what would be installed now."""
    before, have = installed()
    return PYTHON.exists() and before == fingerprint() and extras <= have


def install(extras: set[str]) -> None:
    """Installs the project with the extras, on top of those that earlier runs asked for."""
    everything = sorted(extras | installed()[1])
    target = f"{ROOT}[{','.join(everything)}]" if everything else str(ROOT)
    say(f"Installing spark-tui into .venv ({', '.join(['the program', *everything])}); the first time takes a minute")
    constraints = ["-c", str(CONSTRAINTS)] if CONSTRAINTS.exists() else []
    command = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *constraints]
    done = subprocess.run([*command, "-e", target], stdout=sys.stderr, check=False)
    if done.returncode != 0:
        stop(
            FAILED,
            "",
            "pip could not install the packages; its own words stand above.",
            "Without a network, set pip up with a mirror or a wheel folder (PIP_INDEX_URL, PIP_FIND_LINKS).",
        )
    STAMP.write_text(json.dumps({"fingerprint": fingerprint(), "extras": everything}), encoding="utf-8")


def main() -> None:
    """Entry point."""
    ensure_python()
    # Two set-ups at once, say from two terminals, would tear each other's files down.
    lock = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    extras = set(sys.argv[1:])
    if up_to_date(extras):
        return
    ensure_venv()
    install(extras)


if __name__ == "__main__":
    main()
