"""One download from its first request to its last link: what the worker process does. Blocks; ends by `Shared.stop`."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.download import DownloadPhase, FileProgress, FileState, TokenBucket
from spark_tui.domain.models.hub import RepoFile, Selection, select
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.secret import Secret
from spark_tui.services.hub.client import commit_of, files_of
from spark_tui.services.hub.records import Order, Place, Places, free_bytes, io_error, made
from spark_tui.services.hub.session import (
    Asked,
    Turned,
    Unanswered,
    plain_headers,
    prepare,
    raise_for_status,
    token_of,
    translate,
    words_of,
)

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


_READ_CHUNK: Final = 256 * 1024
_BACKOFF: Final = (1.0, 60.0)
_MOST_TROUBLE: Final = 20
"""So many times in a row the Hub may be in trouble without a byte arriving; then it is told."""
_LOCK_SECONDS: Final = 1.0


class Stopped(Exception):
    """The person, or the machine, wants it to end now."""


class Progress(Protocol):
    """Who hears of a file's progress."""

    def tell(self, path: str, done: int, state: FileState) -> None:
        """Bytes on the disk."""


class Shared:
    """What the files of one download share: the wish to stop, the cap, and what they wait for."""

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
        """The cap for this process."""
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
        free = free_bytes(self.store)
        if free - size < hub_errors.KEEP_FREE:
            raise hub_errors.disk_full(str(self.store))


class FileFetch:
    """One file of a repository, or of the web."""

    def __init__(
        self, shared: Shared, file: RepoFile, place: Place, url: str, asked: Asked, *, hub: bool = True
    ) -> None:
        self._shared = shared
        self._file = file
        self._place = place
        self._url = url
        self._asked = asked
        self._hub = hub
        self._done = 0

    def run(self) -> None:
        """Until the file is whole and in its place. Raises Stopped, or a SparkError that waiting does not cure."""
        made(self._place.whole.parent)
        made(self._place.part.parent)
        with self._alone():
            if self._place.whole.is_file() and self._place.is_whole(self._file.size):
                self._tell(FileState.DONE, self._place.here(self._file.size))
                return
            try:
                self._whole()
            except OSError as error:
                raise io_error(error, self._place.part) from error
            self._tell(FileState.DONE)

    def _whole(self) -> None:
        for _ in range(2):
            with Part(self._place.part, self._file, self._shared) as part:
                self._take(part)
                found = part.digest()
                if part.is_right(found):
                    part.publish(self._place.whole)
                    return
                part.discard()
        raise hub_errors.checksum(self._file.path, self._file.digest, found)

    def _tell(self, state: FileState, done: int | None = None) -> None:
        self._done = self._done if done is None else done
        self._shared.progress.tell(self._file.path, self._done, state)

    # --- the network ------------------------------------------------------------------------------------

    def _take(self, part: Part) -> None:
        """Fills the part. Whatever may pass is waited for."""
        if self._file.digest:
            part.recall(lambda done: self._tell(FileState.CHECKING, done))
        else:
            part.restart()  # nothing would tell that the rest belongs to another version
        trouble = 0
        while part.size != self._file.size:
            self._tell(FileState.RUNNING, part.size)
            before = part.size
            try:
                if self._stream(part):
                    break
            except (Unanswered, Turned) as error:
                trouble = 0 if part.size > before else trouble + 1
                self._wait(error, trouble)
        self._tell(FileState.CHECKING, part.size)

    def _wait(self, error: Unanswered | Turned, trouble: int) -> None:
        """As long as the Hub asks, else longer each time. A network that is gone is waited for without end."""
        translated = translate(error, self._asked)
        if isinstance(translated, hub_errors.HubOffline) and "HF_HUB_OFFLINE" in translated.summary:
            raise translated from error
        if isinstance(error, Turned) and error.status != 429 and trouble >= _MOST_TROUBLE:
            raise translated from error
        first, most = _BACKOFF
        seconds = min(most, first * 2 ** min(trouble, 10))
        if isinstance(error, Turned) and error.wait is not None:
            seconds = max(1.0, error.wait)
        self._shared.pause(f"{translated.summary.rstrip('.')}; next try after {human_duration(seconds)}", seconds)

    def _stream(self, part: Part) -> bool:
        """One request. True when a file of unknown size has ended. Raises Unanswered, Turned, SparkError."""
        import httpx2
        from huggingface_hub import get_session

        self._shared.need_room(min(SYNC_BYTES, (self._file.size or SYNC_BYTES) - part.size))
        headers = plain_headers(self._shared.token if self._hub else None)
        if part.size:
            headers["Range"] = f"bytes={part.size}-"
        with get_session().stream("GET", self._url, headers=headers) as response:
            self._begin(response, part)
            try:
                for chunk in response.iter_raw(_READ_CHUNK):
                    part.add(chunk)
                    self._tell(FileState.RUNNING, part.size)
                    self._shared.took(len(chunk))
            except httpx2.TransportError as error:
                raise Unanswered(words_of(error)) from error
        if self._file.size is not None and part.size < self._file.size:
            raise Unanswered("the connection was closed before the end")
        return True

    def _begin(self, response: Any, part: Part) -> None:
        """Looks at the answer before a byte of it is written."""
        if response.status_code == 416:  # the part is as long as the file, or longer: begin again
            part.restart()
            raise Unanswered("the part does not fit the file")
        if response.status_code >= 400 and response.history and "X-Error-Code" not in response.headers:
            raise Turned(response.status_code, None)  # the store behind the Hub: the next address may be better
        try:
            raise_for_status(response)
        except Exception as error:
            raise self._refused(response, error) from error
        begins = _range_start(response.headers.get("content-range", "")) if response.status_code == 206 else 0
        if begins != part.size:
            part.restart()
            if begins:
                raise Unanswered("the server answered another range")

    def _refused(self, response: Any, error: Exception) -> SparkError:
        if self._hub:
            return translate(error, self._asked)
        return hub_errors.other(f"{hub_errors.shown(self._url)} is not there (HTTP {response.status_code}).", "")

    # --- one at a time ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock that the library takes for the same file: an engine may be fetching it at this moment."""
        if self._place.lock is None:
            yield
            return
        made(self._place.lock.parent)
        try:
            descriptor = os.open(self._place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise io_error(error, self._place.lock) from error
        try:
            while not _locked(descriptor):
                self._shared.pause("another program fetches this file", _LOCK_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _range_start(content_range: str) -> int:
    """`bytes 5-9/10` -> 5; -1 for anything else."""
    found = re.match(r"bytes (\d{1,18})-", content_range)
    return int(found[1]) if found else -1


STREAMS: Final = 4
"""Files at once: enough to fill ten gigabits, few enough for a part of each to be kept."""
_HTTP_BYTES: Final = 50 * 1000**3
"""The Hub hands out larger files by Xet alone (huggingface_hub 2.4: MAX_HTTP_DOWNLOAD_SIZE)."""
_NETWORK_SECONDS: Final = (2.0, 60.0)

R = TypeVar("R")
_log = logging.getLogger(__name__)


class DownloadJob:
    """The work of one download. Its progress may be read from another thread at any time."""

    def __init__(self, order: Order, token: Secret | None, commit: str = "") -> None:
        self._request = order.request
        self._order = order
        self._lock = threading.Lock()
        self._progress: dict[str, FileProgress] = {}
        self.shared = Shared(Path(order.store), order.endpoint, token, self)
        self.phase = DownloadPhase.PREPARING
        self.commit = commit
        self.left_out = 0
        self._places = Places(Path(order.store), order.request, commit)

    # --- what is told -------------------------------------------------------------------------------------

    def tell(self, path: str, done: int, state: FileState) -> None:
        """A file's progress."""
        with self._lock:
            before = self._progress.get(path)
            self._progress[path] = FileProgress(path, before.size if before else None, done, state)

    def files(self) -> tuple[FileProgress, ...]:
        """Every file, in path order."""
        with self._lock:
            return tuple(self._progress.values())

    # --- the work -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end. Raises Stopped, or a SparkError."""
        prepare()
        if self._request.url:
            self._from_web()
            return
        files = self._listed()
        self.phase = DownloadPhase.DOWNLOADING
        self._each(files, self._fetch)
        self.phase = DownloadPhase.FINISHING
        self._finish(files)

    def _from_web(self) -> None:
        """A file that is not on the Hub."""
        name = self._request.target
        with self._lock:
            self._progress = {name: FileProgress(name, None)}
        self.phase = DownloadPhase.DOWNLOADING
        self._one(RepoFile(name, None), self._places.single(), self._request.url, hub=False)

    def _listed(self) -> tuple[RepoFile, ...]:
        """Asks which files there are, once it is settled which commit is meant: an interrupted download goes on with
        the one that it began with."""
        begun = bool(self.commit)
        self.commit, entries = self._settled()
        self._places = Places(self.shared.store, self._request, self.commit)
        selection = select(
            entries, only=self._request.files, everything=self._request.everything,
            load_format=self._request.load_format,
        )  # fmt: skip
        self._check(selection)
        self.left_out = len(selection.left_out)
        if self._request.again and not begun:  # an earlier run has dropped them
            self._drop(selection.files)
        here = {file.path: self._places.of(file).here(file.size) for file in selection.files}
        with self._lock:
            self._progress = {
                file.path: FileProgress(file.path, file.size, here[file.path]) for file in selection.files
            }
        self._need_room(selection.files, here)
        self._keep_listing()
        return selection.files

    def _settled(self) -> tuple[str, tuple[RepoFile, ...]]:
        """The commit that is fetched: that of an earlier run, unless it was taken away while the download rested."""
        if self.commit:
            try:
                return self._patiently(lambda: self._ask(self.commit))
            except hub_errors.HubRevisionMissing:
                self.commit = ""
        return self._patiently(lambda: self._ask(self._request.revision))

    def _ask(self, revision: str) -> tuple[str, tuple[RepoFile, ...]]:
        """The commit, and its files. Both become names of files here: what is no digest is refused."""
        api = self._api()
        commit = commit_of(api.model_info(self._request.repo, revision=revision))
        files = files_of(api.list_repo_tree(self._request.repo, recursive=True, revision=commit or revision))
        if not commit or not all(file.digest for file in files):
            raise hub_errors.strange_answer(self._order.endpoint, "a commit or a file without a digest")
        return commit, files

    def _check(self, selection: Selection) -> None:
        if selection.missing:
            raise hub_errors.file_missing(self._request.repo, selection.missing[0])
        if selection.choices:
            raise hub_errors.needs_choice(self._request.repo, [name for name, _ in selection.choices])
        if not selection.files:
            raise hub_errors.nothing_to_load(self._request.repo)

    def _drop(self, files: Sequence[RepoFile]) -> None:
        """What is here of these files is damaged."""
        for file in files:
            place = self._places.of(file)
            for path in (place.link, place.whole, place.part):
                try:
                    if path is not None:
                        path.unlink(missing_ok=True)
                except OSError as error:
                    raise io_error(error, place.whole) from error

    def _need_room(self, files: Sequence[RepoFile], here: dict[str, int]) -> None:
        left = sum(max(0, (file.size or 0) - here[file.path]) for file in files)
        try:
            free = free_bytes(self.shared.store)
        except OSError as error:
            raise io_error(error, self.shared.store) from error
        if left and left + hub_errors.KEEP_FREE > free:
            raise hub_errors.no_room(str(self.shared.store), left, free)

    def _keep_listing(self) -> None:
        """Has the library write its listing of the commit, which tells sizes and hashes when the Hub is away. It is
        asked for no file that exists."""
        if not self._request.single:
            made(self._places.folder)
            self._patiently(lambda: self._snapshot(["\0"]))

    # --- files --------------------------------------------------------------------------------------------

    def _each(self, files: Sequence[RepoFile], work: Callable[[RepoFile], None]) -> None:
        """Some at once, small ones first: with its config a model can be understood before its weights are here."""
        waiting: queue.SimpleQueue[RepoFile] = queue.SimpleQueue()
        for file in sorted(files, key=lambda file: ((file.size or 0) > 1 << 20, file.path)):
            waiting.put(file)
        failures: list[BaseException] = []

        def take() -> None:
            try:
                while not failures:
                    work(waiting.get_nowait())
            except queue.Empty:
                return
            except BaseException as error:  # noqa: BLE001 - raised below, by the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=take, daemon=True) for _ in range(min(STREAMS, len(files)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                if failures:  # what still arrives is kept; it is not waited for
                    raise _first(failures)
        if failures:
            raise _first(failures)

    def _fetch(self, file: RepoFile) -> None:
        from huggingface_hub import hf_hub_url

        place = self._places.of(file)
        if (file.size or 0) > _HTTP_BYTES and not place.is_whole(file.size):
            self._by_xet(file)
            return
        if not place.is_whole(file.size):
            url = hf_hub_url(self._request.repo, file.path, revision=self.commit, endpoint=self._order.endpoint)
            self._one(file, place, url)
        self._name(file, place)
        self.tell(file.path, file.size or place.here(None), FileState.DONE)

    def _one(self, file: RepoFile, place: Place, url: str, *, hub: bool = True) -> None:
        asked = Asked(
            self._order.endpoint, self._request.repo, revision=self.commit, file=file.path, token=self.shared.token
        )
        FileFetch(self.shared, file, place, url, asked, hub=hub).run()

    def _name(self, file: RepoFile, place: Place) -> None:
        """Gives a whole file the name by which the library finds it."""
        try:
            if place.link is not None:
                if not place.link.exists():
                    self._patiently(lambda: self._library_file(file.path))
            elif not self._request.single:
                self._places.write_metadata(file)
        except OSError as error:
            raise io_error(error, place.link or place.whole) from error

    def _by_xet(self, file: RepoFile) -> None:
        """The library's own way, without a part to go on with."""
        from huggingface_hub import constants

        if constants.HF_HUB_DISABLE_XET or self._request.single:
            raise hub_errors.too_large(file.path, file.size or 0)
        self.tell(file.path, 0, FileState.RUNNING)
        self._patiently(lambda: self._library_file(file.path))
        self.tell(file.path, file.size or 0, FileState.DONE)

    # --- the library --------------------------------------------------------------------------------------

    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._order.endpoint, token=token_of(self.shared.token), library_name="spark-tui")

    def _library_file(self, path: str) -> None:
        from huggingface_hub import hf_hub_download

        hf_hub_download(
            self._request.repo, path, revision=self.commit, endpoint=self._order.endpoint,
            token=token_of(self.shared.token), **self._where(),
        )  # fmt: skip

    def _snapshot(self, patterns: list[str], *, local: bool = False) -> str:
        from huggingface_hub import snapshot_download

        found = snapshot_download(
            self._request.repo, revision=self.commit, endpoint=self._order.endpoint, allow_patterns=patterns,
            token=token_of(self.shared.token), local_files_only=local, **self._where(),
        )  # fmt: skip
        return str(found)

    def _where(self) -> dict[str, Any]:
        if self._places.in_cache:
            return {"cache_dir": self._places.hub}
        return {"cache_dir": self._places.hub, "local_dir": self._places.folder}

    def _finish(self, files: Sequence[RepoFile]) -> None:
        """The library itself finds the model whole, without a request; then its name leads to it."""
        if self._request.single:
            return
        try:
            self._snapshot([_literal(file.path) for file in files], local=True)
            if self._places.in_cache:
                self._places.write_ref()
        except OSError as error:
            raise io_error(error, self._places.folder) from error

    def _patiently(self, call: Callable[[], R]) -> R:
        """A call that is repeated for as long as the Hub does not answer, or asks for a pause."""
        seconds, most = _NETWORK_SECONDS
        asked = Asked(
            self._order.endpoint, self._request.repo, revision=self.commit or self._request.revision,
            token=self.shared.token,
        )  # fmt: skip
        while True:
            self.shared.check()
            try:
                return call()
            except (SparkError, Stopped):
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise io_error(error, self.shared.store) from error
                found = translate(error, asked)
                if not isinstance(found, (hub_errors.HubOffline, hub_errors.HubBusy)) or "HF_HUB" in found.summary:
                    raise found from error
                wait = found.wait if isinstance(found, hub_errors.HubBusy) else None
                _log.warning("%s", words_of(error))
                self.shared.pause(found.summary.rstrip("."), wait or seconds)
                seconds = min(most, seconds * 2)


def _first(failures: list[BaseException]) -> BaseException:
    """What went wrong, rather than that it was told to stop."""
    return next((error for error in failures if not isinstance(error, Stopped)), failures[0])


def _literal(path: str) -> str:
    """A path as a pattern that fits nothing else."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)
