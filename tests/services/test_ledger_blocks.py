"""Blocks of thinned samples: what goes in comes out, whatever comes in."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.services.history.samples import BUCKETS, Bins, DamagedBlock, decode, encode, storable

VALUES = st.floats(allow_nan=False, allow_infinity=False)
SAMPLES = st.lists(st.tuples(st.integers(0, BUCKETS - 1), VALUES), max_size=200)


def single(value: float) -> float:
    """As 32 bits hold it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def filled(samples: list[tuple[int, float]]) -> Bins:
    bins = Bins()
    for index, value in samples:
        kept = storable(value)
        assert kept is not None
        bins.add(index, kept)
    return bins


@given(SAMPLES)
def test_a_block_keeps_counts_and_bounds_and_the_mean_lies_between(samples: list[tuple[int, float]]) -> None:
    bins = filled(samples)
    back = decode(encode(bins))
    assert [min(count, 255) for count in bins.counts] == back.counts
    for index, _, least, _, greatest in back.filled():
        assert (least, greatest) == (single(bins.least[index]), single(bins.greatest[index]))
        assert least <= back.mean(index) <= greatest
        assert back.mean(index) == pytest.approx(bins.mean(index), rel=1e-6, abs=1e-30)


@given(SAMPLES, SAMPLES)
def test_merging_blocks_is_as_if_all_had_come_to_one(
    first: list[tuple[int, float]], second: list[tuple[int, float]]
) -> None:
    merged, whole = filled(first), filled([*first, *second])
    merged.merge(filled(second))
    assert (merged.counts, merged.least, merged.greatest) == (whole.counts, whole.least, whole.greatest)
    for index, *_ in merged.filled():
        scale = max(abs(whole.least[index]), abs(whole.greatest[index]))
        assert math.isclose(merged.mean(index), whole.mean(index), rel_tol=1e-9, abs_tol=1e-9 * scale)


@given(st.binary(max_size=900))
def test_no_bytes_are_mistaken_for_a_block_or_break_the_reader(data: bytes) -> None:
    with pytest.raises(DamagedBlock):
        decode(data)


@given(SAMPLES, st.data())
def test_a_block_that_is_cut_short_is_damaged(samples: list[tuple[int, float]], data: st.DataObject) -> None:
    whole = encode(filled(samples))
    with pytest.raises(DamagedBlock):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_stored(value: float) -> None:
    assert storable(value) is None


def test_a_quiet_series_takes_next_to_nothing() -> None:
    assert len(encode(filled([(index, 0.0) for index in range(BUCKETS)] * 10))) < 40
