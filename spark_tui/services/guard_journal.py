"""What the memory guard did: a small private file that every front end reads, and the lock of the one guard."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.host.guard import GuardEntry
from spark_tui.services.files import FILE_MODE, PrivateFolder, is_locked

_KEPT: Final = 100
_CLAIM_TRIES, _CLAIM_PAUSE = 5, 0.02
"""Whoever asks whether a guard runs holds the lock for a moment."""
_MOST_BYTES: Final = 256 * 1024
_FIELDS: Final = ("act", "engine", "reason", "how")


class FileGuardJournal:
    """The GuardJournal port in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = PrivateFolder(folder)
        self._journal = folder / "journal.jsonl"
        self._lock = folder / "lock"
        self._claimed: int | None = None

    def claim(self) -> bool:
        """Makes this process the one guard of this user; false when another one is. The kernel ends the claim of a
        process that dies. Raises OSError."""
        self._folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        for _ in range(_CLAIM_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_CLAIM_PAUSE)
            else:
                self._claimed = descriptor
                return True
        os.close(descriptor)
        return False

    def release(self) -> None:
        """Ends the claim."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            os.close(claimed)

    def running(self) -> bool:
        """Whether a guard runs now, in any process."""
        return self._claimed is not None or is_locked(self._lock)

    def add(self, entry: GuardEntry) -> None:
        """Keeps an entry, and of the earlier ones the last hundred. Raises OSError."""
        kept = (*self.entries(), entry)[-_KEPT:]
        self._folder.write(self._journal, [_line(each) for each in kept])

    def entries(self) -> tuple[GuardEntry, ...]:
        """The last entries, oldest first. A line that is none is passed over."""
        try:
            content = self._folder.read(self._journal, _MOST_BYTES)
        except OSError:
            return ()
        lines = (content or b"").decode("utf-8", "replace").splitlines()
        return tuple(entry for line in lines if (entry := _entry(line)) is not None)


def _line(entry: GuardEntry) -> bytes:
    told = {"at": entry.at, **{name: getattr(entry, name) for name in _FIELDS}}
    return f"{json.dumps(told)}\n".encode()


def _entry(line: str) -> GuardEntry | None:
    try:
        told: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, Mapping) or not isinstance(told.get("at"), int | float):
        return None
    texts = {name: told.get(name) for name in _FIELDS}
    return GuardEntry(
        float(told["at"]), **{name: text if isinstance(text, str) else "" for name, text in texts.items()}
    )
