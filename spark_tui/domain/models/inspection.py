"""A checkpoint's facts as a person needs them: what it will do on a Spark, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.models.checkpoint import CheckpointFacts, ModuleClass, WeightFormat
from spark_tui.domain.models.kv import KvLayout, KvSettings, kv_layout
from spark_tui.domain.models.weights import (
    DecodeCeiling,
    DecodeRead,
    bytes_of,
    ceiling_of,
    decode_read,
    format_in,
    read_share,
)
from spark_tui.domain.quantities import GIB, human_bytes, short_tokens

SPARK_MEMORY: Final = 119 * GIB
"""What the system and its engines have of a DGX Spark's 128 GB; MemTotal differs a little by firmware."""
_NARROW: Final = (
    WeightFormat.NVFP4, WeightFormat.NVFP4_W4A16, WeightFormat.MXFP4, WeightFormat.FP8, WeightFormat.MXFP8,
    WeightFormat.INT4, WeightFormat.INT8,
)  # fmt: skip
_MUCH: Final = 0.3
_TIGHT: Final = 0.85


@dataclass(frozen=True, slots=True)
class WideModule:
    """Weights of one class that stayed 16 bits wide: bytes that are stored, and that one decoded token reads."""

    module: ModuleClass
    stored: int
    read: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What follows from a checkpoint's facts; None where they do not tell. Sizes in bytes.

    `parameters` are all weights, `active` those that one token runs through. `read` is what it reads of memory,
    `ceiling` how many of them a second that allows. `narrow_ceiling` is the ceiling if everything were in its main
    format. `kv` is the cache in the dtype that the engine chooses by itself. `verdict` is all of it in words.
    """

    facts: CheckpointFacts
    parameters: int | None = None
    active: int | None = None
    read: DecodeRead | None = None
    ceiling: DecodeCeiling | None = None
    narrow_ceiling: DecodeCeiling | None = None
    wide: tuple[WideModule, ...] = ()
    kv: KvLayout | None = None
    verdict: tuple[str, ...] = ()


def inspect(facts: CheckpointFacts, name: str = "") -> Inspection:
    """`name` is the checkpoint's, which may promise a format that its files do not have."""
    summary = facts.weights
    whole = summary is not None and summary.complete
    read = decode_read(facts)
    ceiling = ceiling_of(read.size) if read is not None else None
    found = Inspection(
        facts,
        parameters=summary.parameters if summary is not None and whole else None,
        active=_active(facts) if whole else None,
        read=read,
        ceiling=ceiling,
        narrow_ceiling=_narrow(facts, read),
        wide=_wide(facts) if read is not None else (),
        kv=kv_layout(facts, KvSettings()),
    )
    return Inspection(
        facts, found.parameters, found.active, read, ceiling, found.narrow_ceiling, found.wide, found.kv,
        tuple(_verdict(found, name)),
    )  # fmt: skip


def _active(facts: CheckpointFacts) -> int | None:
    """Weights that a token runs through: of routed experts those that run."""
    if facts.weights is None:
        return None
    total = 0.0
    for part in facts.weights.by_module:
        share = read_share(part.module, facts)
        if share is None:
            return None
        total += part.parameters * share
    return round(total)


def _wide(facts: CheckpointFacts) -> tuple[WideModule, ...]:
    """The 16-bit weights, those that cost most per token first."""
    parts = facts.weights.by_module if facts.weights is not None else ()
    found = [
        WideModule(part.module, part.wide, round(part.wide * (read_share(part.module, facts) or 0.0)))
        for part in parts
        if part.wide
    ]
    return tuple(sorted(found, key=lambda each: (-each.read, -each.stored)))


def _main(facts: CheckpointFacts) -> WeightFormat | None:
    formats = facts.quantization.formats if facts.quantization is not None else ()
    return next((form for form in formats if form in _NARROW), None)


def _narrow(facts: CheckpointFacts, read: DecodeRead | None) -> DecodeCeiling | None:
    """The ceiling if the 16-bit weights were in the main format too; None for one that is not quantized."""
    main = _main(facts)
    if read is None or main is None:
        return None
    narrow = bytes_of(read.wide / 2, main)
    return None if narrow is None else ceiling_of(read.size - read.wide + narrow)


# --- words ------------------------------------------------------------------------------------------------


def _verdict(found: Inspection, name: str) -> Iterator[str]:
    yield from _speed(found)
    yield from _exceptions(found)
    yield from _fits(found.facts)
    yield from _name(found.facts, name)
    yield from _cache(found)
    yield from _drafting(found.facts)


def _speed(found: Inspection) -> Iterator[str]:
    if found.ceiling is None or found.read is None:
        return
    yield (
        f"One stream decodes at most {found.ceiling.measured:.0f} tokens/s on a Spark: each token reads "
        f"{human_bytes(found.read.size)} of weights."
    )


def _exceptions(found: Inspection) -> Iterator[str]:
    """The reason why one checkpoint of a format is slower than another."""
    read, main = found.read, _main(found.facts)
    if read is None or main is None or found.narrow_ceiling is None or found.ceiling is None:
        return
    if read.wide < _MUCH * read.size:
        return
    parts = [each for each in found.wide if each.read >= 0.05 * read.size][:4]
    named = ", ".join(f"{each.module} {human_bytes(each.read)}" for each in parts)
    yield (
        f"{read.wide / read.size:.0%} of that ({human_bytes(read.wide)}) are weights that are not {main} but 16 bits "
        f"wide: {named}. All in {main} it would be {found.narrow_ceiling.measured:.0f} tokens/s."
    )


def _fits(facts: CheckpointFacts) -> Iterator[str]:
    summary = facts.weights
    if summary is None or not summary.complete:
        return
    size = human_bytes(summary.size)
    if summary.size > SPARK_MEMORY:
        yield f"Its weights ({size}) are larger than the memory of one Spark."
    elif summary.size > _TIGHT * SPARK_MEMORY:
        yield f"Its weights ({size}) leave little of one Spark's {human_bytes(SPARK_MEMORY)} for a KV cache."


def _name(facts: CheckpointFacts, name: str) -> Iterator[str]:
    promised = format_in(name)
    told = facts.quantization
    if promised is None or told is None:
        return
    formats = told.formats or ((format_in(facts.dtype),) if format_in(facts.dtype) else ())
    kinds = {WeightFormat.NVFP4, WeightFormat.NVFP4_W4A16}
    same = promised in formats or (promised in kinds and kinds & set(formats))
    if formats and not same:
        words = " + ".join(form for form in formats if form)
        yield f"Its name says {promised}; its files say {words}."


def _cache(found: Inspection) -> Iterator[str]:
    kv, length = found.kv, found.facts.max_position_embeddings
    if kv is None or not kv.bytes_per_token:
        return
    whole = f"; {short_tokens(length)} tokens take {human_bytes(kv.sequence_bytes(length))}" if length else ""
    state = f", and {human_bytes(kv.state_bytes)} of state per sequence" if kv.state_bytes else ""
    yield f"Its KV cache takes {human_bytes(kv.bytes_per_token)} per token in {kv.cache_dtype}{state}{whole}."


def _drafting(facts: CheckpointFacts) -> Iterator[str]:
    if not facts.mtp_declared:
        return
    if facts.mtp_layers == 0:
        yield "Its config declares layers for drafting (MTP), and their weights are not here: do not ask for them."
    elif facts.mtp_layers:
        yield "It brings layers for drafting (MTP): speculation needs no second checkpoint."


_MOST_EXCLUDED = 6


def inspection_rows(found: Inspection) -> tuple[tuple[str, str], ...]:
    """Label and value, in the order in which a person asks."""
    facts = found.facts
    pairs = (
        (
            "architecture",
            " ".join(filter(None, (facts.architecture, f"({facts.model_type})" * bool(facts.model_type)))),
        ),
        ("parameters", _parameters(found)),
        ("weights", _weights(facts)),
        ("dtypes", _dtypes(facts)),
        ("left as is", _excluded(facts)),
        ("ceiling", _ceiling(found)),
        ("layers", _layers(facts)),
        ("context", f"{facts.max_position_embeddings:,} tokens" if facts.max_position_embeddings else ""),
        (
            "KV cache",
            f"{human_bytes(found.kv.bytes_per_token)} per token in {found.kv.cache_dtype}" if found.kv else "",
        ),
        ("state", f"{human_bytes(found.kv.state_bytes)} per sequence" if found.kv and found.kv.state_bytes else ""),
        ("drafting", _words_drafting(facts)),
        ("input", ", ".join(facts.modalities)),
        ("chat", _abilities(facts)),
        ("parsers", _parsers(facts)),
        ("sampling", ", ".join(f"{key} {value:g}" for key, value in facts.sampling)),
        ("licence", facts.licence),
        ("source", facts.source),
    )
    return tuple((label, value) for label, value in pairs if value)


def _parameters(found: Inspection) -> str:
    if found.parameters is None:
        return ""
    active = f", {_billions(found.active)} run for each token" if found.active and found.facts.is_moe else ""
    return f"{_billions(found.parameters)}{active}"


def _billions(count: int) -> str:
    return f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"


def _weights(facts: CheckpointFacts) -> str:
    told = facts.quantization
    form = "" if told is None else told.words if told.method else facts.dtype or "not quantized"
    size = human_bytes(facts.weights.size) if facts.weights else ""
    return ", ".join(filter(None, (form, size)))


def _excluded(facts: CheckpointFacts) -> str:
    names = facts.quantization.excluded if facts.quantization is not None else ()
    more = f" and {len(names) - _MOST_EXCLUDED} more" if len(names) > _MOST_EXCLUDED else ""
    return ", ".join(names[:_MOST_EXCLUDED]) + more


def _dtypes(facts: CheckpointFacts) -> str:
    return ", ".join(f"{dtype} {human_bytes(size)}" for dtype, size in facts.weights.by_dtype) if facts.weights else ""


def _ceiling(found: Inspection) -> str:
    if found.ceiling is None or found.read is None:
        return ""
    most = "at most " if found.ceiling.bound else ""
    wide = f", {human_bytes(found.read.wide)} of them 16 bits wide" if found.read.wide else ""
    return (
        f"{most}{found.ceiling.measured:.0f} tokens/s for one stream ({found.ceiling.paper:.0f} by the data sheet): "
        f"{human_bytes(found.read.size)} per token{wide}"
    )


def _layers(facts: CheckpointFacts) -> str:
    kinds = [f"{each.layers} {each.kind.value}" for each in facts.attention or ()]
    kinds += [f"{each.layers} {each.kind.value}" for each in facts.states or ()]
    return f"{facts.layers}: {', '.join(kinds)}" if facts.layers and kinds else str(facts.layers or "")


def _words_drafting(facts: CheckpointFacts) -> str:
    if not facts.mtp_declared:
        return ""
    here = {None: "whether their weights are here is not known", 0: "their weights are not here"}
    layers = "layer" if facts.mtp_declared == 1 else "layers"
    return f"{facts.mtp_declared} MTP {layers} declared, {here.get(facts.mtp_layers, 'here')}"


def _abilities(facts: CheckpointFacts) -> str:
    chat = facts.chat
    if chat is None:
        return "it has no chat template"
    can = (("thinks", chat.thinking), ("calls tools", chat.tools), ("sees images", chat.images))
    switches = f" (switched by {', '.join(chat.switches)})" if chat.switches else ""
    return (", ".join(word for word, able in can if able) or "plain chat") + switches


def _parsers(facts: CheckpointFacts) -> str:
    chat = facts.chat
    if chat is None:
        return ""
    words = [f"--reasoning-parser {chat.reasoning_parser}"] if chat.reasoning_parser else []
    words += [f"--enable-auto-tool-choice --tool-call-parser {chat.tool_parser}"] if chat.tool_parser else []
    return " ".join(words)
