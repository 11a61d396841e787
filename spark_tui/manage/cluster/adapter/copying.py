"""Images and model files to another machine: docker and rsync through the user's own ssh."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Final

from spark_tui.base.errors import ImageNotFound, SparkError
from spark_tui.base.executors import end_group, give
from spark_tui.base.remote import last_line
from spark_tui.base.text import clean, clean_line
from spark_tui.catalog.models.model.store import PARTIAL_FOLDER
from spark_tui.manage.cluster.model.copying import CopyFailed, ModelFile, TransferCount, transfer_error

# A connection of its own: it must end with the copy. Compression is slower than the cable.
_SSH: Final = (
    "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ClearAllForwardings=yes",
    "-o", "ControlPath=none", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "Compression=no",
)  # fmt: skip
_RSYNC: Final = (
    "rsync", "-a", "--links", "--copy-unsafe-links", "--mkpath", "-s", f"--partial-dir={PARTIAL_FOLDER}",
    "--timeout=120", "--ignore-times", "--info=progress2", "--no-human-readable",
    "--outbuf=None", "--files-from=-", "--from0",
)  # fmt: skip
_UNFINISHED: Final = (".incomplete", ".lock")
"""How the Hub's client names what it is downloading."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DONE: Final = re.compile(rb"^\s*(\d+)\s+\d+%")
_SMALL: Final = 1 << 20
_CHUNK: Final = 1 << 20
_END_SECONDS: Final = 0.5
_MOST_BYTES: Final = 64 * 1024
_HASH_THREADS: Final = 4


class SshTransfers:
    """The Transfers port. `environ` is also docker's: it says which daemon here is meant."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {**environ, "LC_ALL": "C"}

    def user(self) -> str:
        return pwd.getpwuid(os.getuid()).pw_name

    def has_rsync(self) -> bool:
        return shutil.which("rsync", path=self._environ.get("PATH")) is not None

    # --- files ----------------------------------------------------------------------------------------

    def files(self, folder: Path, only: Collection[str] = ()) -> tuple[ModelFile, ...]:
        try:
            return tuple(sorted(_files(folder, frozenset(only)), key=lambda file: file.path))
        except OSError as error:
            why = f"{clean_line(str(error.filename or folder))}: {error.strerror or error}"
            raise CopyFailed(f"Cannot read {why}.", "Give yourself access to the model's folder.") from error

    async def damaged(self, folder: Path, files: Sequence[ModelFile], count: TransferCount) -> tuple[str, ...]:
        stopped = TransferCount()

        def check(file: ModelFile) -> str:
            path = folder / file.path
            if Path(file.path).is_absolute() or ".." in path.parts:
                raise CopyFailed(f"{clean_line(file.path)} is outside the model's folder.", "Use the same version.")
            try:
                if _as_expected(path, file, count, stopped):
                    return ""
                path.unlink()
            except FileNotFoundError:
                return file.path
            except OSError as error:
                raise CopyFailed(
                    f"Cannot check {clean_line(str(path))}: {error.strerror or error}.", "Repeat it."
                ) from error
            return file.path

        with ThreadPoolExecutor(_HASH_THREADS) as pool:
            loop = asyncio.get_running_loop()
            try:
                found = await asyncio.gather(*(loop.run_in_executor(pool, check, file) for file in files))
            finally:
                stopped.ended = True
        return tuple(filter(None, found))

    # --- sending --------------------------------------------------------------------------------------

    async def send_image(self, reference: str, to: str, port: int, count: TransferCount) -> None:
        """The archive never touches a disk here: it goes from pipe to pipe inside the kernel."""
        load_words = (*_SSH, *_port(port), to, "--", "docker load")
        with _pipe() as (archive, archive_end), _pipe() as (wire_end, wire), ThreadPoolExecutor(1) as pool:
            async with (
                self._child(("docker", "save", "--", reference), stdin=DEVNULL, stdout=archive_end.fileno()) as save,
                self._child(load_words, stdin=wire_end.fileno(), stdout=DEVNULL) as load,
            ):
                archive_end.close()
                wire_end.close()
                texts = asyncio.gather(_text(save), _text(load))
                loop = asyncio.get_running_loop()
                pump = loop.run_in_executor(pool, _pump, archive.fileno(), wire.fileno(), count)
                try:
                    whole = await asyncio.shield(pump)
                    archive.close()
                    saved = await save.wait() if whole else 0
                    if saved == 0:
                        wire.close()
                        count.ended = True
                        await load.wait()
                finally:
                    await end_group(save, _END_SECONDS)
                    await end_group(load, _END_SECONDS)
                    await pump
                save_text, load_text = await texts
        if saved != 0:
            raise _not_saved(reference, save_text)
        if load.returncode != 0:
            raise transfer_error(to, load.returncode or 0, load_text, "docker load")

    async def send_files(
        self, folder: Path, files: Sequence[str], to: str, port: int, place: str, count: TransferCount
    ) -> None:
        user, at, address = to.rpartition("@")
        target = f"{user}{at}[{address}]" if ":" in address else to
        words = (*_RSYNC, "-e", " ".join((*_SSH, *_port(port))), "--", f"{folder}/", f"{target}:{place}/")
        async with self._child(words, stdin=PIPE, stdout=PIPE) as child:
            given = b"\0".join(os.fsencode(name) for name in files)
            _, err, code, _ = await asyncio.gather(
                give(child, given), _text(child), child.wait(), _follow(child, count)
            )
        if code != 0:
            raise transfer_error(to, code, err, "rsync")

    @contextlib.asynccontextmanager
    async def _child(self, words: Sequence[str], *, stdin: int, stdout: int) -> AsyncIterator[Process]:
        """In a process group of its own, which ends with the block, and with this program if that is killed."""
        with_us = ("setpriv", "--pdeathsig", "TERM", "--") if shutil.which("setpriv") else ()
        try:
            child = await asyncio.create_subprocess_exec(
                *with_us, *words, stdin=stdin, stdout=stdout, stderr=PIPE, env=self._environ, process_group=0
            )
        except OSError as error:
            raise CopyFailed(f"Cannot start {words[0]}: {error.strerror or error}.", "Install it.") from error
        try:
            yield child
        finally:
            await end_group(child, _END_SECONDS)


# --- files ------------------------------------------------------------------------------------------------


def _files(base: Path, only: frozenset[str]) -> Iterator[ModelFile]:
    """What is whole below a folder. A link that leads out of it counts as the file behind it: rsync copies that."""
    root = base.resolve()
    for text, folders, names in os.walk(base, onerror=_unless_absent):
        folder = Path(text)
        links = [name for name in folders if (folder / name).is_symlink()]
        folders[:] = [name for name in folders if name != PARTIAL_FOLDER and name not in links]
        for path in (folder / name for name in (*names, *links)):
            inside = str(path.relative_to(base))
            if path.suffix in _UNFINISHED or (only and inside not in only):
                continue
            if inside != inside.encode("utf-8", "replace").decode():
                raise CopyFailed(f"The name of {clean_line(str(path))} is not UTF-8.", "Rename it.")
            target = path.readlink() if path.is_symlink() else None
            if target and not target.is_absolute() and path.resolve().is_relative_to(root):
                yield ModelFile(inside, link=str(target))
            elif path.is_file():
                size = path.stat().st_size
                named = size > _SMALL or _SHA256.fullmatch(path.name)
                yield ModelFile(inside, size, digest="" if named else hashlib.sha256(path.read_bytes()).hexdigest())


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _as_expected(path: Path, file: ModelFile, count: TransferCount, stopped: TransferCount) -> bool:
    """Size, and content where something is known of it. Raises OSError. The page cache keeps nothing of it."""
    if file.link:
        return path.is_symlink() and str(path.readlink()) == file.link
    expected = file.digest or (path.name if _SHA256.fullmatch(path.name) else "")
    if path.lstat().st_size != file.size:
        return False
    if not expected:
        return True
    found, buffer = hashlib.sha256(usedforsecurity=False), bytearray(_CHUNK)
    with path.open("rb", buffering=0) as source:
        while not stopped.ended and (size := source.readinto(buffer)):
            found.update(memoryview(buffer)[:size])
            count.done += size
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return stopped.ended or found.hexdigest() == expected


# --- processes --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """The end to read from, and the end to write to."""
    reader, writer = os.pipe()
    with FileIO(reader) as given, FileIO(writer, "w") as taken:
        yield given, taken


def _pump(source: int, sink: int, count: TransferCount) -> bool:
    """Moves everything; whether it ended at the end of the source, and not because the sink was closed."""
    try:
        while moved := os.splice(source, sink, _CHUNK):
            count.done += moved
    except BrokenPipeError:
        return False
    return True


async def _follow(child: Process, count: TransferCount) -> None:
    """Reads rsync's progress, whose lines end in carriage returns."""
    rest = b""
    while child.stdout is not None and (chunk := await child.stdout.read(_MOST_BYTES)):
        *lines, rest = re.split(rb"[\r\n]", rest[-_MOST_BYTES:] + chunk)
        found = [match for line in lines if (match := _DONE.match(line))]
        if found:
            count.done = int(found[-1][1])


async def _text(child: Process) -> str:
    """Standard error, of which the end is kept: causes stand there."""
    kept = b""
    while child.stderr is not None and (chunk := await child.stderr.read(_MOST_BYTES)):
        kept = (kept + chunk)[-_MOST_BYTES:]
    return kept.decode("utf-8", "replace")


def _port(port: int) -> tuple[str, ...]:
    return ("-p", str(port)) if port else ()


def _not_saved(reference: str, err: str) -> SparkError:
    if "No such image" in err or "does not exist" in err:
        return ImageNotFound(f"The image {clean_line(reference)} is gone.", "Pull it again.", detail=clean(err))
    return CopyFailed(f"docker save failed: {last_line(err) or 'no message'}.", "Repeat the copy.", detail=clean(err))
