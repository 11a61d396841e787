"""up: from a preset to an engine that serves on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from spark_tui.base.context import Context
from spark_tui.base.engine.docker_run import render_argv, render_text
from spark_tui.base.engine.state import Exposure
from spark_tui.base.finding import Finding, Severity, set_options
from spark_tui.base.jobs import StepState
from spark_tui.base.page import finding_fix, finding_object
from spark_tui.base.text import clean_line
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.show.launch import deviations_object, deviations_page, verdict_object
from spark_tui.catalog.fit.use.fit import LaunchChecks, WillNotFit, observe
from spark_tui.catalog.models.model.store import OtherCache
from spark_tui.catalog.models.use.downloads import choose_store, undecided_store
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan, key_wanted
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.catalog.presets.use.launch_downloads import launch_downloads
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import find_preset, require_reviewed
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session, at_terminal, typed
from spark_tui.observe.engines.show.engines import engine_object, timeline_object
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.show.progress import followed, keeps_starting
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest, LaunchResult
from spark_tui.run.launch.use.service import await_docker, due_now, stay


def launch(
    session: Session, name: str, pairs: dict[str, str], how: Mapping[str, bool], *, service: bool, yes: bool
) -> None:
    """On this machine, and followed until it serves; one that does not fit only when the preset's name is typed. Asks
    where its model goes if that is open, unless `yes`."""
    if how["fetch"] and not (service or yes):
        choose_store(session, partial(_undecided, name, pairs))
    try:
        _launch(session, name, pairs, how, service=service)
    except WillNotFit as error:
        if not at_terminal(session):
            raise
        session.err.note(error.summary)
        for change in error.fit.changes:
            session.err.say(f"  - {change.summary}{f' ({set_options(change.pairs)})' if change.pairs else ''}")
        if not typed(session, f"It will fail or may freeze the machine. Type {name} to launch anyway: ", name):
            raise
        _launch(session, name, pairs, {**how, "force": True}, again=True)


async def _undecided(name: str, pairs: dict[str, str], context: Context) -> OtherCache | None:
    """Where the launch's model could go; None where that is settled, or nothing is to be fetched."""
    older = await undecided_store(context)
    fetching = context.once(launch_downloads) if older is not None else None
    if fetching is None:
        return None
    plan = context[Preflight].dry_plan(find_preset(context, name), overrides_from_pairs(pairs))
    return older if await fetching.missing(plan) else None


def _launch(
    session: Session,
    name: str,
    pairs: dict[str, str],
    how: Mapping[str, bool],
    *,
    service: bool = False,
    again: bool = False,
) -> None:
    """`again`: the plan was shown before the question."""
    overrides = overrides_from_pairs(pairs)
    engine = overrides.name or name
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        nonlocal engine
        preset = find_preset(context, name)
        engine = overrides.name or preset.name  # as it is written, however it was typed
        if service:
            await await_docker(context.docker, context.clock)
            if await due_now(context.ports.boot, context[EngineSupervisor], context.clock, engine) == ("stop", False):
                session.err.say(f"{engine} is stopped by its schedule: spark-tui schedule {engine}")
                return
        require_reviewed(context, preset)
        await observe(context, session.err.note)
        planned = await context[LaunchChecks].launch(preset, overrides)
        verdict = planned.judge()
        findings = verdict.findings
        if not again:
            _note(session, name, verdict.plan, pairs, findings)
        request = LaunchRequest(preset, overrides, **how)
        session.err.note(*context[LastLaunches].keep(preset, overrides))
        launching = partial(context[Launcher].launch, request, planned=planned)
        launched = await followed(session, context, engine, launching, moved)
        lan = context.store.world.identity.lan_address
        _show_result(session, launched, request, findings, context.clock.now(), lan)
        if service:
            await stay(context.docker, context.clock, engine)

    session.run(work, changes=True, on_interrupt=lambda: _interrupted(session.command, engine, moved))


def plan_launch(session: Session, name: str, pairs: dict[str, str], *, fetch: bool) -> None:
    """`up --dry-run`: prints the docker run, and what the checks say."""
    overrides = overrides_from_pairs(pairs)

    async def work(context: Context) -> LaunchVerdict:
        preset = find_preset(context, name)
        await observe(context, session.err.note)
        verdict = await context[LaunchChecks].judge(preset, overrides)
        plan = verdict.plan
        fetching = context.once(launch_downloads) if fetch else None
        missing = await fetching.missing(plan) if fetching is not None else ()
        if missing:
            titles = ", ".join(dict.fromkeys(clean_line(each.title) for each in missing))
            session.err.note(f"Fetched first: {titles}. How much that is: spark-tui models pull {name} --dry-run")
        return verdict

    verdict = session.run(work)
    plan, findings = verdict.plan, verdict.findings
    session.out.answer(
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
            "deviations": deviations_object(plan),
            "fit": verdict_object(verdict.fit),
            "findings": [finding_object(each) for each in findings],
        },
        render_text(plan.spec),
    )
    _note(session, name, plan, pairs, findings)
    session.err.note(*(f"{path} holds the keys; spark-tui writes it at launch." for path in plan.spec.env_files))


def _note(session: Session, name: str, plan: LaunchPlan, pairs: dict[str, str], findings: tuple[Finding, ...]) -> None:
    """What is done otherwise than the recipe says, the plan's notes, errors and warnings of the rules, and the number
    of further notes; nothing is refused."""
    session.err.page(deviations_page(plan))
    session.err.note(*plan.notes)
    loud = [each for each in findings if each.severity is not Severity.INFO]
    session.err.note(*(f"{each.summary} {finding_fix(each, flags=True)}" for each in loud))
    more = len(findings) - len(loud)
    if more:
        again = f"spark-tui presets check {name} {set_options(tuple(pairs.items()))}".rstrip()
        session.err.note(f"{more} note{'s' if more > 1 else ''} more: {again}")


def _show_result(
    session: Session,
    launched: LaunchResult,
    request: LaunchRequest,
    findings: tuple[Finding, ...],
    now: float,
    lan: str,
) -> None:
    """`lan` is this machine's address in the network; empty where unknown."""
    view, plan = launched.view, launched.plan
    session.out.json_line(
        {
            "type": "result",
            **engine_object(view, now),
            "url": plan.base_url,
            "already_running": launched.already_running,
            "phases": timeline_object(view.timeline),
            "notes": list(plan.notes),
            "deviations": deviations_object(plan),
            "findings": [finding_object(each) for each in findings],
        }
    )
    session.out.line(plan.base_url)
    if lan and view.exposure in (Exposure.LAN, Exposure.LAN_NO_KEY):
        session.err.say(f"From the network: http://{lan}:{plan.host_port}/v1")
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
