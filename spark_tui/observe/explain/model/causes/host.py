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


# --- llama.cpp and Ollama ---
# How llama.cpp and Ollama begin the lines by which they end.

ABORT: Final = (
    r"(?:\[\w{2,20}\] )?(?:\S{0,200}(?:ggml|llama[\-.]|gguf|mtmd|tools/server/)\S{0,120})\.(?:cpp|cuh?|c|h|hpp|"
    r"m):\d{1,6}: (?!\d|warning|error|note|undefined|multiple|fatal error: |In |required|more undefined|Warning|Error)"
)
"""`GGML_ABORT` and `GGML_ASSERT`: file and line of the C++ source, and why; no compiler or linker writes that."""
FATAL: Final = (
    rf"{ABORT}|CUDA error \d{{1,4}} at \S{{1,300}}\.cuh?:\d{{1,6}}: |"
    r"(?:ggml\S{0,60}/)?\S{0,60}\.cuh?:\d{1,6}: ERROR: CUDA kernel"
    r"|(?:main|start): failed to initialize HTTP server|couldn't bind to server socket|"
    r"srv +\w{1,20}: (?:\w{1,20}: )?(?:failed to load \w+ model, |chat template parsing error)|"
    r"(?:get_hf_plan|get_repo_\w{1,20}|curl_perform_with_retry|common_\w{1,40}): .{0,80}(?:no GGUF files found|"
    r"not found in repository|not available in cache|download failed|GET failed|HTTPLIB failed|status code received|"
    r"failed: |failed after)|"
    r"(?:main: error|common_init_\w{1,20}): (?:unable|failed) to (?:load (?:the )?(?:draft )?model(?:$| ')|(?:create|"
    r"init\w{0,6}) (?:the )?(?:context|model|sampl))|llama_new_context_with_model: [KV] cache (?:quantization|type)|"
    r"Unsupported KV type combination for head_size|gguf_init_from_file\w*: invalid magic|"
    r"llama_init_from_model: (?:n_batch|n_ctx|SPLIT_MODE|simultaneous|[KV] cache)|ggml_aligned_malloc: insufficient|"
    r"(?:llama_)?model_load\w{0,12}: no backends are loaded|(?:clip|mtmd)_\w{1,40}: .{0,200}(?:ailed to load|error: )|"
    r"error: (?:the supplied chat template|--model is required|invalid value for n_parallel|invalid HF repo format|"
    r"failed to (?:download model from|get manifest))|"
    r"Error: (?:[45]\d\d [A-Z][\w ]{2,30}: )?(?:llama-server |llama runner |model r(?:equires more system|"
    r"equest too large|unner has)|memory layout cannot|an error was encountered while running the model|POST predict: |"
    r"do load request: |timed out waiting for llama|.{0,60}no longer compatible with your version of Ollama|"
    r"specified Modelfile wasn't|(?:\(line \d{1,5}\): )?command must be one of \"from\"|no FROM line|"
    r"unknown command \"[^\"]{1,60}\" for \"ollama)|\.{5,200}Killed$|"
    r"panic: (?:unable to (?:load model|create llama)|failed to decode batch)|"
    r"[\w.@\-]{0,40}llama[\w.@\-]{0,40}\.service: (?:Main process exited, code=(?:exited|killed|dumped), status=(?!0/|"
    r"15/)\d|A process of this unit has been killed by the OOM)"
)
"""With what only their lines of an end begin, for a text that breaks off there."""
NAMED: Final = (
    r"error: (?:failed to open file '|'[^']{1,200}' does not exist or is not a directory|unable to load model)|"
    r"Error: (?:[45]\d\d [A-Z][\w ]{2,30}: )?(?:unable to load model|unknown (?:parameter '|data type: )|"
    r"invalid (?:model name|file magic)|quantization is only|unsupported )"
)
"""With what those of other programs may begin too: theirs only in a text of theirs."""
CRASH: Final = (
    r"\s*what\(\): |terminate called |"
    r"(?:double free or corruption|free\(\): invalid|malloc\(\): |munmap_chunk\(\)|corrupted (?:size|double)|"
    r"\*\*\* stack smashing)|"
    r"(?:\S{0,80} )?(?:Segmentation fault|Illegal instruction|Aborted|Bus error)(?: +\(core dumped\))?$"
)
"""What the system says of a crash: theirs right below lines of theirs."""
SAYS_WHY: Final = (
    r"(?:llama|ggml|gguf|clip|mtmd|common)_\w{1,60}: .{0,200}(?:fail|error|invalid|unknown|unsupported|bad |mismatch|"
    r"not |no |must |extremely|number of|key '|encountered|duplicate|GGUFv1|this GGUF|insufficient|tensor ')|"
    r"(?:get_hf_plan|get_repo_\w{1,20}|curl_perform_with_retry): |op not supported|chat template parsing error"
)
"""Lines above an end that say more than it does; each holds one of SIGNS."""
SIGNS: Final = ("llama_", "ggml_", "gguf_", "clip_", "mtmd_", "common_", "get_", "curl_", "op not", "chat template")
