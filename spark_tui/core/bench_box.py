"""The box while it is measured: memory, power, clock and temperature; and the end of a run when memory falls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from spark_tui.domain.bench.run import BoxSample, memory_reason
from spark_tui.domain.errors import RefusedError
from spark_tui.domain.quantities import gib
from spark_tui.domain.reading import Ok, value_of
from spark_tui.services.ports import Clock, GpuProbe, HostProbe

SAMPLE_SECONDS: Final = 1.0
STRIKES: Final = 3
"""Looks in a row below the floor before a run is stopped: as the memory guard's, and before it acts."""


class BoxWatch:
    """Adds to `samples`, which may be exchanged while it watches. Sets `stop` when memory is short, and `reason`."""

    def __init__(self, host: HostProbe, gpu: GpuProbe, clock: Clock, floor: int, stop: asyncio.Event) -> None:
        self.samples: list[BoxSample] = []
        self.reason = ""
        self._host = host
        self._gpu = gpu
        self._clock = clock
        self._floor = floor
        self._stop = stop
        self._low = 0

    def check(self) -> None:
        """Raises RefusedError when there is too little memory to begin."""
        memory = value_of(self._host.memory())
        if memory is not None and memory.usable < self._floor:
            raise RefusedError(
                f"Only {gib(memory.usable)} GiB of memory is usable, less than the guard's floor of "
                f"{gib(self._floor)} GiB: load could end in a freeze.",
                "Stop another engine first, or lower guard_serving_gib in the settings.",
            )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watches while the body runs."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._look()
            await self._clock.sleep(SAMPLE_SECONDS)

    async def _look(self) -> None:
        memory, gpu = self._host.memory(), await self._gpu.read()
        mem, device = value_of(memory), gpu.value if isinstance(gpu, Ok) else None
        self.samples.append(
            BoxSample(
                at=self._clock.monotonic(),
                usable_bytes=mem.usable if mem else None,
                used_bytes=mem.used if mem else None,
                power_watts=device.power_watts if device else None,
                temperature_c=device.temperature_c if device else None,
                sm_clock_mhz=device.sm_clock_mhz if device else None,
                utilization_percent=device.utilization_percent if device else None,
            )
        )
        if mem is None or not isinstance(memory, Ok):
            return
        self._low = self._low + 1 if mem.usable < self._floor else 0
        if self._low >= STRIKES and not self._stop.is_set():
            self.reason = memory_reason(mem.usable, self._floor)
            self._stop.set()
