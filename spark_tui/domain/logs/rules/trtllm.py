"""Rules for TensorRT-LLM's PyTorch backend (`trtllm-serve`), in outline. Texts were read in 0.20 to 1.2.

Its word for ready is uvicorn's, as vLLM's: see boot_rules_engine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_tui.domain.logs.line import NUMBER, number
from spark_tui.domain.logs.timeline import PhaseId as P

if TYPE_CHECKING:
    from spark_tui.domain.logs.tracker import BootTracker

_ALLOCATED = re.compile(rf"Allocated {NUMBER} GiB for max tokens in paged KV cache \((\d{{1,12}})\)")
_WEIGHTS = re.compile(rf"Rank \d{{1,4}} uses {NUMBER} GB for model weights")


def version(boot: BootTracker, message: str) -> None:
    """`TensorRT-LLM version: 1.2.0`: every process says so."""
    if message.startswith("TensorRT-LLM version: ") and not boot.facts.version:
        boot.learn(version=message.rpartition(" ")[2][:60])
        boot.phases.enter(P.CONFIG)


def weights(boot: BootTracker, message: str) -> None:
    """`Rank 0 uses 8.46 GB for model weights.`, `Prefetching 17.31GB checkpoint files.`"""
    size = _WEIGHTS.match(message)
    if size or re.match(r"Prefetching [\d.]{1,12} ?GB checkpoint files", message):
        boot.phases.enter(P.WEIGHTS)
    if size and boot.facts.load_gib is None:
        boot.learn(load_gib=number(size[1]))


def allocated(boot: BootTracker, message: str) -> None:
    """`[MemUsageChange] Allocated 1.01 GiB for max tokens in paged KV cache (8256).`: first a small one that measures,
    then the real one, which counts."""
    size = _ALLOCATED.match(message)
    if size:
        tokens = int(size[2])
        boot.learn(kv_gib=number(size[1]), kv_tokens=tokens)
        boot.phases.finish(P.KV_CACHE, P.ENGINE_READY)
        boot.phases.describe(P.KV_CACHE, f"{tokens:,} tokens")


def graphs(boot: BootTracker, message: str) -> None:
    """`Creating CUDA graph instances for 32 batch sizes.`, `Run generation-only CUDA graph warmup for ...`"""
    if message.startswith(
        ("Creating CUDA graph instances", "Run generation-only CUDA graph warmup", "Run generation only")
    ):
        boot.phases.enter(P.CAPTURE)


def started(boot: BootTracker, message: str) -> None:
    """uvicorn begins when the model is loaded; vLLM has said so before, with more words."""
    if message.startswith("Started server process") and boot.phases.current in (P.CAPTURE, P.AUTOTUNE):
        boot.phases.enter(P.SERVER)
