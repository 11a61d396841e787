"""Conversations as append-only JSON lines: one private file each, and beside it a folder of images and audio.

Two locks keep processes apart: the one that writes in a conversation holds `<id>.lock` for as long as it is open, and
every append takes the file itself for a moment. Both are the kernel's: they end with the process that held them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.executors import CallPool
from spark_tui.base.files import APPEND_FLAGS, FILE_MODE, FileLocks, PrivateFolder, append_lines
from spark_tui.base.quantities import MIB, human_bytes
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json
from spark_tui.use.chat.model.conversation import ChatThread, ConversationHit, ConversationSummary
from spark_tui.use.chat.model.records import ThreadReader

MOST_BYTES: Final = 256 * MIB
"""Of one conversation; a context of a million tokens is about 4 MB."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MOST_HITS: Final = 50


class FileConversations:
    """The ConversationStore port in a folder of its own. One thread does the work, so that lines keep their order."""

    def __init__(self, folder: Path) -> None:
        self._folder = PrivateFolder(folder)
        self._pool = CallPool("conversations", 1)
        self._claims = FileLocks(folder)
        self._known: dict[str, tuple[tuple[int, int], ConversationSummary]] = {}
        self.unreadable: tuple[str, ...] = ()

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        """What has not changed since the last time is not read again."""
        return await self._pool.run(self._summaries)

    async def read(self, conversation: str) -> ChatThread:
        return await self._pool.run(self._read, conversation)

    async def search(self, text: str) -> tuple[ConversationHit, ...]:
        return await self._pool.run(self._search, text)

    async def new_id(self, at: float) -> str:
        return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at))}-{os.urandom(3).hex()}"

    async def claim(self, conversation: str) -> bool:
        return await self._pool.run(self._claim, conversation)

    async def release(self, conversation: str) -> None:
        await self._pool.run(self._claims.release, conversation)

    async def append(self, conversation: str, records: Sequence[Mapping[str, Any]], *, durable: bool = False) -> None:
        lines = (f"{json.dumps(record, separators=(',', ':'))}\n" for record in records)
        await self._pool.run(self._append, conversation, "".join(lines).encode("ascii"), durable)

    async def keep(self, conversation: str, data: bytes) -> str:
        return await self._pool.run(self._keep, conversation, data)

    async def delete(self, conversation: str) -> None:
        await self._pool.run(self._delete, conversation)

    async def close(self) -> None:
        await self._pool.run(self._claims.release_all)
        self._pool.close()

    def _path(self, conversation: str) -> Path:
        if _ID.fullmatch(conversation) is None:
            raise _no_such(conversation)
        return self._folder.path / f"{conversation}.jsonl"

    # --- read -----------------------------------------------------------------------------------------

    def _read(self, conversation: str, *, with_files: bool = True) -> ChatThread:
        path = self._path(conversation)
        folder = PrivateFolder(path.with_suffix(".files"))

        def load(name: str) -> bytes:
            with contextlib.suppress(OSError):
                if with_files and _ID.fullmatch(name) is not None:
                    return folder.read(folder.path / name, MOST_BYTES) or b""
            return b""

        reader = ThreadReader(load)
        for line in self._lines(path):
            try:
                reader.read(load_json(line))
            except ValueError:
                reader.damaged += 1
        return replace(reader.thread(), id=conversation)  # the file may have been copied under another name

    def _lines(self, path: Path) -> Iterator[bytes]:
        """The file's lines; a last one without an end counts as one, and is read if it is whole."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _no_such(path.stem) from None
        except OSError as error:
            raise _cannot("read", path, error) from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SparkError(f"{path} is no file.", "Remove it.")
            if status.st_size > MOST_BYTES:
                raise RefusedError(
                    f"{path} has {human_bytes(status.st_size)}; {human_bytes(MOST_BYTES)} are the most.",
                    "Move it away; it is JSON, a line for each part.",
                )
            yield from file

    def _summaries(self) -> tuple[ConversationSummary, ...]:
        found, problems = list[ConversationSummary](), list[str]()
        with _os_errors("read", self._folder.path):
            paths = [path for path in self._folder.path.glob("*.jsonl") if _ID.fullmatch(path.stem)]
        for path in paths:
            try:
                found.append(self._summary(path))
            except SparkError as error:
                problems.append(error.summary)
            except FileNotFoundError:
                continue  # deleted meanwhile
        self.unreadable = tuple(problems)
        ids = {each.id for each in found}
        self._known = {id_: known for id_, known in self._known.items() if id_ in ids}
        return tuple(sorted(found, key=lambda each: (each.changed_at, each.id), reverse=True))

    def _summary(self, path: Path) -> ConversationSummary:
        status, in_use = path.lstat(), self._claims.in_use(path.stem)
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._known.get(path.stem)
        if known is None or known[0] != stamp:
            thread = self._read(path.stem, with_files=False)
            known = self._known[path.stem] = stamp, thread.summary(status.st_mtime, size=status.st_size)
        return known[1] if known[1].in_use is in_use else replace(known[1], in_use=in_use)

    def _search(self, text: str) -> tuple[ConversationHit, ...]:
        hits: list[ConversationHit] = []
        for summary in self._summaries() if text.strip() else ():
            hits.extend(self._read(summary.id, with_files=False).hits(text))
            if len(hits) >= _MOST_HITS:
                break
        return tuple(hits[:_MOST_HITS])

    # --- write ----------------------------------------------------------------------------------------

    def _append(self, conversation: str, data: bytes, durable: bool) -> None:
        path = self._path(conversation)
        with _os_errors("write", path):
            self._folder.prepare()
            with os.fdopen(os.open(path, APPEND_FLAGS, FILE_MODE), "r+b", buffering=0) as file:
                os.fchmod(file.fileno(), FILE_MODE)
                fcntl.flock(file, fcntl.LOCK_EX)
                append_lines(file.fileno(), data, durable=durable)

    def _keep(self, conversation: str, data: bytes) -> str:
        folder = PrivateFolder(self._path(conversation).with_suffix(".files"))
        name = hashlib.sha256(data).hexdigest()[:40]
        with _os_errors("write", folder.path):
            self._folder.prepare()
            if not (folder.path / name).exists():
                folder.write(folder.path / name, [data])
        return name

    def _claim(self, conversation: str) -> bool:
        with _os_errors("write", self._path(conversation)):
            self._folder.prepare()
            return self._claims.take(conversation)

    def _delete(self, conversation: str) -> None:
        path = self._path(conversation)
        if not path.exists():
            raise _no_such(conversation)
        if not self._claim(conversation):
            raise RefusedError("Another spark-tui writes in this conversation.", "Close it there first.")
        try:
            with _os_errors("delete", path):
                path.unlink(missing_ok=True)
                shutil.rmtree(path.with_suffix(".files"), ignore_errors=True)
        finally:
            self._claims.release(conversation)


def _no_such(conversation: str) -> UsageError:
    return UsageError(
        f"There is no conversation {truncate(clean_line(conversation), 60)}.", "List them: spark-tui conversations list"
    )


@contextlib.contextmanager
def _os_errors(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot(what, path, error) from error


def _cannot(what: str, path: Path, error: OSError) -> SparkError:
    remedy = {
        28: "The disk is full: free space. spark-tui keeps running and writes later.",
        30: "The file system is read-only.",
        13: "Make the folder yours: chown it, mode 0700.",
    }.get(error.errno or 0, "Check the folder.")
    return SparkError(f"Cannot {what} {path}: {error.strerror or error}.", remedy)
