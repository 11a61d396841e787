"""Six hours of series in bounded memory: one column of times, one column for each metric that ever had a value."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from math import nan
from typing import Final

from spark_tui.domain.engine.metric_series import Gap, MetricId, SeriesView

CAPACITY: Final = 6 * 3600
"""Six hours at one sample a second. A row takes 8 bytes for its time and 4 for each metric: 2.4 MB for an engine with
all 26, 0.8 MB for the box."""
MAX_GAPS: Final = 500
STEP_BACK_SECONDS: Final = 1.0
"""A clock that was set back by more moves what was recorded along with it."""


class SeriesRing:
    """The series of one engine, or of the box. Times rise strictly, whatever the clock does."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._times = array("d")
        self._columns: dict[MetricId, array[float]] = {}
        self._oldest = 0
        self._gaps: deque[Gap] = deque(maxlen=MAX_GAPS)
        self._open = False
        self._restarts: deque[float] = deque(maxlen=MAX_GAPS)

    def __len__(self) -> int:
        return len(self._times)

    @property
    def size(self) -> int:
        """Bytes of all columns."""
        columns = sum(len(column) * column.itemsize for column in self._columns.values())
        return len(self._times) * self._times.itemsize + columns

    @property
    def last_time(self) -> float | None:
        """When the latest row was added, seconds since the epoch."""
        return self._times[self._oldest - 1] if self._times else None

    # --- writing --------------------------------------------------------------------------------------

    def add(self, at: float, values: Mapping[MetricId, float], *, gap: str = "", restarted: bool = False) -> float:
        """Adds a row and returns its time. `gap` says why it has no values; the gap lasts until the next row that has
        some."""
        at = self._rising(at)
        for metric in values:
            if metric not in self._columns:
                self._columns[metric] = array("f", [nan]) * len(self._times)
        self._note_gap(at, gap)
        if restarted:
            self._restarts.append(at)
        if len(self._times) < self._capacity:
            self._times.append(at)
            for metric, column in self._columns.items():
                column.append(values.get(metric, nan))
            return at
        row, self._oldest = self._oldest, (self._oldest + 1) % self._capacity
        self._times[row] = at
        for metric, column in self._columns.items():
            column[row] = values.get(metric, nan)
        return at

    def _note_gap(self, at: float, reason: str) -> None:
        last = self._gaps[-1] if self._open and self._gaps else None
        if last is not None:
            self._gaps[-1] = replace(last, end=at)
        self._open = bool(reason)
        if reason and (last is None or last.reason != reason):
            self._gaps.append(Gap(at, at, reason))

    def _rising(self, at: float) -> float:
        last = self.last_time
        if last is None or at > last:
            return at
        if last - at <= STEP_BACK_SECONDS:
            return last + 0.001
        self._move(at - last - 0.001)
        return at

    def _move(self, seconds: float) -> None:
        for index, time in enumerate(self._times):
            self._times[index] = time + seconds
        gaps = [Gap(gap.begin + seconds, gap.end + seconds, gap.reason) for gap in self._gaps]
        self._gaps = deque(gaps, maxlen=MAX_GAPS)
        self._restarts = deque((time + seconds for time in self._restarts), maxlen=MAX_GAPS)

    # --- reading --------------------------------------------------------------------------------------

    def view(self, metric: MetricId, since: float, now: float, *, step: float, reason: str = "") -> SeriesView:
        """The rows from `since` on. A gap that has not ended lasts until `now`."""
        times, column, oldest = self._times, self._columns.get(metric), self._oldest
        if oldest and times[0] <= since:  # all of it is in the part that was written over last
            pieces = [slice(bisect_left(times, since, 0, oldest), oldest)]
        else:
            pieces = [slice(bisect_left(times, since, oldest), len(times)), slice(0, oldest)]
        shown, values = array("d"), array("f")
        for piece in pieces:
            shown += times[piece]
            if column is not None:
                values += column[piece]
        if column is None:
            values = array("f", [nan]) * len(shown)
        return SeriesView(
            metric,
            shown,
            values,
            tuple(self._shown_gaps(since, now)),
            tuple(time for time in self._restarts if time >= since),
            reason,
            step,
        )

    def _shown_gaps(self, since: float, now: float) -> list[Gap]:
        gaps = list(self._gaps)
        if self._open and gaps:
            gaps[-1] = replace(gaps[-1], end=max(now, gaps[-1].end))
        return [gap for gap in gaps if gap.end >= since]
