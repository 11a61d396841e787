"""Samples put into the buckets of a time axis: the least and the greatest value of each stay, and so do the holes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

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
    """One bucket. The sum tells at once whether every value is finite, which is the usual case."""
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


def merged(parts: Sequence[Bucket | None], size: int) -> list[Bucket | None]:
    """Every `size` buckets as one; the last one may be made of fewer."""
    if size <= 1:
        return list(parts)
    return [_merge(parts[start : start + size]) for start in range(0, len(parts), size)]


def _merge(parts: Sequence[Bucket | None]) -> Bucket | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return Bucket(
        min(part.low for part in known),
        max(part.high for part in known),
        known[-1].last,
        _bounded_sum([part.total for part in known]),
        sum(part.samples for part in known),
        known[0].joined,
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
