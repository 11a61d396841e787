"""What a planned launch asks of memory, with the engine's defaults where its command is silent, and what earlier starts
of the same launch measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import (
    DEFAULT_BLOCK,
    CheckpointFacts,
    KvGroup,
    KvLayout,
    KvSettings,
    LayerKind,
    StateMode,
)
from spark_tui.base.engine.container import LABEL_SPEC_HASH
from spark_tui.base.quantities import GIB
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from spark_tui.observe.explain.model.starts import StartRecord, StartSizes

# vLLM on a GB10, which has the memory of a large card and not its compute (0.33: engine/arg_utils.py).
DEFAULT_SEQUENCES: Final = 256
DEFAULT_BATCHED_TOKENS: Final = 2048
DEFAULT_UTILIZATION: Final = 0.92
"""From vLLM 0.20.2 on; 0.9 before."""
_LARGEST_GRAPH: Final = 512
_FREE_SHARE: Final = 0.9
"""TensorRT-LLM's default share of the memory that is free after the weights, for its cache."""

OWN_LOG: Final = "this engine's own log"
SOURCE: Final = "an earlier start"


class FitRequest(Struct, frozen=True):
    """One launch's memory settings. None: the engine decides, or it is not known.

    `context` is in tokens; `sequences` are the concurrent requests that the command names, 1 where it names none or
    the engine shares one cache of the context's length. `utilization` is the share of the whole memory that the engine
    claims, None for one that takes what it needs; `free_share` is the share of what its weights leave that goes to
    the cache; `kv_bytes` is a cache of fixed size. `graphs` counts the batch sizes whose CUDA graphs are captured.
    `drafter` names a second checkpoint that drafts.
    """

    launch: LaunchContext
    context: int | None
    sequences: int
    utilization: float | None
    free_share: float | None
    kv_bytes: int | None
    kv: KvSettings
    graphs: int
    drafter: str

    @property
    def on_gpu(self) -> bool:
        return not self.launch.preset.cpu_only


def request_of(plan: LaunchPlan, facts: CheckpointFacts | None) -> FitRequest:
    """Reads a plan. The model's own length counts where the command names none."""
    launch, preset = LaunchContext(plan), plan.preset
    engine, is_vllm = preset.engine, preset.engine == "vllm"
    sequences, length = launch.integer("max_num_seqs") or 0, launch.integer("max_model_len") or 0
    text = launch.env.get("OLLAMA_CONTEXT_LENGTH", "")
    if length <= 0 and engine == "ollama" and text.isascii() and text.isdigit() and len(text) < 16:
        length = int(text)
    own = facts.max_position_embeddings if facts is not None else None
    spec = launch.speculation
    is_own = spec is not None and spec.is_mtp and not spec.drafter
    draft_tokens = (spec.tokens or 1) if spec is not None else 0
    share, free = launch.number("gpu_memory_utilization"), launch.number("kv_cache_free_gpu_memory_fraction")
    default_share = DEFAULT_UTILIZATION if launch.is_vllm else None
    mode = launch.value("mamba_cache_mode")
    state_mode = StateMode(mode) if mode in tuple(StateMode) and mode != StateMode.NONE else StateMode.ALIGN
    return FitRequest(
        launch,
        context=length if length > 0 else own or preset.facts.context_tokens,
        sequences=1 if sequences <= 0 or engine in ("llama-cpp", "ollama") else sequences,
        utilization=share if share is not None and 0 < share <= 1 else default_share,
        free_share=None if engine != "trtllm" else free if free is not None and 0 < free <= 1 else _FREE_SHARE,
        kv_bytes=launch.integer("kv_cache_memory_bytes") if is_vllm else None,
        kv=KvSettings(
            cache_dtype=launch.value("kv_cache_dtype") or "auto",
            block_tokens=launch.integer("block_size") or DEFAULT_BLOCK,
            batched_tokens=launch.integer("max_num_batched_tokens") or DEFAULT_BATCHED_TOKENS,
            state_mode=StateMode.NONE if launch.switch("enable_prefix_caching") is False else state_mode,
            state_dtype=launch.value("mamba_ssm_cache_dtype") or "auto",
            draft_tokens=draft_tokens,
            mtp=is_own,
        ),
        graphs=_graphs(launch, max(sequences, 0) or (DEFAULT_SEQUENCES if is_vllm else 1), draft_tokens),
        drafter="" if spec is None or is_own else spec.drafter,
    )


def _graphs(launch: LaunchContext, sequences: int, draft_tokens: int) -> int:
    """How many batch sizes are captured: 1, 2, 4, then each 8th to 256 and each 16th beyond (vLLM 0.20 to 0.33)."""
    if launch.preset.engine not in ("vllm", "sglang", "trtllm") or launch.switch("enforce_eager"):
        return 0
    given = launch.integer("max_cudagraph_capture_size")
    largest = given if given is not None else min(2 * sequences * (1 + draft_tokens), _LARGEST_GRAPH)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, max(largest, 256) + 1, 16)]
    return sum(size <= largest for size in sizes)


# --- what earlier starts measured -------------------------------------------------------------------------


class Measured(Struct, frozen=True):
    """Figures of an earlier start of this preset, from its log, in bytes. `batched_tokens` are those of that start:
    `overhead` (all but weights, KV cache and graphs) counts for the same batched tokens only. `kv_tokens` are what the
    cache held of sequences of `context` tokens in `cache_dtype`."""

    weights: int | None = None
    kv_cache: int | None = None
    graphs: int | None = None
    overhead: int | None = None
    batched_tokens: int | None = None
    source: str = ""
    kv_tokens: int | None = None
    context: int | None = None
    cache_dtype: str = ""


def measured_by(sizes: StartSizes, total: int, source: str) -> Measured | None:
    """A start's figures; None when it did not load its weights. `total` is the machine's memory in bytes, 0 when that
    is not known."""
    if sizes.weights_gib is None:
        return None
    gib = (sizes.weights_gib, sizes.kv_gib, sizes.graphs_gib, sizes.graphs_estimated_gib)
    weights, cache, graphs, estimated = (None if size is None else int(size * GIB) for size in gib)
    overhead = None
    if weights is not None and cache is not None and total and sizes.utilization:
        overhead = max(0, int(total * sizes.utilization) - weights - cache - max(0, estimated or 0))
    rest = (sizes.kv_tokens, sizes.context, sizes.cache_dtype)
    return Measured(weights, cache, graphs, overhead, sizes.batched_tokens, source, *rest)


def measured_before(starts: Iterable[StartRecord], plan: LaunchPlan, total: int) -> Measured | None:
    """The latest start of the same preset, model and image that measured its weights, those with the same settings
    first. What depends on a setting that differs is left out."""
    names = (plan.preset.name, plan.model, plan.spec.image)
    found = [
        start
        for start in sorted(starts, key=lambda start: -start.at)
        if (start.preset, start.model, start.image) == names and start.sizes.weights_gib is not None
    ]
    if not found:
        return None
    fingerprint, launch = plan.spec.label(LABEL_SPEC_HASH), LaunchContext(plan)
    quantization, drafts = launch.value("quantization"), launch.speculation is not None
    for start in found:
        if fingerprint and start.settings == fingerprint:
            return measured_by(start.sizes, total, SOURCE)
    for sizes in (start.sizes for start in found):
        # A drafter's weights are among them.
        if quantization in (None, "", sizes.quantization) and bool(sizes.speculation) == drafts:
            measured = measured_by(sizes, total, SOURCE)
            graphs = (bool(launch.switch("enforce_eager")), launch.integer("max_num_seqs"))
            if measured is None or graphs == (sizes.eager, sizes.sequences):
                return measured
            return replace(measured, graphs=None, overhead=None)  # the overhead is what graphs and the rest leave over
    return None


def measured_layout(measured: Measured, request: FitRequest) -> KvLayout | None:
    """The KV cache's layout by what a start measured, for models whose layers are not understood: bytes per token,
    states and padding spread over them. None for another dtype, or a longer context, over which states were spread
    more thinly."""
    size, tokens, context = measured.kv_cache, measured.kv_tokens, request.context
    if not size or not tokens or context is None or measured.context is None or context < measured.context:
        return None
    if request.kv.cache_dtype not in ("auto", measured.cache_dtype):
        return None
    each = -(-size // tokens)
    return KvLayout(
        groups=(KvGroup(LayerKind.FULL, 1, DEFAULT_BLOCK),),
        block_bytes=each * DEFAULT_BLOCK,
        bytes_per_token=each,
        state_bytes=0,
        batched_tokens=request.kv.batched_tokens,
        cache_dtype=measured.cache_dtype or request.kv.cache_dtype,
    )
