"""Rules for SGLang, in outline. Texts were read in SGLang 0.4 to 0.5.23."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_tui.domain.logs.line import NUMBER, number
from spark_tui.domain.logs.timeline import PhaseId as P

if TYPE_CHECKING:
    from spark_tui.domain.logs.tracker import BootTracker

_ARGS = {
    "model": re.compile(r"model_path='([^']{1,300})'"),
    "quantization": re.compile(r"\bquantization='([^']{1,60})'"),
    "kv_cache_dtype": re.compile(r"kv_cache_dtype='([^']{1,30})'"),
    "speculation": re.compile(r"speculative_algorithm='([^']{1,40})'"),
}
_CONTEXT = re.compile(r"\bcontext_len(?:gth)?=(\d{1,12})\b")
_KV = re.compile(rf"#tokens: (\d{{1,15}})(?:, KV size: {NUMBER} GB|, K size: {NUMBER} GB, V size: {NUMBER} GB)?")
_LOAD = re.compile(rf"mem usage={NUMBER} GB")
_GRAPHS = re.compile(rf"mem usage={NUMBER} GB")


def arguments(boot: BootTracker, message: str) -> None:
    """`server_args=ServerArgs(model_path='...', ...)`, once for each start."""
    if not message.startswith("server_args=ServerArgs("):
        return
    boot.new_start(boot.record)
    boot.own_ready_line = True  # uvicorn is up before the model answers
    boot.phases.enter(P.CONFIG)
    found = {name: match[1] for name, pattern in _ARGS.items() if (match := pattern.search(message))}
    boot.learn(**{name: value for name, value in found.items() if value != "auto"})
    context = _CONTEXT.search(message)
    if context:
        boot.learn(max_model_len=int(context[1]))


def init(boot: BootTracker, message: str) -> None:
    """`Init torch distributed begin.`: a scheduler has begun."""
    if message.startswith("Init torch distributed begin"):
        boot.own_ready_line = True
        boot.phases.enter(P.ENGINE_INIT)


def load(boot: BootTracker, message: str) -> None:
    """`Load weight begin` and `end`."""
    if message.startswith("Load weight begin"):
        boot.own_ready_line = True
        boot.phases.enter(P.WEIGHTS)
    elif message.startswith("Load weight end"):
        boot.own_ready_line = True
        size = _LOAD.search(message)
        if size:
            boot.learn(load_gib=number(size[1]))
        boot.phases.finish(P.WEIGHTS, P.KV_CACHE, f"{size[1]} GB" if size else "")


def kv(boot: BootTracker, message: str) -> None:
    """`KV Cache is allocated. #tokens: 383872, KV size: 19.36 GB`, or K and V by themselves."""
    size = _KV.search(message)
    if message.startswith("KV Cache is allocated") and size:
        tokens = int(number(size[1]))
        boot.learn(kv_tokens=tokens)
        if size[2]:
            boot.learn(kv_gib=number(size[2]))
        elif size[3]:
            boot.learn(kv_gib=round(number(size[3]) + number(size[4]), 2))
        boot.phases.finish(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")


def capture(boot: BootTracker, message: str) -> None:
    """`Capture cuda graph begin` and `end`, a drafter's too."""
    if "graph begin" in message[:60]:
        boot.phases.enter(P.CAPTURE)
    elif "graph end" in message[:60]:
        size = _GRAPHS.search(message)
        if size:
            boot.learn(graph_actual_gib=round((boot.facts.graph_actual_gib or 0.0) + number(size[1]), 2))
        boot.phases.finish(P.CAPTURE, P.ENGINE_READY, f"{size[1]} GB" if size else "")


def totals(boot: BootTracker, message: str) -> None:
    """`max_total_num_tokens=2261377, ..., context_len=128000, ...`: a scheduler is done."""
    tokens, context = re.match(r"max_total_num_tokens=(\d{1,12}),", message), _CONTEXT.search(message)
    if tokens is None:
        return
    if boot.facts.kv_tokens is None:
        boot.learn(kv_tokens=int(tokens[1]))
    if context:
        boot.learn(max_model_len=int(context[1]))
    boot.phases.finish(P.ENGINE_READY, P.SERVER)
    boot.phases.prove(P.SERVER)


def fired_up(boot: BootTracker, message: str) -> None:
    """SGLang's word for ready."""
    if message.startswith("The server is fired up and ready to roll"):
        boot.ready_now()
