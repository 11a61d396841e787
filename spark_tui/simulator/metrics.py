"""What simulated servers count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_tui.base.engine.metrics_page import Family, MetricPage, Slot, page_of
from spark_tui.simulator.world import (
    PREFIX_HITS,
    REQUEST_INTERVALS,
    STATS_SECONDS,
    Counters,
    Run,
    accepted_length,
    decode_rate,
    interval_of,
    kv_percent,
    noise,
    prompt_rate,
    streams,
)

_JITTER: Final = (0.86, 0.93, 1.0, 1.06, 1.31)
"""How far the steps of an interval are from their mean."""
_CHAT_KV: Final = 0.004


def page_at(run: Run, now: float) -> MetricPage:
    """What a server has counted by then; not to be asked for an earlier time than before."""
    return page_of(counted(run, now))


def counted(run: Run, now: float) -> Iterator[tuple[Slot, float]]:
    """The series of `page_at`."""
    if run.traffic:
        _count_traffic(run, now)
    yield from _samples(run, now)


def _count_traffic(run: Run, now: float) -> None:
    """Brings the counters of a busy server up to now, interval by interval as its log has them."""
    counters = run.counters
    at = counters.until if counters.until is not None else run.ready_at
    while at < now:
        number = int((at - run.ready_at) / STATS_SECONDS) + 1
        end = min(now, run.ready_at + number * STATS_SECONDS)
        if end <= at:  # the interval's end, but for rounding
            number, end = number + 1, min(now, run.ready_at + (number + 1) * STATS_SECONDS)
        _count_interval(counters, number, end - at)
        if end == run.ready_at + number * STATS_SECONDS and number % REQUEST_INTERVALS == 0:
            _count_requests(counters, number)
        at = end
    counters.until = at


def _count_requests(counters: Counters, number: int) -> None:
    """The requests that end with an interval: one of each stream. A crowd waits for its first token."""
    together = streams(number)
    for each in range(together):
        place = (number, each) if each else (number,)
        took = STATS_SECONDS * REQUEST_INTERVALS * (0.93 + 0.06 * noise("took", *place))
        queued = (0.02 + 0.35 * each) * noise("queued", *place)
        counters.request("length" if noise("reason", *place) > 0.8 else "stop", took, queued)
        counters.ttft.observe(0.31 + 0.9 * noise("ttft", *place) ** 2 + queued)


def _count_interval(counters: Counters, number: int, seconds: float) -> None:
    rate, length = decode_rate(number), accepted_length(number)
    if not rate:
        return
    computed = prompt_rate(number) * seconds
    counters.prompt(computed / (1 - PREFIX_HITS), computed / (1 - PREFIX_HITS) * PREFIX_HITS)
    drafts = rate / length * seconds / len(_JITTER)
    step = length / rate * streams(number)
    for share in _JITTER:
        counters.step(drafts * length, drafts, step * share)


def _samples(run: Run, now: float) -> Iterator[tuple[Slot, float]]:
    counters = run.counters
    number = interval_of(run, now)
    busy = streams(number) if run.traffic else 0
    profile = run.profile
    usage = (kv_percent(number) / 100 if run.traffic else 0.0) + _CHAT_KV * counters.running
    values: tuple[tuple[Family, float], ...] = (
        (Family.STARTED, run.started_at),
        (Family.PROMPT, counters.computed + counters.cached),
        (Family.PROMPT_COMPUTED, counters.computed),
        (Family.GENERATED, counters.generated),
        (Family.RUNNING, busy + counters.running),
        (Family.WAITING, 0),
        (Family.KV_USAGE, usage),
        (Family.KV_TOKENS, profile.capacity(run.kv_bytes).tokens),
        (Family.PREFIX_QUERIES, counters.computed + counters.cached),
        (Family.PREFIX_HITS, counters.cached),
        (Family.PREEMPTIONS, 0),
    )
    if profile.drafts:
        values += (
            (Family.DRAFTS, counters.drafts),
            (Family.DRAFT_TOKENS, profile.drafts * counters.drafts),
            (Family.ACCEPTED, sum(counters.accepted)),
        )
    yield from ((Slot(family), float(value)) for family, value in values)
    for reason in ("capacity", "deferred"):
        yield Slot(Family.WAITING_BY_REASON, label=reason), 0.0
    for reason, count in counters.finished.items():
        yield Slot(Family.FINISHED, label=reason), float(count)
    for position, accepted in enumerate(counters.accepted[: profile.drafts]):
        yield Slot(Family.ACCEPTED_BY_POSITION, label=str(position)), accepted
    yield from counters.ttft.samples(Family.TTFT)
    yield from counters.itl.samples(Family.ITL)
    yield from counters.e2e.samples(Family.E2E)
    yield from counters.queue.samples(Family.QUEUE)
