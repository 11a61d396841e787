"""The value axis: round numbers, bounds that hold, few cells."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.graph import LABEL_CELLS, LARGEST, Scale, next_scale, nice_scale, tick_texts, value_text
from spark_tui.base.host.series import MetricId
from tests.cases import all_cases

anything = st.floats(allow_nan=True, allow_infinity=True)
units = st.sampled_from(sorted({metric.unit for metric in MetricId}))
steps = st.integers(1, 8)


@given(anything, anything, units, steps)
def test_a_scale_holds_what_it_is_made_for(one: float, other: float, unit: str, ticks: int) -> None:
    low, high = sorted(0.0 if math.isnan(value) else value for value in (one, other))
    scale = nice_scale(low, high, unit=unit, ticks=ticks)
    assert math.isfinite(scale.low) and math.isfinite(scale.high)
    assert scale.low < scale.high
    assert scale.low <= max(low, -LARGEST) + scale.step * 1e-6
    assert scale.high >= min(high, LARGEST) - scale.step * 1e-6


@given(anything, anything, units, steps)
def test_ticks_are_few_rise_and_stay_inside(one: float, other: float, unit: str, ticks: int) -> None:
    low, high = sorted(0.0 if math.isnan(value) else value for value in (one, other))
    scale = nice_scale(low, high, unit=unit, ticks=ticks)
    found = scale.ticks()
    slack = scale.step * 1e-6
    assert 2 <= len(found) <= ticks + 3
    assert all(right > left for left, right in itertools.pairwise(found))
    assert scale.low - slack <= found[0]
    assert found[-1] <= scale.high + slack


@given(st.lists(anything, max_size=6), units)
def test_a_label_fits_its_cells(values: list[float], unit: str) -> None:
    assert all(len(text) <= LABEL_CELLS for text in tick_texts([v for v in values if math.isfinite(v)], unit))


@given(anything, anything, anything)
def test_a_share_is_never_outside(low: float, high: float, value: float) -> None:
    scale = nice_scale(low if math.isfinite(low) else 0.0, high)
    assert 0.0 <= scale.share(value) <= 1.0


@pytest.mark.parametrize(
    ("high", "unit", "ticks", "expected"),
    [
        (46.9, "tok/s", 3, (0, 20, 40, 60)),
        (0.83, "s", 2, (0, 0.5, 1.0)),
        (0.0, "req", 2, (0, 1)),
        (7, "req", 4, (0, 2, 4, 6, 8)),
        (3, "req", 8, (0, 1, 2, 3)),
        (84.9, "GiB", 2, (0, 50, 100)),
        (2411, "MHz", 3, (0, 1000, 2000, 3000)),
    ],
)
def test_ticks_are_round(high: float, unit: str, ticks: int, expected: tuple[float, ...]) -> None:
    assert nice_scale(0.0, high, unit=unit, ticks=ticks).ticks() == expected


def test_per_cent_has_fixed_bounds() -> None:
    scale = nice_scale(12.0, 13.0, domain=(0.0, 100.0), unit="%", ticks=2)
    assert (scale.low, scale.high, scale.ticks()) == (0.0, 100.0, (0, 50, 100))


def test_per_cent_without_a_top_shows_what_there_is_and_never_more_than_all() -> None:
    assert nice_scale(0.0, 4.6, unit="%", ticks=2).high == 5.0
    assert nice_scale(0.0, 95.0, unit="%", ticks=3).high == 100.0


def test_no_tick_lies_beyond_the_top() -> None:
    assert max(nice_scale(0.0, 1.0, domain=(0.0, 121.7), unit="GiB", ticks=2).ticks()) <= 121.7


def test_requests_have_no_halves() -> None:
    for high in range(1, 200):
        assert all(tick == int(tick) for tick in nice_scale(0, high, unit="req", ticks=3).ticks())


def test_a_scale_grows_at_once_and_shrinks_only_when_little_of_it_is_used() -> None:
    wide = Scale(0, 60, 20)
    assert next_scale(wide, Scale(0, 100, 50)) == Scale(0, 100, 50)
    assert next_scale(wide, Scale(0, 50, 25)) is wide
    assert next_scale(wide, Scale(0, 10, 5)) == Scale(0, 10, 5)


@all_cases(
    ("value", "unit", "decimals", "text"),
    [
        (41.83, "tok/s", 1, "41.8 tok/s"),
        (2931.4, "tok/s", 0, "2931 tok/s"),
        (0.42, "s", 2, "420 ms"),
        (0.0241, "s", 3, "24.1 ms"),
        (1.8442, "s", 2, "1.84 s"),
        (74.6, "s", 1, "74.6 s"),
        (0.0, "s", 1, "0 ms"),
        (3.0, "%", 0, "3 %"),
        (0.03, "%", 1, "0.03 %"),
        (0.0, "%", 1, "0.0 %"),
        (2.0, "req", 0, "2"),
        (math.nan, "%", 0, "n/a"),
        (math.inf, "s", 0, "n/a"),
    ],
)
def test_values_are_written_with_their_unit(value: float, unit: str, decimals: int, text: str) -> None:
    assert value_text(value, unit, decimals) == text


def test_ticks_below_a_second_are_milliseconds() -> None:
    assert tick_texts((0.0, 0.25, 0.5, 0.75), "s") == ("0", "250ms", "500ms", "750ms")
    assert tick_texts((0.0, 0.5, 1.0), "s") == ("0", "0.5s", "1s")
    assert tick_texts((0.0, 50.0, 100.0), "%") == ("0", "50%", "100%")
