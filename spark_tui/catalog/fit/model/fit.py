"""What a launch needs of the memory, part by part, against what the machine has: the figures behind a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, KvLayout, ModuleClass, WeightFormat, kv_layout
from spark_tui.base.engine.runtimes import known_models
from spark_tui.base.finding import Change, Finding, Missing, Reading, Severity
from spark_tui.base.host.memory import RESERVE_BYTES, MemInfo
from spark_tui.base.quantities import GIB, human_bytes, short_tokens
from spark_tui.catalog.fit.model.request import FitRequest, Measured, measured_layout, request_of
from spark_tui.catalog.models.model.config import bytes_for, facts_of, known_model
from spark_tui.catalog.models.model.weights import (
    LISTED_ERROR,
    MUCH_TABLE,
    DecodeCeiling,
    bytes_of,
    ceiling_of,
    decode_read,
    format_in,
)
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Preset

FEW_SEQUENCES: Final = 4
"""What one Spark serves well at once; more of full length need not fit, since few requests are that long."""
SLOW_TOKENS_PER_SECOND: Final = 10.0
"""About the speed at which people read."""
SHORTEST: Final = 1024
"""A shorter context is never suggested."""
HEADROOM_BYTES: Final = 1 * GIB
_HEADROOM_SHARE: Final = 0.04
_MEASURED_HEADROOM: Final = GIB // 2

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


class FitWord(StrEnum):
    """Whether a launch fits into the memory now. FITS_WITH: with another memory share than the preset's."""

    FITS = "fits"
    FITS_WITH = "fits_with"
    FITS_WHEN_STOPPED = "fits_when_stopped"
    DOES_NOT_FIT = "does_not_fit"
    UNKNOWN = "unknown"


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


class FitPart(Struct, frozen=True):
    """One thing that takes memory, in bytes (None: not known). `note` says how the figure came about."""

    id: PartId
    label: str
    size: int | None
    basis: Basis
    note: str = ""


class Neighbour(Struct, frozen=True):
    """Another engine on this machine, in bytes. `holds` is what it has now; `will_take` what it is still going to take
    while it loads, 0 for one that serves. None: not known."""

    name: str
    holds: int | None = None
    will_take: int | None = 0


class FitChange(Struct, frozen=True):
    """Something that would help. `pairs` are the settings that do it, if any. `gains` is how much memory it frees or
    leaves free, None where that is not its point."""

    summary: str
    pairs: Change = ()
    gains: int | None = None


class KvFit(Struct, frozen=True):
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


class Reach(Struct, frozen=True):
    """What a launch can get: the longest context for the wanted users, and the most users at the wanted context; now,
    and alone, with all other engines stopped. 0: none fits."""

    users: int
    context_now: int
    users_now: int
    context_alone: int
    users_alone: int


class Fit(Struct, frozen=True):
    """One launch against the memory now. Sizes in bytes; None: not known, which is never zero.

    `claim` is what the engine takes: its share of the memory for vLLM, whatever it needs of it; the sum of the parts
    for others. `parts` are what is within the claim, `outside` what comes on top of it. `need` sums the parts for one
    sequence, `need_all` for all that are asked; None when a part is not known, and `at_least` sums what is.
    `users` are the sequences of full length that are provided for: all that a person asked for, up to four of the
    recipe's. Of the engine's share of the memory, `utilization_least` holds one of them and `utilization_needed` all,
    above 1 where no machine has it; `utilization_most` is the largest that this one has room for now,
    `utilization_alone` with all other engines stopped.
    `cache_to_drop` is page cache that must go first. `left` is what stays free. `published` is the recipe's highest
    speed in tokens per second, 0 where it has none.

    `share` is the memory share that it fits with now, `named` says that its command has one, `auto` that the launch
    follows it by itself. `change` makes a launch that does not fit launchable; `stops` are the engines to stop for it
    as it is.
    """

    word: FitWord
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
    named: bool = False
    utilization_least: float | None = None
    utilization_needed: float | None = None
    utilization_most: float | None = None
    utilization_alone: float | None = None
    share: float | None = None
    auto: bool = False
    change: Change = ()
    stops: tuple[str, ...] = ()
    context: int | None = None
    sequences: int = 1
    users: int = 1
    reach: Reach | None = None
    kv: KvFit | None = None
    decode: DecodeCeiling | None = None
    published: float = 0.0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the word is what it is, the weightiest first."""
        return tuple(finding.summary for finding in self.findings)

    @property
    def blocked(self) -> bool:
        """As it is, it would not start or would take the machine down."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def slow(self) -> bool:
        """It starts, and something about it will be felt."""
        return any(finding.severity is Severity.WARNING for finding in self.findings)

    @property
    def text(self) -> str:
        """The word for people: `fits with 0.24`, `fits when qwen3.6-35b stops`."""
        match self.word:
            case FitWord.FITS_WITH if self.share is not None:
                return f"fits with {self.share:.2f}"
            case FitWord.FITS_WHEN_STOPPED if len(self.stops) == 1:
                return f"fits when {self.stops[0]} stops"
            case FitWord.FITS_WHEN_STOPPED:
                return f"fits when {len(self.stops)} engines stop"
            case _:
                return self.word.value.replace("_", " ")

    @property
    def unknown(self) -> tuple[FitPart, ...]:
        return tuple(part for part in (*self.parts, *self.outside) if part.size is None)

    def part(self, which: PartId) -> FitPart | None:
        return next((part for part in (*self.parts, *self.outside) if part.id is which), None)


class Shards(Struct, frozen=True):
    """Over how many machines one copy is spread: its weights, and one sequence's cache."""

    weights: int = 1
    cache: int = 1


WHOLE: Final = Shards()


class Needs(Struct, frozen=True):
    """What one launch needs, whatever the machine has: its parts as a Fit without memory, what it asks for, the
    layout of its KV cache, in bytes all but the cache (None: not known), and the model's context in tokens."""

    whole: Fit
    asked: FitRequest
    layout: KvLayout | None
    base: int | None
    limit: int


def measure(
    plan: LaunchPlan,
    checkpoint: CheckpointFacts | None,
    *,
    measured: Measured | None = None,
    drafter: CheckpointFacts | None = None,
    shards: Shards = WHOLE,
) -> Needs:
    """The figures of one launch. They are the same for each number of an automatic memory share.

    `checkpoint` None: it is not in the store, and the recipe's facts and public configs are used. `measured` are an
    earlier start's figures; `shards` is over how many machines it is spread. Pure, and never raises.
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
    if shards.weights > 1:
        fixed = [_sharded(part, shards.weights) for part in fixed]
    if shards.cache > 1 and layout is not None:
        sizes = {key: -(-getattr(layout, key) // shards.cache) for key in _CACHE_SIZES}
        layout = replace(layout, **sizes)
    fixed += _overhead(asked, measured)
    parts = (*fixed, *_cache_parts(asked, layout, basis))
    base = None if any(part.size is None for part in fixed) else sum(part.size or 0 for part in fixed)
    each = None if layout is None or asked.context is None else layout.sequence_bytes(asked.context)
    host_bytes = HOST_BYTES if asked.on_gpu else _HOST_BYTES_CPU
    wanted, named = plan.overrides.max_num_seqs, asked.launch.integer("max_num_seqs")
    few = FEW_SEQUENCES if not named and asked.launch.is_vllm else min(asked.sequences, FEW_SEQUENCES)
    whole = Fit(
        FitWord.UNKNOWN,
        parts=parts,
        # the engine's own processes, which its share does not count
        outside=(FitPart(PartId.HOST, "Processes and growth", host_bytes, Basis.RULE),),
        at_least=sum(part.size or 0 for part in parts),
        need=None if base is None or each is None else base + each,
        need_all=None if base is None or each is None else base + each * asked.sequences,
        utilization=asked.utilization,
        named=asked.launch.number("gpu_memory_utilization") is not None,
        auto=plan.overrides.auto_share and plan.overrides.gpu_memory_utilization is not None,
        context=asked.context,
        sequences=asked.sequences,
        users=wanted or few,
        decode=_decode(checkpoint, preset),
        published=max((speed.tokens_per_second for speed in preset.facts.published), default=0.0),
    )
    whole = replace(whole, notes=tuple(_notes(whole, asked, checkpoint, facts, basis)))
    limit = max(asked.context or 0, (facts.max_position_embeddings if facts is not None else 0) or 0)
    return Needs(whole, asked, layout, base, limit)


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
    logged = bytes_for(known.loaded, _names(preset)) if known is not None else None
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


_WIDE: Final = (WeightFormat.BF16, WeightFormat.FP16)
_CACHE_SIZES: Final = ("block_bytes", "bytes_per_token", "state_bytes")


def _sharded(part: FitPart, ways: int) -> FitPart:
    """One machine's share of it."""
    note = f"1/{ways} of the model{f'; {part.note}' if part.note else ''}"
    return part if part.size is None else replace(part, size=-(-part.size // ways), note=note)


def _declared_format(preset: Preset) -> WeightFormat | None:
    """The format that the recipe names; BF16 where it names none, as models are published."""
    return format_in(preset.facts.quantization) if preset.facts.quantization else WeightFormat.BF16


def _drafter(name: str, drafter: CheckpointFacts | None) -> FitPart:
    summary, known = drafter.weights if drafter is not None else None, bytes_for(known_models().drafter, name)
    if summary is None or not summary.complete:
        if known is not None:
            return FitPart(PartId.DRAFTER, "Drafter", round(known.size * _RESIDENT), Basis.CONFIG, known.source)
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
    """The decode ceiling: from the headers, else by the family's list of what stays in 16 bits, else at least the
    active parameters in the recipe's format."""
    read = decode_read(checkpoint) if checkpoint is not None else None
    if read is not None:
        return ceiling_of(read.size)
    known = known_model(_names(preset))
    listed = bytes_for(known.read, _names(preset)) if known is not None else None
    if listed is not None:
        return ceiling_of(listed.size, source=listed.source)
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
    tables = (
        [part.size for part in summary.by_module if part.module is ModuleClass.TABLE] if summary is not None else []
    )
    if summary is not None and sum(tables) > MUCH_TABLE * summary.size:
        yield (
            f"{human_bytes(sum(tables))} of the weights are lookup tables. An engine that keeps them in a file needs "
            "that much less; they are counted here."
        )
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
    if whole.decode is not None and whole.decode.source:
        yield (
            f"Decode: what one token reads is taken from {whole.decode.source}. It is {LISTED_ERROR:.0%} off where the "
            "image narrows 16-bit layers, and further where another quantization of the model keeps others."
        )
    elif whole.decode is not None and whole.decode.bound and _declared_format(asked.launch.preset) not in _WIDE:
        yield "Decode is below its bound: what this checkpoint keeps in 16 bits is not known, and not counted."
    if whole.decode is not None and not asked.kv.draft_tokens and whole.published > whole.decode.paper:
        yield (
            f"Published: {whole.published:.0f} tok/s, more than the stored weights allow. Possible where the image "
            "also quantizes attention and output head, or for several streams together."
        )


# --- against the machine ----------------------------------------------------------------------------------


def against(needs: Needs, memory: Reading[MemInfo], neighbours: Sequence[Neighbour] = (), returns: int = 0) -> Fit:
    """What is needed against the memory now, without a verdict. `neighbours` are the other engines: what they hold is
    gone from MemAvailable already, what they will take is set aside. `returns` is what an engine that this launch
    replaces releases when it ends, in bytes. Over several machines `memory` is that of the smallest."""
    loading = (
        f"{each.name} is still loading; its further memory is unknown." for each in neighbours if each.will_take is None
    )
    whole = replace(needs.whole, neighbours=tuple(neighbours), notes=(*needs.whole.notes, *loading))
    if isinstance(memory, Missing):
        unread = Finding("fit_memory_unread", Severity.UNKNOWN, f"Memory could not be read: {memory.reason}.")
        return replace(whole, findings=(unread,))
    mem, asked, layout, base = memory.value, needs.asked, needs.layout, needs.base
    reserved = sum(neighbour.will_take or 0 for neighbour in whole.neighbours)
    available = max(0, min(mem.total, mem.allocatable + max(0, returns)) - reserved)
    free = max(0, min(mem.total, mem.free + max(0, returns)) - reserved)
    host = sum(part.size or 0 for part in whole.outside)
    if asked.kv_bytes is not None:
        claim = None if base is None else base + asked.kv_bytes
    elif asked.utilization is not None:
        # SGLang's is a share of what is free at its start.
        claim = math.ceil((available if asked.launch.preset.engine == "sglang" else mem.total) * asked.utilization)
    elif asked.free_share is not None and base is not None:
        claim = base + max(0, int((available - base) * asked.free_share))
    else:
        claim = whole.need_all
    alone = min(mem.total, available + reserved + sum(neighbour.holds or 0 for neighbour in whole.neighbours))
    rooms = [max(0, room - host - RESERVE_BYTES) for room in (available, alone)]
    shares = [math.floor(room / mem.total * 100) / 100 for room in rooms]
    if asked.launch.is_vllm and asked.kv_bytes is None:
        rooms = [int(share * mem.total) for share in shares]
        tight = 0 if whole.need is None else int(_share_of(whole.need, whole, mem.total) * mem.total)
        if tight + host <= available:  # one sequence fits, though less than the reserve stays free
            rooms = [max(room, tight) for room in rooms]
    least, needed, kv, reach = None, None, None, None
    if base is not None and asked.kv_bytes is not None:
        least = needed = _share_of(base + asked.kv_bytes, whole, mem.total)
    if layout is not None and asked.context is not None and base is not None:
        each = layout.sequence_bytes(asked.context)
        if asked.kv_bytes is None:
            least = _share_of(base + each, whole, mem.total)
            needed = _share_of(base + each * whole.users, whole, mem.total)
            spare = [max(0, _usable(size, whole) - base) for size in rooms]
            now, later = ((_longest(layout, size, whole.users, needs.limit), size // each) for size in spare)
            reach = Reach(whole.users, *now, *later)
        if claim is not None:
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
        # CUDA counts page cache as used; for the processor it gives way by itself
        cache_to_drop=0 if claim is None or not asked.on_gpu else max(0, min(claim, available) - free),
        utilization_least=least,
        utilization_needed=needed,
        utilization_most=shares[0] if asked.launch.is_vllm else None,
        utilization_alone=shares[1] if asked.launch.is_vllm else None,
        reach=reach,
        kv=kv,
    )


def _headroom(need: int, whole: Fit) -> int:
    """What a share has beyond its estimate, so that a wrong estimate does not end a start of minutes; less where an
    earlier start has measured the working memory."""
    return _MEASURED_HEADROOM if _is_measured(whole) else max(HEADROOM_BYTES, int(need * _HEADROOM_SHARE))


def _usable(room: int, whole: Fit) -> int:
    """The largest need that a share of this size holds."""
    if _is_measured(whole):
        return room - _MEASURED_HEADROOM
    return min(room - HEADROOM_BYTES, int(room / (1 + _HEADROOM_SHARE)))


def _is_measured(whole: Fit) -> bool:
    workspace = whole.part(PartId.WORKSPACE)
    return workspace is not None and workspace.basis is Basis.MEASURED


def _share_of(need: int, whole: Fit, total: int) -> float:
    """The share of the memory that holds it, as the engine writes it: two decimals, rounded up."""
    return math.ceil((need + _headroom(need, whole)) / total * 100) / 100


def _longest(layout: KvLayout, room: int, users: int, limit: int) -> int:
    """The longest context of which that many fit, in whole thousands as people write lengths."""
    tokens = layout.longest(room // users, limit)
    return tokens if tokens == limit else tokens // 1024 * 1024 or tokens
