"""up: from a preset to an engine that serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from spark_tui.cli.command import command, complete, preset_argument, settings_option
from spark_tui.cli.narrator import Narrator, keeps_starting, supervised, ticking
from spark_tui.cli.output import Interrupted, bulleted, wrapped
from spark_tui.cli.presets import find_preset, finding_object, planned, set_words
from spark_tui.cli.session import Session, typed
from spark_tui.core.context import Context
from spark_tui.core.fit import WillNotFit
from spark_tui.core.jobs import StepState
from spark_tui.core.launch import LaunchRequest, LaunchResult
from spark_tui.domain.engine.docker_run import render_argv, render_text
from spark_tui.domain.errors import UnreachableError
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.models.download import DownloadRequest
from spark_tui.domain.presets.fit import Fit, FitChange, Part
from spark_tui.domain.presets.fit_figures import FitLine, fit_lines
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs, pairs_from, settings_text
from spark_tui.domain.presets.plan import LaunchPlan, key_wanted
from spark_tui.domain.text import clean_line
from spark_tui.present.engines import engine_object, timeline_object


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
    fetch: bool = True

    def overrides(self) -> Overrides:
        """The changes to the preset. Raises UsageError."""
        return overrides_from_pairs(self.pairs())

    def pairs(self) -> dict[str, str]:
        """Them as pairs; an option of its own wins over the same key after `--set`. Raises UsageError."""
        pairs = pairs_from(self.settings)
        for key, value in (("port", self.port), ("name", self.name), ("exposure", self.expose)):
            if value is not None:
                pairs[key] = str(value)
        if self.api_key is not None:
            pairs["api_key"] = "yes" if self.api_key else "no"
        return pairs


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
@click.option("--name", "engine_name", metavar="NAME", help="The container's name.  [the preset's]")
@click.option("--expose", type=click.Choice(["local", "lan"]), help="Who can reach it.  [local]")
@click.option("--api-key/--no-api-key", default=None, help="Require a key.  [with --expose lan]")
@click.option("--dry-run", is_flag=True, help="Print the docker run and change nothing; works without Docker.")
@click.option("--wait/--no-wait", default=True, help="Wait until it serves.  [--wait]")
@click.option("--warm/--no-warm", default=True, help="Make the slow first request.  [--warm]")
@click.option(
    "--fetch/--no-fetch", default=True,
    help="Download missing model files first; else the engine downloads them.  [--fetch]",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Stop an engine of that name that runs with other settings.")
@click.option("--force", is_flag=True, help="Launch even if it does not fit in memory.")
def up(session: Session, name: str, engine_name: str | None, **typed_options: Any) -> None:
    """Launch a preset and follow it until it serves.

    Check, download the model, pull the image, create, start, follow the boot, warm up. Finished steps are skipped, so
    the same command resumes after an interruption. Prints the engine's address.
    """
    options = UpOptions(name=engine_name, **typed_options)
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
        settings = f" ({set_words(change.pairs)})" if change.pairs else ""
        session.err.say(f"  - {change.summary}{settings}")
    return typed(session, f"It would fail, or freeze the machine. Type {name} to launch it all the same: ", name)


def _launch(session: Session, name: str, options: UpOptions) -> None:
    overrides = options.overrides()
    engine = overrides.name or name
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        session.refuse_if_read_only(context)
        preset = find_preset(context, name)
        _tell_notes(session, await context.preflight.plan(preset, overrides))
        findings = await context.checks.check(preset, overrides)
        _tell_findings(session, name, options.pairs(), findings)
        request = LaunchRequest(
            preset, overrides, options.wait, options.warm, options.replace, options.force, options.fetch
        )
        narrator = Narrator(session, context, engine, moved)
        launched = await supervised(context, ticking(narrator, context.launcher.launch(request, narrator.step)))
        _tell_result(session, launched, request, findings, context.clock.now())

    session.run(work, on_interrupt=lambda: _interrupted(session.command, engine, moved))


# --- dry run ------------------------------------------------------------------------------------------


def _dry_run(session: Session, name: str, options: UpOptions) -> None:
    overrides = options.overrides()

    async def work(context: Context) -> tuple[LaunchPlan, tuple[Finding, ...]]:
        preset = find_preset(context, name)
        plan = await planned(context, preset, overrides)
        context.collectors.sample_identity()
        findings = await context.checks.check(preset, overrides)
        if options.fetch and context.fetching is not None:
            _tell_missing(session, name, await context.fetching.missing(plan))
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
    _tell_notes(session, plan)
    _tell_findings(session, name, options.pairs(), findings)
    for path in plan.spec.env_files:
        session.err.note(f"{path} holds the keys; spark-tui writes it at launch.")


def _tell_missing(session: Session, name: str, missing: tuple[DownloadRequest, ...]) -> None:
    """What a launch would fetch first, without asking the Hub for sizes."""
    if missing:
        titles = ", ".join(dict.fromkeys(clean_line(each.title) for each in missing))
        session.err.note(f"Fetched first: {titles}. How much that is: spark-tui models pull {name} --dry-run")


def _tell_notes(session: Session, plan: LaunchPlan) -> None:
    for note in plan.notes:
        session.err.note(note)


def _tell_findings(session: Session, name: str, pairs: Mapping[str, str], findings: tuple[Finding, ...]) -> None:
    """Errors and warnings of the rules, notes by their number; the person has decided, so nothing is refused."""
    told = [each for each in findings if each.severity is not Severity.INFO]
    for each in told:
        change = each.change and settings_text(each.change) not in each.remedy
        fix = f" ({set_words(each.change)})" if change else ""
        session.err.note(f"{each.summary} {each.remedy}{fix}")
    more = len(findings) - len(told)
    if more:
        again = f"spark-tui presets check {name} {set_words(pairs.items())}".rstrip()
        session.err.note(f"{more} note{'s' if more > 1 else ''} more: {again}")


# --- the end ------------------------------------------------------------------------------------------


def _tell_result(
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
    """What goes on after Ctrl-C. `again` is the command that was interrupted: it picks up what is there."""
    if moved.get("fetch") is StepState.CANCELLED:
        return Interrupted("Paused; what has arrived is kept.", "The same command goes on where this one stopped.")
    if moved.get("start") in (StepState.DONE, StepState.SKIPPED):
        return keeps_starting(engine, again)
    if moved.get("start") is StepState.CANCELLED:
        return Interrupted(f"{engine} may have been started.", "See: spark-tui ps")
    return Interrupted(f"{engine} was not started.", "The same command goes on where this one stopped.")


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
            session.err.note(f"{error.summary} Other engines are not known.")
        return await context.fitting.fit(preset, overrides)

    found = session.run(work)
    if session.as_json:
        session.out.json(_shape(name, found))
        return
    session.out.lines(clean_line(line) for line in _text(found, session.out.terminal.width))
    for change in found.changes:
        if change.pairs:
            words = set_words((typed | dict(change.pairs)).items())
            session.err.say(f"{change.summary.rstrip('.')}: spark-tui fit {name} {words}")
    for note in found.notes:
        session.err.note(note)


def _text(found: Fit, width: int | None) -> list[str]:
    lines = [f"{found.verdict.value}  {wrapped(found.reasons[0], None)[0] if found.reasons else ''}".rstrip()]
    lines += [f"  {reason}" for reason in found.reasons[1:]]
    lines += ["", *_figures(fit_lines(found))]
    if found.changes:
        lines += ["", "what would help", *bulleted([change.summary for change in found.changes], width)]
    return lines


def _figures(rows: tuple[FitLine, ...]) -> list[str]:
    label = max((len(row.label) for row in rows), default=0)
    value = max((len(row.value) for row in rows), default=0)
    return [f"{row.label:<{label}}  {row.value:>{value}}  {row.note}".rstrip() for row in rows]


def _shape(name: str, found: Fit) -> dict[str, Any]:
    """Sizes in bytes; null is not known, and `unknown` says which parts are not."""
    kv, decode = found.kv, found.decode
    return {
        "id": name,
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
        "notes": list(found.notes),
        "changes": [_change(change) for change in found.changes],
        "parts": [_part(part) for part in (*found.parts, *found.outside)],
        "unknown": [part.id.value for part in found.unknown],
        "context_tokens": found.context,
        "sequences": found.sequences,
        "total_bytes": found.total,
        "available_bytes": found.available,
        "claim_bytes": found.claim,
        "at_least_bytes": found.at_least,
        "need_bytes": found.need,
        "need_all_bytes": found.need_all,
        "left_bytes": found.left,
        "cache_to_drop_bytes": found.cache_to_drop,
        "utilization": found.utilization,
        "utilization_needed": found.utilization_needed,
        "utilization_most": found.utilization_most,
        "neighbours": [
            {"id": other.name, "holds_bytes": other.holds, "will_take_bytes": other.will_take}
            for other in found.neighbours
        ],
        "kv": None
        if kv is None
        else {
            "room_bytes": kv.room,
            "sequence_bytes": kv.each,
            "concurrency": round(kv.concurrency, 2),
            "tokens": kv.tokens,
            "longest_context_tokens": kv.longest,
            "bytes_per_token": kv.bytes_per_token,
            "state_bytes": kv.state_bytes,
            "dtype": kv.dtype,
        },
        "decode": None if decode is None else asdict(decode),
    }


def _part(part: Part) -> dict[str, Any]:
    return {"id": part.id.value, "bytes": part.size, "basis": part.basis.value, "note": part.note}


def _change(change: FitChange) -> dict[str, Any]:
    return {"summary": change.summary, "set": dict(change.pairs), "gains_bytes": change.gains}
