"""What a simulated server counts about its requests, in vLLM's buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from spark_tui.domain.engine.metric_names import Family, Part, Slot

_TTFT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0, inf,
)  # fmt: skip
_ITL: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, inf,
)  # fmt: skip
_REQUEST: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0, inf,
)  # fmt: skip


class Buckets:
    """One histogram. `bounds` rise and end with infinity."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0.0] * len(bounds)
        self._sum = 0.0

    def observe(self, value: float, times: float = 1.0) -> None:
        """`times` observations of that value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def samples(self, family: Family) -> Iterator[tuple[Slot, float]]:
        """As a page has it: cumulative."""
        total = 0.0
        for bound, count in zip(self._bounds, self._counts, strict=True):
            total += count
            yield Slot(family, Part.BUCKET, bound=bound), float(int(total))
        yield Slot(family, Part.SUM), self._sum
        yield Slot(family, Part.COUNT), float(int(total))


@dataclass(slots=True, eq=False)
class Tally:
    """Counters of one start. `until` is how far the simulated traffic has been counted."""

    ttft: Buckets = field(default_factory=lambda: Buckets(_TTFT))
    itl: Buckets = field(default_factory=lambda: Buckets(_ITL))
    e2e: Buckets = field(default_factory=lambda: Buckets(_REQUEST))
    queue: Buckets = field(default_factory=lambda: Buckets(_REQUEST))
    computed: float = 0.0
    cached: float = 0.0
    generated: float = 0.0
    drafts: float = 0.0
    accepted: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0))
    running: int = 0
    until: float | None = None

    def prompt(self, tokens: float, cached: float) -> None:
        """A prompt was read; `cached` of its tokens came from the prefix cache."""
        self.computed += tokens - cached
        self.cached += cached

    def step(self, tokens: float, drafts: float, seconds: float) -> None:
        """Tokens were written in so many drafts, each of which took so long."""
        self.generated += tokens
        self.drafts += drafts
        self.itl.observe(seconds, drafts)
        for position, share in enumerate((0.43, 0.32, 0.25)):
            self.accepted[position] += share * max(0.0, tokens - drafts)

    def request(self, reason: str, seconds: float, queued: float = 0.0) -> None:
        """A request has ended."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
        self.e2e.observe(seconds)
        self.queue.observe(queued)
