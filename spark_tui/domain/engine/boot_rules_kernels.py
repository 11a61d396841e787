"""Rules for lines that tell how an engine computes: kernels, attention, scheduling, what it was asked for.

They only learn facts, never move phases; where a first word has a rule of another module too, that one runs first.
Texts were read in vLLM 0.14 to 0.33.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.engine import boot_rules_failure as failure
from spark_tui.domain.engine import boot_rules_start as start
from spark_tui.domain.engine.boot_evidence import keep, shown
from spark_tui.domain.engine.boot_rules_memory import MEMORY_RULES, graph_sizes
from spark_tui.domain.engine.timeline import Kernel, Topic

if TYPE_CHECKING:
    from spark_tui.domain.engine.boot import BootTracker

Rule = Callable[["BootTracker", str], None]

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
_ATTENTION = re.compile(
    r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]{2,60}) (?:attention backend out of|backend\.?$)"
)
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
    start.using(boot, message)
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
    failure.arguments(boot, message)
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
    start.initializing(boot, message)
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
