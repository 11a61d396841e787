"""A folder of the simulated person, to import recipes from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from spark_tui.base.settings import DEMO_HOME
from spark_tui.catalog.presets.model.dialects.importing import CollectedFiles
from spark_tui.catalog.presets.use.imports import RecipeStore

SAMPLES: Final = DEMO_HOME / "recipes"
_DATA: Final = Path(__file__).parent / "data" / "recipes"


class DemoRecipes:
    """The RecipeStore port on another one. What the person has in `SAMPLES` is copied into `folder`: beside the program
    it could be in a checkout, whose commit would be taken for the recipes' own. Other paths are real ones."""

    def __init__(self, store: RecipeStore, folder: Path) -> None:
        self._store = store
        self._samples = folder / "recipes"

    def gather(self, source: Path) -> CollectedFiles:
        if source.is_relative_to(SAMPLES):
            shutil.copytree(_DATA, self._samples, dirs_exist_ok=True)
            source = self._samples / source.relative_to(SAMPLES)
        return self._store.gather(source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
