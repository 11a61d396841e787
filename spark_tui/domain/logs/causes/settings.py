"""Failures of the settings: arguments, parsers, context length, port, ranks, features that do not go together."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.domain.logs.causes.cause import Advice, CauseId, Evidence, Rule, nearest, rule, says, version_of
from spark_tui.domain.logs.line import NUMBER
from spark_tui.domain.text import truncate

_DEFAULT_PORT: Final = 8000
_LAST_PORT: Final = 65535
_PORT = re.compile(
    r"port:? (\d{2,5})\b|\('[^']{0,60}', (\d{2,5})[,)]|:(\d{2,5}): bind|Port (\d{2,5}) |://[^/\s]{1,80}:(\d{2,5})|:(\d{2,5})\b"
)
_LIST_HEAD = re.compile(r"^.{0,40}?(?:chose from|choose from|[Aa]vailable(?: \w{1,20})?:)")
_KEYS: Final = {
    "tool_call_parser": "tool_call_parser",
    "reasoning_parser": "reasoning_parser",
    "kv_cache_dtype": "kv_cache_dtype",
    "dtype": "dtype",
    "load_format": "load_format",
    "attention_backend": "attention_backend",
    "moe_backend": "moe_backend",
    "linear_backend": "linear_backend",
    "tokenizer_mode": "tokenizer_mode",
    "mamba_cache_mode": "mamba_cache_mode",
}
"""Options whose wrong choice can be put right by an override of the same name."""


def too_long(match: re.Match[str], _evidence: Evidence) -> Advice:
    """More context than the model was trained for."""
    asked, limit = int(match[1]), _limit(match)
    if limit is None:
        return Advice(f"The model does not take a context of {asked:,} tokens.", "Ask for a shorter max_model_len.")
    return Advice(
        f"A context of {asked:,} tokens was asked for; the model takes at most {limit:,}.",
        f"Start with max_model_len={limit}. Models with RoPE scaling (YaRN) can go beyond it: their card says how.",
        (("max_model_len", str(limit)),),
    )


def _limit(match: re.Match[str]) -> int | None:
    figures = [float(figure) for figure in match.groups()[1:] if figure]
    limit = int(min(figures, default=0))
    return limit if limit > 0 else None


def port_in_use(match: re.Match[str], evidence: Evidence) -> Advice:
    """Somebody else listens there: with host networking that may be any program."""
    port = _port(match.string) or _port_asked(evidence)
    free = next((p for p in range(port + 1, _LAST_PORT + 1) if p not in evidence.taken_ports), None)
    summary = f"Something else already listens on port {port}."
    stop = "Stop what holds it (an older engine? see Home, or `spark-tui ps`)"
    if free is None:
        return Advice(summary, f"{stop}, or choose another port.")
    return Advice(summary, f"{stop}, or start with port={free}.", (("port", str(free)),))


def _port(text: str) -> int | None:
    found = _PORT.search(text)
    port = int(next(group for group in found.groups() if group)) if found else 0
    return port if 0 < port <= _LAST_PORT else None


def _port_asked(evidence: Evidence) -> int:
    asked = evidence.asked.get("port", "")
    if asked.isascii() and asked.isdigit() and 0 < int(asked[:6]) <= _LAST_PORT:
        return int(asked)
    return _port(evidence.facts.url) or _DEFAULT_PORT


def unknown_parser(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A tool call or reasoning parser that this version does not have."""
    kind = "reasoning" if "reasoning" in match[1].lower() else "tool call"
    name, known = match[2], match.string[match.end() :]
    key = "reasoning_parser" if kind == "reasoning" else "tool_call_parser"
    near = nearest(name, known)
    names = ", ".join(re.findall(r"[\w.\-]+", _LIST_HEAD.sub("", known))[:40])
    listed = f" It has: {truncate(names, 300)}." if names else ""
    if near and near != name:
        return Advice(
            f"This vLLM has no {kind} parser named {name}.", f"Did you mean {key}={near}?{listed}", ((key, near),)
        )
    return Advice(
        f"This vLLM has no {kind} parser named {name}.",
        f"Use one that it has, or an image with a newer vLLM.{listed}",
    )


def wrong_choice(match: re.Match[str], evidence: Evidence) -> Advice:
    """argparse: `argument --kv-cache-dtype: invalid choice: 'fp9' (choose from ...)`."""
    option, value, known = match[1], match[2], match[3] or ""
    key = option.lstrip("-").replace("-", "_")
    near = nearest(value, known)
    listed = f" It takes: {truncate(known, 300)}." if known else ""
    summary = f"{option} does not take {value!r} in this version{_version(evidence)}."
    if near and near != value and key in _KEYS:
        return Advice(summary, f"Did you mean {key}={near}?{listed}", ((key, near),))
    return Advice(summary, f"Correct it in the preset, or for one launch with --set.{listed}")


def refused(match: re.Match[str], evidence: Evidence) -> Advice:
    """An argument that this version does not have."""
    words = truncate(match[1].strip(), 120)
    return Advice(
        f"This engine{_version(evidence)} does not know the argument {words}.",
        "Take it out of the preset, correct its spelling, or use an image whose version has it.",
    )


def usage(match: re.Match[str], _evidence: Evidence) -> Advice:
    """Any other sentence of a command line's parser."""
    return Advice(
        f"The engine refused its command line: {truncate(match[1].strip(), 200)}",
        "Correct the argument in the preset, or for one launch with --set.",
    )


def invalid_setting(match: re.Match[str], _evidence: Evidence) -> Advice:
    """vLLM checks its settings before it starts, and says in a sentence what is wrong."""
    return Advice(
        f"The engine refused its settings: {truncate(match[1].strip(), 220)}",
        "Correct the setting that it names in the preset, or for one launch with --set.",
    )


def more_ranks(match: re.Match[str], evidence: Evidence) -> Advice:
    """One Spark has one GPU."""
    ranks, there = int(match[1]), int(match[2])
    return Advice(
        f"The preset wants {ranks} GPUs; this machine has {there}.",
        "Start with tensor_parallel=1 on one Spark, or join the Sparks first: a second one is not found by itself."
        if there == 1
        else f"Start with tensor_parallel={max(there, 1)}, or join more machines.",
        _single_rank(evidence, max(there, 1)),
    )


def _single_rank(evidence: Evidence, ranks: int) -> tuple[tuple[str, str], ...]:
    override = [("tensor_parallel", str(ranks))]
    if evidence.asked.get("pipeline_parallel_size", "1") != "1":
        override.append(("pipeline_parallel", "1"))
    return tuple(override)


def uneven_heads(match: re.Match[str], _evidence: Evidence) -> Advice:
    """Heads cannot be shared out evenly."""
    heads, ranks = int(match[1]), int(match[2])
    fits = max((n for n in range(1, min(ranks, 64)) if heads % n == 0), default=1)
    return Advice(
        f"The model's {heads} attention heads cannot be shared by {ranks} GPUs.",
        f"Start with tensor_parallel={fits}.",
        (("tensor_parallel", str(fits)),),
    )


def ray_ranks(_match: re.Match[str], _evidence: Evidence) -> Advice:
    """Ray has fewer GPUs than ranks."""
    return Advice(
        "The preset wants more GPUs than the Ray cluster has.",
        "On one Spark start with tensor_parallel=1; on several, see with `ray status` that every one has joined.",
        (("tensor_parallel", "1"),),
    )


def ready_timeout(match: re.Match[str], evidence: Evidence) -> Advice:
    """The engine core took longer to start than the API server waits."""
    waited = int(match[1] or 0)
    version = version_of(evidence)
    summary = f"The engine was not up after {waited:,} s." if waited else "The engine was not up in time."
    why = "Large weights load slowly when they are read through a full page cache: free it first (key D)"
    if not waited or (version is not None and version < (0, 17)):
        return Advice(summary, f"{why}, or load with load_format=fastsafetensors.")
    longer = str(waited * 3)
    return Advice(
        summary,
        f"{why}, and wait longer: VLLM_ENGINE_READY_TIMEOUT_S={longer}.",
        (("env.VLLM_ENGINE_READY_TIMEOUT_S", longer),),
    )


def backend_not_valid(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A pinned attention backend cannot do what the other settings want."""
    backend, why = match[1].rpartition(".")[2], match[2]
    if "kv_cache_dtype" in why:
        return Advice(
            f"The attention backend {backend} does not take this kv_cache_dtype.",
            "Start with kv_cache_dtype=auto, or choose another attention_backend.",
            (("kv_cache_dtype", "auto"),),
        )
    return Advice(
        f"The attention backend {backend} does not do what this model needs: {truncate(why.strip('[]'), 160)}",
        "Leave `attention_backend` out, so that vLLM chooses one.",
    )


def not_supported(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A model and a feature that do not go together."""
    return Advice(
        f"The engine cannot do this with this model: {truncate(match[1].strip(), 200)}",
        "Take the feature that it names out of the preset, or use an image with a newer vLLM.",
    )


def _version(evidence: Evidence) -> str:
    return f" ({evidence.facts.version})" if evidence.facts.version else ""


SETTINGS_RULES: Final[tuple[Rule, ...]] = (
    rule(
        CauseId.MAX_MODEL_LEN_TOO_LONG,
        rf"User-specified max_model_len \((\d{{1,12}})\) is greater than the derived max_model_len "
        rf"(?:\([^=]{{1,60}}={NUMBER}(?: or model_max_length={NUMBER})?)?",
        too_long,
    ),
    rule(
        CauseId.PORT_IN_USE,
        r"[Aa]ddress already in use|EADDRINUSE|os error 98|couldn't bind HTTP server socket|"
        r"port is already (?:in use|allocated)|Port \d{2,5} is already in use",
        port_in_use,
    ),
    rule(
        CauseId.BAD_PARSER,
        r"invalid (tool call|reasoning) parser: ([\w.\-]{1,80})(?= |$)",
        unknown_parser,
    ),
    rule(
        CauseId.BAD_PARSER,
        r"([Rr]easoning|[Tt]ool(?: call)?) parser '?([\w.\-]{1,80})'? not found",
        unknown_parser,
    ),
    rule(
        CauseId.BAD_PARSER,
        r"argument --((?:tool-call|reasoning)-parser): invalid choice: '?([\w.\-]{1,80})'?",
        unknown_parser,
    ),
    rule(
        CauseId.BAD_PARSER,
        r"--enable-auto-tool-choice requires --tool-call-parser",
        says(
            "The preset asks for tool calls and names no tool call parser.",
            "Set tool_call_parser to the one that the model's card names, or take enable_auto_tool_choice out.",
        ),
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"World size \((\d{1,6})\) is larger than the number of available GPUs \((\d{1,6})\)",
        more_ranks,
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"attention heads \((\d{1,6})\) must be divisible by tensor parallel size \((\d{1,6})\)",
        uneven_heads,
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"Cannot provide a placement group|number of required \w{1,8}s exceeds the total number of available|"
        r"don't have enough GPUs available in a current node|invalid device ordinal|Not enough resources to allocate",
        ray_ranks,
    ),
    rule(
        CauseId.READY_TIMEOUT,
        r"Timed out waiting for (?:new )?engine core processes to start(?:.{0,200}?Waited (\d{1,9})s)?",
        ready_timeout,
    ),
    rule(CauseId.READY_TIMEOUT, r"Timed out waiting for (?:new )?engines to send initial message()", ready_timeout),
    rule(
        CauseId.READY_TIMEOUT,
        r"timed out waiting for llama runner to start()",
        ready_timeout,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"argument (--?[\w\-]{1,80})(?:/--?[\w\-]{1,80}){0,3}: invalid choice: '?([^' ]{1,80})'?"
        r"(?: \(choose from (.{1,1500})\))?",
        wrong_choice,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(?:unrecognized arguments|invalid argument|unexpected argument|No such option)[:=]? '?([^']{1,300})",
        refused,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"Selected backend (\S{1,120}) is not valid for this configuration\. Reason: (.{1,600})",
        backend_not_valid,
    ),
)
"""Sentences that name one setting."""

GENERAL_RULES: Final[tuple[Rule, ...]] = (
    rule(CauseId.BAD_ARGUMENT, r"^(?:[\w.\-/]{1,60} ){0,2}[\w.\-/]{1,60}: error: (.{1,400})", usage),
    rule(CauseId.BAD_ARGUMENT, r"^Error: ((?:Invalid value|Got unexpected|Missing ).{1,300})", usage),
    rule(CauseId.BAD_ARGUMENT, r"^error: (.{1,300})", usage, sure=False),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"(?:^|: )((?:[^:]{0,200}: )??[^:]{0,300}(?:(?:is|are) not (?:yet )?supported|does not (?:yet )?support|"
        r"do not support|is incompatible with|not yet implemented|only supported (?:for|with|when|on)).{0,300})",
        not_supported,
    ),
    rule(CauseId.UNSUPPORTED_MODEL_FEATURE, r"^NotImplementedError: (.{1,400})", not_supported),
    rule(CauseId.BAD_ARGUMENT, r"^\s*(?:Value error|Assertion failed), (.{1,600})", invalid_setting),
    rule(
        CauseId.BAD_ARGUMENT,
        r"^([\w.]{1,80}: (?:Input should be|Field required|Extra inputs|Unexpected).{1,300})",
        invalid_setting,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"^(?:ValueError|TypeError|[\w.]{0,60}ArgumentTypeError): "
        r"(.{0,300}(?:mutually exclusive|must be|requires --|Please (?:set|use|specify|pass)|Valid (?:values|choices)|"
        r"Expected one of|Unknown |Unsupported |Invalid ).{0,300})",
        invalid_setting,
        sure=False,
    ),
)
"""What is tried last: sentences that say it themselves."""
