"""Rules for lines that tell how an engine computes: kernels, attention, scheduling, what it was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.logs.evidence import keep, shown
from spark_tui.domain.logs.line import BAR, COUNT, GIB, NUMBER, bar_left, number, share
from spark_tui.domain.logs.timeline import Kernel, Topic
from spark_tui.domain.logs.timeline import PhaseId as P

if TYPE_CHECKING:
    from spark_tui.domain.logs.tracker import BootTracker


_SECONDS = re.compile(rf"(?:took|takes) {NUMBER} ?s")
_COMPILATION = re.compile(rf"compilation: {NUMBER} s")
_KV_SIZE = re.compile(rf"KV cache size: {COUNT} tokens")
_CONCURRENCY = re.compile(rf"Maximum concurrency for {COUNT} tokens per request: {NUMBER}x")
_EXPLICIT_KV = re.compile(rf"Explicitly set \({NUMBER}/")
_AUTOTUNE = (
    "[AutoTuner]: ",
    "[Autotuner]: ",
    "Autotuning FlashInfer",
    "Autotuning process starts",
    "Running FlashInfer",
    "Running autotuner warmup",
    "JIT kernel warmup starting",
)


# --- compile, memory, graphs ------------------------------------------------------------------------------


def compiling(boot: BootTracker, message: str) -> None:
    """torch.compile at work."""
    if message.startswith(("Dynamo bytecode", "Cache the graph", "Compiling a graph", "Compile and warming up")):
        boot.phases.enter(P.COMPILE)
    elif message.startswith("Compiling model again"):
        boot.phases.enter(P.COMPILE)
        boot.from_cache = False


def directly(boot: BootTracker, message: str) -> None:
    """It found its work in the cache."""
    if message.startswith("Directly load"):
        boot.phases.enter(P.COMPILE)
        boot.from_cache = True


def compiled(boot: BootTracker, message: str) -> None:
    """torch.compile is done, for one of the models."""
    seconds = _SECONDS.search(message)
    if seconds and message.startswith(("torch.compile took", "torch.compile takes")):
        boot.compiler = boot.compiler or boot.record.process
        if boot.compiler != boot.record.process:
            return  # another engine or rank that compiles at the same time
        boot.learn(compile_seconds=round((boot.facts.compile_seconds or 0.0) + number(seconds[1]), 2))
        boot.compile_finished()
    elif message.startswith("torch.compile and initial profiling"):
        boot.compile_finished()


def initial(boot: BootTracker, message: str) -> None:
    """The first run after compiling; or KV memory that was given rather than measured."""
    if message.startswith("Initial profiling/warmup run took"):
        boot.compile_finished()
    elif message.startswith("Initial free memory"):
        kv_memory(boot, re.search(rf"reserved {NUMBER} GiB", message))


def warming(boot: BootTracker, message: str) -> None:
    """On the CPU the compile is called a warm-up."""
    if message.startswith("Warming up model for the compilation"):
        boot.phases.enter(P.COMPILE)
    elif message.startswith("Warming up done"):
        boot.compile_finished()
    elif message.startswith("Warming up "):  # kernels, each kind by its own words
        boot.autotune()


def kv_memory(boot: BootTracker, size: re.Match[str] | None) -> None:
    """The KV cache's phase begins with its size, in GiB."""
    if size:
        boot.phases.enter(P.KV_CACHE)
        boot.learn(kv_gib=number(size[1]))


def available(boot: BootTracker, message: str) -> None:
    """What is left for the KV cache."""
    if message.startswith("Available KV cache memory"):
        kv_memory(boot, GIB.search(message))


def explicitly(boot: BootTracker, message: str) -> None:
    """The CPU backend's KV memory."""
    kv_memory(boot, _EXPLICIT_KV.match(message))


def profiling(boot: BootTracker, message: str) -> None:
    """Memory is being measured."""
    if message.startswith(("Profiling CUDA graph memory", "Add ")):
        boot.phases.enter(P.KV_CACHE)


def estimated(boot: BootTracker, message: str) -> None:
    """May be negative on unified memory."""
    size = GIB.search(message)
    if message.startswith("Estimated CUDA graph memory") and size:
        boot.phases.enter(P.KV_CACHE)
        boot.learn(graph_estimated_gib=number(size[1]))


def kv_size(boot: BootTracker, message: str) -> None:
    """One line since 0.29, two before."""
    size, concurrency = _KV_SIZE.search(message), _CONCURRENCY.search(message)
    if concurrency and boot.facts.max_concurrency is None:
        boot.learn(max_concurrency=number(concurrency[2]))
    if size:
        tokens = int(number(size[1]))
        if boot.facts.kv_tokens is None:
            boot.learn(kv_tokens=tokens)
        boot.phases.finish(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")


def auto_fit(boot: BootTracker, message: str) -> None:
    """`--max-model-len auto`."""
    length = re.match(r"Auto-fit max_model_len: .{1,60}? to (\d{1,12}) to fit", message)
    if length:
        boot.learn(max_model_len=int(length[1]))


def autotune(boot: BootTracker, message: str) -> None:
    """FlashInfer tries its kernels."""
    if message.startswith(("[Autotuner]: Autotuning process ends", "JIT kernel warmup f")):
        if boot.facts.kv_tokens is not None:
            boot.phases.finish(P.AUTOTUNE, P.ENGINE_READY)
        return
    if not message.startswith(_AUTOTUNE):
        return
    boot.autotune()
    bar = BAR.match(message)
    if bar:
        name = bar[1].rpartition("Tuning ")[2]
        boot.phases.report(P.AUTOTUNE, detail=name[:40], progress=share(int(bar[3]), int(bar[4])))


def skipping(boot: BootTracker, message: str) -> None:
    """Autotune or capture is off."""
    if message.startswith("Skipping FlashInfer autotune because it is disabled"):
        boot.phases.rule_out(P.AUTOTUNE)
    elif message.startswith("Skipping CUDA graph capture"):
        boot.phases.rule_out(P.CAPTURE)


def capturing(boot: BootTracker, message: str) -> None:
    """A bar of CUDA graphs."""
    # Model Runner V2 captures once to measure, before the KV cache has its size, and again afterwards.
    phase = P.KV_CACHE if boot.facts.kv_tokens is None else P.CAPTURE
    boot.phases.enter(phase)
    bar = BAR.match(message)
    if bar:
        done, total = int(bar[3]), int(bar[4])
        left = bar_left(message, bar.end())
        boot.phases.report(phase, detail=f"{done}/{total} graphs", progress=share(done, total), left=left)


def captured(boot: BootTracker, message: str) -> None:
    """The graphs are captured; the size may be negative."""
    size = GIB.search(message)
    if not message.startswith("Graph capturing finished"):
        return
    if boot.facts.kv_tokens is None:
        boot.phases.report(P.KV_CACHE, detail="")
        return
    if size:
        boot.learn(graph_actual_gib=number(size[1]))
    boot.phases.finish(P.CAPTURE, P.ENGINE_READY, f"{size[1]} GiB" if size else "")


# --- engine, server ---------------------------------------------------------------------------------------


def init_engine(boot: BootTracker, message: str) -> None:
    """The engine core is up."""
    if message.startswith("init engine (profile"):
        seconds, compilation = _SECONDS.search(message), _COMPILATION.search(message)
        if seconds and boot.facts.init_seconds is None:
            boot.learn(init_seconds=number(seconds[1]))
        if compilation:
            boot.learn(compile_seconds=number(compilation[1]))
        boot.phases.finish(P.ENGINE_READY, P.SERVER)
        boot.phases.prove(P.SERVER)


def application(boot: BootTracker, message: str) -> None:
    """uvicorn is up: vLLM is ready."""
    if message.startswith("Application startup complete") and not boot.own_ready_line:
        boot.ready_now()


def rust_ready(boot: BootTracker, message: str) -> None:
    """The Rust front end's word for ready."""
    if message.startswith("OpenAI server is ready to accept requests"):
        boot.ready_now()


def launching(boot: BootTracker, message: str) -> None:
    """`Launching Rust frontend: ...`, long before the engine is up: uvicorn will not be heard."""
    if message.startswith("Launching Rust frontend"):
        boot.own_ready_line = True


def grpc(boot: BootTracker, message: str) -> None:
    """The gRPC server's words."""
    if message.startswith("Server is ready to accept requests"):
        boot.ready_now()


def stats(boot: BootTracker, message: str) -> None:
    """Throughput lines come from a server that serves."""
    if message.startswith("Engine core proc"):
        boot.failed(boot.failures.process_died, boot.record)
    elif "Avg prompt throughput" in message:
        boot.answers()


# --- the end ----------------------------------------------------------------------------------------------


def engine_core(boot: BootTracker, message: str) -> None:
    """It could not start, or broke."""
    if message.startswith("EngineCore failed to start"):
        boot.failed(boot.failures.start_failed, boot.record)
    elif message.startswith("EngineCore encountered a fatal error"):
        boot.failed(boot.failures.fatal, boot.record)


def worker(boot: BootTracker, message: str) -> None:
    """A worker failed or died."""
    if "died unexpectedly" in message:
        boot.failed(boot.failures.process_died, boot.record)
    elif message.startswith(("WorkerProc failed to start", "WorkerProc hit an exception")):
        boot.failures.worker_failed()


def engine_gone(boot: BootTracker, message: str) -> None:
    """The engine core vanished."""
    if "engine core exited unexpectedly" in message:
        boot.failed(boot.failures.engine_gone, boot.record)


def shutdown(boot: BootTracker, message: str) -> None:
    """Somebody stopped it."""
    if message.startswith(
        ("Shutting down FastAPI", "API server: shutdown triggered", "EngineCore: trigger received signal")
    ):
        boot.stopped()


def traceback(boot: BootTracker, message: str) -> None:
    """The head of a traceback."""
    if message.startswith("Traceback (most recent call last)"):
        boot.failures.traceback(boot.record)


def frame(boot: BootTracker, message: str) -> None:
    """A frame of a traceback."""
    boot.failures.frame(message)


def detail(boot: BootTracker, message: str) -> None:
    """pydantic's second line."""
    boot.failures.detail(message)


_VERSION = re.compile(r"\bversion (\S{1,60}?),?(?:\s|$)")
_SERVING = re.compile(r"\b(?:serving model|model  ) ?(\S{1,300})")
_ARGS = {
    "model": re.compile(r"'model': '([^']{1,300})'"),
    "quantization": re.compile(r"'quantization': '([^']{1,60})'"),
    "kv_cache_dtype": re.compile(r"'kv_cache_dtype': '([^']{1,30})'"),
    "method": re.compile(r"'speculative_config': \{[^}]{0,400}?'method': '([^']{1,40})'"),
    "draft": re.compile(r"'speculative_config': \{[^}]{0,400}?'num_speculative_tokens': (\d{1,4})"),
}
_BOOT_RULES_START_CONFIG = {
    "model": re.compile(r"\bmodel='([^']{1,300})'"),
    "quantization": re.compile(r"\bquantization=([\w.\-]{1,60})"),
    "kv_cache_dtype": re.compile(r"\bkv_cache_dtype=([\w.]{1,30})"),
    "method": re.compile(r"speculative_config=SpeculativeConfig\([^)]{0,600}?method='([^']{1,40})'"),
    "draft": re.compile(r"speculative_config=SpeculativeConfig\([^)]{0,900}?num_spec_tokens=(\d{1,4})"),
}
_ENGINE_VERSION = re.compile(r"\(v([^)]{1,60})\)")
_MAX_LENGTH = re.compile(r"\bmax_seq_len=(\d{1,12})")
_BOOT_RULES_START_LINEAR = re.compile(r"Using (\S{1,80}) for (?:NVFP4|MXFP4) GEMM")
_BOOT_RULES_START_MOE = re.compile(
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


def boot_rules_start_arguments(boot: BootTracker, message: str) -> None:
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


def boot_rules_start_using(boot: BootTracker, message: str) -> None:
    """`Using X for NVFP4 GEMM` and its many sisters."""
    if message.startswith("Using max model len "):
        figure = message.rsplit(" ", 1)[-1]
        if figure.isascii() and figure.isdigit() and len(figure) < 12:
            boot.learn(max_model_len=int(figure))
    elif message.startswith("Using cache directory"):
        boot.phases.enter(P.COMPILE)
    elif message.startswith("Using FlashInfer autotune cache"):
        boot.autotune()
    elif (linear := _BOOT_RULES_START_LINEAR.match(message)) and not boot.facts.fp4_linear:
        boot.learn(fp4_linear=linear[1])
    elif (moe := _BOOT_RULES_START_MOE.match(message)) and not boot.facts.fp4_moe:
        boot.learn(fp4_moe=moe[1] or moe[2])
    elif (attention := _ATTENTION.match(message)) and not boot.facts.attention:
        boot.learn(attention=attention[1])


def eager(boot: BootTracker, message: str) -> None:
    """No torch.compile and no CUDA graphs."""
    if message.startswith(("Enforce eager set", "Cudagraph is disabled under eager")):
        boot.learn(eager=True)


def boot_rules_start_initializing(boot: BootTracker, message: str) -> None:
    """`Initializing a V1 LLM engine (v0.20.2) with config: ...`."""
    if "LLM engine (v" not in message[:60]:
        return
    boot.phases.enter(P.ENGINE_INIT)
    version, length = _ENGINE_VERSION.search(message), _MAX_LENGTH.search(message)
    if version:
        boot.learn(version=version[1])
    if length:
        boot.learn(max_model_len=int(length[1]))
    boot.learn(**_read(_BOOT_RULES_START_CONFIG, message))


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


def boot_rules_memory_eager(boot: BootTracker, message: str) -> None:
    """No graphs by intent; or another mode than the one that was asked for."""
    eager(boot, message)
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


def boot_rules_memory_skipping(boot: BootTracker, message: str) -> None:
    """`Skipping CUDA graph capture. ...`, or autotune that is off."""
    skipping(boot, message)
    graph_sizes(boot, message)


def boot_rules_memory_estimated(boot: BootTracker, message: str) -> None:
    """`Estimated CUDA graph memory: -0.17 GiB total`."""
    estimated(boot, message)
    if message.startswith("Estimated CUDA graph memory"):
        keep(boot, Topic.GRAPH_ESTIMATE, message)


def boot_rules_memory_captured(boot: BootTracker, message: str) -> None:
    """`Graph capturing finished in 2 secs, took 0.37 GiB`."""
    captured(boot, message)
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


def boot_rules_memory_kv_size(boot: BootTracker, message: str) -> None:
    """`GPU KV cache size: 694,656 tokens`, and the line about concurrency."""
    kv_size(boot, message)
    context = _PER_REQUEST.search(message)
    if context and boot.facts.max_model_len is None:
        boot.learn(max_model_len=int(context[1].replace(",", "")))
    if "KV cache size: " in message[:40] or message.startswith("Maximum concurrency for"):
        keep(boot, Topic.KV_SIZE, message)


def boot_rules_memory_available(boot: BootTracker, message: str) -> None:
    """`Available KV cache memory: 64.69 GiB`."""
    available(boot, message)
    if message.startswith("Available KV cache memory"):
        keep(boot, Topic.MEMORY, message)


def boot_rules_memory_initial(boot: BootTracker, message: str) -> None:
    """`Initial free memory 31.16 GiB, reserved 4.25 GiB ...`: KV memory that was given rather than measured."""
    initial(boot, message)
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
        profiling(boot, message)
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
    "Enforce": boot_rules_memory_eager,
    "Cudagraph": boot_rules_memory_eager,
    "Dynamic": overridden,
    "Pooling": overridden,
    "Capping": graph_sizes,
    "Truncating": graph_sizes,
    "Skipping": boot_rules_memory_skipping,
    "Estimated": boot_rules_memory_estimated,
    "Graph": boot_rules_memory_captured,
    "CUDA": graph_memory,
    "In": graph_memory,
    "GPU": boot_rules_memory_kv_size,
    "CPU": boot_rules_memory_kv_size,
    "XPU": boot_rules_memory_kv_size,
    "Maximum": boot_rules_memory_kv_size,
    "Available": boot_rules_memory_available,
    "Initial": boot_rules_memory_initial,
    "Free": free,
    "Applying": persisted_plan,
    "Add": padding,
    "Padding": padding,
    "Setting": setting,
    **{f"CUDAGraphMode.{mode}": graph_mode for mode in _MODES},
}
"""By first word."""


# What a remedy needs of `non-default args: {...}`.
_BOOT_RULES_FAILURE_ASKED = re.compile(
    r"'(port|gpu_memory_utilization|max_num_seqs|max_model_len|tensor_parallel_size|pipeline_parallel_size"
    r"|max_num_batched_tokens|kv_cache_dtype|kv_cache_memory_bytes|quantization|tool_call_parser|reasoning_parser"
    r"|attention_backend|moe_backend|linear_backend|load_format)': '?([\w.\-]{1,60})'?(?=[,}])"
)
_ENDS: Final = re.compile(
    # llama.cpp
    r"main: exiting due to|(?:srv +)?(?:load_model|start|operator\(\)|main): (?:failed to load model|couldn't bind)"
    r"|llama_model_load: error loading model|common_init_from_params: failed to load model"
    r"|error: invalid argument|error while handling argument|error: unexpected argument"
    # Ollama and other Go and Rust programs
    r"|Error: (?:listen |could not|unable to|No such option|Invalid value|Got unexpected)"
    r"|thread '[^']{1,60}'(?: \(\d+\))? panicked at|panic: |fatal error: "
    # C++, libc, the interpreter
    r"|terminate called (?:after|without)|Fatal Python error: |Segmentation fault|Illegal instruction|Bus error"
    r"|!!!!!!! Segfault encountered"
    # what stands in for the container's command; a shell's complaint is left to the exit code: scripts go on after it
    r"|exec \S{1,200}: (?:exec format error|no such file or directory)"
)


def boot_rules_failure_arguments(boot: BootTracker, message: str) -> None:
    """`non-default args: {...}`, also for the remedies."""
    boot_rules_start_arguments(boot, message)
    if message.startswith("non-default args: "):
        boot.failures.asked.update(_BOOT_RULES_FAILURE_ASKED.findall(message))


def ends(boot: BootTracker, message: str) -> None:
    """A line after which the program ends, as long as it has not served."""
    if not boot.failures.serving and _ENDS.match(message):
        boot.failed(boot.failures.native, boot.record)


def child_died(boot: BootTracker, message: str) -> None:
    """SGLang: `Received sigquit from a child process.`"""
    if message.startswith("Received sigquit from a child process"):
        boot.failed(boot.failures.child_died, boot.record)


WORDS: Final = (
    "main:", "srv", "start:", "llama_model_load:", "common_init_from_params:", "error:", "error", "Error:", "thread",
    "panic:", "fatal", "terminate", "Fatal", "Segmentation", "Illegal", "Bus", "!!!!!!!", "exec",
)  # fmt: skip
"""First words of lines that `ends` looks at."""


MAX_ARGUMENTS: Final = 20_000
MAX_NAMED: Final = 24

_NAME = r"([A-Za-z][\w.\- /]{1,60}?)"
_FP4: Final = ("NVFP4", "MXFP4")

# Part and format of a kernel by the shape of its line; the first pattern that matches counts.
_LINEAR = re.compile(rf"Using {_NAME}(?: backend)? for (NVFP4|MXFP4|MXFP6|MXFP8) GEMM")
_MIXED = re.compile(rf"Using {_NAME} for mixed-precision linear")
_MOE = re.compile(rf"Using '?{_NAME}'? (NvFp4|Mxfp4|MxFp4|MxFp8|Fp8|Int8|WNA16|Unquantized|W4A8) MoE backend")
_MOE_0_14 = re.compile(rf"Using {_NAME} backend for (NvFp4|MxFp4|FP8|Unquantized) MoE")
_EXPERTS = re.compile(rf"Using {_NAME} for (MXFP4) MoE")
_MOE_OLD_MXFP4 = re.compile(
    r"Using (Marlin|Triton|FlashInfer MXFP4 (?:BF16|MXFP8)[\w ]{0,20}) backend(?: for SM\d+)?\.?$"
)
_SELECTED = re.compile(r"Selected (\w{3,80}) for (\w{3,80})")
_KV_DTYPE = re.compile(r"Using (\w{2,30}) data type to store kv cache")

_ASKED = {
    "gpu_memory_utilization": (re.compile(r"'gpu_memory_utilization': (0?\.\d{1,6}|1(?:\.0{1,6})?)(?=[,}])"), float),
    "kv_cache_memory_bytes": (re.compile(r"'kv_cache_memory_bytes': (\d{1,16})(?=[,}])"), int),
    "max_num_seqs": (re.compile(r"'max_num_seqs': (\d{1,9})(?=[,}])"), int),
    "max_num_batched_tokens": (re.compile(r"'max_num_batched_tokens': (\d{1,9})(?=[,}])"), int),
    "moe_backend": (re.compile(r"'moe_backend': '([\w\-]{1,60})'"), str),
    "linear_backend": (re.compile(r"'linear_backend': '([\w\-]{1,60})'"), str),
}  # fmt: skip
# No `\b` in front: the line is some kilobytes long, and a literal beginning is found much faster.
_CONFIG = {
    "moe_backend": re.compile(r"moe_backend='([\w\-]{1,60})'"),
    "linear_backend": re.compile(r"linear_backend='([\w\-]{1,60})'"),
    "device": re.compile(r"device_config=(?:device\(type=')?(\w{2,10})"),
    "cudagraph_mode": re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w{3,30})"),
    "prefix_caching": re.compile(r"enable_prefix_caching=(True|False)"),
    "chunked_prefill": re.compile(r"enable_chunked_prefill=(True|False)"),
}
_EAGER_CONFIG = re.compile(r"enforce_eager=True")
_UNQUANTIZED = re.compile(r", quantization=None,")
_BATCHED = re.compile(r"max_num_batched_tokens=(\d{1,9})")
# --- kernels ----------------------------------------------------------------------------------------------


def _kernel(boot: BootTracker, part: str, fmt: str, name: str, message: str) -> None:
    fmt, name = _FORMATS.get(fmt.lower(), fmt.upper()), name.strip()
    known = boot.facts.kernels
    if len(known) < MAX_NAMED and not any((k.part, k.format, k.name) == (part, fmt, name) for k in known):
        boot.learn(kernels=(*known, Kernel(part, fmt, name, shown(message), boot.line)))
    if fmt in _FP4:
        field = "fp4_linear" if part == "linear" else "fp4_moe"
        if not getattr(boot.facts, field):
            boot.learn(**{field: name})


_FORMATS: Final = {"unquantized": "BF16", "wna16": "INT4", "int8": "INT8", "w4a8": "W4A8"}


# --- kernels ----------------------------------------------------------------------------------------------


def using(boot: BootTracker, message: str) -> None:
    """`Using X for NVFP4 GEMM` and its many sisters."""
    boot_rules_start_using(boot, message)
    if match := _LINEAR.match(message):
        _kernel(boot, "linear", match[2], match[1], message)
    elif match := _MIXED.match(message):
        _kernel(boot, "linear", "INT4", match[1], message)
    elif match := _MOE.match(message) or _MOE_0_14.match(message) or _EXPERTS.match(message):
        _kernel(boot, "moe", match[2], match[1], message)
    elif match := _ATTENTION.match(message):
        _attention(boot, match[1])
    elif (match := _MOE_OLD_MXFP4.match(message)) and "mxfp4" in boot.facts.quantization:
        _kernel(boot, "moe", "MXFP4", match[1], message)
    elif match := _KV_DTYPE.match(message):
        boot.learn(kv_cache_dtype=match[1])
    elif message.startswith(("Using OCP MX emulation", "Using emulation")):
        keep(boot, Topic.EMULATION, message)


def _attention(boot: BootTracker, name: str) -> None:
    known = boot.facts.attentions
    if name not in known and len(known) < MAX_NAMED:
        boot.learn(attentions=(*known, name))


def selected(boot: BootTracker, message: str) -> None:
    """`Selected CutlassFP8ScaledMMLinearKernel for ModelOptFp8LinearMethod`."""
    match = _SELECTED.match(message)
    if match:
        fmt = next((fmt for fmt in ("FP8", "INT8") if fmt in match[1].upper()), "INT4")
        _kernel(boot, "linear", fmt, match[1], message)


def weight_only(boot: BootTracker, message: str) -> None:
    """`Your GPU does not have native support for FP4 ...`: a Marlin kernel was chosen, no more than that."""
    if "native support for FP4" in message or message.startswith("Falling back to Marlin FP4"):
        keep(boot, Topic.WEIGHT_ONLY, message)


def emulation(boot: BootTracker, message: str) -> None:
    """`NVFP4 linear falling back to the slow and unoptimized emulation backend ...`."""
    if "emulation" in message and "CUTLASS backend" not in message:
        keep(boot, Topic.EMULATION, message)


def refused(boot: BootTracker, message: str) -> None:
    """A backend that was asked for is not there: `--linear-backend=X was requested, but no ...`."""
    if "was requested, but no" in message or message.startswith(
        ("Requested FlashInfer backend for NvFp4", "No Mxfp4 MoE backend supports", "No native MXFP8 MoE backend")
    ):
        keep(boot, Topic.BACKEND_REFUSED, message)


def detected(boot: BootTracker, message: str) -> None:
    """`Detected ModelOpt NVFP4 checkpoint (quant_algo=W4A16_NVFP4).`: gone since 0.31."""
    if message.startswith("Detected ModelOpt ") and "checkpoint" in message[:60]:
        keep(boot, Topic.CHECKPOINT, message)


# --- config -----------------------------------------------------------------------------------------------


def arguments(boot: BootTracker, message: str) -> None:
    """`non-default args: {...}`: what a person asked for. A drafter's settings inside are not the model's."""
    boot_rules_failure_arguments(boot, message)
    if not message.startswith("non-default args: "):
        return
    outer = _outer(message)
    learnt: dict[str, Any] = {}
    for field, (pattern, kind) in _ASKED.items():
        match = pattern.search(outer)
        if match and match[1] != "auto":
            learnt[field] = kind(match[1])
    for field in ("prefix_caching", "chunked_prefill"):
        word = re.search(rf"'enable_{field}': (True|False)", outer)
        if word:
            learnt[field] = word[1] == "True"
    boot.learn(**learnt)
    if "'enforce_eager': True" in outer:
        boot.learn(eager=True)
        keep(boot, Topic.EAGER, "enforce_eager: True in the arguments")


def _outer(message: str) -> str:
    """The outermost pairs of a dict in print, without what stands in dicts inside it."""
    parts, depth, begun = [], 0, 0
    for brace in re.finditer(r"[{}]", message[:MAX_ARGUMENTS]):
        if brace[0] == "{":
            depth += 1
            if depth == 2:
                parts.append(message[begun : brace.start()])
        else:
            if depth == 2:
                begun = brace.end()
            depth = max(0, depth - 1)
    return "".join(parts) + (message[begun:MAX_ARGUMENTS] if depth < 2 else "")


def initializing(boot: BootTracker, message: str) -> None:
    """`Initializing a V1 LLM engine (v0.32.0) with config: ...`: what it is really set to."""
    boot_rules_start_initializing(boot, message)
    if "LLM engine (v" not in message[:60]:
        return
    learnt: dict[str, Any] = {}
    for field, pattern in _CONFIG.items():
        match = pattern.search(message)
        if match and match[1] != "auto":
            learnt[field] = match[1] == "True" if match[1] in ("True", "False") else match[1]
    if _UNQUANTIZED.search(message):
        learnt["unquantized"] = True
    if _EAGER_CONFIG.search(message):
        learnt["eager"] = True
    boot.learn(**learnt)


def scheduling(boot: BootTracker, message: str) -> None:
    """Chunked prefill, asynchronous scheduling, prefix caching: on or off."""
    if message.startswith("Chunked prefill is enabled"):
        tokens = _BATCHED.search(message)
        boot.learn(chunked_prefill=True, **({"max_num_batched_tokens": int(tokens[1])} if tokens else {}))
    elif message.startswith(("Chunked prefill is not supported", "Disabling chunked prefill")):
        boot.learn(chunked_prefill=False)
    elif message.startswith("Asynchronous scheduling is "):
        boot.learn(async_scheduling="enabled" in message)
    elif message.startswith("Async scheduling ") and "disabled" in message:
        boot.learn(async_scheduling=False)
    elif message.startswith(("Prefix caching is not supported", "Disabling prefix caching")) or (
        message.startswith("Hybrid or mamba-based model") and message.rstrip(". ").endswith("disabling")
    ):
        boot.learn(prefix_caching=False)
    elif message.startswith("Encoder-decoder models do not support chunked prefill"):
        boot.learn(chunked_prefill=False, prefix_caching=False)


def environment(boot: BootTracker, message: str) -> None:
    """`Unknown vLLM environment variable detected: X`."""
    match = re.match(r"Unknown vLLM environment variable detected: (\w{1,120})", message)
    known = boot.facts.unknown_environment
    if match and match[1] not in known and len(known) < MAX_NAMED:
        boot.learn(unknown_environment=(*known, match[1]))
        keep(boot, Topic.ENVIRONMENT, message)


def speculation(boot: BootTracker, message: str) -> None:
    """Words about drafting that matter when it does not pay."""
    if message.startswith("Enabling num_speculative_tokens > 1"):
        keep(boot, Topic.SPECULATION, message)


def no_such(boot: BootTracker, message: str) -> None:
    """`No Mxfp4 MoE backend supports ...`, `No valid cudagraph capture sizes remain ...`."""
    refused(boot, message)
    graph_sizes(boot, message)


_BACKENDS: Final = (
    "marlin", "cutlass", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cudnn", "flashinfer_cutedsl",
    "flashinfer_b12x", "b12x", "fbgemm", "humming", "emulation", "triton", "deep_gemm", "torch",
)  # fmt: skip

KERNEL_RULES: Final[dict[str, Rule]] = {
    "Using": using,
    "Selected": selected,
    "Your": weight_only,
    "Falling": weight_only,
    "NVFP4": emulation,
    "VLLM_BATCH_INVARIANT": emulation,
    "Requested": refused,
    "Detected": detected,
    "non-default": arguments,
    "Initializing": initializing,
    "Chunked": scheduling,
    "Asynchronous": scheduling,
    "Async": scheduling,
    "Prefix": scheduling,
    "Disabling": scheduling,
    "Hybrid": scheduling,
    "Encoder-decoder": scheduling,
    "Unknown": environment,
    "No": no_such,
    "Enabling": speculation,
    **MEMORY_RULES,
    **{f"--linear-backend={backend}": refused for backend in _BACKENDS},
}
"""By first word; they take the place of the rules of the same word, which they run first."""
