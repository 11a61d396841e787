"""Rules for llama.cpp's server, in outline. Texts were read in builds b3500 to b10689.

It writes the function's name in front of each line; with `--log-timestamps` also its own time and level.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_tui.domain.logs.line import NUMBER, number
from spark_tui.domain.logs.rules import vllm as failure
from spark_tui.domain.logs.timeline import PhaseId as P

if TYPE_CHECKING:
    from spark_tui.domain.logs.tracker import BootTracker

_BUILD = re.compile(r"(?:build(?:_info)?: |common_params_print_info: build )b?(\d{1,6})")
_MODEL = re.compile(r"load_model: loading model '([^']{1,300})'")
_URL = re.compile(r"server is listening on (https?://\S{1,100})")
_BUFFER = re.compile(rf"load_tensors: +\S{{1,40}} model buffer size = +{NUMBER} MiB")
_LAYERS = re.compile(r"load_tensors: offloaded (\d{1,5}/\d{1,5}) layers to GPU")
_CACHE = re.compile(rf"llama_kv_cache\w{{0,20}}: size = +{NUMBER} MiB \( *(\d{{1,12}}) cells")
_CONTEXT = re.compile(r"n_ctx += (\d{1,12})$")
_INFO = re.compile(r"print_info: (arch|file type|file size|general\.name) += (.{1,120})")
_MIB = 1024


def build(boot: BootTracker, message: str) -> None:
    """`build: 9421 (ed7be1568) with GNU 13.3.0 for Linux aarch64`."""
    match = _BUILD.match(message)
    if match and not boot.facts.version:
        boot.learn(version=f"b{match[1]}")
        boot.phases.enter(P.CONFIG)


def main(boot: BootTracker, message: str) -> None:
    """What the program itself says: that it loads, that it has loaded, that it listens."""
    failure.ends(boot, message)
    if message.startswith(("main: loading model", "srv")) and "loading model" in message[:60]:
        boot.phases.enter(P.WEIGHTS)
        model = _MODEL.search(message)
        if model and not boot.facts.model:
            boot.learn(model=model[1])
    elif "model loaded" in message[:60]:
        boot.ready_now()
    elif url := _URL.search(message, 0, 200):
        boot.learn(url=url[1])
        if "starting the main loop" in message:
            boot.ready_now()


def tensors(boot: BootTracker, message: str) -> None:
    """`load_tensors: ...`: the weights."""
    boot.phases.enter(P.WEIGHTS)
    if buffer := _BUFFER.match(message):
        boot.learn(load_gib=round((boot.facts.load_gib or 0.0) + number(buffer[1]) / _MIB, 2))
    elif layers := _LAYERS.match(message):
        boot.phases.report(P.WEIGHTS, detail=f"{layers[1]} layers on the GPU")


def context(boot: BootTracker, message: str) -> None:
    """`llama_context: constructing llama_context`: the weights are in; `n_ctx = 65536`."""
    if "constructing llama_context" in message[:80]:
        gib = boot.facts.load_gib
        boot.phases.finish(P.WEIGHTS, P.KV_CACHE, f"{gib:g} GiB" if gib is not None else "")
    elif size := _CONTEXT.search(message, 0, 120):
        boot.learn(max_model_len=int(size[1]))


def cache(boot: BootTracker, message: str) -> None:
    """`llama_kv_cache: size = 384.00 MiB (  4096 cells, ...`: models with windows have two caches."""
    size = _CACHE.match(message)
    if size:
        tokens = max(int(size[2]), boot.facts.kv_tokens or 0)
        boot.learn(kv_tokens=tokens, kv_gib=round((boot.facts.kv_gib or 0.0) + number(size[1]) / _MIB, 2))
        boot.phases.finish(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")


def warm_up(boot: BootTracker, message: str) -> None:
    """`common_init_from_params: warming up the model with an empty run`."""
    failure.ends(boot, message)
    if "warming up the model" in message[:80]:
        boot.phases.enter(P.ENGINE_READY)


def info(boot: BootTracker, message: str) -> None:
    """`print_info: file type = Q4_K - Medium`: what the file says of itself."""
    match = _INFO.match(message)
    if match is None:
        return
    value = match[2].strip()
    if match[1] == "arch":
        boot.learn(architecture=value)
    elif match[1] == "file type":
        boot.learn(quantization=value)
    elif match[1] == "general.name" and not boot.facts.model:
        boot.learn(model=value)
    elif size := re.match(rf"{NUMBER} GiB", value):
        boot.learn(checkpoint_gib=number(size[1]))
