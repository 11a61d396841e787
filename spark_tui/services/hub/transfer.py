"""Fetches one file: resumes where an earlier run stopped, checks it against its hash, puts it in its place.

Our own and not huggingface_hub's: measured with 2.4.0 against tests/hub_server.py, a download killed (SIGKILL) at
80 of 200 MiB fetches all 200 MiB again and leaves the killed run's temporary file behind (file_download.py: a
temporary name unique to each process). Its Xet path writes to a temporary file of the same kind, so it cannot resume
either; here it is used for files that the Hub hands out by Xet alone. Bytes are written as they arrive: a part is
always a prefix of the file, whatever ends the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import filelock

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.download import FileState, TokenBucket
from spark_tui.domain.models.hub import RepoFile
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.secret import Secret
from spark_tui.services.hub.places import Place, free_bytes, io_error, made
from spark_tui.services.hub.session import (
    HubCall,
    NoResponse,
    RetryLater,
    describe,
    plain_headers,
    raise_for_status,
    translate,
)

SYNC_BYTES: Final = 64 * 1024 * 1024
"""Written out and dropped from the page cache in steps of this size: on a Spark that cache is the GPU's memory too."""
_HASH_CHUNK: Final = 8 * 1024 * 1024
_READ_CHUNK: Final = 256 * 1024
_BACKOFF: Final = (1.0, 60.0)
_MOST_TROUBLE: Final = 20
"""So many answers of HTTP 5xx in a row, without a byte between them, end a download."""
_LOCK_SECONDS: Final = 1.0


class Stopped(Exception):
    """The person, or the machine, wants it to end now."""


class Progress(Protocol):
    """Who hears of a file's progress."""

    def report(self, path: str, done: int, state: FileState) -> None:
        """Bytes on the disk."""


class Shared:
    """What the files of one download share: the wish to stop, the rate limit, and what they wait for."""

    def __init__(self, store: Path, endpoint: str, token: Secret | None, progress: Progress) -> None:
        self.store = store
        self.endpoint = endpoint
        self.token = token
        self.progress = progress
        self.stop = threading.Event()
        self._bucket = TokenBucket()
        self._lock = threading.Lock()
        self._waits: dict[int, str] = {}

    def limit(self, bytes_per_second: float | None) -> None:
        """The rate limit of this process."""
        with self._lock:
            self._bucket.limit(bytes_per_second)

    def took(self, size: int) -> None:
        """Holds a reader back after so many bytes. Raises Stopped."""
        with self._lock:
            seconds = self._bucket.take(time.monotonic(), size)
        if self.stop.wait(seconds) if seconds > 0 else self.stop.is_set():
            raise Stopped

    def pause(self, why: str, seconds: float) -> None:
        """Waits, and says for what. Raises Stopped."""
        me = threading.get_ident()
        with self._lock:
            self._waits[me] = why
        try:
            if self.stop.wait(seconds):
                raise Stopped
        finally:
            with self._lock:
                self._waits.pop(me, None)

    def check(self) -> None:
        """Raises Stopped when it is time to end."""
        if self.stop.is_set():
            raise Stopped

    def waiting(self) -> list[str]:
        """What is waited for now, one text for each that waits."""
        with self._lock:
            return list(self._waits.values())

    def need_room(self, size: int) -> None:
        """Raises DiskFull when so many more bytes would fill the disk."""
        if free_bytes(self.store) - size < hub_errors.KEEP_FREE:
            raise hub_errors.disk_full(str(self.store))


class Part:
    """A file that is not whole yet: what is in it is a prefix of the file, and its hash goes along."""

    def __init__(self, path: Path, file: RepoFile, shared: Shared) -> None:
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

    def rehash(self) -> None:
        """Reads what is there, for its hash. Raises Stopped."""
        at = 0
        while at < self.size and (data := os.pread(self._descriptor, min(_HASH_CHUNK, self.size - at), at)):
            self._hash.update(data)
            os.posix_fadvise(self._descriptor, at, len(data), os.POSIX_FADV_DONTNEED)
            at += len(data)
            self._shared.progress.report(self._file.path, at, FileState.CHECKING)
            self._shared.check()

    def add(self, chunk: bytes) -> None:
        """Writes at the end. Raises OSError, DiskFull, and NoResponse when more arrives than the file has."""
        if self._file.size is not None and self.size + len(chunk) > self._file.size:
            self.restart()
            raise NoResponse("more arrived than the file has")
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

    def publish(self, whole: Path) -> str:
        """Puts it in its place if its hash is right, else deletes it; returns the hash. On the disk first, so that a
        whole file's name never leads to half of it. A file whose hash is not known (not on the Hub) is taken as is."""
        digest = str(self._hash.hexdigest())
        if self._file.digest and digest != self._file.digest:
            self._path.unlink(missing_ok=True)
            return digest
        self._sync()
        os.fchmod(self._descriptor, 0o666 & ~_UMASK)
        self._path.replace(whole)
        return self._file.digest


class FileFetch:
    """One file of a repository, or (`hub` false) of the web."""

    def __init__(
        self, shared: Shared, file: RepoFile, place: Place, url: str, asked: HubCall, *, hub: bool = True
    ) -> None:
        self._shared = shared
        self._file = file
        self._place = place
        self._url = url
        self._asked = asked
        self._hub = hub

    def run(self) -> None:
        """Until the file is whole and in its place. Raises Stopped, or a SparkError that waiting does not cure."""
        made(self._place.whole.parent)
        made(self._place.part.parent)
        with self._alone():
            if not (self._place.whole.is_file() and self._place.is_whole(self._file.size)):
                try:
                    self._fetch()
                except OSError as error:
                    raise io_error(error, self._place.part) from error
            self._report(FileState.DONE, self._file.size or self._place.here(self._file.size))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock that the library takes for the same file: an engine may be fetching it at this moment."""
        if self._place.lock is None:
            yield
            return
        made(self._place.lock.parent)
        lock = filelock.UnixFileLock(self._place.lock, mode=0o644, thread_local=False)
        try:
            while True:
                try:
                    lock.acquire(blocking=False)
                    break
                except filelock.Timeout:
                    self._shared.pause("another program is downloading this file", _LOCK_SECONDS)
                except OSError as error:
                    raise io_error(error, self._place.lock) from error
            yield
        finally:
            lock.release()

    def _fetch(self) -> None:
        found = ""
        for _ in range(2):
            with Part(self._place.part, self._file, self._shared) as part:
                self._fill(part)
                found = part.publish(self._place.whole)
            if found == self._file.digest:
                return
        raise hub_errors.checksum(self._file.path, self._file.digest, found)

    def _fill(self, part: Part) -> None:
        """Fills the part. Whatever may pass is waited for: a network that is gone without end, a Hub in trouble for
        `_MOST_TROUBLE` tries."""
        if self._file.digest:
            part.rehash()
        else:
            part.restart()  # the rest may belong to another version
        trouble = 0
        while part.size != self._file.size:
            self._report(FileState.RUNNING, part.size)
            before = part.size
            try:
                self._stream(part)
                break
            except (NoResponse, RetryLater) as error:
                trouble = 0 if part.size > before else trouble + 1
                found = translate(error, self._asked)
                first, most = _BACKOFF
                seconds = min(most, first * 2 ** min(trouble, 10))
                hopeless = isinstance(found, hub_errors.HubSwitchedOff)
                if isinstance(error, RetryLater):
                    hopeless = error.status != 429 and trouble >= _MOST_TROUBLE
                    seconds = seconds if error.wait is None else max(1.0, error.wait)
                if hopeless:
                    raise found from error
                self._shared.pause(f"{found.summary.rstrip('.')}; retry in {human_duration(seconds)}", seconds)
        self._report(FileState.CHECKING, part.size)

    def _stream(self, part: Part) -> None:
        """One request, to its end. Raises NoResponse, RetryLater, SparkError."""
        import httpx2
        from huggingface_hub import get_session

        self._shared.need_room(min(SYNC_BYTES, (self._file.size or SYNC_BYTES) - part.size))
        headers = plain_headers(self._shared.token if self._hub else None)
        if part.size:
            headers["Range"] = f"bytes={part.size}-"
        with get_session().stream("GET", self._url, headers=headers) as response:
            self._check_answer(response, part)
            try:
                for chunk in response.iter_raw(_READ_CHUNK):
                    part.add(chunk)
                    self._report(FileState.RUNNING, part.size)
                    self._shared.took(len(chunk))
            except httpx2.TransportError as error:
                raise NoResponse(describe(error)) from error
        if self._file.size is not None and part.size < self._file.size:
            raise NoResponse("the connection was closed before the end")

    def _check_answer(self, response: Any, part: Part) -> None:
        """Before a byte of it is written."""
        if response.status_code == 416:  # the part is as long as the file, or longer
            part.restart()
            raise NoResponse("the part does not fit the file")
        if response.status_code >= 400 and response.history and "X-Error-Code" not in response.headers:
            raise RetryLater(response.status_code, None)  # the storage behind the Hub: the next address may be better
        try:
            raise_for_status(response)
        except Exception as error:
            missing = f"{hub_errors.shown(self._url)} is not available (HTTP {response.status_code})."
            found: SparkError = translate(error, self._asked) if self._hub else hub_errors.other(missing, "")
            raise found from error
        begins = 0
        if response.status_code == 206:
            told = re.match(r"bytes (\d{1,18})-", response.headers.get("content-range", ""))
            begins = int(told[1]) if told else -1
        if begins != part.size:
            part.restart()
            if begins:
                raise NoResponse("the server answered another range")

    def _report(self, state: FileState, done: int) -> None:
        self._shared.progress.report(self._file.path, done, state)


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


_UMASK: Final = _umask()  # once, while there is one thread: it can only be read by setting it
