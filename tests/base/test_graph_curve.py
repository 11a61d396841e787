"""A curve of what is held in memory and what the history kept from before."""

from __future__ import annotations

import math

from spark_tui.base.graph import Curve, TimeAxis
from spark_tui.base.host.series import Gap, MetricId, SeriesKey, SeriesSlice, SeriesView

NAN = math.nan
KEY = SeriesKey("qwen", MetricId.DECODE_RATE.value)
AXIS = TimeAxis(10.0, 12, 12, parts=1)
"""Twelve buckets of ten seconds from 0 on."""


def stretch(*mean: float, gaps: tuple[Gap, ...] = (), restarts: tuple[float, ...] = ()) -> SeriesSlice:
    times = tuple(10.0 * number for number in range(len(mean)))
    return SeriesSlice(
        KEY, 10.0, times, [value - 5 for value in mean], mean, [value + 5 for value in mean], gaps, restarts
    )


def live(begin: float, *values: float, gaps: tuple[Gap, ...] = ()) -> SeriesView:
    times = tuple(begin + number for number in range(len(values)))
    return SeriesView(MetricId.DECODE_RATE, times, values, gaps)


def lasts(curve: Curve) -> list[float | None]:
    return [None if part is None else part.last for part in curve.buckets(AXIS)]


def test_the_history_goes_before_what_is_held_in_memory_and_keeps_its_extremes() -> None:
    curve = Curve("", live(60.0, *[42.0] * 20), stretch(*[30.0] * 12))
    parts = curve.buckets(AXIS)
    assert lasts(curve) == [30.0] * 6 + [42.0] * 2 + [None] * 4
    assert parts[0] is not None
    assert (parts[0].low, parts[0].high) == (25.0, 35.0)
    assert parts[6] is not None
    assert (parts[6].low, parts[6].high) == (42.0, 42.0)


def test_there_is_no_hole_between_the_last_that_was_kept_and_the_first_that_is_held() -> None:
    assert None not in lasts(Curve("", live(58.0, *[42.0] * 60), stretch(*[30.0] * 5)))


def test_a_hole_between_them_stays_a_hole() -> None:
    found = lasts(Curve("", live(100.0, *[42.0] * 10), stretch(30.0, 30.0)))
    assert found[:2] == [30.0, 30.0]
    assert found[2:10] == [None] * 8


def test_without_history_or_without_live_values_the_other_stands_alone() -> None:
    assert lasts(Curve("", live(0.0, *[42.0] * 120))) == [42.0] * 12
    assert lasts(Curve("", live(0.0), stretch(*[30.0] * 12))) == [30.0] * 12
    assert lasts(Curve("", live(0.0))) == [None] * 12


def test_gaps_restarts_and_values_at_a_time_come_from_both() -> None:
    was, now = Gap(10.0, 20.0, "it was stopped"), Gap(70.0, 75.0, "no answer")
    curve = Curve("", live(60.0, 1.0, 2.0, gaps=(now,)), stretch(30.0, NAN, 30.0, gaps=(was,), restarts=(20.0, 90.0)))
    assert curve.gaps == (was, now)
    assert curve.restarts == (20.0,)
    assert curve.gap_at(15.0) == "it was stopped"
    assert curve.gap_at(72.0) == "no answer"
    assert curve.gap_at(40.0) == ""
    assert curve.at(0.0) == 30.0
    assert curve.at(10.0) is None
    assert curve.at(61.0) == 2.0
    assert curve.has_values
    assert not Curve("", live(0.0, NAN), stretch(NAN)).has_values
