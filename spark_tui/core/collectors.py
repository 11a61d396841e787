"""What is read again and again: the host, the GPU, the daemon, the preset folders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from spark_tui.core.memory import MemoryWatch
from spark_tui.core.poller import Poller
from spark_tui.core.store import Store
from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.memory import steady
from spark_tui.domain.host.vitals import GpuReading
from spark_tui.domain.reading import NOT_READ_YET, Ok, Reading, aged, value_of
from spark_tui.services.ports import Clock, ContainerEngine, GpuProbe, HostProbe, PresetSource

HOST_SECONDS = 1.0
GPU_SECONDS = 2.0
DAEMON_SECONDS = 20.0


class Collectors:
    """Feeds the store until cancelled."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        host: HostProbe,
        gpu: GpuProbe,
        docker: ContainerEngine,
        presets: PresetSource,
        refresh_seconds: float = HOST_SECONDS,
        memory_watch: MemoryWatch | None = None,
        on_gpu: Callable[[Reading[GpuReading]], None] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._host = host
        self._gpu = gpu
        self._docker = docker
        self._presets = presets
        self._memory_watch = memory_watch
        self._on_gpu = on_gpu
        self.daemon = Poller(
            "Docker", docker.daemon, lambda facts: store.update(docker=Ok(facts, clock.now())), self._failed("docker"),
            clock=clock, interval=DAEMON_SECONDS,
        )  # fmt: skip
        self._host_poller = Poller(
            "the host", self._read_host, lambda _: None, self._failed("memory"), clock=clock, interval=refresh_seconds
        )
        self._gpu_poller = Poller(
            "the GPU driver", gpu.read, self._take_gpu, self._failed("gpu"), clock=clock, interval=GPU_SECONDS
        )

    async def run(self) -> None:
        self._store.update(identity=self._host.identity())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._host_poller.run())
            group.create_task(self.daemon.run())
            group.create_task(self._gpu_poller.run())

    def sample_identity(self) -> None:
        self._store.update(identity=self._host.identity())

    async def collect_once(self) -> None:
        """One reading of the host and the GPU, for a front end that does not stay."""
        self._store.update(identity=self._host.identity())
        await asyncio.gather(self._host_poller.poll(), self._gpu_poller.poll())

    async def collect_ready(self) -> None:
        """The host now, and the GPU where it was never asked: for decisions about memory."""
        self.sample_host()
        if self._store.world.gpu is NOT_READ_YET:
            await self._gpu_poller.poll()

    def load_presets(self) -> None:
        self._store.update(presets=self._presets.load())

    def sample_host(self) -> None:
        world = self._store.world
        uptime, memory, pressure = self._host.uptime(), self._host.memory(), self._host.memory_pressure()
        self._store.update(
            memory=Ok(steady(value_of(world.memory), memory.value), memory.at) if isinstance(memory, Ok) else memory,
            pressure=pressure,
            uptime_minutes=Ok(int(uptime.value // 60), uptime.at) if isinstance(uptime, Ok) else uptime,
        )
        if self._memory_watch is not None:
            self._memory_watch.sampled(memory, pressure)

    async def _read_host(self) -> None:
        self.sample_host()

    def _take_gpu(self, reading: Reading[GpuReading]) -> None:
        self._store.update(gpu=reading)
        if self._on_gpu is not None:
            self._on_gpu(reading)

    def _failed(self, slice_: str) -> Callable[[SparkError], object]:
        """What was read last stays, and is stale from now on."""
        return lambda error: self._store.update(**{slice_: aged(getattr(self._store.world, slice_), str(error))})
