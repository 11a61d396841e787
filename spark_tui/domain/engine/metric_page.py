"""One reading of a server's metrics page: the wanted series by what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from spark_tui.domain.engine.metric_names import GAUGES, SHARES, Family, Part, Slot


@dataclass(frozen=True, slots=True)
class MetricPage:
    """Finite values from zero up, by family and slot. What a server publishes otherwise (NaN, negative) is absent."""

    groups: Mapping[Family, Mapping[Slot, float]] = field(default_factory=dict)

    def has(self, family: Family) -> bool:
        """The server publishes it."""
        return family in self.groups

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines of the server: `("0",)`, or one for each data-parallel rank."""
        found = {slot.engine for group in self.groups.values() for slot in group}
        return tuple(sorted(found, key=lambda engine: (len(engine), engine)))

    def of_engine(self, engine: str) -> MetricPage:
        """The part of one engine."""
        parts = {
            family: {slot: value for slot, value in group.items() if slot.engine == engine}
            for family, group in self.groups.items()
        }
        return MetricPage({family: part for family, part in parts.items() if part})

    def values(self, family: Family) -> list[float]:
        """The values of its series, in no order; none for a family that is not published."""
        return [value for slot, value in self.groups.get(family, {}).items() if slot.part is Part.VALUE]

    def total(self, family: Family) -> float | None:
        """The sum over engines and labels; None for a family that is not published."""
        values = self.values(family)
        return sum(values) if values else None

    def by_label(self, family: Family) -> dict[str, float]:
        """Sums over engines, by reason or position; empty for a family that is not published."""
        sums: dict[str, float] = {}
        for slot, value in self.groups.get(family, {}).items():
            sums[slot.label] = sums.get(slot.label, 0.0) + value
        return sums

    def counters(self) -> Iterator[tuple[Slot, float]]:
        """What only grows while the server lives. A histogram's sum is left out: it is a float and may wobble."""
        for family, group in self.groups.items():
            if family not in GAUGES:
                yield from ((slot, value) for slot, value in group.items() if slot.part is not Part.SUM)


EMPTY_PAGE = MetricPage()


def page_of(samples: Iterable[tuple[Slot, float]]) -> MetricPage:
    """A page from its series. Two of one slot (several models, several API servers) are added up; of shares, which
    make no sum, the larger is taken."""
    groups: dict[Family, dict[Slot, float]] = {}
    for slot, value in samples:
        if not 0.0 <= value < inf:  # NaN is not, either
            continue
        group = groups.setdefault(slot.family, {})
        before = group.get(slot)
        if before is None:
            group[slot] = value
        elif slot.family in SHARES:
            group[slot] = max(before, value)
        elif isfinite(before + value):
            group[slot] = before + value
    return MetricPage(groups)
