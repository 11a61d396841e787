"""Arithmetic on an engine's memory: CUDA graphs estimated and real, the KV cache, and what would fit instead.

vLLM sizes the KV cache as `utilization * pool - weights - activations - graph estimate` (gpu_worker.py, 0.18 to 0.33,
Model Runner V1). On unified memory the estimate can be negative, and is not clamped: the KV cache grows by as much.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.logs.timeline import EngineFacts, LogEvidence, Topic
from spark_tui.domain.quantities import GIB, human_count

Pairs = tuple[tuple[str, str], ...]

NOTABLE_GIB: Final = 2.0
"""Graph memory misjudged by less is lost in the noise of a pool of 128 GB; healthy GB10 starts show -0.17 to -0.90."""
GRAVE_SHARE: Final = 0.1
"""A KV cache larger than intended by this share ends in a frozen box (-35.63 GiB of 112 GiB did)."""
GRAPH_RESERVE_GIB: Final = 0.5
"""Kept for graphs whose real size is not known: GB10 starts took 0.3 to 0.5 GiB."""
HIGHEST_UTILIZATION: Final = 0.9
"""Not proposed above this: the rest of the pool is the operating system's."""
PIN_STEP_GIB: Final = 0.1
CONTEXT_STEP: Final = 1024
MOST_REQUESTS: Final = 65_536
"""More is nothing that `max_num_seqs` takes."""


# --- what it was asked for ----------------------------------------------------------------------------------


def version_of(facts: EngineFacts) -> tuple[int, int] | None:
    """vLLM's version as (0, 20), None when the log does not say."""
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})", facts.version)
    return (int(match[1]), int(match[2])) if match else None


def utilization_of(facts: EngineFacts) -> float | None:
    """What was asked for, or else vLLM's default: 0.9, and 0.92 since 0.20. None for an unknown version."""
    if facts.gpu_memory_utilization is not None:
        return facts.gpu_memory_utilization
    version = version_of(facts)
    return None if version is None else 0.92 if version >= (0, 20) else 0.9


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


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """Graph memory estimated and real, GiB as logged. `excess_gib` is by how much the KV cache is larger than
    intended (negative: smaller), None where that cannot be told. `pin_bytes` is the KV size that would be right."""

    state: GraphState
    summary: str
    estimated_gib: float | None = None
    actual_gib: float | None = None
    excess_gib: float | None = None
    pin_bytes: int | None = None
    remedy: str = ""
    override: Pairs = ()
    evidence: tuple[LogEvidence, ...] = ()

    @property
    def grave(self) -> bool:
        """The box may run out of memory."""
        pin = self.pin_bytes or 0
        excess = self.excess_gib or 0.0
        return self.state is GraphState.OVERCOMMITTED and excess * GIB >= GRAVE_SHARE * (pin + excess * GIB)


def graph_memory(facts: EngineFacts) -> GraphMemory:
    """What the log's figures for CUDA graphs mean for the KV cache. Pure arithmetic; see the module's formula."""
    estimated, actual = facts.graph_estimated_gib, facts.graph_actual_gib
    evidence = facts.proof(Topic.GRAPH_ESTIMATE, Topic.GRAPH_MEMORY, Topic.UTILIZATION)
    if facts.eager or facts.cudagraph_mode == "NONE":
        return GraphMemory(GraphState.NONE, "none: eager" if facts.eager else "none captured", estimated, actual)
    if estimated is None and actual is None:
        return GraphMemory(GraphState.UNKNOWN, "", evidence=evidence)
    excess = _excess(facts)
    state = _graph_state(facts, excess)
    pin = None if excess is None else _pin(facts, excess)
    remedy, override = _pinning(facts, pin) if state in (GraphState.OVERCOMMITTED, GraphState.WASTEFUL) else ("", ())
    summary = _graph_words(facts, state, excess)
    return GraphMemory(state, summary, estimated, actual, excess, pin, remedy, override, evidence)


def _excess(facts: EngineFacts) -> float | None:
    """GiB of KV cache beyond what was meant. A negative size of graphs is an error of measuring, and counts as 0."""
    estimated, actual = facts.graph_estimated_gib, facts.graph_actual_gib
    if estimated is None:
        return None
    applied = estimated if _applied(facts) else 0.0
    if actual is None:
        return -applied if applied < 0 else None
    return round(max(actual, 0.0) - applied, 3)


def _applied(facts: EngineFacts) -> bool:
    """Whether the estimate is taken off the KV cache's share: by default since 0.20, if the log does not say."""
    if facts.graph_estimate_applied is not None:
        return facts.graph_estimate_applied
    return (version_of(facts) or (0, 20)) >= (0, 20)


def _graph_state(facts: EngineFacts, excess: float | None) -> GraphState:
    estimated, actual = facts.graph_estimated_gib, facts.graph_actual_gib
    if excess is not None and _applied(facts) and facts.kv_cache_memory_bytes is None:
        if excess >= NOTABLE_GIB:
            return GraphState.OVERCOMMITTED
        if excess <= -NOTABLE_GIB:
            return GraphState.WASTEFUL
    negative = any(size is not None and size < 0 for size in (estimated, actual))
    return GraphState.HARMLESS if negative else GraphState.SOUND


def _graph_words(facts: EngineFacts, state: GraphState, excess: float | None) -> str:
    estimated, actual = facts.graph_estimated_gib, facts.graph_actual_gib
    words = [
        f"{size:g} GiB {name}" for size, name in ((estimated, "estimated"), (actual, "actual")) if size is not None
    ]
    figures = ", ".join(words)
    match state:
        case GraphState.OVERCOMMITTED:
            return f"{figures}: the KV cache is {excess:g} GiB larger than memory was meant for"
        case GraphState.WASTEFUL:
            return f"{figures}: the KV cache could be {-(excess or 0):g} GiB larger"
        case GraphState.HARMLESS:
            return f"{figures}: harmless, on unified memory such figures may be below zero"
        case _:
            return figures


def _pin(facts: EngineFacts, excess: float) -> int | None:
    """The KV size in bytes that the memory was meant for, rounded down to a tenth of a GiB."""
    if facts.kv_gib is None:
        return None
    reserve = GRAPH_RESERVE_GIB if facts.graph_actual_gib is None or excess < 0 else 0.0
    right = math.floor((facts.kv_gib - excess - reserve) / PIN_STEP_GIB + 1e-9) * PIN_STEP_GIB
    return round(right * GIB) if right > 0 else None


def _pinning(facts: EngineFacts, pin: int | None) -> tuple[str, Pairs]:
    """Pin the KV cache, with the utilization beside it: without one, vLLM checks its default against free memory."""
    if pin is None:
        return (
            "Pin the KV cache with --kv-cache-memory-bytes instead of leaving its size to the estimate.",
            (),
        )
    utilization = utilization_of(facts)
    beside = "" if utilization is None else f" beside gpu_memory_utilization={utilization:g}"
    remedy = (
        f"Pin the KV cache: kv_cache_memory_bytes={pin} ({pin / GIB:.1f} GiB){beside}. "
        "It then no longer depends on the estimate; utilization is still checked against free memory at the start."
    )
    pairs: Pairs = (("kv_cache_memory_bytes", str(pin)),)
    if utilization is None:
        return remedy, ()
    return remedy, (*pairs, ("gpu_memory_utilization", f"{utilization:g}"))


# --- equivalent utilization -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Something that could be set otherwise: in words, and as override pairs; none where nothing can be set."""

    text: str
    override: Pairs = ()


def equivalent_utilization(facts: EngineFacts) -> Suggestion | None:
    """What vLLM's long line on utilization means; None where the log has none."""
    keep, now = facts.utilization_with_estimate, facts.gpu_memory_utilization
    if not keep or not now:
        return None
    if facts.graph_estimate_applied:
        same = facts.utilization_without_estimate
        text = f"graphs are now counted: {now:g} gives the KV cache that {same:g} gave before" if same else ""
        if keep > HIGHEST_UTILIZATION:
            return Suggestion(f"{text}; {keep:g} would keep its size and is too much for unified memory")
        return Suggestion(
            f"{text}; {keep:g} would keep its size".lstrip("; "), (("gpu_memory_utilization", f"{keep:g}"),)
        )
    version = version_of(facts)
    text = f"graphs are not counted in the KV cache's share; counted, gpu_memory_utilization={keep:g} gives the same KV"
    if keep > HIGHEST_UTILIZATION:
        return Suggestion(f"{text}, which is too much for unified memory")
    counted: Pairs = (("env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "1"), ("gpu_memory_utilization", f"{keep:g}"))
    return Suggestion(text, counted if version is None or version >= (0, 18) else ())


# --- the KV cache -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """What the KV cache holds, as logged. `concurrency` is requests of `context` tokens that fit at once;
    `bytes_per_token` is an average over the whole cache, so hybrid models' states are in it."""

    gib: float | None = None
    tokens: int | None = None
    context: int | None = None
    concurrency: float | None = None
    bytes_per_token: float | None = None


def kv_capacity(facts: EngineFacts) -> KvCapacity:
    """The KV cache's capacity. Where the log has no concurrency it is tokens over context."""
    tokens, context = facts.kv_tokens, facts.max_model_len
    concurrency = facts.max_concurrency
    if concurrency is None and tokens is not None and context:
        concurrency = round(tokens / context, 2)
    per_token = facts.kv_gib * GIB / tokens if facts.kv_gib and facts.kv_gib > 0 and tokens else None
    return KvCapacity(facts.kv_gib, tokens, context, concurrency, per_token)


def context_that_fits(facts: EngineFacts, requests: int) -> int | None:
    """The longest context of which `requests` fit at once, rounded down to 1,024 tokens; None when unknown or less."""
    kv = kv_capacity(facts)
    if kv.concurrency is None or not kv.context or requests < 1:
        return None
    fits = int(kv.concurrency * kv.context / requests) // CONTEXT_STEP * CONTEXT_STEP
    return min(fits, kv.context) if fits >= CONTEXT_STEP else None


def utilization_that_holds(facts: EngineFacts, requests: int, pool_gib: float | None = None) -> float | None:
    """The utilization with which `requests` of the full context fit, rounded up to 1 %; None when unknown, or more
    than a Spark should give. `pool_gib` is the machine's memory, where the log does not say."""
    kv, pool, now = kv_capacity(facts), facts.device_gib or pool_gib, utilization_of(facts)
    if not kv.gib or not kv.concurrency or not pool or now is None or requests < 1:
        return None
    missing = kv.gib * (requests / kv.concurrency - 1)
    needed = now + max(0.0, missing) / pool
    return math.ceil(needed * 100 - 1e-9) / 100 if needed <= HIGHEST_UTILIZATION else None


def kv_alternatives(facts: EngineFacts, pool_gib: float | None = None) -> tuple[Suggestion, ...]:
    """What would let all `max_num_seqs` requests have the full context, or how far it goes as it is.

    Empty where everything fits or nothing is known. Long requests are seldom all at once: this is no fault.
    """
    kv, wanted = kv_capacity(facts), facts.max_num_seqs
    if kv.concurrency is None or kv.context is None or not wanted or kv.concurrency >= wanted:
        return ()
    found = []
    fits = context_that_fits(facts, wanted)
    if fits is not None and fits < kv.context:
        text = f"{human_count(fits)} tokens of context fit {wanted} times"
        found.append(Suggestion(text, (("max_model_len", str(fits)),)))
    share = utilization_that_holds(facts, wanted, pool_gib)
    if share is not None and facts.kv_cache_memory_bytes is None:
        text = f"gpu_memory_utilization={share:g} would hold {wanted} requests of {human_count(kv.context)}"
        found.append(Suggestion(text, (("gpu_memory_utilization", f"{share:g}"),)))
    whole = max(1, int(kv.concurrency))
    if whole < wanted and whole <= MOST_REQUESTS:
        text = f"max_num_seqs={whole} fits with the full context"
        found.append(Suggestion(text, (("max_num_seqs", str(whole)),)))
    return tuple(found)


def kv_words(facts: EngineFacts) -> str:
    """`694,656 tokens in 18.04 GiB, 2.63 requests of 262,144`; empty when the log does not say."""
    kv = kv_capacity(facts)
    if kv.tokens is None and kv.gib is None:
        return ""
    size = f"{kv.gib:g} GiB" if kv.gib is not None else ""
    words = f"{human_count(kv.tokens)} tokens" + (f" in {size}" if size else "") if kv.tokens is not None else size
    if kv.concurrency is not None and kv.context is not None:
        words += f", {kv.concurrency:g} requests of {human_count(kv.context)}"
    return words
