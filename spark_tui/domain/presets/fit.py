"""Does a launch fit into this machine now? Weights, cache, state and all the rest against MemAvailable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_tui.domain.finding import Change, Finding, Severity
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.models.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.domain.models.known import facts_of, known_model, loaded_weights
from spark_tui.domain.models.kv import KvLayout, kv_layout
from spark_tui.domain.models.weights import (
    MEASURED_BANDWIDTH,
    PAPER_BANDWIDTH,
    DecodeCeiling,
    bytes_of,
    ceiling_of,
    decode_read,
    format_in,
)
from spark_tui.domain.presets.fit_request import FitRequest, Measured, measured_layout, request_of
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.quantities import GIB, gib, human_bytes, short_tokens
from spark_tui.domain.reading import Missing, Reading

RESERVE_BYTES: Final = 6 * GIB
"""What should stay free: machines that serve for days have 4 to 5 % available; below it the first long prompt hurts."""
FEW_SEQUENCES: Final = 4
"""What one Spark serves well at once; more of full length need not fit, since few requests are that long."""
SLOW_TOKENS_PER_SECOND: Final = 10.0
"""About the speed at which people read."""
SHORTEST: Final = 1024
"""A shorter context is never suggested."""

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


class Verdict(StrEnum):
    """READY: it fits with room. SLOW: it starts, and something about it will be felt. BLOCKED: it would not start, or
    would take the machine down. UNKNOWN: too little is known to say."""

    READY = "READY"
    SLOW = "SLOW"
    BLOCKED = "BLOCKED"
    UNKNOWN = "UNKNOWN"


class Basis(StrEnum):
    """Where a figure comes from, best first."""

    MEASURED = "measured at an earlier start"
    FILES = "from the checkpoint's files"
    CONFIG = "from the model's config"
    LOG = "from a published log"
    RECIPE = "from the recipe"
    RULE = "rule of thumb"
    UNKNOWN = "not known"


class PartId(StrEnum):
    """What takes memory."""

    WEIGHTS = "weights"
    DRAFTER = "drafter"
    WORKSPACE = "workspace"
    RUNTIME = "runtime"
    GRAPHS = "graphs"
    KV = "kv"
    STATE = "state"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class FitPart:
    """One thing that takes memory, in bytes (None: not known). `note` says how the figure came about."""

    id: PartId
    label: str
    size: int | None
    basis: Basis
    note: str = ""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another engine on this machine, in bytes. `holds` is what it has now; `will_take` what it is still going to take
    while it loads, 0 for one that serves. None: not known."""

    name: str
    holds: int | None = None
    will_take: int | None = 0


@dataclass(frozen=True, slots=True)
class FitChange:
    """Something that would help. `pairs` are the settings that do it, if any. `gains` is how much memory it frees or
    leaves free, None where that is not its point."""

    summary: str
    pairs: Change = ()
    gains: int | None = None


@dataclass(frozen=True, slots=True)
class KvFit:
    """The KV cache: `room` is what is left for it, `each` what one sequence of the asked length takes, padding
    included, `concurrency` how many of them the room holds, `longest` the longest context of which one fits."""

    room: int
    each: int
    concurrency: float
    tokens: int
    longest: int
    bytes_per_token: int
    state_bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Fit:
    """One launch against the memory now. Sizes in bytes; None: not known, which is never zero.

    `claim` is what the engine takes: its share of the memory for vLLM, whatever it needs of it; the sum of the parts
    for others. `parts` are what is within the claim, `outside` what comes on top of it. `need` sums the parts for one
    sequence, `need_all` for all that are asked; None when a part is not known, and `at_least` sums what is.
    `utilization_needed` is the share that up to four of the asked sequences need, above 1 where no machine has it;
    `utilization_most` is the largest that this one has room for now. `cache_to_drop` is page cache that must go first.
    `left` is what stays free.
    """

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    changes: tuple[FitChange, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[FitPart, ...] = ()
    outside: tuple[FitPart, ...] = ()
    total: int | None = None
    available: int | None = None
    claim: int | None = None
    at_least: int = 0
    need: int | None = None
    need_all: int | None = None
    left: int | None = None
    cache_to_drop: int = 0
    neighbours: tuple[Neighbour, ...] = ()
    utilization: float | None = None
    utilization_needed: float | None = None
    utilization_most: float | None = None
    context: int | None = None
    sequences: int = 1
    kv: KvFit | None = None
    decode: DecodeCeiling | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is what it is, the weightiest first."""
        return tuple(finding.summary for finding in self.findings)

    @property
    def only_neighbours(self) -> bool:
        """It is BLOCKED, and would not be if the other engines were stopped."""
        if self.verdict is not Verdict.BLOCKED or self.left is None or self.left >= 0:
            return False
        return self.left + sum(neighbour.holds or 0 for neighbour in self.neighbours) >= 0

    @property
    def unknown(self) -> tuple[FitPart, ...]:
        return tuple(part for part in (*self.parts, *self.outside) if part.size is None)

    def part(self, which: PartId) -> FitPart | None:
        return next((part for part in (*self.parts, *self.outside) if part.id is which), None)


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
    the other engines: what they hold is gone from MemAvailable already, what they will take is set aside. `measured`
    are an earlier start's figures. `returns` is what an engine that this launch replaces releases when it ends, in
    bytes. Pure, and never raises.
    """
    preset = plan.preset
    facts, basis = _layers(checkpoint, preset)
    asked = request_of(plan, facts)
    layout = kv_layout(facts, asked.kv) if facts is not None else None
    if layout is None and measured is not None:
        layout, basis = measured_layout(measured, asked), Basis.MEASURED
    fixed = [_weights(checkpoint, preset, measured)]
    if asked.drafter and (measured is None or measured.weights is None):
        fixed.append(_drafter(asked.drafter, drafter))
    fixed += _overhead(asked, measured)
    parts = (*fixed, *_cache_parts(asked, layout, basis))
    base = None if any(part.size is None for part in fixed) else sum(part.size or 0 for part in fixed)
    each = None if layout is None or asked.context is None else layout.sequence_bytes(asked.context)
    host_bytes = HOST_BYTES if asked.on_gpu else _HOST_BYTES_CPU
    whole = Fit(
        Verdict.UNKNOWN,
        parts=parts,
        # the engine's own processes, which its share does not count
        outside=(FitPart(PartId.HOST, "Processes and growth", host_bytes, Basis.RULE),),
        at_least=sum(part.size or 0 for part in parts),
        need=None if base is None or each is None else base + each,
        need_all=None if base is None or each is None else base + each * asked.sequences,
        neighbours=tuple(neighbours),
        utilization=asked.utilization,
        context=asked.context,
        sequences=asked.sequences,
        decode=_decode(checkpoint, preset),
    )
    whole = replace(whole, notes=tuple(_notes(whole, asked, checkpoint, facts, basis)))
    if isinstance(memory, Missing):
        unread = Finding("fit_memory_unread", Severity.UNKNOWN, f"Memory could not be read: {memory.reason}.")
        return replace(whole, findings=(unread,))
    return _judged(_against(whole, asked, layout, base, memory.value, returns), asked, layout)


# --- what it needs ----------------------------------------------------------------------------------------


def _names(preset: Preset) -> str:
    """All that may name a model of which the config is public."""
    return " ".join((preset.model, preset.facts.title, preset.facts.quantization))


def _layers(checkpoint: CheckpointFacts | None, preset: Preset) -> tuple[CheckpointFacts | None, Basis]:
    """Facts about the layers: the checkpoint's own where it is downloaded and understood, else the public config's."""
    if checkpoint is not None and checkpoint.attention is not None and checkpoint.states is not None:
        return checkpoint, Basis.FILES
    known = known_model(_names(preset))
    return (facts_of(known), Basis.CONFIG) if known is not None else (checkpoint, Basis.UNKNOWN)


def _weights(checkpoint: CheckpointFacts | None, preset: Preset, measured: Measured | None) -> FitPart:
    summary = checkpoint.weights if checkpoint is not None else None
    known, facts, form = known_model(_names(preset)), preset.facts, _declared_format(preset)
    logged = loaded_weights(known, _names(preset)) if known is not None else None
    size: int | None
    if measured is not None and measured.weights is not None:
        size, basis, note = measured.weights, Basis.MEASURED, measured.source
    elif summary is not None and summary.complete:
        size, basis, note = round(summary.size * _RESIDENT), Basis.FILES, f"{summary.tensors:,} tensors"
    elif logged is not None:
        size, basis, note = logged.size, Basis.LOG, logged.source
    elif facts.weights_bytes is not None:
        size, basis, note = round(facts.weights_bytes * _RESIDENT), Basis.RECIPE, ""
    elif facts.total_parameters and form is not None:
        size, basis = bytes_of(facts.total_parameters, form), Basis.RULE
        note = f"{facts.total_parameters / 1e9:.3g} B parameters in {form}; parts in BF16 come on top"
    else:
        size, basis, note = None, Basis.UNKNOWN, "not in the checkpoint or the recipe"
    return FitPart(PartId.WEIGHTS, "Weights", size, basis, note)


def _declared_format(preset: Preset) -> WeightFormat | None:
    """The format that the recipe names; BF16 where it names none, as models are published."""
    return format_in(preset.facts.quantization) if preset.facts.quantization else WeightFormat.BF16


def _drafter(name: str, drafter: CheckpointFacts | None) -> FitPart:
    summary = drafter.weights if drafter is not None else None
    if summary is None or not summary.complete:
        return FitPart(PartId.DRAFTER, "Drafter", None, Basis.UNKNOWN, f"{name} is not in the store")
    return FitPart(PartId.DRAFTER, "Drafter", round(summary.size * _RESIDENT), Basis.FILES)


def _overhead(asked: FitRequest, measured: Measured | None) -> Iterator[FitPart]:
    """Workspace for activations, what CUDA takes outside of tensors, and CUDA graphs."""
    tokens = asked.kv.batched_tokens
    if not asked.on_gpu:
        yield FitPart(PartId.WORKSPACE, "Workspace", _WORKSPACE_BYTES, Basis.RULE)
        return
    if measured is not None and measured.overhead is not None and measured.batched_tokens == tokens:
        yield FitPart(PartId.WORKSPACE, "Workspace and CUDA", measured.overhead, Basis.MEASURED, measured.source)
    else:
        workspace = _WORKSPACE_BYTES + _WORKSPACE_PER_TOKEN * tokens
        yield FitPart(PartId.WORKSPACE, "Workspace", workspace, Basis.RULE, f"for {tokens:,} batched tokens")
        yield FitPart(PartId.RUNTIME, "CUDA outside of tensors", RUNTIME_BYTES, Basis.RULE)
    if measured is not None and measured.graphs is not None and measured.graphs >= 0:
        yield FitPart(PartId.GRAPHS, "CUDA graphs", measured.graphs, Basis.MEASURED, measured.source)
    else:
        note = f"{asked.graphs} batch sizes" if asked.graphs else "off"
        yield FitPart(PartId.GRAPHS, "CUDA graphs", GRAPH_BYTES * asked.graphs, Basis.RULE, note)


def _cache_parts(asked: FitRequest, layout: KvLayout | None, basis: Basis) -> Iterator[FitPart]:
    """The cache for one sequence of the asked length: states apart from keys and values."""
    label = "KV cache, one sequence"
    if layout is None or asked.context is None:
        why = "its layers are not known" if layout is None else "no context length given"
        yield FitPart(PartId.KV, label, None, Basis.UNKNOWN, why)
        return
    whole = layout.sequence_bytes(asked.context)
    state = min(layout.state_bytes, whole)
    note = f"{short_tokens(asked.context)} tokens in {layout.cache_dtype}"
    yield FitPart(PartId.KV, label, whole - state, basis, note)
    if layout.state_bytes:
        yield FitPart(PartId.STATE, "State, one sequence", state, basis)


def _decode(checkpoint: CheckpointFacts | None, preset: Preset) -> DecodeCeiling | None:
    """The decode ceiling: from the headers, else at least the active parameters in the recipe's format."""
    read = decode_read(checkpoint) if checkpoint is not None else None
    if read is not None:
        return ceiling_of(read.size)
    known = known_model(_names(preset))
    is_moe = known is not None and facts_of(known).is_moe
    active = preset.facts.active_parameters or (None if is_moe else preset.facts.total_parameters)
    form = _declared_format(preset)
    size = bytes_of(active, form) if active and form is not None else None
    return None if size is None else ceiling_of(size, bound=True)


def _notes(
    whole: Fit,
    asked: FitRequest,
    checkpoint: CheckpointFacts | None,
    facts: CheckpointFacts | None,
    basis: Basis,
) -> Iterator[str]:
    recipe, summary = asked.launch.preset.facts, checkpoint.weights if checkpoint is not None else None
    declared = recipe.weights_bytes
    if declared and summary is not None and summary.complete and not 0.8 < summary.size / declared < 1.25:
        yield f"The recipe has {human_bytes(declared)} of weights; the checkpoint has {human_bytes(summary.size)}."
    for other in whole.neighbours:
        if other.will_take is None:
            yield f"{other.name} is still loading; its further memory is unknown."
    if checkpoint is None:
        yield "The checkpoint is not in the store: its figures are from the recipe or public configs."
    elif basis is Basis.CONFIG:
        yield "The checkpoint's own config is not understood: its layers are those of the public config."
    if asked.kv_bytes is not None and asked.on_gpu:
        yield "A cache of fixed size is allocated without a check: utilization only counts at the start."
    if facts is not None and asked.kv.mtp and facts.mtp_attention is None:
        yield "The cache of the MTP layers is not counted."
    longest = facts.max_position_embeddings if facts is not None else None
    if longest and asked.context and asked.context > longest:
        yield f"The model's context is {longest:,} tokens; {asked.context:,} are asked for."
    fastest = max((speed.tokens_per_second for speed in recipe.published), default=0.0)
    if whole.decode is not None and not asked.kv.draft_tokens and fastest > whole.decode.measured:
        yield (
            f"Published: {fastest:.0f} tok/s, above the decode ceiling. Possible where the image also quantizes "
            "attention and output head, or for several streams together."
        )


# --- against the machine ----------------------------------------------------------------------------------


def _against(
    whole: Fit, asked: FitRequest, layout: KvLayout | None, base: int | None, mem: MemInfo, returns: int
) -> Fit:
    """`available` counts page cache that can be dropped, free memory does not."""
    reserved = sum(neighbour.will_take or 0 for neighbour in whole.neighbours)
    available = max(0, min(mem.total, mem.allocatable + max(0, returns)) - reserved)
    free = max(0, min(mem.total, mem.free + max(0, returns)) - reserved)
    host = sum(part.size or 0 for part in whole.outside)
    if asked.kv_bytes is not None:
        claim = None if base is None else base + asked.kv_bytes
    elif asked.utilization is not None:
        claim = math.ceil(mem.total * asked.utilization)
    elif asked.free_share is not None and base is not None:
        claim = base + max(0, int((available - base) * asked.free_share))
    else:
        claim = whole.need_all
    most = math.floor((available - host - RESERVE_BYTES) / mem.total * 100) / 100
    needed, kv = None, None
    if layout is not None and asked.context is not None:
        each = layout.sequence_bytes(asked.context)
        if whole.need is not None:
            few = whole.need + (min(asked.sequences, FEW_SEQUENCES) - 1) * each
            needed = math.ceil(few / mem.total * 100) / 100
        if claim is not None and base is not None:
            room = asked.kv_bytes or max(0, claim - base)
            capacity, longest = layout.capacity(room, asked.context), layout.longest(room, asked.context)
            about = (layout.bytes_per_token, layout.state_bytes, layout.cache_dtype)
            kv = KvFit(room, each, capacity.concurrency, capacity.tokens, longest, *about)
    return replace(
        whole,
        total=mem.total,
        available=available,
        claim=claim,
        left=None if claim is None else available - claim - host,
        cache_to_drop=0 if claim is None else max(0, min(claim, available) - free),
        utilization_needed=needed,
        utilization_most=max(0.0, most) if asked.launch.is_vllm else None,
        kv=kv,
    )


# --- verdict ----------------------------------------------------------------------------------------------


def _judged(whole: Fit, asked: FitRequest, layout: KvLayout | None) -> Fit:
    """The fit with its verdict, its reasons, and what would help."""
    blocking, slowing = tuple(_blocking(whole, asked)), tuple(_slowing(whole, asked))
    changes = tuple(_changes(whole, asked, layout)) if blocking or slowing or whole.cache_to_drop else ()
    unknown = tuple(
        Finding("fit_unknown", Severity.UNKNOWN, f"{part.label}: unknown ({part.note}).", subject=part.id.value)
        for part in whole.unknown
    )
    if blocking:
        verdict, findings = Verdict.BLOCKED, (*blocking, *slowing)
    elif unknown:
        least = Finding("fit_at_least", Severity.UNKNOWN, f"Needs at least {gib(whole.at_least)} GiB.")
        verdict, findings = Verdict.UNKNOWN, (*unknown, least, *slowing)
    elif slowing:
        verdict, findings = Verdict.SLOW, slowing
    else:
        text = f"Fits. Leaves {gib(whole.left or 0)} GiB."
        if whole.kv is not None:
            length = short_tokens(whole.context or 0)
            text += f" The KV cache holds {whole.kv.concurrency:.1f} sequences of {length} tokens."
        verdict, findings = Verdict.READY, (Finding("fit_ready", Severity.OK, text),)
    return replace(whole, verdict=verdict, findings=findings, changes=changes)


def _blocking(whole: Fit, asked: FitRequest) -> Iterator[Finding]:
    """Why it would not start, or would take the machine down: the memory, then the share within it."""
    available, claim, kv = whole.available or 0, whole.claim, whole.kv
    share = asked.utilization if asked.launch.is_vllm else None
    start = math.ceil((whole.total or 0) * share) if share is not None else 0
    id_, text = "fit_memory", ""
    if start > available:
        id_, of = "fit_share_unavailable", f"({share:g} of {gib(whole.total or 0)})"
        text = f"vLLM will refuse to start: it needs {gib(start)} GiB free {of}, {gib(available)} GiB are available."
    elif whole.left is not None and whole.left < 0:
        takes = f"it takes {gib(available - whole.left)} GiB with its processes"
        text = f"It may freeze the machine: {takes}, {gib(available)} GiB are available."
    elif claim is None and whole.at_least > available:
        text = f"Needs at least {gib(whole.at_least)} GiB; {gib(available)} GiB are available."
    if text:
        yield Finding(id_, Severity.ERROR, text)
    has_share = (asked.utilization is not None or asked.free_share is not None) and claim is not None
    if has_share and kv is None and whole.at_least > (claim or 0):
        text = f"The share of {gib(claim or 0)} GiB is too small: it needs at least {gib(whole.at_least)} GiB."
        yield Finding("fit_share_small", Severity.ERROR, text)
    elif (has_share or asked.kv_bytes is not None) and kv is not None and kv.concurrency < 1:
        one = f"one sequence of {whole.context or 0:,} tokens takes {gib(kv.each)} GiB"
        text = f"The KV cache is too small: {one}, {gib(kv.room)} GiB are left for it."
        yield Finding("fit_context", Severity.ERROR, text)


def _slowing(whole: Fit, asked: FitRequest) -> Iterator[Finding]:
    kv, decode = whole.kv, whole.decode
    if whole.left is not None and 0 <= whole.left < RESERVE_BYTES:
        text = f"Leaves {gib(whole.left)} GiB to the system; {gib(RESERVE_BYTES, 0)} should stay free."
        yield Finding("fit_reserve", Severity.WARNING, text)
    if kv is not None and 1 <= kv.concurrency < min(asked.sequences, FEW_SEQUENCES):
        held = f"The KV cache holds {kv.concurrency:.1f} sequences of full length"
        text = f"{held}, {asked.sequences} are allowed: more wait or are preempted."
        yield Finding("fit_sequences", Severity.WARNING, text)
    if decode is not None and decode.measured < SLOW_TOKENS_PER_SECOND and not asked.kv.draft_tokens:
        text = f"One stream decodes at most {decode.measured:.1f} tok/s: {decode.reads / 1e9:.1f} GB read per token."
        yield Finding("fit_decode", Severity.WARNING, text)


# --- what would help --------------------------------------------------------------------------------------


def _changes(whole: Fit, asked: FitRequest, layout: KvLayout | None) -> Iterator[FitChange]:
    """Changes that help, the least intrusive first."""
    size = whole.cache_to_drop
    if size and (whole.left or 0) >= 0:
        yield FitChange(f"Free page cache: {gib(size)} GiB needed.", gains=size)
    if whole.left is not None and whole.left < RESERVE_BYTES:
        yield from _lower_share(whole, asked, layout)
        for other in sorted(whole.neighbours, key=lambda each: -(each.holds or 0)):
            if other.holds:
                yield FitChange(f"Stop {other.name} (frees {gib(other.holds)} GiB).", gains=other.holds)
    else:
        yield from _raise_share(whole, asked)
        yield from _smaller_cache(whole, asked, layout)


def _setting(asked: FitRequest, key: str, value: object) -> Change:
    return asked.launch.setting(key, value) if asked.launch.preset.engine == "vllm" else ()


def _share(asked: FitRequest, value: float) -> Change:
    return _setting(asked, "gpu_memory_utilization", f"{value:.2f}")


def _lower_share(whole: Fit, asked: FitRequest, layout: KvLayout | None) -> Iterator[FitChange]:
    """A share that the machine has room for, with a shorter context where the asked one would not fit into it."""
    most, total = whole.utilization_most, whole.total or 0
    if asked.utilization is None or asked.kv_bytes is not None or most is None or not 0 < most < asked.utilization:
        return
    gains = int((asked.utilization - most) * total)
    if whole.at_least < most * total if whole.need is None else whole.need <= most * total:
        yield FitChange(f"Lower the memory share to {most:.2f}.", _share(asked, most), gains)
    elif whole.need is not None and layout is not None and asked.context is not None:
        base = whole.need - layout.sequence_bytes(asked.context)
        length = _rounded(layout.longest(int(most * total) - base, asked.context))
        if length >= SHORTEST:
            pairs = (*_share(asked, most), *_setting(asked, "max_model_len", length))
            yield FitChange(f"Lower the memory share to {most:.2f}, the context to {length:,} tokens.", pairs, gains)


def _raise_share(whole: Fit, asked: FitRequest) -> Iterator[FitChange]:
    """A larger share, where the cache has no room in this one and the machine has."""
    most, wanted, total = whole.utilization_most, whole.utilization_needed, whole.total or 0
    if asked.utilization is None or whole.need is None or most is None or wanted is None or asked.kv_bytes is not None:
        return
    least = math.ceil(whole.need / total * 100) / 100 if total else 2.0
    better = min(most, wanted)
    if better <= asked.utilization or least > most or (least <= asked.utilization and wanted > most):
        return
    gains = int((better - asked.utilization) * total)
    text = f"Raise the memory share to {better:.2f}: {gib(gains)} GiB more for the cache."
    yield FitChange(text, _share(asked, better), gains)


def _smaller_cache(whole: Fit, asked: FitRequest, layout: KvLayout | None) -> Iterator[FitChange]:
    """A shorter context, of which one sequence fits or all that are asked for; or fewer sequences."""
    kv = whole.kv
    if kv is None or layout is None or asked.context is None or kv.concurrency >= min(asked.sequences, FEW_SEQUENCES):
        return
    if kv.concurrency < 1:
        if one := _rounded(kv.longest):
            yield FitChange(f"Shorten the context to {one:,} tokens.", _setting(asked, "max_model_len", one))
        return
    if each := _rounded(layout.longest(kv.room // asked.sequences, asked.context)):
        text = f"Shorten the context to {each:,} tokens: {asked.sequences} such sequences fit."
        yield FitChange(text, _setting(asked, "max_model_len", each))
    fewer = int(kv.concurrency)
    text = f"Allow {fewer} sequence{'s' if fewer > 1 else ''} at once."
    yield FitChange(text, _setting(asked, "max_num_seqs", fewer))


def _rounded(tokens: int) -> int:
    """Whole thousands of tokens, as people write lengths; short ones as they are."""
    return tokens // 1024 * 1024 or tokens


# --- figures ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FitLine:
    """One row of figures: what, how much, and where the figure comes from."""

    label: str
    value: str
    note: str = ""


def fit_lines(fit: Fit) -> Iterator[FitLine]:
    """The figures, top to bottom: what it needs, what it takes, what the machine has. Unknown parts show `?`, and sums
    with them `at least`."""
    yield from map(_part_line, fit.parts)
    if fit.need is None:
        yield FitLine("Needs at least", _size(fit.at_least), "without the unknown parts")
    else:
        yield FitLine("Needs", _size(fit.need), "for one sequence of full length")
        if fit.need_all is not None and fit.sequences > 1:
            yield FitLine("Needs for all", _size(fit.need_all), f"{fit.sequences} sequences of full length")
    if fit.total is not None:
        yield FitLine("Available now", _size(fit.available), f"of {gib(fit.total)} GiB")
        for other in fit.neighbours:
            state = "running" if other.will_take == 0 else "still loading"
            yield FitLine(f"  {other.name}", _size(other.holds), state)
        if fit.claim is not None:
            share = "" if fit.utilization is None else f"{fit.utilization:g} of the memory"
            if share and fit.utilization_needed is not None and fit.utilization_needed <= 1:
                share += f"; {fit.utilization_needed:.2f} would be enough"
            yield FitLine("Takes", _size(fit.claim), share)
        yield from map(_part_line, fit.outside)
        if fit.cache_to_drop:
            yield FitLine("Page cache to free", _size(fit.cache_to_drop), "before it starts")
        if fit.left is not None:
            yield FitLine("Left free", _size(fit.left))
    kv, decode = fit.kv, fit.decode
    if kv is not None:
        grows = f"{human_bytes(kv.bytes_per_token)} per token in {kv.dtype}" if kv.bytes_per_token else kv.dtype
        state = f", and {human_bytes(kv.state_bytes)} of state per sequence" if kv.state_bytes else ""
        yield FitLine("KV cache", _size(kv.room), grows + state)
        yield FitLine("Sequences", f"{kv.concurrency:.1f}", f"of {fit.context or 0:,} tokens at once")
    if decode is not None:
        speeds = f"{MEASURED_BANDWIDTH / 1e9:.0f} GB/s (measured), {decode.paper:.0f} at {PAPER_BANDWIDTH / 1e9:.0f}"
        read = f"{'at least ' if decode.bound else ''}{decode.reads / 1e9:.1f} GB read per token"
        yield FitLine("Decode ceiling", f"{decode.measured:.0f} tok/s", f"one stream at {speeds} (data sheet): {read}")


def _part_line(part: FitPart) -> FitLine:
    basis = {Basis.RULE: "estimate", Basis.UNKNOWN: "unknown"}.get(part.basis, part.basis.value)
    note = f"{basis}: {part.note}" if part.note and part.basis is not Basis.UNKNOWN else part.note or basis
    return FitLine(part.label, _size(part.size), note)


def _size(size: int | None) -> str:
    return "?" if size is None else f"{gib(size)} GiB"


def slices(fit: Fit) -> tuple[tuple[str, int], ...]:
    """The whole memory as it would be once this launch serves, as pairs of a PartId's value (or `others`, `left`) and
    bytes, which add up to the total exactly; empty when memory or what the engine takes is not known. What does not
    fit is cut off at the end."""
    if fit.total is None or fit.available is None or fit.claim is None:
        return ()
    inside = [
        (part.id.value, part.size) for part in fit.parts if part.size and part.id not in (PartId.KV, PartId.STATE)
    ]
    pieces = [
        ("others", fit.total - fit.available),
        *inside,
        (PartId.KV.value, max(0, fit.claim - sum(size for _, size in inside))),
        *((part.id.value, part.size or 0) for part in fit.outside),
    ]
    found: list[tuple[str, int]] = []
    room = fit.total
    for name, size in pieces:
        cut = min(size, room)
        room -= cut
        if cut:
            found.append((name, cut))
    return (*found, ("left", room))
