"""The history of this box: SQLite, with a thread that writes and a thread that reads, so that nobody waits for a disk.

Samples are written every ten seconds, everything else at once. Starts and records are written by every process,
samples by the one that holds a lock; when it ends, the next one goes on. Where the file cannot be used, it is set
aside; where nothing can be written, `state` says why, and it is tried again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from spark_tui.domain.engine.metric_series import Sample
from spark_tui.domain.history import MOST_BYTES, HistoryOff, LedgerState, Record, SeriesKey, StartRecord, Stretch
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.services import ledger_rows as rows
from spark_tui.services.executors import CallPool
from spark_tui.services.ledger_file import LedgerFile, Unavailable, Unreadable, is_damage
from spark_tui.services.ledger_series import SeriesReader
from spark_tui.services.ledger_writer import LedgerWriter, Status

if TYPE_CHECKING:  # sqlite3 is loaded by the threads that use it
    from sqlite3 import Connection

T = TypeVar("T")

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
            body = rows.encoded(record)
        except ValueError as error:
            raise HistoryOff(f"This record of {record.kind} cannot be kept: {error}.", "Keep it elsewhere.") from error
        await asyncio.wrap_future(self._writer.submit(lambda db: rows.put_record(db, record, body)))

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
        return await self._read(
            lambda db: rows.read_starts(db, engine=engine, preset=preset, failed=failed, limit=limit)
        )

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        """See the port."""
        return await self._read(lambda db: rows.read_records(db, kind, key=key, since=since, limit=limit))

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
