"""presets: list, show, check, diff, import, export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final, cast

import click

from spark_tui.cli.command import complete, group, preset_argument, settings_option
from spark_tui.cli.engines import suggestion
from spark_tui.cli.output import error_object, write_new
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.preflight import container_of, preset_diff
from spark_tui.core.preset_imports import ImportedRecipe, ImportReport, PastedText, import_recipes
from spark_tui.domain.engine.container import ContainerSpec
from spark_tui.domain.engine.docker_run import render_text
from spark_tui.domain.errors import (
    ContainerNotFound,
    ExitCode,
    PresetError,
    RefusedError,
    SparkError,
    UnreachableError,
    UsageError,
)
from spark_tui.domain.finding import Severity
from spark_tui.domain.presets.dialects.container_files import compose_text, quadlet_text, systemd_text
from spark_tui.domain.presets.dialects.recipe_files import to_eugr, to_sparkrun
from spark_tui.domain.presets.dialects.yaml_text import comment, yaml_text
from spark_tui.domain.presets.diff import Diff
from spark_tui.domain.presets.located import MappingValue
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Origin, Preset, PresetCatalogue
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean_line, truncate
from spark_tui.present.json import Object, maybe
from spark_tui.present.launch import finding_count, finding_object, finding_section
from spark_tui.present.page import Page, Row, Section, Tone
from spark_tui.present.presets import (
    Checked,
    diff_page,
    import_page,
    names_table,
    overview,
    preset_detail,
    preset_object,
    recipe,
)

MAX_PIPED: Final = 1024 * 1024
"""Bytes or characters; what is longer is refused."""


def find_preset(context: Context, name: str) -> Preset:
    """The preset of that name. Raises UsageError with near names, or the PresetError of a file that would be it."""
    catalogue = context.presets.load()
    found = catalogue.get(name)
    if found is not None:
        return found
    for problem in catalogue.problems:
        if problem.file.rpartition("/")[2].rpartition(".")[0] == name:
            raise problem
    raise UsageError(
        f"There is no preset named {truncate(clean_line(name), 60)}.",
        suggestion(name, [preset.name for preset in catalogue.presets], "presets"),
    )


async def planned(context: Context, preset: Preset, overrides: Overrides) -> LaunchPlan:
    """With the image's own entrypoint where Docker answers, else by its name."""
    try:
        return await context.preflight.plan(preset, overrides)
    except UnreachableError:
        return context.preflight.dry_plan(preset, overrides)


@group("presets")
def presets(session: Session) -> None:
    """List and show recipes. Without a command: the list.

    Put your own in ~/.config/spark-tui/presets, as sparkrun v2 YAML; yours replace built-in ones of the same name.
    """
    list_presets(session)


@presets.sub("list")
def presets_list(session: Session) -> None:
    """List presets; unreadable files are named on stderr."""
    list_presets(session)


def list_presets(session: Session) -> None:
    """Every preset that can be read; what cannot goes to standard error."""

    async def load(context: Context) -> PresetCatalogue:
        return context.presets.load()

    catalogue = session.run(load)
    if session.as_json:
        session.out.json([preset_object(preset) for preset in catalogue.presets])
    else:
        session.out.table(names_table(catalogue))
    for problem in catalogue.problems:
        session.err.problem(problem)


@presets.sub("show", "  spark-tui presets show gpt-oss-120b")
@preset_argument
def show_preset(session: Session, name: str) -> None:
    """Show everything about one preset, and its command."""

    async def load(context: Context) -> Preset:
        return find_preset(context, name)

    preset = session.run(load)
    if session.as_json:
        session.out.json(preset_detail(preset))
        return
    session.out.page((*overview(preset), *recipe(preset)))
    session.err.say(f"The exact docker run: spark-tui up {preset.name} --dry-run")


# --- import -------------------------------------------------------------------------------------------


_IMPORT_EXAMPLES = """\
  spark-tui presets import recipe.yaml --name mine
  spark-tui presets import serve.sh          # a docker run command; - reads what you paste, until Ctrl-D
  git clone https://github.com/spark-arena/eugr-recipes.git && spark-tui presets import eugr-recipes
"""


@presets.sub("import", _IMPORT_EXAMPLES)
@click.argument("source", metavar="FILE|FOLDER|-")
@click.option("--name", default="", metavar="NAME", help="The preset's name.  [the file's, the container's]")
@click.option("--force", "replace", is_flag=True, help="Replace a preset of that name.")
def import_presets(session: Session, source: str, name: str, replace: bool) -> None:
    """Import recipes of eugr (version 1) and sparkrun (version 2), and docker run commands, as your presets.

    A file, a folder of them, or a registry cloned with git; a script or guide with docker run commands; - for standard
    input. Nothing in them is run: hooks and mods are shown. Keys and tokens are removed.
    """
    given = PastedText(_piped(session), "standard input") if source == "-" else Path(source)

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
        session.out.page(import_page(report, refused=False))
        for problem in (*refused, *report.passed_over):
            session.err.problem(problem)
        done = [recipe.recipe.name for recipe in report.recipes if recipe.problem is None]
        if done:
            session.err.say(f"The exact docker run: spark-tui up {done[0]} --dry-run")
    if len(refused) == len(report.recipes):
        raise RefusedError(f"None of {len(refused)} recipes could be imported.", "See the reason for each.")


def _piped(session: Session) -> str:
    """All of standard input, as far as a recipe can be long."""
    if session.stdin is None:
        raise UsageError("No standard input to read.", "Pipe a recipe or a docker run command into it.")
    if session.stdin.isatty():
        session.err.say("Paste a docker run command or a recipe, then press Ctrl-D on a line of its own.")
    binary = getattr(session.stdin, "buffer", None)
    if binary is None:  # a stream of text, which is already decoded
        return session.stdin.read(MAX_PIPED + 1)
    return cast("IO[bytes]", binary).read(MAX_PIPED + 1).decode("utf-8", "replace")


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


_FORMATS = ("docker-run", "compose", "systemd", "quadlet", "sparkrun", "eugr")
_EXPORT_EXAMPLES = """\
  spark-tui presets export gpt-oss-120b --format compose > compose.yaml
  spark-tui presets export gpt-oss-120b --format systemd -o gpt-oss-120b.service
  spark-tui presets export gpt-oss-120b --format sparkrun --set max_model_len=65536
"""


@presets.sub("export", _EXPORT_EXAMPLES)
@preset_argument
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="docker-run", help="[docker-run]")
@settings_option()
@click.option("-o", "--output", default="", metavar="FILE", help="Write to a new file.")
def export_preset(session: Session, name: str, format_: str, settings: tuple[str, ...], output: str) -> None:
    """Export a preset for another tool: a command, a Compose file, a service, a recipe.

    Keys and tokens are never included: the export names the private file that holds them.
    """
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> tuple[str, Sequence[str]]:
        preset = find_preset(context, name)
        if format_ in _OF_SPEC:
            return _of_plan(await planned(context, preset, overrides), format_)
        return _of_recipe(context, preset, overrides, format_)

    text, notes = session.run(work)
    if output:
        write_new(output, text, "-o")
    if session.as_json:
        file = maybe("file", output, "it was not asked for")
        session.out.json({"id": name, "format": format_, "text": text, **file, "notes": list(notes)})
        return
    if not output:
        session.out.write(text)
    for note in notes:
        session.err.note(note)


def _of_plan(plan: LaunchPlan, format_: str) -> tuple[str, Sequence[str]]:
    """The file, and what a person should know before using it."""
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
    return make(plan.spec, tuple(about)), notes


def _of_recipe(context: Context, preset: Preset, overrides: Overrides, format_: str) -> tuple[str, Sequence[str]]:
    found = context.recipes.recipe(preset.file)
    if not isinstance(found.document, MappingValue):
        raise PresetError("The file holds no recipe any more.", "Restore it.", file=preset.file)
    exported = to_sparkrun(preset, found.document, overrides)
    if exported.document is found.document and format_ == "sparkrun":
        return found.text, exported.notes  # unchanged, with its comments
    if format_ == "eugr":
        exported = to_eugr(preset, exported)
    about = comment((f"Made by spark-tui from its preset {preset.name}.",))
    return about + yaml_text(exported.document), exported.notes


_DIFF_EXAMPLES = """\
  spark-tui presets diff gpt-oss-120b
  spark-tui presets diff gpt-oss-120b --set max_model_len=65536
"""


@presets.sub("diff", _DIFF_EXAMPLES)
@preset_argument
@click.argument("container", required=False, default="", shell_complete=complete("engines"))
@settings_option()
@click.option("--all", "everything", is_flag=True, help="Equal settings too.")
def diff_preset(session: Session, name: str, container: str, settings: tuple[str, ...], everything: bool) -> None:
    """Compare a preset, a launch of it, and its running container."""
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> Diff:
        preset = find_preset(context, name)
        try:
            containers = await context.docker.containers()
            image = await context.docker.image(preset.reference)
        except SparkError:
            if container:
                raise
            containers, image = (), None  # without Docker the recipe can still be compared with the changes
        if container and container_of(preset, containers, container) is None:
            raise ContainerNotFound(f"There is no container named {container}.", "`spark-tui ps -a` lists them.")
        return preset_diff(context.preflight, preset, overrides, image, containers, container)

    found = session.run(work)
    rows = found.rows if everything else found.differing
    if session.as_json:
        session.out.json(
            {"id": found.preset, "container": found.container or None, "rows": [asdict(row) for row in rows]}
        )
        return
    session.out.page(diff_page(found, rows, launch=bool(settings)))


@presets.sub("check", "  spark-tui presets check\n  spark-tui presets check gpt-oss-120b --set kv_cache_dtype=fp8")
@click.argument("name", required=False, shell_complete=complete("presets"))
@settings_option()
@click.option("--notes", "everything", is_flag=True, help="With all presets: notes too.")
def check_presets(session: Session, name: str | None, settings: tuple[str, ...], everything: bool) -> int:
    """Check what would fail in a launch, why, and the setting that helps. Exit code 4: an error was found."""
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> list[tuple[Preset, Checked]]:
        context.collectors.sample_identity()
        presets = (find_preset(context, name),) if name else context.presets.load().presets
        return [(preset, await _checked(context, preset, overrides)) for preset in presets]

    checked = session.run(work)
    wrong = next((outcome for _, outcome in checked if name and isinstance(outcome, UsageError)), None)
    if wrong is not None:
        raise wrong
    if session.as_json:
        session.out.json([_check_object(preset, outcome) for preset, outcome in checked])
    else:
        for preset, outcome in checked:
            session.out.page(_check_page(preset, outcome, notes=everything or name is not None))
    bad = any(isinstance(o, SparkError) or any(f.severity is Severity.ERROR for f in o) for _, o in checked)
    return ExitCode.REFUSED if bad else ExitCode.DONE


async def _checked(context: Context, preset: Preset, overrides: Overrides) -> Checked:
    try:
        return await context.checks.check(preset, overrides)
    except SparkError as error:
        return error


def _check_page(preset: Preset, outcome: Checked, *, notes: bool) -> Page:
    if isinstance(outcome, SparkError):
        refused = (Row(outcome.summary, "error", Tone.BAD), Row(outcome.remedy, "fix"))
        return (Section(f"{preset.name}: cannot be launched", refused),)
    shown = [finding for finding in outcome if notes or finding.severity is not Severity.INFO]
    head = Section(f"{preset.name}: {finding_count(outcome)}")
    return (head, *(finding_section(finding, flags=True) for finding in shown))


def _check_object(preset: Preset, outcome: Checked) -> Object:
    error = outcome if isinstance(outcome, SparkError) else None
    findings = () if isinstance(outcome, SparkError) else outcome
    refused = {"id": error.id, "summary": error.summary, "remedy": error.remedy} if error is not None else None
    return {"id": preset.name, "refused": refused, "findings": [finding_object(each) for each in findings]}
