"""An engine by its container, its log and its API, and what is known beside a log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from spark_tui.base.engine.container import ContainerFacts, ContainerStatus, ImageFacts
from spark_tui.base.engine.runtimes import with_tag
from spark_tui.base.engine.state import (
    EngineState,
    EngineWord,
    Exposure,
    Health,
    ServedModel,
    base_url,
    model_argument,
    name_argument,
    runtime_of,
)
from spark_tui.base.host.guard import GuardEntry
from spark_tui.observe.explain.model.serving import ServingSample
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE, BootTimeline, PhaseId

if TYPE_CHECKING:
    from spark_tui.base.checkpoint import CheckpointFacts

_STATES: Final = {
    EngineState.CREATED: EngineWord.QUEUED,
    EngineState.STARTING: EngineWord.STARTING,
    EngineState.RESTARTING: EngineWord.STARTING,
    EngineState.SERVING: EngineWord.READY,
    EngineState.NOT_ANSWERING: EngineWord.STALLED,
    EngineState.PAUSED: EngineWord.STALLED,
    EngineState.STOPPED: EngineWord.STOPPED,
    EngineState.FAILED: EngineWord.FAILED,
}
_PHASES: Final = {
    PhaseId.DOWNLOAD: EngineWord.FETCHING,
    PhaseId.WEIGHTS: EngineWord.LOADING,
    **dict.fromkeys((PhaseId.COMPILE, PhaseId.KV_CACHE, PhaseId.AUTOTUNE, PhaseId.CAPTURE), EngineWord.COMPILING),
    **dict.fromkeys((PhaseId.ENGINE_READY, PhaseId.SERVER, PhaseId.READY, PhaseId.WARM), EngineWord.WARMING_UP),
}
"""Phases of a boot that have a word of their own."""


class EngineView(Struct, frozen=True):
    """One row of the engine list, and everything its detail shows. Equal views need no repaint.

    `samples` are what it reported about its serving, oldest first; `checkpoint` is its model where that is in the
    store; `image` is that of a launch of ours, once it was looked at; `first_line` is the number in its log buffer of
    the line that evidence calls line 0; `stopping`: it was asked to stop, and still runs.
    """

    container: ContainerFacts
    state: EngineState
    runtime: str
    exposure: Exposure
    port: int | None = None
    health: Health = Health.UNKNOWN
    models: tuple[ServedModel, ...] = ()
    version: str = ""
    timeline: BootTimeline = EMPTY_TIMELINE
    samples: tuple[ServingSample, ...] = ()
    checkpoint: CheckpointFacts | None = None
    first_line: int = 0
    stopping: bool = False
    image: ImageFacts | None = None
    guard: GuardEntry | None = None
    """The act of the memory guard that ended this start."""

    @property
    def word(self) -> EngineWord:
        """The state in people's words, by the phase while it starts and by its latest sample while it serves."""
        if self.container.status is ContainerStatus.DEAD:
            return EngineWord.LOST
        if self.stopping:
            return EngineWord.STOPPING
        if self.state is EngineState.STARTING and self.container.rank_of:
            return EngineWord.RUNNING
        if self.state is EngineState.STARTING and self.timeline.current is not None:
            return _PHASES.get(self.timeline.current.id, EngineWord.STARTING)
        if self.state is EngineState.SERVING and self.samples and self.samples[-1].running:
            return EngineWord.BUSY
        return _STATES[self.state]

    @property
    def name(self) -> str:
        return self.container.name

    @property
    def base_url(self) -> str:
        """Where this host reaches the API; empty without a port."""
        return base_url(self.container, self.port) if self.port else ""

    @property
    def api_url(self) -> str:
        """The base URL as clients of the OpenAI API are given it; empty without a port."""
        return f"{self.base_url}/v1" if self.port else ""

    @property
    def model(self) -> str:
        """What it serves, best source first: the API, the command, our label, the log."""
        served = self._served
        if served is not None and served.root:
            return served.root
        named = model_argument(self.container) or self.timeline.facts.model
        return named if served is None else named or served.id

    @property
    def served_name(self) -> str:
        """The name that requests must use; empty until it is known."""
        return self._served.id if self._served else name_argument(self.container)

    @property
    def _served(self) -> ServedModel | None:
        """The entry that is ours; the first where none has that name."""
        own = name_argument(self.container)
        names = (own, with_tag(own)) if own else ()
        return next((model for model in self.models if model.id in names), next(iter(self.models), None))


class Baseline(Struct, frozen=True):
    """How fast this machine has served the same preset and image before: tokens per second of one stream, over
    `runs`."""

    decode_rate: float
    runs: int = 1


class LogContext(Struct, frozen=True):
    """What is known beside the log; everything may be missing.

    `engine` is the runtime (`vllm`, `sglang` ...); `argv` and `environment` are the engine's own (a variable of
    unknown value has an empty one); `exit_code`, `oom_killed` and `error` are Docker's; `guard` is the act of the
    memory guard that ended it; `now` is on the clock of the log's stamps; `pool_gib` is the memory of the machine it
    runs on; `taken_ports` are not proposed in place of one in use.
    """

    engine: str = ""
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    checkpoint: CheckpointFacts | None = None
    ended: bool = False
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    kernel_lines: tuple[str, ...] = ()
    guard: GuardEntry | None = None
    health: Health = Health.UNKNOWN
    now: float | None = None
    baseline: Baseline | None = None
    pool_gib: float | None = None
    taken_ports: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        container: ContainerFacts,
        *,
        health: Health = Health.UNKNOWN,
        now: float | None = None,
        checkpoint: CheckpointFacts | None = None,
        pool_gib: float | None = None,
        taken_ports: Collection[int] = (),
    ) -> LogContext:
        """What Docker and the engine say about a container. `now` is epoch seconds, `pool_gib` the machine's memory in
        GiB."""
        return cls(
            engine=runtime_of(container),
            argv=container.argv,
            environment=dict.fromkeys(container.environment, ""),
            checkpoint=checkpoint,
            ended=not container.running and container.started_at is not None,
            exit_code=None if container.running else container.exit_code,
            oom_killed=container.oom_killed,
            error=container.error,
            health=health,
            now=now if container.running else None,
            pool_gib=pool_gib,
            taken_ports=tuple(sorted(taken_ports)),
        )
