"""up: from a preset to an engine that serves."""

from __future__ import annotations

from collections.abc import Mapping

import click

from spark_tui.cli.command import command, complete, preset_argument, settings_option
from spark_tui.cli.output import Interrupted
from spark_tui.cli.presets import find_preset, planned
from spark_tui.cli.progress import LaunchProgress, keeps_starting, shown, supervised
from spark_tui.cli.session import Session, typed
from spark_tui.core.context import Context
from spark_tui.core.fit import WillNotFit
from spark_tui.core.jobs import StepState
from spark_tui.core.launch import LaunchRequest, LaunchResult
from spark_tui.domain.engine.docker_run import render_argv, render_text
from spark_tui.domain.errors import UnreachableError
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.fit import Fit
from spark_tui.domain.presets.overrides import overrides_from_pairs, pairs_from
from spark_tui.domain.presets.plan import LaunchPlan, key_wanted
from spark_tui.domain.text import clean_line
from spark_tui.present.engines import engine_object, timeline_object
from spark_tui.present.launch import finding_fix, finding_object, fit_figures, fit_object, fit_verdict
from spark_tui.present.logs import set_options

_UP_EXAMPLES = """\
  spark-tui up gpt-oss-120b
  spark-tui up gpt-oss-120b --set max_model_len=65536 --port 8001
  spark-tui up gpt-oss-120b --expose lan        with an API key, made for you
  spark-tui up gpt-oss-120b --dry-run           print the docker run
  spark-tui up gpt-oss-120b --json              one object per step, then the result
"""


@command("up", _UP_EXAMPLES)
@click.argument("name", metavar="PRESET", shell_complete=complete("presets"))
@settings_option("A value of the preset; may be repeated.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port on this machine.")
@click.option("--name", "engine", metavar="NAME", help="The container's name.  [the preset's]")
@click.option("--expose", type=click.Choice(["local", "lan"]), help="Who can reach it.  [local]")
@click.option("--api-key/--no-api-key", default=None, help="Require a key.  [with --expose lan]")
@click.option("--dry-run", is_flag=True, help="Print the docker run and change nothing; works without Docker.")
@click.option("--wait/--no-wait", default=True, help="Wait until it serves.  [--wait]")
@click.option("--warm/--no-warm", default=True, help="Make the slow first request.  [--warm]")
@click.option(
    "--fetch/--no-fetch", default=True,
    help="Download missing model files first; else the engine downloads them.  [--fetch]",
)  # fmt: skip
@click.option(
    "--replace", "replace_running", is_flag=True, help="Stop an engine of that name that runs with other settings."
)
@click.option("--force", is_flag=True, help="Launch even if it does not fit in memory.")
def up(
    session: Session,
    name: str,
    settings: tuple[str, ...],
    port: int | None,
    engine: str | None,
    expose: str | None,
    api_key: bool | None,
    dry_run: bool,
    **how: bool,
) -> None:
    """Launch a preset and follow it until it serves.

    Check, download the model, pull the image, create, start, follow the boot, warm up. Finished steps are skipped, so
    the same command resumes after an interruption. Prints the engine's address.
    """
    key = None if api_key is None else "yes" if api_key else "no"
    options = (("port", port), ("name", engine), ("exposure", expose), ("api_key", key))
    # An option of its own wins over the same key after `--set`.
    pairs = pairs_from(settings) | {key: str(value) for key, value in options if value is not None}
    if dry_run:
        _dry_run(session, name, pairs, fetch=how["fetch"])
        return
    try:
        _launch(session, name, pairs, how)
    except WillNotFit as error:
        if session.stdin is None or not session.stdin.isatty() or session.as_json:
            raise
        session.err.note(error.summary)
        for change in error.fit.changes:
            session.err.say(f"  - {change.summary}{f' ({set_options(change.pairs)})' if change.pairs else ''}")
        if not typed(session, f"It will fail or may freeze the machine. Type {name} to launch anyway: ", name):
            raise
        _launch(session, name, pairs, {**how, "force": True})


def _launch(session: Session, name: str, pairs: dict[str, str], how: Mapping[str, bool]) -> None:
    overrides = overrides_from_pairs(pairs)
    engine = overrides.name or name
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        session.refuse_if_read_only(context)
        preset = find_preset(context, name)
        plan = await context.preflight.plan(preset, overrides)
        findings = await context.checks.check(preset, overrides)
        _note(session, name, plan, pairs, findings)
        request = LaunchRequest(preset, overrides, **how)
        progress = LaunchProgress(session, context, engine, moved)
        launched = await supervised(context, shown(progress, context.launcher.launch(request, progress.step)))
        _show_result(session, launched, request, findings, context.clock.now())

    session.run(work, on_interrupt=lambda: _interrupted(session.command, engine, moved))


def _dry_run(session: Session, name: str, pairs: dict[str, str], *, fetch: bool) -> None:
    overrides = overrides_from_pairs(pairs)

    async def work(context: Context) -> tuple[LaunchPlan, tuple[Finding, ...]]:
        preset = find_preset(context, name)
        plan = await planned(context, preset, overrides)
        context.collectors.sample_identity()
        findings = await context.checks.check(preset, overrides)
        missing = await context.fetching.missing(plan) if fetch and context.fetching is not None else ()
        if missing:
            titles = ", ".join(dict.fromkeys(clean_line(each.title) for each in missing))
            session.err.note(f"Fetched first: {titles}. How much that is: spark-tui models pull {name} --dry-run")
        return plan, findings

    plan, findings = session.run(work)
    if session.as_json:
        session.out.json(
            {
                "id": plan.spec.name,
                "preset": plan.preset.name,
                "image": plan.spec.image,
                "model": plan.model,
                "served_name": plan.served_name,
                "port": plan.host_port,
                "url": plan.base_url,
                "docker_run": render_text(plan.spec),
                "argv": list(render_argv(plan.spec)),
                "directories": list(plan.directories),
                "notes": list(plan.notes),
                "findings": [finding_object(each) for each in findings],
            }
        )
        return
    session.out.line(render_text(plan.spec))
    _note(session, name, plan, pairs, findings)
    for path in plan.spec.env_files:
        session.err.note(f"{path} holds the keys; spark-tui writes it at launch.")


def _note(session: Session, name: str, plan: LaunchPlan, pairs: dict[str, str], findings: tuple[Finding, ...]) -> None:
    """The plan's notes, errors and warnings of the rules, and the number of further notes; nothing is refused."""
    for note in plan.notes:
        session.err.note(note)
    loud = [each for each in findings if each.severity is not Severity.INFO]
    for each in loud:
        session.err.note(f"{each.summary} {finding_fix(each, flags=True)}")
    more = len(findings) - len(loud)
    if more:
        again = f"spark-tui presets check {name} {set_options(tuple(pairs.items()))}".rstrip()
        session.err.note(f"{more} note{'s' if more > 1 else ''} more: {again}")


def _show_result(
    session: Session, launched: LaunchResult, request: LaunchRequest, findings: tuple[Finding, ...], now: float
) -> None:
    view, plan = launched.view, launched.plan
    if session.as_json:
        session.out.json_line(
            {
                "type": "result",
                **engine_object(view, now),
                "url": plan.base_url,
                "already_running": launched.already_running,
                "phases": timeline_object(view.timeline),
                "notes": list(plan.notes),
                "findings": [finding_object(each) for each in findings],
            }
        )
        return
    session.out.line(plan.base_url)
    if key_wanted(request.preset, request.overrides):
        for path in plan.spec.env_files:
            session.err.say(f"API key: in {path}, as {request.preset.server.key_variable}")
    if request.wait:
        session.err.say(f"Talk to it: spark-tui chat {view.name}")
    else:
        session.err.say(f"It is starting. Follow it: spark-tui logs {view.name} -f")


def _interrupted(again: str, engine: str, moved: dict[str, StepState]) -> Interrupted:
    """What remains after Ctrl-C. `again` is the command that was interrupted: it continues from there."""
    if moved.get("fetch") is StepState.CANCELLED:
        return Interrupted("Paused. Downloaded files are kept.", "Run the same command to continue.")
    if moved.get("start") in (StepState.DONE, StepState.SKIPPED):
        return keeps_starting(engine, again)
    if moved.get("start") is StepState.CANCELLED:
        return Interrupted(f"{engine} may have been started.", "See: spark-tui ps")
    return Interrupted(f"{engine} was not started.", "Run the same command to continue.")


_FIT_EXAMPLES = """\
  spark-tui fit gpt-oss-120b
  spark-tui fit gpt-oss-120b --set max_model_len=65536 --json | jq .verdict
"""


@command("fit", _FIT_EXAMPLES)
@preset_argument
@settings_option("A value of the preset; may be repeated.")
def fit(session: Session, name: str, settings: tuple[str, ...]) -> None:
    """Check whether a preset fits in the memory that is free now.

    Weights, KV cache, state and the rest; measured where the checkpoint is downloaded. Changes nothing.
    """
    typed = pairs_from(settings)
    overrides = overrides_from_pairs(typed)

    async def work(context: Context) -> Fit:
        preset = find_preset(context, name)
        await context.history.load()
        await context.collectors.collect_once()
        try:
            await context.supervisor.look()
        except UnreachableError as error:
            session.err.note(f"{error.summary} Other engines are unknown.")
        return await context.checks.fit(preset, overrides)

    found = session.run(work)
    if session.as_json:
        session.out.json(fit_object(name, found))
        return
    session.out.page((*fit_verdict(found), *fit_figures(found)))
    for change in found.changes:
        if change.pairs:
            words = set_options(tuple((typed | dict(change.pairs)).items()))
            session.err.say(f"{change.summary.rstrip('.')}: spark-tui fit {name} {words}")
