"""Series out of the history's file: whatever is kept of a stretch of time, cut into even buckets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from spark_tui.domain.engine.metric_series import Gap
from spark_tui.domain.history import COARSE_STEP, FINE_STEP, SeriesKey, Stretch
from spark_tui.services.ledger_blocks import BUCKETS, Bins, DamagedBlock, decode, unpacked_floats
from spark_tui.services.ledger_samples import read_layouts, read_thinned

if TYPE_CHECKING:  # sqlite3 is loaded by whoever opens a history
    from sqlite3 import Connection

MOST_BUCKETS: Final = 20_000
BRIDGE_SECONDS: Final = 12
"""Two values that are no further apart have no gap between them: an engine that nobody looks at is asked every five
seconds. A look that failed is a gap by itself."""
_MOST_MARKS: Final = 1000


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
            (source, begin, until, _MOST_MARKS),
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
