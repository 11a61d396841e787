"""What each telling line of a start means. A rule is found by the first word of the message.

Texts were read in vLLM 0.14 to 0.33; where a text has changed, all its forms are here. The other engines in outline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from spark_tui.domain.logs.rules import llama_cpp, ollama, sglang, trtllm
from spark_tui.domain.logs.rules import vllm as engine
from spark_tui.domain.logs.rules import vllm as failure
from spark_tui.domain.logs.rules import vllm as kernels
from spark_tui.domain.logs.rules import vllm as start

if TYPE_CHECKING:
    from spark_tui.domain.logs.tracker import BootTracker

Rule = Callable[["BootTracker", str], None]
"""Called with the tracker, whose `record` is the line, and the message without leading `[tags]`."""


def _prefetching(boot: BootTracker, message: str) -> None:
    start.prefetching(boot, message)
    trtllm.weights(boot, message)


_OTHER_ENGINES: Final[dict[str, Rule]] = {
    "starting": start.rust,
    "Prefetching": _prefetching,
    # SGLang
    "server_args=": sglang.arguments,
    "Init": sglang.init,
    "Load": sglang.load,
    "KV": sglang.kv,
    "Capture": sglang.capture,
    "max_total_num_tokens=": sglang.totals,
    "The": sglang.fired_up,
    # TensorRT-LLM
    "TensorRT-LLM": trtllm.version,
    "Rank": trtllm.weights,
    "Allocated": trtllm.allocated,
    "Creating": trtllm.graphs,
    "Run": trtllm.graphs,
    "Started": trtllm.started,
    # llama.cpp
    "build:": llama_cpp.build,
    "build_info:": llama_cpp.build,
    "common_params_print_info:": llama_cpp.build,
    "main:": llama_cpp.main,
    "srv": llama_cpp.main,
    "load_tensors:": llama_cpp.tensors,
    "llama_context:": llama_cpp.context,
    "llama_kv_cache:": llama_cpp.cache,
    "llama_kv_cache_unified:": llama_cpp.cache,
    "common_init_from_params:": llama_cpp.warm_up,
    "print_info:": llama_cpp.info,
    # Ollama
    "server": ollama.config,
    "Listening": ollama.listening,
    "model": ollama.memory,
    "kv": ollama.memory,
    "llama": ollama.runner,
}
"""Words of other engines, and of lines that several share; where a failure has the same word, its rule runs first."""

RULES: Final[dict[str, Rule]] = {
    "▄▄": start.banner,
    "█▄█▀": start.banner,
    "vLLM": start.banner,
    "non-default": failure.boot_rules_failure_arguments,
    "Resolved": start.resolved,
    "Using": start.boot_rules_start_using,
    "Enforce": start.eager,
    "Cudagraph": start.eager,
    "Initializing": start.boot_rules_start_initializing,
    "Starting": start.starting,
    "Time": start.time_spent,
    "Filesystem": start.filesystem,
    "Loading": start.loading,
    "Multi-thread": start.shards,
    "Model": start.model,
    "Fetching": start.fetching,
    "Supported": start.supported,
    "Dynamo": engine.compiling,
    "Cache": engine.compiling,
    "Compiling": engine.compiling,
    "Compile": engine.compiling,
    "Directly": engine.directly,
    "torch.compile": engine.compiled,
    "Initial": engine.initial,
    "Warming": engine.warming,
    "Available": engine.available,
    "Explicitly": engine.explicitly,
    "Profiling": engine.profiling,
    "Add": engine.profiling,
    "Estimated": engine.estimated,
    "GPU": engine.kv_size,
    "CPU": engine.kv_size,
    "XPU": engine.kv_size,
    "Maximum": engine.kv_size,
    "Auto-fit": engine.auto_fit,
    "[AutoTuner]:": engine.autotune,
    "[Autotuner]:": engine.autotune,
    "Autotuning": engine.autotune,
    "Running": engine.autotune,
    "JIT": engine.autotune,
    "Skipping": engine.skipping,
    "Capturing": engine.capturing,
    "Graph": engine.captured,
    "init": engine.init_engine,
    "Application": engine.application,
    "OpenAI": engine.rust_ready,
    "Engine": engine.stats,
    "Launching": engine.launching,
    "Server": engine.grpc,
    "EngineCore": engine.engine_core,
    "Worker": engine.worker,
    "WorkerProc": engine.worker,
    "RayWorkerProc": engine.worker,
    "MPClient:": engine.engine_gone,
    "API": engine.shutdown,
    "EngineCore:": engine.shutdown,
    "Shutting": engine.shutdown,
    "Traceback": engine.traceback,
    "File": engine.frame,
    "Value": engine.detail,
    "Assertion": engine.detail,
    "Received": failure.child_died,
    **dict.fromkeys(failure.WORDS, failure.ends),
    **kernels.KERNEL_RULES,
    **_OTHER_ENGINES,
}
"""By first word. Words that also begin harmless lines are told apart by their rule."""
