"""One GPU's live readings. Every field may be absent on its own: a GB10 reports no memory and no limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None means that the driver does not report the value."""

    name: str
    utilization_percent: int | None = None
    power_watts: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_used: int | None = None
