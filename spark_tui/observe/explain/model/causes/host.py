"""Failures of what is below the engine: GPU, driver, kernels, files of the image, the shell."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.finding import Finding
from spark_tui.base.text import lazy_pattern, truncate
from spark_tui.observe.explain.model.causes.cause import (
    FailureContext,
    first_group,
    fix,
)

_EAGER: Final = (("enforce_eager", "true"),)
_SIGNALS: Final = {
    4: "illegal instruction (SIGILL)",
    6: "abort (SIGABRT)",
    7: "bus error (SIGBUS): often /dev/shm was full",
    9: "SIGKILL",
    11: "segmentation fault (SIGSEGV)",
    15: "SIGTERM",
}
_COMPILER: Final = lazy_pattern(
    r"(?:\S{1,200}: )?(?:fatal )?error: .{1,160}|nvcc fatal .{1,120}|Could not find nvcc.{0,100}|"
    r"ptxas .{0,60}error.{1,160}"
)
# Packages by the name under which Python imports them.
_PACKAGES: Final = {"cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def missing_module(match: re.Match[str], _context: FailureContext) -> Finding:
    first = re.split(r"[,\s]+", first_group(match).strip())[0].strip("`'\".")
    package = _PACKAGES.get(first, first.partition(".")[0].replace("_", "-"))
    summary = f"Python package {first} is missing from the image."
    if package in ("vllm", "sglang"):
        return fix(
            summary,
            "Use an image of that engine, or correct the command. Outside a container install it in the environment "
            f"whose Python runs (`pip install {package}`).",
        )
    return fix(
        summary,
        f"Install it before the server starts (`pip install {package} && ...` in the preset's command), or use an "
        "image that has it.",
    )


def compiling(match: re.Match[str], context: FailureContext) -> Finding:
    """A compiler's own error says more than what called it."""
    own = _COMPILER.search(context.text)
    what = truncate((own or match)[0].strip(), 160)
    return fix(
        f"Compiling a kernel failed: {what}.",
        f"Clear the compile cache (a stale entry of another version can break a start), or set {context.names.eager}."
        if own is None
        else f"Something that the compiler names is missing from the image. {context.names.gb10}",
        _EAGER if own is None else (),
    )


def process_died(match: re.Match[str], context: FailureContext) -> Finding:
    """A worker is gone; a negative exit code is the signal that ended it."""
    code, name = int(match[2] or 0), match[1] or "worker"
    if code == -9:
        return fix(
            f"Worker process {name} was killed (SIGKILL).",
            f"Most likely out of memory: free the page cache (key D), lower {context.names.memory}, and check the "
            "kernel log (`journalctl -k`) for the out-of-memory killer.",
        )
    ended = _SIGNALS.get(-code, f"exit code {code}") if code else "no reason in the log"
    return fix(
        f"Worker process {name} ended: {ended}.",
        "Check the kernel log (`journalctl -k`) for the out-of-memory killer. If it happens again, set "
        f"{context.names.eager} or use {context.names.other}.",
    )


NO_PROGRAM: Final = (
    r"\S{0,60}/(?:(?:ba|da|z)?sh: (?:line \d{1,5}: )?(\S{0,60}/(?:ba|da|z)?sh): cannot execute binary file|"
    r"\S{1,60}\.sh: line \d{1,5}: exec: (--?[\w\-]{0,40}): invalid option)"
)
"""An entrypoint that is a shell with a command that begins with one; one that runs its command, which is an option."""
GPU_FAULT: Final = r"(?:Memory access fault|HW Exception) by GPU |.{0,160}aborting with error : HSA_"
"""How ROCm ends a process."""
RAYLET: Final = r"/raylet/raylet\(\+?0x[0-9a-f]{1,16}\)"
"""Frames of Ray's own process on a node, as it crashes."""
