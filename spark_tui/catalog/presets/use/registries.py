"""Recipes from registries: added, compared with what is pinned, moved to another commit, approved for launching."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.ports import Clock, port_named
from spark_tui.base.text import clean_line
from spark_tui.catalog.presets.model.dialects.found_files import with_commands
from spark_tui.catalog.presets.model.dialects.importing import (
    ExaminedRecipe,
    examine,
    plain_name,
    with_source,
)
from spark_tui.catalog.presets.model.preset import MappingValue, Origin, Preset, PresetCatalogue, RecipeSource
from spark_tui.catalog.presets.model.registry import (
    KNOWN,
    SEPARATOR,
    NotReviewed,
    PinnedRegistry,
    RecipeChange,
    RegistryRecipe,
    changes_between,
    digest_of,
    drift,
    problem_of,
    registry_address,
    registry_name,
    same_commit,
)
from spark_tui.catalog.presets.use.imports import RecipeStore


@port_named("registries")
class RegistryStore(Protocol):
    """Git repositories of recipes: what is fetched of them, and the person's pins."""

    def pins(self) -> tuple[PinnedRegistry, ...]:
        """In the order in which they were pinned. Raises SparkError for a file that cannot be read."""

    def keep(self, pins: tuple[PinnedRegistry, ...]) -> None: ...

    async def fetch(self, name: str, address: str) -> str:
        """The newest commit of the default branch, without history; returns its hash. Raises GitUnreachable,
        RegistryTooLarge."""

    async def fetched(self, name: str) -> str:
        """The commit that was fetched last, without the network; empty for none."""

    def tree(self, name: str, commit: str) -> Path:
        """A folder with a fetched commit's recipes, scripts and licences as plain files. Raises RegistryTooLarge."""

    def skipped(self, name: str, commit: str) -> tuple[str, ...]:
        """Recipes, scripts and licences of that commit that are not in its tree: `path: reason`."""

    def publish(self, name: str, commit: str, presets: Mapping[str, str]) -> None:
        """Preset files by name, in place of the registry's earlier ones, for PresetSource."""

    def remove(self, name: str) -> None:
        """Everything of a registry but its pin."""


class RegistryUpdate(Struct, frozen=True):
    """What a registry has at `commit`, compared with its pin. `moved`: the pin is there now. `drifted`: the person's
    copies of recipes that are others there. `unapproved`: recipes that have to be approved again after this move.
    `skipped`: files that were not read, with the reason."""

    pinned: PinnedRegistry
    commit: str
    changes: tuple[RecipeChange, ...]
    moved: bool = False
    drifted: tuple[Finding, ...] = ()
    unapproved: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


class RegistryManager(Struct, eq=False):
    """The person's registries. `recipes` reads folders of recipes, `catalogue` gives the presets."""

    _store: RegistryStore
    _recipes: RecipeStore
    _clock: Clock
    _catalogue: Callable[[], PresetCatalogue]

    @classmethod
    def from_context(cls, context: Context) -> RegistryManager:
        return cls(context[RegistryStore], context[RecipeStore], context.clock, context.ports["presets"].load)

    def all(self) -> tuple[PinnedRegistry, ...]:
        return self._store.pins()

    def get(self, name: str) -> PinnedRegistry:
        """Raises UsageError with the names there are."""
        pins = self.all()
        found = next((each for each in pins if each.name == name), None)
        if found is None:
            names = ", ".join(each.name for each in pins) or "none yet"
            raise UsageError(
                f"There is no registry named {clean_line(name)[:40]}.",
                f"Registries: {names}. Add one: spark-tui registries add NAME [ADDRESS]",
            )
        return found

    async def add(self, name: str, address: str = "") -> RegistryUpdate:
        """Fetches a registry and pins its newest commit; without an address one of KNOWN."""
        name = registry_name(name)
        if any(each.name == name for each in self.all()):
            raise UsageError(f"There is a registry named {name} already.", f"See: spark-tui registries update {name}")
        known = KNOWN.get(name)
        if not address and known is None:
            raise UsageError(f"{name} needs an address.", f"Known without one: {', '.join(KNOWN)}.")
        pinned = PinnedRegistry(name, registry_address(address or (known.address if known else "")))
        commit = await self._store.fetch(name, pinned.address)
        return await self._moved(pinned, commit)

    async def look(self, name: str) -> RegistryUpdate:
        """Fetches what the registry has now; the pin stays."""
        pinned = self.get(name)
        commit = await self._store.fetch(name, pinned.address)
        return await in_thread(self._looked, pinned, commit)

    async def move(self, name: str, commit: str) -> RegistryUpdate:
        """Pins a commit: the one that was looked at without the network, else the one that is fetched for it. Raises
        UsageError when the registry has another one."""
        pinned = self.get(name)
        newest = await self._store.fetched(name)
        if not same_commit(newest, commit):
            newest = await self._store.fetch(name, pinned.address)
        if not same_commit(newest, commit):
            raise UsageError(
                f"{name} is at {newest[:12]} now, and not at {clean_line(commit)[:12]}.",
                f"See what changed: spark-tui registries update {name}",
            )
        return await self._moved(pinned, newest)

    def remove(self, name: str) -> None:
        pinned = self.get(name)
        self._store.keep(tuple(each for each in self.all() if each != pinned))
        self._store.remove(name)

    # --- copies ---------------------------------------------------------------------------------------

    def copy(self, preset: Preset, name: str = "") -> ExaminedRecipe:
        """The recipe of a preset at the pin, with where it is from, to be saved as one of the person's own. Raises
        UsageError for a preset of another origin."""
        pinned, recipe = self._behind(preset)
        found = self._examined(pinned, pinned.commit)[0][recipe.name]
        source = RecipeSource(pinned.name, pinned.address, recipe.path, pinned.commit, recipe.digest)
        (file,) = self._recipes.given(found.text, recipe.path).files
        if found.preset is None or not isinstance(file.document, MappingValue):
            raise UsageError(f"{recipe.path} of {pinned.name} cannot be read.", "Fetch the registry again.")
        copied = replace(found.preset, facts=replace(found.preset.facts, copy_of=source))
        text = with_source(found.text, file.document, source)
        return replace(found, name=name or plain_name(recipe.path), preset=copied, text=text)

    def drifts(self, presets: Iterable[Preset]) -> Mapping[str, Finding]:
        """By the preset's name: copies whose recipe is another one at the registry's pin, or is unknown. Never
        raises."""
        copies = [each for each in presets if each.facts.copy_of is not None]
        try:
            pins = self.all() if copies else ()
        except SparkError as error:
            return {
                each.name: Finding(
                    "copy_unknown", Severity.UNKNOWN, error.summary, remedy=error.remedy, subject=each.name
                )
                for each in copies
            }
        return {each.name: found for each in copies if (found := drift(each, pins)) is not None}

    # --- consent --------------------------------------------------------------------------------------

    def approve(self, preset: Preset) -> RegistryRecipe:
        """The recipe of a preset, with its present content, may be launched. Raises UsageError for another preset."""
        pinned, recipe = self._behind(preset)
        pins = (
            replace(each, trusted=(*each.trusted, recipe.digest)) if each == pinned else each for each in self.all()
        )
        if recipe.digest not in pinned.trusted:
            self._store.keep(tuple(pins))
        return recipe

    def check(self, preset: Preset) -> None:
        """Raises NotReviewed for a recipe of a registry that was not approved with its present content."""
        if preset.origin is not Origin.REGISTRY:
            return
        pinned, recipe = self._behind(preset)
        if recipe.digest not in pinned.trusted:
            raise NotReviewed(
                f"{preset.name} is from the registry {pinned.name} ({pinned.commit[:12]}), and was not reviewed.",
                f"Read its command (spark-tui up {preset.name} --dry-run), then: "
                f"spark-tui registries approve {preset.name}",
            )

    def _behind(self, preset: Preset) -> tuple[PinnedRegistry, RegistryRecipe]:
        for pinned in self.all():
            recipe = pinned.recipe(preset.name)
            if recipe is not None and preset.origin is Origin.REGISTRY:
                return pinned, recipe
        raise UsageError(f"{preset.name} is not from a registry.", "Such presets are launched without approval.")

    # --- commits --------------------------------------------------------------------------------------

    async def _moved(self, pinned: PinnedRegistry, commit: str) -> RegistryUpdate:
        return await in_thread(self._pin, pinned, commit)

    def _pin(self, pinned: PinnedRegistry, commit: str) -> RegistryUpdate:
        found, skipped = self._examined(pinned, commit)
        changes = self._compare(pinned, found)
        fresh = _at(pinned, commit, found)
        approved = {each.name for each in pinned.recipes if each.digest in pinned.trusted}
        unseen = (each for each in fresh.recipes if each.digest not in pinned.trusted and not each.problem)
        unapproved = tuple(each.name for each in unseen if each.name in approved)
        kept = tuple(digest for digest in pinned.trusted if digest in {each.digest for each in fresh.recipes})
        fresh = replace(fresh, fetched=self._clock.now(), trusted=kept)
        self._store.publish(
            pinned.name, commit, {name: each.text for name, each in found.items() if each.problem is None}
        )
        others = (each for each in self.all() if each.name != pinned.name)
        self._store.keep((*others, fresh))
        drifted = self._drifted(fresh)
        return RegistryUpdate(
            fresh, commit, changes, moved=True, drifted=drifted, unapproved=unapproved, skipped=skipped
        )

    def _looked(self, pinned: PinnedRegistry, commit: str) -> RegistryUpdate:
        found, skipped = self._examined(pinned, commit)
        drifted = self._drifted(_at(pinned, commit, found))
        return RegistryUpdate(pinned, commit, self._compare(pinned, found), drifted=drifted, skipped=skipped)

    def _drifted(self, pinned: PinnedRegistry) -> tuple[Finding, ...]:
        """Of this registry's copies alone."""
        copies = ((each, each.facts.copy_of) for each in self._catalogue().presets)
        own = (each for each, source in copies if source is not None and source.address == pinned.address)
        return tuple(found for each in own if (found := drift(each, (pinned,))) is not None)

    def _compare(self, pinned: PinnedRegistry, found: Mapping[str, ExaminedRecipe]) -> tuple[RecipeChange, ...]:
        return changes_between(self._examined(pinned, pinned.commit)[0] if pinned.commit else {}, found)

    def _examined(self, pinned: PinnedRegistry, commit: str) -> tuple[dict[str, ExaminedRecipe], tuple[str, ...]]:
        """The recipes of a commit by their preset names, and the files that were not read. Raises UsageError for a
        registry without any recipe."""
        tree = self._store.tree(pinned.name, commit)
        gathered = self._recipes.gather(tree)
        gathered = replace(gathered, registry=replace(gathered.registry, address=pinned.address, commit=commit))
        beside = self._recipes.beside(gathered.registry.root, "")
        place = partial(posixpath.join, gathered.registry.root)
        files = tuple(each for found in gathered.files for each in with_commands(found, place(found.path), beside))
        names = _names(pinned.name, (each.path for each in files))
        skipped = (f"{each.file.removeprefix(f'{tree}/')}: {each.summary}" for each in gathered.passed_over)
        found = {names[each.path]: examine(each, gathered, names[each.path], chosen=True) for each in files}
        return found, (*self._store.skipped(pinned.name, commit), *skipped)


def _at(pinned: PinnedRegistry, commit: str, found: Mapping[str, ExaminedRecipe]) -> PinnedRegistry:
    recipes = tuple(RegistryRecipe(name, each.path, digest_of(each), problem_of(each)) for name, each in found.items())
    return replace(pinned, commit=commit, recipes=recipes)


def _names(registry: str, paths: Iterable[str]) -> dict[str, str]:
    """`eugr.qwen3-coder` for each path; where two files have one stem, the later ones are numbered."""
    names: dict[str, str] = {}
    for path in sorted(paths, key=lambda each: (each.count("/"), each)):
        first = name = plain_name(f"{registry}{SEPARATOR}{plain_name(path)}")
        number = 1
        while name in names.values():
            number += 1
            name = f"{first[:58]}-{number}"
        names[path] = name
    return names
