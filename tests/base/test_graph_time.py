"""The time axis: cells on multiples of wall-clock time, so that a picture moves seldom."""

from __future__ import annotations

import itertools
from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.graph import SHIFT_SECONDS, WINDOWS, clock_text, time_axis, time_ticks, window_text

NOW = 1_763_733_123.4
TOKYO = timezone(timedelta(hours=9))
NEPAL = timezone(timedelta(hours=5, minutes=45))

times = st.floats(1e9, 4e9)
windows = st.sampled_from(WINDOWS)
widths = st.integers(1, 300)


@given(times, windows, widths)
def test_the_axis_shows_at_least_the_window_and_ends_soon_after_now(now: float, window: int, columns: int) -> None:
    axis = time_axis(window, columns, now)
    assert axis.begin <= now - window + axis.live * axis.cell_seconds + 1e-6
    assert now < axis.end <= now + axis.live * axis.cell_seconds + 1e-6


@given(times, windows, st.integers(20, 300))
def test_the_picture_moves_at_most_every_few_seconds(now: float, window: int, columns: int) -> None:
    edges = {time_axis(window, columns, now + second).end for second in range(60)}
    assert len(edges) <= 60 / SHIFT_SECONDS + 1


@given(times, windows, widths, st.floats(0, 0.999))
def test_a_time_is_in_the_column_that_covers_it(now: float, window: int, columns: int, share: float) -> None:
    axis = time_axis(window, columns, now)
    time = axis.begin + share * (axis.end - axis.begin)
    column = axis.column(time)
    assert column is not None
    begin, end = axis.span(column)
    assert begin - 1e-6 <= time <= end + 1e-6


def test_a_time_outside_is_in_no_column() -> None:
    axis = time_axis(60, 40, NOW)
    assert axis.column(axis.begin - 1) is None
    assert axis.column(axis.end) is None


@pytest.mark.parametrize(("window", "cell"), [(60, 1), (300, 5), (900, 15), (3600, 60), (21600, 300)])
def test_a_cell_covers_a_round_stretch(window: int, cell: float) -> None:
    assert time_axis(window, 72, NOW).cell_seconds == cell


@given(times, windows, st.integers(20, 300), st.sampled_from([None, TOKYO, NEPAL]))
def test_labels_stand_apart_and_in_order(now: float, window: int, columns: int, zone: timezone | None) -> None:
    axis = time_axis(window, columns, now)
    ticks = list(time_ticks(axis, zone))
    for (left, label), (right, _) in itertools.pairwise(ticks):
        assert right - left > len(label)


def test_labels_are_round_local_times() -> None:
    axis = time_axis(3600, 72, NOW)
    assert {label[-2:] for _, label in time_ticks(axis, NEPAL)} <= {"00", "15", "30", "45"}
    assert clock_text(0.0, NEPAL) == "05:45:00"


def test_a_short_window_is_labelled_to_the_second() -> None:
    assert all(label.count(":") == 2 for _, label in time_ticks(time_axis(60, 72, NOW), TOKYO))
    assert all(label.count(":") == 1 for _, label in time_ticks(time_axis(900, 72, NOW), TOKYO))


def test_windows_are_named_as_people_say_them() -> None:
    assert [window_text(window) for window in WINDOWS] == ["1 m", "5 m", "15 m", "1 h", "6 h"]
