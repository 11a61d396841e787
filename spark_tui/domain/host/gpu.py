"""One GPU's live readings. Every field may be absent on its own: a GB10 reports no memory and no limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.reading import Missing, Ok, Reading


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a GPU context. `memory` in bytes, None where the driver does not report it.

    `compute` is false for those that only draw (Xorg, a desktop).
    """

    pid: int
    memory: int | None = None
    compute: bool = True


class Throttle(StrEnum):
    """What holds the clock below what the load asks for."""

    POWER_CAP = "power cap"
    HW_SLOWDOWN = "hardware slowdown"
    SYNC_BOOST = "sync boost"
    THERMAL = "thermal"
    HW_THERMAL = "hardware thermal"
    POWER_BRAKE = "power brake"


REASON_BITS: Final[Mapping[int, Throttle]] = {
    0x04: Throttle.POWER_CAP,
    0x08: Throttle.HW_SLOWDOWN,
    0x10: Throttle.SYNC_BOOST,
    0x20: Throttle.THERMAL,
    0x40: Throttle.HW_THERMAL,
    0x80: Throttle.POWER_BRAKE,
}
"""nvmlClocksEventReason* of nvidia-ml-py 13. Idle (0x1), a set application clock (0x2) and the display's (0x100) are
no throttling."""


NOTICEABLE: Final = 0.1
"""A share of the time. Under any load the counters run a little."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """What held the clock down, and for which share of the time between two readings, 0 to 1."""

    kind: Throttle
    share: float


def throttled_between(
    before: Mapping[Throttle, int], after: Mapping[Throttle, int], seconds: float
) -> tuple[Throttled, ...]:
    """What two readings of the cumulative counters (nanoseconds) say of the time between them, the largest first.

    A GB10's momentary bits stay 0 while these counters run: they are what tells. A counter that has fallen (another
    driver) counts for nothing.
    """
    if seconds <= 0:
        return ()
    grown = {kind: value - before[kind] for kind, value in after.items() if kind in before}
    found = [Throttled(kind, min(1.0, held / (seconds * 1e9))) for kind, held in grown.items() if held > 0]
    return tuple(sorted(found, key=lambda each: (-each.share, each.kind)))


def throttled_now(bits: int) -> tuple[Throttled, ...]:
    """What the momentary bits say, for drivers without counters."""
    return tuple(Throttled(kind, 1.0) for bit, kind in REASON_BITS.items() if bits & bit)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None means that the driver does not report the value.

    `throttled` is what held the clock down since the reading before; None until there are two, or where the driver
    does not tell. `unified` says that the GPU has no memory of its own: then `memory_used` and `memory_total` are
    None, and the truth is in `/proc/meminfo`.
    """

    name: str
    utilization_percent: int | None = None
    power_watts: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    unified: bool = False
    driver: str = ""
    processes: tuple[GpuProcess, ...] | None = None
    throttled: tuple[Throttled, ...] | None = None

    @property
    def held_by(self) -> str:
        """What keeps the clock down for a noticeable share of the time, `thermal` for example; empty when nothing."""
        return next((each.kind.value for each in self.throttled or () if each.share >= NOTICEABLE), "")

    @property
    def figures(self) -> tuple[str, ...]:
        """`92 %`, `45 W`, `2400 MHz`, `61 C`, `clock held by thermal`: what is known of its load, in this order."""
        known = (
            (self.utilization_percent, "{} %"),
            (self.power_watts, "{:.0f} W"),
            (self.sm_clock_mhz, "{} MHz"),
            (self.temperature_c, "{} C"),
            (self.held_by or None, "clock held by {}"),
        )
        return tuple(shape.format(value) for value, shape in known if value is not None)

    def compute_memory(self) -> Reading[int]:
        """Bytes that CUDA processes hold together: the engine's part of the pool. Missing when one of them is not
        reported, for a sum without it would be a wrong one."""
        if self.processes is None:
            return Missing("the driver does not list GPU processes")
        held = [process.memory for process in self.processes if process.compute]
        known = [memory for memory in held if memory is not None]
        if len(known) < len(held):
            return Missing("NVML process memory not reported")
        return Ok(sum(known))


def engine_memory(gpu: Reading[GpuReading]) -> Reading[int]:
    """The engine's part of the pool as far as the GPU could be read; the reason why not otherwise."""
    return gpu if isinstance(gpu, Missing) else gpu.value.compute_memory()
