"""Fetches one file: goes on where an earlier run stopped, checks it against its hash, puts it in its place.

huggingface_hub 2.4 begins a file anew after every interruption. Here its session and its errors are used, and bytes
are written as they come: a part is always a prefix of the file, whatever ends the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.download import FileState
from spark_tui.domain.models.hub import RepoFile
from spark_tui.domain.models.transfer_rate import TokenBucket
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.secret import Secret
from spark_tui.services.hub_download_part import SYNC_BYTES, Part
from spark_tui.services.hub_download_places import Place, free_bytes, io_error, made
from spark_tui.services.hub_session import (
    Asked,
    Turned,
    Unanswered,
    plain_headers,
    raise_for_status,
    translate,
    words_of,
)

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
