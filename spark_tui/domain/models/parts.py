"""A checkpoint put together from its files' contents, wherever those are: on the disk, or on the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_tui.domain.models.chat_template import abilities_of, template_in
from spark_tui.domain.models.checkpoint import CheckpointFacts, CheckpointProblem
from spark_tui.domain.models.config import facts_from
from spark_tui.domain.models.safetensors_header import SafetensorsHeader
from spark_tui.domain.models.weights import summarise

CONFIG: Final = "config.json"
HF_QUANT: Final = "hf_quant_config.json"
GENERATION: Final = "generation_config.json"
INDEX: Final = "model.safetensors.index.json"
TOKENIZER: Final = "tokenizer_config.json"
TEMPLATE: Final = "chat_template.jinja"
MOST_TEMPLATE_BYTES: Final = 4 * 1024 * 1024
MOST_CONFIG_BYTES: Final = 16 * 1024 * 1024
_MOST_PROBLEMS: Final = 10


@dataclass(frozen=True, slots=True)
class Parts:
    """What was read: the JSON files and the chat template (None: it has none), and the header of each weights file, or
    what is wrong with it."""

    config: Mapping[str, Any]
    hf_quant: Mapping[str, Any] | None = None
    generation: Mapping[str, Any] | None = None
    index: Mapping[str, Any] | None = None
    tokenizer: Mapping[str, Any] | None = None
    template: str | None = None
    licence: str = ""
    headers: Sequence[SafetensorsHeader | CheckpointProblem] = ()
    problems: Sequence[CheckpointProblem] = ()


def checkpoint_of(parts: Parts, source: str) -> CheckpointFacts:
    """The facts. Damaged files are findings; where one of them holds weights, `weights.complete` is false."""
    headers = [header for header in parts.headers if isinstance(header, SafetensorsHeader)]
    damaged = [header for header in parts.headers if isinstance(header, CheckpointProblem)]
    problems = [*parts.problems, *damaged]
    complete = bool(parts.headers) and not damaged
    tensors = [tensor for header in headers for tensor in header.tensors]
    named = _tensor_names(parts.index) or ([tensor.name for tensor in tensors] if complete else None)
    facts = facts_from(
        parts.config,
        hf_quant=parts.hf_quant,
        generation=parts.generation,
        tensor_names=named,
        source=source,
    )
    weights = summarise(tensors, layers=facts.layers, complete=complete) if tensors else None
    findings = [f"{problem.file}: {problem.reason}" for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        findings.append(f"and {len(problems) - _MOST_PROBLEMS} more files")
    template = parts.template
    if template is None and parts.tokenizer is not None:
        template = template_in(parts.tokenizer)
    return replace(
        facts,
        weights=weights,
        chat=None if template is None else abilities_of(template, facts.model_type),
        licence=parts.licence,
        findings=(*facts.findings, *findings),
    )


def _tensor_names(index: Mapping[str, Any] | None) -> list[str] | None:
    found = index.get("weight_map") if index else None
    return [str(name) for name in found] if isinstance(found, dict) else None


def weight_files(index: Mapping[str, Any] | None, names: Iterable[str], most: int) -> list[str]:
    """The safetensors files that make up a checkpoint: those of the index, else those in its folder (`names`)."""
    found = index.get("weight_map") if index else None
    if isinstance(found, dict):
        told = {name for name in found.values() if isinstance(name, str)}
        return sorted(name for name in told if name and "/" not in name and name not in (".", ".."))[:most]
    plain = sorted(name for name in names if name.endswith(".safetensors") and "/" not in name)
    # A second, consolidated copy of the same weights (Mistral) is not counted.
    return ([name for name in plain if not name.startswith("consolidated")] or plain)[:most]
