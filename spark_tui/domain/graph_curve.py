"""One curve of a graph: what is held in memory of a series, and what the history kept from before."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from spark_tui.domain.engine.metric_series import Gap, SeriesView
from spark_tui.domain.graph_buckets import Bucket, buckets
from spark_tui.domain.graph_time import TimeAxis
from spark_tui.domain.history import Stretch


@dataclass(frozen=True, slots=True)
class Curve:
    """One series, and what the history kept from before it; `name` is empty when the graph's title says it all."""

    name: str
    series: SeriesView
    past: Stretch | None = None

    @property
    def begin(self) -> float:
        """Seconds since the epoch from which on `series` counts; before it, `past` does."""
        return self.series.times[0] if len(self.series.times) else math.inf

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """When the engine could not be asked."""
        before = () if self.past is None else tuple(gap for gap in self.past.gaps if gap.begin < self.begin)
        return before + self.series.gaps

    @property
    def restarts(self) -> tuple[float, ...]:
        """When a new start of the engine was first seen."""
        before = () if self.past is None else tuple(time for time in self.past.restarts if time < self.begin)
        return before + self.series.restarts

    @property
    def has_values(self) -> bool:
        """Whether there is anything to draw."""
        return any(map(math.isfinite, self.series.values)) or (
            self.past is not None and any(map(math.isfinite, self.past.mean))
        )

    def at(self, time: float) -> float | None:
        """The value at a time; None where none is known."""
        if self.past is not None and time < self.begin:
            return self.past.view.at(time)
        return self.series.at(time)

    def gap_at(self, time: float) -> str:
        """Why there is no value at a time; empty when it is in no gap."""
        return next((gap.reason for gap in self.gaps if gap.begin <= time <= gap.end), "")

    def buckets(self, axis: TimeAxis) -> list[Bucket | None]:
        """What is known, in the buckets of an axis."""
        series, place = self.series, (axis.first_bucket, axis.buckets, axis.bucket_seconds)
        found = buckets(series.times, series.values, *place, series.step)
        past = self.past
        if past is None or self.begin <= axis.begin:
            return found
        end = bisect_left(past.times, self.begin)
        times, *columns = ([*column[:end]] for column in (past.times, past.mean, past.least, past.greatest))
        if math.isfinite(self.begin):  # what was kept last stands until the first value that is held in memory
            times.append(self.begin)
            for column in columns:
                column.append(series.values[0])
        old = buckets(times, columns[0], *place, past.step, (columns[1], columns[2]))
        return [then if now is None else now for now, then in zip(found, old, strict=True)]
