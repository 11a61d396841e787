"""What each telling line of a start means. A rule is found by the first word of the message.

Texts were read in vLLM 0.14 to 0.33; where a text has changed, all its forms are here. SGLang in outline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from spark_tui.domain.engine import boot_rules_engine as engine
from spark_tui.domain.engine import boot_rules_failure as failure
from spark_tui.domain.engine import boot_rules_kernels as kernels
from spark_tui.domain.engine import boot_rules_start as start

if TYPE_CHECKING:
    from spark_tui.domain.engine.boot import BootTracker

Rule = Callable[["BootTracker", str], None]
"""Called with the tracker, whose `record` is the line, and the message without leading `[tags]`."""

RULES: Final[dict[str, Rule]] = {
    "▄▄": start.banner,
    "█▄█▀": start.banner,
    "vLLM": start.banner,
    "non-default": failure.arguments,
    "Resolved": start.resolved,
    "Using": start.using,
    "Enforce": start.eager,
    "Cudagraph": start.eager,
    "Initializing": start.initializing,
    "Starting": start.starting,
    "Time": start.time_spent,
    "Filesystem": start.filesystem,
    "Loading": start.loading,
    "Multi-thread": start.shards,
    "Model": start.model,
    "Dynamo": engine.compiling,
    "Cache": engine.compiling,
    "Compiling": engine.compiling,
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
    "Load": engine.sglang_load,
    "KV": engine.sglang_kv,
    "Capture": engine.sglang_capture,
    "The": engine.fired_up,
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
}
"""By first word. Words that also begin harmless lines are told apart by their rule."""
