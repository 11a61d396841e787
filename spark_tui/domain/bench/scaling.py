"""How throughput grows with the number of streams: efficiency, and where the curve bends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

KNEE_EFFICIENCY: Final = 0.5
"""At the knee each stream still adds at least half of what the first one gives.

The deployment registry whose tables spark-tui reads lists scaling efficiency and knee without their rule; this one
agrees with its rows (36.5 % at the top and the knee at 16; 26.3 % and 8; 43.2 % and 16; 104.1 % and the top itself).
"""


@dataclass(frozen=True, slots=True)
class Scaling:
    """`efficiency` is throughput at `streams` over `streams` times the throughput of one; `most_streams` is the level
    of the highest throughput. None of the knee's fields without a level of one stream: there is no measure then."""

    efficiency: float | None
    most_streams: int
    most_throughput: float
    knee_streams: int | None = None
    knee_throughput: float | None = None
    knee_is_last: bool = False


def efficiency(throughput: Mapping[int, float], streams: int) -> float | None:
    """`T(n) / (n * T(1))`; None without a throughput of one stream."""
    one, there = throughput.get(1), throughput.get(streams)
    return there / (streams * one) if one and there is not None else None


def scaling(throughput: Mapping[int, float]) -> Scaling | None:
    """From tokens per second by number of streams. None without any.

    The scaling efficiency of the whole is that of the level with the most streams. The knee is the last level, from
    one stream upwards, that all have an efficiency of at least one half. `knee_is_last`: the curve was still good at
    the most streams that were measured, so the knee may lie beyond.
    """
    if not throughput:
        return None
    last = max(throughput)
    best = max(throughput, key=lambda streams: (throughput[streams], -streams))
    knee = None
    for streams in sorted(throughput):
        found = efficiency(throughput, streams)
        if found is None or found < KNEE_EFFICIENCY:
            break
        knee = streams
    return Scaling(
        efficiency=efficiency(throughput, last),
        most_streams=best,
        most_throughput=throughput[best],
        knee_streams=knee,
        knee_throughput=None if knee is None else throughput[knee],
        knee_is_last=knee == last,
    )
