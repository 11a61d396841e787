"""status --plain: what is, and what changes, as sentences that a screen reader can read aloud."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.domain.engine.state import EngineState, Exposure
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import SparkError
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import reason_of, value_of

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
            now, error = await _look(context)
            lines = _changes(told, now, first=not told)
            stamp = context.clock.now()
            if session.as_json:
                session.out.json_lines({"at": shapes.moment(stamp), "id": key, "text": text} for key, text in lines)
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


async def _look(context: Context) -> tuple[Told, SparkError | None]:
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
