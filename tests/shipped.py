"""The presets that come with the program: read once, however many tests load them."""

from __future__ import annotations

from typing import Final

from spark_tui.catalog.presets.adapter.store import PresetFiles, builtin_directory

SHIPPED_FILES: Final = PresetFiles(builtin_directory())
