"""The value axis of a graph: bounds and ticks at round numbers, and how a number is written in few cells."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from msgspec import Struct

from spark_tui.base.host.series import Gap, MetricId, SeriesSlice, SeriesView

LABEL_CELLS: Final = 6
"""The widest tick label."""

LARGEST: Final = 1e300
"""Beyond it a scale no longer reaches."""

KEEP_SHARE: Final = 0.4
"""A scale shrinks only when less than this share of it is used: what moves up and down does not make it jump."""

_STEPS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_COUNTED: Final = frozenset(("", "req"))
"""Units of whole things: an axis of them has no halves."""


class Scale(Struct, frozen=True):
    """From `low` to `high`, a tick every `step`."""

    low: float
    high: float
    step: float

    def share(self, value: float) -> float:
        """Where `value` lies: 0 at the foot, 1 at the top, never outside. Not a number lies at the foot."""
        if math.isnan(value):
            return 0.0
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span))

    def ticks(self) -> tuple[float, ...]:
        count = min(50, math.floor((self.high - self.low) / self.step + 1e-9))
        values = (self.low + number * self.step for number in range(count + 1))
        # Without the dust of binary fractions: 0.30000000000000004 -> 0.3.
        return tuple(0.0 if abs(value) < self.step * 1e-9 else float(f"{value:.12g}") for value in values)


def nice_scale(
    low: float, high: float, *, domain: tuple[float, float | None] = (0.0, None), unit: str = "", ticks: int = 4
) -> Scale:
    """The round scale that holds `low` and `high` and its domain: fixed where the domain has both ends.

    `ticks` is the greatest number of steps. A value below the domain's foot widens the scale; one above its top is
    drawn at the top.
    """
    foot, top = domain
    low, high = (0.0 if math.isnan(each) else min(LARGEST, max(-LARGEST, each)) for each in (low, high))
    if top is not None:
        return Scale(foot, top, min(top - foot, _step(top - foot, ticks, unit)))
    bottom = min(foot, low)
    # A flat line at zero gets a scale too; near a large number the span grows with it, for rounding's sake.
    least = {"s": 0.001, "req": 1.0, "": 1.0, "tok/s": 1.0, "C": 100.0, "W": 10.0, "GiB": 1.0}.get(unit, 1.0)
    top = max(high, bottom + max(least, abs(bottom) * 1e-6))
    step = _step(top - bottom, ticks, unit)
    bottom = math.floor(bottom / step) * step if bottom < foot else foot
    count = max(1, math.ceil((top - bottom) / step - 1e-9))
    if unit == "%" and bottom + count * step > 100.0 >= high:
        return Scale(bottom, 100.0, step)
    return Scale(bottom, bottom + count * step, step)


def next_scale(previous: Scale | None, wanted: Scale) -> Scale:
    """`wanted`, or `previous` while that still holds it and is used enough: the picture keeps still."""
    if previous is None or wanted.low < previous.low or wanted.high > previous.high or wanted.low > previous.low:
        return wanted
    used = (wanted.high - wanted.low) / (previous.high - previous.low)
    return previous if used >= KEEP_SHARE else wanted


def _step(span: float, ticks: int, unit: str) -> float:
    """The least round step that crosses `span` in at most `ticks`."""
    rough = span / max(1, ticks)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((size * power for size in _STEPS if size * power >= rough * (1 - 1e-9)), 10.0 * power)
    return max(1.0, float(math.ceil(step))) if unit in _COUNTED else step


# --- words ------------------------------------------------------------------------------------------------


def value_text(value: float, unit: str, decimals: int = 1) -> str:
    """A value with its unit: `41.8 tok/s`, `420 ms`, `3 %`; a count of requests is a number alone."""
    if not math.isfinite(value):
        return "n/a"
    if unit == "s":
        return seconds_text(value)
    size = abs(value)
    if size >= 1_000_000:
        number = f"{value:.3g}"
    elif size >= 100:
        number = f"{value:,.0f}" if size >= 10_000 else f"{value:.0f}"
    else:
        number = f"{value:.{decimals}f}"
        number = number if float(number) or not value else f"{value:.1g}"
    return number if unit in _COUNTED else f"{number} {unit}"


def seconds_text(value: float) -> str:
    """Three figures: `0.8 ms`, `42 ms`, `420 ms`, `1.84 s`, `74 s`."""
    size = abs(value)
    if size >= 1:
        return f"{value:.0f} s" if 100 <= size < 100_000 else f"{value:.3g} s"
    if size >= 0.1 or value == 0:
        return f"{value * 1000:.0f} ms"
    return f"{value * 1000:.3g} ms" if size >= 1e-6 else f"{value * 1000:.1g} ms"


def tick_texts(ticks: Sequence[float], unit: str) -> tuple[str, ...]:
    """Labels of an axis, of one kind and at most LABEL_CELLS wide; seconds as `ms` when all are below one."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if unit == "s" and largest < 1:
        return tuple("0" if not tick else f"{_short(tick * 1000)}ms"[:LABEL_CELLS] for tick in ticks)
    suffix = {"s": "s", "%": "%"}.get(unit, "")
    return tuple(f"{_short(tick)}{suffix if tick else ''}"[:LABEL_CELLS] for tick in ticks)


def _short(value: float) -> str:
    """At most five cells: `0`, `2.5`, `1500`, `12k`, `3.5M`, `1e300`."""
    size = abs(value)
    if size >= 1e9:
        return f"{value:.0e}".replace("e+", "e")
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 10_000:
        return f"{value / 1e3:.3g}k"
    text = f"{value:.4g}"
    return text if len(text) <= 5 else f"{value:.0e}".replace("e-0", "e-")


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


class TimeAxis(Struct, frozen=True):
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


def time_axis(window: float, columns: int, now: float, *, parts: int = 2) -> TimeAxis:
    """The axis that shows at least `window` seconds up to `now` in that many columns.

    A cell covers a round number of seconds, so the axis may show somewhat more than asked for.
    """
    columns = max(1, columns)
    cell = next((size for size in _CELLS if size * columns >= window), math.ceil(window / columns))
    live = max(1, min(columns, math.ceil(SHIFT_SECONDS / cell)))
    end = (math.floor(now / (live * cell)) + 1) * live
    return TimeAxis(float(cell), columns, end, live, max(1, parts))


def time_ticks(axis: TimeAxis, zone: tzinfo | None = None) -> Iterator[tuple[int, str]]:
    """`(column, label)` at round local times, at least 6 cells between two labels: `12:30`, or `12:30:15`.

    `zone` None is the machine's own.
    """
    span = axis.columns * axis.cell_seconds
    seconds = span <= 150
    width = 8 if seconds else 5
    step = next((tick for tick in _TICKS if tick >= (width + 6) * axis.cell_seconds), _TICKS[-1])
    offset = (_local(axis.begin, zone).utcoffset() or timedelta()).total_seconds()
    first = math.ceil((axis.begin + offset) / step) * step - offset
    for number in range(math.ceil(span / step) + 1):
        time = first + number * step
        column = axis.column(time)
        if column is not None:
            yield column, clock_text(time, zone, seconds=seconds)


def clock_text(time: float, zone: tzinfo | None = None, *, seconds: bool = True) -> str:
    """`12:30:15`, or `12:30`, in local time."""
    return _local(time, zone).strftime("%H:%M:%S" if seconds else "%H:%M")


def _local(time: float, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(time).astimezone() if zone is None else datetime.fromtimestamp(time, zone)


def window_text(seconds: float) -> str:
    """`1 m`, `15 m`, `6 h`."""
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} m"


HOLE_STEPS: Final = 3
"""Two samples further apart than this many steps have a hole between them."""

THINNED_SECONDS: Final = 12.0
"""What is older than an hour is kept every ten seconds: in wide buckets that distance is no hole."""


class Bucket(NamedTuple):
    """The finite values of one stretch of time. `joined`: nothing was missed since the bucket before it.

    `samples` is 0 where no sample fell into the bucket and the value before it still stood.
    """

    low: float
    high: float
    last: float
    total: float
    samples: int
    joined: bool


class Totals(NamedTuple):
    """Least, mean and greatest of what a graph shows."""

    low: float
    mean: float
    high: float


def buckets(
    times: Sequence[float],
    values: Sequence[float],
    first: int,
    count: int,
    seconds: float,
    step: float = 1.0,
    extremes: tuple[Sequence[float], Sequence[float]] | None = None,
) -> list[Bucket | None]:
    """`count` buckets of `seconds` each, the first one numbered `first`; None where nothing is known.

    `extremes` are the least and the greatest values where `values` are means of several samples already.

    `times` rise; a value that is not finite is none. Between two samples that belong together the former stands until
    the latter comes; after the last one nothing stands.
    """
    found: list[Bucket | None] = [None] * count
    hole = HOLE_STEPS * step if seconds < 5 else max(HOLE_STEPS * step, THINNED_SECONDS)
    begin = bisect_left(times, first * seconds)
    for number in range(count):
        end = bisect_left(times, (first + number + 1) * seconds, begin)
        if end > begin:
            found[number] = _bucket(times, values, begin, end, hole, extremes)
        elif 0 < end < len(times) and _together(times, values, end, hole):
            stood = values[end - 1]
            found[number] = Bucket(stood, stood, stood, 0.0, 0, True)
        begin = end
    return found


def _bucket(
    times: Sequence[float],
    values: Sequence[float],
    begin: int,
    end: int,
    hole: float,
    extremes: tuple[Sequence[float], Sequence[float]] | None,
) -> Bucket | None:
    """One bucket. The sum shows whether every value is finite, which is the usual case."""
    part = values[begin:end]
    total = sum(part)
    if not math.isfinite(total):
        part = [value for value in part if math.isfinite(value)]
        if not part:
            return None
        total = _bounded_sum(part)
    low, high = min(part), max(part)
    if extremes is not None:
        low = min([low, *filter(math.isfinite, extremes[0][begin:end])])
        high = max([high, *filter(math.isfinite, extremes[1][begin:end])])
    return Bucket(low, high, part[-1], total, len(part), _together(times, values, begin, hole))


def _bounded_sum(values: Sequence[float]) -> float:
    """The sum of finite values, which may not be finite itself: then the nearest number that is."""
    total = sum(values)
    return total if math.isfinite(total) else math.copysign(1.7e308, total) if not math.isnan(total) else 0.0


def _together(times: Sequence[float], values: Sequence[float], index: int, hole: float) -> bool:
    """Whether the sample at `index` follows the one before it without a hole."""
    return (
        index > 0
        and times[index] - times[index - 1] <= hole
        and math.isfinite(values[index - 1])
        and math.isfinite(values[index])
    )


def totals(parts: Sequence[Bucket | None]) -> Totals | None:
    """Least, mean and greatest value of all buckets together; None where there is none."""
    known = [part for part in parts if part is not None]
    count = sum(part.samples for part in known)
    if not known:
        return None
    low, high = min(part.low for part in known), max(part.high for part in known)
    mean = _bounded_sum([part.total for part in known]) / count if count else known[-1].last
    return Totals(low, min(max(mean, low), high), high)


class Curve(Struct, frozen=True):
    """One series, and what the history kept from before it; `name` is empty when the graph's title says it all."""

    name: str
    series: SeriesView
    past: SeriesSlice | None = None

    @property
    def begin(self) -> float:
        """Seconds since the epoch from which on `series` counts; before it, `past` does."""
        return self.series.times[0] if len(self.series.times) else math.inf

    @property
    def last(self) -> float | None:
        """The latest value; before the first live one, what the history kept last."""
        series, past = self.series, self.past
        if past is None or series.gaps or any(map(math.isfinite, series.values)):
            return series.last
        return next((value for value in reversed(past.mean) if math.isfinite(value)), None)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        before = () if self.past is None else tuple(gap for gap in self.past.gaps if gap.begin < self.begin)
        return before + self.series.gaps

    @property
    def restarts(self) -> tuple[float, ...]:
        before = () if self.past is None else tuple(time for time in self.past.restarts if time < self.begin)
        return before + self.series.restarts

    @property
    def has_values(self) -> bool:
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


class Panel(Struct, frozen=True):
    """One graph of a screen: its series, and the name of each where there are two."""

    title: str
    metrics: tuple[MetricId, ...]
    names: tuple[str, ...] = ("",)
    alarm: float | None = None
    domain: tuple[float, float | None] | None = None
