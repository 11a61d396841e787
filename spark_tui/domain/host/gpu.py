"""One GPU's live readings. Every field may be absent on its own: a GB10 reports no memory and no limits."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.domain.reading import Missing, Ok, Reading


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a GPU context. `memory` in bytes, None where the driver does not report it.

    `compute` is false for those that only draw (Xorg, a desktop).
    """

    pid: int
    memory: int | None = None
    compute: bool = True


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None means that the driver does not report the value.

    `unified` says that the GPU has no memory of its own: then `memory_used` and `memory_total` are None, and the
    truth is in `/proc/meminfo`.
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
