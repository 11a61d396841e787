"""presets allow, diff, check: what a launch may do, what it would change, and what is wrong with it."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from spark_tui.base.context import Context
from spark_tui.base.errors import (
    ContainerNotFound,
    ExitCode,
    SparkError,
    UsageError,
)
from spark_tui.base.finding import Severity
from spark_tui.base.page import Object, Page, Row, Section, Tone, finding_count, finding_object, finding_section
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.show.launch import verdict_object
from spark_tui.catalog.fit.show.preset_files import (
    diff_page,
)
from spark_tui.catalog.fit.use.fit import LaunchChecks, observe
from spark_tui.catalog.presets.model.diff import Diff
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.model.plan import read_elsewhere
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.rights import findings_of
from spark_tui.catalog.presets.use.comparing import container_of, preset_diff
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import PresetGrants, PresetSource, find_preset
from spark_tui.cli.command import command, complete, preset_argument, settings_option
from spark_tui.cli.session import Session

_ALLOW_EXAMPLES = """\
  spark-tui presets allow mine                        # what it asks for
  spark-tui presets allow mine devices privileged
  spark-tui presets allow mine --revoke
"""


@command("allow", _ALLOW_EXAMPLES)
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


_DIFF_EXAMPLES = """\
  spark-tui presets diff gpt-oss-120b
  spark-tui presets diff gpt-oss-120b --set max_model_len=65536
"""


@command("diff", _DIFF_EXAMPLES)
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


@command("check", "  spark-tui presets check\n  spark-tui presets check gpt-oss-120b --set kv_cache_dtype=fp8")
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
    places = tuple(Section(rows=(Row(each, "model"),)) for each in read_elsewhere(outcome.plan))
    return (head, *places, *(finding_section(finding, flags=True) for finding in shown))


def _check_object(preset: Preset, outcome: LaunchVerdict | SparkError) -> Object:
    if isinstance(outcome, SparkError):
        refused = {"id": outcome.id, "summary": outcome.summary, "remedy": outcome.remedy}
        return {"id": preset.name, "refused": refused, "fit": None, "findings": []}
    findings = [finding_object(each) for each in outcome.findings]
    return {"id": preset.name, "refused": None, "fit": verdict_object(outcome.fit), "findings": findings}
