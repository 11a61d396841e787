"""What a server's metrics say about how it serves: speed, queue, latency, KV cache, speculation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, TypeVar

from msgspec import Struct

from spark_tui.base.engine.metrics_page import Change, Family, Latency, MetricPage, Snapshot, restarted
from spark_tui.base.finding import NOT_READ_YET, Missing, Ok, Reading, Stale, value_of
from spark_tui.base.host.detectors import TokenSample
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.host.series import MetricId
from spark_tui.base.host.vitals import GpuReading, Vitals, shared_engine_memory
from spark_tui.base.quantities import GIB

T = TypeVar("T")

ONE_LOOK: Final = Missing("a rate needs two readings")
AT_END_NOTE: Final = "This server counts tokens when a request ends: throughput is the mean over the window."
TPOT_NOTE: Final = "Inter-token latency is the mean per request (this server reports no other)."
AT_MOST_NOTE: Final = "KV capacity is blocks times block size, too high for a hybrid model."


class Drafting(Struct, frozen=True):
    """Speculation over a window. `acceptance` is the share of drafted tokens that were accepted, `length` the tokens
    that one step yields (accepted ones and the model's own), `positions` the share of drafts accepted at each
    position. Shares are 0 to 1; None where the server does not report it. `drafted` counts tokens."""

    acceptance: float | None = None
    length: float | None = None
    positions: tuple[float, ...] = ()
    drafted: float | None = None


class EngineMetrics(Struct, frozen=True):
    """One server, or one engine of it, over a window of `seconds` (None: since its start, which is not known).

    Rates are tokens per second over the last `rate_seconds`; latencies, shares and `finished` are over the window;
    running, waiting and the KV cache are now. `prefill_rate` leaves out what came from a cache where the server reports
    it apart. `kv_usage` and `prefix_hits` are shares from 0 to 1. `waiting_by_reason` and `finished` are empty where
    the server gives no reasons. `energy` is the GPU's joules per generated token. `prompt_tokens`,
    `generated_tokens` and `preemptions_ever` count since the server's start. `notes` say what a figure is not.
    `moved` is whether any counter has grown over the window, None where that is not known; `held`: requests ran at both
    its ends, and a counter that moves with every token stood still with all others.
    """

    seconds: float | None
    rate_seconds: float | None
    prefill_rate: Reading[float]
    decode_rate: Reading[float]
    running: Reading[float]
    waiting: Reading[float]
    ttft: Reading[Latency]
    itl: Reading[Latency]
    e2e: Reading[Latency]
    queue: Reading[Latency]
    kv_usage: Reading[float]
    kv_capacity_tokens: Reading[int]
    prefix_hits: Reading[float]
    preemptions: Reading[float]
    drafting: Reading[Drafting]
    energy: Reading[float]
    finished_count: Reading[float]
    failed_count: Reading[float]
    prompt_tokens: Reading[float]
    generated_tokens: Reading[float]
    preemptions_ever: Reading[float]
    waiting_by_reason: tuple[tuple[str, float], ...] = ()
    finished: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    moved: bool | None = None
    held: bool = False


def measure(wide: Change, narrow: Change | None = None) -> EngineMetrics:
    """`wide` is the window, `narrow` the shorter stretch that speeds are taken over (the window itself if None)."""
    page, generated = wide.page, generated_family(wide.page)
    at_end = generated is Family.GENERATED_AT_END
    short = wide if narrow is None or at_end else narrow
    computed = Family.PROMPT_COMPUTED if short.page.has(Family.PROMPT_COMPUTED) else Family.PROMPT
    speed, running = page.total(Family.DECODE_SPEED), page.total(Family.RUNNING)
    # Older SGLang: the last figure stays when nothing runs. Where that is not known, the counter decides.
    by_server = None if speed is None or running is None or not at_end else Ok(speed if running else 0.0)
    moved, begun = wide.moved, token_sample(wide.before.page, 0.0) if wide.before else None
    prompt = page.total(Family.PROMPT)
    if prompt is None and (own := page.total(Family.PROMPT_COMPUTED)) is not None:
        prompt = own + (page.total(Family.PROMPT_CACHED) or 0.0)
    finished = wide.grown_by_label(Family.FINISHED)
    # A client that goes away (`abort`) is no failure. TensorRT-LLM gives HTTP codes.
    failed = [count for reason, count in finished.items() if reason == "error" or reason.isdigit()]
    usage = page.values(Family.KV_USAGE)  # of engines that have caches of one size
    notes = (
        (at_end and page.has(Family.GENERATED_AT_END), AT_END_NOTE),
        (page.has(Family.TPOT) and not page.has(Family.ITL), TPOT_NOTE),
        (page.has(Family.KV_TOKENS_AT_MOST) and not page.has(Family.KV_TOKENS), AT_MOST_NOTE),
    )
    return EngineMetrics(
        seconds=wide.seconds,
        rate_seconds=short.seconds,
        prefill_rate=_rate(short, computed),
        decode_rate=by_server or _rate(short, generated),
        running=_reading(running, Family.RUNNING),
        waiting=_reading(page.total(Family.WAITING), Family.WAITING),
        ttft=_latency(wide, Family.TTFT),
        itl=_latency(wide, Family.ITL if page.has(Family.ITL) else Family.TPOT),
        e2e=_latency(wide, Family.E2E),
        queue=_latency(wide, Family.QUEUE),
        kv_usage=Ok(min(1.0, sum(usage) / len(usage))) if usage else _absent(Family.KV_USAGE),
        kv_capacity_tokens=_capacity(page),
        prefix_hits=_prefix(wide),
        preemptions=_reading(wide.grown(Family.PREEMPTIONS), Family.PREEMPTIONS),
        drafting=_drafting(wide),
        energy=_energy(wide, generated),
        finished_count=_reading(sum(finished.values()) if finished else None, Family.FINISHED),
        failed_count=Ok(sum(failed)) if any(finished) else _absent(Family.FINISHED),
        prompt_tokens=_reading(prompt, Family.PROMPT),
        generated_tokens=_reading(page.total(generated), Family.GENERATED),
        preemptions_ever=_reading(page.total(Family.PREEMPTIONS), Family.PREEMPTIONS),
        waiting_by_reason=tuple(sorted(page.by_label(Family.WAITING_BY_REASON).items())),
        finished=tuple(sorted((reason, count) for reason, count in finished.items() if reason)),
        notes=tuple(note for applies, note in notes if applies),
        moved=moved,
        held=moved is False and begun is not None and begun.running > 0 and bool(running),
    )


def generated_family(page: MetricPage) -> Family:
    """The counter of generated tokens, the one that moves while a request runs first."""
    live = (Family.GENERATED, Family.GENERATED_LIVE)
    return next((family for family in live if page.has(family)), Family.GENERATED_AT_END)


def token_sample(page: MetricPage, at: float) -> TokenSample | None:
    """For the stall detector: what runs, and how far the counters that move while a request runs have come. None where
    there is no such counter: one that moves when a request ends looks frozen during every long answer."""
    running = page.total(Family.RUNNING)
    live = next(
        (family for family in (Family.GENERATED, Family.GENERATED_LIVE, Family.STEPS) if page.has(family)), None
    )
    if running is None or live is None:
        return None
    prompt = page.total(Family.PROMPT_COMPUTED)
    return TokenSample(at, running, page.total(live) or 0.0, page.total(Family.PROMPT) or prompt)


def _reading(value: float | None, family: Family) -> Reading[float]:
    return _absent(family) if value is None or not isfinite(value) else Ok(value)


def _absent(family: Family) -> Missing:
    return Missing(f"not reported by the server: {family.value}")


def _rate(change: Change, family: Family) -> Reading[float]:
    rate = change.rate(family)
    return ONE_LOOK if rate is None and change.page.has(family) else _reading(rate, family)


def _energy(change: Change, generated: Family) -> Reading[float]:
    joules, tokens = change.joules, change.grown(generated)
    if joules is None:
        return Missing("GPU power unknown for part of the window")
    if tokens is None:
        return _absent(Family.GENERATED)
    return Ok(joules / tokens) if tokens else Missing("no tokens generated in the window")


def _latency(change: Change, family: Family) -> Reading[Latency]:
    found = change.histogram(family)
    if found is None:
        return _absent(family)
    latency = found.latency()
    if latency is None:
        since = "since the start" if change.before is None else "in the window"
        return Missing(f"no {'tokens' if family is Family.ITL else 'requests'} {since}")
    return Ok(latency)


def _capacity(page: MetricPage) -> Reading[int]:
    for family in (Family.KV_TOKENS, Family.KV_TOKENS_AT_MOST):
        if tokens := page.total(family):
            return Ok(int(tokens))
    blocks, size = page.total(Family.KV_BLOCKS), max(page.values(Family.KV_BLOCK_TOKENS), default=None)
    product = blocks * size if blocks and size else 0.0
    return Ok(int(product)) if product and isfinite(product) else _absent(Family.KV_TOKENS)


def _prefix(change: Change) -> Reading[float]:
    """Hits by look-ups, both in tokens or both in blocks."""
    hits, asked = change.grown(Family.PREFIX_HITS), change.grown(Family.PREFIX_QUERIES)
    misses = change.grown(Family.PREFIX_MISSES)
    if hits is None:
        hits, asked = change.grown(Family.PROMPT_CACHED), change.grown(Family.PROMPT)
        misses = change.grown(Family.PROMPT_COMPUTED) or 0.0 if asked is None else None
    if hits is None or (asked is None and misses is None):
        shares = change.page.values(Family.PREFIX_SHARE)
        return Ok(min(1.0, max(shares))) if shares else _absent(Family.PREFIX_HITS)
    asked = hits + misses if misses is not None else asked
    return Ok(min(1.0, hits / asked)) if asked else Missing("no prefix cache queries in the window")


def _drafting(change: Change) -> Reading[Drafting]:
    tokens, accepted = change.grown(Family.DRAFT_TOKENS), change.grown(Family.ACCEPTED)
    server_length = max(change.page.values(Family.ACCEPTED_LENGTH), default=None)
    if tokens is None or accepted is None:  # SGLang reports means of its last batches; zero where it does not speculate
        if not server_length:
            return Missing("no speculative decoding")
        share = max(change.page.values(Family.ACCEPTED_SHARE), default=None)
        return Ok(Drafting(share if share is None else min(1.0, share), server_length))
    if not tokens:
        return Missing("no tokens drafted in the window")
    drafts = change.grown(Family.DRAFTS)
    by_position = change.grown_by_label(Family.ACCEPTED_BY_POSITION)
    counted = sorted((int(label), count) for label, count in by_position.items() if label.isdecimal())
    positions = tuple(min(1.0, count / drafts) for _, count in counted) if drafts else ()
    return Ok(
        Drafting(min(1.0, accepted / tokens), 1 + accepted / drafts if drafts else server_length, positions, tokens)
    )


Values = tuple[dict[MetricId, float], dict[MetricId, str]]
"""What has a value, and why the rest has none."""

_LATENCIES: Final[Mapping[MetricId, tuple[str, str]]] = {
    MetricId(f"{name}_{quantile}_seconds"): (name, quantile)
    for name in ("ttft", "itl", "e2e", "queue")
    for quantile in ("p50", "p95", "p99")
}


def engine_values(metrics: EngineMetrics) -> Values:
    """The series of one engine, in the units of their `MetricId`."""
    read = {metric: pick(metrics) for metric, pick in _ENGINE.items()}
    for metric, (name, quantile) in _LATENCIES.items():
        found: Reading[Latency] = getattr(metrics, name)
        read[metric] = found if isinstance(found, Missing) else Ok(getattr(found.value, quantile).value)
    return _split(read)


def percent(share: Reading[float]) -> Reading[float]:
    return share if isinstance(share, Missing) else Ok(share.value * 100)


def _per_minute(count: Reading[float], seconds: float | None) -> Reading[float]:
    if isinstance(count, Missing):
        return count
    return Ok(count.value * 60 / seconds) if seconds else Missing("a rate needs two readings")


def _by_reason(metrics: EngineMetrics, reason: str) -> Reading[float]:
    count = dict(metrics.waiting_by_reason).get(reason)
    return Missing("not reported by the server: reasons for waiting") if count is None else Ok(count)


def _draft(metrics: EngineMetrics, pick: Callable[[Drafting], float | None]) -> Reading[float]:
    if isinstance(metrics.drafting, Missing):
        return metrics.drafting
    value = pick(metrics.drafting.value)
    return Missing("not reported by the server") if value is None else Ok(value)


_ENGINE: Final[Mapping[MetricId, Callable[[EngineMetrics], Reading[float]]]] = {
    MetricId.PREFILL_RATE: lambda m: m.prefill_rate,
    MetricId.DECODE_RATE: lambda m: m.decode_rate,
    MetricId.ENERGY: lambda m: m.energy,
    MetricId.RUNNING: lambda m: m.running,
    MetricId.WAITING: lambda m: m.waiting,
    MetricId.WAITING_CAPACITY: lambda m: _by_reason(m, "capacity"),
    MetricId.WAITING_DEFERRED: lambda m: _by_reason(m, "deferred"),
    MetricId.FINISHED_RATE: lambda m: _per_minute(m.finished_count, m.seconds),
    MetricId.FAILED_RATE: lambda m: _per_minute(m.failed_count, m.seconds),
    MetricId.KV_USAGE: lambda m: percent(m.kv_usage),
    MetricId.PREFIX_HITS: lambda m: percent(m.prefix_hits),
    MetricId.PREEMPTION_RATE: lambda m: _per_minute(m.preemptions, m.seconds),
    MetricId.ACCEPTANCE: lambda m: percent(_draft(m, lambda d: d.acceptance)),
    MetricId.ACCEPTED_LENGTH: lambda m: _draft(m, lambda d: d.length),
}


# --- the machine ------------------------------------------------------------------------------------------


class HostReadings(Struct, frozen=True):
    """The GPU, the memory, and the processors and disks at one moment."""

    gpu: Reading[GpuReading]
    memory: Reading[MemInfo]
    vitals: Reading[Vitals] = NOT_READ_YET


def host_values(look: HostReadings) -> Values:
    """The series of the host. What is stale is no value: the graph of a dead driver is a gap."""
    gpu, memory = look.gpu, look.memory
    held: Reading[int] = shared_engine_memory(gpu) if isinstance(gpu, Ok) else Missing(_why_not(gpu))
    return _split(
        {
            MetricId.GPU_UTILIZATION: _picked(gpu, lambda found: found.utilization_percent),
            MetricId.GPU_POWER: _picked(gpu, lambda found: found.power_watts),
            MetricId.GPU_CLOCK: _picked(gpu, lambda found: found.sm_clock_mhz),
            MetricId.GPU_TEMPERATURE: _picked(gpu, lambda found: found.temperature_c),
            MetricId.MEMORY_AVAILABLE: _picked(memory, lambda found: found.available / GIB),
            MetricId.MEMORY_IN_USE: _picked(memory, lambda found: found.in_use / GIB),
            MetricId.MEMORY_ENGINES: _picked(held, lambda size: size / GIB),
            MetricId.CPU_UTILIZATION: _picked(look.vitals, _cpu_percent),
            MetricId.DISK_RATE: _picked(look.vitals, _disk_rate),
            MetricId.NETWORK_RATE: _picked(look.vitals, _network_rate),
        }
    )


def _cpu_percent(vitals: Vitals) -> float | None:
    """Of all processors together."""
    loads = value_of(vitals.clusters) or ()
    count = sum(each.cpus for each in loads)
    return sum(each.percent * each.cpus for each in loads) / count if count else None


def _disk_rate(vitals: Vitals) -> float | None:
    """Read and written, of all disks together."""
    disks = value_of(vitals.disks)
    return None if disks is None else sum(each.read + each.written for each in disks) / 1e6


def _network_rate(vitals: Vitals) -> float | None:
    """Received and sent, of all links together."""
    links = value_of(vitals.links)
    return None if links is None else sum(each.received + each.sent for each in links) / 1e6


def _picked(reading: Reading[T], pick: Callable[[T], float | None]) -> Reading[float]:
    if not isinstance(reading, Ok):
        return Missing(_why_not(reading))
    value = pick(reading.value)
    return Missing("not reported by the driver") if value is None else Ok(float(value))


def _why_not(reading: Missing | Stale[Any]) -> str:
    return reading.reason if isinstance(reading, Missing) else reading.error


def _split(read: Mapping[MetricId, Reading[float]]) -> Values:
    values: dict[MetricId, float] = {}
    reasons: dict[MetricId, str] = {}
    for metric, reading in read.items():
        if isinstance(reading, Missing):
            reasons[metric] = reading.reason
        elif isfinite(reading.value):
            values[metric] = reading.value
        else:
            reasons[metric] = "the reported value is not a number"
    return values, reasons


WINDOW_SECONDS: Final = 60.0
"""Latencies and shares are over so long: p95 of fewer requests says little, of more says nothing of now."""
RATE_SECONDS: Final = 5.0
"""Speeds are over so long: prompts are counted all at once, and would be a spike and zeros in between."""
COARSE_SECONDS: Final = 5.0


class MetricWindow:
    """Keeps the snapshots that the window needs: every one of the last seconds, and one in five seconds before."""

    def __init__(self) -> None:
        self._recent: deque[Snapshot] = deque()
        self._coarse: deque[Snapshot] = deque()
        self._base: Snapshot | None = None
        self._rebase = False

    def clear(self, *, rebase: bool = False) -> None:
        """Starts over: another start of the engine, whatever the counters say. With `rebase` the next reading counts
        as its beginning: what the engine did before it, our own warm-up, is in no figure."""
        self._base, self._rebase = None, rebase
        self._restart()

    def _restart(self) -> None:
        self._recent.clear()
        self._coarse.clear()

    def add(self, snapshot: Snapshot) -> bool:
        """Takes the next reading and returns whether the server was started again since the last one.

        After a restart, and after a gap longer than the window, the window starts over.
        """
        last = self.last
        again = last is not None and restarted(last.page, snapshot.page)
        if again or (last is not None and not 0 <= snapshot.at - last.at <= WINDOW_SECONDS):
            self._restart()
        if again:
            self._base = None  # counted from zero again
        if self._rebase:
            self._base, self._rebase = snapshot, False
        self._recent.append(snapshot)
        if not self._coarse or snapshot.at - self._coarse[-1].at >= COARSE_SECONDS:
            self._coarse.append(snapshot)
        _trim(self._recent, snapshot.at - RATE_SECONDS)
        _trim(self._coarse, snapshot.at - WINDOW_SECONDS)
        return again

    @property
    def last(self) -> Snapshot | None:
        return self._recent[-1] if self._recent else None

    @property
    def engines(self) -> tuple[str, ...]:
        return self.last.page.engines if self.last else ()

    def metrics(self, engine: str | None = None) -> EngineMetrics | None:
        """The window now, of one engine or of all together; None before the first reading."""
        if self.last is None:
            return None
        wide, narrow = Change.between(self._coarse[0], self.last), Change.between(self._recent[0], self.last)
        if engine is not None:
            wide, narrow = wide.of_engine(engine), narrow.of_engine(engine)
        return measure(wide, narrow)

    def lifetime(self, now: float | None = None) -> EngineMetrics | None:
        """Since the server's start. `now` (seconds since the epoch) makes rates of it where the page states when the
        server began; None before the first reading."""
        if self.last is None:
            return None
        began = self.last.page.total(Family.STARTED)
        seconds = now - began if now is not None and began is not None and now > began else None
        change = Change(None, self.last, seconds) if self._base is None else Change.between(self._base, self.last)
        return measure(change)

    def token_sample(self) -> TokenSample | None:
        """The latest reading for the stall detector; None where the server has no such counter."""
        return token_sample(self.last.page, self.last.at) if self.last else None


def _trim(kept: deque[Snapshot], until: float) -> None:
    """Keeps the newest one that is old enough, and all after it."""
    while len(kept) > 1 and kept[1].at <= until:
        kept.popleft()
