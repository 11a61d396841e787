"""vLLM's command line: options by their recipe keys, and reading and changing them in a command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.quantities import MIB, parse_bytes

# Recipe keys that are spelled otherwise than their option (sparkrun 0.4.2).
_SPELLED: Final = {
    "tensor_parallel": "--tensor-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
    "data_parallel": "--data-parallel-size",
}
_SHORT: Final = {
    "--tensor-parallel-size": "-tp",
    "--pipeline-parallel-size": "-pp",
    "--data-parallel-size": "-dp",
    "--quantization": "-q",
    "--enable-expert-parallel": "-ep",
    "--speculative-config": "-sc",
    "--compilation-config": "-cc",
}
# Options that are on, or decided by the engine, unless the recipe says no.
_NEGATABLE: Final = frozenset(
    (
        "async_scheduling",
        "enable_chunked_prefill",
        "enable_flashinfer_autotune",
        "enable_prefix_caching",
        "scheduler_reserve_full_isl",
    )
)
_SWITCHES: Final = _NEGATABLE | frozenset(
    (
        "disable_custom_all_reduce",
        "disable_log_requests",
        "disable_log_stats",
        "enable_auto_tool_choice",
        "enable_expert_parallel",
        "enable_force_include_usage",
        "enable_log_requests",
        "enable_prompt_tokens_details",
        "enable_request_id_headers",
        "enforce_eager",
        "language_model_only",
        "trust_remote_code",
    )
)
# The keys from which sparkrun 0.4.2 builds a vLLM command, and the switches above. Order: as people write them.
_VALUED: Final = (
    "host", "port", "tensor_parallel", "pipeline_parallel", "data_parallel", "served_model_name", "dtype",
    "quantization", "kv_cache_dtype", "gpu_memory_utilization", "kv_cache_memory_bytes", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens", "block_size", "seed", "load_format", "attention_backend",
    "moe_backend", "linear_backend", "gdn_prefill_backend", "mamba_backend", "mamba_cache_mode", "mamba_cache_dtype",
    "mamba_ssm_cache_dtype", "tokenizer_mode", "chat_template", "default_chat_template_kwargs", "generation_config",
    "override_generation_config", "hf_overrides", "limit_mm_per_prompt", "mm_encoder_tp_mode",
    "mm_processor_cache_gb", "media_io_kwargs", "allowed_local_media_path", "reasoning_parser",
    "reasoning_parser_plugin", "tool_call_parser", "tool_parser_plugin", "speculative_config", "compilation_config",
    "attention_config", "max_cudagraph_capture_size", "model_loader_extra_config", "safetensors_load_strategy",
    "long_prefill_token_threshold", "otlp_traces_endpoint", "distributed_executor_backend", "num_gpu_blocks_override",
    "revision",
)  # fmt: skip
KEYS: Final = (*_VALUED, *sorted(_SWITCHES))
# Options that take all the words up to the next option.
_MANY_VALUED: Final = ("--served-model-name",)
_MANY: Final = 1_000
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def option_of(key: str) -> str | None:
    """The option of a recipe key, None for keys that are none of vLLM's: `max_model_len` -> `--max-model-len`."""
    if key not in KEYS:
        return None
    return _SPELLED.get(key, "--" + key.replace("_", "-"))


def build(model: str, values: Mapping[str, Scalar]) -> tuple[str, ...]:
    """`vllm serve MODEL --option value ...` from a recipe's values, as sparkrun does where `command` is absent."""
    argv: tuple[str, ...] = ("vllm", "serve", model)
    for key in KEYS:
        value = values.get(key)
        if value is not None:
            argv = with_option(argv, key, value)
    return argv


def option_value(argv: tuple[str, ...], name: str) -> str | None:
    """The value of an option in a command, the last one when it is given twice; None when it is absent.

    `--name value`, `--name=value`, the short spelling and underscores are all the same to vLLM.
    """
    found = None
    for at, word in enumerate(argv):
        key, equals, value = word.partition("=")
        if _same(key, name):
            found = value if equals else argv[at + 1] if at + 1 < len(argv) else ""
    return found


def without_option(argv: tuple[str, ...], name: str, *, switch: bool = False) -> tuple[str, ...]:
    """The command without an option and its value; a `switch` has none."""
    out: list[str] = []
    values = 0
    for word in argv:
        key, equals, _ = word.partition("=")
        if _same(key, name):
            values = 0 if equals or switch else _MANY if name in _MANY_VALUED else 1
        elif values and (values == 1 or not word.startswith("-")):
            values = 0 if values == 1 else values
        else:
            values = 0
            out.append(word)
    return tuple(out)


def without_key(argv: tuple[str, ...], key: str) -> tuple[str, ...]:
    """The command without the option of a recipe key, in every spelling: negated, short, and in dotted parts.

    Of options that we do not know, the word after them is their value unless it is an option itself.
    """
    name = option_of(key) or "--" + key.replace("_", "-")
    heads = {word.partition("=")[0].replace("_", "-") for word in argv}
    dotted = sorted(head for head in heads if "." in head and _same(head.partition(".")[0], name))
    for spelled in (name, "--no-" + name[2:], *dotted):
        argv = without_option(argv, spelled, switch=_stands_alone(argv, key, spelled))
    return argv


def with_option(argv: tuple[str, ...], key: str, value: Scalar) -> tuple[str, ...]:
    """The command with the option of a recipe key set, in place of an earlier one or at the end.

    A switch takes true or false; false removes it, and negates those that are on by themselves.
    Raises KeyError for a key that is none of vLLM's, ValueError for a switch that is neither true nor false.
    """
    name = option_of(key)
    if name is None:
        raise KeyError(key)
    if key in _SWITCHES:
        return _with_switch(argv, key, name, _boolean(value))
    return set_option(argv, (name,), str(value))


def set_option(argv: tuple[str, ...], names: tuple[str, ...], text: str) -> tuple[str, ...]:
    """The command with an option set, in place of an earlier one in any of its spellings or at the end.

    The first spelling is written.
    """
    place = next((at for at, word in enumerate(argv) if _one_of(word.partition("=")[0], names)), len(argv))
    for name in names:
        argv = without_option(argv, name)
    return (*argv[:place], names[0], text, *argv[place:])


def option_in(argv: tuple[str, ...], names: tuple[str, ...]) -> str | None:
    """The value of an option that has several spellings; None when none of them is there."""
    return next((value for name in names if (value := option_value(argv, name)) is not None), None)


def is_spelling(word: str, name: str) -> bool:
    """Whether a word (what stands before its `=`) is an option: with underscores and short ones too."""
    return _same(word, name)


def is_switch(key: str) -> bool:
    """Whether a recipe key is an option without a value."""
    return key in _SWITCHES


def _stands_alone(argv: tuple[str, ...], key: str, name: str) -> bool:
    if key in _SWITCHES or name.startswith("--no-"):
        return True
    if key in _VALUED:
        return False
    at = next((at for at, word in enumerate(argv) if _same(word, name)), len(argv))
    return argv[at + 1 : at + 2] == () or argv[at + 1].startswith("-")


def _with_switch(argv: tuple[str, ...], key: str, name: str, on: bool) -> tuple[str, ...]:
    negated = "--no-" + name[2:]
    rest = without_option(without_option(argv, negated, switch=True), name, switch=True)
    if on:
        return (*rest, name)
    return (*rest, negated) if key in _NEGATABLE else rest


def _boolean(value: Scalar) -> bool:
    text = str(value).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(text)


def _same(word: str, name: str) -> bool:
    if not word.startswith("-"):
        return False
    return word.replace("_", "-") == name.replace("_", "-") or word == _SHORT.get(name)


def _one_of(word: str, names: tuple[str, ...]) -> bool:
    return any(_same(word, name) for name in names)


MAX_JSON_CHARS: Final = 65_536
_MAX_DEPTH: Final = 8


def json_parts(words: tuple[str, ...], name: str) -> Mapping[str, Any]:
    """A JSON option of a command as a mapping, its dotted parts included. Empty for what is no object."""
    found = dict(json_object(option_value(words, name) or ""))
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        option, dot, path = head.partition(".")
        if dot and is_spelling(option, name):
            text = value if equals else words[at + 1] if at + 1 < len(words) else ""
            _put(found, path.split(".")[:_MAX_DEPTH], text)
    return found


def _put(into: dict[str, Any], path: list[str], text: str) -> None:
    *folders, last = path
    for folder in folders:
        inner = into.get(folder)
        into[folder] = dict(inner) if isinstance(inner, dict) else {}
        into = into[folder]
    into[last] = text


def json_object(text: str) -> Mapping[str, Any]:
    """A JSON object, empty for anything else."""
    if len(text) > MAX_JSON_CHARS:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def mappings_in(tree: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """A mapping and those within it, bounded in depth."""
    yield tree
    for value in tree.values():
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            yield from mappings_in(value, depth + 1)


def compact(config: Mapping[str, Any]) -> str:
    """A mapping as the JSON that recipes write."""
    return json.dumps(config, separators=(",", ":"))


CONFIG: Final = "--speculative-config"
OFF: Final = "off"
"""In place of a method: without drafting."""
METHOD: Final = "speculation"
"""The override that names the method; the number of drafted tokens is vLLM's own word."""
TOKENS: Final = "num_speculative_tokens"
SPECULATION_KEYS: Final = ("speculative_config", "spec_method", "spec_model", "spec_tokens")
"""The recipe keys that ask for drafting, in each of vLLM's spellings."""

# vLLM 0.19 to 0.33 (config/speculative.py). The first draft with what the checkpoint or the prompt holds already.
ALONE: Final = ("mtp", "ngram", "suffix")
WITH_DRAFTER: Final = ("dflash", "eagle3", "eagle", "draft_model", "medusa", "mlp_speculator")
_SPELLINGS: Final = (
    ("method", "--spec-method"),
    ("model", "--spec-model"),
    (TOKENS, "--spec-tokens"),
)
_MTP_TOKENS: Final = 1


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding as asked for. `tokens` is K, None where the engine decides; `config` is all of it."""

    method: str
    drafter: str
    tokens: int | None
    config: Mapping[str, Any]

    @property
    def is_mtp(self) -> bool:
        """By the model's own prediction layers, or a small model paired with it: vLLM has a name per family."""
        return self.method.endswith("mtp")

    @property
    def is_dflash(self) -> bool:
        """By a block-diffusion drafter."""
        return self.method == "dflash"


def speculation_of(words: tuple[str, ...], env: Mapping[str, str]) -> Speculation | None:
    """What a command and its environment ask for; None: no drafting, or nothing that can be read."""
    config = dict(json_parts(words, CONFIG))
    for key, name in _SPELLINGS:
        value = option_value(words, name)
        if value is not None:
            config[key] = value
    if env.get("DFLASH_DRAFTER"):
        config = {
            "method": "dflash",
            "model": env["DFLASH_DRAFTER"],
            TOKENS: env.get("DFLASH_NUM_SPEC_TOKENS"),
            **config,
        }
    if not config:
        return None
    drafter = str(config.get("model") or "")
    method = str(config.get("method") or _method_of(drafter)).lower()
    tokens = str(config.get(TOKENS) or "")
    return Speculation(method, drafter, int(tokens) if re.fullmatch(r"\d{1,6}", tokens) else None, config)


def _method_of(drafter: str) -> str:
    """vLLM tells the method by the drafter's name where none is given."""
    return next((word for word in ("dflash", "eagle3", "eagle", "mtp") if word in drafter.lower()), "draft_model")


def changed(asked: Speculation | None, method: str | None, tokens: int | None) -> dict[str, Any]:
    """The config that drafts by another method (None: the same) or another number of tokens (None: as many).

    Another method keeps the number alone: the drafter and the kernels of the old one are not its own. Raises
    UsageError for what vLLM would refuse: no method at all, one without its drafter, or without a number of tokens.
    """
    config = dict(asked.config) if asked is not None else {}
    if method is not None and (asked is None or method != asked.method):
        _check_method(method)
        config = {"method": method, **({TOKENS: asked.tokens} if asked is not None and asked.tokens else {})}
    elif asked is None:
        raise UsageError(
            "This preset drafts nothing: a number of drafted tokens has no method to go with.",
            "Choose a method too, for example: speculation=mtp",
        )
    if tokens is not None:
        config[TOKENS] = tokens
    elif method == "mtp":
        config.setdefault(TOKENS, _MTP_TOKENS)
    if method is not None and TOKENS not in config:
        raise UsageError(
            f"Drafting by {method} needs the number of tokens to draft.",
            "Say how many, for example: num_speculative_tokens=3",
        )
    return config


def _check_method(method: str) -> None:
    if method in ALONE or method.endswith("_mtp"):
        return
    raise UsageError(
        f"Drafting by {method} needs a drafter that was trained for this model, and the preset names none.",
        f'Name it: speculative_config={{"method":"{method}","model":"...","num_speculative_tokens":3}}',
    )


@dataclass(frozen=True, slots=True)
class Knob:
    """A number with its range (both ends included unless `above`), or a word with its pattern. A `size` is in bytes,
    and may be written with a unit."""

    kind: type[int] | type[float] | type[str]
    what: str
    example: str
    low: float = 0
    high: float = 0
    above: bool = False
    pattern: str = ""
    size: bool = False

    def read(self, value: Scalar) -> int | float | str:
        """The value in its own type. Raises ValueError, without a sentence, for anything else."""
        if value is None or isinstance(value, bool):
            raise ValueError
        if self.kind is str:
            return self._word(str(value))
        if self.kind is int and isinstance(value, float):
            raise ValueError
        number = self._number(value.strip().replace("_", "") if isinstance(value, str) else value)
        if not isinstance(number, (int, float)) or not self._holds(number):
            raise ValueError
        return number

    def _number(self, value: str | int | float) -> int | float | str:
        return parse_bytes(value) if self.size else self.kind(value)

    def _word(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError
        return text

    def _holds(self, number: float) -> bool:
        return (number > self.low if self.above else number >= self.low) and number <= self.high


def _integer(low: int, high: int, example: int) -> Knob:
    return Knob(int, f"a whole number from {low:,} to {high:,}", str(example), low, high)


KNOBS: Final[Mapping[str, Knob]] = {
    "port": _integer(1, 65535, 8000),
    "max_model_len": _integer(1, 100_000_000, 65536),
    "gpu_memory_utilization": Knob(float, "a fraction above 0 and up to 1", "0.85", 0, 1, above=True),
    # vLLM has its own units for it, which change with capital letters: the command gets bytes.
    "kv_cache_memory_bytes": Knob(int, "a size from 1MiB to 1TiB", "12GiB", MIB, 1024**4, size=True),
    "max_num_seqs": _integer(1, 65536, 4),
    "max_num_batched_tokens": _integer(1, 100_000_000, 8192),
    "kv_cache_dtype": Knob(str, "a KV cache type of the engine", "fp8", pattern=r"[A-Za-z0-9_]{1,40}"),
    "speculation": Knob(
        str,
        f"{OFF}, {', '.join(ALONE)}, or the method of the preset's own drafter",
        "mtp",
        pattern="|".join((OFF, *ALONE, *WITH_DRAFTER, "[a-z0-9_]{1,30}_mtp")),  # a name per family, all of them MTP
    ),
    "num_speculative_tokens": _integer(1, 64, 3),
    "served_model_name": Knob(
        str, "a name without blanks or shell characters", "qwen36", pattern=r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,199}"
    ),
    # Docker's rule for container names; 63 so that it also works as a host name.
    "name": Knob(
        str,
        "a container name of letters, digits, `_`, `.` and `-`",
        "qwen36-test",
        pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}",
    ),
}

IN_RECIPES: Final = ("port", "gpu_memory_utilization", "max_num_seqs")
"""Checked in a recipe's `defaults` too. The others may hold there what only the engine understands (`auto`, `128k`)."""
