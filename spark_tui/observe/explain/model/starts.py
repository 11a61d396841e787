"""Starts of engines on this machine: the record of one, and how long the next will take.

A start of 15 minutes takes the same 15 minutes every time on one machine, for one preset and one image, as long as
the JIT caches are as warm as then. So an estimate rests on earlier starts, else on progress bars, else it is unknown.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerFacts, ImageFacts
from spark_tui.base.engine.state import EngineState, model_argument
from spark_tui.base.quantities import human_bytes
from spark_tui.base.text import truncate
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure
from spark_tui.observe.explain.model.line import share
from spark_tui.observe.explain.model.timeline import (
    LABELS,
    BootTimeline,
    EngineFacts,
    Phase,
    PhaseId,
    PhaseState,
    StartOutcome,
)
from spark_tui.observe.explain.model.view import EngineView, LogContext

_MOST_CELLS: Final = 400
_OUTSIDE: Final = (PhaseId.DOWNLOAD, PhaseId.READY, PhaseId.WARM)
"""Not part of a repeated start: a download happens once, and what follows readiness is not waited for."""
FROM_CACHE: Final = "from cache"
"""The compile phase's detail when its work was found in the cache."""


# --- the record of a start ----------------------------------------------------------------------------


class StartSizes(Struct, frozen=True):
    """Sizes that a start logged, in GiB, and the settings behind them; None where the log has none."""

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


class StartBackends(Struct, frozen=True):
    """How the engine computes, by its log; empty where the log has none. `kernels`: format, part and the engine's name
    of each, as in `Kernel`. `versions` of NCCL, CUDA, torch ... are the log's, else the image's own words."""

    attention: tuple[str, ...] = ()
    kernels: tuple[tuple[str, str, str], ...] = ()
    graph_mode: str = ""
    versions: tuple[tuple[str, str], ...] = ()


MOST_GOOD: Final = 20
"""Good starts that are kept for each preset, however many starts come after them."""
CRASH_SECONDS: Final = 600.0
"""An engine that crashes sooner after it was ready has not served well."""


class StartRecord(Struct, frozen=True):
    """One start of an engine, from its container's start to its end: container id and `at` identify it.

    `image_id` is the image's own digest (a tag may move), `image_digest` what its registry calls it (`NAME@sha256:...`;
    empty for one that was built or loaded here). `settings` is a fingerprint of what it was started with, `flags` are
    the engine's options as a benchmark keeps them. `kernel` and `driver` are the host's.
    `ready`: it came to serve. `outcome` is the latest one: READY while it serves, STOPPED, FAILED.
    `phases` are those that ended, with their seconds; `seconds` is the whole way to ready. `warm`: its JIT caches
    were warm, None where the log does not say. `cause` is a CauseId, `failure` its sentence and `line` the deciding
    one, all empty where nothing failed; `failed_in` is the phase. `ended_at` is None while it runs.
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
    outcome: StartOutcome = StartOutcome.UNKNOWN
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
    image_digest: str = ""
    flags: tuple[str, ...] = ()
    backends: StartBackends = StartBackends()
    kernel: str = ""
    driver: str = ""

    @property
    def key(self) -> tuple[str, float]:
        return self.container, self.at

    @property
    def failed(self) -> bool:
        """It did not come to serve, and was not stopped."""
        return not self.ready and self.outcome is StartOutcome.FAILED

    @property
    def good(self) -> bool:
        """A launch of ours that came to serve, and did not crash right after."""
        if self.outcome is StartOutcome.FAILED and self.ended_at is not None:
            return self.of_preset and self.ended_at - self.at - (self.seconds or 0.0) >= CRASH_SECONDS
        return self.of_preset

    @property
    def of_preset(self) -> bool:
        """It came to serve, and was launched from a preset."""
        return self.ready and bool(self.preset)


def start_record(view: EngineView, *, kernel: str = "", driver: str = "") -> StartRecord | None:
    """The record of a start that has come to serve or has ended; None for one that is still under way, or whose log
    has not been read to its end. `kernel` and `driver` are the host's now: they hold for what runs now."""
    container, timeline = view.container, view.timeline
    if container.started_at is None or view.state is EngineState.CREATED:
        return None
    ready = timeline.ready or view.state is EngineState.SERVING
    if container.running:
        outcome = StartOutcome.READY
    else:
        outcome = StartOutcome.FAILED if view.state is EngineState.FAILED else StartOutcome.STOPPED
    unread = timeline.outcome not in (StartOutcome.FAILED, StartOutcome.STOPPED) and not timeline.ready
    if (container.running and not ready) or (not container.running and unread):
        return None
    ended = (PhaseState.DONE, PhaseState.FAILED)
    record = StartRecord(
        container=container.id,
        at=container.started_at,
        engine=container.name,
        preset=container.preset,
        image=container.image,
        image_id=container.image_id,
        settings=settings_of(container),
        model=model_argument(container) or view.model,
        runtime=view.runtime,
        version=view.version,
        ready=ready,
        outcome=outcome,
        warm=is_warm(timeline),
        seconds=timeline.seconds,
        phases=repeated_phases(timeline)
        or tuple((p.id, p.seconds) for p in timeline.phases if p.state in ended and p.seconds is not None),
        sizes=sizes_of(timeline.facts),
        exit_code=None if container.running else container.exit_code,
        ended_at=None if container.running else container.finished_at,
        image_digest=digest_for(container.image, view.image.digests) if view.image is not None else "",
        backends=backends_of(timeline.facts, view.image),
        kernel=kernel if container.running else "",
        driver=driver if container.running else "",
    )
    if outcome is not StartOutcome.FAILED and view.guard is None:
        return record
    cause = explain_failure(timeline, replace(LogContext.of(container), guard=view.guard))
    failure, failed = timeline.failure, timeline.failed
    return replace(
        record,
        failed_in=(failure.phase if failure is not None else None) or (failed.id if failed is not None else None),
        cause=str(cause.id) if cause is not None else "",
        failure=truncate(cause.summary, _MOST_CELLS) if cause is not None else "",
        line=truncate(failure.line, _MOST_CELLS) if failure is not None else "",
    )


def sizes_of(facts: EngineFacts) -> StartSizes:
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


def backends_of(facts: EngineFacts, image: ImageFacts | None = None) -> StartBackends:
    versions = dict(image.versions if image is not None else ()) | ({"NCCL": facts.nccl} if facts.nccl else {})
    return StartBackends(
        attention=facts.attentions or tuple(filter(None, (facts.attention,))),
        kernels=tuple((each.format, each.part, each.name) for each in facts.kernels),
        graph_mode=facts.cudagraph_mode,
        versions=tuple(versions.items()),
    )


def digest_for(reference: str, digests: Sequence[str]) -> str:
    """Of an image's names in registries (`NAME@sha256:...`) the one of the repository that was asked for, else the
    first; empty where it has none."""

    def plain(name: str) -> str:
        return name.removeprefix("docker.io/").removeprefix("library/")

    asked = plain(reference.partition("@")[0])
    same = (
        each for each in digests if asked.startswith((found := plain(each.partition("@")[0])) + ":") or asked == found
    )
    return next(same, next(iter(digests), ""))


def settings_of(container: ContainerFacts) -> str:
    """A fingerprint of what a container was made with: our label's, else the command's."""
    if container.spec_hash:
        return container.spec_hash
    words = "\0".join(container.argv).encode("utf-8", "surrogatepass")
    return hashlib.sha256(words).hexdigest()[:16] if container.argv else ""


def merged(earlier: StartRecord, later: StartRecord) -> StartRecord:
    """Two records of one start: the later one counts, but for what a rotated log no longer shows."""
    return replace(
        later,
        engine=earlier.engine,  # a container that is replaced gets another name at its end
        ready=earlier.ready or later.ready,
        version=later.version or earlier.version,
        model=later.model or earlier.model,
        warm=earlier.warm if later.warm is None else later.warm,
        seconds=earlier.seconds if later.seconds is None else later.seconds,
        phases=later.phases or earlier.phases,
        sizes=earlier.sizes if later.sizes == StartSizes() else later.sizes,
        image_digest=later.image_digest or earlier.image_digest,
        flags=later.flags or earlier.flags,
        backends=later.backends if later.backends.attention or later.backends.kernels else earlier.backends,
        kernel=earlier.kernel or later.kernel,
        driver=earlier.driver or later.driver,
    )


# --- earlier starts -----------------------------------------------------------------------------------


def repeated_phases(timeline: BootTimeline) -> tuple[tuple[PhaseId, float], ...]:
    """The phases that a next start will have too, with their seconds; none of a start that did not become ready."""
    return tuple(
        (phase.id, phase.seconds)
        for phase in timeline.phases
        if timeline.ready and phase.state is PhaseState.DONE and phase.seconds is not None and phase.id not in _OUTSIDE
    )


def past_starts(starts: Iterable[StartRecord], container: ContainerFacts) -> tuple[StartRecord, ...]:
    """The starts from which `eta` can estimate this container's start, latest last.

    Those of the same image with the same settings; where there are none, of the same image and preset (or name, for
    a container that has no preset).
    """
    image, settings = container.image_id or container.image, settings_of(container)
    same_image = [
        start
        for start in starts
        if start.ready
        and start.phases
        and image in (start.image_id, start.image)
        and start.key != (container.id, container.started_at)
    ]
    alike = [start for start in same_image if settings and start.settings == settings] or [
        start
        for start in same_image
        if (start.preset == container.preset if container.preset else start.engine == container.name)
    ]
    return tuple(sorted(alike, key=lambda start: start.at))


def is_warm(timeline: BootTimeline) -> bool | None:
    """Whether this start found its compiled kernels in the cache; None while the log does not say."""
    detail = timeline.phase(PhaseId.COMPILE).detail
    return detail == FROM_CACHE if detail else None


# --- how long it will take ----------------------------------------------------------------------------

MAX_STARTS: Final = 5
"""Only the latest starts count: drivers, clocks and page caches change."""


class EtaBasis(StrEnum):
    """What an estimate rests on."""

    HISTORY = "history"
    PROGRESS = "progress"
    UNKNOWN = "unknown"


class Eta(Struct, frozen=True):
    """`seconds` from now until `until` (READY, or only the running phase's end) are an estimate, None when nothing is
    known. `starts` is how many earlier starts it rests on; `overdue` says that the running phase already takes longer
    than it ever did."""

    seconds: float | None = None
    basis: EtaBasis = EtaBasis.UNKNOWN
    until: PhaseId = PhaseId.READY
    starts: int = 0
    overdue: bool = False


UNKNOWN: Final = Eta()


def eta(timeline: BootTimeline, now: float, history: Sequence[StartRecord] = (), *, warm: bool | None = None) -> Eta:
    """How long until it is ready. `now` is on the clock of `Phase.started_at`; `history` is latest last.

    `warm`: the JIT caches are there, as long as the log does not say so itself. Starts with the same caches count;
    where there are none, all of them.
    """
    running = timeline.current
    if running is None or timeline.ready:
        return UNKNOWN
    alike = _alike(timeline, history, warm)
    by_bar = _by_bar(running, now)
    if not alike or (running.id is PhaseId.DOWNLOAD and by_bar is None):
        return Eta(by_bar, EtaBasis.PROGRESS, running.id) if by_bar is not None else UNKNOWN
    usual = _medians(alike)
    rest, overdue = by_bar, False
    if running.id in usual:
        if running.started_at is None:
            return UNKNOWN
        expected = usual[running.id] - (now - running.started_at)
        overdue = by_bar is None and expected < 0
        # its bar may end before the phase does (a drafter's shards follow): the longer of both counts
        rest = max(expected, 0.0 if by_bar is None else by_bar)
    if rest is None:
        return UNKNOWN
    rest += sum(usual[phase.id] for phase in timeline.phases if phase.id in usual and phase.state is PhaseState.PENDING)
    return Eta(rest, EtaBasis.HISTORY, PhaseId.READY, len(alike), overdue)


def usual_phases(timeline: BootTimeline, history: Sequence[StartRecord]) -> dict[PhaseId, float]:
    """Seconds that each phase took in earlier starts like this one; empty without any."""
    alike = _alike(timeline, history, None)
    return _medians(alike) if alike else {}


def _alike(timeline: BootTimeline, history: Sequence[StartRecord], warm: bool | None) -> list[StartRecord]:
    """The latest starts that count: those with the same caches, and where there are none, all of them."""
    logged = is_warm(timeline)
    warm = warm if logged is None else logged
    same = [start for start in history if warm is not None and start.warm in (warm, None)]
    return (same or list(history))[-MAX_STARTS:]


def _medians(starts: Sequence[StartRecord]) -> dict[PhaseId, float]:
    """A start without the phase counts as none of its time."""
    return {
        phase_id: median(dict(start.phases).get(phase_id, 0.0) for start in starts)
        for phase_id in PhaseId
        if phase_id not in _OUTSIDE
    }


def _by_bar(running: Phase, now: float) -> float | None:
    """Seconds left by the bar itself, less those since it said so; else by its progress in the time it had."""
    if running.left is not None:
        since = 0.0 if running.estimated_at is None else max(0.0, now - running.estimated_at)
        return max(0.0, running.left - since) if running.estimated_at is not None else running.left
    if not running.progress or running.started_at is None:
        return None
    return max(0.0, now - running.started_at) * (1 - running.progress) / running.progress


_STEPS: Final = ((60.0, 5), (600.0, 10), (float("inf"), 60))
"""Rounding steps in seconds: below each limit, its step."""
_FEW_SECONDS: Final = 7.5
"""Where the first step begins: a text stays for five seconds at least."""


def eta_text(found: Eta) -> str:
    """`about 2 min 10 s left (from 3 earlier starts)`; empty when nothing is known."""
    if found.seconds is None or found.basis is EtaBasis.UNKNOWN:
        return ""
    if found.basis is EtaBasis.PROGRESS:
        return f"{LABELS[found.until][0]}: {rough_duration(found.seconds)} left, by its own progress"
    source = f"from {found.starts} earlier start{'' if found.starts == 1 else 's'}"
    if not found.overdue:
        return f"{rough_duration(found.seconds)} left ({source})"
    then = "" if found.seconds < _FEW_SECONDS else f"; then {rough_duration(found.seconds)}"
    return f"takes longer than usual{then} ({source})"


def rough_duration(seconds: float) -> str:
    """`a few seconds`, `about 45 s`, `about 2 min 10 s`, `about 14 min`."""
    if seconds < _FEW_SECONDS:
        return "a few seconds"
    step = next(step for most, step in _STEPS if seconds < most)
    minutes, rest = divmod(round(seconds / step) * step, 60)
    return "about " + " ".join(([f"{minutes} min"] if minutes else []) + ([f"{rest} s"] if rest else []))


# --- the download of the weights ----------------------------------------------------------------------

WINDOW_SECONDS: Final = 30.0
"""The rate is that of the latest readings: a stalled download must not look fast."""
MIN_SECONDS: Final = 2.0
"""Readings closer together give no rate."""


class DownloadReadings:
    """Readings of one download, the latest ones only."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque(maxlen=120)
        self.done = -1
        """Bytes on disk; -1 before the first reading."""
        self.total: int | None = None

    def note(self, done: int, total: int | None, at: float | None) -> bool:
        """One reading: bytes on disk, bytes in all (None: not known), when (seconds, None without a clock). Returns
        whether there are more than at the reading before."""
        grown = 0 <= self.done < done
        if done < self.done or total != self.total:
            self._readings.clear()  # another file, or begun again
        self.done, self.total = done, total
        if at is not None and (not self._readings or at > self._readings[-1][0]):
            self._readings.append((at, done))
            while at - self._readings[0][0] > WINDOW_SECONDS and len(self._readings) > 2:
                self._readings.popleft()
        return grown

    @property
    def rate(self) -> float | None:
        """Bytes a second; None while it is not known."""
        if len(self._readings) < 2:
            return None
        (began, first), (at, last) = self._readings[0], self._readings[-1]
        return (last - first) / (at - began) if at - began >= MIN_SECONDS else None

    @property
    def left(self) -> float | None:
        """Seconds to the end at this rate; None when that is not known, or nothing arrives."""
        rate = self.rate
        return (self.total - self.done) / rate if self.total is not None and rate else None

    @property
    def progress(self) -> float | None:
        """0..1, None when the total is not known."""
        return None if self.total is None else share(self.done, self.total)

    @property
    def detail(self) -> str:
        """`12.3 GiB of 21.3 GiB, 112 MiB/s`."""
        of_all = "" if self.total is None else f" of {human_bytes(self.total)}"
        speed = "" if self.rate is None else f", {human_bytes(self.rate)}/s"
        return f"{human_bytes(self.done)}{of_all}{speed}"
