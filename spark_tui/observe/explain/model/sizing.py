"""Arithmetic on an engine's memory: CUDA graphs estimated and real, the KV cache, and what would fit instead.

vLLM sizes the KV cache as `utilization * pool - weights - activations - graph estimate` (gpu_worker.py, 0.18 to 0.33,
Model Runner V1). On unified memory the estimate can be negative, and is not clamped: the KV cache grows by as much.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.finding import Change
from spark_tui.base.quantities import GIB
from spark_tui.observe.explain.model.timeline import EngineFacts, LogEvidence, Topic

NOTABLE_SHARE: Final = 1 / 61
"""Graph memory misjudged by a smaller share of the machine's memory is noise: 2 GiB of 121.7, 1 GiB of 61. Healthy GB10
starts show -0.17 to -0.90 GiB."""
USUAL_POOL_GIB: Final = 121.7
"""A Spark with 128 GB, where neither the log nor the machine says."""
GRAVE_SHARE: Final = 0.1
"""A KV cache larger than intended by this share ends in a frozen machine (-35.63 GiB of 112 GiB did)."""
GRAPH_RESERVE_GIB: Final = 0.5
"""Kept for graphs whose real size is not known: GB10 starts took 0.3 to 0.5 GiB."""
HIGHEST_UTILIZATION: Final = 0.9
"""Not proposed above this: the rest of the pool is the operating system's."""
PIN_STEP_GIB: Final = 0.1
CONTEXT_STEP: Final = 1024
LONGEST_CONTEXT: Final = 100_000_000
"""More is nothing that `max_model_len` takes."""
MOST_REQUESTS: Final = 65_536
"""More is nothing that `max_num_seqs` takes."""


def version_of(facts: EngineFacts) -> tuple[int, int] | None:
    """vLLM's version as (0, 20), None when the log does not say."""
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})", facts.version)
    return (int(match[1]), int(match[2])) if match else None


def default_utilization(facts: EngineFacts) -> float | None:
    """vLLM's default: 0.9, and 0.92 since 0.20. None for an unknown version."""
    version = version_of(facts)
    return None if version is None else 0.92 if version >= (0, 20) else 0.9


def utilization_of(facts: EngineFacts) -> float | None:
    return facts.gpu_memory_utilization if facts.gpu_memory_utilization is not None else default_utilization(facts)


# --- CUDA graphs ------------------------------------------------------------------------------------------------


class GraphState(StrEnum):
    """What the figures for CUDA graphs mean."""

    NONE = "none"
    """No graphs are captured."""
    UNKNOWN = "unknown"
    SOUND = "sound"
    HARMLESS = "harmless"
    """Negative or off, by too little to matter."""
    OVERCOMMITTED = "overcommitted"
    """The KV cache is larger than memory was meant for."""
    WASTEFUL = "wasteful"
    """Memory was set aside that graphs never took."""


class GraphMemory(Struct, frozen=True):
    """Graph memory estimated and real, GiB as logged. `excess_gib` is by how much the KV cache is larger than
    intended (negative: smaller), None where that is unknown. `pin_bytes` is the KV size that would be right."""

    state: GraphState
    summary: str
    estimated_gib: float | None = None
    actual_gib: float | None = None
    excess_gib: float | None = None
    pin_bytes: int | None = None
    remedy: str = ""
    change: Change = ()
    evidence: tuple[LogEvidence, ...] = ()

    @property
    def grave(self) -> bool:
        """The machine may run out of memory."""
        pin = self.pin_bytes or 0
        excess = self.excess_gib or 0.0
        return self.state is GraphState.OVERCOMMITTED and excess * GIB >= GRAVE_SHARE * (pin + excess * GIB)


def graph_memory(facts: EngineFacts, pool_gib: float | None = None) -> GraphMemory:
    """What the log's figures for CUDA graphs mean for the KV cache; see the module's formula.

    `pool_gib` is the machine's memory, where the log does not say. A negative size is an error of measuring.
    """
    estimated, actual = facts.graph_estimated_gib, facts.graph_actual_gib
    evidence = facts.proof(Topic.GRAPH_ESTIMATE, Topic.GRAPH_MEMORY, Topic.UTILIZATION)
    if facts.eager or facts.cudagraph_mode == "NONE":
        return GraphMemory(GraphState.NONE, "none (eager)" if facts.eager else "none captured", estimated, actual)
    if estimated is None and actual is None:
        return GraphMemory(GraphState.UNKNOWN, "", evidence=evidence)
    counted = facts.graph_estimate_applied  # taken off the KV cache's share, by default since 0.20
    if counted is None:
        counted = (version_of(facts) or (0, 20)) >= (0, 20)
    excess: float | None = None
    if estimated is not None:
        applied = estimated if counted else 0.0
        if actual is not None:
            excess = round(max(actual, 0.0) - applied, 3)
        elif applied < 0:
            excess = -applied
    notable = NOTABLE_SHARE * (facts.device_gib or pool_gib or USUAL_POOL_GIB)
    negative = any(size is not None and size < 0 for size in (estimated, actual))
    state = GraphState.HARMLESS if negative else GraphState.SOUND
    if excess is not None and counted and facts.kv_cache_memory_bytes is None and abs(excess) >= notable:
        state = GraphState.OVERCOMMITTED if excess > 0 else GraphState.WASTEFUL
    normal = ": normal on unified memory" if state is GraphState.HARMLESS else ""
    if actual is None:
        summary = f"{estimated:g} GiB estimated{normal}"
    elif estimated is None:
        summary = f"{actual:g} GiB{normal}"
    else:
        summary = f"{actual:g} GiB (vLLM estimated {estimated:g}{normal})"
    pin = None
    if excess is not None and facts.kv_gib is not None:  # the KV size that was meant, down to a tenth of a GiB
        reserve = GRAPH_RESERVE_GIB if actual is None or excess < 0 else 0.0
        right = math.floor((facts.kv_gib - excess - reserve) / PIN_STEP_GIB + 1e-9) * PIN_STEP_GIB
        pin = round(right * GIB) if right > 0 else None
    remedy: str = ""
    change: Change = ()
    if state is GraphState.OVERCOMMITTED:
        summary += f". KV cache is {excess:g} GiB larger than planned"
        remedy, change = _pinning(facts, pin)
    elif state is GraphState.WASTEFUL:
        summary += f". KV cache could be {-(excess or 0):g} GiB larger"
        remedy, change = _pinning(facts, pin)
    return GraphMemory(state, summary, estimated, actual, excess, pin, remedy, change, evidence)


def _pinning(facts: EngineFacts, pin: int | None) -> tuple[str, Change]:
    """Pin the KV cache, with the utilization: without one, vLLM checks its default against free memory."""
    if pin is None:
        return "Set the KV cache size with kv_cache_memory_bytes instead of relying on the estimate.", ()
    utilization = utilization_of(facts)
    share = "" if utilization is None else f" and gpu_memory_utilization={utilization:g}"
    remedy = (
        f"Set kv_cache_memory_bytes={pin} ({pin / GIB:.1f} GiB){share}. The KV cache then no longer depends on the "
        "estimate."
    )
    if utilization is None:
        return remedy, ()
    return remedy, (("kv_cache_memory_bytes", str(pin)), ("gpu_memory_utilization", f"{utilization:g}"))


# --- equivalent utilization -------------------------------------------------------------------------------------


class Suggestion(Struct, frozen=True):
    """Something that could be set otherwise: in words, and as change pairs; none where nothing can be set."""

    text: str
    change: Change = ()


def equivalent_utilization(facts: EngineFacts) -> Suggestion | None:
    """What vLLM's long line on utilization means; None where the log has none."""
    keep, now = facts.utilization_with_estimate, facts.gpu_memory_utilization
    if not keep or not now:
        return None
    excessive = keep > HIGHEST_UTILIZATION
    if facts.graph_estimate_applied:
        same = facts.utilization_without_estimate
        text = f"graphs are counted: {now:g} gives the KV cache that {same:g} gave before; " if same else ""
        if excessive:
            return Suggestion(f"{text}{keep:g} would keep its size, too much for unified memory")
        return Suggestion(f"{text}{keep:g} would keep its size", (("gpu_memory_utilization", f"{keep:g}"),))
    text = f"graphs are not counted in the memory share; counted, gpu_memory_utilization={keep:g} gives the same KV"
    version = version_of(facts)
    if excessive or (version is not None and version < (0, 18)):
        return Suggestion(text + ", too much for unified memory" * excessive)
    return Suggestion(
        text, (("env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "1"), ("gpu_memory_utilization", f"{keep:g}"))
    )


# --- the KV cache -------------------------------------------------------------------------------------------------


def concurrency_of(facts: EngineFacts) -> float | None:
    """Requests of the full context that fit at once: as logged, else tokens over context."""
    tokens, context = facts.kv_tokens, facts.max_model_len
    if facts.max_concurrency is not None or tokens is None or not context:
        return facts.max_concurrency
    return round(tokens / context, 2)


def context_that_fits(facts: EngineFacts, requests: int) -> int | None:
    """The longest context of which `requests` fit at once, rounded down to 1,024 tokens; None when unknown or less."""
    concurrency, context = concurrency_of(facts), facts.max_model_len
    if concurrency is None or not context or requests < 1:
        return None
    fits = int(concurrency * context / requests) // CONTEXT_STEP * CONTEXT_STEP
    return min(fits, context) if fits >= CONTEXT_STEP else None


def utilization_that_holds(facts: EngineFacts, requests: int, pool_gib: float | None = None) -> float | None:
    """The utilization with which `requests` of the full context fit, rounded up to 1 %; None when unknown, or more
    than a Spark should give. `pool_gib` is the machine's memory, where the log does not say."""
    concurrency, pool, now = concurrency_of(facts), facts.device_gib or pool_gib, utilization_of(facts)
    if not facts.kv_gib or not concurrency or not pool or now is None or requests < 1:
        return None
    missing = facts.kv_gib * (requests / concurrency - 1)
    needed = now + max(0.0, missing) / pool
    return math.ceil(needed * 100 - 1e-9) / 100 if needed <= HIGHEST_UTILIZATION else None


def kv_alternatives(facts: EngineFacts, pool_gib: float | None = None) -> tuple[Suggestion, ...]:
    """What would let all `max_num_seqs` requests have the full context, or how far it goes as it is.

    Empty where everything fits or nothing is known. Long requests are seldom all at once: this is no fault.
    """
    concurrency, context, wanted = concurrency_of(facts), facts.max_model_len, facts.max_num_seqs
    if concurrency is None or context is None or not wanted or concurrency >= wanted:
        return ()
    found = []
    fits = context_that_fits(facts, wanted)
    if fits is not None and fits < context and fits <= LONGEST_CONTEXT:
        text = f"max_model_len={fits} fits {wanted} requests"
        found.append(Suggestion(text, (("max_model_len", str(fits)),)))
    share = utilization_that_holds(facts, wanted, pool_gib)
    if share is not None and facts.kv_cache_memory_bytes is None:
        text = f"gpu_memory_utilization={share:g} fits {wanted} requests of {short_count(context)}"
        found.append(Suggestion(text, (("gpu_memory_utilization", f"{share:g}"),)))
    whole = max(1, int(concurrency))
    if whole < wanted and whole <= MOST_REQUESTS:
        text = f"max_num_seqs={whole} fits the full context"
        found.append(Suggestion(text, (("max_num_seqs", str(whole)),)))
    return tuple(found)


def kv_summary(facts: EngineFacts) -> str:
    """`695k tokens (18.0 GiB), room for 2.6 requests of 262k tokens`; empty when the log does not say."""
    gib, concurrency, context = facts.kv_gib, concurrency_of(facts), facts.max_model_len
    if facts.kv_tokens is None:
        return "" if gib is None else f"{gib:.1f} GiB"
    text = f"{short_count(facts.kv_tokens)} tokens" + (f" ({gib:.1f} GiB)" if gib is not None else "")
    if concurrency is None or context is None:
        return text
    room = f"{int(concurrency)}" if concurrency >= 3 else f"{concurrency:.1f}".removesuffix(".0")
    return f"{text}, room for {room} request{'' if room == '1' else 's'} of {short_count(context)} tokens"


def short_count(count: int) -> str:
    """At most three figures: `512`, `262k`, `2.38M`."""
    if count < 1_000:
        return str(count)
    value, unit = (count / 1e6, "M") if count >= 999_500 else (count / 1e3, "k")
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
