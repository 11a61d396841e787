"""Failures of the settings: arguments, parsers, context length, port, ranks, features that do not go together."""

from __future__ import annotations

import difflib
import re
from typing import Final

from spark_tui.base.engine.runtimes import family_of
from spark_tui.base.finding import Change, Finding
from spark_tui.base.text import lazy_pattern, truncate
from spark_tui.observe.explain.model.causes.cause import (
    FailureContext,
    fix,
    nearest,
    setting,
)

_DEFAULT_PORT: Final = 8000
_LAST_PORT: Final = 65535
_PORT: Final = lazy_pattern(
    r"port:? (\d{2,5})\b|\('[^']{0,60}', (\d{2,5})[,)]|:(\d{2,5}): bind|Port (\d{2,5}) |://[^/\s]{1,80}:(\d{2,5})|"
    r":(\d{2,5})\b"
)
_KNOWN: Final = (
    "--served-model-name", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization",
    "--kv-cache-dtype", "--kv-cache-memory-bytes", "--tensor-parallel-size", "--pipeline-parallel-size",
    "--data-parallel-size", "--quantization", "--load-format", "--tool-call-parser", "--enable-auto-tool-choice",
    "--reasoning-parser", "--chat-template", "--trust-remote-code", "--enforce-eager", "--enable-prefix-caching",
    "--enable-chunked-prefill", "--speculative-config", "--moe-backend", "--linear-backend", "--attention-backend",
    "--master-addr", "--master-port", "--headless", "--mem-fraction-static", "--context-length",
)  # fmt: skip
_LIST_HEAD: Final = lazy_pattern(r"^.{0,40}?(?:chose from|choose from|[Aa]vailable(?: \w{1,20})?:)")
_CORRECTABLE: Final = frozenset((
    "tool_call_parser", "reasoning_parser", "kv_cache_dtype", "dtype", "load_format", "attention_backend",
    "moe_backend", "linear_backend", "tokenizer_mode", "mamba_cache_mode",
))  # fmt: skip
"""Options whose wrong choice can be put right by a setting of the same name."""


def too_long(match: re.Match[str], context: FailureContext) -> Finding:
    asked = int(match[1])
    limit = int(min((float(figure) for figure in match.groups()[1:] if figure), default=0))
    if limit <= 0:
        return fix(f"The model does not support a context of {asked:,} tokens.", f"Lower {context.names.context}.")
    return setting(
        f"{context.names.context} is {asked:,} tokens; the model supports at most {limit:,}.",
        f"Set {context.names.context}={limit}. Models with RoPE scaling (YaRN) can exceed it: see the model card.",
        "max_model_len",
        limit,
    )


def port_in_use(match: re.Match[str], context: FailureContext) -> Finding:
    """Another process listens there: with host networking that may be any program."""
    asked = context.asked.get("port", "")
    given = int(asked[:6]) if asked.isascii() and asked.isdigit() else 0
    port = _port(match.string) or (given if 0 < given <= _LAST_PORT else None) or _port(context.facts.url)
    port = port or _DEFAULT_PORT
    if "server socket has failed to listen" in match.string:  # the ranks' own port, not the server's
        return fix(
            f"Port {port}, over which the ranks meet, is already in use.",
            "Stop the rank of an earlier start (`spark-tui ps`, on each node), or set another master_port than "
            f"{port}.",
        )
    free = next((p for p in range(port + 1, _LAST_PORT + 1) if p not in context.taken_ports), None)
    summary = f"Port {port} is already in use."
    if context.engine == "ollama":
        return fix(
            summary, "An Ollama runs already (`systemctl status ollama`): stop it, or set OLLAMA_HOST to another port."
        )
    stop = "Stop the process that uses it (an older engine? see Home, or `spark-tui ps`)"
    if free is None:
        return fix(summary, f"{stop}, or choose another port.")
    return setting(summary, f"{stop}, or set port={free}.", "port", free)


def _port(text: str) -> int | None:
    found = _PORT.search(text)
    port = int(next(group for group in found.groups() if group)) if found else 0
    return port if 0 < port <= _LAST_PORT else None


def unknown_parser(match: re.Match[str], context: FailureContext) -> Finding:
    kind, key = "tool call", "tool_call_parser"
    if "reasoning" in match[1].lower():
        kind, key = "reasoning", "reasoning_parser"
    name, known = match[2], match.string[match.end() :]
    near = nearest(name, known)
    names = ", ".join(re.findall(r"[\w.\-]+", _LIST_HEAD.sub("", known))[:40])
    listed = f" It has: {truncate(names, 300)}." if names else ""
    summary = f"This {context.names.engine} has no {kind} parser named {name}."
    if near and near != name:
        return setting(summary, f"Did you mean {key}={near}?{listed}", key, near)
    return fix(summary, f"Set another {key}, or use {context.names.newer}.{listed}")


def unfit_parser(match: re.Match[str], context: FailureContext) -> Finding:
    """vLLM proves its parsers with the tokenizer once the engine is up; the model's family or architecture names the
    right one."""
    reasoning = match[1] == "reasoning" or (match[3] and match[4])
    key, name = ("reasoning_parser", match[3] or match[2]) if reasoning else ("tool_call_parser", match[2])
    summary = f"{key} {name} does not fit the tokenizer of {context.model}."
    family = family_of(context.model) or family_of(context.facts.architecture)
    right = "" if family is None else family.reasoning if reasoning else family.tool
    if family is None or right in ("", name):
        return fix(summary, f"Set {key} as on the model card, or remove it.")
    return setting(summary, f"Set {key}={right} ({family.name}), or as on the model card.", key, right)


def wrong_choice(match: re.Match[str], context: FailureContext) -> Finding:
    """argparse: `argument --kv-cache-dtype: invalid choice: 'fp9' (choose from ...)`."""
    option, value, known = match[1], match[2], match[3] or ""
    key = option.lstrip("-").replace("-", "_")
    near = nearest(value, known)
    listed = f" Valid: {truncate(known, 300)}." if known else ""
    summary = f"{option} does not accept {value!r} in this version{context.version}."
    if near and near != value and key in _CORRECTABLE:
        return setting(summary, f"Did you mean {key}={near}?{listed}", key, near)
    return fix(summary, f"Correct it in the preset, or in the settings of one launch.{listed}")


_SUCCESSORS: Final = {
    "--disable-log-requests": "remove it: requests are logged only with --enable-log-requests",
    "--enable-reasoning": "remove it: --reasoning-parser is enough",
    "--guided-decoding-backend": "use --structured-outputs-config.backend",
    "--kv-cache-memory": "use --kv-cache-memory-bytes",
    "--max-seq-len-to-capture": "use --max-cudagraph-capture-size",
    "--num-scheduler-steps": "remove it: the V1 engine has no multi-step scheduling",
    "--num-speculative-tokens": "use --speculative-config",
    "--speculative-model": "use --speculative-config",
    "--swap-space": "remove it: the V1 engine does not swap",
    "--task": "use --runner",
    "--use-v2-block-manager": "remove it",
}
"""vLLM options that are gone, with what to do instead."""


_SHELLS: Final = ("sh", "bash", "dash", "zsh")


def unknown_option(match: re.Match[str], context: FailureContext) -> Finding:
    """An option that is gone, misspelt, or of another version."""
    first, summary = match[1].split()[0].partition("=")[0], f"Unknown argument for this engine{context.version}: "
    if first in _SUCCESSORS:
        return fix(f"{summary}{match[1]}.", f"{first} was removed: {_SUCCESSORS[first]}.")
    if first.rpartition("/")[2] in _SHELLS:
        return fix(
            f"{summary}{match[1]}.",
            "The image's entrypoint is the engine itself: give only its options as the command, or set the shell as "
            "entrypoint (`--entrypoint bash`).",
        )
    hyphens = first.replace("_", "-")
    if first.startswith("--") and first != hyphens:
        return fix(f"{summary}{match[1]}.", f"Did you mean {hyphens}? Options have hyphens.")
    near = next(iter(difflib.get_close_matches(first, _KNOWN, n=1, cutoff=0.8)), "") if first.startswith("--") else ""
    if near and near != first:
        return fix(f"{summary}{match[1]}.", f"Did you mean {near}?")
    return fix(
        f"{summary}{match[1]}.",
        f"Remove {first.lstrip('-').replace('-', '_')} from the preset, correct its spelling, or use an image whose "
        "version has it.",
    )


def more_ranks(match: re.Match[str], context: FailureContext) -> Finding:
    ranks, there = int(match[1]), int(match[2])
    fits = max(there, 1)
    change: Change = (("tensor_parallel", str(fits)),)
    if context.asked.get("pipeline_parallel_size", "1") != "1":
        change += (("pipeline_parallel", "1"),)
    more = "on one Spark. For several Sparks, join them first" if there == 1 else "or join more machines"
    return fix(
        f"The preset needs {ranks} GPUs; this machine has {there}.",
        f"Set {context.names.ranks}={fits}{context.names.size} {more}.",
        change,
    )


def uneven_heads(match: re.Match[str], context: FailureContext) -> Finding:
    heads, ranks = int(match[1]), int(match[2])
    fits = max((n for n in range(1, min(ranks, 64)) if heads % n == 0), default=1)
    summary = f"The model's {heads} attention heads cannot be divided among {ranks} GPUs."
    return setting(summary, f"Set {context.names.ranks}={fits}{context.names.size}.", "tensor_parallel", fits)
