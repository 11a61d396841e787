"""What a planned launch asks of memory: read out of its command, with the engine's defaults where it is silent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.models.checkpoint import CheckpointFacts, LayerKind
from spark_tui.domain.models.kv import DEFAULT_BLOCK, KvGroup, KvLayout, KvSettings, StateMode
from spark_tui.domain.models.weights import DecodeCeiling
from spark_tui.domain.presets import options as vllm
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.rules.context import Case, Situation, case_of
from spark_tui.domain.quantities import GIB

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
        value = _number(vllm.option_value(case.words, _SHORT[name]) or "")
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


RESERVE_BYTES: Final = 6 * GIB
"""What should stay free: boxes that serve for days have 4 to 5 % available; below it the first long prompt hurts."""
FEW_SEQUENCES: Final = 4
"""What one Spark serves well at once; more of full length need not fit, since few requests are that long."""


class Verdict(StrEnum):
    """READY: it fits with room. SLOW: it starts, and something about it will be felt. BLOCKED: it would not start, or
    would take the machine down. UNKNOWN: too little is known to say."""

    READY = "READY"
    SLOW = "SLOW"
    BLOCKED = "BLOCKED"
    UNKNOWN = "UNKNOWN"


class Basis(StrEnum):
    """Where a figure comes from, best first."""

    MEASURED = "measured at an earlier start"
    FILES = "from the checkpoint's files"
    CONFIG = "from the model's config"
    LOG = "from a published log"
    RECIPE = "from the recipe"
    ASKED = "as asked"
    NOW = "read now"
    RULE = "rule of thumb"
    UNKNOWN = "not known"


class PartId(StrEnum):
    """What takes memory."""

    WEIGHTS = "weights"
    DRAFTER = "drafter"
    WORKSPACE = "workspace"
    RUNTIME = "runtime"
    GRAPHS = "graphs"
    KV = "kv"
    STATE = "state"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that takes memory. `note` says how the figure came about."""

    id: PartId
    label: str
    size: int | None
    basis: Basis
    note: str = ""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another engine on this machine. `holds` is what it has now; `will_take` what it is still going to take while it
    loads, 0 for one that serves. None: not known."""

    name: str
    holds: int | None = None
    will_take: int | None = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of an earlier start of this preset, from its log. `batched_tokens` and `utilization` are those of that
    start: `overhead` (all but weights, KV cache and graphs) counts for the same batched tokens only. `kv_tokens` are
    what the cache held of sequences of `context` tokens in `cache_dtype`."""

    weights: int | None = None
    kv_cache: int | None = None
    graphs: int | None = None
    overhead: int | None = None
    batched_tokens: int | None = None
    source: str = ""
    kv_tokens: int | None = None
    context: int | None = None
    cache_dtype: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that would help. `pairs` are what `overrides_from_pairs` takes; empty where no setting does it.
    `gains` is how much memory it makes free or leaves free, None where that is not its point."""

    summary: str
    pairs: tuple[tuple[str, str], ...] = ()
    gains: int | None = None


@dataclass(frozen=True, slots=True)
class KvFit:
    """The KV cache: `room` is what is left for it, `each` what one sequence of the asked length takes, padding
    included, `concurrency` how many of them the room holds, `longest` the longest context of which one fits."""

    room: int
    each: int
    needed: int
    concurrency: float
    tokens: int
    longest: int
    bytes_per_token: int
    state_bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Fit:
    """One launch against the memory now.

    `claim` is what the engine takes of the pool: its share for vLLM, whatever it needs of it; the sum of the parts for
    others. `parts` are what is within the claim, `outside` what comes on top of it. `need` sums the parts for one
    sequence, `need_all` for all that are asked; None when a part is not known, and `at_least` sums what is.
    `utilization_needed` is the share that up to four of the asked sequences need, above 1 where no machine has it;
    `utilization_most` is the largest that this one has room for now. `cache_to_drop` is page cache that must go first.
    `left` is what stays free, None when it cannot be told.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    outside: tuple[Part, ...] = ()
    total: int | None = None
    available: int | None = None
    claim: int | None = None
    at_least: int = 0
    need: int | None = None
    need_all: int | None = None
    left: int | None = None
    cache_to_drop: int = 0
    neighbours: tuple[Neighbour, ...] = ()
    utilization: float | None = None
    utilization_needed: float | None = None
    utilization_most: float | None = None
    context: int | None = None
    sequences: int = 1
    kv: KvFit | None = None
    decode: DecodeCeiling | None = None

    @property
    def only_neighbours(self) -> bool:
        """It is BLOCKED, and would not be if the other engines were stopped."""
        if self.verdict is not Verdict.BLOCKED or self.left is None or self.left >= 0:
            return False
        return self.left + sum(neighbour.holds or 0 for neighbour in self.neighbours) >= 0

    @property
    def unknown(self) -> tuple[Part, ...]:
        """The parts whose size is not known."""
        return tuple(part for part in (*self.parts, *self.outside) if part.size is None)

    def part(self, which: PartId) -> Part | None:
        """One part."""
        return next((part for part in (*self.parts, *self.outside) if part.id is which), None)


def measured_layout(measured: Measured, ask: Ask) -> KvLayout | None:
    """So many bytes for each token, states and padding spread over them; None where that start tells nothing of this
    one: another dtype, or a longer context, over which states were spread more thinly."""
    size, tokens = measured.kv_cache, measured.kv_tokens
    if not size or not tokens or ask.context is None or measured.context is None or ask.context < measured.context:
        return None
    if ask.kv.cache_dtype not in ("auto", measured.cache_dtype):
        return None
    each = -(-size // tokens)
    return KvLayout(
        groups=(KvGroup(LayerKind.FULL, 1, DEFAULT_BLOCK),),
        block_bytes=each * DEFAULT_BLOCK,
        bytes_per_token=each,
        state_bytes=0,
        batched_tokens=ask.kv.batched_tokens,
        cache_dtype=measured.cache_dtype or ask.kv.cache_dtype,
    )
