"""Rules for lines by which programs that are not Python say why they end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from spark_tui.domain.engine.boot_rules_start import arguments as start_arguments

if TYPE_CHECKING:
    from spark_tui.domain.engine.boot import BootTracker

# What a remedy needs of `non-default args: {...}`.
_ASKED = re.compile(
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


def arguments(boot: BootTracker, message: str) -> None:
    """`non-default args: {...}`, also for the remedies."""
    start_arguments(boot, message)
    if message.startswith("non-default args: "):
        boot.failures.asked.update(_ASKED.findall(message))


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
