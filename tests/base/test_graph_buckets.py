"""Samples in buckets: extremes stay, holes stay holes, and no float breaks anything."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.graph import buckets, totals

anything = st.floats(allow_nan=True, allow_infinity=True)
NAN = math.nan


def at(*times: float) -> tuple[float, ...]:
    return tuple(float(time) for time in times)


@st.composite
def series(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    steps = draw(st.lists(st.floats(0.01, 40), max_size=60))
    times, time = [], 0.0
    for step in steps:
        time += step
        times.append(time)
    return times, draw(st.lists(anything, min_size=len(times), max_size=len(times)))


@given(series(), st.integers(-3, 20), st.integers(0, 40), st.sampled_from([0.5, 1.0, 5.0, 60.0]))
def test_the_extremes_of_every_bucket_are_those_of_its_samples(
    given_series: tuple[list[float], list[float]], first: int, count: int, seconds: float
) -> None:
    times, values = given_series
    found = buckets(times, values, first, count, seconds)
    assert len(found) == count
    for number, bucket in enumerate(found):
        begin = (first + number) * seconds
        inside = [v for t, v in zip(times, values, strict=True) if begin <= t < begin + seconds and math.isfinite(v)]
        if inside:
            assert bucket is not None
            assert (bucket.low, bucket.high, bucket.last) == (min(inside), max(inside), inside[-1])
            assert bucket.samples == len(inside)
            assert math.isfinite(bucket.total)
        elif bucket is not None:
            assert bucket.samples == 0
            assert math.isfinite(bucket.last)


def test_a_value_that_is_none_is_a_hole() -> None:
    found = buckets(at(0, 1, 2, 3), (1.0, NAN, NAN, 4.0), 0, 4, 1.0)
    assert [part is None for part in found] == [False, True, True, False]
    assert found[3] is not None
    assert not found[3].joined


def test_time_that_passed_without_a_sample_is_a_hole() -> None:
    found = buckets(at(0, 1, 20, 21), (1.0, 1.0, 1.0, 1.0), 0, 22, 1.0)
    assert [number for number, part in enumerate(found) if part is None] == list(range(2, 20))


def test_between_two_samples_that_belong_together_the_former_stands() -> None:
    found = buckets(at(0, 2, 4), (1.0, 2.0, 3.0), 0, 6, 1.0, step=2.0)
    assert [None if part is None else part.last for part in found] == [1.0, 1.0, 2.0, 2.0, 3.0, None]
    assert [part.samples for part in found if part is not None] == [1, 0, 1, 0, 1]


def test_what_is_kept_every_ten_seconds_has_no_holes_in_wide_buckets() -> None:
    found = buckets(at(*range(0, 600, 10)), [1.0] * 60, 0, 100, 6.0, step=1.0)
    assert all(part is not None for part in found[:98])


def test_nothing_stands_after_the_last_sample() -> None:
    assert buckets(at(0), (1.0,), 0, 3, 1.0)[1:] == [None, None]


@given(st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=50))
def test_the_mean_lies_between_the_extremes_even_of_the_largest_floats(values: Sequence[float]) -> None:
    found = totals(buckets(at(*range(len(values))), values, 0, 10, 7.0))
    assert found is not None
    assert found.low <= found.mean <= found.high


def test_totals_of_nothing_are_none() -> None:
    assert totals([None, None]) is None
