"""The thread that writes the history: it opens the file, writes what waits, tries again, sets a damaged file aside."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_tui.domain.history import (
    MOST_BYTES,
    HistoryOff,
    LedgerState,
    Record,
    SeriesKey,
    StartRecord,
    StartSizes,
    Stretch,
)
from spark_tui.domain.logs.timeline import Outcome, PhaseId
from spark_tui.domain.metrics.series import Sample
from spark_tui.domain.quantities import MIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.services.executors import CallPool
from spark_tui.services.files import FILE_MODE, FOLDER_MODE
from spark_tui.services.history.samples import SampleWriter, SeriesReader

if TYPE_CHECKING:
    from sqlite3 import Connection, DatabaseError


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


NAME: Final = "history.db"
BUSY_SECONDS: Final = 5.0
PAGE_BYTES: Final = 4096
_BESIDE: Final = ("", "-wal", "-shm")
_PRIMARY: Final = 0xFF
_NEWER: Final = "it was written by a newer version of spark-tui"


class Unavailable(Exception):
    """The history cannot be used now. `remedy` is what a person may do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class Unreadable(Exception):
    """The file is no history of ours: damaged, of a newer version, or something else."""


class LedgerFile:
    """One path, and this process's locks on it. Only `open` may be called by several threads."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self.path = folder / NAME
        self._now = now
        self._users: int | None = None
        self._sampler: int | None = None
        self._opening = threading.Lock()

    # --- open -----------------------------------------------------------------------------------------

    def open(self, *, query_only: bool = False) -> Connection:
        """A connection, on a file that is made where there is none. Raises Unavailable, or Unreadable when the file
        must be set aside first."""
        import sqlite3

        with self._opening:
            self._prepare()
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self.unavailable(error) from error
        try:
            self._set_up(connection)
            if query_only:
                connection.execute("PRAGMA query_only=ON")
        except sqlite3.DatabaseError as error:
            connection.close()
            raise (Unreadable(str(error)) if is_damage(error) else self.unavailable(error)) from error
        except Unreadable:
            connection.close()
            raise
        return connection

    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.exists()

    def _prepare(self) -> None:
        try:
            self.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._check_folder()
            if self._users is None:
                self._users = self._lock_file("users", fcntl.LOCK_SH)
            # Only where there is none: to close a descriptor of a database that is open drops SQLite's locks on it.
            with suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(self.path, flags, FILE_MODE))
            status = self.path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise Unavailable(f"{self.path} is no plain file", "Move it away.")
            if stat.S_IMODE(status.st_mode) != FILE_MODE:
                self.path.chmod(FILE_MODE)
        except OSError as error:
            raise self.unavailable(error) from error

    def _check_folder(self) -> None:
        folder = self.path.parent
        status = folder.stat()
        if status.st_uid != os.geteuid() and os.geteuid() != 0:
            raise PermissionError(1, "this folder belongs to another user", str(folder))
        if stat.S_IMODE(status.st_mode) != FOLDER_MODE:
            folder.chmod(FOLDER_MODE)

    def _set_up(self, connection: Connection) -> None:
        connection.execute(f"PRAGMA journal_size_limit={4 * MIB}")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA trusted_schema=OFF")
        version, owner = self._identity(connection)
        if (version, owner) == (0, 0):
            self._make(connection)
            version, owner = self._identity(connection)
        if owner != APPLICATION_ID:
            raise Unreadable("it is a database of another program")
        if version > VERSION:
            raise Unreadable(_NEWER)
        for table, columns in TABLES.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 0")  # noqa: S608 - our own names

    def _identity(self, connection: Connection) -> tuple[int, int]:
        return (
            connection.execute("PRAGMA user_version").fetchone()[0],
            connection.execute("PRAGMA application_id").fetchone()[0],
        )

    def _make(self, connection: Connection) -> None:
        """Makes the tables, unless another process was quicker, or the file holds another program's."""
        if not self._is_empty(connection):
            return
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN EXCLUSIVE")
        try:
            if self._identity(connection) == (0, 0):
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={VERSION}")
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _is_empty(self, connection: Connection) -> bool:
        return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    # --- set aside --------------------------------------------------------------------------------------

    def set_aside(self, why: str) -> Path:
        """Gives the file another name, with what belongs to it. Every connection of this process must be closed.

        Raises Unavailable when another process uses it, or when it cannot be renamed.
        """
        if self._users is None:
            raise Unavailable(why, "")
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(
                f"the history in {self.path} cannot be used ({why}), and another spark-tui has it open",
                "Close the other one: the next start sets the file aside.",
            ) from None
        try:
            kept = self._free_name("newer" if why == _NEWER else "unreadable")
            for suffix in reversed(_BESIDE):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{suffix}").rename(f"{kept}{suffix}")
        except OSError as error:
            raise self.unavailable(error) from error
        finally:
            fcntl.flock(self._users, fcntl.LOCK_SH)
        return kept

    def _free_name(self, word: str) -> Path:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._now()))
        stem, number = f"history-{word}-{stamp}", 1
        kept = self.path.with_name(f"{stem}.db")
        while kept.exists() or Path(f"{kept}-wal").exists():
            number += 1
            kept = self.path.with_name(f"{stem}-{number}.db")
        return kept

    # --- locks ----------------------------------------------------------------------------------------

    def claim_samples(self) -> bool:
        """Makes this process the one that records samples; false while another one is. The kernel ends the claim of
        a process that dies. Raises OSError."""
        if self._sampler is None:
            try:
                self._sampler = self._lock_file("samples", fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def release_samples(self) -> None:
        """Ends the claim."""
        held, self._sampler = self._sampler, None
        if held is not None:
            os.close(held)

    def close(self) -> None:
        """Lets go of both locks."""
        self.release_samples()
        held, self._users = self._users, None
        if held is not None:
            os.close(held)

    def _lock_file(self, name: str, how: int) -> int:
        path = self.path.with_name(f".{name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, how)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    # --- errors ---------------------------------------------------------------------------------------

    def unavailable(self, error: Exception) -> Unavailable:
        """An error of the system or of SQLite, in a person's words."""
        import sqlite3

        folder = self.path.parent
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if isinstance(error, OSError):
            return Unavailable(
                f"{error.filename or folder}: {error.strerror or error}", f"Make {folder} a folder that you can write."
            )
        if code == sqlite3.SQLITE_FULL:
            return Unavailable(
                f"the disk of {folder} is full", "Make room; it goes on by itself then. What is kept can still be read."
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return Unavailable(
                f"{self.path} cannot be written ({error})", f"Make {folder} a folder that you can write."
            )
        if code == sqlite3.SQLITE_IOERR:
            return Unavailable(
                f"{self.path} could not be read or written ({error})", "Is the disk full, or does it fail? See dmesg."
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Unavailable(f"another process keeps {self.path} locked", "It is tried again by itself.")
        return Unavailable(f"{self.path}: {error}", "It is tried again by itself.")


def is_damage(error: DatabaseError) -> bool:
    """Whether SQLite means that the file itself is broken, or not what it should be."""
    import sqlite3

    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT):
        return True
    return code == sqlite3.SQLITE_ERROR and str(error).startswith(("no such table", "no such column", "malformed"))


T = TypeVar("T")

MOST_SAMPLES_WAITING: Final = 2000
"""Samples that wait while the disk is full; the oldest are let go."""
MOST_STARTS_WAITING: Final = 100
_MOST_NOTES: Final = 8
_TRIM_PAGES: Final = 2048

Job = Callable[["Connection"], None]


class Status:
    """The history's state, as both threads know it."""

    def __init__(self, state: LedgerState) -> None:
        self._lock = threading.Lock()
        self.now = state

    def change(self, **changes: Any) -> None:
        """Replaces fields."""
        with self._lock:
            self.now = replace(self.now, **changes)

    def note(self, text: str) -> None:
        """Something to be told once."""
        with self._lock:
            if text not in self.now.notes:
                self.now = replace(self.now, notes=(*self.now.notes, text)[-_MOST_NOTES:])


@dataclass(slots=True)
class Waiting:
    """What is to be written. `written` are the jobs that are; `flushes` are told when all has been tried; `damage` says
    why the file must be set aside first."""

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES_WAITING))
    starts: deque[StartRecord] = field(default_factory=lambda: deque(maxlen=MOST_STARTS_WAITING))
    jobs: deque[tuple[Job, Future[None]]] = field(default_factory=deque)
    written: list[Future[None]] = field(default_factory=list)
    flushes: list[Future[None]] = field(default_factory=list)
    damage: str = ""

    def keep(self, earlier: Waiting) -> None:
        """What could not be written comes back to the front; of too many the oldest go."""
        self.samples = deque([*earlier.samples, *self.samples], maxlen=MOST_SAMPLES_WAITING)
        self.starts = deque([*earlier.starts, *self.starts], maxlen=MOST_STARTS_WAITING)


class LedgerWriter:
    """One thread, made when there is first something to write. `drop_reader` closes this process's other connection:
    SQLite tidies up by name, so that none may be open on a file that is renamed."""

    def __init__(
        self,
        file: LedgerFile,
        status: Status,
        drop_reader: Callable[[], None],
        *,
        now: Callable[[], float],
        flush_seconds: float,
        retry_seconds: float,
        most_bytes: int,
    ) -> None:
        self._file = file
        self._status = status
        self._drop_reader = drop_reader
        self._now = now
        self._flush_seconds = flush_seconds
        self._retry_seconds = retry_seconds
        self._most_bytes = most_bytes
        self._wake = threading.Condition()
        self._waiting = Waiting()
        self._closing = False
        self._thread: threading.Thread | None = None
        self.ended: Future[None] = Future()
        # The thread's own.
        self._db: Connection | None = None
        self._samples: SampleWriter | None = None
        self._retry_at = 0.0

    # --- from other threads ---------------------------------------------------------------------------

    def add_sample(self, sample: Sample) -> None:
        """Samples wait for each other."""
        with self._wake:
            alone = not self._waiting.samples
            self._waiting.samples.append(sample)
            self._start(wake=alone)

    def add_start(self, start: StartRecord) -> None:
        """A start is written at once."""
        with self._wake:
            self._waiting.starts.append(start)
            self._start()

    def submit(self, job: Job) -> Future[None]:
        """A write of one's own; the future has its end, or HistoryOff."""
        done: Future[None] = Future()
        with self._wake:
            if self._closing:
                done.set_exception(HistoryOff("The history is closed.", ""))
            else:
                self._waiting.jobs.append((job, done))
                self._start()
        return done

    def flush(self, damage: str = "") -> Future[None]:
        """Done when all that waits has been tried. With `damage` the file is set aside first."""
        done: Future[None] = Future()
        with self._wake:
            if self._closing or (self._thread is None and not damage):
                done.set_result(None)
            else:
                self._waiting.flushes.append(done)
                self._waiting.damage = damage or self._waiting.damage
                self._start()
        return done

    def close(self) -> bool:
        """Writes what waits and ends; `ended` tells when. False when there is no thread."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
            return self._thread is not None

    def _start(self, *, wake: bool = True) -> None:
        """Wakes the thread; makes it, when it is first needed. With `_wake` held."""
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._work, name="history-write", daemon=True)
            self._thread.start()
        elif wake:
            self._wake.notify_all()

    # --- the thread -----------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._wait():
                self._round()
            self._round()
        except BaseException as error:
            self._status.change(reason=f"it has ended: {error!r}", remedy="Start spark-tui again, and report it.")
            raise
        finally:
            self._close()
            self._drop_reader()
            self._file.close()
            with self._wake:
                self._closing = True
                left, self._waiting = self._waiting, Waiting()
            _settle(left, HistoryOff("The history is closed.", ""))
            self.ended.set_result(None)

    def _wait(self) -> bool:
        """Until there is something to write; false when all is over."""
        with self._wake:
            since = time.monotonic()
            while not self._closing:
                now, waiting = time.monotonic(), self._waiting
                blocked = max(0.0, self._retry_at - now)
                if waiting.jobs or waiting.flushes or (waiting.starts and not blocked):
                    return True
                if not waiting.samples and not waiting.starts:
                    self._wake.wait()
                    since = time.monotonic()
                    continue
                left = max(blocked, 0.0 if waiting.starts else since + self._flush_seconds - now)
                if left <= 0:
                    return True
                self._wake.wait(left)
            return False

    def _round(self) -> None:
        """Writes all that waits. What could not be written stays, as far as it may."""
        with self._wake:
            taken, self._waiting = self._waiting, Waiting()
        problem = self._attempt(taken)
        if problem is not None:
            with self._wake:
                self._waiting.keep(taken)
        _settle(taken, None if problem is None else HistoryOff(f"The history is off: {problem}.", problem.remedy))

    def _attempt(self, taken: Waiting) -> Unavailable | None:
        """One try, and a second one on a new file when the first finds the file damaged."""
        damage = taken.damage
        for _ in range(2):
            try:
                if damage:
                    self._set_aside(damage)
                self._write(taken)
            except Unreadable as error:
                damage = str(error)
            except Unavailable as error:
                return self._off(error)
            except OSError as error:
                return self._off(self._file.unavailable(error))
            else:
                self._retry_at = 0.0
                self._status.change(reason="", remedy="")
                return None
        return self._off(Unavailable(damage, f"Look at {self._file.path}."))

    def _off(self, error: Unavailable) -> Unavailable:
        self._retry_at = time.monotonic() + self._retry_seconds
        self._status.change(reason=error.reason, remedy=error.remedy)
        return error

    # --- write ----------------------------------------------------------------------------------------

    def _write(self, taken: Waiting) -> None:
        """Writes and forgets, part by part: what is on disk is not written twice when a later part fails."""
        db = self._opened()
        while taken.starts:
            start = taken.starts[0]
            self._transaction(db, lambda: put_start(db, start), durable=True)  # noqa: B023 - called at once
            taken.starts.popleft()
        while taken.jobs:
            job, done = taken.jobs[0]
            self._transaction(db, lambda: job(db), durable=True)  # noqa: B023 - called at once
            taken.jobs.popleft()
            taken.written.append(done)
        if taken.samples:
            self._write_samples(db, taken.samples)

    def _write_samples(self, db: Connection, samples: deque[Sample]) -> None:
        mine = self._file.claim_samples()
        self._status.change(samples_elsewhere=not mine)
        # Its memory of the file is right only while each transaction goes through: made anew otherwise.
        writer, self._samples = self._samples, None
        if mine:
            if writer is None:
                writer = self._transaction(db, lambda: SampleWriter(db, self._most_bytes))
            self._transaction(db, lambda: writer.write(samples))
        samples.clear()
        if mine and writer is not None:
            while self._transaction(db, lambda: writer.sweep(self._now())) and not self._closing:
                self._trim(db)
            self._samples = writer

    def _trim(self, db: Connection) -> None:
        """Gives a large heap of free pages back to the disk, after much was dropped."""
        if db.execute("PRAGMA freelist_count").fetchone()[0] > _TRIM_PAGES:
            db.execute(f"PRAGMA incremental_vacuum({_TRIM_PAGES})").fetchall()

    def _transaction(self, db: Connection, work: Callable[[], T], *, durable: bool = False) -> T:
        """All of it or nothing. With `durable` it also survives a power cut the moment that it returns: a machine
        that freezes while an engine loads is switched off."""
        import sqlite3

        try:
            db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                raise Unreadable(str(error)) from error
            raise self._file.unavailable(error) from error
        return result

    def _opened(self) -> Connection:
        if self._db is not None and not self._file.exists():  # somebody has taken it away
            self._close()
            self._drop_reader()
        if self._db is None:
            self._db = self._file.open()
        return self._db

    def _close(self) -> None:
        found, self._db, self._samples = self._db, None, None
        if found is not None:
            found.close()

    def _set_aside(self, why: str) -> None:
        """A new file in place of one that cannot be used."""
        self._close()
        self._drop_reader()
        kept = self._file.set_aside(why)
        self._status.note(f"The history could not be used: {why}. It is kept as {kept}, and a new one was begun.")


def _settle(taken: Waiting, error: HistoryOff | None) -> None:
    """Tells everyone who waits."""
    for _, done in taken.jobs:
        if error is not None:
            done.set_exception(error)
    for done in (*taken.written, *taken.flushes):
        done.set_result(None)


FLUSH_SECONDS: Final = 10.0
"""So much of the samples is lost when the process is killed."""
RETRY_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 5.0


class SqliteLedger:
    """The HistoryLedger port in a folder of its own. Nothing is opened or made before the first use."""

    def __init__(
        self,
        folder: Path,
        *,
        now: Callable[[], float] = time.time,
        flush_seconds: float = FLUSH_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._file = LedgerFile(folder, now)
        self._now = now
        self._status = Status(LedgerState(file=str(self._file.path)))
        self._writer = LedgerWriter(
            self._file,
            self._status,
            self._drop_reader,
            now=now,
            flush_seconds=flush_seconds,
            retry_seconds=retry_seconds,
            most_bytes=most_bytes,
        )
        self._reads = CallPool("history-read", 1)
        self._reading = threading.Lock()
        self._db: Connection | None = None

    # --- add ------------------------------------------------------------------------------------------

    @property
    def state(self) -> LedgerState:
        """See the port."""
        return self._status.now

    def add_sample(self, sample: Sample) -> None:
        """See the port."""
        self._writer.add_sample(sample)

    def add_start(self, start: StartRecord) -> None:
        """See the port."""
        self._writer.add_start(start)

    async def add_record(self, record: Record) -> None:
        """See the port."""
        try:
            body = encoded(record)
        except ValueError as error:
            raise HistoryOff(f"This record of {record.kind} cannot be kept: {error}.", "Keep it elsewhere.") from error
        await asyncio.wrap_future(self._writer.submit(lambda db: put_record(db, record, body)))

    async def flush(self) -> None:
        """See the port."""
        await asyncio.wrap_future(self._writer.flush())

    async def close(self) -> None:
        """See the port."""
        if self._writer.close():
            await asyncio.wait([asyncio.wrap_future(self._writer.ended)], timeout=CLOSE_SECONDS)
        else:
            await self._reads.run(self._drop_reader)
            self._file.close()
        self._reads.close()

    # --- read -----------------------------------------------------------------------------------------

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[Stretch, ...]]:
        """See the port."""

        def read(db: Connection) -> tuple[Stretch, ...]:
            reader = SeriesReader(db)
            found = reader.read(keys, since, until, buckets)
            if reader.damaged:
                self._status.note(f"Some samples in {self._file.path} are damaged: they are shown as gaps.")
            return found

        return await self._read(read)

    async def keys(self) -> Reading[tuple[SeriesKey, ...]]:
        """See the port."""

        def read(db: Connection) -> tuple[SeriesKey, ...]:
            return tuple(SeriesKey(*row) for row in db.execute("SELECT source, metric FROM series ORDER BY source, id"))

        return await self._read(read)

    async def starts(
        self, *, engine: str = "", preset: str = "", failed: bool = False, limit: int = 200
    ) -> Reading[tuple[StartRecord, ...]]:
        """See the port."""
        return await self._read(lambda db: read_starts(db, engine=engine, preset=preset, failed=failed, limit=limit))

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        """See the port."""
        return await self._read(lambda db: read_records(db, kind, key=key, since=since, limit=limit))

    async def _read(self, work: Callable[[Connection], T]) -> Reading[T]:
        try:
            return Ok(await self._reads.run(self._twice, work), self._now())
        except Unavailable as error:
            return Missing(error.reason)

    def _twice(self, work: Callable[[Connection], T]) -> T:
        """On the reader's thread. A damaged file is the writer's to set aside; then the new one is read."""
        try:
            return self._once(work)
        except Unreadable as error:
            self._writer.flush(damage=str(error)).result()
        try:
            return self._once(work)
        except Unreadable as error:
            raise Unavailable(self.state.reason or str(error), self.state.remedy) from error

    def _once(self, work: Callable[[Connection], T]) -> T:
        import sqlite3

        with self._reading:
            if self._db is None:
                self._db = self._file.open(query_only=True)
            try:
                return work(self._db)
            except sqlite3.DatabaseError as error:
                if is_damage(error):
                    raise Unreadable(str(error)) from error
                raise self._file.unavailable(error) from error

    def _drop_reader(self) -> None:
        with self._reading:
            found, self._db = self._db, None
            if found is not None:
                found.close()
