"""An engine's start by its log: phases with their times, facts, how it ended, and the recorder of the phases.

The values are frozen and hold no clock: two equal timelines look the same on screen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace


class PhaseState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class StartOutcome(StrEnum):
    """How the whole start went, by the log."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    FAILED = "failed"


class PhaseId(StrEnum):
    """The phases in their order."""

    CONTAINER = "container"
    CONFIG = "config"
    ENGINE_INIT = "engine_init"
    DOWNLOAD = "download"
    WEIGHTS = "weights"
    COMPILE = "compile"
    KV_CACHE = "kv_cache"
    AUTOTUNE = "autotune"
    CAPTURE = "capture"
    ENGINE_READY = "engine_ready"
    SERVER = "server"
    READY = "ready"
    WARM = "warm"


LABELS: Final = {
    PhaseId.CONTAINER: ("Container", "container"), PhaseId.CONFIG: ("Config", "config"),
    PhaseId.ENGINE_INIT: ("Engine init", "init"), PhaseId.DOWNLOAD: ("Download", "download"),
    PhaseId.WEIGHTS: ("Weights", "weights"), PhaseId.COMPILE: ("Compile", "compile"),
    PhaseId.KV_CACHE: ("KV cache", "KV"), PhaseId.AUTOTUNE: ("Autotune", "autotune"),
    PhaseId.CAPTURE: ("CUDA graphs", "graphs"), PhaseId.ENGINE_READY: ("Engine ready", "engine"),
    PhaseId.SERVER: ("Server", "server"), PhaseId.READY: ("Ready", "ready"), PhaseId.WARM: ("Warm", "warm"),
}  # fmt: skip
"""For each phase its label, and a short one for a line that holds them all."""


class Phase(Struct, frozen=True):
    """One phase. `started_at` is seconds since the epoch by Docker's stamps, None without them; `seconds` is how
    long it took, None until it is over (or when no clock was seen). `progress` is 0..1 or None.

    `left` is what its progress bar, or the download's rate, said it would still take, in seconds; `estimated_at` is
    when (as `started_at`)."""

    id: PhaseId
    state: PhaseState = PhaseState.PENDING
    started_at: float | None = None
    seconds: float | None = None
    progress: float | None = None
    detail: str = ""
    left: float | None = None
    estimated_at: float | None = None

    @property
    def label(self) -> str:
        return LABELS[self.id][0]

    @property
    def short_label(self) -> str:
        return LABELS[self.id][1]


class Topic(StrEnum):
    """What a kept line of the log is about."""

    WEIGHT_ONLY = "weight_only"
    EMULATION = "emulation"
    BACKEND_REFUSED = "backend_refused"
    CHECKPOINT = "checkpoint"
    GRAPH_MODE = "graph_mode"
    GRAPH_SIZES = "graph_sizes"
    GRAPH_ESTIMATE = "graph_estimate"
    GRAPH_MEMORY = "graph_memory"
    UTILIZATION = "utilization"
    MEMORY = "memory"
    KV_SIZE = "kv_size"
    PADDING = "padding"
    ENVIRONMENT = "environment"
    EAGER = "eager"
    SPECULATION = "speculation"
    NO_DRIVER = "no_driver"
    RUNNER_FAILED = "runner_failed"
    TRUNCATED = "truncated"
    WORKER_WAIT = "worker_wait"
    RAY_WAIT = "ray_wait"
    NCCL_WAIT = "nccl_wait"
    DP_WAIT = "dp_wait"
    GROUP_WAIT = "group_wait"
    TILES = "tiles"
    TACTICS = "tactics"
    BLOCKS = "blocks"
    NCCL_SOCKET = "nccl_socket"


class LogEvidence(Struct, frozen=True):
    """A line that proves something: its message, cleaned, masked and cut. `line` counts from 0 as the log was read,
    as a `LogBuffer` counts; None when it is not known. `seconds`: of a wait, how long it has been by its own words;
    `at`: when it began, None without a clock."""

    topic: Topic
    text: str
    line: int | None = None
    seconds: float = 0.0
    at: float | None = None


class Kernel(Struct, frozen=True):
    """A kernel that the log names: for `part` (`linear` or `moe`) and `format` (`NVFP4`, `MXFP4`, `FP8` ...), under
    the engine's own name for it. `text` and `line` as in `LogEvidence`."""

    part: str
    format: str
    name: str
    text: str = ""
    line: int | None = None


class EngineFacts(Struct, frozen=True):
    """What the log says about the engine, as written there. Empty or None: not said (yet).

    Sizes are GiB as logged; CUDA-graph sizes may be negative on unified memory and are kept so.
    """

    version: str = ""
    model: str = ""
    architecture: str = ""
    max_model_len: int | None = None
    quantization: str = ""
    kv_cache_dtype: str = ""
    nccl: str = ""
    """NCCL's version, `2.28.9`."""
    speculation: str = ""
    attention: str = ""
    fp4_linear: str = ""
    fp4_moe: str = ""
    eager: bool = False
    checkpoint_gib: float | None = None
    load_gib: float | None = None
    kv_gib: float | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    graph_estimated_gib: float | None = None
    graph_actual_gib: float | None = None
    compile_seconds: float | None = None
    init_seconds: float | None = None
    url: str = ""

    # How it computes.
    unquantized: bool = False
    """The engine's own config says `quantization=None`."""
    kernels: tuple[Kernel, ...] = ()
    """Every kernel named, each once, in the log's order. Mixed checkpoints and drafters have several."""
    attentions: tuple[str, ...] = ()
    """Every attention backend of the model and its drafter, without the vision encoder's."""
    device: str = ""
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    max_num_batched_tokens: int | None = None
    async_scheduling: bool | None = None
    cudagraph_mode: str = ""
    attention_block: int | None = None
    """Tokens of a KV block where the log sets it; hybrid models have large ones."""

    # What it was asked for.
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    max_num_seqs: int | None = None
    moe_backend: str = ""
    linear_backend: str = ""

    # Memory.
    device_gib: float | None = None
    """The pool that utilization is a share of."""
    padding_percent: float | None = None
    utilization_without_estimate: float | None = None
    """The utilization that gives the same KV cache where graphs are not estimated."""
    utilization_with_estimate: float | None = None
    """The utilization that keeps the KV cache of before with graphs estimated."""
    graph_estimate_applied: bool | None = None
    """Whether the estimate was taken off the KV cache's share."""

    unknown_environment: tuple[str, ...] = ()
    waits: tuple[LogEvidence, ...] = ()
    """What is waited for since the last progress, by the first line that said so."""
    evidence: tuple[LogEvidence, ...] = ()
    """The lines behind all this, in the log's order; at most a few for each topic."""

    def proof(self, *topics: Topic) -> tuple[LogEvidence, ...]:
        return tuple(kept for kept in self.evidence if kept.topic in topics)


class StartFailure(Struct, frozen=True):
    """The line that decides why it failed, cleaned and masked. `guess` says that the log does not prove it.

    `lines` are the few that decide, in the log's order, `line` among them; `phase` is what ran when it failed;
    `exit_code` is the container's where it is known; `asked` are the engine's own settings that a remedy needs
    (port, gpu_memory_utilization, max_num_seqs ...), as the log gives them. `explain_failure` makes a cause of it.
    """

    line: str
    process: str = ""
    guess: bool = False
    lines: tuple[str, ...] = ()
    phase: PhaseId | None = None
    exit_code: int | None = None
    asked: tuple[tuple[str, str], ...] = ()
    ended: str = ""
    """The line by which it ended, where `line` is another one that says why."""
    module: str = ""
    """The file of the innermost frame above it: where it was raised."""
    frames: tuple[str, ...] = ()
    """The frames above it, innermost first, as they stand in the log."""


class EarlierStart(Struct, frozen=True):
    """A start before the last one of the same log: how it ended, the phase that failed, and the line that decided."""

    outcome: StartOutcome
    phase: PhaseId | None = None
    line: str = ""


class BootTimeline(Struct, frozen=True):
    """A start by its log. `ready` stays true once the server said so, whatever came later: see `outcome`.

    `news` is the last line worth showing while it loads.
    """

    phases: tuple[Phase, ...]
    facts: EngineFacts = EngineFacts()
    outcome: StartOutcome = StartOutcome.UNKNOWN
    ready: bool = False
    failure: StartFailure | None = None
    news: str = ""
    seconds: float | None = None
    """From the container's start to the server being ready."""
    stop: str = ""
    """The line that says that it was asked to stop."""
    earlier: tuple[EarlierStart, ...] = ()
    """Earlier starts in the same log, the latest few, in its order."""

    def phase(self, phase_id: str) -> Phase:
        return next(phase for phase in self.phases if phase.id == phase_id)

    @property
    def current(self) -> Phase | None:
        return next((phase for phase in self.phases if phase.state is PhaseState.RUNNING), None)

    @property
    def failed(self) -> Phase | None:
        return next((phase for phase in self.phases if phase.state is PhaseState.FAILED), None)


EMPTY_TIMELINE: Final = BootTimeline(tuple(Phase(phase_id) for phase_id in PhaseId))


_ORDER: Final = tuple(PhaseId)


class _Slot(Struct):
    started: float | None = None
    seconds: float | None = None
    progress: float | None = None
    detail: str = ""
    done: bool = False
    proven: bool = False
    ruled_out: bool = False
    elsewhere: float = 0.0
    """Seconds within it that belong to other phases."""
    begun: float | None = None
    """When it last took over from a phase that waits for it."""
    measured: float = 0.0
    """Seconds of it that were measured so, until its own line replaces them."""
    left: float | None = None
    estimated_at: float | None = None

    def close(self) -> None:
        self.done, self.progress, self.left, self.estimated_at = True, None, None, None


class PhaseRecorder:
    """One phase runs at a time, and time is never counted twice.

    A phase may be entered on suspicion (`proven=False`): it is the likely one after the last marker. When the next
    marker is of another phase, that one takes over the time, also when it comes earlier in the order. A proven
    phase is never left backwards: a slower rank's lines do not turn the clock back. Once it is ready nothing begins
    again.
    """

    def __init__(self) -> None:
        self._slots = {phase_id: _Slot() for phase_id in _ORDER}
        self.current: PhaseId | None = None
        self.now: float | None = None
        """The time of the latest line that had one, in seconds."""
        self._held: PhaseId | None = None
        self._end: PhaseState | None = None

    @property
    def over(self) -> bool:
        """It has failed or was stopped: no marker counts any more."""
        return self._end is not None

    def tick(self, at: float | None) -> None:
        """Takes the time of a line; order between stdout and stderr is only approximate, so it never decreases."""
        if at is not None and (self.now is None or at > self.now):
            self.now = at

    def enter(self, phase_id: PhaseId, *, proven: bool = True) -> None:
        if phase_id is not self.current:
            self.release()
        slot = self._slots[phase_id]
        if self.over or self._slots[PhaseId.READY].done or phase_id is self.current:
            slot.proven = slot.proven or (proven and not self.over)
            return
        started = self.now
        if self.current is not None:
            running = self._slots[self.current]
            backwards = _ORDER.index(phase_id) < _ORDER.index(self.current)
            if running.proven and (backwards or (slot.done and not proven)):
                return
            if running.proven:
                self._close(running)
            else:
                started = running.started
                self._slots[self.current] = _Slot(ruled_out=running.ruled_out)
        if slot.started is None:
            slot.started = started
        slot.done, slot.seconds, slot.proven, slot.ruled_out = False, None, proven, False
        self.current = phase_id

    def finish(self, phase_id: PhaseId, then: PhaseId, detail: str = "", *, proven: bool = False) -> None:
        """A marker says that this phase has ended; `then` is the likely next one, or the certain one (`proven`)."""
        self.enter(phase_id)
        if self.current is phase_id:
            self._slots[phase_id].detail = detail
            self.enter(then, proven=False)
        if proven and self.current is then:
            self._slots[then].proven = True

    def report(
        self, phase_id: PhaseId, detail: str | None = None, progress: float | None = None, left: float | None = None
    ) -> None:
        """How far the running phase is; `left` is how many seconds it still takes by its own bar or rate."""
        if self.current is phase_id:
            slot = self._slots[phase_id]
            slot.progress, slot.left = progress, left
            slot.estimated_at = None if left is None else self.now
            slot.detail = slot.detail if detail is None else detail

    def describe(self, phase_id: PhaseId, detail: str) -> None:
        """Replaces the detail of a phase, when a later line knows better."""
        if not self.over:
            self._slots[phase_id].detail = detail

    def hold(self, phase_id: PhaseId) -> None:
        """The running phase waits for an earlier one: weights for their download. The time is the other one's."""
        if self.over or self._held is not None or self.current in (None, phase_id):
            return
        slot = self._slots[phase_id]
        slot.started = slot.started if slot.started is not None else self.now
        slot.begun, slot.done, slot.proven, slot.ruled_out = self.now, False, True, False
        self._held, self.current = self.current, phase_id

    def release(self) -> None:
        """The phase that another waited for is over; nothing when none is held."""
        if self._held is None or self.current is None:
            return
        slot = self._slots[self.current]
        took = max(0.0, self.now - slot.begun) if self.now is not None and slot.begun is not None else 0.0
        slot.measured += took
        slot.seconds = (slot.seconds or 0.0) + took
        slot.close()
        self._slots[self._held].elsewhere += took
        self.current, self._held = self._held, None

    def rule_out(self, *phase_ids: PhaseId) -> None:
        for phase_id in phase_ids:
            self._slots[phase_id].ruled_out = True

    def note_past(self, phase_id: PhaseId, seconds: float, within: PhaseId) -> None:
        """A phase was silent while it ran: it took `seconds` of the time counted for `within` so far. They replace
        what was measured from outside meanwhile."""
        slot = self._slots[phase_id]
        seconds -= slot.measured
        slot.seconds, slot.measured = (slot.seconds or 0.0) + seconds, 0.0
        slot.done = slot.proven = True
        if slot.started is None and self.now is not None:
            slot.started = self.now - seconds
        self._slots[within].elsewhere += seconds

    def mark(self, phase_id: PhaseId, seconds: float | None = None) -> None:
        """The phase is done, an instant rather than a span unless `seconds` says otherwise."""
        self.release()
        if self.current is not None and self.current is not phase_id:
            self._close(self._slots[self.current])
        slot = self._slots[phase_id]
        slot.started = slot.started if slot.started is not None else self.now
        slot.seconds, slot.done, slot.proven = seconds, True, True
        self.current = None

    def end(self, state: PhaseState) -> None:
        """The running phase has FAILED, or is SKIPPED because the engine was stopped."""
        self._end, self._held = state, None
        if self.current is not None:
            slot = self._slots[self.current]
            detail, progress = slot.detail, slot.progress
            self._close(slot)
            slot.done, slot.detail, slot.progress = False, detail, progress

    def since_start(self, phase_id: PhaseId) -> float | None:
        """Seconds from the first phase's start to this one's."""
        first = next((s.started for s in self._slots.values() if s.started is not None), None)
        end = self._slots[phase_id].started
        return None if first is None or end is None else round(end - first, 3)

    def begin_at(self, at: float) -> None:
        """The container started at `at`, before its first line."""
        slot = self._slots[PhaseId.CONTAINER]
        if slot.started is None or at < slot.started:
            slot.started = at

    def phases(self, *, real_clock: bool) -> tuple[Phase, ...]:
        """The phases as values; without a real clock there are durations but no times. A phase that never ran is
        skipped where a later one is certain."""
        reached = max((index for index, slot in enumerate(self._slots.values()) if slot.proven), default=0)
        found = []
        for index, (phase_id, slot) in enumerate(self._slots.items()):
            started = slot.started
            if phase_id is self.current:
                state = self._end or PhaseState.RUNNING
                if started is not None and phase_id is not PhaseId.DOWNLOAD:
                    started += slot.elsewhere  # what it spent waiting for others is not its own time
            elif slot.done:
                state = PhaseState.DONE
            else:
                state = PhaseState.SKIPPED if index < reached or slot.ruled_out else PhaseState.PENDING
            seconds = None if slot.seconds is None else round(slot.seconds, 3)
            phase = Phase(phase_id, state, started, seconds, slot.progress, slot.detail, slot.left, slot.estimated_at)
            found.append(phase if real_clock else replace(phase, started_at=None, estimated_at=None))
        return tuple(found)

    def _close(self, slot: _Slot) -> None:
        slot.close()
        if slot.started is not None and self.now is not None:
            slot.seconds = max(0.0, self.now - slot.started - slot.elsewhere)
