"""Commands that only look: status, memory, ps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from spark_tui.cli import engines, shapes
from spark_tui.cli.session import Session
from spark_tui.cli.tables import labelled
from spark_tui.core.context import Context
from spark_tui.core.store import World
from spark_tui.domain.engine.container import DaemonFacts
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.gpu import GpuReading, engine_memory
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.quantities import gib, human_duration
from spark_tui.domain.reading import Missing, Reading, reason_of, value_of


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


def status(session: Session) -> None:
    """The box, Docker, and what serves. Raises Docker's error at the end, when the rest has been shown."""
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


def _status_object(look: _Look) -> shapes.Object:
    world = look.world
    reason = str(look.error) if look.error else ""
    docker: Reading[DaemonFacts] = world.docker
    found = {
        "demo": look.demo,
        "host": shapes.host(world.identity),
        **shapes.read("uptime_seconds", world.uptime_minutes, lambda minutes: minutes * 60),
        **shapes.read("memory", world.memory, lambda info: shapes.memory(info, engine_memory(world.gpu))),
        **shapes.read("memory_pressure_percent", world.pressure, float),
        **shapes.read("gpu", world.gpu, shapes.gpu),
    }
    if look.daemon is None:
        docker = Missing(reason)
        return found | shapes.read("docker", docker, shapes.daemon) | {"engines": None, "engines_reason": reason}
    listed = [shapes.engine(view, look.now) for view in look.views]
    return found | {"docker": shapes.daemon(look.daemon), "engines": listed}


# --- ps -----------------------------------------------------------------------------------------------


def ps(session: Session, *, everything: bool) -> None:
    """The engines, those that run; with `everything` ended ones too."""

    async def look(context: Context) -> tuple[tuple[EngineView, ...], float]:
        return await context.supervisor.look(), context.clock.now()

    views, now = session.run(look)
    shown = views if everything else tuple(view for view in views if view.container.running)
    if session.as_json:
        session.out.json([shapes.engine(view, now) for view in shown])
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
