"""Conversations as append-only JSON lines: one private file each, and beside it a folder of pictures and sounds.

Two locks keep processes apart: the one that writes in a conversation holds `<id>.lock` for as long as it is open, and
every append takes the file itself for a moment. Both are the kernel's: they end with the process that held them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.chat.conversation import ChatThread, ConversationHit, ConversationSummary
from spark_tui.domain.chat.records import ThreadReader
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.quantities import MIB, human_bytes
from spark_tui.domain.text import clean_line, truncate
from spark_tui.services.executors import CallPool
from spark_tui.services.files import FILE_MODE, FOLDER_MODE, PrivateFolder, is_locked


class Claims:
    """The claims of this process on conversations in one folder. To be used from one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def take(self, name: str) -> bool:
        """Whether it is ours now; false while another process has it. Raises OSError."""
        if name in self._held:
            return True
        path = self._path(name)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            except OSError:
                os.close(descriptor)
                raise
            if _is_at(descriptor, path):
                self._held[name] = descriptor
                return True
            os.close(descriptor)  # whoever held it has just removed it

    def release(self, name: str) -> None:
        """Ends a claim, if there is one."""
        descriptor = self._held.pop(name, None)
        if descriptor is not None:
            self._path(name).unlink(missing_ok=True)
            os.close(descriptor)

    def release_all(self) -> None:
        """Ends all claims."""
        for name in tuple(self._held):
            self.release(name)

    def in_use(self, name: str) -> bool:
        """Whether any process has it, this one included."""
        return name in self._held or is_locked(self._path(name))


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


MOST_BYTES: Final = 256 * MIB
"""Of one conversation; a context of a million tokens is about 4 MB."""
EXCERPT: Final = 60
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_CHUNK: Final = 1 << 20


class FileConversations:
    """The ConversationStore port in a folder of its own. One thread does the work, so that lines keep their order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._private = PrivateFolder(folder)
        self._pool = CallPool("conversations", 1)
        self._claims = Claims(folder)
        self._known: dict[str, tuple[tuple[int, int], ConversationSummary]] = {}
        self._unreadable: tuple[str, ...] = ()

    # --- the port -------------------------------------------------------------------------------------

    @property
    def unreadable(self) -> tuple[str, ...]:
        """See the port."""
        return self._unreadable

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        """See the port. What has not changed since the last look is not read again."""
        return await self._pool.run(self._summaries)

    async def read(self, conversation: str) -> ChatThread:
        """See the port."""
        return await self._pool.run(self._read, conversation)

    async def search(self, text: str, most: int = 50) -> tuple[ConversationHit, ...]:
        """See the port."""
        return await self._pool.run(self._search, text, most)

    async def new_id(self, at: float) -> str:
        """See the port."""
        return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at))}-{os.urandom(3).hex()}"

    async def claim(self, conversation: str) -> bool:
        """See the port."""
        return await self._pool.run(self._claim, conversation)

    async def release(self, conversation: str) -> None:
        """See the port."""
        await self._pool.run(self._claims.release, conversation)

    async def append(self, conversation: str, records: Sequence[Mapping[str, Any]], *, durable: bool = False) -> None:
        """See the port."""
        data = b"".join(_line(record) for record in records)
        await self._pool.run(self._append, conversation, data, durable)

    async def keep(self, conversation: str, data: bytes) -> str:
        """See the port."""
        return await self._pool.run(self._keep, conversation, data)

    async def delete(self, conversation: str) -> None:
        """See the port."""
        await self._pool.run(self._delete, conversation)

    async def close(self) -> None:
        """See the port."""
        await self._pool.run(self._claims.release_all)
        self._pool.close()

    # --- paths ----------------------------------------------------------------------------------------

    def _path(self, conversation: str) -> Path:
        if _ID.fullmatch(conversation) is None:
            raise _no_such(conversation)
        return self._folder / f"{conversation}.jsonl"

    def _beside(self, conversation: str) -> Path:
        return self._path(conversation).with_suffix(".files")

    # --- reading --------------------------------------------------------------------------------------

    def _read(self, conversation: str, *, with_files: bool = True) -> ChatThread:
        path, folder = self._path(conversation), PrivateFolder(self._beside(conversation))

        def load(name: str) -> bytes:
            if not with_files or _ID.fullmatch(name) is None:
                return b""
            try:
                return folder.read(folder.path / name, MOST_BYTES) or b""
            except OSError:
                return b""

        reader = ThreadReader(load)
        for line in self._lines(path):
            try:
                reader.read(json.loads(line))
            except (ValueError, RecursionError):
                reader.damaged += 1
        thread = reader.thread()
        return thread if thread.id == conversation else _renamed(thread, conversation)

    def _lines(self, path: Path) -> Iterator[bytes]:
        """The file's lines; a last one without an end counts as one, and is read if it is whole."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _no_such(path.stem) from None
        except OSError as error:
            raise cannot("read", path, error) from error
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
        for path in self._paths():
            try:
                found.append(self._summary(path))
            except SparkError as error:
                problems.append(error.summary)
            except FileNotFoundError:
                continue  # deleted while we looked
        self._unreadable = tuple(problems)
        self._known = {id_: known for id_, known in self._known.items() if any(each.id == id_ for each in found)}
        return tuple(sorted(found, key=lambda each: (each.changed_at, each.id), reverse=True))

    def _paths(self) -> list[Path]:
        try:
            return [path for path in self._folder.glob("*.jsonl") if _ID.fullmatch(path.stem)]
        except OSError as error:
            raise cannot("read", self._folder, error) from error

    def _summary(self, path: Path) -> ConversationSummary:
        status = path.lstat()
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._known.get(path.stem)
        if known is not None and known[0] == stamp:
            summary = known[1]
        else:
            thread = self._read(path.stem, with_files=False)
            summary = ConversationSummary(
                path.stem,
                thread.title,
                thread.created_at,
                status.st_mtime,
                len(thread.exchanges),
                tuple(dict.fromkeys(each.model for each in thread.exchanges)),
                tuple(dict.fromkeys(each.engine for each in thread.exchanges)),
                status.st_size,
                thread.damaged,
            )
            self._known[path.stem] = stamp, summary
        return _with_use(summary, self._claims.in_use(path.stem))

    def _search(self, text: str, most: int) -> tuple[ConversationHit, ...]:
        wanted, hits = text.casefold(), list[ConversationHit]()
        if not wanted.strip():
            return ()
        for summary in self._summaries():
            for hit in self._hits(summary, wanted):
                hits.append(hit)
                if len(hits) >= most:
                    return tuple(hits)
        return tuple(hits)

    def _hits(self, summary: ConversationSummary, wanted: str) -> Iterator[ConversationHit]:
        thread = self._read(summary.id, with_files=False)
        if wanted in thread.title.casefold():
            yield ConversationHit(summary.id, thread.title, 0, clean_line(thread.title))
        for exchange in thread.exchanges:
            for text in (exchange.question, exchange.answer.content):
                if wanted in text.casefold():
                    yield ConversationHit(summary.id, thread.title, exchange.number, _excerpt(text, wanted))
                    break

    # --- writing --------------------------------------------------------------------------------------

    def _append(self, conversation: str, data: bytes, durable: bool) -> None:
        path = self._path(conversation)
        try:
            self._prepare()
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, FILE_MODE)
            try:
                self._append_to(descriptor, data, durable)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise cannot("write", path, error) from error

    @staticmethod
    def _append_to(descriptor: int, data: bytes, durable: bool) -> None:
        os.fchmod(descriptor, FILE_MODE)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data  # a line that a crash tore off: what comes now must not become part of it
        written = 0
        try:
            while written < len(data):
                written += os.write(descriptor, data[written : written + _CHUNK])
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        if durable:
            os.fsync(descriptor)

    def _keep(self, conversation: str, data: bytes) -> str:
        folder = PrivateFolder(self._beside(conversation))
        name = hashlib.sha256(data).hexdigest()[:40]
        try:
            self._prepare()
            if not (folder.path / name).exists():
                folder.write(folder.path / name, [data])
        except OSError as error:
            raise cannot("write", folder.path, error) from error
        return name

    def _claim(self, conversation: str) -> bool:
        path = self._path(conversation)
        try:
            self._prepare()
            return self._claims.take(conversation)
        except OSError as error:
            raise cannot("write", path, error) from error

    def _prepare(self) -> None:
        self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if stat.S_IMODE(self._folder.stat().st_mode) != FOLDER_MODE:
            self._folder.chmod(FOLDER_MODE)

    def _delete(self, conversation: str) -> None:
        path = self._path(conversation)
        if not path.exists():
            raise _no_such(conversation)
        if not self._claim(conversation):
            raise RefusedError("Another spark-tui writes in this conversation.", "Close it there first.")
        try:
            path.unlink(missing_ok=True)
            shutil.rmtree(self._beside(conversation), ignore_errors=True)
        except OSError as error:
            raise cannot("delete", path, error) from error
        finally:
            self._claims.release(conversation)
        self._known.pop(conversation, None)


def _line(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, separators=(',', ':'))}\n".encode("ascii")


def _renamed(thread: ChatThread, conversation: str) -> ChatThread:
    """A file that was copied under another name is the conversation of that name."""
    return replace(thread, id=conversation)


def _with_use(summary: ConversationSummary, in_use: bool) -> ConversationSummary:
    return summary if summary.in_use is in_use else replace(summary, in_use=in_use)


def _excerpt(text: str, wanted: str) -> str:
    """The text around the first hit, on one line."""
    at = max(0, text.casefold().find(wanted))
    start, end = max(0, at - EXCERPT // 2), at + len(wanted) + EXCERPT
    piece = " ".join(clean_line(text[start:end]).split())
    return f"{'... ' if start else ''}{piece}{' ...' if end < len(text) else ''}"


def _no_such(conversation: str) -> UsageError:
    return UsageError(
        f"There is no conversation {truncate(clean_line(conversation), 60)}.", "spark-tui conversations lists them."
    )


def cannot(what: str, path: Path, error: OSError) -> SparkError:
    remedy = {
        28: "The disk is full: free space. spark-tui keeps running and writes later.",
        30: "The file system is read-only.",
        13: "Make the folder yours: chown it, mode 0700.",
    }.get(error.errno or 0, "Check the folder.")
    return SparkError(f"Cannot {what} {path}: {error.strerror or error}.", remedy)
