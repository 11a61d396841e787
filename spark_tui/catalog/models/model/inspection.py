"""A checkpoint's facts as a person needs them: what it will do on a Spark, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import (
    CheckpointFacts,
    KvLayout,
    KvSettings,
    ModelKind,
    ModuleBytes,
    ModuleClass,
    WeightFormat,
    kv_layout,
)
from spark_tui.base.finding import Missing, Ok, Reading, reason_of, value_of
from spark_tui.base.quantities import GIB, human_bytes, short_tokens
from spark_tui.catalog.models.model import weights

SPARK_MEMORY: Final = 119 * GIB
"""Bytes that system and engines have of a DGX Spark with 128 GB, for where the machine itself was not read: MemTotal
differs a little by firmware, and Sparks with 64 GB are sold too."""
_NARROW: Final = (
    WeightFormat.NVFP4, WeightFormat.NVFP4_W4A16, WeightFormat.MXFP4, WeightFormat.FP8, WeightFormat.MXFP8,
    WeightFormat.INT4, WeightFormat.INT8, WeightFormat.FP4,
)  # fmt: skip
_MUCH: Final = 0.3
_TIGHT: Final = 0.85
_GIVES: Final = {
    ModelKind.DRAFTER: "speculates for another model, and is not served alone",
    ModelKind.EMBEDDING: "returns vectors, no text; a pooling runner serves it",
    ModelKind.RERANKER: "returns scores, no text; a pooling runner serves it",
    ModelKind.SPEECH: "writes down speech; no chat",
}


class WideModule(Struct, frozen=True):
    """Weights of one class that stayed 16 bits wide: bytes that are stored, and that one decoded token reads."""

    module: ModuleClass
    stored: int
    read: int


class Inspection(Struct, frozen=True):
    """What follows from a checkpoint's facts; None where unknown. Sizes in bytes.

    `parameters` are all weights, `active` those that one token runs through. `read` is what it reads of memory,
    `ceiling` how many of them a second that allows; only a text model has one. `table` are the weights of tables, which
    are looked up and not read. `narrow_ceiling` is the ceiling if everything were in its main
    format. `kv` is the cache in the dtype that the engine chooses by itself. `verdict` is all of it in words.
    """

    facts: CheckpointFacts
    parameters: int | None = None
    active: int | None = None
    table: ModuleBytes | None = None
    read: weights.DecodeRead | None = None
    ceiling: weights.DecodeCeiling | None = None
    narrow_ceiling: weights.DecodeCeiling | None = None
    wide: tuple[WideModule, ...] = ()
    kv: KvLayout | None = None
    verdict: tuple[str, ...] = ()


def inspect(facts: CheckpointFacts, name: str = "", memory: int = SPARK_MEMORY) -> Inspection:
    """`name` is the checkpoint's, which may promise a format that its files do not have. `memory` is the machine's,
    in bytes."""
    summary = facts.weights
    whole = summary is not None and summary.complete and summary.counted
    read = weights.decode_read(facts) if facts.kind is ModelKind.TEXT else None
    parts = summary.by_module if summary is not None else ()
    ceiling = weights.ceiling_of(read.size) if read is not None else None
    found = Inspection(
        facts,
        parameters=summary.parameters if summary is not None and whole else None,
        active=_active(facts) if whole else None,
        table=next((part for part in parts if part.module is ModuleClass.TABLE), None),
        read=read,
        ceiling=ceiling,
        narrow_ceiling=_narrow(facts, read),
        wide=_wide(facts) if read is not None else (),
        kv=kv_layout(facts, KvSettings()),
    )
    return replace(found, verdict=tuple(_verdict(found, name, memory)))


def inspected(facts: Reading[CheckpointFacts], name: str = "", memory: int = SPARK_MEMORY) -> Ok[Inspection] | Missing:
    """The inspection of a reading; Missing with the reading's reason where it has no facts."""
    value = value_of(facts)
    return Missing(reason_of(facts)) if value is None else Ok(inspect(value, name, memory))


def _active(facts: CheckpointFacts) -> int | None:
    """Weights that a token runs through: of routed experts those that run."""
    if facts.weights is None:
        return None
    total = 0.0
    for part in facts.weights.by_module:
        share = weights.read_share(part.module, facts)
        if share is None:
            return None
        total += part.parameters * share
    return round(total)


def _wide(facts: CheckpointFacts) -> tuple[WideModule, ...]:
    """The 16-bit weights, those that cost most per token first."""
    parts = facts.weights.by_module if facts.weights is not None else ()
    found = [
        WideModule(part.module, part.wide, round(part.wide * (weights.read_share(part.module, facts) or 0.0)))
        for part in parts
        if part.wide
    ]
    return tuple(sorted(found, key=lambda each: (-each.read, -each.stored)))


def _main(facts: CheckpointFacts) -> WeightFormat | None:
    formats = facts.quantization.formats if facts.quantization is not None else ()
    return next((form for form in formats if form in _NARROW), None)


def _narrow(facts: CheckpointFacts, read: weights.DecodeRead | None) -> weights.DecodeCeiling | None:
    """The ceiling if the 16-bit weights were in the main format too; None for one that is not quantized."""
    main = _main(facts)
    if read is None or main is None:
        return None
    narrow = weights.bytes_of(read.wide / 2, main)
    return None if narrow is None else weights.ceiling_of(read.size - read.wide + narrow)


def _verdict(found: Inspection, name: str, memory: int) -> Iterator[str]:
    facts, read, main = found.facts, found.read, _main(found.facts)
    if facts.kind is not ModelKind.TEXT:
        yield f"A {facts.kind} ({facts.kind_sign}): {_GIVES[facts.kind]}.".replace("A e", "An e")
    if found.ceiling is not None and read is not None:
        yield (
            f"One stream decodes an estimated {found.ceiling.text()}: "
            f"each token reads {human_bytes(read.size)} of weights."
        )
        # Why one checkpoint of a format is slower than another.
        if main is not None and found.narrow_ceiling is not None and read.wide >= _MUCH * read.size:
            parts = [each for each in found.wide if each.read >= 0.05 * read.size][:4]
            named = ", ".join(f"{each.module} {human_bytes(each.read)}" for each in parts)
            yield (
                f"{read.wide / read.size:.0%} of that ({human_bytes(read.wide)}) is 16 bits wide, not {main}: {named}. "
                f"With an image that narrows them: {found.narrow_ceiling.text()}."
            )
    summary = facts.weights
    if summary is not None and summary.complete and summary.size > _TIGHT * memory:
        size, room = human_bytes(summary.size), human_bytes(memory)
        if summary.size > memory:
            yield f"Does not fit: {size} of weights, {room} of memory."
        else:
            yield f"Tight: {size} of weights leave little of {room} for the KV cache."
    promised, form = weights.format_in(name), facts.quantization
    if promised is not None and form is not None:
        formats = form.formats or tuple(filter(None, (weights.format_in(facts.dtype),)))
        kinds = {WeightFormat.NVFP4, WeightFormat.NVFP4_W4A16}
        if formats and promised not in formats and not (promised in kinds and kinds & set(formats)):
            yield f"The name says {promised}, the files say {' + '.join(formats)}."
    kv, length = found.kv, facts.max_position_embeddings
    if kv is not None and kv.bytes_per_token and facts.kind is ModelKind.TEXT:
        whole = f"; {human_bytes(kv.sequence_bytes(length))} for {short_tokens(length)} tokens" if length else ""
        state = f", {human_bytes(kv.state_bytes)} of state per sequence" if kv.state_bytes else ""
        state += f", {human_bytes(kv.window_bytes)} of windows per sequence" if kv.window_bytes else ""
        yield f"KV cache ({kv.cache_dtype}): {human_bytes(kv.bytes_per_token)} per token{state}{whole}."
    if found.table is not None and found.table.size >= weights.MUCH_TABLE * (
        summary.size if summary is not None else 0
    ):
        yield (
            f"{human_bytes(found.table.size)} are lookup tables: stored, not read per token. An engine that keeps them "
            "in a file needs that much less memory; vLLM loads them."
        )
    if facts.mtp_declared and facts.mtp_layers == 0:
        yield "The config declares MTP layers, but their weights are missing: do not enable MTP."
    elif facts.mtp_declared and facts.mtp_layers:
        yield "Includes MTP layers: speculative decoding needs no second checkpoint."
