"""How bad it is: the absolute floor, the trend and the pressure together.

A plain `less than 5 % available` is wrong on a Spark: engines fill the pool by intent, and serve for days at 4 to 5 %
with no pressure at all. What kills the box is the fall to nothing, within seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spark_tui.domain.quantities import GIB, gib, human_duration

if TYPE_CHECKING:
    from spark_tui.domain.host.memory import MemInfo

SERVING_FLOOR: Final = 2 * GIB
"""Below it a serving box is in danger. Healthy ones were recorded down to 3.9 GiB, read in the unkindest way."""
LOADING_FLOOR: Final = 3 * GIB
"""While an engine loads, more is taken every moment; a stopped start costs minutes, a frozen box the plug."""
CLOSE: Final = 1.5
"""Up to so many times the floor it is close to it."""
TREND_BELOW: Final = 12 * GIB
"""A fall is judged below this: above it a load on its way to a healthy end falls as fast as one to a bad end."""
GONE_SOON_SECONDS: Final = 10.0
GONE_SECONDS: Final = 60.0
PRESSURE_BELOW: Final = 8 * GIB
THRASHING_PERCENT: Final = 40.0
"""PSI `some avg10`. In normal service it is 0.00 for days (hermes-agent #90713)."""
WAITING_PERCENT: Final = 1.0
MIN_TREND_SECONDS: Final = 2.0


class Level(StrEnum):
    """How much memory matters now."""

    OK = "ok"
    TIGHT = "tight"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The level and the reason, in words; no reason when all is well."""

    level: Level = Level.OK
    reason: str = ""


def fall_rate(points: Sequence[tuple[float, int]]) -> float:
    """Bytes per second that go away, from `(seconds, usable bytes)` oldest first; negative when memory comes back.

    Zero for less than two seconds of history: a step is no trend.
    """
    if len(points) < 2:
        return 0.0
    (began, first), (ended, last) = points[0], points[-1]
    span = ended - began
    return (first - last) / span if span >= MIN_TREND_SECONDS else 0.0


def severity(mem: MemInfo, *, falling: float = 0.0, pressure: float | None = None, loading: bool = False) -> Judgement:
    """The judgement of one moment. `falling` is `fall_rate` of the last seconds, `pressure` PSI `some avg10` per cent
    (None: not known), `loading` that an engine starts."""
    floor = LOADING_FLOOR if loading else SERVING_FLOOR
    usable = mem.usable
    left = usable / falling if falling > 0 else None
    rate = f"{gib(usable)} GiB usable, and {gib(falling)} GiB/s less"
    if usable < floor:
        return Judgement(Level.CRITICAL, f"{gib(usable)} GiB usable, below the floor of {gib(floor)}")
    if left is not None and usable < TREND_BELOW and left < GONE_SOON_SECONDS:
        return Judgement(Level.CRITICAL, f"{rate}: gone in {human_duration(left)}")
    if pressure is not None and pressure >= THRASHING_PERCENT and usable < PRESSURE_BELOW:
        return Judgement(Level.CRITICAL, f"{gib(usable)} GiB usable, {pressure:.0f} % of the time spent waiting for it")
    if usable < CLOSE * floor:
        return Judgement(Level.TIGHT, f"{gib(usable)} GiB usable, close to the floor of {gib(floor)}")
    if left is not None and usable < TREND_BELOW and left < GONE_SECONDS:
        return Judgement(Level.TIGHT, f"{rate}: gone in {human_duration(left)}")
    if pressure is not None and pressure >= WAITING_PERCENT and usable < PRESSURE_BELOW:
        return Judgement(Level.TIGHT, f"{gib(usable)} GiB usable, {pressure:.1f} % of the time spent waiting for it")
    return Judgement()
