"""Presets with what the person allowed their recipes, in a private file of this program: no recipe can allow itself
anything. Found by their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import Finding
from spark_tui.base.ports import StateFiles, port_named
from spark_tui.base.text import clean_line, known_names, same_name, truncate
from spark_tui.base.untrusted import decode, encode
from spark_tui.catalog.presets.model.preset import PRESETS, Origin, Preset, PresetCatalogue
from spark_tui.catalog.presets.model.rights import fingerprint, require_allowed, rights_of

if TYPE_CHECKING:
    from spark_tui.catalog.presets.use.registries import RegistryManager

_FILE: Final = "rights"


@port_named("presets")
class PresetSource(Protocol):
    """Where presets come from."""

    def load(self) -> PresetCatalogue:
        """Every preset that can be read, and a problem for every file that cannot. Never raises."""

    def glance(self) -> PresetCatalogue:
        """The same, sooner: for what is only shown. What is launched, changed or exported comes from `load`."""


@port_named("presets")
class PresetGrants(PresetSource, Protocol):
    """A source of presets with the rights that the person allowed them."""

    def allow(self, preset: Preset, names: Collection[str]) -> Preset:
        """Records rights by their names, beside those allowed earlier; without names takes all back. Raises UsageError
        for a name that the recipe does not ask for."""


class AllowedPresets:
    """A source of presets that come with the rights that the person allowed them. These are kept by the fingerprint of
    the recipe: another one is asked for again. What is damaged or cannot be read allows nothing."""

    def __init__(self, source: PresetSource, state: StateFiles) -> None:
        self._source = source
        self._state = state

    def load(self) -> PresetCatalogue:
        return self._marked(self._source.load())

    def glance(self) -> PresetCatalogue:
        return self._marked(self._source.glance())

    def _marked(self, catalogue: PresetCatalogue) -> PresetCatalogue:
        known = self._read()
        presets = tuple(replace(each, allowed=known.get(fingerprint(each), ())) for each in catalogue.presets if known)
        return replace(catalogue, presets=presets or catalogue.presets)

    def allow(self, preset: Preset, names: Collection[str]) -> Preset:
        """Records rights by their names, beside those allowed earlier; without names takes all back. Raises UsageError
        for a name that the recipe does not ask for."""
        asked = dict.fromkeys(name for name, _ in rights_of(preset))
        for name in names:
            if name not in asked:
                raise UsageError(
                    f"{preset.name} does not ask for {truncate(clean_line(name), 40)}.",
                    f"It asks for: {' '.join(asked)}." if asked else "It asks for nothing: launch it as it is.",
                )
        allowed = tuple(name for name in asked if names and name in (*names, *preset.allowed))
        self._state.write(_FILE, encode({**self._read(), fingerprint(preset): allowed}).encode())
        return replace(preset, allowed=allowed)

    def _read(self) -> dict[str, tuple[str, ...]]:
        try:
            return decode((self._state.read(_FILE) or b"{}").decode(), dict[str, tuple[str, ...]])
        except (SparkError, ValueError):
            return {}


def load_presets(context: Context, *, shown: bool = False) -> None:
    """Reads them again. `shown`: for a list, from which nothing is launched."""
    source = context[PresetSource]
    context.store.put(PRESETS, source.glance() if shown else source.load())


def require_reviewed(context: Context, preset: Preset) -> None:
    """Raises NotReviewed for a recipe of a registry that the person has not approved, NotAllowed for one that takes
    rights over the machine which the person has not allowed it."""
    if preset.origin is Origin.REGISTRY:
        _registries(context).check(preset)
    require_allowed(preset)


def drifts(context: Context, presets: Iterable[Preset]) -> Mapping[str, Finding]:
    """Copies of registries' recipes that are outdated, by the preset's name."""
    copies = tuple(each for each in presets if each.facts.copy_of is not None)
    return _registries(context).drifts(copies) if copies and context.ports.has("registries") else {}


def _registries(context: Context) -> RegistryManager:
    from spark_tui.catalog.presets.use.registries import RegistryManager

    return context[RegistryManager]


# --- catalogue -------------------------------------------------------------------------------------------


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
