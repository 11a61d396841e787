"""Thinned samples as they are stored: blocks of sixty buckets with count, least, mean and greatest value.

A block is packed as 60 counts (a byte each, 255 for more) and three times 60 floats of 32 bits, little-endian, first
all lowest bytes, then the next: alike bytes stand together and compress well.
"""

from __future__ import annotations

import math
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

BUCKETS: Final = 60
_FORMAT: Final = b"\x01"
_WIDTH: Final = 4
_FLOATS: Final = 3 * BUCKETS * _WIDTH
_MOST_COUNT: Final = 255
_LARGEST: Final = 3.0e38
"""Beyond it a float of 32 bits is infinite."""


class DamagedBlock(ValueError):
    """Bytes that are no block."""


def storable(value: float) -> float | None:
    """The value as 32 bits can hold it; None for one that is not finite."""
    return min(max(value, -_LARGEST), _LARGEST) if math.isfinite(value) else None


def packed_floats(values: Iterable[float]) -> bytes:
    """Floats of 32 bits, little-endian. NaN and infinity stay."""
    floats = array("f", values)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()


def unpacked_floats(data: bytes) -> array[float]:
    """The other way. Raises DamagedBlock for bytes that are no whole floats."""
    floats = array("f")
    try:
        floats.frombytes(data)
    except ValueError as error:
        raise DamagedBlock(str(error)) from error
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


@dataclass(slots=True)
class Bins:
    """Buckets that take samples: `least`, `sums` and `greatest` count where `counts` is not zero."""

    size: int = BUCKETS
    counts: list[int] = field(init=False)
    least: list[float] = field(init=False)
    sums: list[float] = field(init=False)
    greatest: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = [0] * self.size
        self.least, self.sums, self.greatest = ([0.0] * self.size for _ in range(3))

    def add(self, index: int, value: float) -> None:
        """One sample."""
        self.take(index, 1, value, value, value)

    def take(self, index: int, count: int, least: float, total: float, greatest: float) -> None:
        """A bucket of another block."""
        if not self.counts[index]:
            self.counts[index], self.least[index], self.sums[index], self.greatest[index] = (
                count, least, total, greatest,
            )  # fmt: skip
            return
        self.counts[index] += count
        self.sums[index] += total
        self.least[index] = min(self.least[index], least)
        self.greatest[index] = max(self.greatest[index], greatest)

    def filled(self) -> Iterator[tuple[int, int, float, float, float]]:
        """The buckets that have samples: index, count, least, sum, greatest."""
        for index, count in enumerate(self.counts):
            if count:
                yield index, count, self.least[index], self.sums[index], self.greatest[index]

    def mean(self, index: int) -> float:
        """Of a bucket that has samples; never outside of its extremes, whatever rounding does."""
        mean = self.sums[index] / self.counts[index]
        return min(max(mean, self.least[index]), self.greatest[index])

    def merge(self, other: Bins) -> None:
        """Takes another block of the same buckets."""
        for index, count, least, total, greatest in other.filled():
            self.take(index, count, least, total, greatest)


def encode(bins: Bins) -> bytes:
    """A block of sixty buckets as it is stored."""
    counts = bytes(min(count, _MOST_COUNT) for count in bins.counts)
    means = (bins.mean(index) if bins.counts[index] else 0.0 for index in range(BUCKETS))
    floats = packed_floats([*bins.least, *means, *bins.greatest])
    planes = b"".join(floats[byte::_WIDTH] for byte in range(_WIDTH))
    return _FORMAT + zlib.compress(counts + planes, 6)


def decode(data: bytes) -> Bins:
    """What `encode` made. Raises DamagedBlock for anything else."""
    if data[:1] != _FORMAT:
        raise DamagedBlock("an unknown kind of block")
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data[1:], BUCKETS + _FLOATS + 1)
    except zlib.error as error:
        raise DamagedBlock(str(error)) from error
    if len(raw) != BUCKETS + _FLOATS or not inflater.eof:
        raise DamagedBlock("a block of another size")
    interleaved = bytearray(_FLOATS)
    plane = _FLOATS // _WIDTH
    for byte in range(_WIDTH):
        begin = BUCKETS + byte * plane
        interleaved[byte::_WIDTH] = raw[begin : begin + plane]
    floats = unpacked_floats(bytes(interleaved))
    bins = Bins()
    for index, count in enumerate(raw[:BUCKETS]):
        if count:
            mean = floats[BUCKETS + index]
            bins.take(index, count, floats[index], mean * count, floats[2 * BUCKETS + index])
    return bins
