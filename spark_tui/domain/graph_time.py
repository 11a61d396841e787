"""The time axis of a graph: cells that stand on multiples of wall-clock time, so that a picture moves seldom.

A graph that ends at "now" differs in every cell each second. Here a cell always covers the same stretch of time, and
the right edge lies on a multiple of some seconds: in between, only the cells at that edge fill up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final

WINDOWS: Final = (60, 300, 900, 3600, 21600)
"""Seconds that a person can look at: 1 m, 5 m, 15 m, 1 h, 6 h."""

SHIFT_SECONDS: Final = 5.0
"""The picture moves to the left at most this often."""

_CELLS: Final = (
    0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 45, 60,
    90, 120, 180, 240, 300, 360, 480, 600, 900, 1200,
)  # fmt: skip
"""Seconds that a cell may cover."""

_TICKS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600)
"""Seconds from one label to the next."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """`columns` cells of `cell_seconds` each, cut into `parts`; the last one ends at `end_cell * cell_seconds`.

    `live` is the number of cells at the right edge that fill up before the picture moves.
    """

    cell_seconds: float
    columns: int
    end_cell: int
    live: int = 1
    parts: int = 2

    @property
    def begin(self) -> float:
        """Seconds since the epoch at the left edge."""
        return (self.end_cell - self.columns) * self.cell_seconds

    @property
    def end(self) -> float:
        """Seconds since the epoch at the right edge; at or after now."""
        return self.end_cell * self.cell_seconds

    @property
    def bucket_seconds(self) -> float:
        """What one part of a cell covers."""
        return self.cell_seconds / self.parts

    @property
    def first_bucket(self) -> int:
        """Absolute number of the leftmost bucket: `number * bucket_seconds` is where it begins."""
        return (self.end_cell - self.columns) * self.parts

    @property
    def buckets(self) -> int:
        """How many there are."""
        return self.columns * self.parts

    def column(self, time: float) -> int | None:
        """The column that covers `time`; None outside the picture."""
        if not self.begin <= time < self.end:
            return None
        return min(self.columns - 1, int(time // self.cell_seconds) - (self.end_cell - self.columns))

    def span(self, column: int) -> tuple[float, float]:
        """Where a column begins and ends, seconds since the epoch."""
        first = self.end_cell - self.columns + column
        return first * self.cell_seconds, (first + 1) * self.cell_seconds

    def moved(self, cursor: float | None, now: float, cells: int) -> float | None:
        """A cursor `cells` further on, in the middle of a cell and at the left edge at the least.

        None is no cursor: it begins at now, and one that goes beyond now ends.
        """
        newest = self.column(min(now, self.end - self.cell_seconds / 2))
        newest = self.columns - 1 if newest is None else newest
        here = newest if cursor is None else self.column(cursor)
        column = max(0, (0 if here is None else here) + cells)
        if column > newest:
            return None
        begin, end = self.span(column)
        return (begin + end) / 2


def time_axis(window: float, columns: int, now: float, *, parts: int = 2, shift: float = SHIFT_SECONDS) -> TimeAxis:
    """The axis that shows at least `window` seconds up to `now` in that many columns.

    A cell covers a round number of seconds, so the axis may show somewhat more than asked for.
    """
    columns = max(1, columns)
    cell = next((size for size in _CELLS if size * columns >= window), math.ceil(window / columns))
    live = max(1, min(columns, math.ceil(shift / cell)))
    end = (math.floor(now / (live * cell)) + 1) * live
    return TimeAxis(float(cell), columns, end, live, max(1, parts))


def time_ticks(axis: TimeAxis, zone: tzinfo | None = None, gap: int = 6) -> Iterator[tuple[int, str]]:
    """`(column, label)` at round local times, at least `gap` cells between two labels: `12:30`, or `12:30:15`.

    `zone` None is the machine's own.
    """
    span = axis.columns * axis.cell_seconds
    seconds = span <= 150
    width = 8 if seconds else 5
    step = next((tick for tick in _TICKS if tick >= (width + gap) * axis.cell_seconds), _TICKS[-1])
    offset = _utc_offset(axis.begin, zone)
    first = math.ceil((axis.begin + offset) / step) * step - offset
    for number in range(math.ceil(span / step) + 1):
        time = first + number * step
        column = axis.column(time)
        if column is not None:
            yield column, clock_text(time, zone, seconds=seconds)


def clock_text(time: float, zone: tzinfo | None = None, *, seconds: bool = True) -> str:
    """`12:30:15`, or `12:30`, in local time."""
    moment = datetime.fromtimestamp(time, zone) if zone is not None else datetime.fromtimestamp(time).astimezone()
    return moment.strftime("%H:%M:%S" if seconds else "%H:%M")


def _utc_offset(time: float, zone: tzinfo | None) -> float:
    moment = datetime.fromtimestamp(time, zone) if zone is not None else datetime.fromtimestamp(time).astimezone()
    offset = moment.utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def window_text(seconds: float) -> str:
    """`1 m`, `15 m`, `6 h`."""
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} m"
