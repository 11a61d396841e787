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
from spark_tui.domain.models.known import KnownModel, facts_of, known_model, loaded_weights
from spark_tui.domain.models.kv import KvLayout, kv_layout
from spark_tui.domain.models.weights import DecodeCeiling, bytes_of, ceiling_of, decode_read, format_in
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
    ASKED = "as asked"
    NOW = "read now"
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
class Part:
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
    needed: int
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
    parts: tuple[Part, ...] = ()
    outside: tuple[Part, ...] = ()
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
    def unknown(self) -> tuple[Part, ...]:
        """The parts whose size is not known."""
        return tuple(part for part in (*self.parts, *self.outside) if part.size is None)

    def part(self, which: PartId) -> Part | None:
        """One part."""
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
    facts, basis = layers_of(checkpoint, plan.preset)
    asked = request_of(plan, facts)
    layout = kv_layout(facts, asked.kv) if facts is not None else None
    if layout is None and measured is not None:
        layout, basis = measured_layout(measured, asked), Basis.MEASURED
    fixed = (
        _weights(checkpoint, plan.preset, measured),
        *(_drafter(asked, drafter) if measured is None or measured.weights is None else ()),
        *_overhead(asked, measured),
    )
    parts = (*fixed, *_cache_parts(asked, layout, basis))
    base = None if any(part.size is None for part in fixed) else sum(part.size or 0 for part in fixed)
    each = None if layout is None or asked.context is None else layout.sequence_bytes(asked.context)
    host_bytes = HOST_BYTES if asked.on_gpu else _HOST_BYTES_CPU
    decode = _decode(checkpoint, plan.preset)
    whole = Fit(
        Verdict.UNKNOWN,
        parts=parts,
        # the engine's own processes, which its share does not count
        outside=(Part(PartId.HOST, "Processes and growth", host_bytes, Basis.RULE),),
        at_least=sum(part.size or 0 for part in parts),
        need=None if base is None or each is None else base + each,
        need_all=None if base is None or each is None else base + each * asked.sequences,
        neighbours=tuple(neighbours),
        utilization=asked.utilization,
        context=asked.context,
        sequences=asked.sequences,
        decode=decode,
        notes=tuple(_notes(plan, asked, checkpoint, facts, basis, neighbours, decode)),
    )
    if isinstance(memory, Missing):
        unread = Finding("fit_memory_unread", Severity.UNKNOWN, f"Memory could not be read: {memory.reason}.")
        return replace(whole, findings=(unread,))
    return _judged(_against(whole, asked, layout, base, memory.value, returns), asked, layout)


# --- what it needs ----------------------------------------------------------------------------------------


def public_model(preset: Preset) -> KnownModel | None:
    """The public config of a preset's model, by its name."""
    return known_model(_names(preset))


def _names(preset: Preset) -> str:
    return " ".join((preset.model, preset.facts.title, preset.facts.quantization))


def layers_of(checkpoint: CheckpointFacts | None, preset: Preset) -> tuple[CheckpointFacts | None, Basis]:
    """Facts about the layers: the checkpoint's own where it is downloaded and understood, else the public config's."""
    if checkpoint is not None and checkpoint.attention is not None and checkpoint.states is not None:
        return checkpoint, Basis.FILES
    known = public_model(preset)
    return (facts_of(known), Basis.CONFIG) if known is not None else (checkpoint, Basis.UNKNOWN)


def _weights(checkpoint: CheckpointFacts | None, preset: Preset, measured: Measured | None) -> Part:
    """The weights once loaded, by the best source there is."""

    def part(size: int | None, basis: Basis, note: str = "") -> Part:
        return Part(PartId.WEIGHTS, "Weights", size, basis, note)

    if measured is not None and measured.weights is not None:
        return part(measured.weights, Basis.MEASURED, measured.source)
    summary = checkpoint.weights if checkpoint is not None else None
    if summary is not None and summary.complete:
        return part(round(summary.size * _RESIDENT), Basis.FILES, f"{summary.tensors:,} tensors")
    known, facts = public_model(preset), preset.facts
    logged = loaded_weights(known, _names(preset)) if known is not None else None
    if logged is not None:
        return part(logged.size, Basis.LOG, logged.source)
    if facts.weights_bytes is not None:
        return part(round(facts.weights_bytes * _RESIDENT), Basis.RECIPE)
    form = _declared_format(preset)
    if facts.total_parameters and form is not None:
        billions = f"{facts.total_parameters / 1e9:.3g} B parameters in {form}; parts in BF16 come on top"
        return part(bytes_of(facts.total_parameters, form), Basis.RULE, billions)
    return part(None, Basis.UNKNOWN, "not in the checkpoint or the recipe")


def _declared_format(preset: Preset) -> WeightFormat | None:
    """The format that the recipe names; BF16 where it names none, as models are published."""
    return format_in(preset.facts.quantization) if preset.facts.quantization else WeightFormat.BF16


def _drafter(asked: FitRequest, drafter: CheckpointFacts | None) -> tuple[Part, ...]:
    """The weights of a second checkpoint that drafts."""
    if not asked.drafter:
        return ()
    summary = drafter.weights if drafter is not None else None
    if summary is None or not summary.complete:
        return (Part(PartId.DRAFTER, "Drafter", None, Basis.UNKNOWN, f"{asked.drafter} is not in the store"),)
    return (Part(PartId.DRAFTER, "Drafter", round(summary.size * _RESIDENT), Basis.FILES),)


def _overhead(asked: FitRequest, measured: Measured | None) -> tuple[Part, ...]:
    """Workspace for activations, what CUDA takes outside of tensors, and CUDA graphs."""
    tokens = asked.kv.batched_tokens
    if not asked.on_gpu:
        return (Part(PartId.WORKSPACE, "Workspace", _WORKSPACE_BYTES, Basis.RULE),)
    if measured is not None and measured.graphs is not None and measured.graphs >= 0:
        graphs = Part(PartId.GRAPHS, "CUDA graphs", measured.graphs, Basis.MEASURED, measured.source)
    else:
        note = f"{asked.graphs} batch sizes" if asked.graphs else "off"
        graphs = Part(PartId.GRAPHS, "CUDA graphs", GRAPH_BYTES * asked.graphs, Basis.RULE, note)
    if measured is not None and measured.overhead is not None and measured.batched_tokens == tokens:
        both = Part(PartId.WORKSPACE, "Workspace and CUDA", measured.overhead, Basis.MEASURED, measured.source)
        return both, graphs
    workspace = _WORKSPACE_BYTES + _WORKSPACE_PER_TOKEN * tokens
    return (
        Part(PartId.WORKSPACE, "Workspace", workspace, Basis.RULE, f"for {tokens:,} batched tokens"),
        Part(PartId.RUNTIME, "CUDA outside of tensors", RUNTIME_BYTES, Basis.RULE),
        graphs,
    )


def _cache_parts(asked: FitRequest, layout: KvLayout | None, basis: Basis) -> tuple[Part, ...]:
    """The cache for one sequence of the asked length: states apart from keys and values."""
    label = "KV cache, one sequence"
    if layout is None or asked.context is None:
        why = "its layers are not known" if layout is None else "no context length given"
        return (Part(PartId.KV, label, None, Basis.UNKNOWN, why),)
    whole = layout.sequence_bytes(asked.context)
    state = min(layout.state_bytes, whole)
    note = f"{short_tokens(asked.context)} tokens in {layout.cache_dtype}"
    parts = (Part(PartId.KV, label, whole - state, basis, note),)
    return (*parts, Part(PartId.STATE, "State, one sequence", state, basis)) if layout.state_bytes else parts


def _decode(checkpoint: CheckpointFacts | None, preset: Preset) -> DecodeCeiling | None:
    """The decode ceiling: from the headers, else at least the active parameters in the recipe's format."""
    read = decode_read(checkpoint) if checkpoint is not None else None
    if read is not None:
        return ceiling_of(read.size)
    known = public_model(preset)
    is_moe = known is not None and facts_of(known).is_moe
    active = preset.facts.active_parameters or (None if is_moe else preset.facts.total_parameters)
    form = _declared_format(preset)
    size = bytes_of(active, form) if active and form is not None else None
    return None if size is None else ceiling_of(size, bound=True)


def _notes(
    plan: LaunchPlan,
    asked: FitRequest,
    checkpoint: CheckpointFacts | None,
    facts: CheckpointFacts | None,
    basis: Basis,
    neighbours: Sequence[Neighbour],
    decode: DecodeCeiling | None,
) -> Iterator[str]:
    recipe, summary = plan.preset.facts, checkpoint.weights if checkpoint is not None else None
    declared = recipe.weights_bytes
    if declared and summary is not None and summary.complete and not 0.8 < summary.size / declared < 1.25:
        yield f"The recipe has {human_bytes(declared)} of weights; the checkpoint has {human_bytes(summary.size)}."
    for other in neighbours:
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
    if decode is not None and not asked.kv.draft_tokens and fastest > decode.measured:
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
    room = None if claim is None or base is None else (asked.kv_bytes or max(0, claim - base))
    most = math.floor((available - host - RESERVE_BYTES) / mem.total * 100) / 100
    found = replace(
        whole,
        total=mem.total,
        available=available,
        claim=claim,
        left=None if claim is None else available - claim - host,
        cache_to_drop=0 if claim is None else max(0, min(claim, available) - free),
        utilization_most=max(0.0, most) if asked.is_vllm else None,
    )
    if layout is None or asked.context is None:
        return found
    each = layout.sequence_bytes(asked.context)
    if whole.need is not None:
        few = whole.need + (min(asked.sequences, FEW_SEQUENCES) - 1) * each
        found = replace(found, utilization_needed=math.ceil(few / mem.total * 100) / 100)
    if room is None:
        return found
    capacity = layout.capacity(room, asked.context)
    kv = KvFit(
        room=room,
        each=each,
        needed=each * asked.sequences,
        concurrency=capacity.concurrency,
        tokens=capacity.tokens,
        longest=layout.longest(room, asked.context),
        bytes_per_token=layout.bytes_per_token,
        state_bytes=layout.state_bytes,
        dtype=layout.cache_dtype,
    )
    return replace(found, kv=kv)


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
    available, total, kv = whole.available or 0, whole.total or 0, whole.kv
    start = math.ceil(total * asked.utilization) if asked.utilization is not None and asked.is_vllm else None
    if start is not None and start > available:
        yield _error(
            "fit_share_unavailable",
            f"vLLM will refuse to start: it needs {gib(start)} GiB free ({asked.utilization:g} of {gib(total)}), "
            f"{gib(available)} GiB are available.",
        )
    elif whole.left is not None and whole.left < 0:
        yield _error(
            "fit_memory",
            f"It may freeze the machine: it takes {gib(available - whole.left)} GiB with its processes, "
            f"{gib(available)} GiB are available.",
        )
    elif whole.claim is None and whole.at_least > available:
        yield _error("fit_memory", f"Needs at least {gib(whole.at_least)} GiB; {gib(available)} GiB are available.")
    has_share = (asked.utilization is not None or asked.free_share is not None) and whole.claim is not None
    if has_share and kv is None and whole.at_least > (whole.claim or 0):
        yield _error(
            "fit_share_small",
            f"The share of {gib(whole.claim or 0)} GiB is too small: it needs at least {gib(whole.at_least)} GiB.",
        )
    elif (has_share or asked.kv_bytes is not None) and kv is not None and kv.concurrency < 1:
        yield _error(
            "fit_context",
            f"The KV cache is too small: one sequence of {whole.context or 0:,} tokens takes {gib(kv.each)} GiB, "
            f"{gib(kv.room)} GiB are left for it.",
        )


def _error(id_: str, summary: str) -> Finding:
    return Finding(id_, Severity.ERROR, summary)


def _slowing(whole: Fit, asked: FitRequest) -> Iterator[Finding]:
    kv, decode = whole.kv, whole.decode
    if whole.left is not None and 0 <= whole.left < RESERVE_BYTES:
        text = f"Leaves {gib(whole.left)} GiB to the system; {gib(RESERVE_BYTES, 0)} should stay free."
        yield Finding("fit_reserve", Severity.WARNING, text)
    if kv is not None and 1 <= kv.concurrency < min(asked.sequences, FEW_SEQUENCES):
        yield Finding(
            "fit_sequences",
            Severity.WARNING,
            f"The KV cache holds {kv.concurrency:.1f} sequences of full length, {asked.sequences} are allowed: more "
            "wait or are preempted.",
        )
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
        holding = sorted((n for n in whole.neighbours if n.holds), key=lambda n: -(n.holds or 0))
        for other in holding:
            yield FitChange(f"Stop {other.name} (frees {gib(other.holds or 0)} GiB).", gains=other.holds)
    else:
        yield from _raise_share(whole, asked)
        yield from _smaller_cache(whole, asked, layout)


def _setting(asked: FitRequest, key: str, value: object) -> Change:
    return asked.launch.setting(key, value) if asked.engine == "vllm" else ()


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
