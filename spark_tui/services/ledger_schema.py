"""The tables of the history's file.

Samples come as `ticks`: a row for each second with the values of all series then, as floats of 32 bits in the order
of a `layouts` row. NaN: the series was not asked for; infinity: it was, and had no value. Every ten minutes they
are thinned into `blocks`: a row for each series and span with sixty buckets (`ledger_blocks`). The rows of `ticks`
after `meta.thinned` are in no block yet; so nothing is lost and nothing counts twice, whenever a process is killed.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x53_50_4B_48  # "SPKH"
VERSION: Final = 1
"""A file of a higher version is set aside; one of a lower version would be brought up to this one when opened."""

TABLES: Final = {
    "meta": "name, value",
    "series": "id, source, metric",
    "layouts": "id, series",
    "ticks": "id, at, layout, body",
    "blocks": "id, series, span, start, body",
    "marks": "id, source, kind, begin, end, text",
    "starts": "container, at, engine, preset, failed, body",
    "records": "id, kind, key, at, body",
}

SCHEMA: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID",
    "CREATE TABLE series (id INTEGER PRIMARY KEY, source TEXT NOT NULL, metric TEXT NOT NULL, UNIQUE (source, metric))",
    "CREATE TABLE layouts (id INTEGER PRIMARY KEY, series BLOB NOT NULL UNIQUE)",
    "CREATE TABLE ticks (id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, layout INTEGER NOT NULL, "
    "body BLOB NOT NULL)",
    "CREATE INDEX ticks_at ON ticks (at)",
    "CREATE TABLE blocks (id INTEGER PRIMARY KEY, series INTEGER NOT NULL, span INTEGER NOT NULL, "
    "start INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (series, span, start))",
    "CREATE INDEX blocks_start ON blocks (span, start)",
    "CREATE TABLE marks (id INTEGER PRIMARY KEY, source TEXT NOT NULL, kind TEXT NOT NULL, begin REAL NOT NULL, "
    "end REAL NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX marks_end ON marks (source, end)",
    "CREATE TABLE starts (container TEXT NOT NULL, at REAL NOT NULL, engine TEXT NOT NULL, preset TEXT NOT NULL, "
    "failed INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (container, at)) WITHOUT ROWID",
    "CREATE INDEX starts_at ON starts (at)",
    "CREATE TABLE records (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, "
    "body TEXT NOT NULL, UNIQUE (kind, key, at))",
    "CREATE INDEX records_at ON records (kind, at)",
)
