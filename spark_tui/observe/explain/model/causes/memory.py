"""Failures for want of memory. On a Spark one pool serves CPU and GPU: page cache and other processes count too."""

from __future__ import annotations

import math
import re
from typing import Final

from spark_tui.base.finding import Finding
from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.causes.cause import FailureContext, fix, setting
from spark_tui.observe.explain.model.line import NUMBER
from spark_tui.observe.explain.model.sizing import HIGHEST_UTILIZATION, default_utilization
from spark_tui.observe.explain.model.timeline import PhaseId

FREE_MEMORY: Final = "Free the page cache (key D, or `spark-tui drop-caches`) and stop other processes that use memory"
HEADROOM_SHARE: Final = 0.03
HEADROOM_GIB: Final = 2.0
"""Left free below what is free now: memory keeps moving, and a Spark that runs out freezes."""
LOWEST_UTILIZATION: Final = 0.1
ROOM_FOR_KV_GIB: Final = 2.0
STEP_DOWN: Final = 0.05

_LOADING: Final = (PhaseId.CONTAINER, PhaseId.CONFIG, PhaseId.ENGINE_INIT, PhaseId.DOWNLOAD, PhaseId.WEIGHTS)
_LOADING_FRAME: Final = lazy_pattern(r", in (?:load_model|load_weights)\b")
_WARMUP_FRAME: Final = lazy_pattern(
    r", in (?!load_)\w+$|, in (?:profile|_dummy|capture|compile|initialize|kernel|determine)", re.M
)
_WARMING: Final = lazy_pattern(
    r"buffer for kv cache|compute (?:pp )?buffers|initialize the context|(?:Prefill|Decode) out of memory|"
    r"[Cc]apture (?:CUDA|cuda) graph|warm(?:ing)?[ _-]?up|while profiling|while running the model"
)
_AFTER_LOADING: Final = lazy_pattern(r"/mem_cache/|memory_pool|cuda_graph|kv_cache|/resource_manager\.py")
"""Files that run when the weights are there."""
_TRIED: Final = lazy_pattern(r"Tried to allocate ([\d.]{1,12} [KMGT]iB)")
_CAPACITY: Final = lazy_pattern(rf"total capacity of {NUMBER} GiB of which ([\d.]{{1,12}} [KMGT]iB) is free")
_ESTIMATE: Final = lazy_pattern(r"estimated maximum model length is (\d{1,12})")


def utilization_that_fits(free_gib: float, total_gib: float) -> float | None:
    """The share of `total_gib` that fits into `free_gib` with headroom, rounded down to 1 %; None when too little."""
    if total_gib <= 0:
        return None
    headroom = max(HEADROOM_GIB, HEADROOM_SHARE * total_gib)
    share = math.floor((free_gib - headroom) / total_gib * 100) / 100
    return min(share, HIGHEST_UTILIZATION) if share >= LOWEST_UTILIZATION else None


def asked_utilization(context: FailureContext) -> float | None:
    try:
        given = float(context.asked.get("gpu_memory_utilization", ""))
    except ValueError:
        return default_utilization(context.facts)
    return given if 0 < given <= 1 else None


def free_memory(match: re.Match[str], _context: FailureContext) -> Finding:
    free, total, share, wanted = (float(match[at]) for at in range(1, 5))
    fits = utilization_that_fits(free, total)
    summary = f"vLLM needs {wanted:g} GiB ({share:g} of {total:g} GiB); only {free:g} GiB were free."
    if fits is None or fits >= share:
        return fix(summary, f"{FREE_MEMORY}. Free memory is too small for any engine.")
    remedy = f"{FREE_MEMORY}, or set gpu_memory_utilization={fits:g}, which would have fitted."
    return setting(summary, remedy, "gpu_memory_utilization", fits)


def no_kv_room(_match: re.Match[str], context: FailureContext) -> Finding:
    """Weights and working memory already fill the engine's share."""
    asked, room = asked_utilization(context), context.facts.kv_gib
    missing = f" ({room:g} GiB)" if room is not None and room < 0 else ""
    summary = f"No memory left for the KV cache{missing}: weights fill the engine's memory share."
    if asked is not None and context.pool_gib and room is not None:
        wanted = math.ceil((asked + (ROOM_FOR_KV_GIB - min(room, 0.0)) / context.pool_gib) * 100) / 100
        if asked < wanted <= HIGHEST_UTILIZATION:
            remedy = f"Set gpu_memory_utilization={wanted:g} (was {asked:g}). {FREE_MEMORY} first."
            return setting(summary, remedy, "gpu_memory_utilization", wanted)
    return fix(
        summary, f"Raise gpu_memory_utilization, or choose a smaller or more quantized model. {FREE_MEMORY} first."
    )


def kv_too_small(match: re.Match[str], context: FailureContext) -> Finding:
    length, needed, available = int(match[1]), float(match[2]), float(match[3])
    estimate = _ESTIMATE.search(match.string)
    fits = int(estimate[1]) if estimate else int(length * available / needed) // 1024 * 1024 if needed > 0 else 0
    key = "kv_cache_memory_bytes" if "kv_cache_memory_bytes" in context.asked else "gpu_memory_utilization"
    summary = f"A context of {length:,} tokens needs {needed:g} GiB of KV cache; {available:g} GiB are available."
    if not 0 < fits < length:
        return fix(summary, f"Raise {key}, or lower max_model_len. {FREE_MEMORY} first.")
    return setting(summary, f"Set max_model_len={fits}, which fits, or raise {key}.", "max_model_len", fits)


def warming_up(match: re.Match[str], context: FailureContext) -> Finding:
    requests = int(match[1])
    fewer = max(1, requests // 2)
    summary = f"Out of memory during warm-up with {requests} requests."
    if fewer == requests:
        return _less_memory(summary, context)
    return setting(
        summary, f"Set max_num_seqs={fewer}, or lower gpu_memory_utilization or max_model_len.", "max_num_seqs", fewer
    )


def out_of_memory(match: re.Match[str], context: FailureContext) -> Finding:
    """CUDA or the host has no more to give; what helps depends on when."""
    figures = _figures(context.text or match.string)
    if context.ready:
        return _less_memory(f"Out of memory while the engine was serving{figures}.", context)
    if not while_loading(context):
        return _less_memory(f"Out of memory during warm-up, after loading the weights{figures}.", context)
    size = context.facts.checkpoint_gib
    weights = f" Checkpoint: {size:g} GiB." if size else ""
    return fix(
        f"Out of memory while loading the weights{figures}.{weights}",
        f"{FREE_MEMORY}. A stopped engine releases its memory after a minute or more. If it still does not fit, choose "
        f"a smaller or more quantized model{context.names.offload}.",
    )


def while_loading(context: FailureContext) -> bool:
    """Whether weights were still being read, by the frame that failed or else by the phase."""
    if _LOADING_FRAME.search(context.text):
        return True
    if _AFTER_LOADING.search(context.module) or _WARMUP_FRAME.search(context.text) or _WARMING.search(context.text):
        return False
    return context.phase is None or context.phase in _LOADING


def _figures(text: str) -> str:
    tried, capacity = _TRIED.search(text), _CAPACITY.search(text)
    parts = [f"{tried[1]} requested"] if tried else []
    parts += [f"{capacity[2]} of {capacity[1]} GiB free"] if capacity else []
    return f" ({', '.join(parts)})" if parts else ""


def _less_memory(summary: str, context: FailureContext) -> Finding:
    names = context.names
    asked = asked_utilization(context) if context.engine in ("", "vllm") else None
    lower = None if asked is None else round(asked - STEP_DOWN, 2)
    if lower is None or lower < LOWEST_UTILIZATION:
        share = "" if names.memory in names.less else f"{names.memory}, "
        return fix(summary, f"Lower {share}{names.less}. {FREE_MEMORY} first.")
    remedy = f"Set {names.memory}={lower:g} (was {asked:g}), or lower {names.less}. {FREE_MEMORY} first."
    return setting(summary, remedy, "gpu_memory_utilization", lower)


OUT_OF_MEMORY: Final = (
    r"out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|OUT_OF_MEMORY|not enough GPU memory|"
    r"cudaErrorMemoryAllocation|std::bad_alloc|NVML_SUCCESS == r INTERNAL ASSERT|\bMemoryError\b|"
    r"(?<!failed with error )Cannot allocate memory|NV_ERR_NO_MEMORY|ErrorOutOf(?:Device|Host|Pool)Memory|"
    r"VK_ERROR_OUT_OF_\w{1,20}|Device memory allocation of size \d{1,15} failed|"
    r"unable to allocate \w+ (?:backend )?buffer|failed to allocate (?:compute|buffer for|\w+ buffer)"
)
