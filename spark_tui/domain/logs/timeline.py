"""What an engine's log has told about its start: phases with their times, facts, and how it ended.

All values are frozen and hold no clock: two equal timelines look the same on screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class PhaseState(StrEnum):
    """Where a phase stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class Outcome(StrEnum):
    """What the log says of the whole start."""

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


@dataclass(frozen=True, slots=True)
class Phase:
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
        """What it is called on screen."""
        return LABELS[self.id][0]

    @property
    def short_label(self) -> str:
        """The same, where room is dear."""
        return LABELS[self.id][1]


class Topic(StrEnum):
    """What a kept line of the log speaks of."""

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


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """A line that proves something: its message, cleaned, masked and cut. `line` counts from 0 as the log was read,
    as a `LogBuffer` counts; None when it is not known."""

    topic: Topic
    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that the log names: for `part` (`linear` or `moe`) and `format` (`NVFP4`, `MXFP4`, `FP8` ...), under
    the engine's own name for it. `text` and `line` as in `LogEvidence`."""

    part: str
    format: str
    name: str
    text: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the log says about the engine, as written there. Empty or None: not said (yet).

    Sizes are GiB as logged; CUDA-graph sizes may be negative on unified memory and are kept so.
    """

    version: str = ""
    model: str = ""
    architecture: str = ""
    max_model_len: int | None = None
    quantization: str = ""
    kv_cache_dtype: str = ""
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
    evidence: tuple[LogEvidence, ...] = ()
    """The lines behind all this, in the log's order; at most a few for each topic."""

    def proof(self, *topics: Topic) -> tuple[LogEvidence, ...]:
        """The kept lines about `topics`."""
        return tuple(kept for kept in self.evidence if kept.topic in topics)


@dataclass(frozen=True, slots=True)
class Failure:
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


@dataclass(frozen=True, slots=True)
class BootTimeline:
    """A start as its log tells it. `ready` stays true once the server said so, whatever came later: see `outcome`.

    `news` is the last line worth showing while it loads.
    """

    phases: tuple[Phase, ...]
    facts: EngineFacts = EngineFacts()
    outcome: Outcome = Outcome.UNKNOWN
    ready: bool = False
    failure: Failure | None = None
    news: str = ""
    seconds: float | None = None
    """From the container's start to the server being ready."""

    def phase(self, phase_id: str) -> Phase:
        """The phase of that id; KeyError when there is none."""
        for phase in self.phases:
            if phase.id == phase_id:
                return phase
        raise KeyError(phase_id)

    @property
    def current(self) -> Phase | None:
        """The phase that runs now."""
        return next((phase for phase in self.phases if phase.state is PhaseState.RUNNING), None)

    @property
    def failed(self) -> Phase | None:
        """The phase in which it failed."""
        return next((phase for phase in self.phases if phase.state is PhaseState.FAILED), None)


EMPTY_TIMELINE: Final = BootTimeline(tuple(Phase(phase_id) for phase_id in PhaseId))
