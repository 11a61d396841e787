"""What an exit code, Docker's flag and the kernel's log add where an engine's own log says nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from spark_tui.domain.engine.failures_cause import Advice, CauseId
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.text import clean_line

MAX_NOTES: Final = 5

_KERNEL = re.compile(r"NVRM: |\bXid \(|oom-killer|Out of memory: Killed|oom_reaper|oom-kill:")
_VICTIM = re.compile(r"(?:Killed process \d+ \(|task=)(?:VLLM|vllm|python|sglang|trtllm|llama|ollama)")

_MEMORY: Final = (
    "Free the page cache (key D, or `spark-tui drop-caches`), stop what else holds memory, and start with a lower "
    "gpu_memory_utilization or a shorter max_model_len."
)
_KILLED_BY_KERNEL: Final = Advice("The kernel killed the engine because memory ran out.", _MEMORY)
_CODES: Final = {
    125: (
        CauseId.UNKNOWN,
        Advice("Docker itself could not run the container (exit code 125).", "Read Docker's message."),
    ),
    126: (
        CauseId.MISSING_FILE,
        Advice(
            "The container's command cannot be executed (exit code 126).",
            "Check the preset's command, and that the image is built for arm64.",
        ),
    ),
    127: (
        CauseId.MISSING_FILE,
        Advice(
            "The image has no such command (exit code 127).",
            "Check the preset's image and command: vllm-openai images run `vllm serve` themselves, NGC images want it.",
        ),
    ),
    132: (
        CauseId.ARCH_NOT_COMPILED,
        Advice(
            "The engine met an instruction that this processor does not have (exit code 132, SIGILL).",
            "Use an image built for arm64 and GB10.",
        ),
    ),
    134: (
        CauseId.ENGINE_DIED,
        Advice("The engine aborted in native code (exit code 134, SIGABRT).", "Look at its last lines in the log."),
    ),
    135: (
        CauseId.ENGINE_DIED,
        Advice(
            "The engine met a bus error (exit code 135, SIGBUS).",
            "Often /dev/shm was full: start the container with `--ipc=host` or a larger shm_size.",
        ),
    ),
    139: (
        CauseId.ENGINE_DIED,
        Advice(
            "The engine crashed in native code (exit code 139, SIGSEGV).",
            "Start once with enforce_eager=true; if it happens again, use another tag of the image.",
        ),
    ),
    255: (
        CauseId.UNKNOWN,
        Advice(
            "The container ended with code 255 and said nothing: the machine or Docker went down, or memory ran out.",
            "Look into the kernel log (`journalctl -k`), and free the page cache (key D) before the next start.",
        ),
    ),
}


def by_exit_code(code: int | None, oom_killed: bool, *, ready: bool) -> tuple[CauseId, Advice, bool] | None:
    """The cause that an exit code stands for, with whether it is sure; None for a code that says nothing.

    On a Spark Docker reports OOMKilled=false also when the kernel killed the engine: 137 alone stays a guess.
    """
    if oom_killed:
        return CauseId.KILLED, _KILLED_BY_KERNEL, True
    if code == 137:
        when = "while it served" if ready else "while it started"
        summary = f"The engine was killed {when} (exit code 137): memory ran out, or somebody stopped it by force."
        return CauseId.KILLED, Advice(summary, _MEMORY), False
    if code in _CODES:
        return (*_CODES[code], False)
    return None


def kernel_notes(lines: Sequence[str]) -> tuple[str, ...]:
    """The kernel's words about the GPU and memory, the latest few. NVRM lines also come with healthy starts."""
    notes = [mask_secrets(clean_line(line).strip())[:300] for line in lines if _KERNEL.search(line)]
    return tuple(notes[-MAX_NOTES:])


def kernel_victim(lines: Sequence[str]) -> bool:
    """The kernel's out-of-memory killer names an engine's process."""
    return any(_VICTIM.search(line) for line in lines)
