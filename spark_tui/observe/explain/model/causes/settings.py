"""Failures of the settings: arguments, parsers, context length, port, ranks, features that do not go together."""

from __future__ import annotations

import difflib
import re
from typing import Final

from spark_tui.base.engine.runtimes import family_of
from spark_tui.base.finding import Change, Finding
from spark_tui.base.text import lazy_pattern, truncate
from spark_tui.observe.explain.model.causes.cause import (
    MAX_QUOTED,
    CauseId,
    CauseRule,
    FailureContext,
    fix,
    nearest,
    rule,
    setting,
)
from spark_tui.observe.explain.model.line import NUMBER
from spark_tui.observe.explain.model.sizing import version_of

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


_OPTION: Final = lazy_pattern(r"--([a-z][\w\-]{2,60})")
_JSON: Final = lazy_pattern(r"(?i:json)|cannot be converted to")


def usage(match: re.Match[str], _context: FailureContext) -> Finding:
    """What a command line's parser says, with the setting that it names."""
    named = _OPTION.search(match[1])
    what = named[1].replace("-", "_") if named else "the argument"
    return fix(
        f"The engine rejected its command line: {truncate(match[1].strip(), MAX_QUOTED)}",
        f"Correct {what} in the preset, or in the settings of one launch."
        + (" Its value is JSON: names and texts in double quotes." if _JSON.search(match[1]) else ""),
    )


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


def ready_timeout(match: re.Match[str], context: FailureContext) -> Finding:
    """The engine core took longer to start than the API server waits."""
    waited, version = int(match[1] or 0), version_of(context.facts)
    summary = f"The engine was not ready after {waited:,} s." if waited else "The engine was not ready in time."
    why = "A full page cache slows down loading: free it first (key D)"
    if context.engine == "ollama":
        return fix(summary, f"{why}, and wait longer: OLLAMA_LOAD_TIMEOUT=15m in the service's environment.")
    if not waited and version is None:
        return fix(summary, f"{why}, and wait longer: env.VLLM_ENGINE_READY_TIMEOUT_S=1800 (since 0.17).")
    if not waited or (version is not None and version < (0, 17)):
        return fix(summary, f"{why}, or set load_format=fastsafetensors.")
    name, longer = "VLLM_ENGINE_READY_TIMEOUT_S", waited * 3
    return setting(summary, f"{why}, and wait longer: {name}={longer}.", f"env.{name}", longer)


def moe_backend(match: re.Match[str], _context: FailureContext) -> Finding:
    """A pinned MoE backend cannot run this model here."""
    name, why = match[1], match[2] or ""
    device = "current device" in why
    return setting(
        f"The MoE backend {name} cannot run this model{' on this GPU' if device else ''}"
        f"{f': {truncate(why.strip(), 160)}' if why else '.'}",
        "Remove moe_backend (auto: the engine chooses), or set another. For FP4 marlin nearly always runs.",
        "moe_backend",
        "auto",
    )


def backend_not_valid(match: re.Match[str], _context: FailureContext) -> Finding:
    """A pinned attention backend cannot do what the other settings want."""
    backend, why = match[1].rpartition(".")[2], match[2]
    if "kv_cache_dtype" in why:
        return setting(
            f"The attention backend {backend} does not support this kv_cache_dtype.",
            "Set kv_cache_dtype=auto, or choose another attention_backend.",
            "kv_cache_dtype",
            "auto",
        )
    return fix(
        f"The attention backend {backend} does not support this model: {truncate(why.strip('[]'), 160)}",
        "Remove `attention_backend`: the engine chooses one.",
    )


_INVALID: Final = (
    "The engine rejected its settings: {0}",
    "Correct the named setting in the preset, or in the settings of one launch.",
)
_UNSUPPORTED: Final = (
    "Not supported for this model: {0}",
    "Remove the named feature from the preset, or use {newer}.",
)

SETTINGS_RULES: Final[tuple[CauseRule, ...]] = (
    rule(
        CauseId.MISSING_MODULE,
        r"requires (FlashInfer|DeepGEMM|flash[_\-]attn|[Tt]ransformers|[Tt]riton)(?:'s)? .{0,60}(?:API|>=|or (?:newer|"
        r"later))",
        "The image's {0} is too old for this model.",
        "Use {newer}, with a newer {0}.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"(think_\w{1,10}_token .{1,80} must encode to exactly one token)",
        "The reasoning parser does not fit the model's tokenizer: {0}.",
        "Remove reasoning_parser, or set the one that the model card names.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(\w{4,40}) \((\d{1,12})\) (?:is|must be|should be|cannot be) (?:not )?(?:smaller|larger|greater|less|"
        r"equal) .{0,20}than (?:or equal to )?(?:the )?(?!GPUs)(\w{4,40}) \((\d{1,12})\)",
        "Two settings contradict: {0} is {1}, {2} is {3}.",
        "Correct {0} or {2} in the preset: raise max_num_batched_tokens, or lower the other.",
    ),
    rule(
        CauseId.MAX_MODEL_LEN_TOO_LONG,
        rf"User-specified (?:max_model_len|"
        rf"context_length) \((\d{{1,12}})\) is greater than the derived \w{{1,20}} (?:\((?:[^=]{{1,60}}=)?{NUMBER}(?: "
        rf"or model_max_length={NUMBER})?)?",
        too_long,
    ),
    rule(
        CauseId.PORT_IN_USE,
        r"[Aa]ddress already in use|EADDRINUSE|os error 98|couldn't bind (?:HTTP|to) server socket|"
        r"Only one usage of each socket address|port is already (?:in use|allocated)|Port \d{2,5} is already in use",
        port_in_use,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"[Cc]annot assign requested address(?:.{0,60}?\('?([\w.:\-]{2,60})'?,)?",
        lambda match, _context: fix(
            f"{match[1] or 'The address to listen on, or of the head node,'} is no address of this machine (in the "
            "container's network).",
            "Set host=0.0.0.0. On several nodes, correct the head's address (master_addr, or the cluster's).",
        ),
    ),
    rule(CauseId.BAD_PARSER, r"invalid (tool call|reasoning) parser: ([\w.\-]{1,80})(?= |$)", unknown_parser),
    rule(CauseId.BAD_PARSER, r"([Rr]easoning|[Tt]ool(?: call)?) parser '?([\w.\-]{1,80})'? not found", unknown_parser),
    rule(
        CauseId.BAD_PARSER,
        r"argument --((?:tool-call|reasoning)-parser): invalid choice: '?([\w.\-]{1,80})'?",
        unknown_parser,
    ),
    rule(
        CauseId.BAD_PARSER,
        r"--enable-auto-tool-choice requires --tool-call-parser",
        "Tool calls are enabled without a tool call parser.",
        "Set tool_call_parser as on the model card, or remove enable_auto_tool_choice.",
    ),
    rule(
        CauseId.BAD_PARSER,
        r"--(tool-call|reasoning)-parser ([\w.\-]{1,80})(?: and --reasoning-parser ([\w.\-]{1,80}))? cannot be used "
        r"with the tokenizer of (?:.{0,400}?\w(Reasoning)\w{0,20}Parser)?",
        unfit_parser,
    ),
    rule(
        CauseId.BAD_PARSER,
        r"(?i:(tool|reasoning)(?: call)? ?parser) (?:could not|requires|needs|cannot) .{1,200}(?:tokenizer|token)",
        "The {0} parser does not fit the model's tokenizer.",
        "Set tool_call_parser and reasoning_parser as on the model card.",
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"is not divisible by (?:min_thread_\w|weight quantization block_\w|quantization (?:group|block))|"
        r"size is not aligned with the quantized weight shape",
        "A rank's part of the weights does not divide into quantization blocks: {match}.",
        "Lower {ranks}{size}, or on MoE models set enable_expert_parallel.",
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"Duplicate GPU detected",
        "Two ranks share one GPU: NCCL refuses that.",
        "Set {ranks}{size} to the number of GPUs: 1 on one Spark.",
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"mpiSize == tp|[Ww]orld size.{0,40} (?:mismatch|does not match).{0,80}",
        "The number of processes is not the number of ranks asked for: {match}.",
        "Set {ranks}{size} to the number of GPUs (1 on one Spark), or start that many ranks (mpirun -n).",
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"(?:World|\b\w{1,40} parallel) size \((\d{1,6})\) (?:is|"
        r"cannot be) larger than the number of available GPUs \((\d{1,6})\)",
        more_ranks,
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"local_world_size \((\d{1,4})\) must be less than or equal to the number of visible devices \((\d{1,4})\)",
        more_ranks,
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"Only (\d{1,6}) GPUs? (?:is|are) available, but (\d{1,6}) (?:is|are) required",
        "The preset needs {1} GPUs; this machine has {0}.",
        "Set tp_size and pp_size so that their product is {0}, or start one rank on each node with mpirun.",
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"attention heads \((\d{1,6})\) must be divisible by tensor parallel size \((\d{1,6})\)",
        uneven_heads,
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"(?:(?:tensor|expert|pipeline|data|context).?parallel|\b(?:tp|ep|dp|pp|dcp|attn_tp|world)[_ ]?(?:size|rank)|"
        r"num_ranks|GPUs).{0,80}divisible|"
        r"divisible by .{0,40}(?:parallel|\b(?:tp|ep|dp|pp|dcp|attn_tp|world)[_ ]?size|number of (?:GPUs|ranks))|"
        r"(\d{1,6}) is not divisible by (\d{1,3})$",
        "The model's layers cannot be divided among the ranks asked for: {match}.",
        "Set {ranks}{size} to a number that divides the model's heads and experts: 1, 2, 4 or 8.",
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"Cannot provide a placement group|number of required \w{1,8}s exceeds the total number of available|"
        r"don't have enough GPUs available in a current node|invalid device ordinal|Not enough resources to allocate",
        "The preset needs more GPUs than the Ray cluster has.",
        "Set {ranks}=1 on one Spark. On several, check with `ray status` that all have joined.",
        change=(("tensor_parallel", "1"),),
    ),
    rule(
        CauseId.READY_TIMEOUT,
        r"(?:Timed out waiting for (?:new )?engine core processes to start|[Ii]nitialization timeout|"
        r"failed to (?:start|become ready) (?:with)?in \d)(?:.{0,200}?Waited (\d{1,9})s)?",
        ready_timeout,
    ),
    rule(
        CauseId.READY_TIMEOUT,
        r"(?:Timed out waiting for (?:new )?engines to send ?initial message|"
        r"timed out waiting for llama runner to start)()",
        ready_timeout,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"argument (--?[\w\-]{1,80})(?:/--?[\w\-]{1,80}){0,3}: invalid choice: '?([^' ]{1,80})'?(?: \(choose from "
        r"(.{1,1500})\))?",
        wrong_choice,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"unrecognized arguments: ((?:vllm )?serve \S{1,200})",
        "The image runs `vllm serve` itself; the command repeats it.",
        "Remove `vllm serve` from the command: it begins with the model.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(?:unrecognized arguments|^error: invalid argument|[Ii]nvalid argument(?=:? ?['\"]?-)|unexpected argument|No "
        "such option|unknown (?:argument|option|flag)(?=:? ?['\"]?-)|flag provided but not defined)[:=]? "
        r"\s*'?([^'\s][^']{0,299})",
        unknown_option,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"error: invalid value '([^']{1,80})' for '--?([\w\-]{1,60})|"
        r"invalid parameter for argument: --?()([\w\-]{1,60})",
        lambda match, _context: fix(
            f"The server rejected the value of {match[2] or match[4]}{f': {match[1]}' if match[1] else ''}.",
            f"Correct {(match[2] or match[4]).replace('-', '_')} in the preset, or in the settings of one launch.",
        ),
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"error while handling argument \"?(-[\w\-]{1,60})\"?: (.{1,200})",
        "The server rejected {0}: {1}.",
        "Correct {0} in the preset, or in the settings of one launch.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(?:Args|Config)\.__init__\(\) got an unexpected keyword argument '(\w{1,60})'|"
        r"Field '(\w{1,60})' is not defined in \w{1,60}Args",
        "This engine{version} has no setting {any}.",
        "Remove {any} from the preset, correct its spelling, or use an image whose version has it.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(?:must provide|does not have|no|requires) a chat template|"
        r"[Cc]hat template .{0,40}(?:not (?:found|set)|required)",
        "The model has no chat template, and none is given.",
        "Set chat_template to a template file that is mounted, as on the model card.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"Do not set (\w{4,40}) for ([\w\- ]{3,40})",
        "A setting does not go with this model: {0}, for {1}.",
        "Remove {0} from the configuration (in Triton's config.pbtxt it is spelled with underscores: "
        "cross_kv_cache_fraction, for example).",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"quantized V cache was requested|V cache quantization requires flash_attn",
        "A quantized V cache needs flash attention.",
        "Turn flash attention on (`--flash-attn on`; Ollama: OLLAMA_FLASH_ATTENTION=1), or keep the cache in f16 "
        "(`--cache-type-v f16`; Ollama: OLLAMA_KV_CACHE_TYPE=f16).",
        vague=True,  # it may have been turned off because the model cannot
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"(torch\.\w{1,20}) is not supported for quantization method (\w{1,40})",
        "The quantization {1} does not support dtype {0}.",
        "Set dtype=float16, or to another that the message lists.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"Bfloat16 is only supported on GPUs",
        "This GPU cannot compute in bfloat16.",
        "Set dtype=float16.",
        change=(("dtype", "float16"),),
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"max_num_scheduled_tokens is set to (-?\d{1,9})|not have enough slots to schedule a token",
        "Speculation leaves no room in a batch: drafted tokens of all requests exceed max_num_batched_tokens.",
        "Raise max_num_batched_tokens above num_speculative_tokens times max_num_seqs, or lower one of these.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"MoE backend '?([\w.]{1,60})'? does not support the deployment configuration(?: since (.{1,300}))?",
        moe_backend,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"Only (.{1,120}?) (?:attention )?backends? (?:is|are) supported.{0,200}?(?:Got|"
        r"got) (?:--)?(\w{0,30}(?:attention|moe|gemm|decode|prefill)[_\-]\w{0,20}backend)[= ]+'?([\w.\-]{1,60})",
        "{1} {2} does not support this model on this GPU. Supported: {0}.",
        "Set {1} to one of {0}, or remove it.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"backend only supports .",
        lambda match, context: fix(
            _UNSUPPORTED[0].format(truncate(match.string.strip(), 300)),
            _UNSUPPORTED[1].format(newer=context.names.newer),
        ),
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"While loading (\S{1,300}), expected target modules in",
        "The LoRA adapter changes layers that {engine} does not adapt in this model: {0}.",
        "Use a LoRA adapter for the layers that the line lists, merge the adapter into the weights, or use {newer}.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"Unsupported head_?dim: ?(\d{1,5})",
        "The attention kernels do not support heads of {0}.",
        "Set another attention-backend (attention_backend), or use {newer}.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"Selected backend (\S{1,120}) is not valid for this configuration\. Reason: (.{1,600})",
        backend_not_valid,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"No valid attention backend found.{0,300}?Reasons: (.{1,400})|(Backend \w{1,60}) must be registered",
        "No attention backend of this image supports the model: {any}",
        "Use {newer}. Remove attention_backend and kv_cache_dtype if they are set.",
    ),
)
"""Sentences that name one setting."""

GENERAL_RULES: Final[tuple[CauseRule, ...]] = (
    rule(
        CauseId.BAD_ARGUMENT,
        r"^(?!(?:mtmd|clip|llama|ggml|gguf|common)_|ninja: )(?:[\w.\-/]{1,60} ){0,2}[\w.\-/]{1,60}: error: (.{1,400})",
        usage,
    ),
    rule(CauseId.BAD_ARGUMENT, r"^Error: ((?:Invalid value|Got unexpected|Missing ).{1,300})", usage),
    rule(CauseId.BAD_ARGUMENT, r"^error: (.{1,300})", usage, sure=False),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"^assert (.{0,200}(?:page_size|block_size|head_|dtype|shape|quant|spec).{0,100})",
        "The engine does not support this model with these settings: {0}",
        "Use {newer}, or start without speculation and cache settings.",
        sure=False,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(?:^|(?:Value error|Assertion failed), |Error: )(.{0,300}(?:incompatible|"
        r"not (?:currently )?compatible) with (?:.{0,200}(?:--[a-z]|[A-Z]{3,20}_[A-Z_]{3,40})|(?!.{0,200}(?:[Mm]odel|"
        r"GPU|checkpoint|device|kernel|For[A-Z]))).{0,300})",
        *_INVALID,
        sure=False,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"(Unsupported (?:KV|kv|LoRA|speculat|attention|head|d?type|data type|quant|feature|activation|scal|moe|"
        r"MoE).{1,300})",
        *_UNSUPPORTED,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"(?:^|: )((?:[^:]{0,200}: )??[^:]{0,300}(?:(?:is|are) not (?:yet |currently )?supported|"
        r"does not (?:yet )?support|do not support|(?:is|are) (?:currently )?(?:incompatible|"
        r"not (?:currently )?compatible) with|not (?:yet )?implemented|currently supports? |only supported (?:for|by|"
        r"with|when|on)).{0,300})",
        *_UNSUPPORTED,
    ),
    rule(CauseId.UNSUPPORTED_MODEL_FEATURE, r"^NotImplementedError: (.{1,400})", *_UNSUPPORTED),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"^NotImplementedError$",
        "The engine has not implemented what this model needs with these settings.",
        "Remove attention_backend, kv_cache_dtype and speculation if they are set, or use {newer}.",
        sure=False,
    ),
    rule(CauseId.BAD_ARGUMENT, r"^\s*(?:Value error|Assertion failed), (.{1,600})", *_INVALID),
    rule(
        CauseId.BAD_ARGUMENT,
        r"Assertion failed: ((?:Must|You must|Please) .{1,300}|.{1,200}must be .{1,200})",
        *_INVALID,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(?:^|Error: )([\w.]{1,80}: (?:Input should be|Field required|Extra inputs|Unexpected).{1,300})",
        *_INVALID,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"^(?:ValueError|TypeError|AssertionError|[\w.]{0,60}ArgumentTypeError|"
        r"Failed to initialize executor on rank \d): (.{0,300}(?:mutually exclusive|must be|can only be|cannot both|"
        r"is only (?:valid|allowed|applicable)|has been removed|exceeds the maximum|Unrecognized |unknown |"
        r"[Ee]xpected one of|is not (?:a valid|allowed|applicable|enabled)|only works with|should be|cannot be (?:used|"
        r"larger|set)|requires? |only supports? |Please (?:set|use|specify|pass)|Valid (?:values|choices)|(?:larger|"
        r"smaller|greater|less|higher|lower) than (?:`?max_|--|`?num_)|must not |please (?:increase|adjust|reduce)|"
        r"Please (?:increase|adjust|reduce|decrease|lower)|was provided|not provided|Expected one of|Unknown |"
        r"Unsupported |Invalid ).{0,300})",
        *_INVALID,
        sure=False,
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"^ImportError: (.{1,300})|"
        r"^(?:AssertionError|RuntimeError|ValueError): (.{1,100}(?:kernels?|module) not found\..{0,200})",
        "The image cannot import what the engine needs: {any}",
        "Use {newer} as it was published, or {other}. Outside a container install the named package.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"validation errors? for (\w{0,40}(?:Config|Args)\b.{0,200})|^yaml\.\w[\w.]{1,60}: (.{1,200})",
        "The engine rejected its settings: {any}",
        "Correct the named setting in the preset, or in its options file.",
        vague=True,
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"^jinja2\.exceptions\.(\w{1,40}: .{1,200})",
        "The chat template is wrong: {0}",
        "Correct chat_template, or remove it: most checkpoints include one.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"^(?:triton|tilelang|cutlass|deep_gemm|flashinfer|torch\._inductor|"
        r"torch\._dynamo)\.([\w.]{1,80}(?:: .{1,200})?)",
        "A GPU kernel could not be built or run: {0}",
        "Set another attention_backend or moe_backend, or start once with {eager}. {gb10}",
        sure=False,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Capture (?:cuda graph|single-CG draft extend) failed: .{1,160}",
        "Capturing CUDA graphs failed: {match}.",
        "Start once with {eager}; if that works, use {newer}, or another attention_backend.",
        sure=False,
    ),
)
"""What is tried last: sentences that say it themselves."""
