"""Engines, their starts and the machine below them, for both front ends."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from spark_tui.core.jobs import JobView, Step, StepState
from spark_tui.domain.engine.state import EngineState, Exposure
from spark_tui.domain.quantities import GIB, gib, human_duration
from spark_tui.domain.reading import Missing, Reading, reason_of, value_of
from spark_tui.domain.secret import mask_secrets
from spark_tui.present.json import Object, maybe, moment, read, rounded
from spark_tui.present.page import Cell, Column, Page, Row, Section, Table, Tone, cells, labelled

if TYPE_CHECKING:  # the first frame shows an empty list of engines, and loads nothing of logs and hosts for it
    from collections.abc import Sequence

    from spark_tui.core.store import World
    from spark_tui.domain.engine.container import ContainerFacts, DaemonFacts
    from spark_tui.domain.errors import SparkError
    from spark_tui.domain.host.identity import HostIdentity
    from spark_tui.domain.logs.starts import Eta
    from spark_tui.domain.logs.timeline import BootTimeline, Phase
    from spark_tui.domain.logs.view import EngineView

STATE_TONES: Final = {
    EngineState.SERVING: Tone.GOOD,
    EngineState.STARTING: Tone.WARNING,
    EngineState.RESTARTING: Tone.WARNING,
    EngineState.NOT_ANSWERING: Tone.BAD,
    EngineState.FAILED: Tone.BAD,
}
"""All other states are quiet."""
EXPOSURE_TEXTS: Final = {
    Exposure.LOCAL: "this machine only",
    Exposure.LAN: "open to the network, with a key",
    Exposure.LAN_NO_KEY: "open to the network without a key",
    Exposure.NONE: "no port",
}
PERCENT_STEP: Final = 25
"""Progress of a boot phase is announced in such steps."""


# --- one engine -------------------------------------------------------------------------------------------


def state_word(view: EngineView) -> str:
    """`SERVING`, `FAILED 1`, or the boot phase while it starts: `WEIGHTS 62%`."""
    if view.state is EngineState.FAILED:
        return f"FAILED {view.container.exit_code}"
    phase = view.timeline.current
    if view.state is EngineState.STARTING and phase is not None:
        return phase.label.upper() + (f" {phase.progress:.0%}" if phase.progress is not None else "")
    return view.state.value


def state_cell(view: EngineView) -> Cell:
    return Cell(state_word(view), STATE_TONES.get(view.state, Tone.QUIET))


def exposure_cell(view: EngineView) -> Cell:
    quiet = Tone.QUIET if view.exposure is not Exposure.LAN else Tone.PLAIN
    return Cell(view.exposure.value, Tone.BAD if view.exposure is Exposure.LAN_NO_KEY else quiet)


def engine_page(view: EngineView) -> Page:
    """What an engine is, where it serves, since when."""
    facts = view.container
    version = f" {view.version}" if view.version else ""
    owner = f"preset {facts.preset}" if facts.ours else "not started by spark-tui"
    address = [view.base_url or "no port published", view.exposure.value]
    address += [f"as {view.served_name}"] if view.served_name else []
    state = [state_word(view)]
    if facts.running and facts.started_at is not None:
        took = view.timeline.seconds
        state += [f"ready after {human_duration(took)}"] if view.state is EngineState.SERVING and took else []
        state.append(f"up since {day_and_time(facts.started_at)}")
    elif facts.finished_at is not None:
        state.append(f"ended {day_and_time(facts.finished_at)}")
    rows = (
        Row(view.model or "not known yet", "model", Tone.STRONG),
        Row(f"{view.runtime}{version}   {owner}   {facts.image}", "engine"),
        Row("   ".join(address), "address", Tone.BAD if view.exposure is Exposure.LAN_NO_KEY else Tone.PLAIN),
        Row("   ".join(state), "state", STATE_TONES.get(view.state, Tone.QUIET)),
    )
    return (Section(rows=rows),)


def day_and_time(at: float) -> str:
    """`21 Nov 18:40`, by this machine's clock."""
    return datetime.fromtimestamp(at).astimezone().strftime("%d %b %H:%M")


def ago(seconds: float) -> str:
    """`12s ago`, `59m ago`, `2d ago`: one unit, for it is only a hint."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(0, int(seconds))}s ago"


# --- lists ------------------------------------------------------------------------------------------------


def engine_table(views: Sequence[EngineView], now: float) -> Table:
    """One row per engine, for the command line."""
    columns = (
        Column("NAME"), Column("STATE"), Column("PORT", right=True), Column("REACH"), Column("UP", right=True),
        Column("MODEL", least=12),
    )  # fmt: skip
    rows = tuple(
        cells(
            Cell(view.name, Tone.STRONG), state_cell(view), str(view.port or "-"), exposure_cell(view),
            _up(view.container, now), view.model or "-",
        )
        for view in views
    )  # fmt: skip
    return Table(columns, rows)


def _up(container: ContainerFacts, now: float) -> str:
    if container.running and container.started_at is not None:
        return human_duration(max(0.0, now - container.started_at))
    return "-" if container.finished_at is None else ago(now - container.finished_at)


def home_table(views: Sequence[EngineView], jobs: Sequence[JobView], empty: str = "") -> Table:
    """One row per engine, then one per launch that has no engine yet."""
    columns = (Column("name", least=12), Column("state"), Column("port", right=True, keep=2), Column("reach", keep=1))
    rows, names = [], [view.name for view in views]
    for view in views:
        job = latest_job(jobs, view.name)
        current = job.current if job is not None and job.state is StepState.RUNNING else None
        warming = view.state is EngineState.SERVING and current is not None and current.id == "warm"
        state = Cell("WARMING UP", Tone.WARNING) if warming else state_cell(view)
        port = Cell(f":{view.port}" if view.port else "", Tone.QUIET)
        rows.append(cells(view.name, state, port, exposure_cell(view)))
    for job in jobs:
        if job.title not in names and job.state is not StepState.DONE:
            step = job.current if job.state is StepState.RUNNING else None
            percent = f" {step.progress:.0%}" if step is not None and step.progress is not None else ""
            word = (step.label if step is not None else job.state.value).upper() + percent
            rows.append(
                cells(job.title, Cell(word, Tone.BAD if job.state is StepState.FAILED else Tone.WARNING), "", "")
            )
            names.append(job.title)
    return Table(columns, tuple(rows), tuple(names), empty)


def latest_job(jobs: Sequence[JobView], name: str) -> JobView | None:
    return next((job for job in reversed(jobs) if job.title == name), None)


def step_word(step: Step) -> str:
    """A step that is over, in a list of them: `pull image skipped`, `create 3s`."""
    seconds = f" {human_duration(step.seconds)}" if step.seconds is not None and step.seconds >= 1 else ""
    state = "" if step.state is StepState.DONE else f" {step.state.value}"
    return f"{step.label.lower()}{state}{seconds}"


STEP_WORDS: Final = {
    StepState.PENDING: ("waits", Tone.QUIET),
    StepState.RUNNING: ("...", Tone.WARNING),
    StepState.DONE: ("done", Tone.GOOD),
    StepState.SKIPPED: ("skipped", Tone.QUIET),
    StepState.FAILED: ("failed", Tone.BAD),
    StepState.CANCELLED: ("stopped", Tone.WARNING),
}


def step_line(step: Step, seconds: float | None, left: str = "") -> str:
    """`Pull image        done         3s  vllm/vllm-openai`; `left` is how long it will still take."""
    word, _ = STEP_WORDS[step.state]
    detail = "; ".join(
        part
        for part in (f"{'' if step.progress is None else f'{step.progress:.0%} '}{step.detail}".strip(), left)
        if part
    )
    if step.state is StepState.CANCELLED or (step.state is StepState.FAILED and step.id != "warm"):
        detail = ""  # an error follows, and says why
    if step.id == "follow" and step.state is StepState.DONE:
        detail = ""  # its phases were shown
    return progress_line(step.label, word, seconds, detail)


def phase_line(phase: Phase) -> str:
    """A boot phase that is over, indented under its step."""
    return progress_line(f"  {phase.label}", phase.state.value, phase.seconds, phase.detail)


def progress_line(label: str, word: str, seconds: float | None, detail: str) -> str:
    """The columns of both."""
    return f"{label:<17} {word:<8} {'' if seconds is None else human_duration(seconds):>6}  {detail}".rstrip()


# --- status -----------------------------------------------------------------------------------------------


def status_page(
    world: World, daemon: DaemonFacts | None, views: Sequence[EngineView], error: SparkError | None
) -> Page:
    """The machine, Docker, and how many engines serve. `error`: why Docker did not answer."""
    identity, uptime, memory = world.identity, value_of(world.uptime_minutes), value_of(world.memory)
    host = [identity.hostname or "this machine", identity.product or identity.architecture]
    host += [] if uptime is None else [f"up {human_duration(uptime * 60)}"]
    gpu = value_of(world.gpu)
    serving = sum(view.state is EngineState.SERVING for view in views)
    engines = f"{serving} serving of {len(views)}" if views else "none; launch one: spark-tui up PRESET"
    pairs = (
        ("host", "  ".join(filter(None, host))),
        ("memory", _memory_text(world)),
        (
            "swap",
            "" if memory is None else f"{gib(memory.swap_used)} of {gib(memory.swap_total)} GiB; {_pressure(world)}",
        ),
        ("gpu", f"n/a: {reason_of(world.gpu)}" if gpu is None else "  ".join((gpu.name, *gpu.figures))),
        ("docker", daemon.version if daemon else f"n/a: {error.summary if error else 'not asked'}"),
        ("engines", engines if error is None else ""),
    )
    return (Section(rows=labelled(pairs)),)


def _memory_text(world: World) -> str:
    from spark_tui.domain.host.vitals import engine_memory

    info, held = value_of(world.memory), value_of(engine_memory(world.gpu))
    if info is None:
        return f"n/a: {reason_of(world.memory)}"
    droppable = "" if info.droppable is None else f" ({gib(info.droppable)} droppable)"
    engines = "" if not held else f" (engines {gib(held)})"
    return (
        f"{gib(info.total)} GiB: in use {gib(info.in_use)}{engines}, cache {gib(info.cache)}{droppable}, "
        f"free {gib(info.free)}; {gib(info.available)} available"
    )


def _pressure(world: World) -> str:
    pressure = value_of(world.pressure)
    return f"memory pressure {f'n/a ({reason_of(world.pressure)})' if pressure is None else f'{pressure:.1f} %'}"


def status_object(
    world: World, daemon: DaemonFacts | None, views: Sequence[EngineView], error: SparkError | None, now: float,
    *, demo: bool,
) -> Object:  # fmt: skip
    """The same as data."""
    from spark_tui.domain.host.vitals import engine_memory
    from spark_tui.present.memory import meminfo_object
    from spark_tui.present.metrics import gpu_object

    found = {
        "demo": demo,
        "host": host_object(world.identity),
        **read("uptime_seconds", world.uptime_minutes, lambda minutes: minutes * 60),
        **read("memory", world.memory, lambda info: meminfo_object(info, engine_memory(world.gpu))),
        **read("memory_pressure_percent", world.pressure, float),
        **read("gpu", world.gpu, gpu_object),
    }
    if daemon is None:
        reason = str(error) if error else ""
        missing: Reading[DaemonFacts] = Missing(reason)
        return found | read("docker", missing, daemon_object) | {"engines": None, "engines_reason": reason}
    return found | {"docker": daemon_object(daemon), "engines": [engine_object(view, now) for view in views]}


def spoken(
    world: World, daemon: DaemonFacts | None, views: Sequence[EngineView], error: SparkError | None
) -> dict[str, tuple[object, str]]:
    """A sentence by subject, as a screen reader reads it aloud, with what decides whether it has changed."""
    memory = value_of(world.memory)
    if memory is None:
        said: tuple[object, str] = (reason_of(world.memory), f"Memory unknown: {reason_of(world.memory)}.")
    else:
        available, total = memory.available / GIB, memory.total / GIB
        said = (available, f"Memory: {available:.0f} of {total:.0f} gibibytes available.")
    found: dict[str, tuple[object, str]] = {"memory": said}
    if daemon is None:
        summary = error.summary if error is not None else "not asked"
        return found | {"docker": (summary, f"Docker cannot be reached: {summary}")}
    found["docker"] = (daemon.version, f"Docker {daemon.version} answers.")
    return found | {view.name: _spoken_engine(view) for view in views}


def _spoken_engine(view: EngineView) -> tuple[object, str]:
    """State, and while it starts the phase and each quarter of it."""
    phase = view.timeline.current if view.state is EngineState.STARTING else None
    text, quarter = view.state.value.lower(), 0
    if phase is not None:
        text = f"starting, {phase.label.lower()}"
        if phase.progress is not None:
            quarter = int(phase.progress * 100) // PERCENT_STEP * PERCENT_STEP
            text += f", {quarter} percent" if quarter else ""
    elif view.state is EngineState.FAILED:
        text = f"failed with exit code {view.container.exit_code}"
    elif view.state is EngineState.SERVING:
        text += f" {view.model} on port {view.port}, {EXPOSURE_TEXTS[view.exposure]}"
    return (view.state, phase.id if phase else None, quarter, view.exposure), f"{view.name}: {text}."


# --- data -------------------------------------------------------------------------------------------------


def host_object(identity: HostIdentity) -> Object:
    unknown = "the machine does not say"
    return {
        **maybe("id", identity.hostname, unknown),
        **maybe("product", identity.product, unknown),
        **maybe("kernel", identity.kernel, unknown),
        **maybe("architecture", identity.architecture, unknown),
        **maybe("cpu_count", identity.cpu_count or None, unknown),
        "is_spark": identity.is_spark,
    }


def daemon_object(facts: DaemonFacts) -> Object:
    return {
        "version": facts.version,
        **maybe("api_version", facts.api_version, "the daemon does not say"),
        **maybe("architecture", facts.architecture, "the daemon does not say"),
    }


def engine_object(view: EngineView, now: float) -> Object:
    """One engine. `id` is the container's name: what every command takes."""
    container = view.container
    running = container.running
    phase = view.timeline.current if view.state is EngineState.STARTING else None
    failure = view.timeline.failure if view.state is EngineState.FAILED else None
    up = now - container.started_at if running and container.started_at is not None else None
    not_told = "the engine has not said yet" if running else "it does not run"
    return {
        "id": container.name,
        "container_id": container.id,
        "state": view.state.value,
        **maybe("phase", phase.id.value if phase else None, "no start is under way"),
        **maybe("phase_progress", phase.progress if phase else None, "not known"),
        **maybe("runtime", view.runtime, "no serving runtime was recognised"),
        **maybe("version", view.version, not_told),
        **maybe("model", view.model, not_told),
        **maybe("served_name", view.served_name, not_told),
        "image": container.image,
        **maybe("preset", container.preset, "spark-tui did not launch it"),
        **maybe("port", view.port, "no port is published"),
        **maybe("url", view.base_url, "no port is published"),
        "exposure": view.exposure.value,
        "health": view.health.value,
        **maybe("started_at", moment(container.started_at), "it was never started"),
        **maybe("up_seconds", None if up is None else round(max(0.0, up), 1), "it does not run"),
        **maybe("boot_seconds", rounded(view.timeline.seconds), "not in the log"),
        **maybe("exit_code", container.exit_code, "it has not ended"),
        **maybe("failure", mask_secrets(failure.line) if failure else None, "it has not failed"),
    }


def timeline_object(boot: BootTimeline) -> list[Object]:
    """The phases of a start that have begun."""
    return [phase_object(found) for found in boot.phases if found.state.value not in ("pending", "skipped")]


def phase_object(found: Phase) -> Object:
    return {
        "id": found.id.value,
        "label": found.label,
        "state": found.state.value,
        **maybe("seconds", rounded(found.seconds), "it is not over, or the log has no times"),
        **maybe("progress", found.progress, "not known"),
        "detail": found.detail,
    }


def step_object(found: Step) -> Object:
    return {
        "id": found.id,
        "label": found.label,
        "state": found.state.value,
        "detail": found.detail,
        **maybe("progress", found.progress, "not known"),
        **maybe("seconds", rounded(found.seconds), "it is not over" if not found.state.over else "it took none"),
    }


def estimate_object(found: Eta) -> Object:
    """How long a start will still take: until `eta_until`, by earlier starts or by its own progress."""
    return {
        **maybe("eta_seconds", rounded(found.seconds, 0), "no earlier starts and no progress to estimate from"),
        "eta_until": found.until.value,
        "eta_basis": found.basis.value,
        "eta_starts": found.starts,
    }
