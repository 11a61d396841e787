"""The presets that were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_tui.domain.errors import PresetError
    from spark_tui.domain.presets.preset import Preset


@dataclass(frozen=True, slots=True)
class PresetCatalogue:
    """Everything found, in name order, and what could not be read."""

    presets: tuple[Preset, ...] = ()
    problems: tuple[PresetError, ...] = ()

    def get(self, name: str) -> Preset | None:
        """The preset of that name, or None."""
        return next((preset for preset in self.presets if preset.name == name), None)
