"""From an engine under watch to the record of its start, and from such records to what the next start may expect."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.logs.causes.diagnosis import explain_failure
from spark_tui.domain.logs.eta import PastStart, is_warm, past_start
from spark_tui.domain.logs.timeline import BootTimeline, EngineFacts, Outcome, PhaseId, PhaseState
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.text import truncate

_MOST_CELLS: Final = 400
_OVER: Final = (PhaseState.DONE, PhaseState.FAILED)


@dataclass(frozen=True, slots=True)
class StartSizes:
    """What a start measured and was asked for, as its log tells it; None where it does not. Sizes in GiB."""

    weights_gib: float | None = None
    """Weights once loaded, drafter included."""
    kv_gib: float | None = None
    kv_tokens: int | None = None
    graphs_gib: float | None = None
    """CUDA graphs as captured; may be negative on unified memory."""
    graphs_estimated_gib: float | None = None
    pool_gib: float | None = None
    utilization: float | None = None
    batched_tokens: int | None = None
    sequences: int | None = None
    context: int | None = None
    eager: bool = False
    cache_dtype: str = ""
    quantization: str = ""
    speculation: str = ""


@dataclass(frozen=True, slots=True)
class StartRecord:
    """One start of an engine, from its container's start to its end: container id and `at` name it.

    `image_id` is the image's own digest (a tag may move), `settings` a fingerprint of what it was started with.
    `ready`: it came to serve. `outcome` is what was seen last: READY while it serves, STOPPED, FAILED.
    `phases` are those that ended, with their seconds; `seconds` is the whole way to ready. `warm`: its JIT caches
    were warm, None where the log does not say. `cause` is a CauseId, `failure` its sentence and `line` the line
    that decides, all empty for one that did not fail; `failed_in` is the phase. `ended_at` is None while it runs.
    """

    container: str
    at: float
    engine: str
    preset: str = ""
    image: str = ""
    image_id: str = ""
    settings: str = ""
    model: str = ""
    runtime: str = ""
    version: str = ""
    ready: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    warm: bool | None = None
    seconds: float | None = None
    phases: tuple[tuple[PhaseId, float], ...] = ()
    sizes: StartSizes = StartSizes()
    failed_in: PhaseId | None = None
    cause: str = ""
    failure: str = ""
    line: str = ""
    exit_code: int | None = None
    ended_at: float | None = None

    @property
    def key(self) -> tuple[str, float]:
        """What names it."""
        return self.container, self.at

    @property
    def failed(self) -> bool:
        """It did not come to serve, and nobody stopped it."""
        return not self.ready and self.outcome is Outcome.FAILED


def start_record(view: EngineView) -> StartRecord | None:
    """The record of a start that has come to serve or has ended; None for one that is still under way, or whose log
    has not been read to its end."""
    container, timeline = view.container, view.timeline
    if container.started_at is None or view.state is EngineState.CREATED:
        return None
    ready = timeline.ready or view.state is EngineState.SERVING
    outcome = _outcome(view)
    if outcome is None or (outcome is Outcome.READY and not ready):
        return None
    record = StartRecord(
        container=container.id,
        at=container.started_at,
        engine=container.name,
        preset=container.preset,
        image=container.image,
        image_id=container.image_id,
        settings=settings_of(container),
        model=container.model or view.model,
        runtime=view.runtime,
        version=view.version,
        ready=ready,
        outcome=outcome,
        warm=is_warm(timeline),
        seconds=timeline.seconds,
        phases=_phases(timeline),
        sizes=sizes_of(timeline.facts),
        exit_code=None if container.running else container.exit_code,
        ended_at=None if container.running else container.finished_at,
    )
    return _with_cause(record, view) if outcome is Outcome.FAILED else record


def _outcome(view: EngineView) -> Outcome | None:
    """What was seen last; None while the log of an ended container has not told its end."""
    if view.container.running:
        return Outcome.READY
    if view.timeline.outcome not in (Outcome.FAILED, Outcome.STOPPED) and not view.timeline.ready:
        return None
    return Outcome.FAILED if view.state is EngineState.FAILED else Outcome.STOPPED


def _phases(timeline: BootTimeline) -> tuple[tuple[PhaseId, float], ...]:
    whole = past_start(timeline)
    if whole is not None:
        return whole.seconds
    return tuple((p.id, p.seconds) for p in timeline.phases if p.state in _OVER and p.seconds is not None)


def _with_cause(record: StartRecord, view: EngineView) -> StartRecord:
    container, timeline = view.container, view.timeline
    cause = explain_failure(
        timeline, exit_code=container.exit_code, oom_killed=container.oom_killed, error=container.error
    )
    failure = timeline.failure
    return replace(
        record,
        failed_in=failure.phase if failure is not None and failure.phase is not None else _failed_phase(timeline),
        cause=str(cause.id) if cause is not None else "",
        failure=truncate(cause.summary, _MOST_CELLS) if cause is not None else "",
        line=truncate(failure.line, _MOST_CELLS) if failure is not None else "",
    )


def _failed_phase(timeline: BootTimeline) -> PhaseId | None:
    return timeline.failed.id if timeline.failed is not None else None


def sizes_of(facts: EngineFacts) -> StartSizes:
    """What a log measured."""
    return StartSizes(
        weights_gib=facts.load_gib,
        kv_gib=facts.kv_gib,
        kv_tokens=facts.kv_tokens,
        graphs_gib=facts.graph_actual_gib,
        graphs_estimated_gib=facts.graph_estimated_gib,
        pool_gib=facts.device_gib,
        utilization=facts.gpu_memory_utilization,
        batched_tokens=facts.max_num_batched_tokens,
        sequences=facts.max_num_seqs,
        context=facts.max_model_len,
        eager=facts.eager,
        cache_dtype=facts.kv_cache_dtype,
        quantization=facts.quantization,
        speculation=facts.speculation,
    )


def settings_of(container: ContainerFacts) -> str:
    """A fingerprint of what a container was made with: our label's, else the command's."""
    if container.spec_hash:
        return container.spec_hash
    words = "\0".join(container.argv).encode("utf-8", "surrogatepass")
    return hashlib.sha256(words).hexdigest()[:16] if container.argv else ""


def merged(earlier: StartRecord, later: StartRecord) -> StartRecord:
    """Two looks at one start: the later one counts, but for what it could not see any more (a log that was rotated)."""
    return replace(
        later,
        ready=earlier.ready or later.ready,
        version=later.version or earlier.version,
        model=later.model or earlier.model,
        warm=earlier.warm if later.warm is None else later.warm,
        seconds=earlier.seconds if later.seconds is None else later.seconds,
        phases=later.phases or earlier.phases,
        sizes=earlier.sizes if later.sizes == StartSizes() else later.sizes,
    )


# --- what the next one may expect ---------------------------------------------------------------------


def past_starts(starts: Iterable[StartRecord], container: ContainerFacts) -> tuple[PastStart, ...]:
    """The starts that tell how long this container's start will take, latest last, as `eta` takes them.

    Those of the same image with the same settings; where there are none, of the same image and preset (or name, for
    a container that has no preset).
    """
    image = container.image_id or container.image
    same_image = [
        start
        for start in starts
        if start.ready
        and start.phases
        and image in (start.image_id, start.image)
        and start.key != (container.id, container.started_at)
    ]
    settings = settings_of(container)
    alike = [start for start in same_image if settings and start.settings == settings]
    if not alike:
        alike = [start for start in same_image if _kin(start, container)]
    return tuple(PastStart(start.phases, start.warm) for start in sorted(alike, key=lambda start: start.at))


def _kin(start: StartRecord, container: ContainerFacts) -> bool:
    return start.preset == container.preset if container.preset else start.engine == container.name
