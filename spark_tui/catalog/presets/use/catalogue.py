"""The presets of this machine, as they were read last."""

from __future__ import annotations

from spark_tui.base.context import Context
from spark_tui.base.errors import UsageError
from spark_tui.base.text import clean_line, known_names, same_name, truncate
from spark_tui.catalog.presets.model.preset import PRESETS, Preset, PresetCatalogue
from spark_tui.catalog.presets.use.rights import PresetSource


def catalogue(context: Context) -> PresetCatalogue:
    """The presets as they were read last."""
    known = context.store.world[PRESETS]
    return known if known.presets else context[PresetSource].load()


def find_preset(context: Context, name: str) -> Preset:
    """The preset of that name. Raises UsageError with near names, or the PresetError of a file that would be it."""
    known = context[PresetSource].load()
    names = [preset.name for preset in known.presets]
    found = known.get(same_name(name, names))
    if found is not None:
        return found
    for problem in known.problems:
        if problem.file.rpartition("/")[2].rpartition(".")[0] == name:
            raise problem
    raise UsageError(
        f"There is no preset named {truncate(clean_line(name), 60)}.",
        known_names(name, names, "presets"),
    )
