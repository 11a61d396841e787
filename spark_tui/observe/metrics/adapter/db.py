"""The history of this machine in one SQLite file: a thread that writes and a thread that reads.

WAL mode: a process that is killed loses nothing that was written, and readers never wait for the writer. Starts and
records are written at once by every process, samples every ten seconds by the one process that holds a lock. A file
that cannot be used is quarantined (renamed, never deleted); where nothing can be written, `state` says why, and the
next flush tries again.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import queue
import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.executors import CallPool
from spark_tui.base.files import FILE_MODE, PrivateFolder
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.host.series import (
    MOST_BYTES,
    HistoryOff,
    HistoryState,
    MetricId,
    Record,
    Sample,
    SeriesKey,
    SeriesSlice,
)
from spark_tui.base.quantities import MIB
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import decode, load_json
from spark_tui.observe.explain.model.starts import MOST_GOOD, StartRecord
from spark_tui.observe.explain.model.timeline import PhaseId
from spark_tui.observe.metrics.adapter import samples

if TYPE_CHECKING:  # sqlite3 is loaded by the threads that use it
    from sqlite3 import Connection

T = TypeVar("T")

NAME: Final = "history.db"
FLUSH_SECONDS: Final = 10.0
"""So much of the samples is lost when the process is killed."""
CLOSE_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 5.0
APPLICATION_ID: Final = 0x53_50_4B_48  # "SPKH"
VERSION: Final = 3
"""A file of another version is quarantined: this one is as old as 23 November 2026."""
MOST_STARTS: Final = 5000
STARTS_BETWEEN: Final = 250
"""Starts that are written between two deletions of the oldest, which read every start."""
MOST_RECORDS: Final = 5000
"""Of each kind; the oldest go first."""
MOST_RECORD_BYTES: Final = 1 * MIB
_MOST_SAMPLES_WAITING: Final = 2000
_MOST_STARTS_WAITING: Final = 100
_MOST_NOTES: Final = 8
_TRIM_PAGES: Final = 256
_NEWER: Final = "it was written by a newer version of spark-tui"
_OLDER: Final = "it was written by a much older version of spark-tui"
_RETRIED: Final = "It is tried again automatically."

_SCHEMA: Final = (
    *samples.SAMPLES_SCHEMA,
    *samples.MARKS_SCHEMA,
    "CREATE TABLE starts (container TEXT NOT NULL, at REAL NOT NULL, engine TEXT NOT NULL, preset TEXT NOT NULL, "
    "failed INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (container, at)) WITHOUT ROWID",
    "CREATE INDEX starts_at ON starts (at)",
    "CREATE TABLE records (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, "
    "body TEXT NOT NULL, UNIQUE (kind, key, at))",
    "CREATE INDEX records_at ON records (kind, at)",
)
_COLUMNS: Final = {
    "sources": "id, name",
    samples.RAW: "at, source",
    "buckets": "step, start, source, body",
    "marks": "id, source, kind, begin, end, text",
    "starts": "container, at, engine, preset, failed, body",
    "records": "id, kind, key, at, body",
}


_DELETE_OLD: Final = (
    "DELETE FROM starts WHERE at < (SELECT at FROM starts ORDER BY at DESC LIMIT 1 OFFSET ?) "
    "AND (container, at) NOT IN (SELECT container, at FROM "
    "(SELECT container, at, row_number() OVER (PARTITION BY preset ORDER BY at DESC) AS number FROM starts "
    "WHERE preset != '' AND json_valid(body) AND json_extract(body, '$.ready')) WHERE number <= ?)"
)
"""The starts before the latest ones, but for the latest of each preset that came to serve."""


def trim_starts(db: Connection, most: int) -> int:
    """Deletes old starts where there are more than `most`. Returns how many there may be until the next time."""
    (count,) = db.execute("SELECT count(*) FROM starts").fetchone()
    if count <= most:
        return most
    deleted = db.execute(_DELETE_OLD, (MOST_STARTS - 1, MOST_GOOD)).rowcount
    return int(count - deleted + STARTS_BETWEEN)


class Unavailable(Exception):
    """The history cannot be used now. `remedy` is what a person may do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class Unreadable(Exception):
    """The file is no history of ours: damaged, of a newer version, or something else."""


class Write(Struct):
    """Something to write. `done` hears of it; a write without it is tried again when it fails."""

    work: Callable[[Connection], object]
    done: Future[None] | None = None


class Flush(Struct):
    """Answered when all that waited before has been tried. With `damage` the file is quarantined first."""

    done: Future[None]
    damage: str = ""


class HistoryDb:
    """The HistoryStore port in a folder of its own. Nothing is opened or made before the first use."""

    def __init__(
        self,
        folder: Path,
        *,
        now: Callable[[], float] = time.time,
        flush_seconds: float = FLUSH_SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._file = HistoryFile(folder, now)
        self._now = now
        self._flush_seconds = flush_seconds
        self._most_bytes = most_bytes
        self.state = HistoryState(file=str(self._file.path))
        self._lock = threading.Lock()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._ended = _promise()
        self._queue: queue.SimpleQueue[Write | Flush | None] = queue.SimpleQueue()
        self._samples: deque[Sample] = deque(maxlen=_MOST_SAMPLES_WAITING)
        # The writer's own.
        self._kept: deque[Write] = deque(maxlen=_MOST_STARTS_WAITING)
        self._db: Connection | None = None
        self._most_starts = MOST_STARTS
        self._sampler: samples.SampleWriter | None = None
        # The reader's own.
        self._reads = CallPool("history-read", 1)
        self._reading = threading.Lock()
        self._read_db: Connection | None = None

    # --- add ------------------------------------------------------------------------------------------

    def add_sample(self, sample: Sample) -> None:
        self._samples.append(sample)
        self._start()

    def add_start(self, start: StartRecord) -> None:
        body = msgspec.json.encode(start).decode()
        row = (start.container, start.at, start.engine, start.preset, start.failed, body)

        def put(db: Connection) -> None:
            db.execute(
                "INSERT OR REPLACE INTO starts (container, at, engine, preset, failed, body) VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )
            self._most_starts = trim_starts(db, self._most_starts)

        self._put(Write(put))

    async def add_record(self, record: Record) -> None:
        try:
            # Not msgspec: it would turn NaN into null and a set into a list.
            body = json.dumps(record.body, allow_nan=False)
            if len(body) > MOST_RECORD_BYTES:
                raise ValueError(f"{len(body):,} characters; the maximum is {MOST_RECORD_BYTES:,}")  # noqa: TRY301
        except (TypeError, ValueError, RecursionError) as error:
            raise HistoryOff(f"The {record.kind} record cannot be stored: {error}.", "") from error

        def put(db: Connection) -> None:
            db.execute(
                "INSERT OR REPLACE INTO records (kind, key, at, body) VALUES (?, ?, ?, ?)",
                (record.kind, record.key, record.at, body),
            )
            db.execute(
                "DELETE FROM records WHERE kind = ? AND at < "
                "(SELECT at FROM records WHERE kind = ? ORDER BY at DESC LIMIT 1 OFFSET ?)",
                (record.kind, record.kind, MOST_RECORDS - 1),
            )

        done = _promise()
        if not self._put(Write(put, done)):
            raise HistoryOff("The history is closed.", "")
        await asyncio.wrap_future(done)

    async def flush(self) -> None:
        if self._thread is not None:
            await asyncio.wrap_future(self._flush())

    async def close(self) -> None:
        with self._lock:
            self._closing = True
            running = self._thread is not None
        if running:
            self._queue.put(None)
            await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=CLOSE_SECONDS)
        else:
            await self._reads.run(self._drop_reader)
            self._file.close()
        self._reads.close()

    def _flush(self, damage: str = "") -> Future[None]:
        done = _promise()
        if not self._put(Flush(done, damage)):
            done.set_result(None)
        return done

    def _put(self, item: Write | Flush) -> bool:
        """False once it is closed."""
        with self._lock:
            if self._closing:
                return False
            self._queue.put(item)
        self._start()
        return True

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._work, name="history-write", daemon=True)
                self._thread.start()

    # --- the writer's thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            ended = False
            while not ended:
                items: list[Write | Flush | None] = []
                with suppress(queue.Empty):
                    items.append(self._queue.get(timeout=self._flush_seconds))
                    while True:
                        items.append(self._queue.get_nowait())
                ended = None in items
                self._round([item for item in items if item is not None])
        except BaseException as error:
            self._change(reason=f"its thread ended: {error!r}", remedy="Restart spark-tui, and report this.")
            raise
        finally:
            self._close_db()
            self._file.close()
            with self._lock:
                self._closing = True
            while not self._queue.empty():
                if (item := self._queue.get_nowait()) is not None and item.done is not None:
                    item.done.set_exception(HistoryOff("The history is closed.", ""))
            self._ended.set_result(None)

    def _round(self, items: list[Write | Flush]) -> None:
        """Writes all that waits; a damaged file is quarantined, and all is written to a new one."""
        writes = deque([*self._kept, *(item for item in items if isinstance(item, Write))])
        self._kept.clear()
        damage = next((item.damage for item in items if isinstance(item, Flush) and item.damage), "")
        answered = [item.done for item in items if isinstance(item, Flush)]
        problem: Unavailable | None = None
        for _ in range(2):
            problem = None
            try:
                if damage:
                    self._close_db()
                    kept = self._file.quarantine(damage)
                    note = f"The history was unusable: {damage}. Moved it to {kept} and started a new one."
                    if note not in self.state.notes:
                        self._change(notes=(*self.state.notes, note)[-_MOST_NOTES:])
                if writes or self._samples or damage:
                    self._write(writes, answered)
                break
            except Exception as error:  # noqa: BLE001 - what damage raises has no bounds
                found = self._file.problem(error)
                if isinstance(found, Unavailable):
                    problem = found
                    break
                damage, problem = str(found), Unavailable(str(found), f"Look at {self._file.path}.")
        self._change(reason=problem.reason if problem else "", remedy=problem.remedy if problem else "")
        for write in writes:
            if write.done is None:
                self._kept.append(write)
            elif problem is not None:
                write.done.set_exception(HistoryOff(f"The history is off: {problem}.", problem.remedy))
        for done in answered:
            done.set_result(None)

    def _write(self, writes: deque[Write], answered: list[Future[None]]) -> None:
        """Part by part: what is on disk is not written twice when a later part fails."""
        if self._db is not None and not self._file.path.exists():  # it has been removed
            self._close_db()
        db = self._db = self._db or self._file.open()
        while writes:
            # FULL: it survives a power cut. A machine that freezes while an engine loads is switched off.
            self._transaction(db, lambda: writes[0].work(db), synchronous="FULL")
            if (done := writes.popleft().done) is not None:
                answered.append(done)
        if not self._samples:
            return
        mine = self._file.claim_samples()
        self._change(samples_elsewhere=not mine)
        taken = [self._samples.popleft() for _ in range(len(self._samples))]
        if not mine:
            return
        # What a writer remembers of the file is right only while each transaction goes through.
        sampler, self._sampler = self._sampler or samples.SampleWriter(db), None
        try:
            self._transaction(db, lambda: sampler.write(taken))
        except BaseException:
            self._samples.extendleft(reversed(taken[: _MOST_SAMPLES_WAITING - len(self._samples)]))
            raise
        swept = self._transaction(db, lambda: sampler.sweep(self._now(), self._most_bytes))
        if swept and db.execute("PRAGMA freelist_count").fetchone()[0] > _TRIM_PAGES:
            db.execute(f"PRAGMA incremental_vacuum({_TRIM_PAGES})").fetchall()
        self._sampler = sampler

    def _transaction(self, db: Connection, work: Callable[[], T], *, synchronous: str = "NORMAL") -> T:
        """All of it or nothing."""
        db.execute(f"PRAGMA synchronous={synchronous}")
        with transaction(db, "IMMEDIATE"):
            return work()

    def _close_db(self) -> None:
        """Closes both connections: SQLite tidies up by name, so none may be open on a file that is renamed."""
        found, self._db, self._sampler = self._db, None, None
        if found is not None:
            found.close()
        self._drop_reader()

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self.state = replace(self.state, **changes)

    # --- read -----------------------------------------------------------------------------------------

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[SeriesSlice, ...]]:
        return await self._read(lambda db: samples.read_series(db, keys, since, until, buckets))

    async def starts(
        self, *, engine: str = "", preset: str = "", failed: bool = False, ready: bool = False, limit: int = 200
    ) -> Reading[tuple[StartRecord, ...]]:
        """A row that cannot be read is passed over."""

        def read(db: Connection) -> tuple[StartRecord, ...]:
            rows = db.execute(
                "SELECT container, at, engine, preset, body FROM starts WHERE at BETWEEN 0 AND 1e11 "
                "AND (? = '' OR engine = ?) AND (? = '' OR preset = ?) AND (NOT ? OR failed) "
                "AND (NOT ? OR preset != '' AND json_valid(body) AND json_extract(body, '$.ready')) "
                "ORDER BY at DESC LIMIT ?",
                (engine, engine, preset, preset, failed, ready, max(0, limit)),
            )
            found, phases = [], {phase.value for phase in PhaseId}
            for container, at, name, of, body in rows:
                with suppress(msgspec.ValidationError, LookupError, TypeError, ValueError):
                    fields = decode(body, dict[str, Any])
                    fields |= {"container": container, "at": float(at), "engine": name, "preset": of}
                    known = [pair for pair in fields.get("phases", ()) if pair[0] in phases]
                    fields["phases"] = known  # another version has others
                    found.append(msgspec.convert(fields, StartRecord))
            return tuple(found)

        return await self._read(read)

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        """A row that is no JSON is passed over."""

        def read(db: Connection) -> tuple[Record, ...]:
            rows = db.execute(
                "SELECT kind, key, at, body FROM records WHERE kind = ? AND (? IS NULL OR key = ?) AND at >= ? "
                "AND at BETWEEN 0 AND 1e11 "
                "ORDER BY at DESC, id DESC LIMIT ?",
                (kind, key, key, -1.0 if since is None else since, max(0, limit)),
            )
            found = []
            for of, name, at, body in rows:
                with suppress(TypeError, ValueError):
                    found.append(Record(str(of), str(name), float(at), load_json(body)))
            return tuple(found)

        return await self._read(read)

    async def _read(self, work: Callable[[Connection], T]) -> Reading[T]:
        try:
            return Ok(await self._reads.run(self._read_now, work), self._now())
        except Unavailable as error:
            return Missing(error.reason)

    def _read_now(self, work: Callable[[Connection], T]) -> T:
        """On the reader's thread. A damaged file is the writer's to quarantine; then the new one is read."""
        for attempt in range(2):
            try:
                with self._reading:
                    if self._read_db is None:
                        self._read_db = self._file.open(query_only=True)
                    return work(self._read_db)
            except Exception as error:
                found = self._file.problem(error)
                if isinstance(found, Unavailable):
                    raise found from error
                if attempt:
                    raise Unavailable(self.state.reason or str(found), self.state.remedy) from error
                self._flush(str(found)).result()
        raise AssertionError("unreachable")

    def _drop_reader(self) -> None:
        with self._reading:
            found, self._read_db = self._read_db, None
            if found is not None:
                found.close()


def _promise() -> Future[None]:
    """What the writer answers. Who awaits it may be cancelled; it may not, or its answer would end the writer."""
    promise: Future[None] = Future()
    promise.set_running_or_notify_cancel()
    return promise


@contextmanager
def transaction(db: Connection, kind: str) -> Iterator[None]:
    """All that is done within, or nothing."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


# --- the file ---------------------------------------------------------------------------------------------


class HistoryFile:
    """One path, and this process's locks on it. Only `open` may be called by several threads.

    Every user of the file holds a shared lock beside it; only who can have that lock alone may quarantine the file:
    another process would keep using the renamed one, and then tidy up under the old name.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self.path = folder / NAME
        self._now = now
        self._users: int | None = None
        self._sampler: int | None = None
        self._opening = threading.Lock()

    def open(self, *, query_only: bool = False) -> Connection:
        """A connection, on a file that is made where there is none. Raises Unavailable, and what `problem` reads."""
        with self._opening:
            self._prepare()
            db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._set_up(db)
                if query_only:
                    db.execute("PRAGMA query_only=ON")
            except BaseException:
                db.close()
                raise
            return db

    def _prepare(self) -> None:
        try:
            PrivateFolder(self.path.parent).prepare()
            if self._users is None:
                self._users = self._locked("users", fcntl.LOCK_SH)
            # Only where there is none: closing a descriptor of an open database drops SQLite's locks on it.
            with suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(self.path, flags, FILE_MODE))
            status = self.path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise Unavailable(f"{self.path} is not a regular file", "Move it away.")
            if stat.S_IMODE(status.st_mode) != FILE_MODE:
                self.path.chmod(FILE_MODE)
        except OSError as error:
            raise self.unavailable(error) from error

    def _set_up(self, db: Connection) -> None:
        db.execute(f"PRAGMA journal_size_limit={4 * MIB}")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("PRAGMA trusted_schema=OFF")
        version, owner = _identity(db)
        if (version, owner) == (0, 0) and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            db.execute("PRAGMA page_size=4096")
            db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            db.execute("PRAGMA journal_mode=WAL")
            self._upgrade(db)
        version, owner = _identity(db)
        if owner != APPLICATION_ID:
            raise Unreadable("it is a database of another program")
        if version != VERSION:
            raise Unreadable(_NEWER if version > VERSION else _OLDER)
        for table, columns in _COLUMNS.items():
            db.execute(f"SELECT {columns} FROM {table} LIMIT 0")  # noqa: S608 - our own names
        if not set(MetricId) <= set(samples.metrics_in(db)):
            self._upgrade(db)

    def _upgrade(self, db: Connection) -> None:
        """Makes the tables, adds columns of new metrics: all or nothing, and only what another process has not done
        meanwhile."""
        with transaction(db, "EXCLUSIVE"):
            version, _ = _identity(db)
            if version == 0:
                for statement in _SCHEMA:
                    db.execute(statement)
            samples.add_columns(db, MetricId)
            db.execute(f"PRAGMA user_version={max(version, VERSION)}")
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")

    def quarantine(self, why: str) -> Path:
        """Gives the file another name, with what belongs to it. Every connection of this process must be closed.

        Raises Unavailable when another process uses it, or when it cannot be renamed.
        """
        if self._users is None:
            raise Unavailable(why, "")
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(
                f"{self.path} is unusable ({why}), and another spark-tui has it open",
                "Close the other one: the next start moves the file away.",
            ) from None
        try:
            word = {_NEWER: "newer", _OLDER: "older"}.get(why, "unreadable")
            stem = f"history-{word}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self._now()))}"
            kept, number = self.path.with_name(f"{stem}.db"), 1
            while kept.exists() or Path(f"{kept}-wal").exists():
                number += 1
                kept = self.path.with_name(f"{stem}-{number}.db")
            for suffix in ("-shm", "-wal", ""):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{suffix}").rename(f"{kept}{suffix}")
        except OSError as error:
            raise self.unavailable(error) from error
        finally:
            fcntl.flock(self._users, fcntl.LOCK_SH)
        return kept

    def claim_samples(self) -> bool:
        """Makes this process the one that records samples; false while another one is. The kernel ends the claim of
        a process that dies. Raises OSError."""
        if self._sampler is None:
            try:
                self._sampler = self._locked("samples", fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def close(self) -> None:
        for held in (self._sampler, self._users):
            if held is not None:
                os.close(held)
        self._sampler = self._users = None

    def _locked(self, name: str, how: int) -> int:
        """A descriptor that holds the lock. Not filelock: it has no shared lock on a plain file."""
        path = self.path.with_name(f".{name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, how)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def problem(self, error: Exception) -> Unavailable | Unreadable:
        """What an error means while the file was opened, read or written: Unavailable where the system, another process
        or a value of ours is the reason. Damage can raise everything else: SQLite checks little of what it reads."""
        if isinstance(error, Unavailable | Unreadable):
            return error
        ours = (OSError, MemoryError, UnicodeEncodeError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
        if isinstance(error, ours) or (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_NOMEM,
            sqlite3.SQLITE_PROTOCOL,
            sqlite3.SQLITE_INTERRUPT,
        ):
            return self.unavailable(error)
        return Unreadable(clean_line(str(error)) or type(error).__name__)

    def unavailable(self, error: Exception) -> Unavailable:
        """An error of the system or of SQLite, with what a person can do."""
        folder = self.path.parent
        writable = f"Make {folder} a folder that you can write."
        if isinstance(error, OSError):
            return Unavailable(f"{error.filename or folder}: {error.strerror or error}", writable)
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                return Unavailable(f"the disk of {folder} is full", f"Free some space. {_RETRIED}")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                return Unavailable(f"{self.path} cannot be written ({error})", writable)
            case sqlite3.SQLITE_IOERR:
                return Unavailable(f"{self.path}: I/O error ({error})", "Check the disk: df, dmesg.")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return Unavailable(f"{self.path} is locked by another process", _RETRIED)
        return Unavailable(f"{self.path}: {error}", _RETRIED)


def _identity(db: Connection) -> tuple[int, int]:
    return db.execute("PRAGMA user_version").fetchone()[0], db.execute("PRAGMA application_id").fetchone()[0]
