"""Findings about how an engine serves: drafts, KV cache, queue, speed, and one that is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.domain.engine.endpoint import Health
from spark_tui.domain.engine.finding import Finding, FindingId, Level, Observation
from spark_tui.domain.engine.serving_lines import ServingSample, drafting
from spark_tui.domain.engine.sizing import MOST_REQUESTS, Pairs, kv_alternatives
from spark_tui.domain.quantities import human_duration

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
