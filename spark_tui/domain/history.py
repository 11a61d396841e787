"""What this box remembers: samples of metrics, starts of engines, and records of whatever else is worth keeping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spark_tui.domain.errors import SparkError
from spark_tui.domain.logs.timeline import Outcome, PhaseId
from spark_tui.domain.metrics.series import Gap, MetricId, SeriesView

BOX: Final = ""
"""The source of the series that are the box's and not an engine's."""

RAW_SECONDS: Final = 3600
"""Samples are kept as they came, one a second, for an hour."""
FINE_STEP: Final = 10
FINE_SECONDS: Final = 86_400
"""Then as least, mean and greatest of each ten seconds, for a day."""
COARSE_STEP: Final = 60
COARSE_SECONDS: Final = 30 * 86_400
"""Then of each minute, for a month; then they go."""
MOST_BYTES: Final = 128 * 1024**2
"""What the history may take on disk, its write-ahead log of some MiB apart: the oldest samples go first."""


class HistoryOff(SparkError):
    """There is no history here, or it cannot be read or written now."""

    id = "history_off"


class SeriesKey(NamedTuple):
    """One series: `source` is the engine's container name, `BOX` for the box's own; `metric` is a `MetricId` value."""

    source: str
    metric: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one series in buckets of `step` seconds, oldest first.

    `times` are the buckets' beginnings, seconds since the epoch and whole steps; `least`, `mean` and `greatest` have
    one value for each, NaN where there was none. Mean and extremes come from the samples themselves, however often
    they were thinned. `gaps` say why an engine could not be asked, `restarts` when a new start of it was first seen.
    """

    key: SeriesKey
    step: float
    times: Sequence[float] = ()
    least: Sequence[float] = ()
    mean: Sequence[float] = ()
    greatest: Sequence[float] = ()
    gaps: tuple[Gap, ...] = ()
    restarts: tuple[float, ...] = ()

    @property
    def view(self) -> SeriesView:
        """The means, as a live series has them. Raises ValueError for a metric that this version does not know."""
        metric = MetricId(self.key.metric)
        return SeriesView(metric, self.times, self.mean, self.gaps, self.restarts, step=self.step)


@dataclass(frozen=True, slots=True)
class StartSizes:
    """What a start measured and was asked for, as its log tells it; None where it does not. Sizes in GiB."""

    weights_gib: float | None = None
    """Weights once loaded, drafter included."""
    kv_gib: float | None = None
    kv_tokens: int | None = None
    graphs_gib: float | None = None
    """CUDA graphs as captured; may be negative on unified memory."""
    graphs_estimated_gib: float | None = None
    pool_gib: float | None = None
    utilization: float | None = None
    batched_tokens: int | None = None
    sequences: int | None = None
    context: int | None = None
    eager: bool = False
    cache_dtype: str = ""
    quantization: str = ""
    speculation: str = ""


@dataclass(frozen=True, slots=True)
class StartRecord:
    """One start of an engine, from its container's start to its end: container id and `at` name it.

    `image_id` is the image's own digest (a tag may move), `settings` a fingerprint of what it was started with.
    `ready`: it came to serve. `outcome` is what was seen last: READY while it serves, STOPPED, FAILED.
    `phases` are those that ended, with their seconds; `seconds` is the whole way to ready. `warm`: its JIT caches
    were warm, None where the log does not say. `cause` is a CauseId, `failure` its sentence and `line` the line
    that decides, all empty for one that did not fail; `failed_in` is the phase. `ended_at` is None while it runs.
    """

    container: str
    at: float
    engine: str
    preset: str = ""
    image: str = ""
    image_id: str = ""
    settings: str = ""
    model: str = ""
    runtime: str = ""
    version: str = ""
    ready: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    warm: bool | None = None
    seconds: float | None = None
    phases: tuple[tuple[PhaseId, float], ...] = ()
    sizes: StartSizes = StartSizes()
    failed_in: PhaseId | None = None
    cause: str = ""
    failure: str = ""
    line: str = ""
    exit_code: int | None = None
    ended_at: float | None = None

    @property
    def key(self) -> tuple[str, float]:
        """What names it."""
        return self.container, self.at

    @property
    def failed(self) -> bool:
        """It did not come to serve, and nobody stopped it."""
        return not self.ready and self.outcome is Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Record:
    """Anything else worth keeping: `kind` says what (`bench`, `event`), `key` of what (a preset, an engine), `at`
    when, seconds since the epoch. Kind, key and time name it: one more of the same name takes its place. `body` is
    whatever JSON can hold."""

    kind: str
    key: str
    at: float
    body: Any


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Whether the history is kept. `reason` is empty while it is, else says why not, and `remedy` what to do.

    `samples_elsewhere`: another spark-tui of this user records the samples; this one reads them. `notes` are what a
    person should know once: a file that was set aside, and where it is. `file` is where the history is.
    """

    reason: str = ""
    remedy: str = ""
    samples_elsewhere: bool = False
    notes: tuple[str, ...] = ()
    file: str = ""
