"""Two readings of a server's metrics, and what happened between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite

from spark_tui.domain.engine.metric_names import Family, Part, Slot
from spark_tui.domain.engine.metric_page import EMPTY_PAGE, MetricPage
from spark_tui.domain.engine.metric_quantiles import Histogram, histogram

SAME_START_SECONDS = 1.0
"""A process that has begun more than so much later is another one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A page read `at` monotonic seconds, and what the GPU had drawn until then: `joules`, known for `powered` seconds
    of the time. Both only grow."""

    at: float
    page: MetricPage
    joules: float = 0.0
    powered: float = 0.0

    def of_engine(self, engine: str) -> Snapshot:
        """The part of one engine. Power is not told apart, so it has none."""
        return Snapshot(self.at, self.page.of_engine(engine))


def restarted(before: MetricPage, after: MetricPage) -> bool:
    """The server was started again between the two: its process is another one, or a counter has fallen."""
    then, now = before.total(Family.STARTED), after.total(Family.STARTED)
    if then is not None and now is not None and now - then > SAME_START_SECONDS:
        return True
    old = dict(before.counters())
    return any(value < old.get(slot, 0.0) for slot, value in after.counters())


@dataclass(frozen=True, slots=True)
class Change:
    """From one snapshot of a start to a later one of the same; `before` None is the start itself, when all was zero.

    `seconds` is the time between the two; None when it is not known.
    """

    before: Snapshot | None
    after: Snapshot
    seconds: float | None

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Change:
        """Both snapshots are of one start."""
        return cls(before, after, after.at - before.at)

    @property
    def page(self) -> MetricPage:
        """What the server says now."""
        return self.after.page

    @property
    def _old(self) -> MetricPage:
        return self.before.page if self.before else EMPTY_PAGE

    def of_engine(self, engine: str) -> Change:
        """The part of one engine."""
        before = self.before.of_engine(engine) if self.before else None
        return Change(before, self.after.of_engine(engine), self.seconds)

    def grown(self, family: Family) -> float | None:
        """By how much a counter has grown; None for one that is not published."""
        now = self.page.total(family)
        return None if now is None else max(0.0, now - (self._old.total(family) or 0.0))

    def grown_by_label(self, family: Family) -> dict[str, float]:
        """The same for each reason or position."""
        old = self._old.by_label(family)
        return {label: max(0.0, now - old.get(label, 0.0)) for label, now in self.page.by_label(family).items()}

    def rate(self, family: Family) -> float | None:
        """Growth per second; None where it is not published, or over no time."""
        grown = self.grown(family)
        return grown / self.seconds if grown is not None and self.seconds and self.seconds > 0 else None

    def histogram(self, family: Family) -> Histogram | None:
        """What was observed between the two, over all engines; None where it is not published."""
        group = self.page.groups.get(family)
        if group is None:
            return None
        sums, counts, buckets = _grown(group, self._old.groups.get(family, {}))
        sum_ = sums if sums is not None and isfinite(sums) else None
        return histogram(buckets, counts, sum_)

    @property
    def joules(self) -> float | None:
        """Energy that the GPU drew; None where its power was not known for most of the time."""
        if self.before is None or not self.seconds:
            return None
        known = self.after.powered - self.before.powered
        return (self.after.joules - self.before.joules) / known * self.seconds if known >= 0.8 * self.seconds else None


def _grown(
    now: Mapping[Slot, float], then: Mapping[Slot, float]
) -> tuple[float | None, float | None, dict[float, float]]:
    """Sum, count, and observations by bound. Engines have the same bounds; a bound that not all have is left out."""
    sums: float | None = None
    counts: float | None = None
    buckets: dict[float, float] = {}
    having: dict[float, int] = {}
    for slot, value in now.items():
        grown = max(0.0, value - then.get(slot, 0.0))
        if slot.part is Part.BUCKET:
            buckets[slot.bound] = buckets.get(slot.bound, 0.0) + grown
            having[slot.bound] = having.get(slot.bound, 0) + 1
        elif slot.part is Part.SUM:
            sums = grown if sums is None else sums + grown
        elif slot.part is Part.COUNT:
            counts = grown if counts is None else counts + grown
    most = max(having.values(), default=0)
    return sums, counts, {bound: grown for bound, grown in buckets.items() if having[bound] == most or bound == inf}
