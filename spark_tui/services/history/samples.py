"""Samples in the history's file: one table per resolution, one row per source and time, four columns per metric.

A sample lies in exactly one table: as it came for an hour, then in its ten seconds for a day, then in its minute for a
month. Values are stored as whole numbers (hundredths; times in steps of 10 us): SQLite keeps those in two or three
bytes, a float in eight. Sums are kept instead of means, so that thinning loses nothing but the time within a bucket.
"""

# Names of tables and columns are our own.
# ruff: noqa: S608

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_tui.domain.history import (
    COARSE_SECONDS,
    COARSE_STEP,
    FINE_SECONDS,
    FINE_STEP,
    RAW_SECONDS,
)
from spark_tui.domain.metrics.series import Gap, MetricId, Sample, SeriesKey, Stretch

if TYPE_CHECKING:  # sqlite3 is loaded by the threads that use it
    from sqlite3 import Connection

RAW, FINE, COARSE = TABLES = ("samples_1s", "samples_10s", "samples_60s")
STEPS: Final = {RAW: 1, FINE: FINE_STEP, COARSE: COARSE_STEP}
MARGIN_SECONDS: Final = 600
"""Rows stay this much longer than promised: what a caller has just asked for is still there."""
BRIDGE_SECONDS: Final = 12
"""Two values no further apart have no gap between them: an engine in the background is sampled every five seconds."""
MOST_BUCKETS: Final = 20_000
_MOST_MARKS: Final = 20_000
_MOST_MARKS_READ: Final = 1000
_DROP_ROWS: Final = 500
_LARGEST_WHOLE: Final = 2**40
"""Beyond it a value is stored as a float: sums of whole numbers must stay within 64 bits."""
_LARGEST: Final = 3.0e38

SCHEMA: Final = (
    "CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    *(
        f"CREATE TABLE {table} (at INTEGER NOT NULL, source INTEGER NOT NULL, PRIMARY KEY (at, source)) WITHOUT ROWID"
        for table in TABLES
    ),
    "CREATE TABLE marks (id INTEGER PRIMARY KEY, source TEXT NOT NULL, kind TEXT NOT NULL, begin REAL NOT NULL, "
    "end REAL NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX marks_end ON marks (source, end)",
)


def parts_of(metric: str) -> tuple[str, str, str, str]:
    """The columns of a metric in the thinned tables: how many samples, the least, their sum, the greatest."""
    return f"{metric}_n", f"{metric}_low", f"{metric}_sum", f"{metric}_high"


def scale_of(metric: str) -> int:
    """What a value is multiplied by before it is stored. Part of the file format: never change one."""
    return 100_000 if metric.endswith("_seconds") else 100


def stored(metric: str, value: float) -> float | None:
    """A value as its column holds it; None for one that is not finite."""
    if not math.isfinite(value):
        return None
    scaled = min(max(value, -_LARGEST), _LARGEST) * scale_of(metric)
    return round(scaled) if abs(scaled) < _LARGEST_WHOLE else scaled


def metrics_in(db: Connection) -> tuple[str, ...]:
    """The metrics that the file has columns for, those of a newer version too."""
    names = [row[1] for row in db.execute(f"PRAGMA table_info({RAW})")]
    return tuple(name for name in names if name not in ("at", "source"))


def add_columns(db: Connection, metrics: Iterable[str]) -> None:
    """Adds the columns of metrics that the file does not have yet."""
    have = metrics_in(db)
    for metric in metrics:
        if metric in have:
            continue
        db.execute(f"ALTER TABLE {RAW} ADD COLUMN {metric}")
        for table in (FINE, COARSE):
            for column in parts_of(metric):
                db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


def source_id(db: Connection, name: str) -> int:
    """The number of a source, made where it has none."""
    db.execute("INSERT OR IGNORE INTO sources (name) VALUES (?)", (name,))
    return int(db.execute("SELECT id FROM sources WHERE name = ?", (name,)).fetchone()[0])


def merging(table: str, metrics: Sequence[str], rows: str) -> str:
    """The statement that adds thinned rows (`VALUES ...` or a SELECT with WHERE) to those that are there: a clock may
    have been set back."""
    columns = [column for metric in metrics for column in parts_of(metric)]
    updates = []
    for metric in metrics:
        n, low, total, high = parts_of(metric)
        updates += [f"{each} = coalesce({each}, 0) + coalesce(excluded.{each}, 0)" for each in (n, total)]
        updates += [
            f"{each} = {pick}(coalesce({each}, excluded.{each}), coalesce(excluded.{each}, {each}))"
            for each, pick in ((low, "min"), (high, "max"))
        ]
    return (
        f"INSERT INTO {table} (at, source, {', '.join(columns)}) {rows} "
        f"ON CONFLICT (at, source) DO UPDATE SET {', '.join(updates)}"
    )


class SampleWriter:
    """Writes samples and thins them, within the writer's transactions."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._metrics = metrics_in(db)
        names = ", ".join(self._metrics)
        marks = ", ".join("?" * (len(self._metrics) + 2))
        updates = ", ".join(f"{metric} = coalesce(excluded.{metric}, {metric})" for metric in self._metrics)
        self._insert = (
            f"INSERT INTO {RAW} (at, source, {names}) VALUES ({marks}) ON CONFLICT (at, source) DO UPDATE SET {updates}"
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
            self._mark(sample)

    def _mark(self, sample: Sample) -> None:
        """Keeps why an engine could not be asked, until it could again, and when a new start was first seen."""
        if sample.restarted:
            self._add_mark(sample.engine, "restart", sample.at, "")
        if not sample.gap and not sample.values:
            return
        mark, text = self._gaps.pop(sample.engine, (0, ""))
        if text:
            self._db.execute("UPDATE marks SET end = max(end, ?) WHERE id = ?", (sample.at, mark))
        if sample.gap:
            if sample.gap != text:
                mark = self._add_mark(sample.engine, "gap", sample.at, sample.gap)
            self._gaps[sample.engine] = (mark, sample.gap)

    def _add_mark(self, source: str, kind: str, at: float, text: str) -> int:
        row = (source, kind, at, at, text)
        cursor = self._db.execute("INSERT INTO marks (source, kind, begin, end, text) VALUES (?, ?, ?, ?, ?)", row)
        return cursor.lastrowid or 0

    def sweep(self, now: float, most_bytes: int) -> bool:
        """Thins what is an hour and a day old and drops what is a month old, every ten minutes. True if it did."""
        if 0 <= now - self._swept_at < MARGIN_SECONDS:
            return False
        self._swept_at = now
        at = math.floor(now) - MARGIN_SECONDS
        self._thin(RAW, FINE, at - RAW_SECONDS)
        self._thin(FINE, COARSE, at - FINE_SECONDS)
        self._db.execute(f"DELETE FROM {COARSE} WHERE at < ?", (at - COARSE_SECONDS,))
        self._db.execute("DELETE FROM marks WHERE end < ?", (at - COARSE_SECONDS,))
        self._db.execute(
            "DELETE FROM marks WHERE id <= (SELECT id FROM marks ORDER BY id DESC LIMIT 1 OFFSET ?)", (_MOST_MARKS,)
        )
        self._keep_within(most_bytes)
        used = " UNION ".join(f"SELECT source FROM {table}" for table in TABLES)
        self._db.execute(f"DELETE FROM sources WHERE id NOT IN ({used})")
        self._sources.clear()
        return True

    def _thin(self, table: str, into: str, before: int) -> None:
        """Moves the rows before that second into the coarser table."""
        step = STEPS[into]
        before -= before % step
        sums = (
            [f"count({m}), min({m}), sum({m}), max({m})" for m in self._metrics]
            if table == RAW
            else [
                f"sum({n}), min({low}), sum({total}), max({high})"
                for n, low, total, high in map(parts_of, self._metrics)
            ]
        )
        rows = f"SELECT at / {step} * {step}, source, {', '.join(sums)} FROM {table} WHERE at < :before GROUP BY 1, 2"
        self._db.execute(merging(into, self._metrics, rows), {"before": before})
        self._db.execute(f"DELETE FROM {table} WHERE at < ?", (before,))

    def _keep_within(self, most_bytes: int) -> None:
        """Drops the oldest minutes, then the oldest ten seconds, until the file is within its bound."""
        goal = most_bytes if used_bytes(self._db) <= most_bytes else most_bytes * 0.9
        for table in (COARSE, FINE):
            while used_bytes(self._db) > goal:
                oldest = f"SELECT at FROM {table} ORDER BY at LIMIT ?"
                if self._db.execute(f"DELETE FROM {table} WHERE at IN ({oldest})", (_DROP_ROWS,)).rowcount < 1:
                    break


def used_bytes(db: Connection) -> int:
    """What the file holds, free pages apart."""
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


# --- reading ------------------------------------------------------------------------------------------


def read_series(
    db: Connection, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
) -> tuple[Stretch, ...]:
    """Each series in even buckets, in the order of `keys`, in one transaction. See the port."""
    until, buckets = max(since, until), max(1, min(buckets, MOST_BUCKETS))
    db.execute("BEGIN")
    try:
        held = "SELECT 1 FROM {} WHERE at > ? AND at < ? LIMIT 1"
        finest = next(
            (
                STEPS[each]
                for each in (COARSE, FINE)
                if db.execute(held.format(each), (since - STEPS[each], until)).fetchone()
            ),
            1,
        )
        step = max(1, math.ceil((until - since) / buckets / finest)) * finest
        begin = math.floor(since / step) * step
        size = min(max(1, math.ceil((until - begin) / step)), MOST_BUCKETS + 1)
        found: dict[SeriesKey, Stretch] = {}
        for source in {key.source for key in keys}:
            wanted = [key for key in dict.fromkeys(keys) if key.source == source]
            found.update(_read_source(db, wanted, begin, step, size, until))
        return tuple(found[key] for key in keys)
    finally:
        db.execute("COMMIT")


def _read_source(
    db: Connection, keys: Sequence[SeriesKey], begin: int, step: int, size: int, until: float
) -> dict[SeriesKey, Stretch]:
    source, have = keys[0].source, metrics_in(db)
    metrics = [key.metric for key in keys if key.metric in have]
    raw = "".join(f", {m} IS NOT NULL AS {n}, {m} AS {low}, {m} AS {total}, {m} AS {high}"
                  for m, (n, low, total, high) in ((m, parts_of(m)) for m in metrics))  # fmt: skip
    thinned = "".join(f", {column}" for metric in metrics for column in parts_of(metric))
    where = "WHERE source = (SELECT id FROM sources WHERE name = :source) AND at >= :begin AND at < :end"
    every = " UNION ALL ".join(f"SELECT at{raw if table == RAW else thinned} FROM {table} {where}" for table in TABLES)
    sums = "".join(
        f", sum({n}), min({low}), sum({total}), max({high})" for n, low, total, high in map(parts_of, metrics)
    )
    rows = db.execute(
        f"SELECT (at - :begin) / :step{sums} FROM ({every}) GROUP BY 1 ORDER BY 1",
        {"source": source, "begin": begin, "end": begin + step * size, "step": step},
    ).fetchall()
    times = tuple(float(begin + step * index) for index in range(size))
    gaps, restarts = _marks(db, source, begin, until)
    asked = {row[0] for row in rows}
    found = {}
    for key in keys:
        least, mean, greatest = ([math.nan] * size for _ in range(3))
        last = -1
        if key.metric in metrics:
            column, scale = 1 + 4 * metrics.index(key.metric), scale_of(key.metric)
            for row in rows:
                index, (count, low, total, high) = row[0], row[column : column + 4]
                if not count:
                    continue
                least[index], greatest[index] = low / scale, high / scale
                mean[index] = min(max(total / count / scale, least[index]), greatest[index])
                if 1 < index - last <= BRIDGE_SECONDS / step and last >= 0 and asked.isdisjoint(range(last + 1, index)):
                    for values in (least, mean, greatest):
                        values[last + 1 : index] = [values[last]] * (index - last - 1)
                last = index
        open_gap = gaps and last * step + begin < gaps[-1].begin
        own = (*gaps[:-1], replace(gaps[-1], end=max(gaps[-1].end, float(begin + step * size)))) if open_gap else gaps
        found[key] = Stretch(key, float(step), times, tuple(least), tuple(mean), tuple(greatest), own, restarts)
    return found


def _marks(db: Connection, source: str, begin: int, until: float) -> tuple[tuple[Gap, ...], tuple[float, ...]]:
    rows = db.execute(
        "SELECT kind, begin, end, text FROM marks WHERE source = ? AND end >= ? AND begin <= ? "
        "ORDER BY begin DESC LIMIT ?",
        (source, begin, until, _MOST_MARKS_READ),
    ).fetchall()[::-1]
    gaps = tuple(Gap(first, last, text) for kind, first, last, text in rows if kind == "gap")
    return gaps, tuple(first for kind, first, _, _ in rows if kind == "restart")


# --- the first version's file ---------------------------------------------------------------------------


def migrate_samples(db: Connection) -> None:
    """Takes the samples of a version 1 file over, within the caller's transaction, and drops its tables.

    There a row of `ticks` held a second (32-bit floats in the order of its `layouts` row), a row of `blocks` sixty
    buckets of one series (compressed), and the last hour was in both.
    """
    import struct
    import zlib

    series = {id_: (source, metric) for id_, source, metric in db.execute("SELECT id, source, metric FROM series")}
    names = {metric for _, metric in series.values() if metric.isidentifier()}
    for statement in SCHEMA[: 1 + len(TABLES)]:
        db.execute(statement)
    add_columns(db, [*MetricId, *sorted(names - set(MetricId))])
    sources = {source: source_id(db, source) for source, _ in series.values()}
    known = {id_: (sources[source], metric) for id_, (source, metric) in series.items() if metric in names}

    layouts = {
        id_: struct.unpack(f"<{len(ids) // 4}I", ids) for id_, ids in db.execute("SELECT id, series FROM layouts")
    }
    thinned = db.execute("SELECT coalesce(max(value), 0) FROM meta WHERE name = 'thinned'").fetchone()[0]
    first = db.execute("SELECT min(at) FROM ticks WHERE id <= ?", (thinned,)).fetchone()[0]
    fresh = db.execute("SELECT min(at) FROM ticks").fetchone()[0]
    boundary = -(-first // FINE_STEP) * FINE_STEP if first is not None else fresh if fresh is not None else math.inf
    for at, layout, body in db.execute("SELECT at, layout, body FROM ticks WHERE at >= ?", (boundary,)).fetchall():
        ids = layouts.get(layout, ())
        if len(body) != 4 * len(ids):
            continue
        rows: dict[int, dict[str, float]] = {}
        for id_, value in zip(ids, struct.unpack(f"<{len(ids)}f", body), strict=True):
            if id_ in known:
                source, metric = known[id_]
                kept = stored(metric, value)
                rows.setdefault(source, {}).update({metric: kept} if kept is not None else {})
        for source, values in rows.items():
            columns = "".join(f", {metric}" for metric in values)
            db.execute(
                f"INSERT OR REPLACE INTO {RAW} (at, source{columns}) VALUES (?, ?{', ?' * len(values)})",
                (at, source, *values.values()),
            )
    for id_, span, start, body in db.execute(
        "SELECT series, span, start, body FROM blocks ORDER BY span, start"
    ).fetchall():
        if id_ not in known or span not in (FINE_STEP, COARSE_STEP) or body[:1] != b"\x01":
            continue
        try:
            raw = zlib.decompress(body[1:])
        except zlib.error:
            continue  # it was a gap on screen, and stays one
        if len(raw) != 60 + 720:
            continue
        planes = bytearray(720)
        for byte in range(4):
            planes[byte::4] = raw[60 + 180 * byte : 240 + 180 * byte]
        floats = struct.unpack("<180f", planes)
        source, metric = known[id_]
        table = FINE if span == FINE_STEP else COARSE
        rows_ = []
        for bucket, count in enumerate(raw[:60]):
            at = start + bucket * span
            if count and at < boundary:
                low, mean, high = (stored(metric, floats[bucket + 60 * part]) or 0 for part in range(3))
                rows_.append((at, source, count, low, mean * count, high))
        db.executemany(merging(table, [metric], "VALUES (?, ?, ?, ?, ?, ?)"), rows_)
    for table in ("ticks", "layouts", "blocks", "series", "meta"):
        db.execute(f"DROP TABLE {table}")
