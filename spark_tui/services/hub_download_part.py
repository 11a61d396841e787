"""A file that is not whole yet: bytes are written as they come, hashed as they are written, kept out of the cache."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from spark_tui.domain.models.hub import RepoFile
from spark_tui.services.hub_session import Unanswered

SYNC_BYTES: Final = 64 * 1024 * 1024
"""Written out and dropped from the page cache in steps of this size: on a Spark that cache is the GPU's memory too."""
_HASH_CHUNK: Final = 8 * 1024 * 1024


class Watcher(Protocol):
    """Who says when to stop."""

    def check(self) -> None:
        """Raises when it is time to end."""

    def need_room(self, size: int) -> None:
        """Raises DiskFull when so many more bytes would fill the disk."""


class Part:
    """A file that is not whole yet: what is in it is a prefix of the file, and its hash goes along."""

    def __init__(self, path: Path, file: RepoFile, shared: Watcher) -> None:
        self._path = path
        self._file = file
        self._shared = shared
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._descriptor).st_size
        self._synced = self.size
        self._hash = self._new_hash()
        if file.size is not None and self.size > file.size:
            self.restart()

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _new_hash(self) -> Any:
        """SHA-256 of the content for large files; git's own for the others, which begins with the length."""
        if self._file.sha256 or not re.fullmatch(r"[0-9a-f]{40}", self._file.blob_id):
            return hashlib.sha256()
        return hashlib.sha1(f"blob {self._file.size or 0}\0".encode(), usedforsecurity=False)

    def recall(self, tell: Callable[[int], None]) -> None:
        """Reads what is there, for its hash. Raises Stopped."""
        at = 0
        while at < self.size:
            data = os.pread(self._descriptor, min(_HASH_CHUNK, self.size - at), at)
            if not data:
                break
            self._hash.update(data)
            os.posix_fadvise(self._descriptor, at, len(data), os.POSIX_FADV_DONTNEED)
            at += len(data)
            tell(at)
            self._shared.check()

    def add(self, chunk: bytes) -> None:
        """Writes at the end. Raises OSError, and SparkError when more arrives than the file has."""
        if self._file.size is not None and self.size + len(chunk) > self._file.size:
            self.restart()
            raise Unanswered("more arrived than the file has")
        view = memoryview(chunk)
        while view:
            view = view[os.pwrite(self._descriptor, view, self.size + len(chunk) - len(view)) :]
        self._hash.update(chunk)
        self.size += len(chunk)
        if self.size - self._synced >= SYNC_BYTES:
            self._sync()
            self._shared.need_room(SYNC_BYTES)

    def _sync(self) -> None:
        os.fdatasync(self._descriptor)
        os.posix_fadvise(self._descriptor, self._synced, self.size - self._synced, os.POSIX_FADV_DONTNEED)
        self._synced = self.size

    def restart(self) -> None:
        """From the first byte."""
        os.ftruncate(self._descriptor, 0)
        self.size = self._synced = 0
        self._hash = self._new_hash()

    def digest(self) -> str:
        """Of all that was added."""
        return str(self._hash.hexdigest())

    def is_right(self, digest: str) -> bool:
        """A file whose hash is not told (not on the Hub) is taken as it is."""
        return not self._file.digest or digest == self._file.digest

    def discard(self) -> None:
        """Its content is wrong."""
        self._path.unlink(missing_ok=True)

    def publish(self, whole: Path) -> None:
        """Puts it in its place: on the disk first, so that a whole file's name never leads to half of it."""
        self._sync()
        os.fchmod(self._descriptor, 0o666 & ~_UMASK)
        self._path.replace(whole)


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


_UMASK: Final = _umask()  # once, while there is one thread: it can only be read by setting it
