"""A checkpoint's facts as labelled lines, for people. What is not known has no line."""

from __future__ import annotations

from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.inspection import Inspection
from spark_tui.domain.quantities import human_bytes

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
        ("drafting", _drafting(facts)),
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


def _drafting(facts: CheckpointFacts) -> str:
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
