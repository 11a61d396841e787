"""The thread that writes the history: it opens the file, writes what waits, tries again, sets a damaged file aside."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_tui.domain.engine.metric_series import Sample
from spark_tui.domain.history import HistoryOff, LedgerState, StartRecord
from spark_tui.services.ledger_file import LedgerFile, Unavailable, Unreadable, is_damage
from spark_tui.services.ledger_rows import put_start
from spark_tui.services.ledger_samples import SampleWriter

if TYPE_CHECKING:  # sqlite3 is loaded by the threads that use it
    from sqlite3 import Connection

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
