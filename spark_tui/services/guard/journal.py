"""The guard's journal, a small private file that every front end reads, and the lock of the one guard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.host.guard import GuardEntry
from spark_tui.services.files import FILE_MODE, FOLDER_MODE, PrivateFolder, is_locked

if TYPE_CHECKING:
    from filelock import FileLock

_KEPT: Final = 100
_CLAIM_SECONDS, _CLAIM_PAUSE = 0.1, 0.02
"""`is_locked` holds the lock for a moment."""
_MOST_BYTES: Final = 256 * 1024
_FIELDS: Final = ("act", "engine", "reason", "how")


class FileGuardJournal:
    """The GuardJournal port in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = PrivateFolder(folder)
        self._journal = folder / "journal.jsonl"
        self._lock = folder / "lock"
        self._claimed: FileLock | None = None

    def claim(self) -> bool:
        """Makes this process the one guard of this user; false when another one is. The kernel ends the claim of a
        process that dies. Raises OSError."""
        from filelock import FileLock, Timeout

        self._folder.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = FileLock(self._lock, mode=FILE_MODE, thread_local=False)
        try:
            lock.acquire(timeout=_CLAIM_SECONDS, poll_interval=_CLAIM_PAUSE)
        except Timeout:
            return False
        self._claimed = lock
        return True

    def release(self) -> None:
        """Ends the claim."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed.release()

    def running(self) -> bool:
        """Whether a guard runs now, in any process."""
        return self._claimed is not None or is_locked(self._lock)

    def add(self, entry: GuardEntry) -> None:
        """Keeps an entry, and of the earlier ones the last hundred. Raises OSError."""
        kept = (*self.entries(), entry)[-_KEPT:]
        rows = ({"at": each.at, **{name: getattr(each, name) for name in _FIELDS}} for each in kept)
        self._folder.write(self._journal, [f"{json.dumps(row)}\n".encode() for row in rows])

    def entries(self) -> tuple[GuardEntry, ...]:
        """The last entries, oldest first. A line that is none is skipped."""
        try:
            content = self._folder.read(self._journal, _MOST_BYTES)
        except OSError:
            return ()
        found = []
        for line in (content or b"").decode("utf-8", "replace").splitlines():
            try:
                row: Any = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("at"), int | float):
                texts = (row.get(name) for name in _FIELDS)
                found.append(GuardEntry(float(row["at"]), *(text if isinstance(text, str) else "" for text in texts)))
        return tuple(found)
