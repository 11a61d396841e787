"""Rules for SGLang, in outline. Texts were read in SGLang 0.4 to 0.5.23."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.line import NUMBER, number
from spark_tui.observe.explain.model.rules import rule as r
from spark_tui.observe.explain.model.serving import RETRACTED
from spark_tui.observe.explain.model.timeline import PhaseId as P
from spark_tui.observe.explain.model.timeline import Topic

_ARGS: Final = {
    "model": lazy_pattern(r"model_path='([^']{1,300})'"),
    "quantization": lazy_pattern(r"\bquantization='([^']{1,60})'"),
    "kv_cache_dtype": lazy_pattern(r"kv_cache_dtype='([^']{1,30})'"),
    "speculation": lazy_pattern(r"speculative_algorithm='([^']{1,40})'"),
}
_CONTEXT: Final = lazy_pattern(r"\bcontext_len(?:gth)?=(\d{1,12})\b")
_SIZE: Final = lazy_pattern(rf"mem usage={NUMBER} GB")


def arguments(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`server_args=ServerArgs(model_path='...', ...)`, once for each start."""
    yield r.NewStart("sglang")
    yield r.Signal.OWN_READY_LINE  # uvicorn is up before the model answers
    yield r.EnterPhase(P.CONFIG)
    yield r.learn(**r.fields_in(_ARGS, match.string), **_context(match.string))


def _context(message: str) -> dict[str, Any]:
    context = _CONTEXT.search(message)
    return {"max_model_len": int(context[1])} if context else {}


def loaded(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`Load weight end. ... mem usage=8.80 GB.`"""
    yield r.Signal.OWN_READY_LINE
    size = _SIZE.search(match.string)
    if size:
        yield r.learn(load_gib=number(size[1]))
    yield r.FinishPhase(P.WEIGHTS, P.KV_CACHE, f"{size[1]} GB" if size else "")


def kv_size(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`KV Cache is allocated. #tokens: 383872, KV size: 19.36 GB`, or K and V by themselves."""
    tokens = int(match[1])
    yield r.learn(kv_tokens=tokens)
    if match[2]:
        yield r.learn(kv_gib=number(match[2]))
    elif match[3]:
        yield r.learn(kv_gib=round(number(match[3]) + number(match[4]), 2))
    yield r.FinishPhase(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")


def capture(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Capture cuda graph begin` and `end`, a drafter's too."""
    if "graph begin" in message[:60]:
        yield r.EnterPhase(P.CAPTURE)
    elif "graph end" in message[:60]:
        size = _SIZE.search(message)
        if size:
            yield r.learn(graph_actual_gib=round((known.facts.graph_actual_gib or 0.0) + number(size[1]), 2))
        yield r.FinishPhase(P.CAPTURE, P.ENGINE_READY, f"{size[1]} GB" if size else "")


def totals(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`max_total_num_tokens=2261377, ..., context_len=128000, ...`: a scheduler is done."""
    if known.facts.kv_tokens is None:
        yield r.learn(kv_tokens=int(match[1]))
    yield r.learn(**_context(match.string))
    yield r.FinishPhase(P.ENGINE_READY, P.SERVER, proven=True)


def batch(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Decode batch, #running-req: 4, ...` of a server that serves, and requests that its full cache pushed out. The
    warm-up has such lines before it is ready."""
    served = message.startswith(("Decode batch", *RETRACTED))
    if not known.own_ready_line and (served or message.startswith("Prefill batch")):
        yield r.Signal.ANSWERS
    if served:
        yield r.Interval(message)


SGLANG: Final[r.Table] = r.table(
    ("Decode Prefill KV", batch),
    ("server_args=", r.found(r"server_args=ServerArgs\(", arguments)),
    ("Init", r.when("Init torch distributed ", r.Signal.OWN_READY_LINE, r.EnterPhase(P.ENGINE_INIT))),  # begin, ends
    ("sglang", r.found("sglang is using nccl==", lambda m, known: (r.wait(Topic.NCCL_WAIT, m.string, known),))),
    ("Load", r.when("Load weight begin", r.Signal.OWN_READY_LINE, r.EnterPhase(P.WEIGHTS))),
    ("Load", r.found("Load weight end", loaded)),
    ("KV", r.found(
        rf"KV Cache is allocated.*?#tokens: (\d{{1,15}})(?:, KV size: {NUMBER} GB|"
        rf", K size: {NUMBER} GB, V size: {NUMBER} GB)?",
        kv_size,
    )),
    ("Prefill Decode", r.when(("Prefill transfer failed for", "Decode transfer failed for"), r.Signal.ANSWERS)),
    ("Allocating", r.found(  # HiCache's, in the machine's memory
        r"Allocating .{1,20} host memory for hierarchical KV cache", lambda *_: (r.EnterPhase(P.KV_CACHE),)
    )),
    ("Capture", capture),
    ("max_total_num_tokens=", r.found(r"max_total_num_tokens=(\d{1,12}),", totals)),
    ("The", r.when("The server is fired up and ready to roll", r.Signal.READY)),
    ("SIGTERM Gracefully", r.when(("SIGTERM received", "Gracefully exiting"), r.Signal.STOPPED)),
    ("Received", r.when("Received sigquit from a child proces", r.Broken.CHILD_DIED)),
)  # fmt: skip
