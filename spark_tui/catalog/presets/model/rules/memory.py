"""Rules about the unified memory: the engine's share, its neighbours, the context, and what else draws from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from spark_tui.base.engine.invocation import mappings_in
from spark_tui.base.engine.runtimes import known_models
from spark_tui.base.quantities import GIB, human_bytes, short_tokens
from spark_tui.catalog.presets.model.overrides import SHARE_ALONE
from spark_tui.catalog.presets.model.rules.context import (
    ERROR,
    INFO,
    QWEN3_6,
    WARNING,
    LaunchContext,
    Matches,
    RuleMatch,
    RuleTable,
)

RULES: Final = RuleTable()

HEADROOM_BYTES: Final = 12 * GIB
"""Left to the system at a share of 0.90 of a GB10's 121.69 GiB."""
LEAST_BYTES: Final = 6 * GIB
"""vLLM's check at the start wants the whole share free: with less headroom it fails, or the machine freezes."""
_INTERACTIVE: Final = 4
_NANO_TESTED: Final = 8
_SHM_MANY: Final = 32 * GIB
_FAST_LOADER_LIMIT: Final = 0.8
_LARGE_BILLIONS: Final = 100
_READY_SECONDS: Final = 1800
_OFFLOADING: Final = ("cpu_offload_gb", "swap_space", "kv_offloading_size")


def default_share(launch: LaunchContext) -> float:
    """vLLM's own share where none is given: 0.9 up to 0.19.1, 0.92 since 0.20."""
    newest = launch.newest_vllm
    return 0.9 if newest is not None and newest < (0, 20, 0) else 0.92


def _best_share(launch: LaunchContext) -> float:
    """The share that this launch needs where that is known; else that for one engine: 0.85 of 128 GB, less where that
    leaves too little to the system."""
    most = 1 - HEADROOM_BYTES / launch.total
    if launch.share is not None and launch.share <= most:
        return launch.share
    return min(SHARE_ALONE, math.floor(most * 100) / 100)


@RULES.add(WARNING, "No memory share is set: vLLM takes almost the whole machine.", spark=True)
def utilization_unset(launch: LaunchContext) -> Matches:
    """The default asks for 112 of 121.69 GiB: it fails, or starves the machine. A cache of fixed size has a rule of
    its own, and a start script its own default."""
    given = launch.value("gpu_memory_utilization") or launch.value("kv_cache_memory_bytes")
    if given is not None or launch.variables:
        return
    share, alone = default_share(launch), _best_share(launch)
    yield RuleMatch(
        f"no --gpu-memory-utilization: {share} of the memory is {human_bytes(share * launch.total)}",
        launch.setting("gpu_memory_utilization", alone),
        remedy=f"Set gpu_memory_utilization={alone}, less with other engines.",
    )


@RULES.add(WARNING, "The memory share leaves too little to the system.", spark=True)
def utilization_high(launch: LaunchContext) -> Matches:
    """CPU and GPU share the memory: what the engine takes, the system does not have."""
    share = launch.number("gpu_memory_utilization")
    if share is None or share <= 1 - HEADROOM_BYTES / launch.total:
        return
    left, alone = max(0.0, 1 - share) * launch.total, _best_share(launch)
    yield RuleMatch(
        f"--gpu-memory-utilization {share}: {human_bytes(left)} left for everything else",
        launch.setting("gpu_memory_utilization", alone),
        ERROR if left < LEAST_BYTES and launch.is_spark is True else None,
        remedy=f"Set gpu_memory_utilization={alone}: without headroom a Spark freezes.",
    )


@RULES.add(WARNING, "--kv-cache-memory-bytes alone does not lower the memory vLLM needs free at start.", spark=True)
def kv_bytes_without_utilization(launch: LaunchContext) -> Matches:
    """The bytes size the KV cache; the check at the start still wants the share free (vLLM 0.33, request_memory)."""
    size, alone = launch.value("kv_cache_memory_bytes"), _best_share(launch)
    if size is not None and launch.value("gpu_memory_utilization") is None:
        yield RuleMatch(
            f"--kv-cache-memory-bytes {size}, no --gpu-memory-utilization",
            launch.setting("gpu_memory_utilization", alone),
            remedy=f"Set gpu_memory_utilization too, {alone} or less.",
        )


# --- context ----------------------------------------------------------------------------------------------


def _context(launch: LaunchContext) -> tuple[int, int, bool] | None:
    """Tokens that are asked for, tokens that the model was made for, and whether its own config says so."""
    asked, checkpoint = launch.integer("max_model_len"), launch.checkpoint
    own, certain = launch.preset.facts.context_tokens, False
    if checkpoint is not None and checkpoint.max_position_embeddings:
        own, certain, rope = checkpoint.max_position_embeddings, True, checkpoint.rope_scaling
        own = max(own, int((rope.factor or 1) * (rope.original or own)) if rope is not None else 0)
    return None if asked is None or own is None else (asked, own, certain)


def _yarn(launch: LaunchContext) -> Mapping[str, Any] | None:
    for key in ("hf_overrides", "rope_scaling"):
        for part in mappings_in(launch.json(key)):
            if str(part.get("rope_type") or part.get("type") or "").lower() == "yarn":
                return part
    return None


def _allows_long(launch: LaunchContext) -> bool:
    return launch.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").lower() in ("1", "true")


@RULES.add(WARNING, "The context is longer than the model's, and vLLM refuses that.")
def context_beyond_model(launch: LaunchContext) -> Matches:
    """vLLM refuses a context beyond the model's, unless YaRN stretches it or the variable allows it. A model that its
    makers serve so, with up to 1M tokens, needs the variable alone."""
    asked, own, certain = _context(launch) or (0, 0, False)
    if asked > own and not _yarn(launch) and not _allows_long(launch):
        allowed = asked <= 1 << 20 and launch.named(known_models().mark["long_by_variable"])
        yield RuleMatch(
            f"--max-model-len {asked}; the model has {own}",
            (("env.VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"),) if allowed else launch.setting("max_model_len", own),
            ERROR if certain else None,
            remedy="Set env.VLLM_ALLOW_LONG_MAX_MODEL_LEN=1: its makers allow up to 1M tokens by it alone."
            if allowed
            else f"Set max_model_len={own} or less, or stretch it: YaRN in --hf-overrides, with "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN set.",
        )


@RULES.add(WARNING, "The context is longer than the model's, without YaRN to stretch its positions.")
def long_context_without_yarn(launch: LaunchContext) -> Matches:
    """The variable only silences the check: rotary positions beyond training give noise."""
    asked, own, _ = _context(launch) or (0, 0, False)
    if (
        asked > own
        and not launch.named(known_models().mark["native_long"])
        and not _yarn(launch)
        and _allows_long(launch)
    ):
        yield RuleMatch(
            f"--max-model-len {asked}; the model has {own}; no YaRN in --hf-overrides",
            launch.setting("max_model_len", own),
            remedy=f"Add the model's YaRN settings with hf_overrides, or set max_model_len={own}.",
        )


@RULES.add(
    WARNING,
    "YaRN is on for a context that the model has without it.",
    "Remove it: it can reduce the quality of short inputs.",
)
def yarn_without_need(launch: LaunchContext) -> Matches:
    """Static YaRN stretches short inputs as well (the guide, 7.1.2)."""
    asked, own, _ = _context(launch) or (1, 0, False)
    yarn = _yarn(launch)
    if yarn is not None and asked <= own:
        yield RuleMatch(
            f"YaRN factor {yarn.get('factor')}; --max-model-len {asked} of {short_tokens(own)}",
            (("without", "hf_overrides,rope_scaling"),),
        )


@RULES.add(
    INFO,
    "These are values of an earlier community recipe, not NVIDIA's.",
    "NVIDIA's card has 0.85 and 65536 for a Spark.",
)
def qwen3_6_community_values(launch: LaunchContext) -> Matches:
    """The guide, 7.1.1: earlier recipes had 0.4 and 262144; NVIDIA's card has 0.85 and 65536."""
    share, context = launch.number("gpu_memory_utilization"), launch.integer("max_model_len")
    best, long = _best_share(launch), context is not None and context >= 262144
    low = share is not None and share <= 0.4 and share < best  # less where this launch needs no more
    if launch.named(QWEN3_6 + "-35b-a3b-nvfp4") and (low or long):
        higher = launch.setting("gpu_memory_utilization", best) if low else ()
        shorter = launch.setting("max_model_len", "65536") if long else ()
        yield RuleMatch(f"--gpu-memory-utilization {share}, --max-model-len {context}", (*higher, *shorter))


# --- what else takes memory or time -----------------------------------------------------------------------


@RULES.add(
    INFO,
    "This many sequences cost a single user memory and speed.",
    f"Set max_num_seqs={_INTERACTIVE} for interactive use.",
    spark=True,
)
def many_sequences(launch: LaunchContext) -> Matches:
    """Above about four the bandwidth is shared, not gained (the guide, section 8). NVIDIA tested Nano with eight.
    With speculation: see speculation_under_load."""
    sequences = launch.integer("max_num_seqs")
    tested = _NANO_TESTED if launch.named(r"nemotron-3-nano-30b-a3b-nvfp4") else _INTERACTIVE
    if sequences is not None and sequences > tested and launch.speculation is None and not launch.pools:
        yield RuleMatch(f"--max-num-seqs {sequences}", launch.setting("max_num_seqs", _INTERACTIVE))


@RULES.add(
    WARNING,
    "The shared memory may take half of the machine's memory.",
    "Remove shm_size from the recipe's executor_config: 10 GiB are enough for one GPU.",
    any_engine=True,
    spark=True,
)
def shm_large(launch: LaunchContext) -> Matches:
    """Shared memory is unified memory too: what it holds, weights and KV cache cannot use."""
    size = launch.spec.shm_size
    if size >= min(_SHM_MANY, launch.total // 2):
        yield RuleMatch(f"shm_size {human_bytes(size)}")


@RULES.add(
    WARNING,
    "Offloading to the CPU gains nothing on a Spark: both share one memory.",
    "Remove it, and lower the memory share or the context.",
    spark=True,
)
def offload_to_cpu(launch: LaunchContext) -> Matches:
    given = {key: launch.invocation.value(key) for key in _OFFLOADING}
    asked = {key: amount for key, amount in given.items() if amount not in (None, "0", "0.0")}
    if asked:
        flags = ", ".join(f"--{key.replace('_', '-')} {amount}" for key, amount in asked.items())
        yield RuleMatch(flags, (("without", ",".join(asked)),))


@RULES.add(
    WARNING,
    "fastsafetensors needs more memory than is free while it loads a model of this size.",
    "Remove --load-format.",
)
def fast_loader_too_large(launch: LaunchContext) -> Matches:
    """fastsafetensors needs weights and buffers at once; its users keep it to 0.8 of the memory."""
    size = launch.preset.facts.weights_bytes or 0
    if launch.value("load_format") == "fastsafetensors" and size > _FAST_LOADER_LIMIT * launch.total:
        evidence = f"--load-format fastsafetensors with {human_bytes(size)} of weights"
        yield RuleMatch(evidence, launch.without("load_format"))


@RULES.add(
    WARNING,
    "Sleep mode is not safe on a Spark: waking up can take down the machine.",
    "Remove it. To change models on request: spark-tui gateway",
    spark=True,
)
def sleep_mode(launch: LaunchContext) -> Matches:
    """vllm#50011: waking an engine can take down a GB10. Level 1 copies the weights within the same memory and frees
    nothing; a request to a sleeping engine crashes it (vllm#15483), and the endpoints take no key."""
    if launch.switch("enable_sleep_mode"):
        yield RuleMatch("--enable-sleep-mode", (("without", "enable_sleep_mode"),))


@RULES.add(
    WARNING, "vLLM may time out before a model of this size is loaded.", "Set env.VLLM_ENGINE_READY_TIMEOUT_S=3600."
)
def ready_timeout_short(launch: LaunchContext) -> Matches:
    """A 120B loads for 10 to 15 minutes, and vLLM gives up after ten by itself (vllm#48031)."""
    billions = (launch.preset.facts.total_parameters or 0) / 1e9
    text = launch.env.get("VLLM_ENGINE_READY_TIMEOUT_S", "")
    seconds = int(text[:9]) if text.isascii() and text.isdigit() else 0
    if billions >= _LARGE_BILLIONS and seconds < _READY_SECONDS:
        evidence = f"VLLM_ENGINE_READY_TIMEOUT_S {text or 'unset (600)'} with {billions:.0f} billion parameters"
        yield RuleMatch(evidence, (("env.VLLM_ENGINE_READY_TIMEOUT_S", "3600"),))
