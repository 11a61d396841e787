"""presets import, presets export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from spark_tui.cli.diagnostics import error_object
from spark_tui.cli.files import write_new
from spark_tui.cli.recipes import find_preset, planned
from spark_tui.cli.session import Session
from spark_tui.cli.shapes import Object, maybe
from spark_tui.cli.tables import bulleted
from spark_tui.core.context import Context
from spark_tui.core.preset_imports import Given, ImportedRecipe, ImportReport, Outcome, import_recipes
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.errors import PresetError, RefusedError, SparkError, UsageError
from spark_tui.domain.presets.container_spec import ContainerSpec
from spark_tui.domain.presets.dialects.export_compose import compose_text
from spark_tui.domain.presets.dialects.export_eugr import to_eugr
from spark_tui.domain.presets.dialects.export_quadlet import quadlet_text
from spark_tui.domain.presets.dialects.export_sparkrun import to_sparkrun
from spark_tui.domain.presets.dialects.export_systemd import systemd_text
from spark_tui.domain.presets.dialects.provenance import ModNote
from spark_tui.domain.presets.dialects.yaml_text import comment, yaml_text
from spark_tui.domain.presets.docker_run import render_text
from spark_tui.domain.presets.located import Table
from spark_tui.domain.presets.plan import LaunchPlan, Overrides, overrides_from_pairs, pairs_from
from spark_tui.domain.presets.preset import Origin, Preset
from spark_tui.domain.text import clean_line

MAX_PIPED: Final = 1024 * 1024
"""Bytes or characters; what is longer is refused."""

# --- import -------------------------------------------------------------------------------------------


def import_presets(session: Session, source: str, *, name: str, replace: bool) -> None:
    """Imports a file, a folder or standard input (`-`), and tells what became of every recipe in it.

    Raises the first recipe's problem where none could be imported.
    """
    given = Given(_piped(session), "standard input") if source == "-" else Path(source)

    async def work(context: Context) -> ImportReport:
        session.refuse_if_read_only(context)
        builtin = [preset.name for preset in context.presets.load().presets if preset.origin is Origin.BUILTIN]
        return import_recipes(context.recipes, given, builtin=builtin, name=name, replace=replace, paths=context.paths)

    report = session.run(work)
    refused = [recipe.problem for recipe in report.recipes if recipe.problem is not None]
    if len(refused) == len(report.recipes) == 1:
        raise refused[0]
    if session.as_json:
        session.out.json(_report_object(report))
    else:
        session.out.lines(clean_line(line) for recipe in report.recipes for line in _report_lines(recipe))
        _tell(session, report, refused)
    if len(refused) == len(report.recipes):
        raise RefusedError(f"None of {len(refused)} recipes could be imported.", "See what is said of each.")


def _piped(session: Session) -> str:
    """All of standard input, as far as a recipe can be long."""
    if session.stdin is None:
        raise UsageError("There is no standard input to read.", "Pipe a recipe or a docker run command into it.")
    if session.stdin.isatty():
        session.err.say("Paste a docker run command or a recipe, then press Ctrl-D on a line of its own.")
    binary = getattr(session.stdin, "buffer", None)
    if binary is None:  # a stream of text, which is already decoded
        return session.stdin.read(MAX_PIPED + 1)
    return cast("IO[bytes]", binary).read(MAX_PIPED + 1).decode("utf-8", "replace")


def _report_lines(imported: ImportedRecipe) -> Iterator[str]:
    recipe = imported.recipe
    if imported.problem is not None:
        return
    where = f" -> {imported.file}" if imported.file else ""
    yield f"{recipe.name}  {imported.outcome.value} from {recipe.path}{where}"
    for title, items in (
        ("changed", recipe.changes),
        ("note", recipe.notes),
        ("kept, not used by spark-tui", tuple(mask_secrets(f"{key} = {value}") for key, value in recipe.kept)),
        ("hooks, shown and never run", recipe.hooks),
        ("needs", tuple(f"--set {key}=..." for key in recipe.needs)),
    ):
        if items:
            yield f"  {title}"
            yield from (f"  {line}" for item in items for line in bulleted([item]))
    for mod in recipe.mods:
        yield from _mod_lines(mod)


def _mod_lines(mod: ModNote) -> Iterator[str]:
    if not mod.script:
        yield f"  mod {mod.name}, not applied: the registry does not have it"
        return
    yield f"  mod {mod.name}, not applied: {mod.script}"
    yield from (f"    | {line}" for line in mod.lines)
    if mod.more_lines:
        yield f"    | ({mod.more_lines} more lines)"


def _tell(session: Session, report: ImportReport, refused: list[SparkError]) -> None:
    for problem in (*refused, *report.passed_over):
        session.err.problem(problem)
    imported = [recipe for recipe in report.recipes if recipe.outcome is not Outcome.REFUSED]
    if imported:
        counts = ", ".join(f"{n} {outcome.value}" for outcome in Outcome if (n := report.count(outcome)))
        session.err.say(f"{counts}. The exact docker run: spark-tui up {imported[0].recipe.name} --dry-run")


def _report_object(report: ImportReport) -> Object:
    registry = report.registry
    return {
        "root": registry.root,
        **maybe("address", registry.address, "it is no git checkout with a remote"),
        **maybe("commit", registry.commit, "it is no git checkout"),
        **maybe("licence", registry.licence, "it is not stated"),
        "recipes": [_recipe_object(recipe) for recipe in report.recipes],
        "passed_over": [error_object(problem) for problem in report.passed_over],
    }


def _recipe_object(imported: ImportedRecipe) -> Object:
    recipe = imported.recipe
    return {
        "id": recipe.name,
        "source": recipe.path,
        "outcome": imported.outcome.value,
        **maybe("dialect", recipe.dialect.value if recipe.dialect else None, "the file could not be read"),
        **maybe("file", imported.file, "nothing was written"),
        "changes": list(recipe.changes),
        "kept": {key: mask_secrets(value) for key, value in recipe.kept},
        "hooks": list(recipe.hooks),
        "mods": [{"name": mod.name, "script": mod.script, "lines": list(mod.lines)} for mod in recipe.mods],
        "values_needed": list(recipe.needs),
        "notes": list(recipe.notes),
        **maybe("problem", error_object(imported.problem) if imported.problem else None, "there is none"),
    }


# --- export -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exported:
    """A file for another tool, and what a person should know before using it."""

    text: str
    notes: tuple[str, ...] = ()


_OfSpec = Callable[[ContainerSpec, tuple[str, ...]], str]
# Format: the file's usual name, what to do with it, and how it is made of the container.
_OF_SPEC: Final[dict[str, tuple[str, str, _OfSpec]]] = {
    "docker-run": ("", "", lambda spec, _: render_text(spec) + "\n"),
    "compose": ("compose.yaml", "docker compose up -d", compose_text),
    "systemd": ("/etc/systemd/system/{name}.service", "systemctl enable --now {name}", systemd_text),
    "quadlet": (
        "/etc/containers/systemd/{name}.container",
        "systemctl daemon-reload && systemctl start {name}",
        quadlet_text,
    ),
}


def export_preset(session: Session, name: str, format_: str, settings: tuple[str, ...], output: str) -> None:
    """Prints or writes a preset in another tool's words. Keys and tokens are never in it."""
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> Exported:
        preset = find_preset(context, name)
        if format_ in _OF_SPEC:
            return _of_plan(await planned(context, preset, overrides), format_)
        return _of_recipe(context, preset, overrides, format_)

    exported = session.run(work)
    if output:
        write_new(output, exported.text, "-o")
    if session.as_json:
        session.out.json(
            {
                "id": name,
                "format": format_,
                "text": exported.text,
                **maybe("file", output, "it was not asked for"),
                "notes": list(exported.notes),
            }
        )
        return
    if not output:
        session.out.write(exported.text)
    for note in exported.notes:
        session.err.note(note)


def _of_plan(plan: LaunchPlan, format_: str) -> Exported:
    file, then, make = _OF_SPEC[format_]
    name = plan.spec.name
    about = [f"Made by spark-tui from its preset {plan.preset.name}."]
    notes = list(plan.notes)
    if then:
        about += [f"Save it as {file.format(name=name)}, then:", f"  {then.format(name=name)}"]
    for path in plan.spec.env_files:
        notes.append(f"It reads the keys from {path}, which spark-tui writes when it launches the preset.")
    if plan.directories:
        notes.append(f"These folders must be there: {', '.join(plan.directories)}")
    return Exported(make(plan.spec, tuple(about)), tuple(notes))


def _of_recipe(context: Context, preset: Preset, overrides: Overrides, format_: str) -> Exported:
    found = context.recipes.recipe(preset.file)
    if not isinstance(found.document, Table):
        raise PresetError("The file holds no recipe any more.", "Restore it.", file=preset.file)
    exported = to_sparkrun(preset, found.document, overrides)
    if exported.document is found.document and format_ == "sparkrun":
        return Exported(found.text, exported.notes)  # unchanged, with its comments
    if format_ == "eugr":
        exported = to_eugr(preset, exported)
    about = comment((f"Made by spark-tui from its preset {preset.name}.",))
    return Exported(about + yaml_text(exported.document), exported.notes)
