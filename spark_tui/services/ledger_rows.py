"""Starts and records in the history's file: a row each, with what is not searched for as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_tui.domain.engine.timeline import Outcome, PhaseId
from spark_tui.domain.history import Record, StartRecord, StartSizes
from spark_tui.domain.quantities import MIB

if TYPE_CHECKING:  # sqlite3 is loaded by whoever opens a history
    from sqlite3 import Connection

E = TypeVar("E", bound=Enum)

MOST_STARTS: Final = 5000
MOST_RECORDS: Final = 5000
"""Of each kind; the oldest go first."""
MOST_RECORD_BYTES: Final = 1 * MIB

_TEXTS: Final = (
    "image", "image_id", "settings", "model", "runtime", "version", "cause", "failure", "line",
)  # fmt: skip


# --- starts -------------------------------------------------------------------------------------------


def put_start(connection: Connection, start: StartRecord) -> None:
    """Keeps a start, in place of what was known of the same one."""
    row = (start.container, start.at, start.engine, start.preset, start.failed, json.dumps(_start_body(start)))
    connection.execute(
        "INSERT OR REPLACE INTO starts (container, at, engine, preset, failed, body) VALUES (?, ?, ?, ?, ?, ?)", row
    )
    connection.execute(
        "DELETE FROM starts WHERE at < (SELECT at FROM starts ORDER BY at DESC LIMIT 1 OFFSET ?)", (MOST_STARTS - 1,)
    )


def _start_body(start: StartRecord) -> dict[str, Any]:
    sizes = {name: value for name, value in asdict(start.sizes).items() if value not in (None, "", False)}
    return {
        **{name: getattr(start, name) for name in _TEXTS},
        "ready": start.ready,
        "outcome": start.outcome,
        "warm": start.warm,
        "seconds": start.seconds,
        "phases": [[phase, seconds] for phase, seconds in start.phases],
        "sizes": sizes,
        "failed_in": start.failed_in,
        "exit_code": start.exit_code,
        "ended_at": start.ended_at,
    }


def read_starts(
    connection: Connection, *, engine: str = "", preset: str = "", failed: bool = False, limit: int = 200
) -> tuple[StartRecord, ...]:
    """The latest starts, newest first. A row that cannot be read is passed over."""
    rows = connection.execute(
        "SELECT container, at, engine, preset, body FROM starts WHERE (? = '' OR engine = ?) "
        "AND (? = '' OR preset = ?) AND (NOT ? OR failed) ORDER BY at DESC LIMIT ?",
        (engine, engine, preset, preset, failed, max(0, limit)),
    )
    found = (_start(*row) for row in rows)
    return tuple(start for start in found if start is not None)


def _start(container: str, at: float, engine: str, preset: str, body: str) -> StartRecord | None:
    told = _parsed(body)
    if not isinstance(told, Mapping):
        return None
    texts = {name: text for name in _TEXTS if isinstance(text := told.get(name), str)}
    warm = told.get("warm")
    return StartRecord(
        container,
        float(at),
        engine,
        preset,
        ready=told.get("ready") is True,
        outcome=_member(Outcome, told.get("outcome")) or Outcome.UNKNOWN,
        warm=warm if isinstance(warm, bool) else None,
        seconds=_number(told.get("seconds")),
        phases=_phases(told.get("phases")),
        sizes=_sizes(told.get("sizes")),
        failed_in=_member(PhaseId, told.get("failed_in")),
        exit_code=_integer(told.get("exit_code")),
        ended_at=_number(told.get("ended_at")),
        **texts,
    )


def _phases(told: Any) -> tuple[tuple[PhaseId, float], ...]:
    found = []
    for pair in told if isinstance(told, list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            phase, seconds = _member(PhaseId, pair[0]), _number(pair[1])
            if phase is not None and seconds is not None:
                found.append((phase, seconds))
    return tuple(found)


def _sizes(told: Any) -> StartSizes:
    """By the type of each field; what has another type is not known."""
    given = told if isinstance(told, Mapping) else {}
    readers: dict[str, Callable[[Any], Any]] = {
        "float | None": _number, "int | None": _integer, "bool": lambda value: value is True, "str": _text,
    }  # fmt: skip
    found = {each.name: readers[str(each.type)](given.get(each.name)) for each in fields(StartSizes)}
    return StartSizes(**found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _member(kind: type[E], value: Any) -> E | None:
    return next((member for member in kind if member.value == value), None)


# --- records ------------------------------------------------------------------------------------------


def encoded(record: Record) -> str:
    """A record's body as JSON. Raises ValueError for one that JSON cannot hold, or that is too large."""
    try:
        text = json.dumps(record.body, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if len(text) > MOST_RECORD_BYTES:
        raise ValueError(f"it has {len(text):,} characters; {MOST_RECORD_BYTES:,} are kept at most")
    return text


def put_record(connection: Connection, record: Record, body: str) -> None:
    """Keeps a record, in place of one of the same name."""
    connection.execute(
        "INSERT OR REPLACE INTO records (kind, key, at, body) VALUES (?, ?, ?, ?)",
        (record.kind, record.key, record.at, body),
    )
    connection.execute(
        "DELETE FROM records WHERE kind = ? AND at < "
        "(SELECT at FROM records WHERE kind = ? ORDER BY at DESC LIMIT 1 OFFSET ?)",
        (record.kind, record.kind, MOST_RECORDS - 1),
    )


def read_records(
    connection: Connection, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
) -> tuple[Record, ...]:
    """The latest records of a kind, newest first. A row that is no JSON is passed over."""
    rows = connection.execute(
        "SELECT kind, key, at, body FROM records WHERE kind = ? AND (? IS NULL OR key = ?) AND at >= ? "
        "ORDER BY at DESC, id DESC LIMIT ?",
        (kind, key, key, -1.0 if since is None else since, max(0, limit)),
    )
    read = ((kind_, key_, float(at), _parsed(body)) for kind_, key_, at, body in rows)
    return tuple(Record(*row) for row in read if row[3] is not _UNREADABLE)


_UNREADABLE: Final = object()


def _parsed(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _UNREADABLE
