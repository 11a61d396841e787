"""Folders of the demo: one for what it writes, and one of the simulated person to import recipes from."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.presets.dialects.importing import CollectedFiles
from spark_tui.domain.settings import Folders, folders_of
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


class DemoRecipes:
    """The RecipeStore port on another one. `SAMPLES` is a folder that is not there; other paths are real ones."""

    def __init__(self, store: RecipeStore) -> None:
        self._store = store

    def gather(self, source: Path) -> CollectedFiles:
        return self._store.gather(_DATA / source.relative_to(SAMPLES) if source.is_relative_to(SAMPLES) else source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
