"""Rules for TensorRT-LLM's PyTorch backend (`trtllm-serve`), in outline. Texts were read in 0.20 to 1.2.

It is ready when uvicorn is, as vLLM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from spark_tui.observe.explain.model.line import NUMBER, number
from spark_tui.observe.explain.model.rules import rule as r
from spark_tui.observe.explain.model.timeline import PhaseId as P


def version(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`TensorRT-LLM version: 1.2.0`: every process says so."""
    if not known.facts.version:
        yield r.NewStart("trtllm", first=False)
        yield r.learn(version=match[1])
        yield r.EnterPhase(P.CONFIG)


def weights(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`Rank 0 uses 8.46 GB for model weights.`"""
    yield r.EnterPhase(P.WEIGHTS)
    if known.facts.load_gib is None:
        yield r.learn(load_gib=number(match[1]))


def allocated(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`[MemUsageChange] Allocated 1.01 GiB for max tokens in paged KV cache (8256).`: first a small one that measures,
    then the real one, which counts."""
    tokens = int(match[2])
    yield r.learn(kv_gib=number(match[1]), kv_tokens=tokens)
    yield r.FinishPhase(P.KV_CACHE, P.ENGINE_READY)
    yield r.DescribePhase(P.KV_CACHE, f"{tokens:,} tokens")


_GRAPHS: Final = ("Creating CUDA graph instances", "Run generation-only CUDA graph warmup", "Run generation only")

TRTLLM: Final[r.Table] = r.table(
    ("TensorRT-LLM", r.found(r"TensorRT-LLM version: (?:.* )?(\S{1,60})$", version)),
    ("Rank", r.found(rf"Rank \d{{1,4}} uses {NUMBER} GB for model weights", weights)),
    ("Prefetching", r.found(r"Prefetching [\d.]{1,12} ?GB checkpoint files", lambda *_: (r.EnterPhase(P.WEIGHTS),))),
    ("Allocated", r.found(rf"Allocated {NUMBER} GiB for max tokens in paged KV cache \((\d{{1,12}})\)", allocated)),
    ("Max", r.when(("Max KV cache pages", "Max tokens in paged KV cache"), r.EnterPhase(P.KV_CACHE))),
    ("iter", r.when("iter = ", r.Signal.ANSWERS)),
    ("Creating Run", r.when(_GRAPHS, r.EnterPhase(P.CAPTURE))),
    ("Run", r.when("Run autotuning warmup", r.EnterPhase(P.AUTOTUNE))),
    ("Started", lambda message, known: (  # uvicorn begins when the model is loaded
        (r.EnterPhase(P.SERVER),)
        if message.startswith("Started server process") and known.phase in (P.CAPTURE, P.AUTOTUNE)
        else ()
    )),
    # under Triton: the C++ runtime's first lines, the table of loaded models, and a refused request
    ("Encountered", r.when("Encountered an error when fetching new request", r.Signal.ANSWERS)),
    ("MPI Engine", r.when(("MPI size: ", "Engine version "), r.EnterPhase(P.ENGINE_INIT))),
    ("loading:", r.when(("loading: tensorrt_llm", "loading: tensorrtllm"), r.EnterPhase(P.ENGINE_INIT))),
    ("|", r.found(r"\| tensorrt_llm +\| \d{1,4} +\| READY", lambda *_: (r.Signal.READY,))),
)  # fmt: skip
