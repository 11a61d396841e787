"""What the core needs of a history. Adapters implement it; so does the fake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spark_tui.domain.engine.metric_series import Sample
from spark_tui.domain.history import LedgerState, Record, SeriesKey, StartRecord, Stretch
from spark_tui.domain.reading import Reading


class HistoryLedger(Protocol):
    """Keeps samples, starts and records across runs of this program. Nothing of it blocks the event loop.

    What is added is never waited for (but for `add_record`): a disk that is full or a home that cannot be written
    shows in `state`. Every process adds starts and records; samples are recorded by one process at a time.
    """

    @property
    def state(self) -> LedgerState:
        """Whether it is kept, as of the last try. Costs nothing."""

    def add_sample(self, sample: Sample) -> None:
        """Keeps a look at an engine or at the box; it may take some seconds until it is on disk. Never raises."""

    def add_start(self, start: StartRecord) -> None:
        """Keeps a start, in place of what was known of the same one, and writes it at once. Never raises."""

    async def add_record(self, record: Record) -> None:
        """Keeps a record and returns when it is on disk. Raises HistoryOff when it cannot be kept."""

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[Stretch, ...]]:
        """A stretch of each series from `since` to `until` (seconds since the epoch), in the order of `keys`.

        In at most `buckets` buckets and one; in fewer where samples of that age are further apart. A series that is
        not known has buckets without values. Missing says why nothing can be read.
        """

    async def keys(self) -> Reading[tuple[SeriesKey, ...]]:
        """The series that have samples, sources in name order."""

    async def starts(
        self, *, engine: str = "", preset: str = "", failed: bool = False, limit: int = 200
    ) -> Reading[tuple[StartRecord, ...]]:
        """The latest starts, newest first: of one engine, of one preset, those that failed, or all."""

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        """The latest records of a kind, newest first."""

    async def flush(self) -> None:
        """Returns when all that was added is on disk, or could not be written."""

    async def close(self) -> None:
        """Writes what waits, for some seconds at most, and lets go of the file."""
