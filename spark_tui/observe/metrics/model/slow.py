"""What holds an engine back now: its own counters and the GPU's clock, as findings, the weightiest first."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from spark_tui.base.finding import Finding, Reading, Severity, value_of
from spark_tui.base.graph import seconds_text
from spark_tui.base.host.detectors import (
    BUSY_PERCENT,
    FROZEN_SECONDS,
    LOW_POWER_REMEDY,
    STALL_REMEDY,
    STUCK_MHZ,
    STUCK_WATTS,
)
from spark_tui.base.host.vitals import NOTICEABLE, GpuReading, Throttle
from spark_tui.base.quantities import human_duration
from spark_tui.observe.metrics.model.serving import AT_END_NOTE, EngineMetrics

HEALTHY_MHZ: Final = 2197
"""The lowest SM clock in 58,762 samples of healthy load on GB10s; the highest was 2,528."""
FELT_SHARE: Final = 0.2
"""From this share of a request's time on, a part of it is felt."""
FEW_DRAFTS: Final = 0.4
"""Below this acceptance rate, drafting several tokens usually costs more than it gains."""
FEW_HITS: Final = 0.3
KV_TIGHT: Final = 0.85


class RequestTime(Struct, frozen=True):
    """Mean seconds of a finished request: in the queue, in prefill, in decode."""

    queue: float
    prefill: float
    decode: float

    @property
    def whole(self) -> float:
        return self.queue + self.prefill + self.decode

    def share(self, seconds: float) -> float:
        """The share of a request, 0 to 1."""
        return seconds / self.whole if self.whole > 0 else 0.0


def request_time(metrics: EngineMetrics) -> RequestTime | None:
    """Where the mean request spends its time; None where the server does not report TTFT and whole duration.

    A server without a queue histogram has its waiting within prefill.
    """
    ttft, e2e, queue = (value_of(each) for each in (metrics.ttft, metrics.e2e, metrics.queue))
    if ttft is None or e2e is None or ttft.mean is None or e2e.mean is None:
        return None
    waited = min(ttft.mean, (queue.mean if queue is not None else None) or 0.0)
    return RequestTime(waited, ttft.mean - waited, max(0.0, e2e.mean - ttft.mean))


def limits(metrics: EngineMetrics, gpu: Reading[GpuReading], ever: EngineMetrics | None = None) -> tuple[Finding, ...]:
    """Everything that holds this engine back over the window, the weightiest first; the first one is the verdict.

    `ever`, the metrics since its start, says where a request's time goes while one runs and none has finished.
    Ids: `low_power`, `clock`, `stalled`, `preemption`, `queue`, `drafts`, `prefill`, `decode`, `working`, `idle`,
    `unknown`.
    """
    running, machine = value_of(metrics.running) or 0.0, _machine(value_of(gpu))
    if metrics.held:
        return (*machine, _stalled(metrics, running))
    time = request_time(metrics) or (request_time(ever) if ever is not None and running else None)
    found = [*machine, *_cache(metrics), *_queue(metrics, time)]
    if time is not None and time.whole > 0:
        parts = ((time.prefill, _prefill(metrics, time)), (time.decode, _decode(metrics, time)))
        ordered = sorted(parts, key=lambda part: -part[0])
        found += [finding for seconds, finding in ordered if time.share(seconds) >= FELT_SHARE]
    elif running:
        rate, finished = value_of(metrics.decode_rate), value_of(metrics.finished_count)
        ended = f", {finished:.0f} finished{_window(metrics)}" if finished is not None and metrics.seconds else ""
        speed = f" {rate:.0f} tok/s now." if rate is not None else ""
        found.append(Finding("decode", Severity.INFO, f"{running:.0f} running{ended}.{speed}"))
    found += _drafts(metrics)
    found.sort(key=lambda finding: finding.severity.rank)  # stable: equals keep their order
    return tuple(found) or (_at_rest(metrics),)


def _window(metrics: EngineMetrics) -> str:
    return f" in the last {human_duration(metrics.seconds)}" if metrics.seconds else ""


def _stalled(metrics: EngineMetrics, running: float) -> Finding:
    """Requests run and nothing moves: an engine that hangs, or one that reads a long prompt."""
    remedy = f"A long prompt may take {human_duration(FROZEN_SECONDS)}. After that the engine hangs. {STALL_REMEDY}"
    text = f"No token came{_window(metrics)} although {running:.0f} run."
    return Finding("stalled", Severity.WARNING, text, remedy=remedy)


def _at_rest(metrics: EngineMetrics) -> Finding:
    """What is known of an engine that nothing holds back: idle only where its gauge or its counters prove that."""
    running, rate = value_of(metrics.running), value_of(metrics.decode_rate)
    if metrics.moved and running is None:
        speed = f", {rate:,.0f} tok/s" if rate else ""
        return Finding("working", Severity.OK, f"Requests are served{speed}. How many is not reported by the server.")
    if running is None and metrics.moved is None:
        return Finding("unknown", Severity.INFO, "Load unknown: not reported by the server.")
    if running is None and AT_END_NOTE in metrics.notes:
        return Finding("unknown", Severity.INFO, f"No request ended{_window(metrics)}. Running ones are not reported.")
    return Finding(
        "idle", Severity.OK, "Idle: no request runs." if metrics.moved else f"Idle: no requests{_window(metrics)}."
    )


def _machine(gpu: GpuReading | None) -> list[Finding]:
    """A clock that is lower than the load asks for."""
    if gpu is None or gpu.sm_clock_mhz is None:
        return []
    clock, load, watts = gpu.sm_clock_mhz, gpu.utilization_percent or 0, gpu.power_watts
    if load >= BUSY_PERCENT and clock < STUCK_MHZ and watts is not None and watts < STUCK_WATTS:
        text = f"GPU stuck at {clock:,} MHz and {watts:.0f} W under load (normal: over {HEALTHY_MHZ:,} MHz)."
        return [Finding("low_power", Severity.ERROR, text, remedy=LOW_POWER_REMEDY)]
    held = next((each for each in gpu.throttled or () if each.share >= NOTICEABLE), None)
    # On a GB10 the power cap's counter runs under any full load: only a low clock makes it matter.
    if held is None or (held.kind is Throttle.POWER_CAP and clock >= HEALTHY_MHZ):
        return []
    heat = f", {gpu.temperature_c} C" if gpu.temperature_c is not None else ""
    text = f"Clock held down {held.share:.0%} of the time by {held.kind.value} ({clock:,} MHz{heat})."
    hot = held.kind in (Throttle.THERMAL, Throttle.HW_THERMAL)
    adapter = "Use the supplied power adapter." if gpu.unified else "Its power limit: nvidia-smi -q -d POWER"
    remedy = "Give the machine air: raise it, clear the vents." if hot else adapter
    return [Finding("clock", Severity.WARNING, text, remedy=remedy)]


def _cache(metrics: EngineMetrics) -> list[Finding]:
    count = value_of(metrics.preemptions)
    if not count:
        return []
    text = f"KV cache full: {count:.0f} preempted in the last minute and recomputed."
    remedy = "Edit the engine: fewer users, a shorter context, or a larger memory share."
    return [Finding("preemption", Severity.WARNING, text, remedy=remedy)]


def _queue(metrics: EngineMetrics, time: RequestTime | None) -> list[Finding]:
    waiting, running = value_of(metrics.waiting) or 0.0, value_of(metrics.running) or 0.0
    share = time.share(time.queue) if time is not None else 0.0
    if not waiting and share < FELT_SHARE:
        return []
    took = f", {seconds_text(time.queue)} in the queue on average" if time is not None and time.queue else ""
    usage = value_of(metrics.kv_usage)
    tight = usage is not None and usage >= KV_TIGHT
    why = f" KV cache {usage:.0%} full." if tight and usage is not None else ""
    remedy = (
        "Edit the engine: a larger memory share or a shorter context."
        if tight
        else "Edit the engine: more users (max_num_seqs) let more requests run at once."
    )
    text = f"Requests queue: {waiting:.0f} waiting, {running:.0f} running{took}.{why}"
    return [Finding("queue", Severity.WARNING, text, remedy=remedy)]


def _prefill(metrics: EngineMetrics, time: RequestTime) -> Finding:
    rate, hits = value_of(metrics.prefill_rate), value_of(metrics.prefix_hits)
    figures = [f"{rate:,.0f} tok/s"] if rate else []
    figures += [f"{hits:.0%} prefix hits"] if hits is not None else []
    text = f"Prefill takes {time.share(time.prefill):.0%} of a request ({seconds_text(time.prefill)})"
    remedy = ""
    if hits is not None and hits < FEW_HITS and time.prefill > time.decode:
        remedy = "Keep the start of the prompt unchanged between requests: the prefix cache then skips it."
    return Finding("prefill", Severity.INFO, f"{text}{': ' if figures else ''}{', '.join(figures)}.", remedy=remedy)


def _decode(metrics: EngineMetrics, time: RequestTime) -> Finding:
    rate, itl, running = value_of(metrics.decode_rate), value_of(metrics.itl), value_of(metrics.running)
    figures = (
        [f"{rate:,.1f} tok/s" + (f" for {running:.0f} streams" if running and running > 1 else "")] if rate else []
    )
    figures += [f"{seconds_text(itl.mean)} per step"] if itl is not None and itl.mean else []
    text = f"Decode takes {time.share(time.decode):.0%} of a request ({seconds_text(time.decode)})"
    remedy = "Memory bandwidth sets the pace: fewer active parameters, fewer bits or speculation are faster."
    return Finding("decode", Severity.INFO, f"{text}{': ' if figures else ''}{', '.join(figures)}.", remedy=remedy)


def _drafts(metrics: EngineMetrics) -> list[Finding]:
    drafting = value_of(metrics.drafting)
    if drafting is None or drafting.acceptance is None or drafting.acceptance >= FEW_DRAFTS:
        return []
    length = f", {drafting.length:.2f} tokens per step" if drafting.length is not None else ""
    text = f"Drafts rarely accepted: {drafting.acceptance:.0%}{length}."
    remedy = "Compare with fewer drafted tokens in Bench (A/B)."
    return [Finding("drafts", Severity.WARNING, text, remedy=remedy)]
