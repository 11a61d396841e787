"""The simulated machine's vital signs and processes: two kinds of processors, a busy disk while weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.domain.host.gpu import GpuProcess
from spark_tui.domain.host.processes import ContainerMemory, HostProcess, heaviest
from spark_tui.domain.host.vitals import (
    Cluster,
    CpuTimes,
    DiskCounters,
    FaultCounters,
    LinkCounters,
    Temperature,
    VitalCounters,
)
from spark_tui.domain.quantities import GIB, MIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.services.demo.world import DemoWorld

_STRONG: Final = (5, 6, 7, 8, 9, 15, 16, 17, 18, 19)
_SMALL: Final = (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)
_TICKS: Final = 100
_DESKTOP: Final = (
    HostProcess(2911, "gnome-shell", 612 * MIB, 402 * MIB, 0, 6 * MIB),
    HostProcess(2747, "Xorg", 214 * MIB, 148 * MIB, 0, 18 * MIB),
    HostProcess(1460, "dockerd", 168 * MIB, 151 * MIB, 0),
    HostProcess(1402, "containerd", 92 * MIB, 74 * MIB, 0),
    HostProcess(3310, "snapd-desktop-i", 61 * MIB, 22 * MIB, 0),
)


class DemoVitals:
    """The VitalsProbe port."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world

    def counters(self) -> VitalCounters:
        """Counters that follow what the engines do."""
        now = self._world.clock.now()
        passed = max(0.0, now - self._world.began_at)
        loading = any(run.stage(now) == "load" for run in self._world.runs)
        share = 0.31 if loading else 0.12
        ticks = int(passed * _TICKS)
        times = {cpu: CpuTimes(int(ticks * share), ticks) for cpu in _STRONG}
        times |= {cpu: CpuTimes(int(ticks * 0.04), ticks) for cpu in _SMALL}
        read = int(passed * (2.1 * GIB if loading else 0.2 * MIB))
        disk = DiskCounters(read, int(passed * 90_000), int(passed * (640 if loading else 3)))
        return VitalCounters(
            at=self._world.clock.monotonic(),
            clusters=Ok((Cluster("X925", _STRONG), Cluster("A725", _SMALL))),
            cpus=Ok(times, now),
            temperatures=Ok(
                (Temperature("SoC", 61.0, 104.8), Temperature("NVMe", 44.8), Temperature("ConnectX", 50.0)), now
            ),
            disks=Ok({"nvme0n1": disk}, now),
            links=Ok(
                {
                    "enP7s7": LinkCounters(int(passed * 48_000), int(passed * 12_500), True, 10_000),
                    "enp1s0f0np0": LinkCounters(0, 0, False),
                    "wlP9s9": LinkCounters(0, 0, False),
                },
                now,
            ),
            faults=Ok(FaultCounters(major=int(passed * (12 if loading else 0))), now),
        )

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """The engines and a desktop."""
        now = self._world.settle()
        held = {process.pid: process.memory for process in gpu}
        containers = {run.pid: each.id for each in self._world.containers.values() for run in each.runs}
        engines = [
            HostProcess(
                run.pid, "VLLM::EngineCor", int(run.held(now).cpu * 0.8), int(run.held(now).cpu * 0.7), 0,
                held.get(run.pid), containers.get(run.pid, ""),
            )
            for run in self._world.runs
            if run.started_at <= now and run.held(now).cuda > 0
        ]  # fmt: skip
        return Ok(heaviest([*engines, *_DESKTOP], limit), now)

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """The processor's side of an engine."""
        now = self._world.settle()
        run = next((run for run in self._world.runs if run.pid == pid), None)
        if run is None:
            return Missing("it has ended")
        cpu = run.held(now).cpu
        return Ok(ContainerMemory(int(cpu * 1.4), cpu, int(cpu * 0.4), 12 * MIB, 0), now)
