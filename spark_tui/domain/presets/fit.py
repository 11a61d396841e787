"""Does a launch fit into this machine now? Weights, cache, state and all the rest against MemAvailable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.engine.container import LABEL_SPEC_HASH
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.logs.starts import StartRecord, StartSizes
from spark_tui.domain.models.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.domain.models.known import KnownModel, facts_of, known_model, loaded_weights
from spark_tui.domain.models.kv import KvLayout, kv_layout
from spark_tui.domain.models.weights import DecodeCeiling, bytes_of, ceiling_of, decode_read, format_in
from spark_tui.domain.presets.fit_request import (
    FEW_SEQUENCES,
    RESERVE_BYTES,
    Ask,
    Basis,
    Change,
    Fit,
    KvFit,
    Measured,
    Neighbour,
    Part,
    PartId,
    Verdict,
    ask_of,
    measured_layout,
)
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.rules.context import Case, Situation, case_of
from spark_tui.domain.quantities import GIB, gib, human_bytes, short_tokens
from spark_tui.domain.reading import Missing, Reading

__all__ = ["Basis", "Change", "Fit", "KvFit", "Measured", "Neighbour", "Part", "PartId", "Verdict", "fit"]


# What vLLM holds beyond weights, graphs and cache: 11.2 GiB at 32,768 batched tokens (GB10, 0.20.2), 3.0 to 5.2 GiB
# at 2,048 (Thor). A line through both.
RUNTIME_BYTES: Final = 2 * GIB
_WORKSPACE_BYTES: Final = 1 * GIB
_WORKSPACE_PER_TOKEN: Final = GIB // 4096
GRAPH_BYTES: Final = int(0.37 * GIB / 13)
"""Per captured batch size: 13 took 0.37 GiB (GB10, vLLM 0.20.2)."""
HOST_BYTES: Final = 4 * GIB
"""API server, engine core and what grows after the first long prompts: beside the share. 38 runs of vLLM 0.26 on a
GB10 had 5.5 to 13.9 GiB in use beyond their share, of which an idle system has some 4."""
_HOST_BYTES_CPU: Final = 1 * GIB
_RESIDENT: Final = 1.005
"""Weights once loaded, by their size on disk: 21.42 of 21.31 GiB (GB10, vLLM 0.20.2)."""


def public_model(preset: Preset) -> KnownModel | None:
    """The public config of a preset's model, by its name."""
    return known_model(names_of(preset))


def names_of(preset: Preset) -> str:
    """All that names the model, and its format."""
    return " ".join((preset.model, preset.facts.title, preset.facts.quantization))


def layers_from(checkpoint: CheckpointFacts | None, preset: Preset) -> tuple[CheckpointFacts | None, Basis]:
    """Facts about the layers: the checkpoint's own where it is here and understood, else the public config's."""
    if checkpoint is not None and checkpoint.attention is not None and checkpoint.states is not None:
        return checkpoint, Basis.FILES
    known = public_model(preset)
    return (facts_of(known), Basis.CONFIG) if known is not None else (checkpoint, Basis.UNKNOWN)


def weights_part(checkpoint: CheckpointFacts | None, preset: Preset, measured: Measured | None) -> Part:
    """The weights once loaded, by the best source there is."""
    label = "Weights"
    if measured is not None and measured.weights is not None:
        return Part(PartId.WEIGHTS, label, measured.weights, Basis.MEASURED, measured.source)
    summary = checkpoint.weights if checkpoint is not None else None
    if summary is not None and summary.complete:
        return Part(PartId.WEIGHTS, label, round(summary.size * _RESIDENT), Basis.FILES, f"{summary.tensors:,} tensors")
    known = public_model(preset)
    logged = loaded_weights(known, names_of(preset)) if known is not None else None
    if logged is not None:
        return Part(PartId.WEIGHTS, label, logged.size, Basis.LOG, logged.source)
    facts = preset.facts
    if facts.weights_bytes is not None:
        return Part(PartId.WEIGHTS, label, round(facts.weights_bytes * _RESIDENT), Basis.RECIPE)
    form = _stated_format(preset)
    if facts.total_parameters and form is not None:
        size = bytes_of(facts.total_parameters, form)
        note = f"{facts.total_parameters / 1e9:.3g} B parameters in {form}; parts that stay BF16 come on top"
        return Part(PartId.WEIGHTS, label, size, Basis.RULE, note)
    return Part(PartId.WEIGHTS, label, None, Basis.UNKNOWN, "neither the checkpoint nor the recipe tells")


def _stated_format(preset: Preset) -> WeightFormat | None:
    """The format that the recipe names; BF16 where it names none, as models are published."""
    return format_in(preset.facts.quantization) if preset.facts.quantization else WeightFormat.BF16


def drafter_part(ask: Ask, drafter: CheckpointFacts | None) -> Part | None:
    """The weights of a second checkpoint that drafts; None when none is asked for."""
    if not ask.drafter:
        return None
    summary = drafter.weights if drafter is not None else None
    if summary is None or not summary.complete:
        return Part(PartId.DRAFTER, "Drafter", None, Basis.UNKNOWN, f"{ask.drafter} is not in the store")
    return Part(PartId.DRAFTER, "Drafter", round(summary.size * _RESIDENT), Basis.FILES)


def overhead_parts(ask: Ask, measured: Measured | None) -> tuple[Part, ...]:
    """Workspace for activations, what CUDA takes outside of tensors, and CUDA graphs."""
    tokens = ask.kv.batched_tokens
    if not ask.on_gpu:
        return (Part(PartId.WORKSPACE, "Workspace", _WORKSPACE_BYTES, Basis.RULE),)
    graphs = _graphs_part(ask, measured)
    if measured is not None and measured.overhead is not None and measured.batched_tokens == tokens:
        whole = Part(PartId.WORKSPACE, "Workspace and CUDA", measured.overhead, Basis.MEASURED, measured.source)
        return (whole, graphs)
    note = f"for {tokens:,} batched tokens"
    workspace = _WORKSPACE_BYTES + _WORKSPACE_PER_TOKEN * tokens
    return (
        Part(PartId.WORKSPACE, "Workspace", workspace, Basis.RULE, note),
        Part(PartId.RUNTIME, "CUDA outside of tensors", RUNTIME_BYTES, Basis.RULE),
        graphs,
    )


def _graphs_part(ask: Ask, measured: Measured | None) -> Part:
    if measured is not None and measured.graphs is not None and measured.graphs >= 0:
        return Part(PartId.GRAPHS, "CUDA graphs", measured.graphs, Basis.MEASURED, measured.source)
    note = f"{ask.graphs} batch sizes" if ask.graphs else "switched off"
    return Part(PartId.GRAPHS, "CUDA graphs", GRAPH_BYTES * ask.graphs, Basis.RULE, note)


def host_part(ask: Ask) -> Part:
    """The engine's own processes, which its share does not count."""
    size = HOST_BYTES if ask.on_gpu else _HOST_BYTES_CPU
    return Part(PartId.HOST, "Its processes, and growth", size, Basis.RULE)


def decode_of(checkpoint: CheckpointFacts | None, preset: Preset) -> DecodeCeiling | None:
    """The decode ceiling: from the headers, else at least the active parameters in the recipe's format."""
    read = decode_read(checkpoint) if checkpoint is not None else None
    if read is not None:
        return ceiling_of(read.size)
    facts = preset.facts
    known = public_model(preset)
    is_moe = known is not None and facts_of(known).is_moe
    active = facts.active_parameters or (None if is_moe else facts.total_parameters)
    form = _stated_format(preset)
    size = bytes_of(active, form) if active and form is not None else None
    return None if size is None else ceiling_of(size, bound=True)


def disagreement(checkpoint: CheckpointFacts | None, preset: Preset) -> str:
    """A note when the checkpoint here is much larger or smaller than the recipe says; else empty."""
    stated, summary = preset.facts.weights_bytes, checkpoint.weights if checkpoint is not None else None
    if not stated or summary is None or not summary.complete or 0.8 < summary.size / stated < 1.25:
        return ""
    return f"The recipe says {human_bytes(stated)} of weights; the checkpoint here has {human_bytes(summary.size)}."


def changes_of(whole: Fit, ask: Ask, layout: KvLayout | None) -> tuple[Change, ...]:
    """Changes that help, the least intrusive first."""
    found: list[Change] = []
    if whole.cache_to_drop and (whole.left or 0) >= 0:
        size = whole.cache_to_drop
        found.append(Change(f"Free the page cache: {gib(size)} GiB of it are in the way.", gains=size))
    if _short(whole):
        found += _lower_share(whole, ask, layout)
    else:
        found += _raise_share(whole, ask)
        found += _length(whole, ask, layout)
        found += _sequences(whole, ask)
    found += _neighbours(whole)
    return tuple(found)


def _short(whole: Fit) -> bool:
    """The machine has less memory than would be taken."""
    return whole.left is not None and whole.left < RESERVE_BYTES


SHORTEST: Final = 1024
"""A shorter context is of no use to anybody."""


def _setting(ask: Ask, key: str, value: str) -> tuple[tuple[str, str], ...]:
    return ask.case.setting(key, value) if ask.engine == "vllm" else ()


def _lower_share(whole: Fit, ask: Ask, layout: KvLayout | None) -> list[Change]:
    """A share that the machine has room for, with a shorter context where the one asked for would not fit into it."""
    most, total = whole.utilization_most, whole.total or 0
    if ask.utilization is None or ask.kv_bytes is not None or most is None or not 0 < most < ask.utilization:
        return []
    gains = int((ask.utilization - most) * total)
    if whole.need is None:
        return (
            [Change(f"Lower the share to {most:.2f}.", _share(ask, most), gains)]
            if whole.at_least < most * total
            else []
        )
    if whole.need <= most * total:
        return [Change(f"Lower the share to {most:.2f}.", _share(ask, most), gains)]
    if layout is None or ask.context is None:
        return []
    base = whole.need - layout.sequence_bytes(ask.context)
    length = _rounded(layout.longest(int(most * total) - base, ask.context))
    if length < SHORTEST:
        return []
    pairs = (*_share(ask, most), *_setting(ask, "max_model_len", str(length)))
    return [Change(f"Lower the share to {most:.2f}, and the context to {length:,} tokens.", pairs, gains)]


def _raise_share(whole: Fit, ask: Ask) -> list[Change]:
    """A larger share, where the cache has no room in this one and the machine has."""
    most, wanted, total = whole.utilization_most, whole.utilization_needed, whole.total or 0
    if ask.utilization is None or whole.need is None or most is None or wanted is None or ask.kv_bytes is not None:
        return []
    least = math.ceil(whole.need / total * 100) / 100 if total else 2.0
    better = min(most, wanted)
    if better <= ask.utilization or least > most or (least <= ask.utilization and wanted > most):
        return []
    gains = int((better - ask.utilization) * total)
    return [
        Change(f"Raise the share to {better:.2f}: {gib(gains)} GiB more for the cache.", _share(ask, better), gains)
    ]


def _share(ask: Ask, value: float) -> tuple[tuple[str, str], ...]:
    return _setting(ask, "gpu_memory_utilization", f"{value:.2f}")


def _length(whole: Fit, ask: Ask, layout: KvLayout | None) -> list[Change]:
    """A shorter context: of which one sequence fits, or all that are asked for."""
    kv = whole.kv
    if kv is None or layout is None or ask.context is None:
        return []
    found = []
    if kv.concurrency < 1:
        one = _rounded(kv.longest)
        if one:
            found.append(Change(f"Shorten the context to {one:,} tokens.", _setting(ask, "max_model_len", str(one))))
    elif kv.concurrency < min(ask.sequences, FEW_SEQUENCES):
        each = _rounded(layout.longest(kv.room // ask.sequences, ask.context))
        if each:
            words = f"Shorten the context to {each:,} tokens: {ask.sequences} sequences of it fit."
            found.append(Change(words, _setting(ask, "max_model_len", str(each))))
    return found


def _rounded(tokens: int) -> int:
    """Whole thousands of tokens, as people write lengths; short ones as they are."""
    return tokens // 1024 * 1024 or tokens


def _sequences(whole: Fit, ask: Ask) -> list[Change]:
    kv = whole.kv
    if kv is None or not 1 <= kv.concurrency < min(ask.sequences, FEW_SEQUENCES):
        return []
    fewer = int(kv.concurrency)
    words = "one sequence" if fewer == 1 else f"{fewer} sequences"
    return [Change(f"Allow {words} at once.", _setting(ask, "max_num_seqs", str(fewer)))]


def _neighbours(whole: Fit) -> list[Change]:
    """Stopping another engine, when memory is short and it is known to hold some."""
    if not _short(whole):
        return []
    holding = sorted((n for n in whole.neighbours if n.holds), key=lambda n: -(n.holds or 0))
    return [Change(f"Stop {n.name}: {gib(n.holds or 0)} GiB come back.", gains=n.holds) for n in holding]


_UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class FitLine:
    """One row: what, how much, and where the figure comes from."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """One piece of the pool as it would be, in bytes. `id` is a PartId's value, or `others` or `left`."""

    id: str
    label: str
    size: int


def fit_lines(fit: Fit) -> tuple[FitLine, ...]:
    """The figures, top to bottom: what it needs, what it takes, what the machine has. A part that is not known says
    so, and sums with it say `at least`."""
    return (*map(_part_line, fit.parts), *_need_lines(fit), *_machine_lines(fit), *_cache_lines(fit), *_decode(fit))


def _part_line(part: Part) -> FitLine:
    note = f"{part.basis}: {part.note}" if part.note and part.basis is not Basis.UNKNOWN else part.note or part.basis
    return FitLine(part.label, _size(part.size), str(note))


def _size(size: int | None) -> str:
    return _UNKNOWN if size is None else f"{gib(size)} GiB"


def _need_lines(fit: Fit) -> list[FitLine]:
    if fit.need is None:
        return [FitLine("Needs at least", _size(fit.at_least), "what is not known comes on top")]
    lines = [FitLine("Needs", _size(fit.need), "for one sequence of full length")]
    if fit.need_all is not None and fit.sequences > 1:
        lines.append(FitLine("Needs for all", _size(fit.need_all), f"{fit.sequences} sequences of full length"))
    return lines


def _machine_lines(fit: Fit) -> list[FitLine]:
    if fit.total is None:
        return []
    lines = [FitLine("Available now", _size(fit.available), f"of {gib(fit.total)} GiB")]
    lines += [
        FitLine(f"  {other.name}", _size(other.holds), "already taken" if other.will_take == 0 else "still loads")
        for other in fit.neighbours
    ]
    if fit.claim is not None:
        share = "" if fit.utilization is None else f"{fit.utilization:g} of the pool"
        if fit.utilization is not None and fit.utilization_needed is not None and fit.utilization_needed <= 1:
            share += f"; {fit.utilization_needed:.2f} would do"
        lines.append(FitLine("It takes", _size(fit.claim), share))
    lines += map(_part_line, fit.outside)
    if fit.cache_to_drop:
        lines.append(FitLine("Page cache to drop", _size(fit.cache_to_drop), "before it starts"))
    if fit.left is not None:
        lines.append(FitLine("Leaves", _size(fit.left), ""))
    return lines


def _cache_lines(fit: Fit) -> list[FitLine]:
    kv = fit.kv
    if kv is None:
        return []
    grows = f"{human_bytes(kv.bytes_per_token)} per token in {kv.dtype}" if kv.bytes_per_token else kv.dtype
    if kv.state_bytes:
        grows += f", and {human_bytes(kv.state_bytes)} of state per sequence"
    return [
        FitLine("KV cache", _size(kv.room), grows),
        FitLine("Sequences", f"{kv.concurrency:.1f}", f"of {fit.context or 0:,} tokens at once"),
    ]


def _decode(fit: Fit) -> list[FitLine]:
    decode = fit.decode
    if decode is None:
        return []
    least = "at least " if decode.bound else ""
    note = f"each token reads {least}{decode.reads / 1e9:.1f} GB; {decode.paper:.0f} by the data sheet"
    return [FitLine("Decodes at most", f"{decode.measured:.0f} tok/s", note)]


def slices(fit: Fit) -> tuple[Slice, ...]:
    """The whole pool as it would be once this launch serves, cut so that the sizes add up to the total exactly; empty
    when memory or what the engine takes is not known. What does not fit is cut off at the end."""
    if fit.total is None or fit.available is None or fit.claim is None:
        return ()
    pieces = [("others", "In use now", fit.total - fit.available)]
    inside = 0
    for part in fit.parts:
        if part.size and part.id not in (PartId.KV, PartId.STATE):
            pieces.append((part.id.value, part.label, part.size))
            inside += part.size
    pieces.append((PartId.KV.value, "KV cache", max(0, fit.claim - inside)))
    pieces += [(part.id.value, part.label, part.size) for part in fit.outside if part.size]
    found: list[Slice] = []
    room = fit.total
    for name, label, size in pieces:
        cut = min(size, room)
        room -= cut
        if cut:
            found.append(Slice(name, label, cut))
    return (*found, Slice("left", "Left", room))


SLOW_TOKENS_PER_SECOND: Final = 10.0
"""About the speed at which people read."""


def judged(whole: Fit, ask: Ask, layout: KvLayout | None) -> Fit:
    """The fit with its verdict, its reasons, and what would help."""
    blocked, slow = _blocking(whole, ask), _slowing(whole, ask)
    unknown = [f"{part.label}: not known ({part.note})." for part in whole.unknown]
    changes = changes_of(whole, ask, layout) if blocked or slow or whole.cache_to_drop else ()
    if blocked:
        return replace(whole, verdict=Verdict.BLOCKED, reasons=(*blocked, *slow), changes=changes)
    if unknown:
        least = f"It needs at least {gib(whole.at_least)} GiB."
        return replace(whole, verdict=Verdict.UNKNOWN, reasons=(*unknown, least, *slow), changes=changes)
    if slow:
        return replace(whole, verdict=Verdict.SLOW, reasons=tuple(slow), changes=changes)
    return replace(whole, verdict=Verdict.READY, reasons=(_ready(whole),), changes=changes)


def _ready(whole: Fit) -> str:
    words = f"It fits, and leaves {gib(whole.left or 0)} GiB."
    if whole.kv is None:
        return words
    return f"{words} The cache holds {whole.kv.concurrency:.1f} sequences of {short_tokens(whole.context or 0)} tokens."


def _blocking(whole: Fit, ask: Ask) -> list[str]:
    found: list[str] = []
    available, total = whole.available or 0, whole.total or 0
    start = math.ceil(total * ask.utilization) if ask.utilization is not None and ask.is_vllm else None
    if start is not None and start > available:
        found.append(
            f"vLLM would refuse to start: it asks for {gib(start)} GiB ({ask.utilization:g} of {gib(total)}), "
            f"and {gib(available)} GiB are available."
        )
    elif whole.left is not None and whole.left < 0:
        found.append(
            f"It would take the machine down: with its processes it takes {gib(available - whole.left)} GiB, and "
            f"{gib(available)} GiB are available."
        )
    elif whole.claim is None and whole.at_least > available:
        found.append(f"It needs at least {gib(whole.at_least)} GiB, and {gib(available)} GiB are available.")
    if (ask.utilization is not None or ask.free_share is not None) and whole.claim is not None:
        found += _no_room(whole)
    elif ask.kv_bytes is not None and whole.kv is not None and whole.kv.concurrency < 1:
        found += _too_long(whole)
    return found


def _no_room(whole: Fit) -> list[str]:
    """The share is too small for what must be in it."""
    claim = whole.claim or 0
    if whole.kv is None:
        if whole.at_least <= claim:
            return []
        return [f"The share of {gib(claim)} GiB is too small: it needs at least {gib(whole.at_least)} GiB."]
    return _too_long(whole) if whole.kv.concurrency < 1 else []


def _too_long(whole: Fit) -> list[str]:
    kv = whole.kv
    if kv is None:
        return []
    return [
        f"The KV cache is too small: one sequence of {whole.context or 0:,} tokens takes {gib(kv.each)} GiB, and "
        f"{gib(kv.room)} GiB are left for it."
    ]


def _slowing(whole: Fit, ask: Ask) -> list[str]:
    found: list[str] = []
    if whole.left is not None and 0 <= whole.left < RESERVE_BYTES:
        found.append(f"It leaves {gib(whole.left)} GiB to the system; {gib(RESERVE_BYTES, 0)} should stay free.")
    if whole.kv is not None and 1 <= whole.kv.concurrency < min(ask.sequences, FEW_SEQUENCES):
        found.append(
            f"The cache holds {whole.kv.concurrency:.1f} sequences of full length, and {ask.sequences} are allowed: "
            "more than that wait, or are computed again."
        )
    decode = whole.decode
    if decode is not None and decode.measured < SLOW_TOKENS_PER_SECOND and not ask.kv.draft_tokens:
        found.append(
            f"One stream decodes at most {decode.measured:.1f} tokens per second: each token reads "
            f"{decode.reads / 1e9:.1f} GB of weights."
        )
    return found


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
    facts, basis = layers_from(checkpoint, plan.preset)
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
        outside=(host_part(ask),),
        at_least=sum(part.size or 0 for part in (*fixed, *cache_parts)),
        neighbours=tuple(neighbours),
        utilization=ask.utilization,
        context=ask.context,
        sequences=ask.sequences,
        decode=decode_of(checkpoint, plan.preset),
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
    second = None if measured is not None and measured.weights is not None else drafter_part(ask, drafter)
    return (
        weights_part(checkpoint, plan.preset, measured),
        *((second,) if second is not None else ()),
        *overhead_parts(ask, measured),
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
    notes = [disagreement(checkpoint, plan.preset)]
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


OWN_LOG: Final = "this engine's own log"
SOURCE: Final = "an earlier start"


def measured_by(sizes: StartSizes, total: int, source: str) -> Measured | None:
    """A start's figures; None when it did not come as far as its weights. `total` is the pool in bytes, 0 when that is
    not known."""
    if sizes.weights_gib is None:
        return None
    weights, cache, graphs = (_bytes(size) for size in (sizes.weights_gib, sizes.kv_gib, sizes.graphs_gib))
    overhead = None
    if weights is not None and cache is not None and total and sizes.utilization:
        counted = max(0, _bytes(sizes.graphs_estimated_gib) or 0)
        overhead = max(0, int(total * sizes.utilization) - weights - cache - counted)
    return Measured(
        weights,
        cache,
        graphs,
        overhead,
        sizes.batched_tokens,
        source,
        sizes.kv_tokens,
        sizes.context,
        sizes.cache_dtype,
    )


def _bytes(size: float | None) -> int | None:
    return None if size is None else int(size * GIB)


def measured_before(starts: Iterable[StartRecord], plan: LaunchPlan, total: int) -> Measured | None:
    """The latest start of the same preset, model and image that measured its weights, those with the very same
    settings first. What depends on a setting that differs is left out."""
    names = (plan.preset.name, plan.model, plan.spec.image)
    kin = [
        start
        for start in starts
        if (start.preset, start.model, start.image) == names and start.sizes.weights_gib is not None
    ]
    if not kin:
        return None
    fingerprint = plan.spec.label(LABEL_SPEC_HASH)
    same = [start for start in kin if fingerprint and start.settings == fingerprint]
    if same:
        return measured_by(_latest(same).sizes, total, SOURCE)
    case = case_of(Situation(plan))
    alike = [start for start in kin if _same_weights(start.sizes, case)]
    found = measured_by(_latest(alike).sizes, total, SOURCE) if alike else None
    if found is None or _same_graphs(_latest(alike).sizes, case):
        return found
    return replace(found, graphs=None, overhead=None)  # the overhead is what the graphs and the rest have left over


def _latest(starts: Sequence[StartRecord]) -> StartRecord:
    return max(starts, key=lambda start: start.at)


def _same_weights(sizes: StartSizes, case: Case) -> bool:
    """A drafter's weights are among them."""
    asked = case.option("--quantization") or sizes.quantization
    return asked == sizes.quantization and bool(sizes.speculation) == (case.speculation is not None)


def _same_graphs(sizes: StartSizes, case: Case) -> bool:
    """There are as many as there are batch sizes."""
    return sizes.eager == bool(case.switch("--enforce-eager")) and sizes.sequences == case.integer("--max-num-seqs")
