"""Samples into the history's file: written second by second, thinned every ten minutes, dropped when they are old.

All calls belong to the writer's thread, inside of its transactions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from spark_tui.domain.engine.metric_series import Sample
from spark_tui.domain.history import (
    COARSE_SECONDS,
    COARSE_STEP,
    FINE_SECONDS,
    FINE_STEP,
    MOST_BYTES,
    RAW_SECONDS,
    SeriesKey,
)
from spark_tui.services.ledger_blocks import (
    BUCKETS,
    Bins,
    DamagedBlock,
    decode,
    encode,
    packed_floats,
    storable,
    unpacked_floats,
)

if TYPE_CHECKING:  # sqlite3 is loaded by whoever opens a history
    from sqlite3 import Connection

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
