"""Samples into the history's file: written second by second, thinned every ten minutes, dropped when they are old."""

from __future__ import annotations

import math
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from spark_tui.domain.history import (
    COARSE_SECONDS,
    COARSE_STEP,
    FINE_SECONDS,
    FINE_STEP,
    MOST_BYTES,
    RAW_SECONDS,
    SeriesKey,
    Stretch,
)
from spark_tui.domain.metrics.series import Gap, Sample

if TYPE_CHECKING:
    from sqlite3 import Connection


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


FINE_SPAN: Final = FINE_STEP * BUCKETS
"""Seconds of a block of ten-second buckets."""
COARSE_SPAN: Final = COARSE_STEP * BUCKETS
HOURS_AT_ONCE: Final = 6
"""So many hours are thinned to minutes in one go: after a long pause there may be many."""
_NOTHING: Final = math.inf
_DROP_BLOCKS: Final = 500
_MOST_MARKS: Final = 20_000


class SampleWriter:
    """Writes and thins on one connection. A new one first thins what an earlier one had no time for."""

    def __init__(self, connection: Connection, most_bytes: int = MOST_BYTES) -> None:
        self._db = connection
        self._most_bytes = most_bytes
        self._series: dict[SeriesKey, int] = {
            SeriesKey(source, metric): id_
            for id_, source, metric in connection.execute("SELECT id, source, metric FROM series")
        }
        self._of_source: dict[str, set[int]] = {}
        for key, id_ in self._series.items():
            self._of_source.setdefault(key.source, set()).add(id_)
        self._layouts: dict[bytes, int] = {}
        self._gaps: dict[str, tuple[int, str]] = {}
        self._open: dict[int, Bins] = {}
        self._open_at: int | None = None
        self._thinned = read_thinned(self._db)
        self._last_tick = self._thinned
        self._swept_at: int | None = None
        self._replay()

    # --- as they come ---------------------------------------------------------------------------------

    def write(self, samples: Iterable[Sample]) -> None:
        """Keeps samples, those of one second as one row."""
        seconds: dict[int, dict[int, float]] = {}
        for sample in samples:
            seconds.setdefault(math.floor(sample.at), {}).update(self._values(sample))
            self._mark(sample)
        for at in sorted(seconds):
            if seconds[at]:
                self._tick(at, seconds[at])

    def _values(self, sample: Sample) -> dict[int, float]:
        """By series; what this source has and did not tell this time had no value."""
        given = {
            self._id(SeriesKey(sample.engine, str(metric))): storable(value) for metric, value in sample.values.items()
        }
        known = self._of_source.get(sample.engine, set())
        values: dict[int, float] = dict.fromkeys(known, _NOTHING)
        values.update((id_, value) for id_, value in given.items() if value is not None)
        return values

    def _id(self, key: SeriesKey) -> int:
        known = self._series.get(key)
        if known is not None:
            return known
        found = self._db.execute("INSERT INTO series (source, metric) VALUES (?, ?)", key).lastrowid or 0
        self._series[key] = found
        self._of_source.setdefault(key.source, set()).add(found)
        return found

    def _tick(self, at: int, values: dict[int, float]) -> None:
        ids = sorted(values)
        row = (at, self._layout(ids), packed_floats(values[id_] for id_ in ids))
        tick = self._db.execute("INSERT INTO ticks (at, layout, body) VALUES (?, ?, ?)", row).lastrowid or 0
        self._thin(tick, at, ids, [values[id_] for id_ in ids])

    def _layout(self, ids: Sequence[int]) -> int:
        packed = packed_ids(ids)
        known = self._layouts.get(packed)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO layouts (series) VALUES (?)", (packed,))
            known = self._db.execute("SELECT id FROM layouts WHERE series = ?", (packed,)).fetchone()[0]
            self._layouts[packed] = known
        return known

    def _mark(self, sample: Sample) -> None:
        """Keeps why an engine could not be asked, until it could again; and when a new start of it was first seen."""
        if sample.restarted:
            self._add_mark(sample.engine, "restart", sample.at, "")
        if not sample.gap and not sample.values:
            return
        mark, text = self._gaps.pop(sample.engine, (0, ""))
        if text:
            self._db.execute("UPDATE marks SET end = max(end, ?) WHERE id = ?", (sample.at, mark))
        if sample.gap:
            same = sample.gap == text
            self._gaps[sample.engine] = (
                mark if same else self._add_mark(sample.engine, "gap", sample.at, sample.gap),
                sample.gap,
            )

    def _add_mark(self, source: str, kind: str, at: float, text: str) -> int:
        row = (source, kind, at, at, text)
        cursor = self._db.execute("INSERT INTO marks (source, kind, begin, end, text) VALUES (?, ?, ?, ?, ?)", row)
        return cursor.lastrowid or 0

    # --- ten seconds ----------------------------------------------------------------------------------

    def _thin(self, tick: int, at: int, ids: Sequence[int], values: Sequence[float]) -> None:
        """Takes a second into the open blocks; one of another span closes them."""
        start = at - at % FINE_SPAN
        if start != self._open_at:
            self.close_blocks()
            self._open_at = start
        index = (at - start) // FINE_STEP
        for id_, value in zip(ids, values, strict=True):
            if math.isfinite(value):
                bins = self._open.get(id_)
                if bins is None:
                    bins = self._open[id_] = Bins()
                bins.add(index, value)
        self._last_tick = tick

    def close_blocks(self) -> None:
        """Writes the open blocks, and how far thinning has come."""
        if self._open_at is not None:
            for id_, bins in self._open.items():
                self._put(id_, FINE_STEP, self._open_at, bins)
            self._thinned = self._last_tick
            self._db.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('thinned', ?)", (self._thinned,))
        self._open, self._open_at = {}, None

    def _put(self, series: int, span: int, start: int, bins: Bins) -> None:
        """Into the block that is there already, if one is: a clock can be set back."""
        where = (series, span, start)
        found = self._db.execute(
            "SELECT body FROM blocks WHERE series = ? AND span = ? AND start = ?", where
        ).fetchone()
        if found is not None:
            _merge(bins, found[0])
        self._db.execute(
            "INSERT OR REPLACE INTO blocks (series, span, start, body) VALUES (?, ?, ?, ?)", (*where, encode(bins))
        )

    def _replay(self) -> None:
        """Thins the seconds that are in no block: those of a process that was killed, or has just ended."""
        layouts = read_layouts(self._db)
        rows = self._db.execute(
            "SELECT id, at, layout, body FROM ticks WHERE id > ? ORDER BY id", (self._thinned,)
        ).fetchall()
        for tick, at, layout, body in rows:
            ids, values = layouts.get(layout, ()), unpacked_floats(body)
            if len(ids) == len(values):
                self._thin(tick, at, ids, values)

    # --- age and size ---------------------------------------------------------------------------------

    def sweep(self, now: float, *, every: float = FINE_SPAN) -> bool:
        """Drops and thins what has become old, once in `every` seconds. True when there is more of it to do."""
        at = math.floor(now)
        if self._swept_at is not None and 0 <= at - self._swept_at < every:
            return False
        # A span more than promised: what was asked for a moment ago still is there.
        self._db.execute("DELETE FROM ticks WHERE id <= ? AND at < ?", (self._thinned, at - RAW_SECONDS - FINE_SPAN))
        more = self._fold(at)
        self._db.execute("DELETE FROM blocks WHERE span = ? AND start < ?", (COARSE_STEP, at - COARSE_SECONDS))
        self._db.execute("DELETE FROM marks WHERE end < ?", (at - COARSE_SECONDS,))
        self._db.execute(
            "DELETE FROM marks WHERE id <= (SELECT id FROM marks ORDER BY id DESC LIMIT 1 OFFSET ?)", (_MOST_MARKS,)
        )
        self._keep_within()
        self._forget()
        self._swept_at = None if more else at
        return more

    def _fold(self, now: int) -> bool:
        """Ten-second blocks older than a day become minutes, hour by hour."""
        before = now - FINE_SECONDS - COARSE_SPAN
        for _ in range(HOURS_AT_ONCE):
            found = self._db.execute("SELECT min(start) FROM blocks WHERE span = ?", (FINE_STEP,)).fetchone()[0]
            if found is None or found >= before - before % COARSE_SPAN:
                return False
            self._fold_hour(found - found % COARSE_SPAN)
        return True

    def _fold_hour(self, hour: int) -> None:
        where = (FINE_STEP, hour, hour + COARSE_SPAN)
        rows = self._db.execute(
            "SELECT series, start, body FROM blocks WHERE span = ? AND start >= ? AND start < ?", where
        ).fetchall()
        minutes: dict[int, Bins] = {}
        for series, start, body in rows:
            _merge(minutes.setdefault(series, Bins()), body, start - hour)
        for series, bins in minutes.items():
            if any(bins.counts):
                self._put(series, COARSE_STEP, hour, bins)
        self._db.execute("DELETE FROM blocks WHERE span = ? AND start >= ? AND start < ?", where)

    def _keep_within(self) -> None:
        """Drops the oldest minutes, then the oldest ten seconds, until the file is within its bound."""
        if self.used_bytes() <= self._most_bytes:
            return
        goal = self._most_bytes * 0.9
        for span in (COARSE_STEP, FINE_STEP):
            while self.used_bytes() > goal:
                dropped = self._db.execute(
                    "DELETE FROM blocks WHERE id IN (SELECT id FROM blocks WHERE span = ? ORDER BY start LIMIT ?)",
                    (span, _DROP_BLOCKS),
                ).rowcount
                if dropped < 1:
                    break

    def used_bytes(self) -> int:
        """What the file holds, pages that are free apart."""
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _forget(self) -> None:
        """Layouts that no second uses; and series that nothing is kept of, which this process has not written."""
        self._db.execute("DELETE FROM layouts WHERE id NOT IN (SELECT layout FROM ticks)")
        self._layouts.clear()
        in_use = {id_ for ids in read_layouts(self._db).values() for id_ in ids} | set(self._open)
        in_use |= {row[0] for row in self._db.execute("SELECT DISTINCT series FROM blocks")}
        for key, id_ in [(key, id_) for key, id_ in self._series.items() if id_ not in in_use]:
            self._db.execute("DELETE FROM series WHERE id = ?", (id_,))
            del self._series[key]
            self._of_source[key.source].discard(id_)


def _merge(bins: Bins, body: bytes, offset: int | None = None) -> None:
    """Takes a stored block; with `offset` seconds, one of ten-second buckets into one of minutes. A damaged block has
    nothing to give: the reader tells of it."""
    try:
        other = decode(body)
    except DamagedBlock:
        return
    if offset is None:
        bins.merge(other)
        return
    for index, count, least, total, greatest in other.filled():
        bins.take((offset + index * FINE_STEP) // COARSE_STEP, count, least, total, greatest)


def packed_ids(ids: Sequence[int]) -> bytes:
    """A layout's series, as it is stored."""
    return struct.pack(f"<{len(ids)}I", *ids)


def read_thinned(connection: Connection) -> int:
    """The id of the last second that is in the blocks; 0 before the first."""
    found = connection.execute("SELECT value FROM meta WHERE name = 'thinned'").fetchone()
    return int(found[0]) if found else 0


def read_layouts(connection: Connection) -> dict[int, tuple[int, ...]]:
    """Every layout: the series whose values a second's row holds, in order."""
    return {
        id_: struct.unpack(f"<{len(packed) // 4}I", packed)
        for id_, packed in connection.execute("SELECT id, series FROM layouts")
        if len(packed) % 4 == 0
    }


MOST_BUCKETS: Final = 20_000
BRIDGE_SECONDS: Final = 12
"""Two values that are no further apart have no gap between them: an engine that nobody looks at is asked every five
seconds. A look that failed is a gap by itself."""
_LEDGER_SERIES_MOST_MARKS: Final = 1000


class SeriesReader:
    """One reading, in one transaction: a consistent look. `damaged` counts the blocks that could not be read."""

    def __init__(self, connection: Connection) -> None:
        self._db = connection
        self.damaged = 0

    def read(self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int) -> tuple[Stretch, ...]:
        """See the port."""
        self._db.execute("BEGIN")
        try:
            return self._read(keys, since, max(since, until), max(1, min(buckets, MOST_BUCKETS)))
        finally:
            self._db.execute("COMMIT")

    def _read(self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int) -> tuple[Stretch, ...]:
        ids = [self._id(key) for key in keys]
        finest = self._finest(since, until)
        step = max(1, math.ceil((until - since) / buckets / finest)) * finest
        begin = math.floor(since / step) * step
        size = min(max(1, math.ceil((until - begin) / step)), MOST_BUCKETS + 1)
        window = _Window(begin, step, size)
        wanted = {id_: (Bins(size), [False] * size) for id_ in ids if id_ is not None}
        if wanted:
            if finest > 1:
                for span in (FINE_STEP, COARSE_STEP):
                    self._take_blocks(wanted, window, span)
            self._take_ticks(wanted, window, since_tick=0 if finest == 1 else read_thinned(self._db))
        marks = {source: self._marks(source, begin, until) for source in {key.source for key in keys}}
        empty = (Bins(size), [False] * size)
        return tuple(
            _stretch(key, window, *(empty if id_ is None else wanted[id_]), marks[key.source])
            for key, id_ in zip(keys, ids, strict=True)
        )

    def _id(self, key: SeriesKey) -> int | None:
        found = self._db.execute("SELECT id FROM series WHERE source = ? AND metric = ?", key).fetchone()
        return None if found is None else int(found[0])

    def _finest(self, since: float, until: float) -> int:
        """The distance of samples, in seconds, that the whole stretch has: 1, 10 or 60."""
        query = "SELECT 1 FROM blocks WHERE span = ? AND start > ? AND start < ? LIMIT 1"
        if self._db.execute(query, (COARSE_STEP, since - COARSE_STEP * BUCKETS, until)).fetchone():
            return COARSE_STEP
        first, raw = self._db.execute("SELECT min(id), min(at) FROM ticks").fetchone()
        if first == 1:  # no second was ever dropped
            return 1
        before = until if raw is None else min(until, raw)
        if self._db.execute(query, (FINE_STEP, since - FINE_STEP * BUCKETS, before)).fetchone() and since < before:
            return FINE_STEP
        return 1

    def _take_blocks(self, wanted: dict[int, tuple[Bins, list[bool]]], window: _Window, span: int) -> None:
        query = "SELECT start, body FROM blocks WHERE series = ? AND span = ? AND start > ? AND start < ?"
        for id_, (bins, _) in wanted.items():
            for start, body in self._db.execute(query, (id_, span, window.begin - span * BUCKETS, window.end)):
                try:
                    block = decode(body)
                except DamagedBlock:
                    self.damaged += 1
                    continue
                for bucket, count, least, total, greatest in block.filled():
                    index = window.index(start + bucket * span)
                    if index is not None:
                        bins.take(index, count, least, total, greatest)

    def _take_ticks(self, wanted: dict[int, tuple[Bins, list[bool]]], window: _Window, since_tick: int) -> None:
        places = {
            layout: [(series.index(id_), *wanted[id_]) for id_ in wanted if id_ in series]
            for layout, series in read_layouts(self._db).items()
        }
        rows = self._db.execute(
            "SELECT at, layout, body FROM ticks WHERE id > ? AND at >= ? AND at < ?",
            (since_tick, window.begin, window.end),
        )
        for at, layout, body in rows:
            index = window.index(at)
            found = places.get(layout)
            if index is None or not found:
                continue
            values = unpacked_floats(body)
            for place, bins, nothing in found:
                value = values[place]
                if math.isfinite(value):
                    bins.add(index, value)
                elif math.isinf(value):
                    nothing[index] = True

    def _marks(self, source: str, begin: float, until: float) -> tuple[tuple[Gap, ...], tuple[float, ...]]:
        rows = self._db.execute(
            "SELECT kind, begin, end, text FROM marks WHERE source = ? AND end >= ? AND begin <= ? "
            "ORDER BY begin DESC LIMIT ?",
            (source, begin, until, _LEDGER_SERIES_MOST_MARKS),
        ).fetchall()[::-1]
        gaps = tuple(Gap(first, last, text) for kind, first, last, text in rows if kind == "gap")
        return gaps, tuple(first for kind, first, _, _ in rows if kind == "restart")


class _Window:
    """Buckets of `step` seconds from `begin` on."""

    def __init__(self, begin: int, step: int, size: int) -> None:
        self.begin = begin
        self.step = step
        self.size = size
        self.end = begin + step * size

    def index(self, at: float) -> int | None:
        """The bucket of a time; None outside."""
        index = int((at - self.begin) // self.step)
        return index if 0 <= index < self.size else None


def _stretch(
    key: SeriesKey,
    window: _Window,
    bins: Bins,
    nothing: Sequence[bool],
    marks: tuple[tuple[Gap, ...], tuple[float, ...]],
) -> Stretch:
    least, mean, greatest = ([math.nan] * window.size for _ in range(3))
    for index, _, low, _, high in bins.filled():
        least[index], mean[index], greatest[index] = low, bins.mean(index), high
    for hole in _bridged(bins.counts, nothing, window.step):
        least[hole], mean[hole], greatest[hole] = least[hole - 1], mean[hole - 1], greatest[hole - 1]
    times = tuple(float(window.begin + window.step * index) for index in range(window.size))
    gaps, restarts = marks
    if gaps and not any(bins.counts[max(0, int((gaps[-1].begin - window.begin) // window.step) + 1) :]):
        gaps = (*gaps[:-1], replace(gaps[-1], end=max(gaps[-1].end, float(window.end))))  # it has not ended yet
    return Stretch(key, float(window.step), times, tuple(least), tuple(mean), tuple(greatest), gaps, restarts)


def _bridged(counts: Sequence[int], nothing: Sequence[bool], step: int) -> list[int]:
    """Empty buckets that are no gap, in order. One in which the series was asked for and had no value stays empty."""
    filled = [index for index, count in enumerate(counts) if count]
    return [
        hole
        for before, after in pairwise(filled)
        if 1 < after - before <= BRIDGE_SECONDS / step and not any(nothing[before + 1 : after])
        for hole in range(before + 1, after)
    ]
