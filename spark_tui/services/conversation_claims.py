"""Who writes in a conversation: a lock file each, held by the kernel for the process that has it open."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from spark_tui.services.files import FILE_MODE, is_locked


class Claims:
    """The claims of this process on conversations in one folder. To be used from one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def take(self, name: str) -> bool:
        """Whether it is ours now; false while another process has it. Raises OSError."""
        if name in self._held:
            return True
        path = self._path(name)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            except OSError:
                os.close(descriptor)
                raise
            if _is_at(descriptor, path):
                self._held[name] = descriptor
                return True
            os.close(descriptor)  # whoever held it has just removed it

    def release(self, name: str) -> None:
        """Ends a claim, if there is one."""
        descriptor = self._held.pop(name, None)
        if descriptor is not None:
            self._path(name).unlink(missing_ok=True)
            os.close(descriptor)

    def release_all(self) -> None:
        """Ends all claims."""
        for name in tuple(self._held):
            self.release(name)

    def in_use(self, name: str) -> bool:
        """Whether any process has it, this one included."""
        return name in self._held or is_locked(self._path(name))


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
