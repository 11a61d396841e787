"""Rules for lines on memory: CUDA graphs estimated and captured, the KV cache, utilization, padding.

They learn facts after the rules that move phases have run. Texts were read in vLLM 0.14 to 0.33.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.engine import boot_rules_engine as engine
from spark_tui.domain.engine import boot_rules_start as start
from spark_tui.domain.engine.boot_evidence import keep
from spark_tui.domain.engine.figures import NUMBER, number
from spark_tui.domain.engine.timeline import Topic

if TYPE_CHECKING:
    from spark_tui.domain.engine.boot import BootTracker

Rule = Callable[["BootTracker", str], None]

_SET_MODE = re.compile(r"setting cudagraph_mode=(\w{3,30})|[Oo]verriding (?:.{0,80} )?to ([A-Z_]{3,30})\b")
_PADDING = re.compile(rf"(?:Add \d{{1,6}} padding layers, may waste at most|Padding mamba page size by) {NUMBER}%")
_SHARE = r"(\d(?:\.\d{1,6})?)"
_EQUIVALENT = re.compile(rf"--gpu-memory-utilization={_SHARE} is equivalent to --gpu-memory-utilization={_SHARE}")
_KEEP = re.compile(rf"increas(?:e|ing) --gpu-memory-utilization (?:from {_SHARE} )?to {_SHARE}")
_POOL = re.compile(rf"\({NUMBER}/{NUMBER} GiB\)")
_POOL_MEMORY = re.compile(rf"CUDA graph pool memory: {NUMBER} GiB \(actual\), {NUMBER} GiB \(estimated\)")
_PER_REQUEST = re.compile(r"Maximum concurrency for (\d[\d,]{0,14}) tokens per request")
_BLOCK = re.compile(r"Setting attention block size to (\d{1,7}) tokens")
_PLAN = re.compile(rf"kv_cache_memory_bytes=(\d{{1,16}}) \({NUMBER} GiB\)")


# --- graphs -----------------------------------------------------------------------------------------------


def eager(boot: BootTracker, message: str) -> None:
    """No graphs by intent; or another mode than the one that was asked for."""
    start.eager(boot, message)
    if message.startswith("Enforce eager set"):
        keep(boot, Topic.EAGER, message)
    elif "verriding" in message:
        graph_mode(boot, message)


def overridden(boot: BootTracker, message: str) -> None:
    """`Pooling models do not support full cudagraphs. Overriding cudagraph_mode to PIECEWISE.` and its kin."""
    if "verriding cudagraph_mode" in message:
        graph_mode(boot, message)


def graph_mode(boot: BootTracker, message: str) -> None:
    """`CUDAGraphMode.X is not supported with ...; setting cudagraph_mode=PIECEWISE`."""
    match = _SET_MODE.search(message)
    if match:
        boot.learn(cudagraph_mode=match[1] or match[2])
        keep(boot, Topic.GRAPH_MODE, message)


def graph_sizes(boot: BootTracker, message: str) -> None:
    """Capture sizes were cut, or nothing is captured at all."""
    if message.startswith(
        ("Capping cudagraph capture sizes", "No valid cudagraph capture sizes", "Truncating max_cudagraph_capture")
    ):
        keep(boot, Topic.GRAPH_SIZES, message)
    elif message.startswith("Skipping CUDA graph capture"):
        boot.learn(cudagraph_mode=boot.facts.cudagraph_mode or "NONE")
        keep(boot, Topic.GRAPH_SIZES, message)


def skipping(boot: BootTracker, message: str) -> None:
    """`Skipping CUDA graph capture. ...`, or autotune that is off."""
    engine.skipping(boot, message)
    graph_sizes(boot, message)


def estimated(boot: BootTracker, message: str) -> None:
    """`Estimated CUDA graph memory: -0.17 GiB total`."""
    engine.estimated(boot, message)
    if message.startswith("Estimated CUDA graph memory"):
        keep(boot, Topic.GRAPH_ESTIMATE, message)


def captured(boot: BootTracker, message: str) -> None:
    """`Graph capturing finished in 2 secs, took 0.37 GiB`."""
    engine.captured(boot, message)
    if message.startswith("Graph capturing finished") and boot.facts.kv_tokens is not None:
        keep(boot, Topic.GRAPH_MEMORY, message)


def graph_memory(boot: BootTracker, message: str) -> None:
    """Whether the estimate counts, the utilization that makes up for it, and the comparison afterwards."""
    pool = _POOL_MEMORY.match(message)
    if pool:
        known = boot.facts
        boot.learn(
            graph_actual_gib=number(pool[1]) if known.graph_actual_gib is None else known.graph_actual_gib,
            graph_estimated_gib=number(pool[2]) if known.graph_estimated_gib is None else known.graph_estimated_gib,
        )
        keep(boot, Topic.GRAPH_MEMORY, message)
    elif "CUDA graph memory profiling" in message[:60]:
        _utilization(boot, message)
    elif message.startswith("CUDA graphs are not supported") and "verriding" in message:
        graph_mode(boot, message)


def _utilization(boot: BootTracker, message: str) -> None:
    equivalent, kept = _EQUIVALENT.search(message), _KEEP.search(message)
    learnt: dict[str, Any] = {"graph_estimate_applied": "profiling is enabled (" in message}
    asked = equivalent[1] if equivalent else kept[1] if kept else None
    if asked and boot.facts.gpu_memory_utilization is None:
        learnt["gpu_memory_utilization"] = float(asked)
    if equivalent:
        learnt["utilization_without_estimate"] = float(equivalent[2])
    if kept:
        learnt["utilization_with_estimate"] = float(kept[2])
    boot.learn(**learnt)
    keep(boot, Topic.UTILIZATION, message)


# --- memory -----------------------------------------------------------------------------------------------


def kv_size(boot: BootTracker, message: str) -> None:
    """`GPU KV cache size: 694,656 tokens`, and the line about concurrency."""
    engine.kv_size(boot, message)
    context = _PER_REQUEST.search(message)
    if context and boot.facts.max_model_len is None:
        boot.learn(max_model_len=int(context[1].replace(",", "")))
    if "KV cache size: " in message[:40] or message.startswith("Maximum concurrency for"):
        keep(boot, Topic.KV_SIZE, message)


def available(boot: BootTracker, message: str) -> None:
    """`Available KV cache memory: 64.69 GiB`."""
    engine.available(boot, message)
    if message.startswith("Available KV cache memory"):
        keep(boot, Topic.MEMORY, message)


def initial(boot: BootTracker, message: str) -> None:
    """`Initial free memory 31.16 GiB, reserved 4.25 GiB ...`: KV memory that was given rather than measured."""
    engine.initial(boot, message)
    if message.startswith("Initial free memory"):
        keep(boot, Topic.MEMORY, message)


def free(boot: BootTracker, message: str) -> None:
    """`Free memory on device cuda:0 (a/b GiB) on startup ...`, `Free memory grew by ...`."""
    pool = _POOL.search(message, 0, 120)
    if message.startswith("Free memory on device") and pool:
        boot.learn(device_gib=number(pool[2]))
        keep(boot, Topic.MEMORY, message)
    elif message.startswith("Free memory grew by"):
        keep(boot, Topic.MEMORY, message)


def persisted_plan(boot: BootTracker, message: str) -> None:
    """`Applying persisted startup plan (...): kv_cache_memory_bytes=N (X GiB), ...`."""
    plan = _PLAN.search(message)
    if message.startswith("Applying persisted startup plan") and plan:
        boot.learn(kv_gib=number(plan[2]))
        keep(boot, Topic.MEMORY, message)


def padding(boot: BootTracker, message: str) -> None:
    """`Add 3 padding layers, may waste at most 10.00% KV cache memory`."""
    if message.startswith("Add "):
        engine.profiling(boot, message)
    share = _PADDING.match(message)
    if share:
        boot.learn(padding_percent=max(number(share[1]), boot.facts.padding_percent or 0.0))
        keep(boot, Topic.PADDING, message)


def setting(boot: BootTracker, message: str) -> None:
    """`Setting attention block size to 2144 tokens ...`."""
    block = _BLOCK.match(message)
    if block:
        boot.learn(attention_block=int(block[1]))


_MODES: Final = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")

MEMORY_RULES: Final[dict[str, Rule]] = {
    "Enforce": eager,
    "Cudagraph": eager,
    "Dynamic": overridden,
    "Pooling": overridden,
    "Capping": graph_sizes,
    "Truncating": graph_sizes,
    "Skipping": skipping,
    "Estimated": estimated,
    "Graph": captured,
    "CUDA": graph_memory,
    "In": graph_memory,
    "GPU": kv_size,
    "CPU": kv_size,
    "XPU": kv_size,
    "Maximum": kv_size,
    "Available": available,
    "Initial": initial,
    "Free": free,
    "Applying": persisted_plan,
    "Add": padding,
    "Padding": padding,
    "Setting": setting,
    **{f"CUDAGraphMode.{mode}": graph_mode for mode in _MODES},
}
"""By first word."""
