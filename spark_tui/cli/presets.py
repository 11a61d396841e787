"""presets import, presets export."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

import click

from spark_tui.cli.command import complete, group, preset_argument, settings_option
from spark_tui.cli.engines import suggestion
from spark_tui.cli.output import bulleted, error_object, labelled, wrapped, write_new
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.preflight import container_of, preset_diff
from spark_tui.core.preset_imports import Given, ImportedRecipe, ImportReport, Outcome, import_recipes
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
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.command import missing_values
from spark_tui.domain.presets.dialects.compose import compose_text
from spark_tui.domain.presets.dialects.eugr import to_eugr
from spark_tui.domain.presets.dialects.importing import ModNote
from spark_tui.domain.presets.dialects.sparkrun import to_sparkrun
from spark_tui.domain.presets.dialects.systemd import quadlet_text, systemd_text
from spark_tui.domain.presets.dialects.yaml_text import comment, yaml_text
from spark_tui.domain.presets.diff import Diff, DiffRow, as_mapping
from spark_tui.domain.presets.located import Table
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Origin, Preset, PresetCatalogue
from spark_tui.domain.quantities import human_bytes, short_tokens
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean_line, truncate
from spark_tui.present.json import Object, maybe
from spark_tui.present.page import Cell, Column, Tone, cells
from spark_tui.present.page import Table as PageTable
from spark_tui.present.presets import preset_detail, preset_object

_COLUMNS: Final = (
    Column("NAME"),
    Column("WEIGHTS", right=True),
    Column("CONTEXT", right=True, keep=7),
    Column("PUBLISHED", right=True, keep=8),
    Column("MODEL", keep=6, least=24),
)


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
        session.out.table(PageTable(_COLUMNS, tuple(_row(preset) for preset in catalogue.presets)))
    for problem in catalogue.problems:
        session.err.problem(problem)


def _row(preset: Preset) -> tuple[Cell, ...]:
    facts = preset.facts
    best = max((speed.tokens_per_second for speed in facts.published), default=None)
    return cells(
        Cell(preset.name, Tone.STRONG),
        "-" if facts.weights_bytes is None else human_bytes(facts.weights_bytes),
        "-" if facts.context_tokens is None else short_tokens(facts.context_tokens),
        "-" if best is None else f"{best:.0f} tok/s",
        preset.model,
    )


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
    width = session.out.terminal.width
    lines = labelled(_facts(preset), width)
    for title, items in _lists(preset):
        lines += ["", title, *bulleted(items, width)]
    lines += ["", "command", *(f"  {line}" for line in _command(preset))]
    session.out.lines(clean_line(line) for line in lines)
    session.err.say(f"The exact docker run: spark-tui up {preset.name} --dry-run")


def _facts(preset: Preset) -> tuple[tuple[str, str], ...]:
    facts = preset.facts
    sparks = "one Spark" if preset.min_nodes == 1 else f"{preset.min_nodes} Sparks"
    return (
        ("name", preset.name),
        ("title", facts.title),
        ("about", facts.description),
        ("model", f"{preset.model} @ {preset.model_revision}" if preset.model_revision else preset.model),
        ("image", preset.image),
        ("runtime", f"{preset.runtime} on {sparks}{', no GPU needed' if preset.cpu_only else ''}"),
        ("size", _size(preset)),
        ("quantization", facts.quantization),
        ("context", "" if facts.context_tokens is None else f"{facts.context_tokens:,} tokens"),
        ("input", ", ".join(facts.modalities)),
        ("publisher", facts.publisher),
        ("licence", facts.licence + (" (gated)" if facts.gated else "")),
        ("source", facts.source),
        ("file", f"{preset.file} ({preset.origin.value})"),
        ("needs", ", ".join(f"--set {key}=..." for key in missing_values(preset))),
    )


def _size(preset: Preset) -> str:
    facts = preset.facts
    parts = []
    if facts.total_parameters:
        active = f", {facts.active_parameters / 1e9:.3g} B active" if facts.active_parameters else ""
        parts.append(f"{facts.total_parameters / 1e9:.3g} B parameters{active}")
    if facts.weights_bytes is not None:
        parts.append(f"{human_bytes(facts.weights_bytes)} on disk")
    return "; ".join([*parts, facts.architecture] if facts.architecture else parts)


def _lists(preset: Preset) -> list[tuple[str, list[str]]]:
    facts = preset.facts
    published = [f"{s.tokens_per_second:g} tok/s: {s.conditions} [{s.source}]" for s in facts.published]
    found = [
        ("defaults", [f"{key} = {value}" for key, value in preset.defaults if value is not None]),
        ("environment", [mask_secrets(f"{key}={value}") for key, value in preset.env]),
        ("needed in the model store", [file.target for file in facts.required_files]),
        ("done at each start", [f"{step.command}: {step.summary}" for step in facts.required_steps]),
        ("notes", list(facts.notes)),
        ("cautions", list(facts.cautions)),
        ("published speeds", published),
        ("sampling that its makers recommend", [f"{key} = {value}" for key, value in facts.sampling]),
    ]
    return [(title, items) for title, items in found if items]


def _command(preset: Preset) -> list[str]:
    if preset.facts.runs_as_is:
        return ["(the image runs as it is, with the environment above)"]
    return preset.command.strip().splitlines() or [f"(made from the defaults) serve {preset.model}"]


MAX_PIPED: Final = 1024 * 1024
"""Bytes or characters; what is longer is refused."""

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


NOTHING = "-"


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
            {"id": found.preset, "container": found.container or None, "rows": [dict(as_mapping(row)) for row in rows]}
        )
        return
    session.out.line(_head(found, changed=bool(settings)))
    for row in rows:
        session.out.line(row.setting)
        session.out.lines(f"  {column:<8} {text}" for column, text in columns(row, found, changed=bool(settings)))


def _head(found: Diff, *, changed: bool) -> str:
    what = [f"preset {found.preset}"]
    if changed:
        what.append("this launch")
    what.append(f"container {found.container}" if found.container else "no container of it")
    count = len(found.differing)
    told = f"{count} setting{'s differ' if count != 1 else ' differs'}" if count else "nothing differs"
    return f"{', '.join(what)}: {told}"


def columns(row: DiffRow, found: Diff, *, changed: bool) -> list[tuple[str, str]]:
    """The columns that say something: the launch only when there are changes, the container only when there is one."""
    told = [("preset", row.preset or NOTHING)]
    if changed:
        told.append(("launch", row.launch or NOTHING))
    if found.container:
        told.append(("running", row.running or NOTHING))
    return told


def set_words(pairs: Iterable[tuple[str, str]]) -> str:
    """`--set port=8001 --set max_model_len=65536`, quoted for the shell; empty without pairs."""
    return shlex.join(word for key, value in pairs for word in ("--set", f"{key}={value}"))


_INDENT: Final = 10
"""Cells before a finding's words: its severity stands there."""


@presets.sub("check", "  spark-tui presets check\n  spark-tui presets check gpt-oss-120b --set kv_cache_dtype=fp8")
@click.argument("name", required=False, shell_complete=complete("presets"))
@settings_option()
@click.option("--notes", "everything", is_flag=True, help="With all presets: notes too.")
def check_presets(session: Session, name: str | None, settings: tuple[str, ...], everything: bool) -> int:
    """Check what would fail in a launch, why, and the setting that helps. Exit code 4: an error was found."""
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> list[tuple[Preset, tuple[Finding, ...] | SparkError]]:
        context.collectors.sample_identity()
        presets = (find_preset(context, name),) if name else context.presets.load().presets
        return [(preset, await _checked(context, preset, overrides)) for preset in presets]

    checked = session.run(work)
    wrong = next((outcome for _, outcome in checked if name and isinstance(outcome, UsageError)), None)
    if wrong is not None:
        raise wrong
    if session.as_json:
        session.out.json([_shape(preset, outcome) for preset, outcome in checked])
    else:
        for preset, outcome in checked:
            _checking_tell(session, preset, outcome, notes=everything or name is not None)
    bad = any(isinstance(o, SparkError) or any(f.severity is Severity.ERROR for f in o) for _, o in checked)
    return ExitCode.REFUSED if bad else ExitCode.DONE


async def _checked(context: Context, preset: Preset, overrides: Overrides) -> tuple[Finding, ...] | SparkError:
    try:
        return await context.checks.check(preset, overrides)
    except SparkError as error:
        return error


def _checking_tell(session: Session, preset: Preset, outcome: tuple[Finding, ...] | SparkError, *, notes: bool) -> None:
    if isinstance(outcome, SparkError):
        session.out.line(f"{preset.name}: cannot be launched: {outcome.summary}")
        session.out.line(f"  {outcome.remedy}")
        return
    shown = [finding for finding in outcome if notes or finding.severity is not Severity.INFO]
    session.out.line(f"{preset.name}: {_count(outcome)}")
    for finding in shown:
        session.out.lines(_lines(finding, session.out.terminal.width))


def _lines(finding: Finding, width: int | None) -> Iterable[str]:
    parts = [f"{finding.summary}  [{finding.id}]", finding.remedy]
    parts += [f"evidence: {'; '.join(finding.evidence)}"] if finding.evidence else []
    room = None if width is None else max(30, width - _INDENT)
    lines = [line for part in parts for line in wrapped(part, room)]
    lines += [f"fix:  {set_words(finding.change)}"] if finding.change else []  # in one line: it is to be copied
    yield f"  {severity_word(finding.severity):<{_INDENT - 2}}{lines[0]}"
    yield from (f"{'':{_INDENT}}{line}" for line in lines[1:])


def _count(findings: tuple[Finding, ...]) -> str:
    counts = [(level, sum(finding.severity is level for finding in findings)) for level in Severity]
    words = [f"{count} {severity_word(level)}{'s' if count > 1 else ''}" for level, count in counts if count]
    return ", ".join(words) or "nothing to say"


def _shape(preset: Preset, outcome: tuple[Finding, ...] | SparkError) -> Object:
    if isinstance(outcome, SparkError):
        refused = {"id": outcome.id, "summary": outcome.summary, "remedy": outcome.remedy}
        return {"id": preset.name, "refused": refused, "findings": []}
    return {
        "id": preset.name,
        "refused": None,
        "findings": [finding_object(finding) for finding in outcome],
    }


def severity_word(severity: Severity) -> str:
    """A rule's severity as data: INFO is a `note`."""
    return "note" if severity is Severity.INFO else severity.value


def finding_object(finding: Finding) -> Object:
    """A finding as data."""
    return {
        "id": finding.id,
        "severity": severity_word(finding.severity),
        "summary": finding.summary,
        "evidence": "; ".join(finding.evidence),
        "remedy": finding.remedy,
        "fix": dict(finding.change),
    }
