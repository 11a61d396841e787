"""The history's file: opened, made, checked, and set aside when it cannot be used. It is never deleted.

SQLite in WAL mode: a process that is killed loses nothing that was written, and readers never wait for the writer.
Whoever uses the file holds a shared lock beside it; only who can have that lock alone may set the file aside, since
another process would go on with the renamed one and then tidy up under the old name.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_tui.domain.quantities import MIB
from spark_tui.services.files import FILE_MODE, FOLDER_MODE
from spark_tui.services.ledger_schema import APPLICATION_ID, SCHEMA, TABLES, VERSION

if TYPE_CHECKING:  # sqlite3 is loaded by whoever opens a history
    from sqlite3 import Connection, DatabaseError

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
