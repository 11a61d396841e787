"""What a server's metrics say about how it serves: speed, queue, latency, KV cache, speculation."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

from spark_tui.domain.engine.metric_change import Change
from spark_tui.domain.engine.metric_names import Family
from spark_tui.domain.engine.metric_page import MetricPage
from spark_tui.domain.engine.metric_quantiles import Latency
from spark_tui.domain.host.detectors import TokenSample
from spark_tui.domain.reading import Missing, Ok, Reading

ONE_LOOK: Final = Missing("a rate needs two looks at the engine")
AT_END_NOTE: Final = "This server counts tokens when a request ends: speeds are means over the window."
TPOT_NOTE: Final = "Inter-token latency is the mean over each request: this server tells no other."
AT_MOST_NOTE: Final = "KV capacity is blocks times their size, which is too much for a hybrid model."


@dataclass(frozen=True, slots=True)
class Drafting:
    """Speculation over a window. `acceptance` is the share of drafted tokens that were accepted, `length` the tokens
    that one step yields (accepted ones and the model's own), `positions` the share of drafts accepted at each
    position. Shares are 0 to 1; None where the server does not tell. `drafted` counts tokens."""

    acceptance: float | None = None
    length: float | None = None
    positions: tuple[float, ...] = ()
    drafted: float | None = None


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One server, or one engine of it, over a window of `seconds` (None: since its start, which is not known).

    Rates are tokens per second over the last `rate_seconds`; latencies, shares and `finished` are over the window;
    running, waiting and the KV cache are now. `prefill_rate` leaves out what came from a cache where the server tells
    it apart. `kv_usage` and `prefix_hits` are shares from 0 to 1. `waiting_by_reason` and `finished` are empty where
    the server gives no reasons. `energy` is the GPU's joules per generated token. `prompt_tokens`,
    `generated_tokens` and `preemptions_ever` count since the server's start. `notes` say what a figure is not.
    """

    seconds: float | None
    rate_seconds: float | None
    prefill_rate: Reading[float]
    decode_rate: Reading[float]
    running: Reading[float]
    waiting: Reading[float]
    ttft: Reading[Latency]
    itl: Reading[Latency]
    e2e: Reading[Latency]
    queue: Reading[Latency]
    kv_usage: Reading[float]
    kv_capacity_tokens: Reading[int]
    prefix_hits: Reading[float]
    preemptions: Reading[float]
    drafting: Reading[Drafting]
    energy: Reading[float]
    finished_count: Reading[float]
    failed_count: Reading[float]
    prompt_tokens: Reading[float]
    generated_tokens: Reading[float]
    preemptions_ever: Reading[float]
    waiting_by_reason: tuple[tuple[str, float], ...] = ()
    finished: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()


def measure(wide: Change, narrow: Change | None = None) -> EngineMetrics:
    """`wide` is the window, `narrow` the shorter stretch that speeds are taken over (the window itself if None)."""
    short = wide if narrow is None or _counts_at_end(wide) else narrow
    finished = wide.grown_by_label(Family.FINISHED)
    return EngineMetrics(
        seconds=wide.seconds,
        rate_seconds=short.seconds,
        prefill_rate=_prefill(short),
        decode_rate=_decode(short),
        running=_told(wide.page.total(Family.RUNNING), Family.RUNNING),
        waiting=_told(wide.page.total(Family.WAITING), Family.WAITING),
        ttft=_latency(wide, Family.TTFT),
        itl=_latency(wide, Family.ITL if wide.page.has(Family.ITL) else Family.TPOT),
        e2e=_latency(wide, Family.E2E),
        queue=_latency(wide, Family.QUEUE),
        kv_usage=_kv_usage(wide),
        kv_capacity_tokens=_capacity(wide),
        prefix_hits=_prefix(wide),
        preemptions=_told(wide.grown(Family.PREEMPTIONS), Family.PREEMPTIONS),
        drafting=_drafting(wide),
        energy=_energy(wide),
        finished_count=_told(sum(finished.values()) if finished else None, Family.FINISHED),
        failed_count=_failed(finished),
        prompt_tokens=_told(_prompt_tokens(wide), Family.PROMPT),
        generated_tokens=_told(wide.page.total(generated_family(wide)), Family.GENERATED),
        preemptions_ever=_told(wide.page.total(Family.PREEMPTIONS), Family.PREEMPTIONS),
        waiting_by_reason=tuple(sorted(wide.page.by_label(Family.WAITING_BY_REASON).items())),
        finished=tuple(sorted((reason, count) for reason, count in finished.items() if reason)),
        notes=_notes(wide),
    )


def token_sample(page: MetricPage, at: float) -> TokenSample | None:
    """For the wedge detector: what runs, and how far the counters that move while a request runs have come. None where
    there is no such counter: one that moves when a request ends looks frozen during every long answer."""
    running = page.total(Family.RUNNING)
    live = next(
        (family for family in (Family.GENERATED, Family.GENERATED_LIVE, Family.STEPS) if page.has(family)), None
    )
    if running is None or live is None:
        return None
    prompt = page.total(Family.PROMPT_COMPUTED)
    return TokenSample(at, running, page.total(live) or 0.0, page.total(Family.PROMPT) or prompt)


# --- speed --------------------------------------------------------------------------------------------


def generated_family(change: Change) -> Family:
    """The counter of generated tokens, the one that moves while a request runs first."""
    for family in (Family.GENERATED, Family.GENERATED_LIVE):
        if change.page.has(family):
            return family
    return Family.GENERATED_AT_END


def _counts_at_end(change: Change) -> bool:
    return generated_family(change) is Family.GENERATED_AT_END


def _decode(change: Change) -> Reading[float]:
    speed, running = change.page.total(Family.DECODE_SPEED), change.page.total(Family.RUNNING)
    if speed is not None and _counts_at_end(change):  # older SGLang: the last figure stays when nothing runs
        return Ok(speed if running else 0.0)
    return _rate(change, generated_family(change))


def _prefill(change: Change) -> Reading[float]:
    computed = change.page.has(Family.PROMPT_COMPUTED)
    return _rate(change, Family.PROMPT_COMPUTED if computed else Family.PROMPT)


def _rate(change: Change, family: Family) -> Reading[float]:
    rate = change.rate(family)
    if rate is None and change.page.has(family):
        return ONE_LOOK
    return _told(rate, family)


def _prompt_tokens(change: Change) -> float | None:
    whole = change.page.total(Family.PROMPT)
    if whole is not None:
        return whole
    computed = change.page.total(Family.PROMPT_COMPUTED)
    return None if computed is None else computed + (change.page.total(Family.PROMPT_CACHED) or 0.0)


def _energy(change: Change) -> Reading[float]:
    joules, tokens = change.joules, change.grown(generated_family(change))
    if joules is None:
        return Missing("the GPU's power was not known over the whole window")
    if tokens is None:
        return _absent(Family.GENERATED)
    return Ok(joules / tokens) if tokens else Missing("no token was generated in the window")


# --- requests -----------------------------------------------------------------------------------------


def _latency(change: Change, family: Family) -> Reading[Latency]:
    found = change.histogram(family)
    if found is None:
        return _absent(family)
    latency = found.latency()
    if latency is None:
        since = "since the start" if change.before is None else "in the window"
        return Missing(f"no {'token was generated' if family is Family.ITL else 'request came so far'} {since}")
    return Ok(latency)


def _failed(finished: dict[str, float]) -> Reading[float]:
    """Errors; a client that goes away (`abort`) is none. TensorRT-LLM gives HTTP codes."""
    reasons = [count for reason, count in finished.items() if reason == "error" or reason.isdigit()]
    if not any(finished):
        return _absent(Family.FINISHED)
    return Ok(sum(reasons))


# --- caches -------------------------------------------------------------------------------------------


def _kv_usage(change: Change) -> Reading[float]:
    """The mean over engines, which have caches of one size."""
    values = change.page.values(Family.KV_USAGE)
    return Ok(min(1.0, sum(values) / len(values))) if values else _absent(Family.KV_USAGE)


def _capacity(change: Change) -> Reading[int]:
    page = change.page
    for family in (Family.KV_TOKENS, Family.KV_TOKENS_AT_MOST):
        tokens = page.total(family)
        if tokens:
            return Ok(int(tokens))
    blocks, size = page.total(Family.KV_BLOCKS), max(page.values(Family.KV_BLOCK_TOKENS), default=None)
    product = blocks * size if blocks and size else 0.0
    return Ok(int(product)) if product and isfinite(product) else _absent(Family.KV_TOKENS)


def _prefix(change: Change) -> Reading[float]:
    hits, asked = _prefix_counts(change)
    if hits is None or asked is None:
        return _absent(Family.PREFIX_HITS)
    return Ok(min(1.0, hits / asked)) if asked else Missing("no prompt was looked up in the window")


def _prefix_counts(change: Change) -> tuple[float | None, float | None]:
    """Hits and look-ups, in tokens or blocks."""
    hits = change.grown(Family.PREFIX_HITS)
    if hits is not None:
        misses = change.grown(Family.PREFIX_MISSES)
        return hits, change.grown(Family.PREFIX_QUERIES) if misses is None else hits + misses
    cached, prompt = change.grown(Family.PROMPT_CACHED), change.grown(Family.PROMPT)
    if cached is None:
        return None, None
    return cached, prompt if prompt is not None else cached + (change.grown(Family.PROMPT_COMPUTED) or 0.0)


# --- speculation --------------------------------------------------------------------------------------


def _drafting(change: Change) -> Reading[Drafting]:
    tokens, accepted = change.grown(Family.DRAFT_TOKENS), change.grown(Family.ACCEPTED)
    if tokens is None or accepted is None:
        return _reckoned(change)
    if not tokens:
        return Missing("nothing was drafted in the window")
    drafts = change.grown(Family.DRAFTS)
    length = 1 + accepted / drafts if drafts else max(change.page.values(Family.ACCEPTED_LENGTH), default=None)
    return Ok(Drafting(min(1.0, accepted / tokens), length, _positions(change, drafts), tokens))


def _positions(change: Change, drafts: float | None) -> tuple[float, ...]:
    by_position = change.grown_by_label(Family.ACCEPTED_BY_POSITION)
    counted = sorted((int(label), count) for label, count in by_position.items() if label.isdecimal())
    return tuple(min(1.0, count / drafts) for _, count in counted) if drafts else ()


def _reckoned(change: Change) -> Reading[Drafting]:
    """SGLang tells averages of its last batches; zero where it does not speculate."""
    length = max(change.page.values(Family.ACCEPTED_LENGTH), default=0.0)
    if not length:
        return Missing("it does not speculate")
    share = max(change.page.values(Family.ACCEPTED_SHARE), default=None)
    return Ok(Drafting(share if share is None else min(1.0, share), length))


# --- words --------------------------------------------------------------------------------------------


def _told(value: float | None, family: Family) -> Reading[float]:
    return _absent(family) if value is None or not isfinite(value) else Ok(value)


def _absent(family: Family) -> Missing:
    return Missing(f"the server does not tell: {family.value}")


def _notes(change: Change) -> tuple[str, ...]:
    page = change.page
    found = (
        (_counts_at_end(change) and page.has(Family.GENERATED_AT_END), AT_END_NOTE),
        (page.has(Family.TPOT) and not page.has(Family.ITL), TPOT_NOTE),
        (page.has(Family.KV_TOKENS_AT_MOST) and not page.has(Family.KV_TOKENS), AT_MOST_NOTE),
    )
    return tuple(note for applies, note in found if applies)
