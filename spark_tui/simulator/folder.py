"""The folder of the demo for what it writes, and how the simulated person's folders are in it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spark_tui.base.executors import born
from spark_tui.base.files import PrivateFolder
from spark_tui.base.settings import Folders, folders_of

_FAST: Final = "/dev/shm"  # noqa: S108 - a folder of our own is made in it
"""In memory where there is such a place: the simulated /proc is written before each reading."""


class DemoFolder:
    """A folder of this run, removed with it. What demos that were killed have left is removed too."""

    def __init__(self) -> None:
        place = _FAST if os.access(_FAST, os.W_OK) else tempfile.gettempdir()
        for left in Path(place).glob("spark-tui-demo-*-*"):
            pid = left.name.split("-")[3]
            if pid.isdecimal() and born(int(pid)) is None:
                shutil.rmtree(left, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"spark-tui-demo-{os.getpid()}-", dir=place))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def own_folders(folder: DemoFolder) -> Folders:
    """The folders of a demo that was started without a user's."""
    return folders_of({}, folder.path)


class SimulatedFolder(PrivateFolder):
    """A private folder that is at `path` for the person; its files are in the folder `real`."""

    def __init__(self, path: Path, real: Path) -> None:
        super().__init__(path)
        self._real = PrivateFolder(real)

    def write(self, path: Path, chunks: Iterable[bytes]) -> Path:
        self._real.write(self._real.path / path.name, chunks)
        return path

    def read(self, path: Path, most: int = 4096) -> bytes | None:
        return self._real.read(self._real.path / path.name, most) if path.parent == self.path else None

    def content(self, path: Path) -> bytes:
        """All of a file. Raises OSError for one that is not there."""
        found = self.read(path)
        if found is None:
            raise FileNotFoundError(f"there is no {path}")
        return found
