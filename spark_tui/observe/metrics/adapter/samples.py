"""Samples in the history's file: a row per second and source for an hour, then buckets of ten seconds, then of minutes.

A row has a column per metric. Buckets are packed, sixty of all metrics of a source in one compressed body: a day of
two engines takes 4 MB, a sixth of what a row per bucket takes. Values are whole numbers (hundredths; times in steps of
10 us). A bucket keeps how many samples it had and their sum, so that thinning loses nothing but the time within it.
"""

# Names of tables and columns are our own.
# ruff: noqa: S608

from __future__ import annotations

import math
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from spark_tui.base.host.series import (
    COARSE_SECONDS,
    COARSE_STEP,
    FINE_SECONDS,
    FINE_STEP,
    RAW_SECONDS,
    Gap,
    Sample,
    SeriesKey,
    SeriesSlice,
)

if TYPE_CHECKING:  # sqlite3 is loaded by the threads that use it
    from sqlite3 import Connection

RAW: Final = "samples_1s"
BLOCK: Final = 60
"""Buckets in one body."""
MARGIN_SECONDS: Final = 600
"""Rows stay this much longer than promised: what a caller has just asked for is still there."""
BRIDGE_SECONDS: Final = 12
"""Two values no further apart have no gap between them: an engine in the background is sampled every five seconds."""
MOST_BUCKETS: Final = 20_000
_MOST_MARKS: Final = 20_000
_MOST_MARKS_READ: Final = 1000
_DROP_BLOCKS: Final = 50
_LARGEST_WHOLE: Final = 2**40
"""Beyond it a value is stored as a float: sums of whole numbers must stay within 64 bits."""
_LARGEST: Final = 3.0e38

SAMPLES_SCHEMA: Final = (
    "CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    f"CREATE TABLE {RAW} (at INTEGER NOT NULL, source INTEGER NOT NULL, PRIMARY KEY (at, source)) WITHOUT ROWID",
    "CREATE TABLE buckets (step INTEGER NOT NULL, start INTEGER NOT NULL, source INTEGER NOT NULL, "
    "body BLOB NOT NULL, PRIMARY KEY (step, start, source))",
)
MARKS_SCHEMA: Final = (
    "CREATE TABLE marks (id INTEGER PRIMARY KEY, source TEXT NOT NULL, kind TEXT NOT NULL, begin REAL NOT NULL, "
    "end REAL NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX marks_end ON marks (source, end)",
)

Value: TypeAlias = int | float
Bucket: TypeAlias = Sequence[Any]
"""How many samples, the least, their sum, the greatest: four numbers."""
Row: TypeAlias = tuple[int, str, Bucket]
"""A time, a metric, and what is known of it then."""

_bodies: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_columns: Final = msgspec.msgpack.Decoder(tuple[list[int], list[int], list[Value], list[Value], list[Value]])


def stored(metric: str, value: float) -> Value | None:
    """A value as it is stored; None for one that is not finite."""
    if not math.isfinite(value):
        return None
    scaled = min(max(value, -_LARGEST), _LARGEST) * scale_of(metric)
    return round(scaled) if abs(scaled) < _LARGEST_WHOLE else scaled


def scale_of(metric: str) -> int:
    """What a value is multiplied by before it is stored. Part of the file format: never change one."""
    return 100_000 if metric.endswith("_seconds") else 100


def metrics_in(db: Connection) -> tuple[str, ...]:
    """The metrics that the file has columns for, those of a newer version too."""
    names = [row[1] for row in db.execute(f"PRAGMA table_info({RAW})")]
    return tuple(name for name in names if name not in ("at", "source"))


def add_columns(db: Connection, metrics: Iterable[str]) -> None:
    """Adds the columns of metrics that the file does not have yet."""
    have = metrics_in(db)
    for metric in dict.fromkeys(metrics):
        if metric not in have:
            db.execute(f"ALTER TABLE {RAW} ADD COLUMN {metric}")


def source_id(db: Connection, name: str) -> int:
    """The number of a source, made where it has none."""
    db.execute("INSERT OR IGNORE INTO sources (name) VALUES (?)", (name,))
    return int(db.execute("SELECT id FROM sources WHERE name = ?", (name,)).fetchone()[0])


# --- buckets ------------------------------------------------------------------------------------------


def merge(into: dict[int, Bucket], index: int, new: Bucket) -> None:
    """Adds a bucket to what is known of the same time."""
    old = into.get(index)
    into[index] = new if old is None else (old[0] + new[0], min(old[1], new[1]), old[2] + new[2], max(old[3], new[3]))


def unpacked(
    body: bytes, wanted: Container[str] | None = None
) -> Iterator[tuple[str, Iterator[tuple[int, int, Value, Value, Value]]]]:
    """The buckets of each metric, each with its number. A body that is damaged has none: a gap on screen."""
    with suppress(zlib.error, msgspec.DecodeError):
        for metric, columns in _bodies.decode(zlib.decompress(body)).items():
            if wanted is None or metric in wanted:
                yield metric, zip(*_columns.decode(columns), strict=True)


def add_buckets(db: Connection, step: int, source: int, rows: Iterable[Row]) -> None:
    """Adds buckets to those that are there: a clock may have been set back."""
    span = BLOCK * step
    blocks: dict[int, dict[str, dict[int, Bucket]]] = {}
    for at, metric, bucket in rows:
        merge(blocks.setdefault(at // span * span, {}).setdefault(metric, {}), at % span // step, bucket)
    for start, block in blocks.items():
        place = (step, start, source)
        held = db.execute("SELECT body FROM buckets WHERE step = ? AND start = ? AND source = ?", place).fetchone()
        for metric, known in unpacked(held[0]) if held else ():
            for index, *bucket in known:
                merge(block.setdefault(metric, {}), index, bucket)
        packed = {
            metric: tuple(zip(*((index, *found[index]) for index in sorted(found)), strict=True))
            for metric, found in block.items()
        }
        body = zlib.compress(msgspec.msgpack.encode(packed))
        db.execute("INSERT OR REPLACE INTO buckets (step, start, source, body) VALUES (?, ?, ?, ?)", (*place, body))


# --- writing ------------------------------------------------------------------------------------------


class SampleWriter:
    """Writes samples and thins them, within the writer's transactions."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._metrics = metrics_in(db)
        updates = ", ".join(f"{metric} = coalesce(excluded.{metric}, {metric})" for metric in self._metrics)
        self._insert = (
            f"INSERT INTO {RAW} (at, source, {', '.join(self._metrics)}) VALUES (?, ?{', ?' * len(self._metrics)}) "
            f"ON CONFLICT (at, source) DO UPDATE SET {updates}"
        )
        self._sources: dict[str, int] = {}
        self._gaps: dict[str, tuple[int, str]] = {}
        self._swept_at = -math.inf

    def write(self, samples: Iterable[Sample]) -> None:
        """Keeps samples. A row without a value says that the source was asked then."""
        for sample in samples:
            source = self._sources.get(sample.engine)
            if source is None:
                source = self._sources[sample.engine] = source_id(self._db, sample.engine)
            given = {str(metric): value for metric, value in sample.values.items()}
            values = [stored(metric, given.get(metric, math.nan)) for metric in self._metrics]
            self._db.execute(self._insert, (math.floor(sample.at), source, *values))
            if sample.restarted:
                self._mark(sample, "restart")
            if sample.gap or sample.values:
                self._note_gap(sample)

    def _note_gap(self, sample: Sample) -> None:
        """Keeps why an engine could not be asked, until it could again."""
        mark, text = self._gaps.pop(sample.engine, (0, ""))
        if text:
            self._db.execute("UPDATE marks SET end = max(end, ?) WHERE id = ?", (sample.at, mark))
        if sample.gap:
            if sample.gap != text:
                mark = self._mark(sample, "gap")
            self._gaps[sample.engine] = (mark, sample.gap)

    def _mark(self, sample: Sample, kind: str) -> int:
        row = (sample.engine, kind, sample.at, sample.at, sample.gap)
        cursor = self._db.execute("INSERT INTO marks (source, kind, begin, end, text) VALUES (?, ?, ?, ?, ?)", row)
        return cursor.lastrowid or 0

    def sweep(self, now: float, most_bytes: int) -> bool:
        """Thins what is an hour and a day old and drops what is a month old, every ten minutes. True if it did."""
        if 0 <= now - self._swept_at < MARGIN_SECONDS:
            return False
        self._swept_at = now
        db, at = self._db, math.floor(now) - MARGIN_SECONDS
        sources = [row[0] for row in db.execute("SELECT id FROM sources").fetchall()]
        # Whole blocks: each is packed once, and none reaches into what is promised in finer steps.
        before = (at - RAW_SECONDS) // (BLOCK * FINE_STEP) * BLOCK * FINE_STEP
        for source in sources:
            seconds = raw_rows(db, source, self._metrics, 0, before, FINE_STEP)
            found = ((index * FINE_STEP, metric, each) for index, row in seconds for metric, each in row.items())
            add_buckets(db, FINE_STEP, source, found)
        db.execute(f"DELETE FROM {RAW} WHERE at < ?", (before,))
        before = (at - FINE_SECONDS) // (BLOCK * COARSE_STEP) * BLOCK * COARSE_STEP
        old = db.execute("SELECT source, start, body FROM buckets WHERE step = ? AND start < ?", (FINE_STEP, before))
        for source, start, body in old.fetchall():
            tens = (
                (start + index * FINE_STEP, metric, each) for metric, known in unpacked(body) for index, *each in known
            )
            add_buckets(db, COARSE_STEP, source, tens)
        db.execute("DELETE FROM buckets WHERE step = ? AND start < ?", (FINE_STEP, before))
        db.execute("DELETE FROM buckets WHERE start < ?", (at - COARSE_SECONDS,))
        db.execute("DELETE FROM marks WHERE end < ?", (at - COARSE_SECONDS,))
        db.execute(
            "DELETE FROM marks WHERE id <= (SELECT id FROM marks ORDER BY id DESC LIMIT 1 OFFSET ?)", (_MOST_MARKS,)
        )
        # Beyond its bound the file loses the oldest minutes, then the oldest ten seconds.
        goal = most_bytes if used_bytes(db) <= most_bytes else most_bytes * 0.9
        oldest = f"SELECT rowid FROM buckets ORDER BY step DESC, start LIMIT {_DROP_BLOCKS}"
        while used_bytes(db) > goal and db.execute(f"DELETE FROM buckets WHERE rowid IN ({oldest})").rowcount > 0:
            pass
        used = f"SELECT source FROM {RAW} UNION SELECT source FROM buckets"
        db.execute(f"DELETE FROM sources WHERE id NOT IN ({used})")
        self._sources.clear()
        return True


def used_bytes(db: Connection) -> int:
    """What the file holds, free pages apart."""
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


# --- reading ------------------------------------------------------------------------------------------


def raw_rows(
    db: Connection, source: int, metrics: Sequence[str], begin: int, end: int, step: int
) -> Iterator[tuple[int, dict[str, Bucket]]]:
    """The samples of a source from `begin` on, in buckets of `step` seconds: each one's number and what it has. One
    without any value says that the source was asked then."""
    sums = "".join(f", count({metric}), min({metric}), sum({metric}), max({metric})" for metric in metrics)
    rows = db.execute(
        f"SELECT (at - :begin) / :step{sums} FROM {RAW} WHERE source = :source AND at >= :begin AND at < :end "
        "GROUP BY 1 ORDER BY 1",
        {"source": source, "begin": begin, "end": end, "step": step},
    )
    for index, *values in rows:
        yield index, {metric: values[4 * n : 4 * n + 4] for n, metric in enumerate(metrics) if values[4 * n]}


def read_series(
    db: Connection, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
) -> tuple[SeriesSlice, ...]:
    """Each series in even buckets, in the order of `keys`, in one transaction. See the port."""
    until, buckets = max(since, until), max(1, min(buckets, MOST_BUCKETS))
    held = "SELECT 1 FROM buckets WHERE step = ? AND start > ? AND start < ? LIMIT 1"
    db.execute("BEGIN")
    try:
        steps = (
            step
            for step in (COARSE_STEP, FINE_STEP)
            if db.execute(held, (step, since - BLOCK * step, until)).fetchone()
        )
        finest = next(steps, 1)
        step = max(1, math.ceil((until - since) / buckets / finest)) * finest
        begin = math.floor(since / step) * step
        size = min(max(1, math.ceil((until - begin) / step)), MOST_BUCKETS + 1)
        found: dict[SeriesKey, SeriesSlice] = {}
        for source in {key.source for key in keys}:
            wanted = [key for key in dict.fromkeys(keys) if key.source == source]
            found |= _read_source(db, wanted, begin, step, size, until)
        return tuple(found[key] for key in keys)
    finally:
        db.execute("COMMIT")


def _read_source(
    db: Connection, keys: Sequence[SeriesKey], begin: int, step: int, size: int, until: float
) -> dict[SeriesKey, SeriesSlice]:
    name, have, end = keys[0].source, metrics_in(db), begin + step * size
    held: dict[str, dict[int, Bucket]] = {key.metric: {} for key in keys}
    asked: set[int] = set()
    row = db.execute("SELECT id FROM sources WHERE name = ?", (name,)).fetchone()
    if row is not None:
        metrics = [metric for metric in held if metric in have]
        for index, found_then in raw_rows(db, row[0], metrics, begin, end, step):
            asked.add(index)
            for metric, bucket in found_then.items():
                held[metric][index] = bucket
        for fine in (FINE_STEP, COARSE_STEP):
            blocks = "SELECT start, body FROM buckets WHERE step = ? AND start > ? AND start < ? AND source = ?"
            for start, body in db.execute(blocks, (fine, begin - BLOCK * fine, end, row[0])):
                for metric, known in unpacked(body, held):
                    into = held[metric]
                    for index, count, low, total, high in known:
                        if begin <= (at := start + index * fine) < end:
                            merge(into, (at - begin) // step, (count, low, total, high))
    times = tuple(float(begin + step * index) for index in range(size))
    gaps, restarts = _marks(db, name, begin, until)
    found = {}
    for key in keys:
        columns = least, mean, greatest = [math.nan] * size, [math.nan] * size, [math.nan] * size
        last, scale = -1, scale_of(key.metric)
        for index, (count, low, total, high) in sorted(held[key.metric].items()):
            least[index], greatest[index] = low / scale, high / scale
            mean[index] = min(max(total / count / scale, least[index]), greatest[index])
            if 1 < index - last <= BRIDGE_SECONDS / step and last >= 0 and asked.isdisjoint(range(last + 1, index)):
                for values in columns:
                    values[last + 1 : index] = [values[last]] * (index - last - 1)
            last = index
        open_gap = gaps and last * step + begin < gaps[-1].begin
        own = (*gaps[:-1], replace(gaps[-1], end=max(gaps[-1].end, float(end)))) if open_gap else gaps
        found[key] = SeriesSlice(key, float(step), times, tuple(least), tuple(mean), tuple(greatest), own, restarts)
    return found


def _marks(db: Connection, source: str, begin: int, until: float) -> tuple[tuple[Gap, ...], tuple[float, ...]]:
    rows = db.execute(
        "SELECT kind, begin, end, text FROM marks WHERE source = ? AND end >= ? AND begin <= ? "
        "ORDER BY begin DESC LIMIT ?",
        (source, begin, until, _MOST_MARKS_READ),
    ).fetchall()[::-1]
    gaps = tuple(Gap(first, last, text) for kind, first, last, text in rows if kind == "gap")
    return gaps, tuple(first for kind, first, _, _ in rows if kind == "restart")
