"""Failures for want of memory. On a Spark one pool serves CPU and GPU: the page cache and neighbours count too."""

from __future__ import annotations

import math
import re
from typing import Final

from spark_tui.domain.logs.causes.cause import Advice, CauseId, Evidence, Rule, rule, version_of
from spark_tui.domain.logs.line import NUMBER
from spark_tui.domain.logs.timeline import PhaseId

FREE_MEMORY: Final = "Free the page cache (key D, or `spark-tui drop-caches`) and stop what else holds memory"
HEADROOM_SHARE: Final = 0.03
HEADROOM_GIB: Final = 2.0
"""Left free below what is free now: memory keeps moving, and a Spark that runs out freezes."""
LOWEST_UTILIZATION: Final = 0.1
HIGHEST_UTILIZATION: Final = 0.9
"""Not proposed above this: the rest of the pool is the operating system's."""
ROOM_FOR_KV_GIB: Final = 2.0
STEP_DOWN: Final = 0.05

_LOADING = (PhaseId.CONTAINER, PhaseId.CONFIG, PhaseId.ENGINE_INIT, PhaseId.DOWNLOAD, PhaseId.WEIGHTS)
_LOADING_FRAME = re.compile(r", in (?:load_model|load_weights)\b")
_WARMUP_FRAME = re.compile(
    r", in (?!load_)\w+$|, in (?:profile|_dummy|capture|compile|initialize|kernel|determine)", re.M
)
_TRIED = re.compile(r"Tried to allocate ([\d.]{1,12} [KMGT]iB)")
_CAPACITY = re.compile(rf"total capacity of {NUMBER} GiB of which ([\d.]{{1,12}} [KMGT]iB) is free")
_ESTIMATE = re.compile(r"estimated maximum model length is (\d{1,12})")


def utilization_that_fits(free_gib: float, total_gib: float) -> float | None:
    """The share of `total_gib` that fits into `free_gib` with headroom, rounded down to 1 %; None when too little."""
    if total_gib <= 0:
        return None
    headroom = max(HEADROOM_GIB, HEADROOM_SHARE * total_gib)
    share = math.floor((free_gib - headroom) / total_gib * 100) / 100
    return min(share, HIGHEST_UTILIZATION) if share >= LOWEST_UTILIZATION else None


def asked_utilization(evidence: Evidence) -> float | None:
    """What the engine was given, or else vLLM's own default: 0.9, and 0.92 since 0.20."""
    try:
        given = float(evidence.asked.get("gpu_memory_utilization", ""))
    except ValueError:
        version = version_of(evidence)
        return None if version is None else 0.92 if version >= (0, 20) else 0.9
    return given if 0 < given <= 1 else None


def free_memory(match: re.Match[str], _evidence: Evidence) -> Advice:
    """Less is free at the start than the engine wants for itself."""
    free, total, share, wanted = (float(match[at]) for at in range(1, 5))
    fits = utilization_that_fits(free, total)
    summary = f"vLLM asked for {wanted:g} GiB ({share:g} of {total:g} GiB), and only {free:g} GiB were free."
    if fits is None or fits >= share:
        return Advice(summary, f"{FREE_MEMORY}, then start again: what is free now is too little for any engine.")
    remedy = f"{FREE_MEMORY}, or start with gpu_memory_utilization={fits:g}, which fits what was free."
    return Advice(summary, remedy, (("gpu_memory_utilization", f"{fits:g}"),))


def memory_changed(match: re.Match[str], _evidence: Evidence) -> Advice:
    """Somebody else freed memory while vLLM measured its own use."""
    before, now = match[1] or "?", match[2] or "?"
    return Advice(
        f"Free memory changed while vLLM measured it ({before} GiB at first, {now} GiB later), so that it gave up.",
        "Start again once nothing else is starting, stopping or loading on this machine; let an engine that was "
        "just stopped give its memory back first (a minute or more), and free the page cache before (key D).",
    )


def no_kv_room(_match: re.Match[str], evidence: Evidence) -> Advice:
    """Weights and working memory already fill the engine's share."""
    asked, room = asked_utilization(evidence), evidence.facts.kv_gib
    missing = f" ({room:g} GiB)" if room is not None and room < 0 else ""
    summary = f"After the weights nothing{missing} is left of the engine's share of memory for the KV cache."
    override: tuple[tuple[str, str], ...] = ()
    remedy = "Give the engine a larger share (gpu_memory_utilization), or choose a smaller or more quantized model"
    if asked is not None and evidence.pool_gib and room is not None:
        wanted = math.ceil((asked + (ROOM_FOR_KV_GIB - min(room, 0.0)) / evidence.pool_gib) * 100) / 100
        if asked < wanted <= HIGHEST_UTILIZATION:
            override = (("gpu_memory_utilization", f"{wanted:g}"),)
            remedy = f"Give the engine a larger share: gpu_memory_utilization={wanted:g} instead of {asked:g}"
    return Advice(summary, f"{remedy}. {FREE_MEMORY} first.", override)


def kv_too_small(match: re.Match[str], evidence: Evidence) -> Advice:
    """One request of the full context needs more than there is."""
    length, needed, available = int(match[1]), float(match[2]), float(match[3])
    estimate = _ESTIMATE.search(match.string)
    fits = int(estimate[1]) if estimate else int(length * available / needed) // 1024 * 1024 if needed > 0 else 0
    knob = "kv_cache_memory_bytes" if "kv_cache_memory_bytes" in evidence.asked else "gpu_memory_utilization"
    summary = f"A context of {length:,} tokens needs {needed:g} GiB of KV cache; {available:g} GiB are available."
    if not 0 < fits < length:
        return Advice(summary, f"Raise {knob}, or ask for a shorter max_model_len. {FREE_MEMORY} first.")
    remedy = f"Start with max_model_len={fits}, which fits, or raise {knob}."
    return Advice(summary, remedy, (("max_model_len", str(fits)),))


def mamba_blocks(match: re.Match[str], _evidence: Evidence) -> Advice:
    """Each sequence of a Mamba hybrid takes one block."""
    asked, blocks = int(match[1]), int(match[2])
    summary = f"{asked} sequences at once need as many Mamba cache blocks; there is room for {blocks}."
    override = (("max_num_seqs", str(blocks)),) if blocks > 0 else ()
    return Advice(
        summary, f"Start with max_num_seqs={max(blocks, 1)} or less, or raise gpu_memory_utilization.", override
    )


def warming_up(match: re.Match[str], evidence: Evidence) -> Advice:
    """The dummy requests of the warm-up did not fit."""
    requests = int(match[1])
    fewer = max(1, requests // 2)
    summary = f"Memory ran out while vLLM warmed up with {requests} requests at once."
    if fewer == requests:
        return _less_memory(summary, evidence)
    remedy = f"Start with max_num_seqs={fewer} or a lower gpu_memory_utilization."
    return Advice(summary, remedy, (("max_num_seqs", str(fewer)),))


def out_of_memory(match: re.Match[str], evidence: Evidence) -> Advice:
    """CUDA or the host has no more to give; what helps depends on when."""
    figures = _figures(evidence.text or match.string)
    if evidence.ready:
        return _less_memory(f"Memory ran out while the engine was serving{figures}.", evidence)
    if not while_loading(evidence):
        return _less_memory(f"Memory ran out after the weights were loaded, in the warm-up{figures}.", evidence)
    size = evidence.facts.checkpoint_gib
    weights = f" The checkpoint has {size:g} GiB." if size else ""
    return Advice(
        f"Memory ran out while the engine loaded its weights{figures}.{weights}",
        f"{FREE_MEMORY}; if it still does not fit, choose a smaller or more quantized model. An engine that has just "
        "stopped gives its memory back only after a minute or more.",
    )


def while_loading(evidence: Evidence) -> bool:
    """Whether weights were still being read, by the frame that failed or else by the phase."""
    if _LOADING_FRAME.search(evidence.text):
        return True
    if _WARMUP_FRAME.search(evidence.text):
        return False
    return evidence.phase is None or evidence.phase in _LOADING


def _figures(text: str) -> str:
    tried, capacity = _TRIED.search(text), _CAPACITY.search(text)
    asked = f"{tried[1]} were asked for" if tried else ""
    left = f"{capacity[2]} of {capacity[1]} GiB were free" if capacity else ""
    both = " and ".join(part for part in (asked, left) if part)
    return f": {both}" if both else ""


def _less_memory(summary: str, evidence: Evidence) -> Advice:
    asked = asked_utilization(evidence)
    lower = None if asked is None else round(asked - STEP_DOWN, 2)
    if lower is None or lower < LOWEST_UTILIZATION:
        return Advice(summary, f"{FREE_MEMORY}, or start with a lower gpu_memory_utilization or fewer max_num_seqs.")
    remedy = (
        f"Start with gpu_memory_utilization={lower:g} (it was {asked:g}) or fewer max_num_seqs. {FREE_MEMORY} first."
    )
    return Advice(summary, remedy, (("gpu_memory_utilization", f"{lower:g}"),))


def ollama_memory(match: re.Match[str], _evidence: Evidence) -> Advice:
    """Ollama compares before it loads."""
    return Advice(
        f"The model needs {match[1]} of memory; {match[2]} are available.", f"{FREE_MEMORY}, or choose a smaller model."
    )


def sglang_memory(_match: re.Match[str], _evidence: Evidence) -> Advice:
    """SGLang's own word for no room after the weights."""
    return Advice(
        "After the weights nothing is left of the engine's share of memory for the KV cache.",
        f"Raise SGLang's --mem-fraction-static, or choose a smaller model. {FREE_MEMORY} first.",
    )


OUT_OF_MEMORY: Final = (
    r"out of memory|OutOfMemoryError|OUT_OF_MEMORY|not enough GPU memory|cudaErrorMemoryAllocation|std::bad_alloc"
    r"|\bMemoryError\b|Cannot allocate memory|NV_ERR_NO_MEMORY|unable to allocate \w+ (?:backend )?buffer"
)

MEMORY_RULES: Final[tuple[Rule, ...]] = (
    rule(
        CauseId.FREE_MEMORY_BELOW_UTILIZATION,
        rf"Free memory on device (?:[\w:]{{1,20}} )?\({NUMBER}/{NUMBER} GiB\) on startup is less than "
        rf"[^(]{{1,120}}\({NUMBER}, {NUMBER} GiB\)",
        free_memory,
    ),
    rule(
        CauseId.MEMORY_CHANGED_WHILE_PROFILING,
        rf"Error in memory profiling(?:\.\s+Initial free memory {NUMBER}(?: GiB)?, current free memory {NUMBER})?",
        memory_changed,
    ),
    rule(CauseId.NO_KV_ROOM, r"No available memory for the cache blocks", no_kv_room),
    rule(CauseId.NO_KV_ROOM, r"Not enough memory\. Please try to increase --mem-fraction-static", sglang_memory),
    rule(
        CauseId.KV_CACHE_TOO_SMALL,
        rf"max seq len \((\d{{1,12}})\).{{1,40}}?\(?{NUMBER} GiB KV cache is needed, which is larger than the "
        rf"available KV cache memory \({NUMBER} GiB\)",
        kv_too_small,
    ),
    rule(
        CauseId.KV_CACHE_TOO_SMALL,
        r"max_num_seqs \((\d{1,9})\) exceeds available Mamba cache blocks \((\d{1,9})\)",
        mamba_blocks,
    ),
    rule(
        CauseId.OUT_OF_MEMORY_WARMUP,
        r"out of memory occurred when warming up .{1,80}? with (\d{1,9}) dummy requests",
        warming_up,
    ),
    rule(
        CauseId.OUT_OF_MEMORY_LOADING,
        r"model requires more system memory \(([\d.]{1,12} \w{1,3})\) than is available \(([\d.]{1,12} \w{1,3})\)",
        ollama_memory,
    ),
    Rule(CauseId.OUT_OF_MEMORY_LOADING, re.compile(OUT_OF_MEMORY), out_of_memory, by_phase=True),
)
"""In the order in which they are tried."""
