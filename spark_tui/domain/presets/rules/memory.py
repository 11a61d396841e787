"""Rules about the unified memory: the engine's share, its neighbours, the context, and what else draws from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.options import mappings_in
from spark_tui.domain.presets.rules.context import QWEN3_6, LaunchContext, Rules
from spark_tui.domain.quantities import GIB, human_bytes, short_tokens

RULES = Rules()

SHARE_ALONE: Final = 0.85
"""The guide's value for one engine on 128 GB; 0.80 to 0.87 serve alone without starving the machine."""
HEADROOM_BYTES: Final = 12 * GIB
"""Left to the system at a share of 0.90 of a GB10's 121.69 GiB."""
LEAST_BYTES: Final = 6 * GIB
"""vLLM's check at the start wants the whole share free: with less headroom it fails, or the machine freezes."""
TOGETHER_BYTES: Final = int(9.7 * GIB)
_SMALLEST_SHARE: Final = 0.1
_INTERACTIVE: Final = 4
_NANO_TESTED: Final = 8
_SHM_MANY: Final = 32 * GIB
_FAST_LOADER_LIMIT: Final = 0.8
_LARGE_BILLIONS: Final = 100
_READY_SECONDS: Final = 1800
_OFFLOADING: Final = ("cpu_offload_gb", "swap_space", "kv_offloading_size")
_NATIVE_LONG: Final = r"nemotron"
"""Their attention has no rotary positions to stretch: beyond the declared context they need the variable only."""


def default_share(launch: LaunchContext) -> float:
    """vLLM's own share where none is given: 0.9 up to 0.19.1, 0.92 since 0.20."""
    newest = launch.newest_vllm
    return 0.9 if newest is not None and newest < (0, 20, 0) else 0.92


def share_alone(total: int) -> float:
    """The share for one engine: 0.85 of 128 GB, less where that leaves too little to the system."""
    return min(SHARE_ALONE, math.floor((1 - HEADROOM_BYTES / total) * 100) / 100)


def _share(launch: LaunchContext) -> float:
    given = launch.number("gpu_memory_utilization")
    return default_share(launch) if given is None else given


@RULES.add(spark=True)
def utilization_unset(launch: LaunchContext) -> Finding | None:
    """The default asks for 112 of 121.69 GiB: it fails, or starves the machine."""
    if launch.value("gpu_memory_utilization") is not None:
        return None
    if launch.value("kv_cache_memory_bytes") is not None or launch.variables:
        return None  # see kv_bytes_without_utilization; a start script has a default of its own
    share, alone = default_share(launch), share_alone(launch.total)
    return Finding(
        "utilization_unset",
        Severity.WARNING,
        "No memory share is set: vLLM takes almost the whole machine.",
        (f"no --gpu-memory-utilization: {share} of the memory is {human_bytes(share * launch.total)}",),
        f"Set gpu_memory_utilization={alone}, less with other engines.",
        launch.setting("gpu_memory_utilization", alone),
    )


@RULES.add(spark=True)
def utilization_high(launch: LaunchContext) -> Finding | None:
    """CPU and GPU share the memory: what the engine takes, the system does not have."""
    share = launch.number("gpu_memory_utilization")
    if share is None or share <= 1 - HEADROOM_BYTES / launch.total:
        return None
    left, alone = max(0.0, 1 - share) * launch.total, share_alone(launch.total)
    return Finding(
        "utilization_high",
        Severity.ERROR if left < LEAST_BYTES and launch.is_spark is True else Severity.WARNING,
        "The memory share leaves too little to the system.",
        (f"--gpu-memory-utilization {share}: {human_bytes(left)} left for everything else",),
        f"Set gpu_memory_utilization={alone}: without headroom a Spark freezes.",
        launch.setting("gpu_memory_utilization", alone),
    )


@RULES.add(spark=True)
def engines_exceed_machine(launch: LaunchContext) -> Finding | None:
    """Each share is a fraction of the whole machine, per engine."""
    neighbours, own = launch.neighbours_utilization, _share(launch)
    if not neighbours or own + neighbours <= 1 - TOGETHER_BYTES / launch.total:
        return None
    both = own + neighbours
    left = math.floor((share_alone(launch.total) - neighbours) * 100) / 100
    fits = left >= _SMALLEST_SHARE
    return Finding(
        "engines_exceed_machine",
        Severity.ERROR if both > 1 else Severity.WARNING,
        f"The engines together {'need more than the machine has' if both > 1 else 'leave too little to the system'}.",
        (f"{own:.2f} for this one and {neighbours:.2f} for the running ones: {both:.2f} of the memory",),
        f"Set gpu_memory_utilization={left:.2f} or less, or stop another engine." if fits else "Stop another engine.",
        launch.setting("gpu_memory_utilization", f"{left:.2f}") if fits else (),
    )


@RULES.add(spark=True)
def kv_bytes_without_utilization(launch: LaunchContext) -> Finding | None:
    """The bytes size the KV cache; the check at the start still wants the share free (vLLM 0.33, request_memory)."""
    size = launch.value("kv_cache_memory_bytes")
    if size is None or launch.value("gpu_memory_utilization") is not None:
        return None
    alone = share_alone(launch.total)
    return Finding(
        "kv_bytes_without_utilization",
        Severity.WARNING,
        "--kv-cache-memory-bytes alone does not lower the memory vLLM needs free at start.",
        (f"--kv-cache-memory-bytes {size}, no --gpu-memory-utilization",),
        f"Set gpu_memory_utilization too, {alone} or less.",
        launch.setting("gpu_memory_utilization", alone),
    )


# --- context ----------------------------------------------------------------------------------------------


def _own_context(launch: LaunchContext) -> tuple[int | None, bool]:
    """Tokens that the model was made for, and whether its own config says so."""
    checkpoint = launch.checkpoint
    if checkpoint is None or not checkpoint.max_position_embeddings:
        return launch.preset.facts.context_tokens, False
    own, rope = checkpoint.max_position_embeddings, checkpoint.rope_scaling
    stretched = (rope.factor or 1) * (rope.original or own) if rope is not None else 0
    return max(own, int(stretched)), True


def _yarn(launch: LaunchContext) -> Mapping[str, Any] | None:
    """The YaRN settings of the command, if any."""
    for key in ("hf_overrides", "rope_scaling"):
        for part in mappings_in(launch.json(key)):
            if str(part.get("rope_type") or part.get("type") or "").lower() == "yarn":
                return part
    return None


def _allows_long(launch: LaunchContext) -> bool:
    return launch.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").lower() in ("1", "true")


@RULES.add()
def context_beyond_model(launch: LaunchContext) -> Finding | None:
    """vLLM refuses a context beyond the model's, unless YaRN stretches it or the variable allows it."""
    (own, certain), asked = _own_context(launch), launch.integer("max_model_len")
    if own is None or asked is None or asked <= own or _yarn(launch) or _allows_long(launch):
        return None
    return Finding(
        "context_beyond_model",
        Severity.ERROR if certain else Severity.WARNING,
        "The context is longer than the model's, and vLLM refuses that.",
        (f"--max-model-len {asked}; the model has {own}",),
        f"Set max_model_len={own} or less, or stretch it: YaRN in --hf-overrides and VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        launch.setting("max_model_len", own),
    )


@RULES.add()
def long_context_without_yarn(launch: LaunchContext) -> Finding | None:
    """The variable only silences the check: rotary positions beyond training give noise."""
    (own, _), asked = _own_context(launch), launch.integer("max_model_len")
    if own is None or asked is None or asked <= own or launch.named(_NATIVE_LONG):
        return None
    if _yarn(launch) or not _allows_long(launch):
        return None
    return Finding(
        "long_context_without_yarn",
        Severity.WARNING,
        "The context is longer than the model's, without YaRN to stretch its positions.",
        (f"--max-model-len {asked}; the model has {own}; no YaRN in --hf-overrides",),
        f"Add the model's YaRN settings with hf_overrides, or set max_model_len={own}.",
        launch.setting("max_model_len", own),
    )


@RULES.add()
def yarn_without_need(launch: LaunchContext) -> Finding | None:
    """Static YaRN stretches short inputs as well (the guide, 7.1.2)."""
    (own, _), asked, yarn = _own_context(launch), launch.integer("max_model_len"), _yarn(launch)
    if yarn is None or asked is None or own is None or asked > own:
        return None
    return Finding(
        "yarn_without_need",
        Severity.WARNING,
        "YaRN is on for a context that the model has without it.",
        (f"YaRN factor {yarn.get('factor')}; --max-model-len {asked} of {short_tokens(own)}",),
        "Remove it: it can reduce the quality of short inputs.",
        (("without", "hf_overrides,rope_scaling"),),
    )


@RULES.add()
def qwen3_6_community_values(launch: LaunchContext) -> Finding | None:
    """The guide, 7.1.1: earlier recipes had 0.4 and 262144; NVIDIA's card has 0.85 and 65536."""
    share, context = launch.number("gpu_memory_utilization"), launch.integer("max_model_len")
    low, long = share is not None and share <= 0.4, context is not None and context >= 262144
    if not launch.named(QWEN3_6 + "-35b-a3b-nvfp4") or not (low or long):
        return None
    return Finding(
        "qwen3_6_community_values",
        Severity.INFO,
        "These are values of an earlier community recipe, not NVIDIA's.",
        (f"--gpu-memory-utilization {share}, --max-model-len {context}",),
        "NVIDIA's card has 0.85 and 65536 for a Spark.",
        (
            *(launch.setting("gpu_memory_utilization", "0.85") if low else ()),
            *(launch.setting("max_model_len", "65536") if long else ()),
        ),
    )


# --- what else takes memory or time -------------------------------------------------------------------------


@RULES.add(spark=True)
def many_sequences(launch: LaunchContext) -> Finding | None:
    """Above about four the bandwidth is shared, not gained (the guide, section 8). NVIDIA tested Nano with eight."""
    sequences = launch.integer("max_num_seqs")
    tested = _NANO_TESTED if launch.named(r"nemotron-3-nano-30b-a3b-nvfp4") else _INTERACTIVE
    if sequences is None or sequences <= tested or launch.speculation is not None:
        return None  # with speculation: see speculation_under_load
    return Finding(
        "many_sequences",
        Severity.INFO,
        "This many sequences cost a single user memory and speed.",
        (f"--max-num-seqs {sequences}",),
        f"Set max_num_seqs={_INTERACTIVE} for interactive use.",
        launch.setting("max_num_seqs", _INTERACTIVE),
    )


@RULES.add(any_engine=True, spark=True)
def shm_large(launch: LaunchContext) -> Finding | None:
    """Shared memory is unified memory too: what it holds, weights and KV cache cannot use."""
    size = launch.spec.shm_size
    if size < min(_SHM_MANY, launch.total // 2):
        return None
    return Finding(
        "shm_large",
        Severity.WARNING,
        "The shared memory may take half of the machine's memory.",
        (f"shm_size {human_bytes(size)}",),
        "Remove shm_size from the recipe's executor_config: 10 GiB are enough for one GPU.",
    )


@RULES.add(spark=True)
def offload_to_cpu(launch: LaunchContext) -> Finding | None:
    """CPU and GPU have one memory: moving weights or KV cache within it gains nothing."""
    given = {key: launch.invocation.value(key) for key in _OFFLOADING}
    asked = {key: amount for key, amount in given.items() if amount not in (None, "0", "0.0")}
    if not asked:
        return None
    return Finding(
        "offload_to_cpu",
        Severity.WARNING,
        "Offloading to the CPU gains nothing on a Spark: both share one memory.",
        (", ".join(f"--{key.replace('_', '-')} {amount}" for key, amount in asked.items()),),
        "Remove it, and lower the memory share or the context.",
        (("without", ",".join(asked)),),
    )


@RULES.add()
def fast_loader_too_large(launch: LaunchContext) -> Finding | None:
    """fastsafetensors needs weights and buffers at once; its users keep it to 0.8 of the memory."""
    size = launch.preset.facts.weights_bytes
    if launch.value("load_format") != "fastsafetensors" or size is None or size <= _FAST_LOADER_LIMIT * launch.total:
        return None
    return Finding(
        "fast_loader_too_large",
        Severity.WARNING,
        "fastsafetensors needs more memory than is free while it loads a model of this size.",
        (f"--load-format fastsafetensors with {human_bytes(size)} of weights",),
        "Remove --load-format.",
        launch.without("load_format"),
    )


@RULES.add(spark=True)
def sleep_mode(launch: LaunchContext) -> Finding | None:
    """vllm#50011: waking an engine can take down a GB10."""
    if not launch.switch("enable_sleep_mode"):
        return None
    return Finding(
        "sleep_mode",
        Severity.WARNING,
        "Sleep mode is not safe on a Spark: waking up can take down the machine.",
        ("--enable-sleep-mode",),
        "Remove it; to free the memory, stop the engine and launch it again.",
        (("without", "enable_sleep_mode"),),
    )


@RULES.add()
def ready_timeout_short(launch: LaunchContext) -> Finding | None:
    """A 120B loads for 10 to 15 minutes, and vLLM gives up after ten by itself (vllm#48031)."""
    billions = (launch.preset.facts.total_parameters or 0) / 1e9
    text = launch.env.get("VLLM_ENGINE_READY_TIMEOUT_S", "")
    if billions < _LARGE_BILLIONS or (text.isascii() and text.isdigit() and int(text[:9]) >= _READY_SECONDS):
        return None
    return Finding(
        "ready_timeout_short",
        Severity.WARNING,
        "vLLM may time out before a model of this size is loaded.",
        (f"VLLM_ENGINE_READY_TIMEOUT_S {text or 'unset (600)'} with {billions:.0f} billion parameters",),
        "Set env.VLLM_ENGINE_READY_TIMEOUT_S=3600.",
        (("env.VLLM_ENGINE_READY_TIMEOUT_S", "3600"),),
    )
