"""Health over time: the figures of one night beside those of the weeks before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.engine.image import short_digest
from spark_tui.base.host.series import Record
from spark_tui.base.text import clean_line, truncate
from spark_tui.observe.results.model.plan import Conditions
from spark_tui.observe.results.model.record import ConfidenceInterval, deviation, student_t

KIND: Final = "canary"
"""The kind of its records in the history: `key` is the engine."""
SPAN_SECONDS: Final = 28 * 86_400
LEAST_NIGHTS: Final = 5
"""Fewer say nothing about how much a night varies."""
LEAST_DEVIATION: Final = 0.01
"""A rate varies by this share at least, however alike the nights were so far."""


class Night(Struct, frozen=True):
    """What one night measured. `rate` is output tokens per second of one stream, None where it was not measured;
    `failed` are cases of the proof; `conditions` what may change: image, driver, kernel ..."""

    engine: str
    at: float
    model: str
    rate: float | None
    failed: tuple[str, ...]
    conditions: Mapping[str, str]


class CanaryVerdict(Struct, frozen=True):
    """The last night beside `nights` before it. `interval`: where its rate was to be expected, None where too few are
    known. `broken` are cases that failed in none of them; `changed` conditions with their usual value and today's."""

    last: Night
    nights: int
    interval: ConfidenceInterval | None = None
    broken: tuple[str, ...] = ()
    changed: tuple[tuple[str, str, str], ...] = ()

    @property
    def slower(self) -> bool:
        return self.interval is not None and self.last.rate is not None and self.last.rate < self.interval.low

    @property
    def faster(self) -> bool:
        return self.interval is not None and self.last.rate is not None and self.last.rate > self.interval.high

    @property
    def differs(self) -> bool:
        return self.slower or self.faster or bool(self.broken)

    @property
    def sentence(self) -> str:
        """`41.2 tok/s at 1 stream, expected 46.0 to 48.1 (20 nights). Changed: driver 580 -> 590.`"""
        rate = "speed unknown" if self.last.rate is None else f"{self.last.rate:.1f} tok/s at 1 stream"
        if self.interval is not None:
            low, high = self.interval.low, self.interval.high
            rate += f", expected {low:.1f} to {high:.1f} ({self.nights} nights)"
        else:
            rate += f" ({self.nights} nights before: too few to compare)"
        broken = f" Newly failing: {', '.join(self.broken)}." if self.broken else ""
        changes = ", ".join(
            what if what == "options" else f"{what} {before or 'unknown'} -> {now or 'unknown'}"
            for what, before, now in self.changed
        )
        return f"{rate}.{broken}{f' Changed: {changes}.' if changes else ''}"


def conditions_of_night(found: Conditions) -> dict[str, str]:
    return {
        "image": short_digest(found.image_digest) or short_digest(found.image_id),
        "version": found.version,
        "driver": found.driver,
        "kernel": found.kernel,
        "preset": found.preset,
        "options": "  ".join(found.flags),
    }


def night_of(record: Record) -> Night | None:
    """None for a record that is damaged."""
    body: Any = record.body
    try:
        rate, failed, conditions = body["rate"], tuple(map(str, body["failed"])), dict(body["conditions"])
        rate = None if rate is None else float(rate)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        return None
    texts = {clean_line(str(key)): truncate(clean_line(str(value)), 400) for key, value in conditions.items()}
    return Night(record.key, record.at, str(body.get("model", "")), rate, failed, texts)


def verdicts(nights: Iterable[Night], now: float) -> tuple[CanaryVerdict, ...]:
    """For each engine. A night of the future is left out: the clock was wrong when it was measured, or is now."""
    by_engine: dict[str, list[Night]] = {}
    for night in sorted(nights, key=lambda each: each.at):
        if night.at <= now:
            by_engine.setdefault(night.engine, []).append(night)
    return tuple(_verdict(found) for _, found in sorted(by_engine.items()))


def _verdict(nights: Sequence[Night]) -> CanaryVerdict:
    last = nights[-1]
    before = [each for each in nights[:-1] if each.model == last.model and last.at - each.at <= SPAN_SECONDS]
    known = {case for each in before for case in each.failed}
    broken = tuple(case for case in last.failed if case not in known) if before else ()
    changed = []
    for what, now in last.conditions.items():
        usual = Counter(each.conditions.get(what, "") for each in before).most_common(1)
        if usual and usual[0][0] != now:
            changed.append((what, usual[0][0], now))
    rates = [math.log(each.rate) for each in before if each.rate is not None]
    return CanaryVerdict(last, len(before), _expected(rates), broken, tuple(changed))


def _expected(logs: Sequence[float]) -> ConfidenceInterval | None:
    """The 95 % prediction interval of one more night, from the logarithms of the rates."""
    if len(logs) < LEAST_NIGHTS:
        return None
    mean = math.fsum(logs) / len(logs)
    half = student_t(len(logs) - 1) * max(deviation(logs), LEAST_DEVIATION) * math.sqrt(1 + 1 / len(logs))
    return ConfidenceInterval(math.exp(mean - half), math.exp(mean + half))
