"""Failures of the model itself: its repository, its files, its architecture, its quantization."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.finding import Finding
from spark_tui.observe.explain.model.causes.cause import (
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
