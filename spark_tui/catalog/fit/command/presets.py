"""presets: list, show, pin, check, diff, import, export."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, cast

import click
from msgspec.structs import asdict

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerSpec
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.errors import (
    ContainerNotFound,
    ExitCode,
    PresetError,
    RefusedError,
    SparkError,
    UsageError,
)
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.page import Object, Page, Row, Section, Tone, finding_count, finding_object, finding_section, maybe
from spark_tui.base.quantities import parse_bytes
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line
from spark_tui.catalog.fit.command.candidates import look_around, search_options
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.show.launch import verdict_object
from spark_tui.catalog.fit.show.presets import (
    MARKS,
    candidate_object,
    comparison,
    diff_page,
    drift_object,
    import_page,
    last_good_object,
    last_good_rows,
    names_table,
    overview,
    pin_object,
    pin_page,
    preset_detail,
    recipe,
)
from spark_tui.catalog.fit.use.finder import SORTS, PresetFinder, Search
from spark_tui.catalog.fit.use.fit import LaunchChecks, observe
from spark_tui.catalog.fit.use.recommend import Candidate
from spark_tui.catalog.presets.model.dialects.container_files import compose_text, quadlet_text, systemd_text
from spark_tui.catalog.presets.model.dialects.recipe_files import comment, to_sparkrun, yaml_text
from spark_tui.catalog.presets.model.diff import Diff
from spark_tui.catalog.presets.model.located import MappingValue
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import PRESETS, Origin, Preset, PresetCatalogue, Tag
from spark_tui.catalog.presets.model.registry import review_of
from spark_tui.catalog.presets.model.rights import findings_of
from spark_tui.catalog.presets.use.catalogue import find_preset
from spark_tui.catalog.presets.use.imports import (
    ImportedRecipe,
    ImportReport,
    PastedText,
    RecipeStore,
    import_copy,
    import_recipes,
)
from spark_tui.catalog.presets.use.pins import LastGood, PinPlan, Pins
from spark_tui.catalog.presets.use.preflight import Preflight, container_of, preset_diff
from spark_tui.catalog.presets.use.registries import RegistryManager
from spark_tui.catalog.presets.use.rights import PresetGrants, PresetSource, drifts
from spark_tui.cli.command import complete, group, preset_argument, settings_option
from spark_tui.cli.output import error_object, write_new
from spark_tui.cli.session import Session
from spark_tui.observe.metrics.use.history import History

MAX_PIPED: Final = 1024 * 1024
"""Bytes or characters; what is longer is refused."""


@group("presets")
def presets(session: Session) -> None:
    """List and show recipes. Without a command: the list.

    Put your own in ~/.config/spark-tui/presets, as sparkrun v2 YAML; yours replace built-in ones of the same name.
    """
    list_presets(session)


_LIST_EXAMPLES = """\
  spark-tui presets list --tag coding --fits --sort tok_s
  spark-tui presets list qwen --tools --on-disk --context 64k --users 2
"""


def _size(_: click.Context, __: click.Parameter, text: str) -> int | None:
    if not text:
        return None
    try:
        return parse_bytes(text)
    except ValueError:
        raise UsageError(f"`--max-need` must be a size; got {clean_line(text)[:40]!r}.", "For example: 30GiB") from None


@presets.sub("list", _LIST_EXAMPLES)
@click.argument("words", nargs=-1)
@click.option("--tag", "tags", multiple=True, type=click.Choice([tag.value for tag in Tag]), help="Use or trait.")
@click.option("--fits", is_flag=True, help="Only what fits now.")
@click.option("--tools", is_flag=True, help="Only what calls tools.")
@click.option("--on-disk", is_flag=True, help="Only with a downloaded model.")
@click.option("--max-need", "most_bytes", default="", callback=_size, metavar="SIZE", help="Maximum memory need.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="preset", help="Column to sort by.  [preset]")
@click.option("--reverse", is_flag=True, help="The other way round.")
@search_options
def presets_list(session: Session, words: tuple[str, ...], tags: tuple[str, ...], **wanted: Any) -> None:
    """Find presets by words, use and limits; unreadable files are named on stderr.

    Speeds with * were measured on this machine, others are published. Memory in GiB is what the launch needs.
    """
    list_presets(session, Search(tuple(word.lower() for word in words), tuple(Tag(tag) for tag in tags), **wanted))


def list_presets(session: Session, search: Search = Search()) -> None:  # noqa: B008 - immutable
    """Every preset that is found; what cannot be read goes to standard error."""

    async def work(context: Context) -> tuple[tuple[Candidate, ...], PresetCatalogue]:
        await look_around(context)
        world = context.store.world
        return await context[PresetFinder].judged(world, search), world[PRESETS]

    found, catalogue = session.run(work)
    if search.sort == "preset":
        found = tuple(sorted(found, key=lambda each: each.preset.name, reverse=search.reverse))
    if session.as_json:
        session.out.json([candidate_object(each) for each in found])
    session.out.table(names_table(found))
    session.err.problem(*catalogue.problems)


@presets.sub("compare", "  spark-tui presets compare gpt-oss-20b gpt-oss-120b --context 64k --users 2")
@click.argument("names", nargs=-1, required=True, shell_complete=complete("presets"))
@search_options
def compare_presets(session: Session, names: tuple[str, ...], context: int | None, users: int | None) -> None:
    """Compare two or three presets: fit, speed, format, licence, cautions."""
    if not 2 <= len(set(names)) <= len(MARKS):
        raise UsageError("Name two or three different presets.", "For example: spark-tui presets compare A B")
    search = Search(context=context, users=users)

    async def work(context: Context) -> list[Candidate]:
        await look_around(context)
        chosen = [find_preset(context, name) for name in names]
        for preset in chosen:
            await context[PresetFinder].judge(preset, search)
        found = {each.preset.name: each for each in context[PresetFinder].candidates(context.store.world, search)}
        return [found[preset.name] for preset in chosen]

    found = session.run(work)
    session.out.answer([candidate_object(each) for each in found], comparison(found))


@presets.sub("show", "  spark-tui presets show gpt-oss-120b")
@preset_argument
def show_preset(session: Session, name: str) -> None:
    """Show everything about one preset, its command and its last good start."""

    async def load(context: Context) -> tuple[Preset, Finding | None, LastGood]:
        preset = find_preset(context, name)
        await context[History].load()
        last = context[Pins].last_good(preset, await context[Pins].image(preset))
        return preset, drifts(context, (preset,)).get(preset.name), last

    preset, drift, last = session.run(load)
    session.out.json({**preset_detail(preset), **drift_object(drift), **last_good_object(last)})
    good = last_good_rows(last, f"spark-tui presets pin {preset.name}")
    session.out.page((*overview(preset, drift=drift, good=good), *recipe(preset)))
    nodes = " --nodes CLUSTER" if preset.min_nodes > 1 else ""
    session.err.say(f"The exact docker run: spark-tui up {preset.name}{nodes} --dry-run")


# --- pin ----------------------------------------------------------------------------------------------


_PIN_EXAMPLES = """\
  spark-tui presets pin gpt-oss-120b --dry-run
  spark-tui presets pin gpt-oss-120b --digest sha256:3f8e21
"""


@presets.sub("pin", _PIN_EXAMPLES)
@preset_argument
@click.option("--digest", default="", metavar="DIGEST", help="Another digest.  [of the last good start]")
@click.option("--dry-run", is_flag=True, help="Show the change; write nothing.")
def pin_preset(session: Session, name: str, digest: str, dry_run: bool) -> None:
    """Pin a preset to the image that last served well, by its digest.

    Written into your preset file; of a built-in preset, into a copy that becomes yours.
    """

    async def work(context: Context) -> PinPlan:
        preset = find_preset(context, name)
        await context[History].load()
        return await context[Pins].plan(preset, digest)

    _pin(session, work, dry_run=dry_run)


@presets.sub("unpin", "  spark-tui presets unpin gpt-oss-120b")
@preset_argument
@click.option("--dry-run", is_flag=True, help="Show the change; write nothing.")
def unpin_preset(session: Session, name: str, dry_run: bool) -> None:
    """Let a pinned preset follow its image tag again."""

    async def work(context: Context) -> PinPlan:
        return context[Pins].unpin_plan(find_preset(context, name))

    _pin(session, work, dry_run=dry_run)


def _pin(session: Session, make: Callable[[Context], Awaitable[PinPlan]], *, dry_run: bool) -> None:
    async def work(context: Context) -> tuple[PinPlan, str]:
        plan = await make(context)
        return plan, "" if dry_run else context[Pins].apply(plan).file

    plan, file = session.run(work, changes=not dry_run)
    session.out.answer(pin_object(plan, file), pin_page(plan, file))
    if dry_run:
        session.err.say("Nothing written.")


# --- rights -------------------------------------------------------------------------------------------


_ALLOW_EXAMPLES = """\
  spark-tui presets allow mine                        # what it asks for
  spark-tui presets allow mine devices privileged
  spark-tui presets allow mine --revoke
"""


@presets.sub("allow", _ALLOW_EXAMPLES)
@preset_argument
@click.argument("rights", nargs=-1, metavar="[RIGHT]...")
@click.option("--revoke", is_flag=True, help="Take back all that was allowed.")
def allow_rights(session: Session, name: str, rights: tuple[str, ...], revoke: bool) -> None:
    """Allow a preset rights over this machine that an engine does not need. Without a right: show them.

    A launch is refused until they are allowed by name: privileged, cap_add, devices, security_opt, pid, preload
    (LD_PRELOAD), piped_shell. Only warned of: network, ipc, image. Allowed to the recipe as it is now: when what it
    runs changes, it is asked for again.
    """

    async def work(context: Context) -> Preset:
        preset = find_preset(context, name)
        return context[PresetGrants].allow(preset, () if revoke else rights) if rights or revoke else preset

    preset = session.run(work, changes=bool(rights) or revoke)
    found = findings_of(preset, ())
    session.out.answer(
        {"id": preset.name, "allowed": list(preset.allowed), "findings": [finding_object(each) for each in found]},
        tuple(finding_section(each, flags=True) for each in found),
    )
    if not found:
        session.err.say(f"{preset.name} asks for no more rights than an engine needs.")


# --- import -------------------------------------------------------------------------------------------


_IMPORT_EXAMPLES = """\
  spark-tui presets import recipe.yaml --name mine
  spark-tui presets import eugr.qwen3-coder --name coder    # a copy, yours to change
  spark-tui presets import serve.sh          # a docker run command; - reads what you paste, until Ctrl-D
  git clone https://github.com/spark-arena/eugr-recipes.git && spark-tui presets import eugr-recipes
"""


@presets.sub("import", _IMPORT_EXAMPLES)
@click.argument("source", metavar="FILE|FOLDER|NAME|-")
@click.option("--name", default="", metavar="NAME", help="The preset's name.  [the file's, the container's]")
@click.option("--force", "replace", is_flag=True, help="Replace a preset of that name.")
def import_presets(session: Session, source: str, name: str, replace: bool) -> None:
    """Import recipes of eugr (version 1), sparkrun (version 2) and vLLM, and docker run commands, as your presets.

    A file, a folder of them, or a registry cloned with git; a script or guide with docker run commands; - for standard
    input. Nothing in them is run: hooks and mods are shown. Keys and tokens are removed. NAME of a registry's recipe
    makes a copy that remembers its commit and hash: `presets show` and doctor say when the recipe there changes.
    """
    given = PastedText(_piped(session), "standard input") if source == "-" else Path(source)
    is_file = isinstance(given, Path) and given.exists()

    async def work(context: Context) -> ImportReport:
        catalogue = context[PresetSource].load()
        builtin = [preset.name for preset in catalogue.presets if preset.origin is Origin.BUILTIN]
        preset = catalogue.get(source)
        if preset is not None and preset.origin is Origin.REGISTRY and not is_file:
            copy = context[RegistryManager].copy(preset, name)
            return import_copy(context[RecipeStore], copy, builtin=builtin, replace=replace)
        return import_recipes(
            context[RecipeStore], given, builtin=builtin, name=name, replace=replace, paths=context.paths
        )

    report = session.run(work, changes=True)
    refused = [recipe.problem for recipe in report.recipes if recipe.problem is not None]
    if len(refused) == len(report.recipes) == 1:
        raise refused[0]
    session.out.answer(_report_object(report), import_page(report, refused=False))
    if not session.as_json:
        session.err.problem(*(*refused, *report.passed_over))
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
        "findings": [finding_object(each) for each in review_of(recipe)],
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


_FORMATS = ("docker-run", "compose", "systemd", "quadlet", "sparkrun")
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
            await observe(context, session.err.note)
            return _of_plan((await context[LaunchChecks].judge(preset, overrides)).plan, format_)
        return _of_recipe(context, preset, overrides)

    text, notes = session.run(work)
    if output:
        write_new(output, text, "-o")
    file = maybe("file", output, "it was not asked for")
    session.out.json({"id": name, "format": format_, "text": text, **file, "notes": list(notes)})
    if not output:
        session.out.write(text)
    session.err.note(*notes)


def _of_plan(plan: LaunchPlan, format_: str) -> tuple[str, Sequence[str]]:
    """The file, and what a person should know before using it."""
    file, then, make = _OF_SPEC[format_]
    name = plan.spec.name
    about = [f"Made by spark-tui from its preset {plan.preset.name}."]
    notes = [*plan.notes, *(each.summary for each in findings_of(plan.preset) if each.severity is Severity.ERROR)]
    if then:
        about += [f"Save it as {file.format(name=name)}, then:", f"  {then.format(name=name)}"]
    for path in plan.spec.env_files:
        notes.append(f"It reads the keys from {path}, which spark-tui writes when it launches the preset.")
    if plan.directories:
        notes.append(f"These folders must be there: {', '.join(plan.directories)}")
    return make(plan.spec, tuple(about)), notes


def _of_recipe(context: Context, preset: Preset, overrides: Overrides) -> tuple[str, Sequence[str]]:
    found = context[RecipeStore].recipe(preset.file)
    if not isinstance(found.document, MappingValue):
        raise PresetError("The file holds no recipe any more.", "Restore it.", file=preset.file)
    exported = to_sparkrun(preset, found.document, overrides)
    if exported.document is found.document:
        return found.text, exported.notes  # unchanged, with its comments
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
            raise ContainerNotFound(f"There is no container named {container}.", "List them: spark-tui ps -a")
        return preset_diff(context[Preflight], preset, overrides, image, containers, container)

    found = session.run(work)
    rows = found.rows if everything else found.differing
    session.out.answer(
        {"id": found.preset, "container": found.container or None, "rows": [asdict(row) for row in rows]},
        diff_page(found, rows, launch=bool(settings)),
    )


@presets.sub("check", "  spark-tui presets check\n  spark-tui presets check gpt-oss-120b --set kv_cache_dtype=fp8")
@click.argument("name", required=False, shell_complete=complete("presets"))
@settings_option()
@click.option("--notes", "everything", is_flag=True, help="With all presets: notes too.")
def check_presets(session: Session, name: str | None, settings: tuple[str, ...], everything: bool) -> int:
    """Check what would fail in a launch, why, and the setting that helps. Exit code 4: an error was found."""
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> list[tuple[Preset, LaunchVerdict | SparkError]]:
        await observe(context, session.err.note)
        presets = (find_preset(context, name),) if name else context[PresetSource].load().presets
        return [(preset, await _checked(context, preset, overrides)) for preset in presets]

    checked = session.run(work)
    wrong = next((outcome for _, outcome in checked if name and isinstance(outcome, UsageError)), None)
    if wrong is not None:
        raise wrong
    session.out.json([_check_object(preset, outcome) for preset, outcome in checked])
    for preset, outcome in checked:
        session.out.page(_check_page(preset, outcome, notes=everything or name is not None))
    bad = any(isinstance(o, SparkError) or any(f.severity is Severity.ERROR for f in o.findings) for _, o in checked)
    return ExitCode.REFUSED if bad else ExitCode.DONE


async def _checked(context: Context, preset: Preset, overrides: Overrides) -> LaunchVerdict | SparkError:
    try:
        return await context[LaunchChecks].judge(preset, overrides)
    except SparkError as error:
        return error


def _check_page(preset: Preset, outcome: LaunchVerdict | SparkError, *, notes: bool) -> Page:
    if isinstance(outcome, SparkError):
        refused = (Row(outcome.summary, "error", Tone.BAD), Row(outcome.remedy, "fix"))
        return (Section(f"{preset.name}: cannot be launched", refused),)
    shown = [finding for finding in outcome.findings if notes or finding.severity is not Severity.INFO]
    head = Section(f"{preset.name}: {outcome.text}, {finding_count(outcome.findings)}")
    return (head, *(finding_section(finding, flags=True) for finding in shown))


def _check_object(preset: Preset, outcome: LaunchVerdict | SparkError) -> Object:
    if isinstance(outcome, SparkError):
        refused = {"id": outcome.id, "summary": outcome.summary, "remedy": outcome.remedy}
        return {"id": preset.name, "refused": refused, "fit": None, "findings": []}
    findings = [finding_object(each) for each in outcome.findings]
    return {"id": preset.name, "refused": None, "fit": verdict_object(outcome.fit), "findings": findings}
