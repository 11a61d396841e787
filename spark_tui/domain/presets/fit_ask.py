"""What a planned launch asks of memory: read out of its command, with the engine's defaults where it is silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.kv import DEFAULT_BLOCK, KvSettings, StateMode
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.rules_case import Case, Situation, case_of

# vLLM on a GB10, which has the memory of a large card and not its compute (0.33: engine/arg_utils.py).
DEFAULT_SEQUENCES: Final = 256
DEFAULT_BATCHED_TOKENS: Final = 2048
DEFAULT_UTILIZATION: Final = 0.92
"""From vLLM 0.20.2 on; 0.9 before."""
_LARGEST_GRAPH: Final = 512

# Where other engines take the same figures from: context, sequences, share of the pool.
_OPTIONS: Final = {
    "vllm": ("--max-model-len", "--max-num-seqs", "--gpu-memory-utilization"),
    "sglang": ("--context-length", "--max-running-requests", "--mem-fraction-static"),
    "llama-cpp": ("--ctx-size", "--parallel", ""),
    "trtllm": ("--max_seq_len", "--max_batch_size", ""),
}
_ONE_CACHE: Final = ("llama-cpp", "ollama")
_WITH_GRAPHS: Final = ("vllm", "sglang", "trtllm")
_FREE_SHARE: Final = 0.9
"""TensorRT-LLM's default: so much of the memory that is free after the weights goes to the cache."""
_SHORT: Final = {"--ctx-size": "-c", "--parallel": "-np"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One launch's wishes. None: the engine decides, or it is not known.

    `context` is in tokens; `sequences` are the requests at once that the command names, 1 where it names none or the
    engine shares one cache of the context's length. `utilization` is the share of the whole pool that the engine
    claims, None for one that takes what it needs; `free_share` is the share of what its weights leave that goes to
    the cache; `kv_bytes` is a cache of fixed size. `graphs` counts the batch sizes whose CUDA graphs are captured.
    `drafter` names a second checkpoint that drafts.
    """

    engine: str
    on_gpu: bool
    context: int | None
    sequences: int
    utilization: float | None
    free_share: float | None
    kv_bytes: int | None
    kv: KvSettings
    graphs: int
    drafter: str
    case: Case

    @property
    def is_vllm(self) -> bool:
        """vLLM on the GPU: it claims a share and checks it when it starts."""
        return self.engine == "vllm" and self.on_gpu


def ask_of(plan: LaunchPlan, facts: CheckpointFacts | None) -> Ask:
    """Reads a plan. The model's own length counts where the command names none."""
    case = case_of(Situation(plan))
    preset = plan.preset
    context, sequences, share = _OPTIONS.get(preset.engine, ("", "", ""))
    asked = _integer(case, sequences)
    length = _integer(case, context)
    if length is None and preset.engine == "ollama":
        length = _number(case.env.get("OLLAMA_CONTEXT_LENGTH", ""))
    own = facts.max_position_embeddings if facts is not None else None
    is_vllm = preset.engine == "vllm"
    batch = asked or (DEFAULT_SEQUENCES if is_vllm else 1)
    spec = case.speculation
    is_own = spec is not None and spec.is_mtp and not spec.drafter
    tokens = (spec.tokens or 1) if spec is not None else 0
    return Ask(
        engine=preset.engine,
        on_gpu=not preset.cpu_only,
        context=(length if length and length > 0 else None) or own or preset.facts.context_tokens,
        sequences=1 if asked is None or preset.engine in _ONE_CACHE else asked,
        utilization=_share(case, share, is_vllm and not preset.cpu_only),
        free_share=_free_share(case),
        kv_bytes=case.integer("--kv-cache-memory-bytes") if is_vllm else None,
        kv=KvSettings(
            cache_dtype=case.option("--kv-cache-dtype") or "auto",
            block_tokens=case.integer("--block-size") or DEFAULT_BLOCK,
            batched_tokens=case.integer("--max-num-batched-tokens") or DEFAULT_BATCHED_TOKENS,
            state_mode=_state_mode(case),
            state_dtype=case.option("--mamba-ssm-cache-dtype") or "auto",
            draft_tokens=tokens,
            mtp=is_own,
        ),
        graphs=_graphs(case, batch, tokens) if preset.engine in _WITH_GRAPHS else 0,
        drafter="" if spec is None or is_own else spec.drafter,
        case=case,
    )


def _integer(case: Case, name: str) -> int | None:
    if not name:
        return None
    value = case.integer(name)
    if value is None and name in _SHORT:
        value = _number(vllm.option(case.words, _SHORT[name]) or "")
    return value if value is None or value > 0 else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _share(case: Case, name: str, claims: bool) -> float | None:
    stated = case.number(name) if name else None
    if stated is not None and 0 < stated <= 1:
        return stated
    return DEFAULT_UTILIZATION if claims else None


def _free_share(case: Case) -> float | None:
    if case.preset.engine != "trtllm":
        return None
    stated = case.number("--kv_cache_free_gpu_memory_fraction")
    return stated if stated is not None and 0 < stated <= 1 else _FREE_SHARE


def _state_mode(case: Case) -> StateMode:
    if case.switch("--enable-prefix-caching") is False:
        return StateMode.NONE
    try:
        mode = StateMode(case.option("--mamba-cache-mode") or StateMode.ALIGN)
    except ValueError:
        return StateMode.ALIGN
    return StateMode.ALIGN if mode is StateMode.NONE else mode


def _graphs(case: Case, sequences: int, draft_tokens: int) -> int:
    """How many batch sizes are captured: 1, 2, 4, then each 8th to 256 and each 16th beyond (vLLM 0.20 to 0.33)."""
    if case.switch("--enforce-eager"):
        return 0
    stated = case.integer("--max-cudagraph-capture-size")
    largest = stated if stated is not None else min(2 * sequences * (1 + draft_tokens), _LARGEST_GRAPH)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, max(largest, 256) + 1, 16)]
    return sum(size <= largest for size in sizes)
