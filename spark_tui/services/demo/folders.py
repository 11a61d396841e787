"""Folders of the demo: one for what it writes, and those of the simulated person: recipes to import, keys."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.presets.dialects.importing import CollectedFiles
from spark_tui.domain.settings import Folders, folders_of
from spark_tui.services.files import PrivateFolder
from spark_tui.services.ports import RecipeStore

SAMPLES: Final = Path("/home/spark/recipes")
_DATA: Final = Path(__file__).parent / "data" / "recipes"


class DemoFolder:
    """A folder of this run, removed with it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="spark-tui-demo-"))
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


class DemoRecipes:
    """The RecipeStore port on another one. `SAMPLES` is a folder that is not there; other paths are real ones."""

    def __init__(self, store: RecipeStore) -> None:
        self._store = store

    def gather(self, source: Path) -> CollectedFiles:
        return self._store.gather(_DATA / source.relative_to(SAMPLES) if source.is_relative_to(SAMPLES) else source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
