"""The control centre on a quiet Spark: an engine serves, nobody asks, memory drifts by a few MiB a second.

With `live`: its memory alone is that; Docker, the engine and the GPU are those of the environment.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from msgspec.structs import replace

from spark_tui.app import wiring
from spark_tui.app.control_centre import run_app
from spark_tui.base.context import Context
from spark_tui.base.executors import SystemClock
from spark_tui.base.finding import Ok, Reading
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.host.vitals import GpuProcess, GpuReading, HostPaths, Vitals
from spark_tui.base.ports import VitalsProbe
from spark_tui.base.quantities import GIB, KIB, MIB
from spark_tui.base.settings import Settings, defaults, folders_of
from tests.fakes_api import FakeEngineApi
from tests.fakes_docker import FakeDocker
from tests.fakes_host import IDLE_MEMORY, FakeArchive, FakeHost, FakeSecrets
from tests.fakes_ports import Absent, Ports
from tests.kit import PRESET, FixedPresets

FULL = replace(IDLE_MEMORY, free=14 * GIB, available=24 * GIB, cached=12 * GIB)
DRIFT = 4 * MIB


class DriftingHost(FakeHost):
    """Memory as it moves on a box on which nothing happens."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(7)
        self._free = FULL.free

    def memory(self) -> Reading[MemInfo]:
        self._free += self._chance.randint(-DRIFT, DRIFT) // KIB * KIB
        return Ok(replace(FULL, free=self._free, available=self._free + 10 * GIB))


class IdleGpu:
    """A GB10 with a context and no request: 14 W, give or take."""

    def __init__(self) -> None:
        self._chance = random.Random(7)

    def start(self) -> None:
        return

    async def read(self) -> Reading[GpuReading]:
        watts = 13.9 + self._chance.uniform(-0.25, 0.25)
        processes = (GpuProcess(77, 80 * GIB),)
        return Ok(GpuReading("NVIDIA GB10", 0, watts, 52, 2411, unified=True, processes=processes, throttled=()))

    async def close(self) -> None:
        return


def live() -> Context:
    """What others do on the machine that tests run on is not in it."""
    folders = folders_of(os.environ, Path.home())
    settings = defaults(folders)
    vitals = Absent(VitalsProbe, look=Vitals())
    ports = wiring.real_ports(settings, folders, os.environ, host=DriftingHost(), vitals=vitals)
    return Context(settings, ports, HostPaths(str(settings.store), str(settings.caches), str(folders.home)))


def main() -> None:
    if "live" in sys.argv:
        run_app(live())
        return
    clock = SystemClock()
    docker = FakeDocker()
    api = FakeEngineApi(clock)
    facts = docker.add_container("qwen", argv=("vllm", "serve", "m"), pid=77)
    host = DriftingHost()
    host.containers[77] = facts.id
    ports = Ports(clock, docker, api, host, IdleGpu(), FixedPresets(PRESET), FakeSecrets(), FakeArchive())
    run_app(Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test")))


if __name__ == "__main__":
    main()
