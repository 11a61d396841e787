"""Rules about the one memory pool: the engine's share, its neighbours, the context, and what else draws from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from spark_tui.domain.presets import options as vllm
from spark_tui.domain.presets.options import mappings_in
from spark_tui.domain.presets.rules.context import QWEN3_6, Advice, Case, Rule, Severity
from spark_tui.domain.quantities import GIB, human_bytes, short_tokens

POOL_BYTES: Final = int(121.69 * GIB)
"""What vLLM logs as a GB10's whole memory. Older firmware has 119.69 GiB."""
SHARE_ALONE: Final = 0.85
"""The guide's value for one engine; 0.80 to 0.87 serve alone without starving the machine."""
SHARE_HIGH: Final = 0.90
SHARE_TOO_HIGH: Final = 0.95
"""It leaves 6 GiB to everything else; vLLM's check at the start wants the whole share free."""
SHARES_TOGETHER: Final = 0.92
_SMALLEST_SHARE: Final = 0.1
_INTERACTIVE: Final = 4
_NANO_TESTED: Final = 8
_SHM_MANY: Final = 32 * GIB
_FAST_LOADER_LIMIT: Final = 0.8
_LARGE_BILLIONS: Final = 100
_READY_SECONDS: Final = 1800
_OFFLOADING: Final = ("--cpu-offload-gb", "--swap-space", "--kv-offloading-size")
_NATIVE_LONG: Final = r"nemotron"
"""Their attention has no rotary positions to stretch: beyond the stated context they need the variable only."""


def default_share(case: Case) -> float:
    """vLLM's own share where none is given: 0.9 up to 0.19.1, 0.92 since 0.20."""
    newest = case.version_at_most
    return 0.9 if newest is not None and newest < (0, 20, 0) else 0.92


def _share(case: Case) -> float:
    given = case.number("--gpu-memory-utilization")
    return default_share(case) if given is None else given


def utilization_unset(case: Case) -> Advice | None:
    """The default asks for 112 of 121.69 GiB: it fails, or starves the machine."""
    if not case.is_vllm or not case.may_be_spark or case.option("--gpu-memory-utilization") is not None:
        return None
    if case.option("--kv-cache-memory-bytes") is not None or case.variables:
        return None  # told by kv_bytes_without_utilization; a start script has a default of its own
    share = default_share(case)
    return Advice(
        Severity.WARNING,
        "The memory share is left to vLLM, which takes almost the whole machine.",
        f"no --gpu-memory-utilization: {share} of the pool is {human_bytes(share * POOL_BYTES)}",
        f"Set gpu_memory_utilization={SHARE_ALONE}, less with other engines.",
        case.setting("gpu_memory_utilization", str(SHARE_ALONE)),
    )


def utilization_high(case: Case) -> Advice | None:
    """CPU and GPU share the pool: what the engine takes, the system lacks."""
    share = case.number("--gpu-memory-utilization")
    if not case.is_vllm or not case.may_be_spark or share is None or share <= SHARE_HIGH:
        return None
    hopeless = share > SHARE_TOO_HIGH and case.situation.is_spark is True
    return Advice(
        Severity.ERROR if hopeless else Severity.WARNING,
        "The memory share leaves too little to the system.",
        f"--gpu-memory-utilization {share}: {human_bytes(max(0.0, 1 - share) * POOL_BYTES)} remain for all else",
        f"Set gpu_memory_utilization={SHARE_ALONE}: without headroom a Spark freezes rather than reporting it.",
        case.setting("gpu_memory_utilization", str(SHARE_ALONE)),
    )


def engines_exceed_machine(case: Case) -> Advice | None:
    """Each share is a fraction of the whole machine, per engine."""
    neighbours = case.situation.neighbours_utilization
    if not case.is_vllm or not neighbours or not case.may_be_spark:
        return None
    own = _share(case)
    if own + neighbours <= SHARES_TOGETHER + 1e-9:
        return None
    left = math.floor((SHARE_ALONE - neighbours) * 100) / 100
    fits = left >= _SMALLEST_SHARE
    return Advice(
        Severity.ERROR if own + neighbours > 1 else Severity.WARNING,
        "The engines together ask for more than the machine has."
        if own + neighbours > 1
        else "The engines together leave too little to the system.",
        f"{own:.2f} for this one and {neighbours:.2f} for those that run: {own + neighbours:.2f} of the pool",
        f"Set gpu_memory_utilization={left:.2f} or less, or stop another engine."
        if fits
        else "Stop another engine first.",
        case.setting("gpu_memory_utilization", f"{left:.2f}") if fits else (),
    )


def kv_bytes_without_utilization(case: Case) -> Advice | None:
    """The bytes size the KV cache; the check at the start still wants the share free (vLLM 0.33, request_memory)."""
    if not case.is_vllm or not case.may_be_spark or case.option("--kv-cache-memory-bytes") is None:
        return None
    if case.option("--gpu-memory-utilization") is not None:
        return None
    return Advice(
        Severity.WARNING,
        "--kv-cache-memory-bytes alone does not lower what vLLM wants free at the start.",
        f"--kv-cache-memory-bytes {case.option('--kv-cache-memory-bytes')}, no --gpu-memory-utilization",
        f"Set gpu_memory_utilization too, {SHARE_ALONE} or less.",
        case.setting("gpu_memory_utilization", str(SHARE_ALONE)),
    )


# --- context ----------------------------------------------------------------------------------------------


def _own_context(case: Case) -> tuple[int | None, bool]:
    """Tokens that the model was made for, and whether its own config says so."""
    checkpoint = case.situation.checkpoint
    if checkpoint is None or not checkpoint.max_position_embeddings:
        return case.preset.facts.context_tokens, False
    own, rope = checkpoint.max_position_embeddings, checkpoint.rope_scaling
    stretched = (rope.factor or 1) * (rope.original or own) if rope is not None else 0
    return max(own, int(stretched)), True


def _yarn(case: Case) -> Mapping[str, Any] | None:
    """The YaRN settings of the command, if any."""
    for name in ("--hf-overrides", "--rope-scaling"):
        for part in mappings_in(case.parts(name)):
            if str(part.get("rope_type") or part.get("type") or "").lower() == "yarn":
                return part
    return None


def _allows_long(case: Case) -> bool:
    return case.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").lower() in ("1", "true")


def context_beyond_model(case: Case) -> Advice | None:
    """vLLM refuses a context beyond the model's, unless YaRN stretches it or the variable allows it."""
    own, certain = _own_context(case)
    asked = case.integer("--max-model-len")
    if not case.is_vllm or own is None or asked is None or asked <= own or _yarn(case) or _allows_long(case):
        return None
    return Advice(
        Severity.ERROR if certain else Severity.WARNING,
        "The context is longer than the model's, and vLLM refuses that.",
        f"--max-model-len {asked}; the model has {own}",
        f"Set max_model_len={own} or less, or stretch it: YaRN in --hf-overrides and VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        case.setting("max_model_len", str(own)),
    )


def long_context_without_yarn(case: Case) -> Advice | None:
    """The variable only silences the check: rotary positions beyond training give noise."""
    own, _ = _own_context(case)
    asked = case.integer("--max-model-len")
    if not case.is_vllm or own is None or asked is None or asked <= own or case.named(_NATIVE_LONG):
        return None
    if _yarn(case) or not _allows_long(case):
        return None
    return Advice(
        Severity.WARNING,
        "The context is longer than the model's, and nothing stretches its positions.",
        f"--max-model-len {asked}; the model has {own}; no YaRN in --hf-overrides",
        f"Add the model's YaRN settings with hf_overrides, or set max_model_len={own}.",
        case.setting("max_model_len", str(own)),
    )


def yarn_without_need(case: Case) -> Advice | None:
    """Static YaRN stretches short inputs as well (the guide, 7.1.2)."""
    own, _ = _own_context(case)
    asked = case.integer("--max-model-len")
    yarn = _yarn(case)
    if not case.is_vllm or yarn is None or asked is None or own is None or asked > own:
        return None
    return Advice(
        Severity.WARNING,
        "YaRN is on for a context that the model has without it.",
        f"YaRN factor {yarn.get('factor')}; --max-model-len {asked} of {short_tokens(own)}",
        "Take it out: it can dent the quality of short inputs.",
        (("without", "hf_overrides,rope_scaling"),),
    )


def qwen3_6_community_values(case: Case) -> Advice | None:
    """The guide, 7.1.1: earlier recipes had 0.4 and 262144; NVIDIA's card has 0.85 and 65536."""
    if not case.is_vllm or not case.named(QWEN3_6 + "-35b-a3b-nvfp4"):
        return None
    share, context = case.number("--gpu-memory-utilization"), case.integer("--max-model-len")
    low, long = share is not None and share <= 0.4, context is not None and context >= 262144
    if not low and not long:
        return None
    fix = (*(case.setting("gpu_memory_utilization", "0.85") if low else ()),)
    fix = (*fix, *(case.setting("max_model_len", "65536") if long else ()))
    return Advice(
        Severity.NOTE,
        "These are values of an earlier community recipe, not NVIDIA's.",
        f"--gpu-memory-utilization {share}, --max-model-len {context}",
        "NVIDIA's card has 0.85 and 65536 for a Spark.",
        fix,
    )


# --- what else takes memory or time -------------------------------------------------------------------------


def many_sequences(case: Case) -> Advice | None:
    """Above about four the bandwidth is shared, not gained (the guide, section 8). NVIDIA tested Nano with eight."""
    sequences = case.integer("--max-num-seqs")
    tested = _NANO_TESTED if case.named(r"nemotron-3-nano-30b-a3b-nvfp4") else _INTERACTIVE
    if not case.is_vllm or not case.may_be_spark or sequences is None or sequences <= tested:
        return None
    if case.speculation is not None:
        return None  # told by speculation_under_load
    return Advice(
        Severity.NOTE,
        "So many sequences are for serving many; for one person they cost memory and speed.",
        f"--max-num-seqs {sequences}",
        f"Set max_num_seqs={_INTERACTIVE} for interactive use.",
        case.setting("max_num_seqs", str(_INTERACTIVE)),
    )


def shm_large(case: Case) -> Advice | None:
    """Shared memory comes from the same pool; what lies there is gone for weights and KV cache."""
    size = case.situation.plan.spec.shm_size
    if size < _SHM_MANY or not case.may_be_spark:
        return None
    return Advice(
        Severity.WARNING,
        "The shared memory may take half of the pool.",
        f"shm_size {human_bytes(size)}",
        "Take shm_size out of the recipe's executor_config: 10 GiB are enough for one GPU.",
    )


def offload_to_cpu(case: Case) -> Advice | None:
    """CPU and GPU have one memory: nothing is won by moving weights or KV cache within it."""
    given = {name: vllm.option_value(case.words, name) for name in _OFFLOADING}
    asked = {name: amount for name, amount in given.items() if amount not in (None, "0", "0.0")}
    if not case.is_vllm or not case.may_be_spark or not asked:
        return None
    return Advice(
        Severity.WARNING,
        "Offloading to the CPU wins nothing on a Spark: both draw from one pool.",
        ", ".join(f"{name} {amount}" for name, amount in asked.items()),
        "Leave it out.",
        (("without", ",".join(name[2:].replace("-", "_") for name in asked)),),
    )


def fast_loader_too_large(case: Case) -> Advice | None:
    """fastsafetensors needs weights and buffers at once; its users keep it to 0.8 of the memory."""
    size = case.preset.facts.weights_bytes
    if not case.is_vllm or case.option("--load-format") != "fastsafetensors" or size is None:
        return None
    if size <= _FAST_LOADER_LIMIT * POOL_BYTES:
        return None
    return Advice(
        Severity.WARNING,
        "fastsafetensors needs more memory than is left while it loads a model of this size.",
        f"--load-format fastsafetensors with {human_bytes(size)} of weights",
        "Leave --load-format out.",
        case.without("load_format"),
    )


def sleep_mode(case: Case) -> Advice | None:
    """vllm#50011: waking an engine can take down a GB10."""
    if not case.is_vllm or not case.may_be_spark or not case.switch("--enable-sleep-mode"):
        return None
    return Advice(
        Severity.WARNING,
        "Sleep mode is not safe on a Spark: waking up can take down the machine.",
        "--enable-sleep-mode",
        "Leave it out; to free the memory, stop the engine and launch it again.",
        (("without", "enable_sleep_mode"),),
    )


def ready_timeout_short(case: Case) -> Advice | None:
    """A 120B loads for 10 to 15 minutes, and vLLM gives up after ten by itself (vllm#48031)."""
    billions = (case.preset.facts.total_parameters or 0) / 1e9
    if not case.is_vllm or billions < _LARGE_BILLIONS:
        return None
    text = case.env.get("VLLM_ENGINE_READY_TIMEOUT_S", "")
    if text.isascii() and text.isdigit() and int(text[:9]) >= _READY_SECONDS:
        return None
    return Advice(
        Severity.WARNING,
        "vLLM may give up before a model of this size is loaded.",
        f"VLLM_ENGINE_READY_TIMEOUT_S {text or 'unset (600)'} with {billions:.0f} billion parameters",
        "Set env.VLLM_ENGINE_READY_TIMEOUT_S=3600.",
        (("env.VLLM_ENGINE_READY_TIMEOUT_S", "3600"),),
    )


RULES: Final[Mapping[str, Rule]] = {
    "utilization_unset": utilization_unset,
    "utilization_high": utilization_high,
    "engines_exceed_machine": engines_exceed_machine,
    "kv_bytes_without_utilization": kv_bytes_without_utilization,
    "context_beyond_model": context_beyond_model,
    "long_context_without_yarn": long_context_without_yarn,
    "yarn_without_need": yarn_without_need,
    "qwen3_6_community_values": qwen3_6_community_values,
    "many_sequences": many_sequences,
    "shm_large": shm_large,
    "offload_to_cpu": offload_to_cpu,
    "fast_loader_too_large": fast_loader_too_large,
    "sleep_mode": sleep_mode,
    "ready_timeout_short": ready_timeout_short,
}
