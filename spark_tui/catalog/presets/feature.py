"""Presets, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_tui.base.feature import Feature, Slice
from spark_tui.base.finding import NOT_READ_YET, Reading

if TYPE_CHECKING:
    from spark_tui.catalog.presets.model.library import LibraryView

LIBRARY: Slice[Reading[LibraryView]] = Slice(NOT_READ_YET)

FEATURE = Feature(
    commands={
        "registries": (
            "spark_tui.catalog.presets.command.registries",
            "Use recipes of public registries, pinned to a commit.",
        ),
    },
    real={
        "presets": (
            "spark_tui.catalog.presets.adapter.store:allowed_presets",
            lambda make, p: make(p, p.settings.presets, p.folders.registries / "presets", p.folders.cache / "presets"),
        ),
        "registries": (
            "spark_tui.catalog.presets.adapter.registries:GitRegistries",
            lambda make, p: make(p.folders.registries, p.environ),
        ),
        "recipes": (
            "spark_tui.catalog.presets.adapter.imports:FolderRecipeStore",
            lambda make, p: make(p.settings.presets),
        ),
        "builtin_presets": ("spark_tui.catalog.presets.adapter.store:builtin_directory", None),
        "judge": ("spark_tui.catalog.presets.model.rules.check:judge", lambda judge, _: judge),
    },
    demo={
        "presets": (
            "spark_tui.catalog.presets.adapter.store:allowed_presets",
            lambda make, p: make(p, p.demo_folder.path),
        ),
        "folder_recipes": (
            "spark_tui.catalog.presets.adapter.imports:FolderRecipeStore",
            lambda make, p: make(p.demo_folder.path),
        ),
        "builtin_presets": ("spark_tui.catalog.presets.adapter.store:builtin_directory", None),
        "judge": ("spark_tui.catalog.presets.model.rules.check:judge", lambda judge, _: judge),
    },
)
