"""Does a launch fit into this machine now? Weights, cache, state and all the rest against MemAvailable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.kv import KvLayout, kv_layout
from spark_tui.domain.presets import fit_parts
from spark_tui.domain.presets.fit_ask import Ask, ask_of
from spark_tui.domain.presets.fit_layout import measured_layout
from spark_tui.domain.presets.fit_types import (
    FEW_SEQUENCES,
    RESERVE_BYTES,
    Basis,
    Change,
    Fit,
    KvFit,
    Measured,
    Neighbour,
    Part,
    PartId,
    Verdict,
)
from spark_tui.domain.presets.fit_verdict import judged
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.quantities import short_tokens
from spark_tui.domain.reading import Missing, Reading

__all__ = ["Basis", "Change", "Fit", "KvFit", "Measured", "Neighbour", "Part", "PartId", "Verdict", "fit"]


def fit(
    plan: LaunchPlan,
    checkpoint: CheckpointFacts | None,
    memory: Reading[MemInfo],
    *,
    neighbours: Sequence[Neighbour] = (),
    measured: Measured | None = None,
    drafter: CheckpointFacts | None = None,
    returns: int = 0,
) -> Fit:
    """One launch against the memory now.

    `checkpoint` None: it is not in the store, and the recipe's facts and public configs are used. `neighbours` are
    the other engines: what they hold is gone from MemAvailable already, what they will take is set aside here.
    `measured` are an earlier start's figures. `returns` is what comes back when an engine that this launch replaces
    has ended, in bytes. Pure, and never raises.
    """
    facts, basis = fit_parts.layers_from(checkpoint, plan.preset)
    ask = ask_of(plan, facts)
    layout = kv_layout(facts, ask.kv) if facts is not None else None
    if layout is None and measured is not None:
        layout, basis = measured_layout(measured, ask), Basis.MEASURED
    fixed = _fixed_parts(plan, ask, checkpoint, measured, drafter)
    cache_parts = _cache_parts(ask, layout, basis)
    whole = Fit(
        Verdict.UNKNOWN,
        (),
        parts=(*fixed, *cache_parts),
        outside=(fit_parts.host_part(ask),),
        at_least=sum(part.size or 0 for part in (*fixed, *cache_parts)),
        neighbours=tuple(neighbours),
        utilization=ask.utilization,
        context=ask.context,
        sequences=ask.sequences,
        decode=fit_parts.decode_of(checkpoint, plan.preset),
        notes=_notes(plan, ask, checkpoint, facts, basis, neighbours),
    )
    whole = _with_needs(whole, ask, layout, fixed)
    if isinstance(memory, Missing):
        return replace(whole, reasons=(f"Memory could not be read: {memory.reason}.",))
    return judged(_against(whole, ask, layout, fixed, memory.value, returns), ask, layout)


# --- what it needs ------------------------------------------------------------------------------------


def _fixed_parts(
    plan: LaunchPlan,
    ask: Ask,
    checkpoint: CheckpointFacts | None,
    measured: Measured | None,
    drafter: CheckpointFacts | None,
) -> tuple[Part, ...]:
    second = None if measured is not None and measured.weights is not None else fit_parts.drafter_part(ask, drafter)
    return (
        fit_parts.weights_part(checkpoint, plan.preset, measured),
        *((second,) if second is not None else ()),
        *fit_parts.overhead_parts(ask, measured),
    )


def _cache_parts(ask: Ask, layout: KvLayout | None, basis: Basis) -> tuple[Part, ...]:
    """The cache for one sequence of the asked length: states apart from keys and values."""
    label = "KV cache, one sequence"
    if layout is None or ask.context is None:
        why = "its layers are not known" if layout is None else "no context length is stated"
        return (Part(PartId.KV, label, None, Basis.UNKNOWN, why),)
    state = min(layout.state_bytes, layout.sequence_bytes(ask.context))
    kv = layout.sequence_bytes(ask.context) - state
    note = f"{short_tokens(ask.context)} tokens in {layout.cache_dtype}"
    parts = (Part(PartId.KV, label, kv, basis, note),)
    return (*parts, Part(PartId.STATE, "State, one sequence", state, basis)) if layout.state_bytes else parts


def _known_sum(parts: Sequence[Part]) -> int | None:
    sizes = [part.size for part in parts]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


def _with_needs(whole: Fit, ask: Ask, layout: KvLayout | None, fixed: Sequence[Part]) -> Fit:
    base = _known_sum(fixed)
    if base is None or layout is None or ask.context is None:
        return whole
    each = layout.sequence_bytes(ask.context)
    return replace(whole, need=base + each, need_all=base + each * ask.sequences)


# --- against the machine --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Machine:
    """Bytes. `available` counts page cache that can be dropped, `free` does not."""

    total: int
    available: int
    free: int


def _machine(mem: MemInfo, neighbours: Sequence[Neighbour], returns: int) -> _Machine:
    coming = sum(neighbour.will_take or 0 for neighbour in neighbours)
    back = max(0, returns)
    return _Machine(
        mem.total,
        max(0, min(mem.total, mem.allocatable + back) - coming),
        max(0, min(mem.total, mem.free + back) - coming),
    )


def _against(whole: Fit, ask: Ask, layout: KvLayout | None, fixed: Sequence[Part], mem: MemInfo, returns: int) -> Fit:
    machine = _machine(mem, whole.neighbours, returns)
    base = _known_sum(fixed)
    claim = _claim(whole, ask, machine, base)
    room = None if claim is None or base is None else (ask.kv_bytes or max(0, claim - base))
    host = _known_sum(whole.outside) or 0
    most = math.floor((machine.available - host - RESERVE_BYTES) / machine.total * 100) / 100
    return replace(
        whole,
        total=machine.total,
        available=machine.available,
        claim=claim,
        left=None if claim is None else machine.available - claim - host,
        cache_to_drop=0 if claim is None else max(0, min(claim, machine.available) - machine.free),
        kv=None if room is None or layout is None or ask.context is None else _kv_fit(ask, layout, room),
        utilization_needed=_share_of(_need_few(whole, ask, layout), machine.total),
        utilization_most=max(0.0, most) if ask.is_vllm else None,
    )


def _claim(whole: Fit, ask: Ask, machine: _Machine, base: int | None) -> int | None:
    """What the engine takes: its share, or for engines without one and for a fixed cache what it needs."""
    if ask.kv_bytes is not None:
        return None if base is None else base + ask.kv_bytes
    if ask.utilization is not None:
        return math.ceil(machine.total * ask.utilization)
    if ask.free_share is not None and base is not None:
        return base + max(0, int((machine.available - base) * ask.free_share))
    return whole.need_all


def _need_few(whole: Fit, ask: Ask, layout: KvLayout | None) -> int | None:
    """What the asked sequences need, at most as many as one Spark serves well at once."""
    if whole.need is None or layout is None or ask.context is None:
        return None
    return whole.need + (min(ask.sequences, FEW_SEQUENCES) - 1) * layout.sequence_bytes(ask.context)


def _share_of(need: int | None, total: int) -> float | None:
    """A share rounded up to hundredths; above 1 where it cannot be had."""
    return None if need is None else math.ceil(need / total * 100) / 100


def _kv_fit(ask: Ask, layout: KvLayout, room: int) -> KvFit:
    context = ask.context or 1
    capacity, each = layout.capacity(room, context), layout.sequence_bytes(context)
    return KvFit(
        room=room,
        each=each,
        needed=each * ask.sequences,
        concurrency=capacity.concurrency,
        tokens=capacity.tokens,
        longest=layout.longest(room, context),
        bytes_per_token=layout.bytes_per_token,
        state_bytes=layout.state_bytes,
        dtype=layout.cache_dtype,
    )


def _notes(
    plan: LaunchPlan,
    ask: Ask,
    checkpoint: CheckpointFacts | None,
    facts: CheckpointFacts | None,
    basis: Basis,
    neighbours: Sequence[Neighbour],
) -> tuple[str, ...]:
    notes = [fit_parts.disagreement(checkpoint, plan.preset)]
    notes += [
        f"{other.name} still loads, and how much more it will take is not known."
        for other in neighbours
        if other.will_take is None
    ]
    if checkpoint is None:
        notes.append("The checkpoint is not in the store: figures about it are the recipe's, or of public configs.")
    elif basis is Basis.CONFIG:
        notes.append("The checkpoint's own config is not understood: its layers are those of the public config.")
    if ask.kv_bytes is not None and ask.on_gpu:
        notes.append("A cache of fixed size is taken without a check: utilization only counts at the start.")
    if facts is not None and ask.kv.mtp and facts.mtp_attention is None:
        notes.append("It drafts with layers of its own, whose cache is not counted.")
    longest = facts.max_position_embeddings if facts is not None else None
    if longest and ask.context and ask.context > longest:
        notes.append(f"The model is made for {longest:,} tokens; {ask.context:,} are asked for.")
    return tuple(filter(None, notes))
