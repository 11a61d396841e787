"""Small files of this program's own: what it remembers, and what it must finish after it was killed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import SparkError
from spark_tui.domain.quantities import MIB
from spark_tui.services.files import FileLocks, PrivateFolder

MOST_BYTES: Final = MIB
_FILE: Final = ".json"


class StateFolder:
    """The StateFiles port in one private folder. Claims are the kernel's: they end with the process that made them."""

    def __init__(self, folder: Path) -> None:
        self._folder = PrivateFolder(folder)
        self._claims = FileLocks(folder)

    def read(self, name: str) -> bytes | None:
        path = self._folder.file(name, _FILE)
        try:
            return self._folder.read(path, MOST_BYTES)
        except OSError as error:
            raise _unreadable(path, error) from error

    def path(self, name: str) -> str:
        return str(self._folder.file(name, _FILE))

    def write(self, name: str, data: bytes) -> None:
        path = self._folder.file(name, _FILE)
        try:
            self._folder.write(path, (data,))
            self._sync()
        except OSError as error:
            raise SparkError(f"Cannot write {path}: {error.strerror or error}.", "Free space on that disk.") from error

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self._folder.file(name, _FILE).unlink(missing_ok=True)

    def names(self, prefix: str) -> tuple[str, ...]:
        try:
            found = os.listdir(self._folder.path)  # noqa: PTH208 - a glob of pathlib's hides what cannot be listed
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise _unreadable(self._folder.path, error) from error
        return tuple(sorted(n.removesuffix(_FILE) for n in found if n.startswith(prefix) and n.endswith(_FILE)))

    def claim(self, name: str) -> bool:
        file = self._folder.file(name).name
        try:
            self._folder.prepare()
            return not self._claims.in_use(file) and self._claims.take(file)
        except OSError as error:
            place = self._folder.path
            raise SparkError(f"Cannot lock {place}: {error.strerror or error}.", "Free space on that disk.") from error

    def release(self, name: str) -> None:
        self._claims.release(self._folder.file(name).name)

    def _sync(self) -> None:
        """The folder too: a file that was just put in place is found after a power cut."""
        descriptor = os.open(self._folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> SparkError:
    return SparkError(
        f"Cannot read {path}: {error.strerror or error}.", "Make it readable for your user, or delete it."
    )
