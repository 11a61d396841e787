"""The command line of an engine: its options, and what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.quantities import MIB, parse_bytes, parse_count
from spark_tui.base.shell import is_shell, words_of
from spark_tui.base.untrusted import load_json

OFF: Final = "off"
"""In place of a drafting method: no speculation."""
METHOD: Final = "speculation"
TOOLS: Final = "tool_calls"
TOKENS: Final = "num_speculative_tokens"
# vLLM 0.19 to 0.33 (config/speculative.py). The first draft with what the checkpoint or the prompt holds already.
ALONE: Final = ("mtp", "ngram", "suffix")
WITH_DRAFTER: Final = ("dflash", "eagle3", "eagle", "draft_model", "medusa", "mlp_speculator")

MAX_JSON_CHARS: Final = 65_536
_MAX_DEPTH: Final = 8
TRUE: Final = ("true", "yes", "on", "1")
FALSE: Final = ("false", "no", "off", "0")


class Option(Struct, frozen=True):
    """One setting.

    `expected` and `example` describe a value; `low` and `high` bound a number (both included unless `above`);
    `pattern` is for words; a `size` is in bytes and may be written with a unit. `label`, `help` and `silent` (what
    holds where nothing is set) are the form's. `spelled` has the spellings by runtime, the first one to write.
    `switch`: no value. `negatable`: on, or the engine's choice, unless the recipe says no. `many`: takes all words up
    to the next option.
    """

    key: str
    kind: type[int] | type[float] | type[str] | type[bool] | None = None
    expected: str = ""
    example: str = ""
    low: float = 0
    high: float = 0
    above: bool = False
    pattern: str = ""
    size: bool = False
    label: str = ""
    help: str = ""
    silent: str = ""
    spelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    switch: bool = False
    negatable: bool = False
    many: bool = False

    @property
    def hint(self) -> str:
        return self.expected + self.help if self.help[:1] in (":", ",") else self.help

    def read(self, value: Scalar) -> Scalar:
        """The value in its own type, a bool as `on` or `off`. Raises ValueError, without a sentence, for anything
        else."""
        if self.kind is bool:
            return "on" if boolean(value) else OFF
        if value is None or isinstance(value, bool) or (self.kind is int and isinstance(value, float)):
            raise ValueError
        if self.kind is None:
            return value
        if self.kind is str:
            if re.fullmatch(self.pattern, str(value)) is None:
                raise ValueError
            return str(value)
        if isinstance(value, str) and not self.size and self.kind is int:
            number: object = parse_count(value)
        else:
            plain = value.strip().replace("_", "") if isinstance(value, str) else value
            number = parse_bytes(plain) if self.size else self.kind(plain)
        if not isinstance(number, (int, float)) or not number <= self.high:
            raise ValueError
        if not (number > self.low if self.above else number >= self.low):
            raise ValueError
        return number


def _count(key: str, high: int, example: int, **more: Any) -> Option:
    return Option(key, int, f"a whole number from 1 to {high:,}", str(example), 1, high, **more)


def _everywhere(name: str, *others: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(("vllm", "sglang", "trtllm", "llama-cpp"), (name, *others))


_TYPED: Final = (
    # Docker's rule for container names; 63 so that it also works as a host name.
    Option("name", str, "a container name of letters, digits, `_`, `.` and `-`", "qwen36-test",
           pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", label="container name",
           help="letters, digits, `_`, `.` and `-`", spelled={"vllm": ()}),
    Option("host", spelled=_everywhere("--host")),
    _count("port", 65535, 8000, label="port", help=": where this machine reaches the API",
           spelled=_everywhere("--port")),
    Option("tensor_parallel", spelled={
        "vllm": ("--tensor-parallel-size", "-tp"), "sglang": ("--tp", "--tp-size", "--tensor-parallel-size"),
        "trtllm": ("--tp_size",)}),
    Option("pipeline_parallel", spelled={"vllm": ("--pipeline-parallel-size", "-pp")}),
    Option("data_parallel", spelled={"vllm": ("--data-parallel-size", "-dp")}),
    Option("served_model_name", str, "a name without blanks or shell characters", "qwen36",
           pattern=r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,199}", label="served as", help=": clients ask for it",
           silent="the model", many=True, spelled={
               "vllm": ("--served-model-name",), "sglang": ("--served-model-name",),
               "trtllm": ("--served_model_name",), "llama-cpp": ("--alias", "-a")}),
    Option("dtype"),
    Option("quantization", spelled={"vllm": ("--quantization", "-q"), "sglang": ("--quantization",)}),
    Option("kv_cache_dtype", str, "a KV cache type of the engine", "fp8", pattern=r"[A-Za-z0-9_]{1,40}",
           label="KV cache type", help="auto (as the model), fp8, ...", silent="auto, or fp8",
           spelled={"vllm": ("--kv-cache-dtype",), "sglang": ("--kv-cache-dtype",)}),
    Option("gpu_memory_utilization", float, "a fraction above 0 and up to 1", "0.85", 0, 1, above=True,
           label="memory share", help=": of the unified memory", silent="default, e.g. 0.85",
           spelled={"vllm": ("--gpu-memory-utilization",), "sglang": ("--mem-fraction-static",)}),
    # vLLM has its own units for it, which change with capital letters: the command gets bytes.
    Option("kv_cache_memory_bytes", int, "a size from 1MiB to 1TiB", "12GiB", MIB, 1024**4, size=True,
           label="KV cache size", help=", e.g. 12GiB: overrides the memory share", silent="auto, e.g. 12GiB"),
    _count("max_model_len", 100_000_000, 65536, label="context tokens", help=", e.g. 64k",
           silent="model default, e.g. 64k", spelled={
               "vllm": ("--max-model-len",), "sglang": ("--context-length",), "trtllm": ("--max_seq_len",),
               "llama-cpp": ("--ctx-size", "-c")}),
    _count("max_num_seqs", 65536, 4, label="sequences", help=": concurrent requests", silent="default, e.g. 4",
           spelled={"vllm": ("--max-num-seqs",), "sglang": ("--max-running-requests",),
                    "trtllm": ("--max_batch_size",), "llama-cpp": ("--parallel", "-np")}),
    _count("max_num_batched_tokens", 100_000_000, 8192, label="batched tokens",
           help=": per pass, prompts and answers", silent="default, e.g. 8192",
           spelled={"vllm": ("--max-num-batched-tokens",), "trtllm": ("--max_num_tokens",)}),
    Option(METHOD, str, f"{OFF}, {', '.join(ALONE)}, or the method of the preset's own drafter", "mtp",
           pattern="|".join((OFF, *ALONE, *WITH_DRAFTER, "[a-z0-9_]{1,30}_mtp")),  # a name per family, all of them MTP
           label="speculation", silent=f"{OFF}, or mtp", spelled={"vllm": ()},
           help=f"{', '.join(ALONE)}, or {OFF}; with a drafter model: --speculative-config under more arguments"),
    _count(TOKENS, 64, 3, label="drafted tokens", help=": drafted ahead and verified in one pass",
       silent="model default, e.g. 3",
           spelled={"vllm": ()}),
    Option(TOOLS, bool, "on or off", "on", label="tool calls", help=": agents need them", silent="on where known",
           spelled={"vllm": ()}),
    Option("n_gpu_layers", spelled={"vllm": (), "llama-cpp": ("--n-gpu-layers", "-ngl", "--gpu-layers")}),
    Option("cache_type_k", spelled={"vllm": (), "llama-cpp": ("--cache-type-k", "-ctk")}),
    Option("cache_type_v", spelled={"vllm": (), "llama-cpp": ("--cache-type-v", "-ctv")}),
    Option("threads", spelled={"vllm": (), "llama-cpp": ("--threads", "-t")}),
    Option("batch_size", spelled={"vllm": (), "llama-cpp": ("--batch-size", "-b")}),
    Option("ubatch_size", spelled={"vllm": (), "llama-cpp": ("--ubatch-size", "-ub")}),
    Option("attention_backend", spelled={"vllm": ("--attention-backend",), "sglang": ("--attention-backend",)}),
    Option("reasoning_parser", spelled={
        "vllm": ("--reasoning-parser",), "sglang": ("--reasoning-parser",), "trtllm": ("--reasoning_parser",)}),
    Option("tool_call_parser", spelled={
        "vllm": ("--tool-call-parser",), "sglang": ("--tool-call-parser",), "trtllm": ("--tool_parser",)}),
    Option("speculative_config", spelled={"vllm": ("--speculative-config", "-sc")}),
    Option("compilation_config", spelled={"vllm": ("--compilation-config", "-cc")}),
    Option("enable_expert_parallel", switch=True, spelled={"vllm": ("--enable-expert-parallel", "-ep")}),
    *(Option(key, switch=True, negatable=True) for key in (
        "async_scheduling", "enable_chunked_prefill", "enable_flashinfer_autotune", "enable_prefix_caching",
        "scheduler_reserve_full_isl")),
    *(Option(key, switch=True) for key in (
        "disable_custom_all_reduce", "disable_log_requests", "disable_log_stats", "enable_auto_tool_choice",
        "enable_force_include_usage", "enable_log_requests", "enable_prompt_tokens_details",
        "enable_request_id_headers", "enforce_eager", "language_model_only", "trust_remote_code")),
)  # fmt: skip
# From these sparkrun 0.4.2 builds a vLLM command, in this order, and the switches after them.
_WRITTEN: Final = (
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
OPTIONS: Final[Mapping[str, Option]] = {
    **{key: Option(key) for key in _WRITTEN},
    **{option.key: option for option in _TYPED},
}
SETTABLE: Final = tuple(option.key for option in _TYPED if option.kind is not None)
"""Keys with a type and a range wherever they are written."""
VLLM_KEYS: Final = (*_WRITTEN, *sorted(key for key, option in OPTIONS.items() if option.switch))
"""vLLM's options, in the order in which people write them."""
CHECKED_IN_RECIPES: Final = ("port", "gpu_memory_utilization", "max_num_seqs", TOOLS)
"""The others may hold in a recipe what only the engine understands (`auto`, `128k`)."""


def spellings(key: str, runtime: str) -> tuple[str, ...]:
    """How a runtime spells an option, the first one to write; empty where it has none."""
    option = OPTIONS.get(key)
    if option is None:
        return ()
    if key in ("host", "port"):
        return option.spelled["vllm"]
    default = (("--" + key.replace("_", "-")),) if runtime == "vllm" else ()
    return option.spelled.get(runtime, default)


def keys_of(runtime: str) -> tuple[str, ...]:
    return tuple(key for key in OPTIONS if spellings(key, runtime))


def _by_spelling() -> dict[tuple[str, str], str]:
    runtimes = ("vllm", "sglang", "trtllm", "llama-cpp")
    return {
        (runtime, name.replace("_", "-")): key
        for runtime in runtimes
        for key in OPTIONS
        for name in spellings(key, runtime)
    }


_KEYS: Final = _by_spelling()


def key_of(word: str, runtime: str) -> str:
    """The key of an option as it is written (`--max_model_len`, `-tp`); unknown ones get one by the same rule."""
    name = word.replace("_", "-")
    return _KEYS.get((runtime, name)) or name.lstrip("-").replace("-", "_")


def boolean(value: Scalar) -> bool:
    """`yes`, `off`, `1`, ... Raises ValueError for anything else."""
    text = str(value).lower()
    if text not in (*TRUE, *FALSE):
        raise ValueError(text)
    return text in TRUE


# --- options whose value is JSON --------------------------------------------------------------------------


def json_object(text: str) -> Mapping[str, Any]:
    """A JSON object; empty for anything else, and for what is too long or too deep."""
    if len(text) > MAX_JSON_CHARS:
        return {}
    try:
        found = load_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def put(into: dict[str, Any], path: str, text: str) -> None:
    """Sets `a.b.c` of a JSON option, as vLLM reads `--option.a.b.c text`."""
    *folders, last = path.split(".")[:_MAX_DEPTH]
    for folder in folders:
        inner = into.get(folder)
        into[folder] = dict(inner) if isinstance(inner, dict) else {}
        into = into[folder]
    into[last] = text


def mappings_in(tree: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """A mapping and those within it, bounded in depth."""
    yield tree
    for value in tree.values():
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            yield from mappings_in(value, depth + 1)


def compact_json(config: Mapping[str, Any]) -> str:
    return json.dumps(config, separators=(",", ":"))


# --- invocation ------------------------------------------------------------------------------------------


_OPTION = re.compile(r"--?[A-Za-z]")
_NEGATIVE_NUMBER = re.compile(r"-\d[\d.]*")
_SUFFIXES: Final[Mapping[str, int]] = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}


class Argument(Struct, frozen=True):
    """One option as it is written (`--port 8000`, `--port=8000`, `-tp 2`), or a word by itself (no `key`).

    `value` is None where none is written; of several the first. `path` is the part after the dot of
    `--speculative-config.method`; `off` marks `--no-...`.
    """

    words: tuple[str, ...]
    key: str = ""
    value: str | None = None
    path: str = ""
    off: bool = False


class Invocation(Struct, frozen=True):
    """A command. `script` is the whole command of a shell script (`bash -c ...`): its options can be read, not
    changed, and `arguments` are those of its text."""

    arguments: tuple[Argument, ...] = ()
    runtime: str = "vllm"
    script: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The words, as they were written where nothing was changed."""
        return self.script or self.words

    @property
    def words(self) -> tuple[str, ...]:
        """The words that options are looked for in: the command's own, or those of its script."""
        return tuple(word for argument in self.arguments for word in argument.words)

    def value(self, key: str) -> str | None:
        """The value of an option, the last one where it is given twice; None where it is absent."""
        found = [each for each in self.arguments if each.key == key and not each.path and not each.off]
        return (found[-1].value or "") if found else None

    def number(self, key: str) -> float | None:
        """An option as a number, `64k` and `64K` as vLLM reads them; None where it is absent or no number."""
        return number_in(self.value(key) or "")

    def switch(self, key: str) -> bool | None:
        """Whether a switch is on; None where the command does not say. The last of several counts."""
        found = [each for each in self.arguments if each.key == key]
        return None if not found else not found[-1].off and str(found[-1].value).lower() not in ("false", "0")

    def json(self, key: str) -> Mapping[str, Any]:
        """A JSON option as a mapping, its dotted parts included; empty for what is no object."""
        found = dict(json_object(self.value(key) or ""))
        for argument in self.arguments:
            if argument.key == key and argument.path:
                put(found, argument.path, argument.value or "")
        return found

    def has(self, key: str) -> bool:
        """Whether the option is there in any spelling: negated, short, in dotted parts."""
        return any(argument.key == key for argument in self.arguments)

    def with_option(self, key: str, value: Scalar) -> Invocation:
        """The command with an option set, in place of an earlier one or at the end.

        A switch takes true or false; false removes it, and negates those that are on by themselves. Raises KeyError
        for an option that the runtime has not, ValueError for a switch that is neither true nor false.
        """
        names = spellings(key, self.runtime)
        if not names:
            raise KeyError(key)
        option = OPTIONS[key]
        if option.switch:
            on = boolean(value)
            rest = self.without(key).arguments
            negated = Argument(("--no-" + names[0][2:],), key, off=True)
            added = (Argument((names[0],), key),) if on else (negated,) if option.negatable else ()
            return replace(self, arguments=(*rest, *added))
        new = Argument((names[0], str(value)), key, str(value))
        kept: list[Argument] = []
        for argument in self.arguments:
            same = argument.key == key and not argument.path and not argument.off
            if not same:
                kept.append(argument)
            elif new not in kept:
                kept.append(new)
        return replace(self, arguments=tuple(kept) if new in kept else (*kept, new))

    def without(self, key: str) -> Invocation:
        return replace(self, arguments=tuple(each for each in self.arguments if each.key != key))

    def with_words(self, words: Iterable[str]) -> Invocation:
        return replace(self, arguments=(*self.arguments, *_arguments(tuple(words), self.runtime)))


@lru_cache(maxsize=128)  # planning, fitting and judging one launch read the same command ten times
def parse(argv: tuple[str, ...], runtime: str = "vllm") -> Invocation:
    """Reads a command. Any words make an invocation, and give the same words back."""
    return Invocation(_arguments(words_of(argv), runtime), runtime, argv if is_shell(argv) else ())


def number_in(text: str) -> float | None:
    """A number as vLLM reads it: `64k` is 64,000, `64K` 65,536; None for anything else."""
    if not (text := text.strip()):
        return None
    factor = _SUFFIXES.get(text[-1:], 1)
    match = re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", text[:-1] if factor > 1 else text, re.ASCII)
    return float(match[0]) * factor if match else None


def _arguments(words: tuple[str, ...], runtime: str) -> tuple[Argument, ...]:
    found: list[Argument] = []
    at = 0
    while at < len(words):
        taken = _argument(words, at, runtime)
        found.append(taken)
        at += len(taken.words)
    return tuple(found)


def _argument(words: tuple[str, ...], at: int, runtime: str) -> Argument:
    word = words[at]
    if _OPTION.match(word) is None:
        return Argument((word,))
    head, equals, attached = word.partition("=")
    name, dot, path = head.partition(".")
    key = key_of(name, runtime)
    option = OPTIONS.get(key)
    if option is None and key.startswith("no_"):
        return Argument((word,), key[3:], attached if equals else None, off=True)
    if equals or (option is not None and option.switch):
        return Argument((word,), key, attached if equals else None, path)
    following = words[at + 1 : at + 2]
    known = option is not None and not dot and bool(following) and not following[0].startswith("--")
    if not known and not (following and (following[0][:1] != "-" or _NEGATIVE_NUMBER.fullmatch(following[0]))):
        return Argument((word,), key, None, path)
    end = at + 2
    while option is not None and option.many and end < len(words) and not words[end].startswith("-"):
        end += 1
    return Argument(words[at:end], key, following[0], path)
