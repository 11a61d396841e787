"""Quantiles: of a sample, and from histogram buckets, each with the bounds that it is known to lie in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, inf

from msgspec import Struct


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile (0 to 100) of a sorted sample that is not empty, between its neighbours."""
    rank = (len(ordered) - 1) * percent / 100
    below = floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


class Quantile(Struct, frozen=True):
    """An estimate, and the bucket that it lies in: the true value is above `low` and at most `high`.

    `high` is infinite in the last bucket; `value` is then its lower bound, the least that it can be.
    """

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """How far off the estimate can be; infinite in the last bucket."""
        return max(self.value - self.low, self.high - self.value)


class Latency(Struct, frozen=True):
    """A distribution over some requests or tokens: estimates in seconds, the exact mean, and how many there were."""

    p50: Quantile
    p95: Quantile
    p99: Quantile
    count: int
    mean: float | None = None


class Histogram(Struct, frozen=True):
    """`counts[i]` observations were at most `bounds[i]`; bounds rise and end with infinity."""

    bounds: Sequence[float]
    counts: Sequence[float]
    sum: float | None = None

    @property
    def count(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    def quantile(self, share: float) -> Quantile | None:
        """The value that `share` (0 to 1) of the observations are at most; None when there was none.

        Observations count as spread evenly over their bucket, as Prometheus's histogram_quantile has it. All
        observations here are durations or sizes: the first bucket begins at 0. The sum of all bounds the largest one,
        and is the only one where there is one.
        """
        if not self.count > 0:
            return None
        if self.count == 1 and self.sum is not None:
            return Quantile(self.sum, self.sum, self.sum)
        most = self._largest()
        rank = share * self.count
        below, low = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank and count > below:
                high = max(low, min(bound, most))
                if bound == inf:
                    return Quantile(low, low, high)
                value = low + (bound - low) * max(0.0, rank - below) / (count - below)
                return Quantile(min(value, high), low, high)
            below, low = count, bound
        return None

    def _largest(self) -> float:
        """The most that the largest observation can be: the sum, less what the others are at least."""
        if self.sum is None:
            return inf
        below, low, least, last = 0.0, 0.0, 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count > below:
                least, last = least + (count - below) * low, low
            below, low = count, bound
        return self.sum - least + last

    def latency(self) -> Latency | None:
        """p50, p95, p99 and the mean; None when there was no observation."""
        found = self.quantile(0.5), self.quantile(0.95), self.quantile(0.99)
        if found[0] is None or found[1] is None or found[2] is None:
            return None
        mean = None if self.sum is None else self.sum / self.count
        return Latency(found[0], found[1], found[2], round(self.count), mean)


def histogram(counts: Mapping[float, float], total: float | None = None, sum_: float | None = None) -> Histogram | None:
    """From counts by upper bound. `total` stands in where the last bucket is missing; None without any bucket.

    A page may be read while it is written: counts that fall from one bound to the next are lifted.
    """
    if inf not in counts and total is not None:
        counts = {**counts, inf: total}
    if not counts:
        return None
    bounds = sorted(counts)
    rising, most = [], 0.0
    for bound in bounds:
        most = max(most, counts[bound])
        rising.append(most)
    return Histogram(tuple(bounds), tuple(rising), sum_)
