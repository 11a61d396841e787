"""Where a download's files lie, and how one of them is fetched: resumed, checked against its hash, put in its place.

Our own and not huggingface_hub's: measured with 2.4.0 against tests/hub_server.py, a download killed (SIGKILL) at
80 of 200 MiB fetches all 200 MiB again and leaves the killed run's temporary file behind (file_download.py: a
temporary name unique to each process). Its Xet path writes to a temporary file of the same kind, so it cannot resume
either; here it is used for files that the Hub hands out by Xet alone. Bytes are written as they arrive: a part is
always a prefix of the file, whatever ends the process.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import filelock
from msgspec import Struct

from spark_tui.base.engine.container import repository_folder
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.files import read_plain
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.secret import Secret
from spark_tui.catalog.models.adapter.hub_client import (
    CutOff,
    HubCall,
    NoResponse,
    RetryLater,
    plain_headers,
    raise_for_status,
    translate,
    whole_answer,
)
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import DownloadRequest, FileProgress, FileState, TokenBucket
from spark_tui.catalog.models.model.hub import RepoFile

PART: Final = ".incomplete"
SYNC_BYTES: Final = 64 * 1024 * 1024
"""Written out and dropped from the page cache in steps of this size: on a Spark that cache is the GPU's memory too."""
_HASH_CHUNK: Final = 8 * 1024 * 1024
_READ_CHUNK: Final = 256 * 1024
_BACKOFF: Final = (1.0, 60.0)
MOST_TROUBLE: Final = 20
"""Answers of HTTP 5xx in a row, without a byte between them, that end a download."""
MOST_CUT_OFF: Final = 8
"""Answers in a row that broke off without a new byte, and end a download."""
_MOST_UNANNOUNCED: Final = 256 * 1024 * 1024
"""Bytes of a file whose size is unknown before it is there: one that is not on the Hub."""
_LOCK_SECONDS: Final = 1.0


class Stopped(Exception):
    """The download was paused or cancelled, or the machine shuts down."""


class FilePlace(Struct, frozen=True):
    """One file. `link` is the name in the cache's snapshot, None elsewhere. `lock` is what the library locks too."""

    whole: Path
    part: Path
    link: Path | None = None
    lock: Path | None = None

    def whole_size(self, size: int | None) -> int | None:
        """Bytes of the whole file; None when it is absent, or of another size than the Hub's."""
        found = (_size(path) for path in (self.link, self.whole) if path is not None)
        return next((each for each in found if each is not None and size in (None, each)), None)

    def here(self, size: int | None) -> int:
        """Bytes on the disk: of the whole file, else of its part."""
        whole = self.whole_size(size)
        if whole is not None:
            return whole
        part = _size(self.part) or 0
        return part if size is None else min(part, size)


class Places:
    """Where the files of one request lie, while they arrive and afterwards. Raises UsageError for a target outside the
    store.

    In the Hub's cache a file is `blobs/DIGEST` with a link from `snapshots/COMMIT/PATH`; while it arrives it is
    `blobs/DIGEST.incomplete`, as huggingface_hub had it up to version 0.36 (later ones throw parts away), so that a
    part left by an older one is resumed. In a folder it is `PATH`, with its part below `.cache/huggingface/download`.
    """

    def __init__(self, store: Path, request: DownloadRequest, commit: str = "") -> None:
        self._request = request
        self._commit = commit
        self.hub = store / "hub"
        self.in_cache = not request.target
        target = None if self.in_cache else _inside(store, request.target)
        self.folder = self.hub / repository_folder(request.repo) if target is None else target
        self.single: FilePlace | None = None
        """The one file that the target itself names."""
        if target is not None and request.single:
            self.folder = target.parent
            self.single = FilePlace(target, target.with_name(f".{target.name}{PART}"))

    def of(self, file: RepoFile) -> FilePlace:
        if self.single is not None:
            return self.single
        if self.in_cache:
            blob = self.folder / "blobs" / file.digest
            link = self.folder / "snapshots" / self._commit / file.path
            lock = self.hub / ".locks" / self.folder.name / f"{file.digest}.lock"
            return FilePlace(blob, blob.with_name(file.digest + PART), link, lock)
        # The library's own folder, and a name that identifies the content, however long the path is.
        name = f"{file.path.replace('/', '--')[-120:]}.{file.digest[:64]}{PART}"
        return FilePlace(_inside(self.folder, file.path), self.folder / ".cache/huggingface/download" / name)

    def write_metadata(self, file: RepoFile) -> None:
        """Commit, ETag and time of a folder's file, for the library: it hashes files without. Raises OSError."""
        path = self.folder / ".cache/huggingface/download" / f"{file.path}.metadata"
        _put(path, f"{self._commit}\n{file.digest}\n{time.time()}\n")

    def is_named(self) -> bool:
        """Whether the branch or tag that was asked for leads to this commit; always, outside of the cache."""
        if not self.in_cache or self._request.revision == self._commit:
            return True
        try:
            return read_plain(_inside(self.folder / "refs", self._request.revision)).decode().strip() == self._commit
        except (OSError, ValueError):
            return False

    def write_ref(self) -> None:
        """The commit of a branch or tag, written last: an engine never finds half a model by its name. Raises
        OSError."""
        if self._request.revision != self._commit:
            _put(_inside(self.folder / "refs", self._request.revision), self._commit)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)


def _inside(root: Path, path: str) -> Path:
    """`root/path`, which must stay below `root`: names come from recipes and repositories of strangers."""
    parts = Path(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise UsageError(f"{path!r} is not a place within the model store.", "Name a folder or file below it.")
    return root.joinpath(*parts)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def free_bytes(path: Path) -> int:
    """Free on the file system that holds `path`, or its nearest parent. Raises OSError."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def made(path: Path) -> None:
    """Makes a folder where it is absent. Raises the store's errors."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise io_error(error, path) from error


def io_error(error: OSError, path: Path) -> SparkError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return hub_errors.disk_full(str(path))
    where = error.filename if isinstance(error.filename, str) else str(path)
    return hub_errors.not_writable(where, error.strerror or str(error))


class TransferState:
    """What the threads of one download share: progress, the wish to stop, the rate limit, and what they wait for."""

    def __init__(self, store: Path, token: Secret | None) -> None:
        self.store = store
        self.token = token
        self.stop = threading.Event()
        self._files: dict[str, FileProgress] = {}
        self._bucket = TokenBucket()
        self._lock = threading.Lock()
        self._waits: dict[int, str] = {}

    def begin(self, files: Iterable[FileProgress]) -> None:
        """The files of the download, in path order."""
        with self._lock:
            self._files = {file.path: file for file in files}

    def report(self, path: str, done: int, state: FileState) -> None:
        with self._lock:
            before = self._files.get(path)
            self._files[path] = FileProgress(path, before.size if before else None, done, state)

    def files(self) -> tuple[FileProgress, ...]:
        with self._lock:
            return tuple(self._files.values())

    def limit(self, bytes_per_second: float | None) -> None:
        with self._lock:
            self._bucket.limit(bytes_per_second)

    def took(self, size: int) -> None:
        """Delays a reader as the rate limit asks, after `size` bytes. Raises Stopped."""
        with self._lock:
            seconds = self._bucket.take(time.monotonic(), size)
        if self.stop.wait(seconds) if seconds > 0 else self.stop.is_set():
            raise Stopped

    def pause(self, why: str, seconds: float) -> None:
        """Waits, and reports for what. Raises Stopped."""
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
        """What is waited for now, one text for each waiting thread."""
        with self._lock:
            return list(self._waits.values())

    def need_room(self, size: int) -> None:
        """Raises DiskFull when `size` more bytes would fill the disk."""
        if free_bytes(self.store) - size < hub_errors.KEEP_FREE:
            raise hub_errors.disk_full(str(self.store))


class PartFile:
    """A file that is not whole yet: what is in it is a prefix of the file, and its hash goes along."""

    def __init__(self, path: Path, file: RepoFile, shared: TransferState) -> None:
        self._path = path
        self._file = file
        self._shared = shared
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)  # by the umask
        self.size = os.fstat(self._descriptor).st_size
        self._synced = self.size
        self._hash = self._new_hash()
        if file.size is not None and self.size > file.size:
            self.restart()

    def __enter__(self) -> PartFile:
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
            self._shared.report(self._file.path, at, FileState.CHECKING)
            self._shared.check()

    def add(self, chunk: bytes) -> None:
        """Writes at the end. Raises OSError, DiskFull, CutOff when more arrives than the file has, and HubFileTooLarge
        when one of unknown size does not end."""
        if self._file.size is not None and self.size + len(chunk) > self._file.size:
            self.restart()
            raise CutOff("more arrived than the file has")
        if self._file.size is None and self.size > _MOST_UNANNOUNCED:
            self._path.unlink(missing_ok=True)
            what = f"{hub_errors.shown(self._file.path)} is larger than {human_bytes(_MOST_UNANNOUNCED)}"
            raise hub_errors.HubFileTooLarge(f"{what}.", "Check its address in the preset.")
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
        os.ftruncate(self._descriptor, 0)
        self.size = self._synced = 0
        self._hash = self._new_hash()

    def publish(self, whole: Path) -> str:
        """Puts it in its place if its hash is right, else deletes it; returns the hash. On the disk first, so that a
        whole file's name never leads to half of it. A file whose hash is not known (not on the Hub) is taken as is."""
        digest: str = self._hash.hexdigest()
        if self._file.digest and digest != self._file.digest:
            self._path.unlink(missing_ok=True)
            return digest
        self._sync()
        self._path.replace(whole)
        return self._file.digest


class FileFetch(Struct):
    """One file of a repository, or (`hub` false) of the web."""

    _shared: TransferState
    _file: RepoFile
    _place: FilePlace
    _url: str
    _asked: HubCall
    hub: bool = True

    def run(self) -> None:
        """Until the file is whole and in its place. Raises Stopped, or a SparkError that waiting does not cure."""
        file, place, found = self._file, self._place, ""
        made(place.whole.parent)
        made(place.part.parent)
        with self._alone():
            try:
                for _ in range(0 if place.whole.is_file() and place.whole_size(file.size) is not None else 2):
                    with PartFile(place.part, file, self._shared) as part:
                        self._fill(part)
                        found = part.publish(place.whole)
                    if found == file.digest:
                        break
                else:
                    if found:
                        raise hub_errors.checksum(file.path, file.digest, found)
            except OSError as error:
                raise io_error(error, place.part) from error
            self._shared.report(file.path, file.size or place.here(file.size), FileState.DONE)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock that the library takes for the same file: an engine may be fetching it at this moment."""
        if self._place.lock is None:
            yield
            return
        made(self._place.lock.parent)
        lock = filelock.UnixFileLock(self._place.lock, mode=0o644, thread_local=False)
        try:
            while not lock.is_locked:
                try:
                    lock.acquire(blocking=False)
                except filelock.Timeout:
                    self._shared.pause("another program is downloading this file", _LOCK_SECONDS)
                except OSError as error:
                    raise io_error(error, self._place.lock) from error
            yield
        finally:
            lock.release()

    def _fill(self, part: PartFile) -> None:
        """Fills the part. A network that is gone is waited for without end; answers that bring nothing new, of a Hub in
        trouble or one that breaks off, are not."""
        if self._file.digest:
            part.rehash()
        else:
            part.restart()  # the rest may belong to another version
        trouble = fruitless = 0
        most_size = part.size
        while part.size != self._file.size:
            self._shared.report(self._file.path, part.size, FileState.RUNNING)
            try:
                self._stream(part)
                break
            except (NoResponse, RetryLater) as error:
                if part.size > most_size:  # a Hub without ranges begins again each time
                    trouble, fruitless, most_size = 0, 0, part.size
                else:
                    trouble += 1
                    fruitless += isinstance(error, (CutOff, RetryLater))
                found = translate(error, self._asked)
                first, most = _BACKOFF
                seconds = min(most, first * 2 ** min(trouble, 10))
                hopeless = isinstance(found, hub_errors.HubSwitchedOff)
                hopeless |= isinstance(error, CutOff) and fruitless >= MOST_CUT_OFF
                if isinstance(error, RetryLater):
                    hopeless = error.status != 429 and fruitless >= MOST_TROUBLE
                    seconds = seconds if error.wait is None else max(1.0, error.wait)
                if hopeless:
                    raise found from error
                self._shared.pause(f"{found.summary.rstrip('.')}; retry in {human_duration(seconds)}", seconds)
        self._shared.report(self._file.path, part.size, FileState.CHECKING)

    def _stream(self, part: PartFile) -> None:
        """One request, to its end. Raises NoResponse, RetryLater, SparkError."""
        from huggingface_hub import get_session

        self._shared.need_room(min(SYNC_BYTES, (self._file.size or SYNC_BYTES) - part.size))
        headers = plain_headers(self._shared.token if self.hub else None)
        if part.size:
            headers["Range"] = f"bytes={part.size}-"
        with get_session().stream("GET", self._url, headers=headers) as response:
            self._check_answer(response, part)
            with whole_answer():
                for chunk in response.iter_raw(_READ_CHUNK):
                    part.add(chunk)
                    self._shared.report(self._file.path, part.size, FileState.RUNNING)
                    self._shared.took(len(chunk))
        if self._file.size is not None and part.size < self._file.size:
            raise CutOff("the connection was closed before the end")

    def _check_answer(self, response: Any, part: PartFile) -> None:
        """Before a byte of it is written."""
        if response.status_code == 416:  # the part is as long as the file, or longer
            part.restart()
            raise CutOff("the part does not fit the file")
        if response.status_code >= 400 and response.history and "X-Error-Code" not in response.headers:
            raise RetryLater(response.status_code, None)  # the storage behind the Hub: the next address may be better
        try:
            raise_for_status(response)
        except Exception as error:
            if self.hub:
                raise translate(error, self._asked) from error
            missing = f"{hub_errors.shown(self._url)} is not available (HTTP {response.status_code})."
            raise hub_errors.other(missing, "") from error
        begins = 0
        if response.status_code == 206:
            given = re.match(r"bytes (\d{1,18})-", response.headers.get("content-range", ""))
            begins = int(given[1]) if given else -1
        if begins != part.size:
            part.restart()
            if begins:
                raise CutOff("the server answered another range")
