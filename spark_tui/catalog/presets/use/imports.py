"""Other people's recipes into the person's preset folder, each by itself: one that is refused stops no other."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs

from spark_tui.base.actions import by_front_end
from spark_tui.base.engine.invocation import OPTIONS
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import port_named
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.dialects.docker_run import ids_of
from spark_tui.catalog.presets.model.dialects.found_files import with_commands
from spark_tui.catalog.presets.model.dialects.importing import (
    CollectedFiles,
    ExaminedRecipe,
    FoundFile,
    Registry,
    examine,
    names_of,
    own_name,
)
from spark_tui.catalog.presets.model.dialects.launchers import Beside
from spark_tui.catalog.presets.model.overrides import SHARE, Overrides
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.rules.check import deviations


class ImportOutcome(StrEnum):
    """What became of one recipe."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


class ImportedRecipe(Struct, frozen=True):
    """One recipe of an import. `file` is the preset that was written, `problem` why none was."""

    recipe: ExaminedRecipe
    outcome: ImportOutcome
    file: str = ""
    problem: SparkError | None = None


class ImportReport(Struct, frozen=True):
    """A whole import, in the order of the files. `passed_over` is what was not read at all."""

    registry: Registry
    recipes: tuple[ImportedRecipe, ...]
    passed_over: tuple[SparkError, ...] = ()

    def count(self, outcome: ImportOutcome) -> int:
        return sum(recipe.outcome is outcome for recipe in self.recipes)


class PastedText(Struct, frozen=True):
    """A text in place of a file: a recipe, or `docker run` commands. `called` is what it is called in the report."""

    text: str
    called: str


@port_named("recipes")
class RecipeStore(Protocol):
    """Recipe files of other people, and the person's own preset folder. Raises PresetError for what cannot be read."""

    def gather(self, source: Path) -> CollectedFiles:
        """Every recipe in a file or folder, and what its registry says of itself.

        Raises UsageError for a path that is neither, PresetError for a folder that is too large.
        """

    def beside(self, root: str, home: str) -> Beside:
        """The files that a file below `root` may name; with the person's `home`, also by a whole path."""

    def given(self, text: str, called: str) -> CollectedFiles:
        """A text in place of a file. Raises PresetError for one that is too large."""

    def recipe(self, file: str) -> FoundFile:
        """A preset's file, as it is written."""

    def own_text(self, name: str) -> str | None:
        """What the person's own file of that name holds, None where there is none."""

    def write(self, name: str, text: str, *, replace: bool = False) -> Path:
        """Puts a preset into the person's folder in one step, mode 0644, and returns its path.

        Raises RefusedError when there is one of that name and `replace` is false, SparkError when it cannot be written.
        """


def import_recipes(
    store: RecipeStore,
    source: Path | PastedText,
    *,
    builtin: Collection[str] = (),
    name: str = "",
    replace: bool = False,
    paths: HostPaths | None = None,
    auto: bool = False,
    values: Mapping[str, str] | None = None,
) -> ImportReport:
    """Imports a recipe file, every recipe of a folder, or every `docker run` of a text.

    `builtin` are the names of our own presets, `name` the preset's name for a single file; `paths` is where the store
    lies, which a command's mounts are held against; `auto`: a launch settles its memory share by itself; `values` are
    those of a launcher's variables. A preset that is there already is left alone, ours or the person's, unless
    `replace`.
    Raises UsageError for a path or name that cannot be used, PresetError for a folder or text that is too large.
    """
    gathered = store.given(source.text, source.called) if isinstance(source, PastedText) else store.gather(source)
    pasted, root = isinstance(source, PastedText), gathered.registry.root
    beside = store.beside(root, paths.home if paths is not None and not pasted else "")
    known = {**ids_of(paths), **(values or {})}
    files = tuple(
        each
        for found in gathered.files
        for each in with_commands(found, posixpath.join(root, found.path), beside, known)
    )
    if values and not any(found.dialect for found in files):
        raise UsageError(
            "--set is for variables of a Compose file, unit or script, and this is none.",
            "Change a recipe's values at its launch: spark-tui up NAME --set KEY=VALUE",
        )
    names = names_of(tuple(found.path for found in files))
    names |= {found.path: own_name(found) for found in files if pasted or (found.line and not found.command)}
    if name:
        if len(names) > 1:
            raise UsageError(
                f"--name is for one recipe; there are {len(names)}.", "Name one file, or leave out --name."
            )
        names = dict.fromkeys(names, _preset_name(name))
    examined = (examine(each, gathered, names[each.path], paths=paths, chosen=bool(name)) for each in files)
    told = (_with_deviations(each, paths, Overrides(auto_share=auto)) for each in examined)
    recipes = tuple(_import(store, each, builtin, replace=replace) for each in told)
    if not recipes and not pasted:
        passed = f"{len(gathered.passed_over)} passed over" if gathered.passed_over else ""
        raise UsageError(
            f"There is no recipe in {clean_line(str(source))}.",
            "A recipe is a YAML file with a model, a container and a command. A docker run command is read too.",
            detail="\n".join(filter(None, (passed, *map(str, gathered.passed_over)))),
        )
    return ImportReport(gathered.registry, recipes, gathered.passed_over)


def import_copy(
    store: RecipeStore, recipe: ExaminedRecipe, *, builtin: Collection[str] = (), replace: bool = False
) -> ImportReport:
    """Saves a registry's recipe as a preset of the person's own, under its name there or another one. Raises UsageError
    for a name that cannot be one."""
    source = recipe.preset.facts.copy_of if recipe.preset is not None else None
    registry = Registry("", source.address, source.commit) if source is not None else Registry("")
    checked = structs.replace(recipe, name=_preset_name(recipe.name))
    return ImportReport(registry, (_import(store, checked, builtin, replace=replace),))


def _with_deviations(recipe: ExaminedRecipe, paths: HostPaths | None, overrides: Overrides) -> ExaminedRecipe:
    """With what a launch does otherwise than the recipe says; one that cannot be planned yet has its own reasons."""
    if recipe.preset is None or paths is None:
        return recipe
    try:
        differs = deviations(plan(recipe.preset, overrides, paths))
    except SparkError:
        return recipe
    texts = (each.text for each in differs if each.source or each.id == SHARE)
    return structs.replace(recipe, changes=(*recipe.changes, *texts))


def _preset_name(text: str) -> str:
    try:
        return str(OPTIONS["name"].read(text))
    except ValueError:
        raise UsageError(
            f"{truncate(clean_line(text), 60)} cannot be a preset's name.",
            "Letters, digits, `_`, `.` and `-`, at most 63, the first a letter or digit.",
        ) from None


def _import(store: RecipeStore, recipe: ExaminedRecipe, builtin: Collection[str], *, replace: bool) -> ImportedRecipe:
    if recipe.problem is not None:
        return ImportedRecipe(recipe, ImportOutcome.REFUSED, problem=recipe.problem)
    try:
        earlier = store.own_text(recipe.name)
        if earlier == recipe.text:
            return ImportedRecipe(recipe, ImportOutcome.UNCHANGED)
        taken = ""
        if earlier is not None:
            taken = f"You have a preset named {recipe.name}, and it is another one."
        elif recipe.name in builtin:
            taken = f"It would take the place of the built-in preset {recipe.name}."
        if taken and not replace:
            ways = by_front_end(
                "Rename its file, or change its --name.", "Give another --name, or replace it with --force."
            )
            problem = RefusedError(taken, ways)
            return ImportedRecipe(recipe, ImportOutcome.REFUSED, problem=problem)
        file = store.write(recipe.name, recipe.text, replace=earlier is not None)
        return ImportedRecipe(recipe, ImportOutcome.IMPORTED, str(file))
    except SparkError as error:
        return ImportedRecipe(recipe, ImportOutcome.REFUSED, problem=error)
