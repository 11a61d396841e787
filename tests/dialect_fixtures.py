"""The recipe files of other tools among the fixtures, as documents and as presets."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.dialects.importing import (
    CollectedFiles,
    ExaminedRecipe,
    FoundFile,
    Registry,
    examine,
)
from spark_tui.catalog.presets.model.preset import MappingValue

REAL = Path(__file__).parent / "fixtures" / "presets" / "real"
EUGR = tuple(sorted((REAL / "eugr" / "recipes").rglob("*.yaml")))
SPARKRUN = tuple(sorted(p for p in (REAL / "sparkrun").rglob("*.yaml") if ".sparkrun" not in p.parts))
WITHOUT_COMMAND = frozenset(
    (
        "deepseek-v4.1-flash-b12x-dspark-sglang-tp4",
        "gemma-4-26b-a4b-nvfp4-atlas",
        "minimax-m2.7-nvfp4-ep2-atlas",
    )
)
"""For runtimes whose command sparkrun itself makes."""
IMPORTABLE = (*EUGR, *SPARKRUN)


@cache
def document(path: Path) -> MappingValue:
    """A fixture as it is written."""
    found = parse(path.read_text(), str(path))
    assert isinstance(found, MappingValue)
    return found


@cache
def imported(path: Path) -> ExaminedRecipe:
    """A fixture after its import, as part of its registry."""
    root = next(parent for parent in path.parents if parent.parent == REAL)
    gathered = FolderRecipeStore(None).gather(root)
    found = next(each for each in gathered.files if Path(gathered.registry.root) / each.path == path)
    return examine(found, gathered, path.stem)


def examined(text: str, path: str = "recipes/r.yaml", **registry: object) -> ExaminedRecipe:
    """A recipe given as text, in a registry of its own."""
    found = FoundFile(path, text, parse(text, path))
    return examine(found, CollectedFiles(Registry("/registry", **registry), (found,)), "r")  # type: ignore[arg-type]
