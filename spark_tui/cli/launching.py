"""up: from a preset to an engine that serves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_tui.cli import shapes
from spark_tui.cli.asking import typed
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.narrator import Narrator, keeps_starting, supervised, ticking
from spark_tui.cli.recipes import find_preset
from spark_tui.cli.session import Session
from spark_tui.core.budget import WillNotFit
from spark_tui.core.context import Context
from spark_tui.core.jobs import StepState
from spark_tui.core.launch import Launched, LaunchRequest
from spark_tui.domain.errors import UnreachableError
from spark_tui.domain.presets.docker_run import render_argv, render_text
from spark_tui.domain.presets.plan import LaunchPlan, Overrides, key_wanted, overrides_from_pairs, pairs_from
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.rules import Finding, Severity


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What was typed after `up`. None: not typed."""

    settings: tuple[str, ...] = ()
    port: int | None = None
    name: str | None = None
    expose: str | None = None
    api_key: bool | None = None
    dry_run: bool = False
    wait: bool = True
    warm: bool = True
    replace: bool = False
    force: bool = False

    def overrides(self) -> Overrides:
        """The changes to the preset; an option of its own wins over the same key after `--set`. Raises UsageError."""
        pairs = pairs_from(self.settings)
        for key, value in (("port", self.port), ("name", self.name), ("exposure", self.expose)):
            if value is not None:
                pairs[key] = str(value)
        if self.api_key is not None:
            pairs["api_key"] = "yes" if self.api_key else "no"
        return overrides_from_pairs(pairs)


def up(session: Session, name: str, options: UpOptions) -> None:
    """Launches a preset, or prints the command that would. One that cannot fit is launched only when the person
    types its name."""
    if options.dry_run:
        _dry_run(session, name, options)
        return
    try:
        _launch(session, name, options)
    except WillNotFit as error:
        if not _insists(session, name, error):
            raise
        _launch(session, name, replace(options, force=True))


def _insists(session: Session, name: str, error: WillNotFit) -> bool:
    """The numbers and the ways out, then the question."""
    if session.stdin is None or not session.stdin.isatty() or session.as_json:
        return False
    session.err.note(error.summary)
    for change in error.fit.changes:
        session.err.say(f"  - {change.summary}")
    return typed(session, f"It would fail, or freeze the machine. Type {name} to launch it all the same: ", name)


def _launch(session: Session, name: str, options: UpOptions) -> None:
    overrides = options.overrides()
    engine = overrides.name or name
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        session.refuse_if_read_only(context)
        preset = find_preset(context, name)
        _tell_notes(session, await context.preflight.plan(preset, overrides))
        _tell_findings(session, name, await context.checks.check(preset, overrides))
        request = LaunchRequest(preset, overrides, options.wait, options.warm, options.replace, options.force)
        narrator = Narrator(session, context, engine, moved)
        launched = await supervised(context, ticking(narrator, context.launcher.launch(request, narrator.step)))
        _tell_result(session, launched, request, context.clock.now())

    session.run(work, on_interrupt=lambda: _interrupted(session.command, engine, moved))


# --- dry run ------------------------------------------------------------------------------------------


def _dry_run(session: Session, name: str, options: UpOptions) -> None:
    overrides = options.overrides()

    async def work(context: Context) -> LaunchPlan:
        return await _plan(context, find_preset(context, name), overrides)

    plan = session.run(work)
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
            }
        )
        return
    session.out.line(render_text(plan.spec))
    _tell_notes(session, plan)
    for path in plan.spec.env_files:
        session.err.note(f"{path} holds the keys; spark-tui writes it at launch.")


async def _plan(context: Context, preset: Preset, overrides: Overrides) -> LaunchPlan:
    """With the image's own entrypoint where Docker answers, else by its name."""
    try:
        return await context.preflight.plan(preset, overrides)
    except UnreachableError:
        return context.preflight.dry_plan(preset, overrides)


def _tell_notes(session: Session, plan: LaunchPlan) -> None:
    for note in plan.notes:
        session.err.note(note)


def _tell_findings(session: Session, name: str, findings: tuple[Finding, ...]) -> None:
    """Errors of the rules in full, warnings by their number; the person has decided, so nothing is refused."""
    for finding in findings:
        if finding.severity is Severity.ERROR:
            fix = f" (--set {finding.fix_text})" if finding.fix else ""
            session.err.note(f"{finding.summary} {finding.remedy}{fix}")
    warnings = sum(finding.severity is Severity.WARNING for finding in findings)
    if warnings:
        session.err.note(
            f"{warnings} warning{'s' if warnings > 1 else ''} of the rules: spark-tui presets check {name}"
        )


# --- the end ------------------------------------------------------------------------------------------


def _tell_result(session: Session, launched: Launched, request: LaunchRequest, now: float) -> None:
    view, plan = launched.view, launched.plan
    if session.as_json:
        session.out.json_line(
            {
                "type": "result",
                **shapes.engine(view, now),
                "url": plan.base_url,
                "already_running": launched.already_running,
                "phases": shapes.timeline(view.timeline),
                "notes": list(plan.notes),
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
    """What goes on after Ctrl-C. `again` is the command that was interrupted: it picks up what is there."""
    if moved.get("start") in (StepState.DONE, StepState.SKIPPED):
        return keeps_starting(engine, again)
    if moved.get("start") is StepState.CANCELLED:
        return Interrupted(f"{engine} may have been started.", "See: spark-tui ps")
    return Interrupted(f"{engine} was not started.", "The same command goes on where this one stopped.")
