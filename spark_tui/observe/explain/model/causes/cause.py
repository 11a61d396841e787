"""The names of causes, what is known about a failure, and what functions that compute a cause share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct, field

from spark_tui.base.finding import Change, Finding, Severity
from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.timeline import EngineFacts, PhaseId

MAX_QUOTED = 200
_HUB_NAME = lazy_pattern(
    r"https?://(?!registry\.|docs\.|(?:www\.)?github\.)[\w.\-]{1,100}/(?:api/models/)?(?!docs/|blog/|"
    r"settings/)([\w.\-]{1,100}/[\w.\-]{1,99}\w)"
)
_RESTRICTED = lazy_pattern(r"Access to model ([\w.\-]{1,100}/[\w.\-]{1,100}) is restricted")


class CauseId(StrEnum):
    """Stable names of causes: scripts may rely on them."""

    FREE_MEMORY_BELOW_UTILIZATION = "free_memory_below_utilization"
    MEMORY_CHANGED_WHILE_PROFILING = "memory_changed_while_profiling"
    NO_KV_ROOM = "no_kv_room"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    OUT_OF_MEMORY_LOADING = "out_of_memory_loading"
    OUT_OF_MEMORY_WARMUP = "out_of_memory_warmup"
    MAX_MODEL_LEN_TOO_LONG = "max_model_len_too_long"
    UNKNOWN_ARCHITECTURE = "unknown_architecture"
    UNKNOWN_QUANTIZATION = "unknown_quantization"
    QUANTIZATION_MISMATCH = "quantization_mismatch"
    GATED_REPO = "gated_repo"
    REPO_NOT_FOUND = "repo_not_found"
    HUB_OFFLINE = "hub_offline"
    WEIGHTS_CORRUPT = "weights_corrupt"
    WEIGHTS_MISSING = "weights_missing"
    PORT_IN_USE = "port_in_use"
    NO_GPU = "no_gpu"
    DRIVER_TOO_OLD = "driver_too_old"
    ARCH_NOT_COMPILED = "arch_not_compiled"
    NCCL = "nccl"
    DISK_FULL = "disk_full"
    PERMISSION_DENIED = "permission_denied"
    IMAGE_UNAVAILABLE = "image_unavailable"
    READY_TIMEOUT = "ready_timeout"
    MISSING_MODULE = "missing_module"
    MISSING_FILE = "missing_file"
    UNSUPPORTED_MODEL_FEATURE = "unsupported_model_feature"
    KERNEL_FAILURE = "kernel_failure"
    BAD_ARGUMENT = "bad_argument"
    BAD_PARSER = "bad_parser"
    TOO_MANY_RANKS = "too_many_ranks"
    ENGINE_DIED = "engine_died"
    KILLED = "killed"
    STOPPED = "stopped"
    STOPPED_BY_GUARD = "stopped_by_guard"
    UNKNOWN = "unknown"


class Names(NamedTuple):
    """What remedies call an engine and its options; vLLM's where no engine is known."""

    engine: str = "vLLM"
    newer: str = "an image with a newer vLLM (the nightly track, or a newer NGC tag)"
    other: str = "another image tag"
    gb10: str = (
        "Use an image built for GB10 (CUDA 13, sm_121, arm64): the vLLM nightly track (cu130-nightly), or NVIDIA's "
        "from NGC."
    )
    memory: str = "gpu_memory_utilization"
    context: str = "max_model_len"
    sequences: str = "max_num_seqs"
    ranks: str = "tensor_parallel"
    size: str = " (tensor_parallel_size)"
    """The engine's own name for it."""
    eager: str = "enforce_eager=true (slower)"
    faulty: str = "compiled kernels or CUDA graphs fail; else set another attention_backend or moe_backend"
    """What fails where the engine runs without them."""
    less: str = "max_num_seqs, max_num_batched_tokens or max_model_len"
    """What takes less memory beside its share."""
    offload: str = ", or on GPUs with their own memory raise tensor_parallel or cpu_offload_gb"
    """What else lets weights fit."""


_LLAMA: Final = Names(
    engine="llama.cpp",
    newer="a newer build or image of llama.cpp",
    other="another build or image of llama.cpp",
    gb10="Use a newer build or image, compiled for GB10 (CMAKE_CUDA_ARCHITECTURES=121).",
    memory="`--n-gpu-layers`",
    context="`--ctx-size`",
    sequences="`--parallel`",
    ranks="`--tensor-split`",
    size="",
    eager="`--flash-attn off`",
    faulty="this build's attention kernels fail",
    less="`--ctx-size`, `--parallel`, `--ubatch-size` or on a GPU with its own memory `--n-gpu-layers`",
    offload=", a smaller `--ctx-size`, or on a GPU with its own memory fewer `--n-gpu-layers`",
)
_NAMES: Final = {
    "sglang": Names(
        engine="SGLang",
        newer="an image with a newer SGLang (lmsysorg/sglang:dev, or a newer NGC tag)",
        gb10="Use an image built for GB10 (CUDA 13, sm_121, arm64): lmsysorg/sglang:spark, or NVIDIA's from NGC.",
        memory="mem_fraction_static",
        context="context_length",
        sequences="max_running_requests",
        ranks="tp_size",
        size="",
        eager="disable_cuda_graph=true (slower)",
        less="cuda_graph_max_bs, chunked_prefill_size or max_running_requests",
        offload=", or on a GPU with its own memory raise cpu_offload_gb or tp_size",
    ),
    "trtllm": Names(
        engine="TensorRT-LLM",
        newer="an image with a newer TensorRT-LLM (a newer NGC tag)",
        gb10="Use an image built for GB10 (CUDA 13, sm_121, arm64): a newer TensorRT-LLM release from NGC.",
        memory="kv_cache_config.free_gpu_memory_fraction",
        context="max_seq_len",
        sequences="max_batch_size",
        ranks="tp_size",
        size="",
        eager="cuda_graph_config: null in the options file (slower)",
        less="max_batch_size, max_num_tokens or max_seq_len",
        offload="",
    ),
    "llama-cpp": _LLAMA,
    "ollama": _LLAMA._replace(
        engine="Ollama",
        newer="a newer Ollama",
        other="another version of Ollama",
        gb10="Use a newer Ollama: its own builds and images support GB10 (CUDA 13, sm_121).",
        memory="num_gpu",
        context="OLLAMA_CONTEXT_LENGTH (num_ctx)",
        sequences="OLLAMA_NUM_PARALLEL",
        eager="OLLAMA_FLASH_ATTENTION=0",
        faulty="its attention kernels fail",
        less="OLLAMA_CONTEXT_LENGTH (num_ctx), OLLAMA_NUM_PARALLEL or on a GPU with its own memory num_gpu",
        offload=", a smaller num_ctx, or on a GPU with its own memory a smaller num_gpu",
    ),
}
OF_VLLM: Final = frozenset(
    ("enforce_eager", "gpu_memory_utilization", "max_model_len", "max_num_seqs", "tensor_parallel")
)
"""Settings that no preset of another engine has."""


class FailureContext(Struct, frozen=True):
    """All that is known about a failure. `text` holds its lines; `engine` is the runtime (`vllm`, `sglang` ...), empty
    when unknown; `asked` the engine's settings as it was given them; `pool_gib` is the machine's memory in GiB, None
    when unknown; `taken_ports` are not to be proposed."""

    text: str = ""
    engine: str = ""
    phase: PhaseId | None = None
    facts: EngineFacts = field(default_factory=EngineFacts)
    asked: Mapping[str, str] = field(default_factory=dict)
    ready: bool = False
    exit_code: int | None = None
    pool_gib: float | None = None
    taken_ports: frozenset[int] = frozenset()
    module: str = ""
    """The file that raised the exception, by the innermost frame above it."""
    frames: tuple[str, ...] = ()
    """The frames above it, innermost first."""

    @property
    def names(self) -> Names:
        return _NAMES.get(self.engine) or _VLLM

    @property
    def version(self) -> str:
        """` (0.32.0)`, to stand behind the engine's name; empty when the log does not say."""
        return f" ({self.facts.version})" if self.facts.version else ""

    @property
    def model(self) -> str:
        """The model as the Hub's address or the engine names it."""
        found = _RESTRICTED.search(self.text) or _HUB_NAME.search(self.text)
        return (found[1] if found else self.facts.model) or "the model"


_VLLM: Final = Names()


def fix(summary: str, remedy: str, change: Change = ()) -> Finding:
    """A cause whose id, evidence and certainty the diagnosis fills in."""
    return Finding(CauseId.UNKNOWN, Severity.ERROR, summary, remedy=remedy, change=change)


def setting(summary: str, remedy: str, key: str, value: object) -> Finding:
    return fix(summary, remedy, ((key, f"{value:g}" if isinstance(value, float) else str(value)),))


def first_group(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group), "")


def nearest(word: str, known: str) -> str:
    """The name in a list as an error prints it that `word` most likely meant; empty when none is near."""
    names = re.findall(r"[\w.\-]+", known)
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.5)), "")
