"""The strip is drawn to scale and never shows more than the pool."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.tui.widgets.memory_strip import apportion


@given(st.lists(st.integers(0, 2**40), max_size=6), st.integers(0, 400))
def test_the_cells_always_sum_to_the_width(sizes: list[int], cells: int) -> None:
    counts = apportion(sizes, cells)
    assert sum(counts) == (cells if sum(sizes) else 0)
    assert all(count >= 0 for count in counts)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.integers(10, 400))
def test_what_is_there_is_seen(sizes: list[int], cells: int) -> None:
    assert all(count >= 1 for count in apportion(sizes, cells))


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=4), st.integers(10, 400))
def test_a_part_is_off_by_no_more_than_the_cells_lent_to_small_ones(sizes: list[int], cells: int) -> None:
    total = sum(sizes)
    for size, count in zip(sizes, apportion(sizes, cells), strict=True):
        if total:
            assert abs(count - size * cells / total) <= len(sizes)
