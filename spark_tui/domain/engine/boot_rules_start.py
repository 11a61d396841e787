"""Rules for the first half of a start: banner, config, engine, kernels, weights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_tui.domain.engine.figures import BAR, GIB, NUMBER, bar_left, number, share
from spark_tui.domain.engine.timeline import PhaseId as P

if TYPE_CHECKING:
    from spark_tui.domain.engine.boot import BootTracker

_VERSION = re.compile(r"\bversion (\S{1,60}?),?(?:\s|$)")
_SERVING = re.compile(r"\b(?:serving model|model  ) ?(\S{1,300})")
_ARGS = {
    "model": re.compile(r"'model': '([^']{1,300})'"),
    "quantization": re.compile(r"'quantization': '([^']{1,60})'"),
    "kv_cache_dtype": re.compile(r"'kv_cache_dtype': '([^']{1,30})'"),
    "method": re.compile(r"'speculative_config': \{[^}]{0,400}?'method': '([^']{1,40})'"),
    "draft": re.compile(r"'speculative_config': \{[^}]{0,400}?'num_speculative_tokens': (\d{1,4})"),
}
_CONFIG = {
    "model": re.compile(r"\bmodel='([^']{1,300})'"),
    "quantization": re.compile(r"\bquantization=([\w.\-]{1,60})"),
    "kv_cache_dtype": re.compile(r"\bkv_cache_dtype=([\w.]{1,30})"),
    "method": re.compile(r"speculative_config=SpeculativeConfig\([^)]{0,600}?method='([^']{1,40})'"),
    "draft": re.compile(r"speculative_config=SpeculativeConfig\([^)]{0,900}?num_spec_tokens=(\d{1,4})"),
}
_ENGINE_VERSION = re.compile(r"\(v([^)]{1,60})\)")
_MAX_LENGTH = re.compile(r"\bmax_seq_len=(\d{1,12})")
_LINEAR = re.compile(r"Using (\S{1,80}) for (?:NVFP4|MXFP4) GEMM")
_MOE = re.compile(
    r"Using '?(.{1,60}?)'? (?:(?:Nv|Mx)Fp4|Mxfp4) MoE backend|Using (.{1,60}?) backend for (?:Nv|Mx)Fp4 MoE"
)
_ATTENTION = re.compile(
    r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]{2,60}) (?:attention backend out of|backend\.?$)"
)


# --- config and engine ------------------------------------------------------------------------------------


def banner(boot: BootTracker, message: str) -> None:
    """`version 0.20.2` and `model   X` on rows of the logo, or in one sentence."""
    version = _VERSION.search(message)
    if version:
        boot.new_start(boot.record)
        boot.phases.enter(P.CONFIG)
        boot.learn(version=version[1])
    serving = _SERVING.search(message)
    if serving:
        boot.learn(model=serving[1])


def arguments(boot: BootTracker, message: str) -> None:
    """`non-default args: {...}`."""
    if message.startswith("non-default args: "):
        boot.phases.enter(P.CONFIG)
        boot.learn(**_read(_ARGS, message))


def _read(patterns: dict[str, re.Pattern[str]], message: str) -> dict[str, Any]:
    found = {name: match[1] for name, pattern in patterns.items() if (match := pattern.search(message))}
    method, draft = found.pop("method", ""), found.pop("draft", "")
    if method:
        found["speculation"] = f"{method} {draft}".strip()
    return {name: value for name, value in found.items() if value not in ("None", "auto")}


def resolved(boot: BootTracker, message: str) -> None:
    """The first architecture is the model's, a second one its drafter's."""
    if message.startswith("Resolved architecture: ") and not boot.facts.architecture:
        boot.learn(architecture=message.removeprefix("Resolved architecture: ")[:120])


def using(boot: BootTracker, message: str) -> None:
    """`Using X for NVFP4 GEMM` and its many sisters."""
    if message.startswith("Using max model len "):
        figure = message.rsplit(" ", 1)[-1]
        if figure.isascii() and figure.isdigit() and len(figure) < 12:
            boot.learn(max_model_len=int(figure))
    elif message.startswith("Using cache directory"):
        boot.phases.enter(P.COMPILE)
    elif message.startswith("Using FlashInfer autotune cache"):
        boot.autotune()
    elif (linear := _LINEAR.match(message)) and not boot.facts.fp4_linear:
        boot.learn(fp4_linear=linear[1])
    elif (moe := _MOE.match(message)) and not boot.facts.fp4_moe:
        boot.learn(fp4_moe=moe[1] or moe[2])
    elif (attention := _ATTENTION.match(message)) and not boot.facts.attention:
        boot.learn(attention=attention[1])


def eager(boot: BootTracker, message: str) -> None:
    """No torch.compile and no CUDA graphs."""
    if message.startswith(("Enforce eager set", "Cudagraph is disabled under eager")):
        boot.learn(eager=True)


def initializing(boot: BootTracker, message: str) -> None:
    """`Initializing a V1 LLM engine (v0.20.2) with config: ...`."""
    if "LLM engine (v" not in message[:60]:
        return
    boot.phases.enter(P.ENGINE_INIT)
    version, length = _ENGINE_VERSION.search(message), _MAX_LENGTH.search(message)
    if version:
        boot.learn(version=version[1])
    if length:
        boot.learn(max_model_len=int(length[1]))
    boot.learn(**_read(_CONFIG, message))


# --- weights ----------------------------------------------------------------------------------------------


def starting(boot: BootTracker, message: str) -> None:
    """Loading, compiling or serving begins."""
    if message.startswith("Starting to load model"):
        boot.phases.enter(P.WEIGHTS)
    elif message.startswith("Starting torch.compile"):
        boot.phases.enter(P.COMPILE)
    elif message.startswith(("Starting vLLM server on ", "Starting vLLM API server ")):
        listens(boot, message.rsplit(" ", 1)[-1])


def listens(boot: BootTracker, url: str) -> None:
    """The server is being set up, at a URL."""
    boot.phases.enter(P.SERVER)
    boot.learn(url=url[:120])
    boot.phases.report(P.SERVER, detail=boot.facts.url)


def rust(boot: BootTracker, message: str) -> None:
    """`starting OpenAI server bind_address=0.0.0.0:8000 model=...`: the Rust front end's words for it."""
    address = re.match(r"starting OpenAI server bind_address=(\S{1,100})", message)
    if address:
        boot.own_ready_line = True
        listens(boot, f"http://{address[1]}")


def supported(boot: BootTracker, message: str) -> None:
    """`Supported tasks: ['generate']`: the first that the API server says once the engine core is up."""
    if message.startswith("Supported tasks: ") and boot.facts.kv_tokens is not None:
        boot.phases.enter(P.SERVER)


def time_spent(boot: BootTracker, message: str) -> None:
    """The log is silent while weights download, and says so afterwards."""
    seconds = re.search(rf": {NUMBER} seconds", message)
    if message.startswith("Time spent downloading weights") and seconds:
        boot.phases.enter(P.WEIGHTS)
        boot.phases.note_past(P.DOWNLOAD, number(seconds[1]), within=P.WEIGHTS)


def filesystem(boot: BootTracker, message: str) -> None:
    """How large the checkpoint is."""
    size = re.search(rf"Checkpoint size: {NUMBER} GiB", message)
    if size and boot.facts.checkpoint_gib is None:
        boot.learn(checkpoint_gib=number(size[1]))


_LOADING = ("Loading weights", "Loading safetensors weights in parallel")


def loading(boot: BootTracker, message: str) -> None:
    """Shards, and the drafter."""
    if message.startswith("Loading drafter model"):
        boot.phases.enter(P.WEIGHTS)
        boot.drafter, boot.shards_begun = True, False  # a drafter of its own may have to be downloaded first
        boot.phases.report(P.WEIGHTS)
    elif "% Completed |" in message or message.startswith(_LOADING):
        shards(boot, message)


def shards(boot: BootTracker, message: str) -> None:
    """A bar: `17% Completed | 1/6 [`. Or only the word that they are loading, or loaded."""
    boot.phases.enter(P.WEIGHTS)
    boot.shards_begun = True
    bar = BAR.match(message)
    if bar:
        done, total = int(bar[3]), int(bar[4])
        unit = "shards" if "shards" in bar[1] or "Completed" in bar[0] else "weights"
        boot.phases.report(
            P.WEIGHTS,
            detail=f"{'drafter ' * boot.drafter}{done}/{total} {unit}",
            progress=share(done, total),
            left=bar_left(message, bar.end()),
        )


def prefetching(boot: BootTracker, message: str) -> None:
    """`Prefetching checkpoint files: 10% (1/3)`: into the page cache, before shards and beside them."""
    step = re.match(r"Prefetching checkpoint files: \d{1,3}% \((\d{1,7})/(\d{1,7})\)", message)
    if step and not boot.shards_begun:
        boot.phases.report(
            P.WEIGHTS, detail=f"page cache {step[1]}/{step[2]}", progress=share(int(step[1]), int(step[2]))
        )


def fetching(boot: BootTracker, message: str) -> None:
    """The Hub's own bar, where an engine shows it: `Fetching 7 files:  29%|██▊       | 2/7 [00:10<00:25,  5.1s/it]`."""
    bar = BAR.match(message)
    if bar and not boot.shards_begun:
        done, total = int(bar[3]), int(bar[4])
        if done >= total:
            boot.phases.release()
        else:
            boot.downloading(f"{done}/{total} files", share(done, total), bar_left(message, bar.end()))


def model(boot: BootTracker, message: str) -> None:
    """The weights are in."""
    if message.startswith("Model loading took"):
        size = GIB.search(message)
        if size and boot.facts.load_gib is None:
            boot.learn(load_gib=number(size[1]))
        boot.phases.finish(P.WEIGHTS, P.KV_CACHE, f"{size[1]} GiB" if size else "")
