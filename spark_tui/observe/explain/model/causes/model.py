"""Failures of the model itself: its repository, its files, its architecture, its quantization."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.finding import Finding
from spark_tui.base.text import truncate
from spark_tui.observe.explain.model.causes.cause import (
    MAX_QUOTED,
    FailureContext,
    first_group,
    fix,
    nearest,
    setting,
)

_DOWNLOAD: Final = "Download it again: `spark-tui models pull NAME`."


def missing_shards(match: re.Match[str], context: FailureContext) -> Finding:
    files = re.findall(r"([^/'\"{}]{1,200}\.(?:safetensors|bin|pt|gguf))", match[1])
    named = f": {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else "") if files else ""
    one = len(files) == 1
    return fix(
        f"{len(files) or 'Some'} weight file{'' if one else 's'} of {context.model} {'is' if one else 'are'} "
        f"missing{named}.",
        f"The download is incomplete. {_DOWNLOAD}",
    )


def tensors_missing(match: re.Match[str], context: FailureContext) -> Finding:
    return fix(
        f"Weights missing from the checkpoint: {truncate(first_group(match), MAX_QUOTED)}.",
        f"Use the mmproj file of this very model, or {context.names.newer}."
        if re.search(r"clip|mmproj", match.string)
        else f"The download may be incomplete, or the checkpoint made for another {context.names.engine} (use "
        f"{context.names.newer}). {_DOWNLOAD}",
    )


def unknown_quantization(match: re.Match[str], context: FailureContext) -> Finding:
    """A method that this vLLM does not have; the line lists those that it has."""
    name, known = first_group(match), (match[2] or "") if match[1] else ""
    near = nearest(name, known)
    summary = f"This {context.names.engine}{context.version} has no quantization method {name}."
    remedy = (
        "Remove `quantization`: the engine reads it from the checkpoint. `modelopt` is for ModelOpt ones (nvidia/...). "
        f"Or use {context.names.newer}."
    )
    if near and near != name:
        return setting(summary, f"Did you mean quantization={near}? {remedy}", "quantization", near)
    return fix(summary, remedy)


def quantization_mismatch(match: re.Match[str], _context: FailureContext) -> Finding:
    return setting(
        f"The checkpoint is quantized with {match[1]}, but the preset sets {match[2]}.",
        f"Set quantization={match[1]}, or remove the option.",
        "quantization",
        match[1],
    )


def shapes_differ(_match: re.Match[str], context: FailureContext) -> Finding:
    """Of a checkpoint, or of the drafter beside it."""
    if "/spec_decode/" in context.text or "/speculative/" in context.text:
        return fix(
            "The drafter's tensors do not fit the engine's (names or shapes).",
            "Use the drafter made for this very model, in a format that this engine reads, or "
            f"{context.names.newer}. The model starts without speculative_config.",
            (("without", "speculative_config"),),
        )
    return wrong_quant(_match, context)


def wrong_quant(_match: re.Match[str], context: FailureContext) -> Finding:
    summary = "The checkpoint's tensors do not match this quantization (names or shapes)."
    if context.engine in ("llama-cpp", "ollama"):
        return fix(summary, f"Use {context.names.newer}, or a GGUF file converted for it.")
    return fix(
        summary,
        "Remove `quantization` for compressed-tensors checkpoints, or use `modelopt` for ModelOpt ones (nvidia/...). "
        f"Or use {context.names.newer}, or another checkpoint.",
    )


def unknown_architecture(match: re.Match[str], context: FailureContext) -> Finding:
    if "TRT-LLM" in match.string:
        return fix(
            f"TensorRT-LLM's tensorrt backend does not support the architecture {first_group(match)}.",
            "Use its PyTorch backend (`--backend pytorch`, the default), which has new models. Else use a newer image.",
        )
    own = "" if context.engine in ("llama-cpp", "ollama", "trtllm") else " Or update transformers in it."
    name = first_group(match).strip("'") or context.facts.architecture or "of this model"
    return fix(
        f"This image{context.version} does not support the architecture {name}.",
        f"Use {context.names.newer}.{own}",
    )
