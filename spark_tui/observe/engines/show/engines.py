"""Engines, their starts and the machine below them, for both front ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spark_tui.base.engine.container import ContainerFacts, DaemonFacts
from spark_tui.base.engine.state import EngineState, EngineWord, Exposure
from spark_tui.base.engine.units import BootState, BootStatus
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Missing, Reading, reason_of, value_of
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.host.vitals import shared_engine_memory
from spark_tui.base.jobs import JobView, Step, StepState
from spark_tui.base.page import (
    Cell,
    Column,
    Object,
    Page,
    Row,
    Section,
    Table,
    Tone,
    cells,
    labelled,
    maybe,
    moment,
    read,
    rounded,
)
from spark_tui.base.quantities import GIB, ago, gib, human_duration
from spark_tui.base.secret import mask_secrets

if TYPE_CHECKING:  # the first frame shows an empty list of engines, and loads nothing of logs and hosts for it
    from spark_tui.base.engine.units import ScheduleStatus
    from spark_tui.base.host.vitals import GpuReading, HostIdentity
    from spark_tui.base.launches import ClusterRecord
    from spark_tui.base.store import World
    from spark_tui.observe.explain.model.starts import Eta
    from spark_tui.observe.explain.model.timeline import BootTimeline, Phase
    from spark_tui.observe.explain.model.view import EngineView

STATE_TONES: Final = {
    EngineWord.READY: Tone.GOOD,
    EngineWord.BUSY: Tone.GOOD,
    EngineWord.RUNNING: Tone.GOOD,
    EngineWord.STALLED: Tone.BAD,
    EngineWord.FAILED: Tone.BAD,
    EngineWord.LOST: Tone.BAD,
    EngineWord.STOPPED: Tone.QUIET,
}
"""All other words are of an engine on its way, which is a warning."""
LAUNCH_WORDS: Final = {
    "preflight": EngineWord.QUEUED,
    "fetch": EngineWord.FETCHING,
    "pull": EngineWord.PULLING,
    "memory": EngineWord.QUEUED,
    "warm": EngineWord.WARMING_UP,
}
"""Steps of a launch that the engine itself shows nothing of."""
JOB_WORDS: Final = {
    StepState.PENDING: EngineWord.QUEUED,
    StepState.RUNNING: EngineWord.QUEUED,  # before its first step
    StepState.FAILED: EngineWord.FAILED,
    StepState.CANCELLED: EngineWord.STOPPED,
    StepState.DONE: EngineWord.LOST,
}
EXPOSURE_TEXTS: Final = {
    Exposure.LOCAL: "this machine only",
    Exposure.LAN: "open to the network, with a key",
    Exposure.LAN_NO_KEY: "open to the network without a key",
    Exposure.NONE: "no port",
}
PERCENT_STEP: Final = 25
"""Progress of a boot phase is announced in such steps."""


# --- one engine -------------------------------------------------------------------------------------------


class EngineStatus(Struct, frozen=True):
    """What an engine or its launch does, the same in every place. `percent` is how far that is, where it is known;
    `rank_of` the launch over several nodes that it is a part of without an API."""

    word: EngineWord
    percent: int | None = None
    exit_code: int | None = None
    rank_of: str = ""

    @property
    def text(self) -> str:
        """`ready`, `loading 62%`, `failed (exit 1)`, `running, rank of qwen`."""
        if self.word is EngineWord.FAILED and self.exit_code is not None:
            return f"failed (exit {self.exit_code})"
        rank = f", rank of {self.rank_of}" if self.rank_of else ""
        return (self.word.value if self.percent is None else f"{self.word.value} {self.percent}%") + rank

    @property
    def tone(self) -> Tone:
        return STATE_TONES.get(self.word, Tone.WARNING)

    @property
    def cell(self) -> Cell:
        return Cell(self.text, self.tone)


def engine_status(
    view: EngineView | None, job: JobView | None = None, launches: Sequence[ClusterRecord] = ()
) -> EngineStatus:
    """The status of an engine, of its launch before there is an engine, and of both while one becomes the other. A rank
    serves when its launch does, where that is one of `launches`."""
    step = job.current if job is not None and job.state is StepState.RUNNING else None
    if step is not None and (view is None or step.id in LAUNCH_WORDS):
        word, share = LAUNCH_WORDS.get(step.id, EngineWord.STARTING), step.progress
    elif view is not None:
        phase = view.timeline.current if view.state is EngineState.STARTING else None
        word, share = view.word, phase.progress if phase is not None else None
    else:
        word, share = JOB_WORDS[job.state] if job is not None else EngineWord.LOST, None
    code = view.container.exit_code if view is not None and word is EngineWord.FAILED else None
    rank_of = view.container.rank_of if view is not None else ""
    if word is EngineWord.RUNNING:
        serves = any(each.name == rank_of and each.stage == "ready" for each in launches)
        word, share = EngineWord.READY if serves else word, None
    return EngineStatus(word, None if share is None else round(share * 100), code, rank_of)


def exposure_cell(view: EngineView) -> Cell:
    quiet = Tone.QUIET if view.exposure is not Exposure.LAN else Tone.PLAIN
    return Cell(view.exposure.value, Tone.BAD if view.exposure is Exposure.LAN_NO_KEY else quiet)


def engine_page(
    view: EngineView,
    now: float,
    job: JobView | None = None,
    *,
    lan: str = "",
    secure: str = "K",
    launches: Sequence[ClusterRecord] = (),
) -> Page:
    """What an engine does, and everything a client needs to reach it. `lan` is the machine's address in the network,
    `secure` the key that makes an API key."""
    facts, status = view.container, engine_status(view, job, launches)
    state = [status.text]
    if facts.running and facts.started_at is not None:
        up = max(0.0, now - facts.started_at)
        state.append(f"up {human_duration(up // 60 * 60 if up >= 60 else up)}")
    elif facts.finished_at is not None:
        state.append(f"ended {day_and_time(facts.finished_at)}")
    if facts.bare:
        state.append(f"outside Docker, {facts.where}")
    elif not facts.ours:
        state.append("not started by spark-tui")
    exposed = view.exposure in (Exposure.LAN, Exposure.LAN_NO_KEY)
    network = f"http://{lan}:{view.port}/v1" if lan else "address of this machine unknown"
    keyless = not facts.api_key_file and not exposed
    where = f"network {network}" if exposed else "local" if view.port else EXPOSURE_TEXTS[view.exposure]
    url = f"{view.api_url}   {where}{', no key' if keyless else ''}"
    key = Row(f"in {facts.api_key_file}" if facts.api_key_file else "in its own command or environment", "key")
    if view.exposure is Exposure.LAN_NO_KEY:
        makes = "Start it with --api-key" if facts.bare else f"{secure} makes a key"
        key = Row(f"none: anyone on the network can use this engine. {makes}", "key", Tone.BAD)
    served = view.served_name or view.model or "not known yet"
    engine = [f"{view.runtime} {view.version}".strip(), facts.image]
    preset = facts.preset if facts.ours and facts.preset != view.name else ""  # its name says it
    if not view.word.serves and view.word not in (EngineWord.STALLED, EngineWord.STOPPING):
        about = Row("   ".join(filter(None, (engine[0], view.model))), "engine")
        return (Section(rows=(Row("   ".join(state), "state", status.tone), about, *labelled([("preset", preset)]))),)
    rows = (
        Row("   ".join(state), "state", status.tone),
        Row(url if view.port else "no port published", "url"),
        Row("   ".join(dict.fromkeys(filter(None, (served, view.model)))), "model", Tone.STRONG),
        *(() if keyless else (key,)),
        Row("   ".join(filter(None, engine)), "engine"),
        *labelled([("preset", preset)]),
    )
    return (Section(rows=rows),)


def day_and_time(at: float) -> str:
    """`21 Nov 18:40`, by this machine's clock."""
    return datetime.fromtimestamp(at).astimezone().strftime("%d %b %H:%M")


def docker_command(reason: str) -> str:
    """The command that brings Docker back, out of the reason that names it; empty where it names none."""
    found = re.search(r"sudo [^.,;]+", reason)
    return found[0].strip() if found else ""


def docker_page(reason: str, copy_key: str, doctor_key: str) -> Page:
    """Without Docker nothing else can be said: what is wrong, and the command."""
    command, (summary, _, rest) = docker_command(reason), reason.partition(". ")
    rows = [Row(summary.rstrip(".") + ".", "docker", Tone.BAD)]
    if command:
        rows.append(Row(f"{command}   ({copy_key} copies)", "fix", Tone.STRONG))
    elif rest:
        rows.append(Row(rest, "fix"))
    rows.append(Row(f"{doctor_key} checks the whole machine.", "", Tone.QUIET))
    return (Section("Docker cannot be reached", rows=tuple(rows)),)


# --- lists ------------------------------------------------------------------------------------------------


def engine_table(views: Sequence[EngineView], now: float) -> Table:
    """One row per engine, for the command line."""
    columns = (
        Column("NAME"),
        Column("STATE"),
        Column("PORT", right=True),
        Column("REACH", keep=1),
        Column("UP", right=True),
        Column("MODEL", least=12),
    )
    rows = tuple(
        cells(
            Cell(view.name, Tone.STRONG),
            engine_status(view).cell,
            str(view.port or "-"),
            exposure_cell(view),
            _up(view.container, now),
            view.model or "-",
        )
        for view in views
    )
    return Table(columns, rows)


def failure_notes(views: Sequence[EngineView]) -> list[str]:
    """Why engines have ended, of those that have failed."""
    return [
        f"{view.name} exited {view.container.exit_code}: {view.timeline.failure.line}"
        for view in views
        if view.state is EngineState.FAILED and view.timeline.failure is not None
    ]


def _up(container: ContainerFacts, now: float) -> str:
    if container.running and container.started_at is not None:
        return human_duration(max(0.0, now - container.started_at))
    return "-" if container.finished_at is None else ago(now - container.finished_at)


class LiveCells(Struct, frozen=True):
    """What an engine does this minute: tokens per second, their last minutes as a line, requests running."""

    rate: str = ""
    line: str = ""
    running: str = ""


def home_table(
    views: Sequence[EngineView],
    jobs: Sequence[JobView],
    empty: str = "",
    live: Mapping[str, LiveCells] | None = None,
    boot: Mapping[str, BootStatus] | None = None,
    launches: Sequence[ClusterRecord] = (),
    *,
    two_lines: bool = False,
) -> Table:
    """One row per engine, then one per launch that has no engine here: not yet, or on other nodes (`launches`). `boot`
    are those that start with the machine. With `two_lines` all but name, state and rate stands below."""
    columns = (
        Column("name", least=11),
        Column("state"),
        Column("rate", right=True, keep=4),
        Column("line", keep=3),
        Column("running", right=True, keep=2),
    )
    more = (Column("port", right=True, keep=1), Column("reach", keep=0), *((Column("boot", keep=5),) if boot else ()))
    rows, below, names = [], list[tuple[Cell, ...]](), [view.name for view in views]
    for view in views:
        status = engine_status(view, latest_job(jobs, view.name), launches)
        now = (live or {}).get(view.name, LiveCells())
        port = Cell(f":{view.port}" if view.port else "", Tone.QUIET)
        line = Cell(now.line, Tone.GOOD)
        badge = (boot_cell(boot.get(view.name)),) if boot else ()
        rows.append(cells(view.name, status.cell, now.rate, line, "" if two_lines else now.running))
        more_cells = (port, exposure_cell(view), *badge)
        model = Cell(view.model or view.container.preset, Tone.QUIET)
        below.append(cells(now.running, *more_cells, model) if two_lines else more_cells)
    for job in jobs:
        if job.title not in names and job.state is not StepState.DONE:
            rows.append(cells(job.title, engine_status(None, job).cell, "", "", ""))
            below.append(cells(*[""] * len(more)))
            names.append(job.title)
    for record in launches:
        if not {record.name, *(rank.name for rank in record.ranks)} & set(names):
            tone = {"ready": Tone.GOOD, "broken": Tone.BAD}.get(record.stage, Tone.WARNING)
            state = Cell(f"{record.stage.value}, {len(record.ranks)} nodes", tone)
            rows.append(cells(record.name, state, "", "", ""))
            below.append(cells(*[""] * len(more)))
            names.append(record.name)
    if two_lines:
        return Table(columns, tuple(rows), tuple(names), empty, below=tuple(below))
    return Table((*columns, *more), tuple(a + b for a, b in zip(rows, below, strict=True)), tuple(names), empty)


def latest_job(jobs: Sequence[JobView], name: str) -> JobView | None:
    return next((job for job in reversed(jobs) if job.title == name), None)


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
    serving = sum(view.word.serves for view in views)
    engines = f"{serving} of {len(views)} ready" if views else "none; launch one: spark-tui up PRESET"
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
    info, held = value_of(world.memory), value_of(shared_engine_memory(world.gpu))
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


def gpu_object(reading: GpuReading) -> Object:
    """The GPU's live readings. A GB10 has no memory of its own to report."""
    silent = "the driver does not report it"
    throttled = None
    if reading.throttled is not None:
        throttled = [{"id": each.kind.value, "share": each.share} for each in reading.throttled]
    return {
        "id": reading.name,
        **maybe("utilization_percent", reading.utilization_percent, silent),
        **maybe("power_watts", reading.power_watts, silent),
        **maybe("temperature_celsius", reading.temperature_c, silent),
        **maybe("sm_clock_mhz", reading.sm_clock_mhz, silent),
        **maybe("throttled", throttled, "needs two readings"),
        **maybe("memory_used_bytes", reading.memory_used, "it has none of its own" if reading.unified else silent),
        **maybe("driver", reading.driver, silent),
    }


def meminfo_object(info: MemInfo, engines: Reading[int]) -> Object:
    """`in_use` + `cache` + `free` is `total`; `engines` is what CUDA processes hold of what is in use."""
    return {
        "total_bytes": info.total,
        "in_use_bytes": info.in_use,
        **read("engines_bytes", engines, int),
        "cache_bytes": info.cache,
        **maybe("cache_droppable_bytes", info.droppable, "not reported by the kernel"),
        "free_bytes": info.free,
        "available_bytes": info.available,
        "swap_total_bytes": info.swap_total,
        "swap_used_bytes": info.swap_used,
    }


def status_object(
    world: World,
    daemon: DaemonFacts | None,
    views: Sequence[EngineView],
    error: SparkError | None,
    now: float,
    *,
    demo: bool,
) -> Object:
    """The same as data."""
    found = {
        "demo": demo,
        "host": host_object(world.identity),
        **read("uptime_seconds", world.uptime_minutes, lambda minutes: minutes * 60),
        **read("memory", world.memory, lambda info: meminfo_object(info, shared_engine_memory(world.gpu))),
        **read("memory_pressure_percent", world.pressure, float),
        **read("gpu", world.gpu, gpu_object),
    }
    if daemon is None:
        reason = str(error) if error else ""
        missing: Reading[DaemonFacts] = Missing(reason)
        outside = [engine_object(view, now) for view in views] or None  # what runs in Docker is unknown
        return found | read("docker", missing, daemon_object) | {"engines": outside, "engines_reason": reason}
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
    text, quarter = engine_status(view).text, 0
    if phase is not None:
        text = f"starting, {phase.label.lower()}"
        if phase.progress is not None:
            quarter = int(phase.progress * 100) // PERCENT_STEP * PERCENT_STEP
            text += f", {quarter} percent" if quarter else ""
    elif view.state is EngineState.FAILED:
        text = f"failed with exit code {view.container.exit_code}"
    elif view.state is EngineState.SERVING:
        text += f" with {view.model} on port {view.port}, {EXPOSURE_TEXTS[view.exposure]}"
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
    start_unknown = "only its address is known" if container.address else ""
    not_told = "the engine has not said yet" if running else "it does not run"
    return {
        "id": container.name,
        "container_id": container.id,
        "state": view.word.value,
        **maybe("phase", phase.id.value if phase else None, "no start is under way"),
        **maybe("phase_progress", phase.progress if phase else None, "not known"),
        **maybe("runtime", view.runtime, "no serving runtime was recognised"),
        **maybe("version", view.version, not_told),
        **maybe("model", view.model, not_told),
        **maybe("served_name", view.served_name, not_told),
        **maybe("image", container.image, "it runs outside Docker"),
        **maybe("preset", container.preset, "spark-tui did not launch it"),
        **maybe("port", view.port, "no port is published"),
        **maybe("url", view.base_url, "no port is published"),
        **maybe("base_url", view.api_url, "no port is published"),
        **maybe("api_key_file", container.api_key_file, "no key file"),
        "exposure": view.exposure.value,
        "health": view.health.value,
        **maybe("started_at", moment(container.started_at), start_unknown or "it was never started"),
        **maybe("up_seconds", None if up is None else round(max(0.0, up), 1), start_unknown or "it does not run"),
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


# --- start at boot ----------------------------------------------------------------------------------------


def boot_cell(status: BootStatus | None) -> Cell:
    """The badge in a row."""
    failed = status is not None and status.state is BootState.FAILED
    return Cell("boot failed" if failed else "boot" if status else "", Tone.BAD if failed else Tone.QUIET)


def boot_text(status: BootStatus) -> str:
    """`starts at boot`, and what keeps it from that."""
    match status.state:
        case BootState.OFF:
            return "does not start at boot"
        case BootState.FAILED:
            own = "" if status.system else "--user "
            return (
                f"start at boot failed ({status.detail or 'no reason given'}). See: systemctl {own}status {status.unit}"
            )
    return (
        "starts at boot" if status.lingers else "starts at the next login. For boot: sudo loginctl enable-linger $USER"
    )


def boot_question(status: BootStatus) -> tuple[str, str, str]:
    """Title, text and verb of the question before a change."""
    if status.on:
        return (
            f"Disable start at boot of {status.name}?",
            f"Removes {status.unit}. The engine keeps running.",
            "Disable",
        )
    what = "Writes a systemd unit: waits for Docker, launches with these settings, under the memory guard."
    return f"Enable start at boot of {status.name}?", what, "Enable"


def schedule_text(status: ScheduleStatus) -> str:
    """`stops 23:00, starts 07:00, mon-fri; next stop Thu 26 Nov 23:00`, and what keeps it from that."""
    schedule, unit = status.schedule, f"spark-tui-schedule-{status.name}"
    own, text = "" if status.unit.system else "--user ", schedule.text
    if status.unit.state is BootState.FAILED:
        text += f"; the last run failed ({status.unit.detail or 'no reason given'}). See: journalctl {own}-u {unit}"
    if status.next is None:
        return f"{text}; its timer does not run: systemctl {own}enable --now {unit}.timer"
    text += f"; next {schedule.due(status.next) or 'time'} {status.next:%a %d %b %H:%M}"
    return text if status.unit.lingers else f"{text}; only while you are logged in: sudo loginctl enable-linger $USER"


def schedule_object(status: ScheduleStatus, engine: bool | None) -> Object:
    """`engine`: whether it is there; None where Docker does not answer."""
    schedule, unit, following = status.schedule, status.unit, status.next
    return {
        "id": status.name,
        **maybe("stop", schedule.stop, "only starts"),
        **maybe("start", schedule.start, "only stops"),
        "days": list(schedule.days),
        **maybe("next", following and schedule.due(following), "the timer does not run"),
        "next_at": moment(following.timestamp() if following else None),
        "engine": engine,
        "state": unit.state.value,
        "system": unit.system,
        "lingers": unit.lingers,
        "reason": unit.detail or None,
    }


def boot_object(status: BootStatus) -> Object:
    return {
        "id": status.name,
        "state": status.state.value,
        "unit": status.unit or None,
        "system": status.system,
        "lingers": status.lingers,
        "reason": status.detail or None,
    }
