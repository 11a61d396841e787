"""The presets of this machine, as they were read last."""

from __future__ import annotations

from spark_tui.base.context import Context
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.catalog.presets.use.rights import PresetSource


def catalogue(context: Context) -> PresetCatalogue:
    """The presets as they were read last."""
    known = context.store.world.presets
    return known if known.presets else context[PresetSource].load()
