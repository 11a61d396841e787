"""Commands that only look: status, memory, ps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import click

from spark_tui.cli import engines
from spark_tui.cli.command import command
from spark_tui.cli.output import labelled
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.store import World
from spark_tui.domain.engine.container import DaemonFacts
from spark_tui.domain.engine.state import EngineState, Exposure
from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import GpuReading, engine_memory
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.quantities import GIB, gib, human_duration
from spark_tui.domain.reading import Missing, Reading, reason_of, value_of
from spark_tui.present.engines import daemon_object, engine_object, host_object
from spark_tui.present.json import Object, moment, read
from spark_tui.present.memory import meminfo_object
from spark_tui.present.metrics import gpu_object


@dataclass(frozen=True, slots=True)
class _Look:
    """The box, Docker and its engines, at one moment. `error` is why there is nothing from Docker."""

    world: World
    now: float
    daemon: DaemonFacts | None = None
    views: tuple[EngineView, ...] = ()
    error: SparkError | None = None
    demo: bool = False


# --- status -------------------------------------------------------------------------------------------


_STATUS_EXAMPLES = """\
  spark-tui status
  spark-tui status --json | jq .memory.available_bytes
  spark-tui status --watch --plain              a sentence when something changes
"""


@command("status", _STATUS_EXAMPLES)
@click.option("--plain", is_flag=True, help="One sentence a line, no table: for a screen reader or a pager.")
@click.option("-w", "--watch", is_flag=True, help="With --plain: a line for each change, until Ctrl-C.")
def status(session: Session, plain: bool, watch: bool) -> None:
    """Show the machine, Docker and what is serving.

    Memory is shown even when Docker cannot be reached; the exit code is then 3.
    """
    if watch and not plain:
        raise click.UsageError("--watch needs --plain; figures line by line: spark-tui memory --watch")
    if plain:
        plain_status(session, watch=watch)
        return
    look = session.run(_look)
    if session.as_json:
        session.out.json(_status_object(look))
    else:
        session.out.lines(_status_lines(look, session.out.terminal.width))
        if look.views:
            session.out.line()
            session.out.table(engines.table(look.views, look.now))
        _tell_failures(session, look.views)
    if look.error is not None:
        raise look.error


async def _look(context: Context) -> _Look:
    host = asyncio.ensure_future(context.collectors.collect_once())
    try:
        daemon = await context.docker.daemon()
        views = await context.supervisor.look()
    except SparkError as error:
        await host
        return _Look(context.store.world, context.clock.now(), error=error, demo=context.demo)
    except asyncio.CancelledError:
        host.cancel()
        raise
    await host
    return _Look(context.store.world, context.clock.now(), daemon, views, demo=context.demo)


def _status_lines(look: _Look, width: int | None) -> list[str]:
    world = look.world
    uptime = value_of(world.uptime_minutes)
    identity = world.identity
    box = [identity.hostname or "this machine", identity.product or identity.architecture]
    if uptime is not None:
        box.append(f"up {human_duration(uptime * 60)}")
    docker = look.daemon.version if look.daemon else f"n/a: {look.error.summary if look.error else 'not asked'}"
    return labelled(
        (
            ("host", "  ".join(filter(None, box))),
            ("memory", _memory_line(world.memory, engine_memory(world.gpu))),
            ("swap", _swap_line(world)),
            ("gpu", _gpu_line(world.gpu)),
            ("docker", docker),
            ("engines", _engines_line(look)),
        ),
        width,
    )


def _memory_line(memory: Reading[MemInfo], engines: Reading[int]) -> str:
    info = value_of(memory)
    if info is None:
        return f"n/a: {reason_of(memory)}"
    droppable = "" if info.droppable is None else f" ({gib(info.droppable)} droppable)"
    held = value_of(engines)
    engine = "" if not held else f" (engines {gib(held)})"
    return (
        f"{gib(info.total)} GiB: in use {gib(info.in_use)}{engine}, cache {gib(info.cache)}{droppable}, "
        f"free {gib(info.free)}; {gib(info.available)} available"
    )


def _swap_line(world: World) -> str:
    info, pressure = value_of(world.memory), value_of(world.pressure)
    if info is None:
        return ""
    waiting = f"n/a ({reason_of(world.pressure)})" if pressure is None else f"{pressure:.1f} %"
    return f"{gib(info.swap_used)} of {gib(info.swap_total)} GiB; memory pressure {waiting}"


def _gpu_line(gpu: Reading[GpuReading]) -> str:
    reading = value_of(gpu)
    if reading is None:
        return f"n/a: {reason_of(gpu)}"
    return "  ".join((reading.name, *reading.figures))


def _engines_line(look: _Look) -> str:
    if look.error is not None:
        return ""
    serving = sum(view.state is EngineState.SERVING for view in look.views)
    return f"{serving} serving of {len(look.views)}" if look.views else "none; launch one: spark-tui up PRESET"


def _status_object(look: _Look) -> Object:
    world = look.world
    reason = str(look.error) if look.error else ""
    docker: Reading[DaemonFacts] = world.docker
    found = {
        "demo": look.demo,
        "host": host_object(world.identity),
        **read("uptime_seconds", world.uptime_minutes, lambda minutes: minutes * 60),
        **read("memory", world.memory, lambda info: meminfo_object(info, engine_memory(world.gpu))),
        **read("memory_pressure_percent", world.pressure, float),
        **read("gpu", world.gpu, gpu_object),
    }
    if look.daemon is None:
        docker = Missing(reason)
        return found | read("docker", docker, daemon_object) | {"engines": None, "engines_reason": reason}
    listed = [engine_object(view, look.now) for view in look.views]
    return found | {"docker": daemon_object(look.daemon), "engines": listed}


# --- ps -----------------------------------------------------------------------------------------------


@command("ps", "  spark-tui ps -a\n  spark-tui ps --json | jq -r '.[].id'")
@click.option("-a", "--all", "everything", is_flag=True, help="Stopped engines too.")
def ps(session: Session, everything: bool) -> None:
    """List engines: name, state, port, exposure, model.

    Lists every container that serves a model, whoever started it.
    """

    async def look(context: Context) -> tuple[tuple[EngineView, ...], float]:
        return await context.supervisor.look(), context.clock.now()

    views, now = session.run(look)
    shown = views if everything else tuple(view for view in views if view.container.running)
    if session.as_json:
        session.out.json([engine_object(view, now) for view in shown])
        return
    session.out.table(engines.table(shown, now))
    _tell_failures(session, shown)
    hidden = len(views) - len(shown)
    if hidden:
        ended = "1 engine has ended" if hidden == 1 else f"{hidden} engines have ended"
        session.err.say(f"{ended}: spark-tui ps -a")
    elif not views:
        session.err.say("No engines here. Launch one: spark-tui up PRESET (spark-tui presets list)")


def _tell_failures(session: Session, views: tuple[EngineView, ...]) -> None:
    for view in views:
        if view.state is EngineState.FAILED and view.timeline.failure is not None:
            session.err.note(f"{view.name} exited {view.container.exit_code}: {view.timeline.failure.line}")


EVERY_SECONDS: Final = 2.0
STEP_GIB: Final = 4
"""Memory is told again when it has moved by so much: every reading would be noise."""
_PERCENT_STEP: Final = 25
_REACH: Final = {
    Exposure.LOCAL: "this machine only",
    Exposure.LAN: "open to the network, with a key",
    Exposure.LAN_NO_KEY: "open to the network without a key",
    Exposure.NONE: "no port",
}

Told = dict[str, tuple[object, str]]
"""By subject: what decides whether it has changed, and its sentence."""


def plain_status(session: Session, *, watch: bool) -> None:
    """A sentence for each thing; with `watch` one more for each change. Raises Docker's error at the end of a look."""

    async def work(context: Context) -> None:
        told: Told = {}
        while True:
            now, error = await _plain_look(context)
            lines = _changes(told, now, first=not told)
            stamp = context.clock.now()
            if session.as_json:
                session.out.json_lines({"at": moment(stamp), "id": key, "text": text} for key, text in lines)
            else:
                hour = datetime.fromtimestamp(stamp).astimezone().strftime("%H:%M:%S ") if watch else ""
                session.out.lines(f"{hour}{text}" for _, text in lines)
            told = {**now, **{key: told[key] for key in now if key in told and not _moved(told[key], now[key])}}
            if not watch:
                if error is not None:
                    raise error
                return
            await context.clock.sleep(max(EVERY_SECONDS, context.settings.refresh_seconds))

    session.run(work)


def _moved(before: tuple[object, str], after: tuple[object, str]) -> bool:
    """Figures move by a step, everything else by being different."""
    old, new = before[0], after[0]
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) >= STEP_GIB
    return old != new


def _changes(before: Told, after: Told, *, first: bool) -> list[tuple[str, str]]:
    lines = [(key, after[key][1]) for key in after if key not in before or _moved(before[key], after[key])]
    gone = [(key, f"{key} is gone.") for key in before if key not in after and key not in ("docker", "memory")]
    if first and "docker" in after and not any(key not in ("docker", "memory") for key in after):
        lines.append(("engines", "No engines."))
    return lines + gone


async def _plain_look(context: Context) -> tuple[Told, SparkError | None]:
    await context.collectors.collect_once()
    told: Told = {"memory": _memory(context)}
    try:
        daemon = await context.docker.daemon()
        views = await context.supervisor.look()
    except SparkError as error:
        told["docker"] = (error.summary, f"Docker cannot be reached: {error.summary}")
        return told, error
    told["docker"] = (daemon.version, f"Docker {daemon.version} answers.")
    for view in views:
        told[view.name] = _engine(view)
    return told, None


def _memory(context: Context) -> tuple[object, str]:
    reading = context.store.world.memory
    memory = value_of(reading)
    if memory is None:
        return reason_of(reading), f"Memory is not known: {reason_of(reading)}."
    available, total = memory.available / GIB, memory.total / GIB
    return available, f"Memory: {available:.0f} of {total:.0f} gibibytes available."


def _engine(view: EngineView) -> tuple[object, str]:
    """State, and while it starts the phase and each quarter of it."""
    phase = view.timeline.current if view.state is EngineState.STARTING else None
    words = view.state.value.lower()
    quarter = 0
    if phase is not None:
        words = f"starting, {phase.label.lower()}"
        if phase.progress is not None:
            quarter = int(phase.progress * 100) // _PERCENT_STEP * _PERCENT_STEP
            words += f", {quarter} percent" if quarter else ""
    elif view.state is EngineState.FAILED:
        words = f"failed with exit code {view.container.exit_code}"
    elif view.state is EngineState.SERVING:
        words += f" {view.model} on port {view.port}, {_REACH[view.exposure]}"
    return (view.state, phase.id if phase else None, quarter, view.exposure), f"{view.name}: {words}."
