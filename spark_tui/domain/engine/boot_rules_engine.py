"""Rules for the second half of a start: compile, memory, graphs, server; and for the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_tui.domain.engine.figures import BAR, COUNT, GIB, NUMBER, bar_left, number, share
from spark_tui.domain.engine.timeline import PhaseId as P

if TYPE_CHECKING:
    from spark_tui.domain.engine.boot import BootTracker

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
