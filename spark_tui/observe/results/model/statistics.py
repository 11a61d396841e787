"""Percentiles as `vllm bench serve` computes them, and 95 % confidence intervals.

Percentiles interpolate linearly between order statistics (numpy's default, which `vllm bench serve` uses): the value
at rank `(n - 1) * p / 100` of the sorted sample, counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.metrics_page import percentile

CONFIDENCE: Final = 0.95

# Student's t for a two-sided interval of 95 %, by degrees of freedom; beyond the table the next smaller entry is
# taken, which errs on the wide side.
_T95: Final = (
    (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262),
    (10, 2.228), (11, 2.201), (12, 2.179), (13, 2.160), (14, 2.145), (15, 2.131), (16, 2.120), (17, 2.110),
    (18, 2.101), (19, 2.093), (20, 2.086), (25, 2.060), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980),
)  # fmt: skip


class ConfidenceInterval(Struct, frozen=True):
    """A 95 % confidence interval."""

    low: float
    high: float


class Distribution(Struct, frozen=True):
    """A sample in figures; the unit is its values'. `std` is the sample's standard deviation (n - 1), 0 for one
    value. `median_interval` is None where the sample is too small to have one (fewer than 6 values)."""

    count: int
    mean: float
    std: float
    least: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    median_interval: ConfidenceInterval | None = None


def distribution(values: Iterable[float]) -> Distribution | None:
    """The figures of a sample; None for an empty one: there is no zero to report."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        std=deviation(ordered),
        least=ordered[0],
        p50=percentile(ordered, 50),
        p90=percentile(ordered, 90),
        p95=percentile(ordered, 95),
        p99=percentile(ordered, 99),
        most=ordered[-1],
        median_interval=median_interval(ordered),
    )


def deviation(values: Sequence[float]) -> float:
    """The sample's standard deviation (n - 1); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def mean_interval(values: Sequence[float]) -> ConfidenceInterval | None:
    """The mean's 95 % interval by Student's t; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    half = student_t(len(values) - 1) * deviation(values) / math.sqrt(len(values))
    return ConfidenceInterval(mean - half, mean + half)


def median_interval(ordered: Sequence[float]) -> ConfidenceInterval | None:
    """The median's interval between two order statistics, whatever the distribution: it covers the true median with at
    least 95 %. None for fewer than 6 values, with which no pair of them does."""
    count = len(ordered)
    tail, rank = 0.5**count if count < 1000 else 0.0, 0
    if count >= 1000:
        rank = math.floor(count / 2 - 1.96 * math.sqrt(count) / 2)
        return ConfidenceInterval(ordered[rank], ordered[count - 1 - rank])
    if 2 * tail > 1 - CONFIDENCE:
        return None
    probability = tail
    while True:  # the largest rank whose both tails together stay within 5 %
        probability = probability * (count - rank) / (rank + 1)
        if 2 * (tail + probability) > 1 - CONFIDENCE:
            return ConfidenceInterval(ordered[rank], ordered[count - 1 - rank])
        tail, rank = tail + probability, rank + 1


def student_t(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval."""
    return next(value for degrees, value in reversed(_T95) if degrees <= max(1, freedom))
