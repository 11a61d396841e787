"""A run as it is kept: the load, the conditions, the figures, and what has to be known before believing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.bench.conditions import Conditions
from spark_tui.domain.bench.level import Counts, Level
from spark_tui.domain.bench.plan import BenchPlan, Content, PromptCache
from spark_tui.domain.bench.scaling import Scaling, scaling
from spark_tui.domain.bench.server_side import Check, ServerSide
from spark_tui.domain.bench.statistics import Distribution
from spark_tui.domain.quantities import gib, human_count


class Ending(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BoxSample:
    """The box at one moment; `at` in monotonic seconds. None: not reported."""

    at: float
    usable_bytes: int | None = None
    used_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    utilization_percent: int | None = None


@dataclass(frozen=True, slots=True)
class BoxFigures:
    """The box while it was measured, over all samples. `joules_per_token` is mean power times time over the output
    tokens of all measured passes: the GPU's share only, which is what NVML reports."""

    samples: int
    used_bytes_most: int | None = None
    usable_bytes_least: int | None = None
    power_watts_mean: float | None = None
    power_watts_most: float | None = None
    temperature_c_most: int | None = None
    sm_clock_mhz_mean: float | None = None
    sm_clock_mhz_least: int | None = None
    utilization_percent_mean: float | None = None
    joules_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run. `id` is unique, `at` seconds since the epoch, `seconds` how long it took with everything.

    `reason` says why it was stopped or failed. `pair` is the id of the other run of an A/B, with which its passes
    alternated. `lateness` is by how many seconds the clock itself came late: no latency is known any better than that.
    """

    id: str
    at: float
    plan: BenchPlan
    conditions: Conditions
    levels: tuple[Level, ...] = ()
    ending: Ending = Ending.COMPLETED
    reason: str = ""
    seconds: float = 0.0
    box: BoxFigures = BoxFigures(0)
    server: ServerSide | None = None
    checks: tuple[Check, ...] = ()
    caveats: tuple[str, ...] = ()
    pair: str = ""
    lateness: Distribution | None = None

    @property
    def sweep(self) -> tuple[Level, ...]:
        """The levels by number of streams."""
        return tuple(level for level in self.levels if not level.depth)

    @property
    def depths(self) -> tuple[Level, ...]:
        """The prefill depths."""
        return tuple(level for level in self.levels if level.depth)

    @property
    def counts(self) -> Counts:
        """How all requests ended."""
        return sum((level.counts for level in self.levels), Counts())

    @property
    def throughput(self) -> dict[int, float]:
        """Output tokens per second of all streams, by their number."""
        return {level.streams: level.output_rate for level in self.sweep if level.output_rate is not None}

    @property
    def scaling(self) -> Scaling | None:
        """Efficiency and knee."""
        return scaling(self.throughput)

    @property
    def single(self) -> float | None:
        """The single-stream figure that the field compares: the median stream's tokens per second after its first
        token, with one stream."""
        alone = next((level for level in self.sweep if level.streams == 1), None)
        return alone.decode_rate.p50 if alone and alone.decode_rate else None

    @property
    def batched(self) -> float | None:
        """The most output tokens per second of any level of more than one stream."""
        return max((rate for streams, rate in self.throughput.items() if streams > 1), default=None)


def box_figures(samples: Sequence[BoxSample], seconds: float, output_tokens: int) -> BoxFigures:
    """Figures of the samples; `seconds` and `output_tokens` are those of all measured passes."""
    power = [s.power_watts for s in samples if s.power_watts is not None]
    clock = [s.sm_clock_mhz for s in samples if s.sm_clock_mhz is not None]
    busy = [s.utilization_percent for s in samples if s.utilization_percent is not None]
    mean_power = sum(power) / len(power) if power else None
    return BoxFigures(
        samples=len(samples),
        used_bytes_most=max((s.used_bytes for s in samples if s.used_bytes is not None), default=None),
        usable_bytes_least=min((s.usable_bytes for s in samples if s.usable_bytes is not None), default=None),
        power_watts_mean=mean_power,
        power_watts_most=max(power, default=None),
        temperature_c_most=max((s.temperature_c for s in samples if s.temperature_c is not None), default=None),
        sm_clock_mhz_mean=sum(clock) / len(clock) if clock else None,
        sm_clock_mhz_least=min(clock, default=None),
        utilization_percent_mean=sum(busy) / len(busy) if busy else None,
        joules_per_token=mean_power * seconds / output_tokens if mean_power is not None and output_tokens else None,
    )


# --- what has to be known ---------------------------------------------------------------------------------

SLOW_CLOCK_MHZ = 1400
"""Under load a GB10 runs at 2200 to 2500 MHz; a box whose power supply negotiated too little stays at 500 to 850."""

LATE_SECONDS = 0.01
"""A timer of this program's event loop is up to 1 ms late by its making; ten times that is the machine."""


def plan_caveats(plan: BenchPlan, conditions: Conditions) -> tuple[str, ...]:
    """What limits the numbers before a request is sent."""
    found = []
    most = max(plan.concurrency, default=1)
    if conditions.most_sequences is not None and most > conditions.most_sequences:
        found.append(
            f"The engine runs {conditions.most_sequences} requests at once (max_num_seqs): with more streams the rest "
            "wait, and their waiting is in TTFT."
        )
    tokens = (plan.input_tokens + plan.output_tokens) * most
    if conditions.kv_tokens is not None and tokens > conditions.kv_tokens:
        found.append(
            f"{most} streams need {human_count(tokens)} tokens of KV cache, the engine has "
            f"{human_count(conditions.kv_tokens)}: some of them wait or are preempted."
        )
    if plan.prompt_cache is PromptCache.WARM:
        found.append("All prompts are the same: TTFT is that of the prefix cache and not of prefill.")
    if conditions.speculation and plan.content is Content.RANDOM:
        found.append(
            "The engine speculates, and random tokens are hard to guess: for what a person gets, take prose as content."
        )
    if conditions.eager:
        found.append("The engine runs eager, without CUDA graphs: single-stream decode is slower than it could be.")
    return tuple(found)


def result_caveats(run: BenchRun, other_requests: int) -> tuple[str, ...]:
    """What the measurement itself says against its numbers. `other_requests` are those of other clients."""
    counts, found = run.counts, []
    if counts.failed or counts.truncated:
        found.append(f"{counts.failed + counts.truncated} of {counts.total} requests failed or broke off.")
    if counts.short:
        found.append(f"{counts.short} of {counts.total} requests ended early: the engine does not honour ignore_eos.")
    wrong = sum(level.wrong_lengths for level in run.levels)
    if wrong:
        found.append(f"{wrong} prompts were of another length than meant, by the server's own count.")
    if other_requests:
        found.append(f"The engine answered {other_requests} requests of others meanwhile: the figures are not alone.")
    cached = sum(level.cached_tokens or 0 for level in run.levels)
    share = run.server.cache_hit_share if run.server else None
    if run.plan.prompt_cache is PromptCache.COLD and (cached or (share or 0) > 0.01):
        found.append("The prefix cache knew part of the prompts, though they were meant to be new to it.")
    if run.server is not None and run.server.preemptions:
        found.append(f"{run.server.preemptions:.0f} preemptions: KV cache ran short, and work was done twice.")
    if run.lateness is not None and run.lateness.p99 > LATE_SECONDS:
        found.append(
            f"This machine was too busy to take the time well: the clock came {run.lateness.p99 * 1000:.0f} ms late "
            "(p99). Throughput holds, latencies do not: end what else runs, and measure again."
        )
    if run.ending is Ending.COMPLETED and any(check.agrees is False for check in run.checks):
        what = ", ".join(check.what for check in run.checks if check.agrees is False)
        found.append(f"The server's own figures differ from ours: {what}.")
    slow, busy = run.box.sm_clock_mhz_mean, run.box.utilization_percent_mean
    if slow is not None and slow < SLOW_CLOCK_MHZ and (busy or 0) > 80 and run.conditions.is_spark:
        found.append(
            f"The GPU ran at {slow:.0f} MHz under load: a Spark does 2,400. Take its power adapter off the wall for a "
            "minute, then measure again."
        )
    return tuple(found)


def memory_reason(usable: int, floor: int) -> str:
    """Why memory ended a run."""
    return f"usable memory fell to {gib(usable)} GiB, below the guard's floor of {gib(floor)} GiB"
