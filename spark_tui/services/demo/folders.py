"""A folder of the simulated person, to import recipes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from spark_tui.domain.presets.dialects.importing import CollectedFiles
from spark_tui.services.ports import RecipeStore

SAMPLES: Final = Path("/home/spark/recipes")
_DATA: Final = Path(__file__).parent / "data" / "recipes"


class DemoRecipes:
    """The RecipeStore port on another one. `SAMPLES` is a folder that is not there; other paths are real ones."""

    def __init__(self, store: RecipeStore) -> None:
        self._store = store

    def gather(self, source: Path) -> CollectedFiles:
        return self._store.gather(_DATA / source.relative_to(SAMPLES) if source.is_relative_to(SAMPLES) else source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
