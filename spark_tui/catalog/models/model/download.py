"""Downloads as values: what is asked for, what it will take, and how far it has come. Sizes in bytes, times in seconds
since the epoch, speeds in bytes per second."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import NOT_READ_YET, Reading, value_of
from spark_tui.base.quantities import parse_bytes
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.models.model.hub import KEEP_FREE, RepoFacts, Skipped, error_named, no_room, sum_known

WINDOW_SECONDS: Final = 10.0
_LEAST_SECONDS: Final = 1.0


class SpeedMeter:
    """Bytes per second over the last ten seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def feed(self, now: float, total: int) -> None:
        """The bytes that have arrived so far. Less than before (a file is fetched again) starts the meter again."""
        if self._points and total < self._points[-1][1]:
            self._points.clear()
        self._points.append((now, total))
        while len(self._points) > 2 and now - self._points[1][0] >= WINDOW_SECONDS:
            self._points.popleft()

    def speed(self, now: float) -> float | None:
        """None before it has run for a second; zero when nothing arrives."""
        if not self._points:
            return None
        began, first = self._points[0]
        return (self._points[-1][1] - first) / (now - began) if now - began >= _LEAST_SECONDS else None


class TokenBucket:
    """A bandwidth cap for many takers. At most a quarter of a second's worth may burst."""

    def __init__(self) -> None:
        self._rate: float | None = None
        self._ready_at = 0.0

    def limit(self, bytes_per_second: float | None) -> None:
        """None: no cap. Takes effect at once."""
        if bytes_per_second != self._rate:
            self._rate = bytes_per_second
            self._ready_at = 0.0

    def take(self, now: float, size: int) -> float:
        """Takes bytes and returns the seconds to sleep afterwards."""
        if self._rate is None or self._rate <= 0:
            return 0.0
        self._ready_at = max(self._ready_at, now - 0.25) + size / self._rate
        return max(0.0, self._ready_at - now)


_READABLE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class DownloadRequest(Struct, frozen=True):
    """What to fetch, and where to.

    Without `target` it goes into the store's Hub cache, where every engine finds it by its Hub name. With one it
    becomes that folder of the store; with `single` and one file, that very file. `url` is for a file that is not on
    the Hub; it is never sent a token. `files` are paths or patterns, empty for what an engine needs; `everything`
    leaves nothing out. `again` takes what is here for damaged, and fetches it again. `preset` names whose part it is.
    """

    repo: str = ""
    revision: str = "main"
    files: tuple[str, ...] = ()
    everything: bool = False
    load_format: str = ""
    target: str = ""
    single: bool = False
    url: str = ""
    again: bool = False
    preset: str = ""

    @property
    def id(self) -> str:
        """The same for the same thing at the same place, so that it is never fetched twice at once."""
        parts = (self.repo, self.revision, *sorted(self.files), str(self.everything), self.load_format)
        parts += (self.target, self.url)
        fingerprint = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:8]
        readable = _READABLE.sub("-", self.title.replace("/", "--")).strip("-._")[:80] or "file"
        return f"{readable}-{fingerprint}"

    @property
    def title(self) -> str:
        """The repository, or the file's name."""
        return self.repo or self.target.rpartition("/")[2] or self.url


class DownloadPhase(StrEnum):
    """WAITING: for the network, or as long as the Hub asks. INTERRUPTED: its process is gone
    (the machine was restarted, say) without a pause."""

    QUEUED = "queued"
    PREPARING = "preparing"
    DOWNLOADING = "downloading"
    WAITING = "waiting"
    FINISHING = "finishing"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    DONE = "done"

    @property
    def active(self) -> bool:
        """A process works on it, or waits for its turn."""
        return self in (
            DownloadPhase.QUEUED,
            DownloadPhase.PREPARING,
            DownloadPhase.DOWNLOADING,
            DownloadPhase.WAITING,
            DownloadPhase.FINISHING,
        )

    @property
    def resumable(self) -> bool:
        """It can continue where it stopped."""
        return self in (DownloadPhase.PAUSED, DownloadPhase.INTERRUPTED, DownloadPhase.FAILED)


class FileState(StrEnum):
    """CHECKING: what was there before is read again, or the whole is compared with its hash."""

    WAITING = "waiting"
    CHECKING = "checking"
    RUNNING = "running"
    DONE = "done"


class FileProgress(Struct, frozen=True):
    """One file. `size` None: unknown. `done` counts what is on the disk, earlier runs included."""

    path: str
    size: int | None
    done: int = 0
    state: FileState = FileState.WAITING


class DownloadFailure(Struct, frozen=True):
    """An error of the download's process."""

    id: str
    summary: str
    remedy: str
    detail: str = ""

    @property
    def error(self) -> SparkError:
        return error_named(self.id, self.summary, self.remedy, self.detail)


class DownloadState(Struct, frozen=True):
    """How far a download is. `waiting` says in words what it waits for. `speed` None: not known yet, or nothing runs.
    `limit` is the cap that holds for it now; None: none."""

    phase: DownloadPhase = DownloadPhase.QUEUED
    files: tuple[FileProgress, ...] = ()
    commit: str = ""
    waiting: str = ""
    speed: float | None = None
    limit: float | None = None
    failure: DownloadFailure | None = None
    ended: float | None = None
    left_out: int = 0


class Download(DownloadState, frozen=True, kw_only=True):
    """One download."""

    id: str
    request: DownloadRequest
    created: float = 0.0
    log: str = ""

    @property
    def total(self) -> int | None:
        """All of it; None before the files are known, or where one has no known size."""
        return sum_known(file.size for file in self.files) if self.files else None

    @property
    def done(self) -> int:
        return sum(file.done for file in self.files)

    @property
    def files_done(self) -> int:
        return sum(file.state is FileState.DONE for file in self.files)

    @property
    def fraction(self) -> float | None:
        """0 to 1; None when the total is not known."""
        total = self.total
        if total == 0:
            return 1.0
        return None if total is None else min(1.0, self.done / total)

    @property
    def eta(self) -> float | None:
        """Seconds that the rest will take at this speed; None when that is unknown."""
        left = None if self.total is None else max(0, self.total - self.done)
        if left == 0:
            return 0.0
        return left / self.speed if left is not None and self.speed else None


class LocalFiles(Struct, frozen=True):
    """What is in the store already: bytes by path, parts of files included. `named`: an engine that asks for the model
    finds all of it; data may be here under the name of another commit alone."""

    sizes: Mapping[str, int]
    named: bool


class PlannedFile(Struct, frozen=True):
    """A file of a plan, and how much of it is on the disk already."""

    path: str
    size: int | None
    here: int = 0

    @property
    def left(self) -> int | None:
        """Bytes still to come."""
        return None if self.size is None else max(0, self.size - self.here)


class DownloadPlan(Struct, frozen=True):
    """A dry run: what a download would fetch. `facts` is None for a file that is not on the Hub. `choices` is filled
    where a person has to name a file first. `named`: an engine would find what is here (see `LocalFiles`). `refusal` is
    why it would fail now: gated, without room."""

    request: DownloadRequest
    facts: RepoFacts | None
    files: tuple[PlannedFile, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    choices: tuple[tuple[str, int | None], ...] = ()
    notes: tuple[str, ...] = ()
    free: Reading[int] = NOT_READ_YET
    named: bool = True
    refusal: SparkError | None = None

    @property
    def total(self) -> int | None:
        """All files together; None where one has no known size."""
        return sum_known(file.size for file in self.files)

    @property
    def left(self) -> int | None:
        """Bytes still to come; None where one file has no known size."""
        return sum_known(file.left for file in self.files)

    @property
    def whole(self) -> bool:
        """Everything is here already, and found by its name."""
        return bool(self.files) and self.left == 0 and self.named

    @property
    def short(self) -> int | None:
        """Bytes missing on the disk: 0 when there is room, None when unknown."""
        free, left = value_of(self.free), self.left
        return None if free is None or left is None else max(0, left + KEEP_FREE - free) if left else 0


class Limits(Struct, frozen=True):
    """How downloads share the line: bytes per second for all of them together (None: no cap), and how many run at
    once; the others wait for their turn."""

    bytes_per_second: float | None = None
    at_once: int = 2


def size_typed(text: str, what: str) -> int | None:
    """`70g` -> bytes; None for nothing. Raises UsageError, which names `what` was typed."""
    if not text:
        return None
    try:
        return parse_bytes(text)
    except ValueError:
        shown = truncate(clean_line(text), 40)
        raise UsageError(f"{what}: {shown!r} is not a size.", "Examples: 70g, 500m") from None


def rate_typed(text: str, what: str) -> float | None:
    """`50m` -> bytes per second; `none` and `0` remove the cap (0.0); nothing leaves it unchanged (None)."""
    if not text:
        return None
    return 0.0 if text.lower() in ("none", "off", "0") else float(size_typed(text, what) or 0)


def room_refusal(plans: Iterable[DownloadPlan], store: str) -> SparkError | None:
    """Why several downloads together do not fit onto the disk, where each of them alone would."""
    known = [plan for plan in plans if plan.left]
    free = next((found for plan in known if (found := value_of(plan.free)) is not None), None)
    left = sum(plan.left or 0 for plan in known)
    return no_room(store, left, free) if free is not None and left and left + KEEP_FREE > free else None
