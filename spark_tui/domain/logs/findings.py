"""What is worth a person's attention about an engine, live or after the fact. Silent when all is well.

Pure functions; evidence is a line of the log where one proves it, so that a log view can jump to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.engine.state import Health
from spark_tui.domain.logs.kernels import Fp4, Fp4Verdict, fp4_verdict
from spark_tui.domain.logs.serving import Drafting, ServingSample, drafting
from spark_tui.domain.logs.sizing import MOST_REQUESTS, GraphState, Pairs, graph_memory, kv_alternatives
from spark_tui.domain.logs.timeline import BootTimeline, EngineFacts, Kernel, LogEvidence, Topic
from spark_tui.domain.quantities import human_duration


class Level(StrEnum):
    """How much it matters, the worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class FindingId(StrEnum):
    """Stable names: scripts may rely on them."""

    HANG = "hang"
    GRAPH_ESTIMATE = "graph_estimate"
    FP4_FALLBACK = "fp4_fallback"
    FP4_EMULATION = "fp4_emulation"
    BACKEND_REFUSED = "backend_refused"
    CAPTURE_SIZES_CAPPED = "capture_sizes_capped"
    ACCEPTANCE_NEAR_ZERO = "acceptance_near_zero"
    DRAFTS_TOO_LONG = "drafts_too_long"
    PREEMPTIONS = "preemptions"
    KV_NEARLY_FULL = "kv_nearly_full"
    WAITING = "waiting"
    BELOW_BASELINE = "below_baseline"
    UNKNOWN_VARIABLE = "unknown_variable"
    PREFIX_CACHE_NEVER_HIT = "prefix_cache_never_hit"
    PADDING_WASTE = "padding_waste"
    EAGER = "eager"


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of advice. `evidence` is the line that proves it, cleaned and masked, and `line` its number from 0;
    both may be missing. `override` are pairs as `overrides_from_pairs` takes them, empty where no setting helps."""

    id: FindingId
    level: Level
    summary: str
    remedy: str = ""
    override: Pairs = ()
    evidence: str = ""
    line: int | None = None

    @classmethod
    def proven(
        cls,
        proof: LogEvidence | Kernel | ServingSample | Drafting | None,
        finding_id: FindingId,
        level: Level,
        summary: str,
        remedy: str,
        override: Pairs = (),
    ) -> Finding:
        """With the line that proves it, where there is one."""
        text, line = (proof.text, proof.line) if proof is not None else ("", None)
        return cls(finding_id, level, summary, remedy, override, text, line)


@dataclass(frozen=True, slots=True)
class Baseline:
    """How fast this box has served the same preset and image before: tokens per second of one stream, over `runs`."""

    decode_rate: float
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Observation:
    """All that findings look at. `now` is on the clock of the samples' `at`; None for a log of another time.
    `pool_gib` is the machine's memory in GiB where it is known, `fp4` the verdict."""

    facts: EngineFacts
    fp4: Fp4Verdict
    samples: tuple[ServingSample, ...] = ()
    health: Health = Health.UNKNOWN
    now: float | None = None
    baseline: Baseline | None = None
    pool_gib: float | None = None


INTERVAL_SECONDS: Final = 10.0
"""vLLM's VLLM_LOG_STATS_INTERVAL."""
FROZEN_SECONDS: Final = 120.0
"""A long prefill writes no token: 128k tokens at 1,600 a second take 80 s."""
LOW_ACCEPTANCE: Final = 0.1
ENOUGH_DRAFTS: Final = 500
LAST_POSITION: Final = 0.15
KV_FULL_PERCENT: Final = 95.0
KV_ROOM_PERCENT: Final = 70.0
QUEUE_SAMPLES: Final = 3
ENOUGH_PROMPT_TOKENS: Final = 20_000
ENOUGH_BUSY_SAMPLES: Final = 6
LARGE_BLOCK: Final = 256
BELOW_BASELINE: Final = 0.7
ENOUGH_SINGLE: Final = 3


def _told(samples: Sequence[ServingSample]) -> list[ServingSample]:
    """The samples of throughput, without those of drafting."""
    return [sample for sample in samples if sample.running is not None or sample.generation_rate is not None]


def hang(seen: Observation) -> list[Finding]:
    """Requests run, no token moves, and `/health` still says 200. An old log cannot prove it: `now` must be known."""
    if seen.now is None or seen.health is not Health.OK:
        return []
    frozen: list[ServingSample] = []
    for sample in reversed(_told(seen.samples)):
        if not sample.running or sample.generation_rate or sample.prompt_rate:
            break
        frozen.append(sample)
    since = frozen[-1].at if frozen else None
    if since is None or seen.now - since < FROZEN_SECONDS:
        return []
    count, still = frozen[0].running or 0, human_duration(seen.now - since)
    summary = f"{_requests(count)} and no token has moved for {still}, although /health answers 200."
    remedy = "The engine is stuck: restart it. Its log and `dmesg` around that time say more."
    return [Finding.proven(frozen[-1], FindingId.HANG, Level.CRITICAL, summary, remedy)]


def _requests(count: int) -> str:
    return "1 request runs" if count == 1 else f"{count} requests run"


def acceptance(seen: Observation) -> list[Finding]:
    """Drafts that are thrown away cost time and KV cache."""
    drafts = drafting(seen.samples)
    if drafts is None or drafts.rate is None or drafts.drafted < ENOUGH_DRAFTS:
        return []
    method = seen.facts.speculation or "speculation"
    if drafts.rate < LOW_ACCEPTANCE:
        summary = (
            f"Only {drafts.rate:.0%} of {drafts.drafted:,} drafted tokens were accepted: {method} costs more than it "
            "gives."
        )
        remedy = (
            "Start without speculation and compare. The drafter may not belong to this model, a quantized checkpoint "
            "may have lost its weights, or the text is not predictable."
        )
        away: Pairs = (("without", "speculative_config"),)
        return [Finding.proven(drafts, FindingId.ACCEPTANCE_NEAR_ZERO, Level.WARNING, summary, remedy, away)]
    good = sum(share >= LAST_POSITION for share in drafts.positions)
    if good >= len(drafts.positions):
        return []
    fewer: Pairs = (("num_speculative_tokens", str(max(1, good))),)
    summary = f"Drafts beyond position {good} are accepted less than {LAST_POSITION:.0%} of the time."
    remedy = f"Try num_speculative_tokens={max(1, good)}: with MTP each further token costs a pass."
    return [Finding.proven(drafts, FindingId.DRAFTS_TOO_LONG, Level.INFO, summary, remedy, fewer)]


def preemptions(seen: Observation) -> list[Finding]:
    """Requests were thrown out of a full KV cache and begun again."""
    hit = [sample for sample in seen.samples if sample.preemptions]
    if not hit:
        return []
    count = sum(sample.preemptions or 0 for sample in hit)
    times = "Once a request was" if count == 1 else f"{count:,} times a request was"
    summary = f"{times} put back because the KV cache was full; its work was done again."
    return [Finding.proven(hit[-1], FindingId.PREEMPTIONS, Level.WARNING, summary, *_more_kv(seen))]


def kv_nearly_full(seen: Observation) -> list[Finding]:
    """The KV cache above 95 % now, or at the end of the log."""
    told = [sample for sample in seen.samples if sample.kv_percent is not None]
    if not told or (told[-1].kv_percent or 0.0) < KV_FULL_PERCENT:
        return []
    last = told[-1]
    summary = f"The KV cache is {last.kv_percent:.3g} % full: the next request waits, or puts another one back."
    return [Finding.proven(last, FindingId.KV_NEARLY_FULL, Level.WARNING, summary, *_more_kv(seen))]


def _more_kv(seen: Observation) -> tuple[str, Pairs]:
    """What gives requests more room: the gentlest choice first, and the others in words."""
    choices = kv_alternatives(seen.facts, seen.pool_gib)[::-1]
    if choices:
        text = "; or ".join(choice.text for choice in choices)
        return f"{text[0].upper()}{text[1:]}.", choices[0].override
    wanted = seen.facts.max_num_seqs
    fewer: Pairs = (("max_num_seqs", str(wanted // 2)),) if wanted and 1 < wanted <= MOST_REQUESTS else ()
    return "Lower max_num_seqs or max_model_len, raise gpu_memory_utilization, or use an fp8 KV cache.", fewer


def waiting(seen: Observation) -> list[Finding]:
    """Requests queue, and not only for a moment."""
    told = [sample for sample in seen.samples if sample.waiting is not None]
    last = told[-QUEUE_SAMPLES:]
    if len(last) < QUEUE_SAMPLES or not all(sample.waiting for sample in last):
        return []
    now, limit = last[-1], seen.facts.max_num_seqs
    remedy, override = _more_kv(seen)
    if (now.kv_percent or 0.0) < KV_ROOM_PERCENT:
        remedy = "There is room in the KV cache: raise max_num_seqs. On a Spark each further request slows the others."
        override = (("max_num_seqs", str(limit * 2)),) if limit and limit <= (now.running or 0) <= 1024 else ()
    waits = "1 request waits" if now.waiting == 1 else f"{now.waiting} requests wait"
    beside = "others run" if now.running is None else f"{now.running} run"
    summary = f"{waits} while {beside}, for the third time in a row."
    return [Finding.proven(now, FindingId.WAITING, Level.WARNING, summary, remedy, override)]


def prefix_cache(seen: Observation) -> list[Finding]:
    """Prefix caching is on, many tokens were read, and none was found."""
    told = [sample for sample in seen.samples if sample.prefix_hit_percent is not None and sample.busy]
    read = sum((sample.prompt_rate or 0.0) * INTERVAL_SECONDS for sample in told)
    unused = seen.facts.prefix_caching is False or any(sample.prefix_hit_percent for sample in told)
    if unused or len(told) < ENOUGH_BUSY_SAMPLES or read < ENOUGH_PROMPT_TOKENS:
        return []
    block = seen.facts.attention_block or 0
    why = f" A hybrid model keeps whole blocks of {block:,} tokens only." if block > LARGE_BLOCK else ""
    summary = f"About {round(read, -3):,.0f} prompt tokens were read and none came from the prefix cache.{why}"
    remedy = (
        "Requests share no beginning: put what stays (system prompt, tools, documents) first, and what changes "
        "(the time, an id) after it."
    )
    return [Finding.proven(told[-1], FindingId.PREFIX_CACHE_NEVER_HIT, Level.INFO, summary, remedy)]


def below_baseline(seen: Observation) -> list[Finding]:
    """One stream decodes slower than it has on this box before."""
    was, speed = seen.baseline, single_stream_rate(seen.samples)
    if was is None or speed is None or speed >= BELOW_BASELINE * was.decode_rate:
        return []
    runs = f"{was.runs} run{'s' * (was.runs != 1)}"
    summary = f"One stream decodes {speed:.1f} tok/s; on this box it did {was.decode_rate:.1f} before ({runs})."
    remedy = (
        "Look at the GPU's clock and power first: a GB10 stuck in its low power state needs its plug pulled. Then "
        "compare kernels and speculation with the earlier start."
    )
    return [Finding.proven(_told(seen.samples)[-1], FindingId.BELOW_BASELINE, Level.WARNING, summary, remedy)]


def single_stream_rate(samples: Sequence[ServingSample]) -> float | None:
    """Tokens per second of one request, from intervals that it filled: the best of at least three. None: not known.

    An interval in which a request began or ended shows too little, so its neighbours must have one running too.
    """
    told = _told(samples)
    full = [
        here.generation_rate
        for before, here, after in zip(told, told[1:], told[2:], strict=False)
        if before.running == here.running == after.running == 1 and here.generation_rate
    ]
    return max(full) if len(full) >= ENOUGH_SINGLE else None


NOTABLE_PADDING_PERCENT: Final = 5.0


def fp4_path(seen: Observation) -> list[Finding]:
    """Weight-only without intent, and emulation."""
    verdict = seen.fp4
    known = {Fp4.WEIGHT_ONLY_FALLBACK: FindingId.FP4_FALLBACK, Fp4.EMULATION: FindingId.FP4_EMULATION}
    if verdict.verdict not in known:
        return []
    guess = " The checkpoint's own format is not known here: for a W4A16 one this is right." if verdict.guess else ""
    proof = next(iter(verdict.evidence), None)
    summary, remedy = f"FP4 is {verdict.summary}. {verdict.cost}", verdict.advice + guess
    return [Finding.proven(proof, known[verdict.verdict], Level.WARNING, summary, remedy, verdict.override)]


def refused_backends(seen: Observation) -> list[Finding]:
    """A backend that was asked for and is not there."""
    summary = "A kernel that was asked for does not exist for some layers; vLLM chose another."
    remedy = "Leave the backend to vLLM (auto), or use an image that has it."
    lines = seen.facts.proof(Topic.BACKEND_REFUSED)[:1]
    return [Finding.proven(line, FindingId.BACKEND_REFUSED, Level.WARNING, summary, remedy) for line in lines]


def graph_estimate(seen: Observation) -> list[Finding]:
    """CUDA-graph memory misjudged so far that the KV cache has the wrong size."""
    graphs = graph_memory(seen.facts)
    if graphs.state not in (GraphState.OVERCOMMITTED, GraphState.WASTEFUL):
        return []
    level = Level.INFO if graphs.state is GraphState.WASTEFUL else Level.CRITICAL if graphs.grave else Level.WARNING
    danger = " On unified memory that freezes the box when the cache fills." if graphs.grave else ""
    summary = f"CUDA graphs: {graphs.summary}.{danger}"
    proof = next(iter(graphs.evidence), None)
    return [Finding.proven(proof, FindingId.GRAPH_ESTIMATE, level, summary, graphs.remedy, graphs.override)]


def capture_sizes(seen: Observation) -> list[Finding]:
    """Batches beyond the largest captured size run without a graph."""
    for line in seen.facts.proof(Topic.GRAPH_SIZES)[:1]:
        none_left = line.text.startswith(("No valid", "Skipping"))
        if none_left and seen.facts.eager:
            return []
        summary = (
            "No CUDA graphs are captured: every step pays for the launch of each kernel."
            if none_left
            else "CUDA graphs are captured for smaller batches than asked for; larger ones run without, slower."
        )
        level = Level.INFO if line.text.startswith("Truncating") else Level.WARNING
        remedy, override = _graphs_again(line.text, seen.facts)
        return [Finding.proven(line, FindingId.CAPTURE_SIZES_CAPPED, level, summary, remedy, override)]
    return []


def _graphs_again(text: str, facts: EngineFacts) -> tuple[str, Pairs]:
    if text.startswith("Skipping"):
        return "Leave cudagraph_mode to vLLM, unless NONE was meant.", ()
    wanted = facts.max_num_seqs
    fewer: Pairs = (("max_num_seqs", str(wanted // 2)),) if wanted and 1 < wanted <= MOST_REQUESTS else ()
    return "Lower max_num_seqs, or give the engine more memory.", fewer


def eager(seen: Observation) -> list[Finding]:
    """No compile and no graphs, because somebody asked for it. Silent on the CPU, which has no graphs anyway, and about
    an engine that did not come so far."""
    if not seen.facts.eager or seen.facts.device == "cpu" or seen.facts.kv_tokens is None:
        return []
    summary = (
        "Eager by intent (enforce_eager): no torch.compile and no CUDA graphs. It starts sooner and decodes slower."
    )
    remedy = "Leave enforce_eager out once the model works."
    proof = next(iter(seen.facts.proof(Topic.EAGER)), None)
    return [Finding.proven(proof, FindingId.EAGER, Level.INFO, summary, remedy, (("without", "enforce_eager"),))]


def padding(seen: Observation) -> list[Finding]:
    """Layers of unlike kinds leave gaps in the KV cache."""
    share = seen.facts.padding_percent
    if share is None or share < NOTABLE_PADDING_PERCENT:
        return []
    summary = (
        f"Up to {share:g} % of the KV cache is padding: the layers, the drafter's among them, do not group evenly."
    )
    remedy = "Nothing to do while the KV cache is large enough; without speculation there may be less of it."
    proof = next(iter(seen.facts.proof(Topic.PADDING)), None)
    return [Finding.proven(proof, FindingId.PADDING_WASTE, Level.INFO, summary, remedy)]


_INSTEAD: Final = {
    "VLLM_NVFP4_GEMM_BACKEND": "--linear-backend",
    "VLLM_USE_FLASHINFER_MOE_FP4": "--moe-backend",
    "VLLM_USE_FLASHINFER_MOE_FP8": "--moe-backend",
    "VLLM_USE_FLASHINFER_MOE_FP16": "--moe-backend",
    "VLLM_FP8_MOE_BACKEND": "--moe-backend",
    "VLLM_FLASHINFER_MOE_BACKEND": "--moe-backend",
    "VLLM_MXFP4_USE_MARLIN": "--moe-backend marlin",
    "VLLM_ATTENTION_BACKEND": "--attention-backend",
    "VLLM_ALL2ALL_BACKEND": "--all2all-backend",
}
"""Options that took the place of variables."""


def unknown_variables(seen: Observation) -> list[Finding]:
    """`VLLM_` variables that this version does not read."""
    names = seen.facts.unknown_environment
    if not names:
        return []
    version = f"vLLM {seen.facts.version}" if seen.facts.version else "This vLLM"
    summary = f"{version} does not read {', '.join(names)}: what they were to set is not set."
    instead = [f"instead of {name} use {_INSTEAD[name]}" for name in names if name in _INSTEAD]
    remedy = f"I{'; '.join(instead)[1:]}." if instead else "Look for a typing error, or take them out of the preset."
    level = Level.WARNING if instead else Level.INFO
    proof = next(iter(seen.facts.proof(Topic.ENVIRONMENT)), None)
    return [Finding.proven(proof, FindingId.UNKNOWN_VARIABLE, level, summary, remedy)]


RULES: Final[tuple[Callable[[Observation], list[Finding]], ...]] = (
    hang,
    graph_estimate,
    fp4_path,
    refused_backends,
    capture_sizes,
    acceptance,
    preemptions,
    kv_nearly_full,
    waiting,
    below_baseline,
    unknown_variables,
    prefix_cache,
    padding,
    eager,
)
"""Of findings that matter equally the earlier one is shown first."""


def findings(
    timeline: BootTimeline,
    samples: Sequence[ServingSample] = (),
    *,
    health: Health = Health.UNKNOWN,
    now: float | None = None,
    baseline: Baseline | None = None,
    pool_gib: float | None = None,
    fp4: Fp4Verdict | None = None,
) -> tuple[Finding, ...]:
    """Everything worth saying, the worst first; nothing for a healthy engine. Never raises.

    `samples` come from a `ServingReader` or from `sample_between`. A hang is only spoken of with `now` (on the clock
    of the samples) and a `health` of OK. `fp4` is the verdict where flags and checkpoint are known; else the log's.
    """
    facts = timeline.facts
    seen = Observation(facts, fp4 or fp4_verdict(facts), tuple(samples), health, now, baseline, pool_gib)
    order = tuple(Level)
    return tuple(sorted((found for rule in RULES for found in rule(seen)), key=lambda found: order.index(found.level)))


# --- from /metrics ----------------------------------------------------------------------------------------


def sample_between(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float, at: float | None = None
) -> ServingSample:
    """A sample from two readings of vLLM's `/metrics`, `seconds` apart, as name -> value without labels, summed over
    engines: `vllm:prompt_tokens_total`, `vllm:num_requests_running`, `vllm:kv_cache_usage_perc` ... What is missing
    stays None; a counter that has fallen (the server was started again) counts from zero."""

    def grown(name: str) -> float | None:
        now = after.get(name)
        if now is None:
            return None
        then = before.get(name, 0.0)
        return now - then if now >= then else now

    def rate(name: str) -> float | None:
        tokens = grown(name)
        return None if tokens is None or seconds <= 0 else tokens / seconds

    hits, queries = grown("vllm:prefix_cache_hits_total"), grown("vllm:prefix_cache_queries_total")
    usage = after.get("vllm:kv_cache_usage_perc")
    return ServingSample(
        at=at,
        prompt_rate=rate("vllm:prompt_tokens_total"),
        generation_rate=rate("vllm:generation_tokens_total"),
        running=_whole(after.get("vllm:num_requests_running")),
        waiting=_whole(after.get("vllm:num_requests_waiting")),
        preemptions=_whole(grown("vllm:num_preemptions_total")),
        kv_percent=None if usage is None else usage * 100,
        prefix_hit_percent=None if hits is None or not queries else hits / queries * 100,
        accepted=_whole(grown("vllm:spec_decode_num_accepted_tokens_total")),
        drafted=_whole(grown("vllm:spec_decode_num_draft_tokens_total")),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None or value != value or abs(value) == float("inf") else int(value)
