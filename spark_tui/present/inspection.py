"""What a checkpoint is, as labelled rows. Unknown values have no row."""

from __future__ import annotations

from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.inspection import Inspection
from spark_tui.domain.quantities import human_bytes

_MOST_EXCLUDED = 6


def inspection_rows(found: Inspection) -> tuple[tuple[str, str], ...]:
    """Label and value, in the order in which a person asks."""
    facts, kv = found.facts, found.kv
    weights, quantization, chat = facts.weights, facts.quantization, facts.chat
    form = "" if quantization is None else quantization.words if quantization.method else facts.dtype or "not quantized"
    excluded = quantization.excluded if quantization is not None else ()
    more = f" and {len(excluded) - _MOST_EXCLUDED} more" if len(excluded) > _MOST_EXCLUDED else ""
    active = f", {_billions(found.active)} active per token" if found.active and facts.is_moe else ""
    parsers = []
    if chat is not None and chat.reasoning_parser:
        parsers.append(f"--reasoning-parser {chat.reasoning_parser}")
    if chat is not None and chat.tool_parser:
        parsers.append(f"--enable-auto-tool-choice --tool-call-parser {chat.tool_parser}")
    attention = [f"{each.layers} {each.kind.value}" for each in facts.attention or ()]
    kinds = ", ".join([*attention, *(f"{each.layers} {each.kind.value}" for each in facts.states or ())])
    pairs = (
        ("architecture", " ".join(filter(None, (facts.architecture, facts.model_type and f"({facts.model_type})")))),
        ("parameters", "" if found.parameters is None else _billions(found.parameters) + active),
        ("weights", ", ".join(filter(None, (form, human_bytes(weights.size) if weights else "")))),
        ("dtypes", ", ".join(f"{name} {human_bytes(size)}" for name, size in weights.by_dtype) if weights else ""),
        ("unquantized", ", ".join(excluded[:_MOST_EXCLUDED]) + more),
        ("ceiling", _ceiling(found)),
        ("layers", f"{facts.layers}: {kinds}" if facts.layers and kinds else str(facts.layers or "")),
        ("context", f"{facts.max_position_embeddings:,} tokens" if facts.max_position_embeddings else ""),
        ("KV cache", f"{human_bytes(kv.bytes_per_token)} per token in {kv.cache_dtype}" if kv else ""),
        ("state", f"{human_bytes(kv.state_bytes)} per sequence" if kv and kv.state_bytes else ""),
        ("drafting", _drafting(facts)),
        ("input", ", ".join(facts.modalities)),
        ("chat", _abilities(facts)),
        ("parsers", " ".join(parsers)),
        ("sampling", ", ".join(f"{key} {value:g}" for key, value in facts.sampling)),
        ("licence", facts.licence),
        ("source", facts.source),
    )
    return tuple((label, value) for label, value in pairs if value)


def _billions(count: int) -> str:
    return f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"


def _ceiling(found: Inspection) -> str:
    if found.ceiling is None or found.read is None:
        return ""
    most = "at most " if found.ceiling.bound else ""
    wide = f", {human_bytes(found.read.wide)} of them 16 bits wide" if found.read.wide else ""
    return (
        f"{most}{found.ceiling.measured:.0f} tokens/s for one stream ({found.ceiling.paper:.0f} by the data sheet): "
        f"{human_bytes(found.read.size)} per token{wide}"
    )


def _drafting(facts: CheckpointFacts) -> str:
    if not facts.mtp_declared:
        return ""
    weights = {None: "weights unknown", 0: "weights missing"}.get(facts.mtp_layers, "weights included")
    return f"{facts.mtp_declared} MTP {'layer' if facts.mtp_declared == 1 else 'layers'} declared, {weights}"


def _abilities(facts: CheckpointFacts) -> str:
    chat = facts.chat
    if chat is None:
        return "no chat template"
    can = (("reasoning", chat.thinking), ("tool calls", chat.tools), ("images", chat.images))
    switches = f" (switched by {', '.join(chat.switches)})" if chat.switches else ""
    return (", ".join(word for word, able in can if able) or "plain chat") + switches
