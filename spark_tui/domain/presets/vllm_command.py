"""vLLM's command line: options by their recipe keys, and reading and changing them in a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.domain.presets.preset import Scalar

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


def option(argv: tuple[str, ...], name: str) -> str | None:
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
    return next((value for name in names if (value := option(argv, name)) is not None), None)


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
