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
    PhaseId.CONTAINER: ("Container", "container"),
    PhaseId.CONFIG: ("Config", "config"),
    PhaseId.ENGINE_INIT: ("Engine init", "init"),
    PhaseId.DOWNLOAD: ("Download", "download"),
    PhaseId.WEIGHTS: ("Weights", "weights"),
    PhaseId.COMPILE: ("Compile", "compile"),
    PhaseId.KV_CACHE: ("KV cache", "KV"),
    PhaseId.AUTOTUNE: ("Autotune", "autotune"),
    PhaseId.CAPTURE: ("CUDA graphs", "graphs"),
    PhaseId.ENGINE_READY: ("Engine ready", "engine"),
    PhaseId.SERVER: ("Server", "server"),
    PhaseId.READY: ("Ready", "ready"),
    PhaseId.WARM: ("Warm", "warm"),
}
"""For each phase its label, and a short one for a line that holds them all."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. `started_at` is seconds since the epoch by Docker's stamps, None without them; `seconds` is how
    long it took, None until it is over (or when no clock was seen). `progress` is 0..1 or None."""

    id: PhaseId
    state: PhaseState = PhaseState.PENDING
    started_at: float | None = None
    seconds: float | None = None
    progress: float | None = None
    detail: str = ""

    @property
    def label(self) -> str:
        """What it is called on screen."""
        return LABELS[self.id][0]

    @property
    def short_label(self) -> str:
        """The same, where room is dear."""
        return LABELS[self.id][1]


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


@dataclass(frozen=True, slots=True)
class Failure:
    """The line that decides why it failed. `guess` says that the log does not prove it."""

    line: str
    process: str = ""
    guess: bool = False


@dataclass(frozen=True, slots=True)
class BootTimeline:
    """A start as its log tells it. `ready` stays true once the server said so, whatever came later: see `outcome`.

    `telling` is the last line worth showing while it loads.
    """

    phases: tuple[Phase, ...]
    facts: EngineFacts = EngineFacts()
    outcome: Outcome = Outcome.UNKNOWN
    ready: bool = False
    failure: Failure | None = None
    telling: str = ""
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
