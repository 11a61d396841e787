"""Processors, temperatures, disks, links and faults under /proc and /sys. What cannot be read says why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from spark_tui.domain.host.gpu import GpuProcess
from spark_tui.domain.host.processes import ContainerMemory, HostProcess
from spark_tui.domain.host.vitals import (
    Cluster,
    CpuTimes,
    DiskCounters,
    FaultCounters,
    LinkCounters,
    Temperature,
    VitalCounters,
    hottest,
)
from spark_tui.domain.host.vitals_parse import (
    clusters_of,
    hexadecimal,
    parse_cpus,
    parse_disks,
    parse_faults,
    parse_links,
    parse_parts,
    part_of_midr,
)
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.text import clean_line
from spark_tui.services.procfs_processes import ProcessTable
from spark_tui.services.procfs_read import text_or_empty

_SENSORS: Final = {"acpitz": "SoC", "coretemp": "CPU", "k10temp": "CPU", "nvme": "NVMe", "mlx5": "ConnectX"}
"""hwmon names -> what people call them. Others keep their own name."""
_PRIMARY: Final = {"nvme": "Composite"}
"""Chips of which one sensor speaks for all."""
_SANE: Final = range(1, 200)
"""Degrees. A Wi-Fi card that is down reports 0."""


class ProcfsVitals:
    """The VitalsProbe port. `root` is where the host's file system is seen; clocks are arguments."""

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._monotonic = monotonic
        self._now = now
        self._clusters: Reading[tuple[Cluster, ...]] | None = None
        self._sensors: tuple[tuple[Path, str], ...] | None = None
        self._limit: float | None = None
        self._table = ProcessTable(root, now)

    def counters(self) -> VitalCounters:
        """One reading. Never raises."""
        cpus = self._cpus()
        return VitalCounters(
            at=self._monotonic(),
            clusters=self._by_kind(cpus),
            cpus=cpus,
            temperatures=self._temperatures(),
            disks=self._disks(),
            links=self._links(),
            faults=self._faults(),
        )

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """The heaviest processes. Never raises."""
        return self._table.read(gpu, limit)

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """What the kernel charges to the container of a process. Never raises."""
        return self._table.container_memory(pid)

    # --- processors -----------------------------------------------------------------------------------

    def _cpus(self) -> Reading[Mapping[int, CpuTimes]]:
        text = self._told("proc/stat")
        if isinstance(text, Missing):
            return text
        found = parse_cpus(text)
        return Ok(found, self._now()) if found else Missing("/proc/stat names no processor")

    def _by_kind(self, cpus: Reading[Mapping[int, CpuTimes]]) -> Reading[tuple[Cluster, ...]]:
        """Which processor is of which kind does not change: looked up once."""
        if isinstance(cpus, Missing):
            return cpus
        if self._clusters is None:
            self._clusters = Ok(clusters_of(cpus.value, self._parts(cpus.value), self._capacities(cpus.value)))
        return self._clusters

    def _parts(self, cpus: Mapping[int, CpuTimes]) -> dict[int, int]:
        folder = self._root / "sys/devices/system/cpu"
        midrs = {cpu: hexadecimal(text_or_empty(folder / f"cpu{cpu}/regs/identification/midr_el1")) for cpu in cpus}
        found = {cpu: part_of_midr(midr) for cpu, midr in midrs.items() if midr is not None}
        return found or parse_parts(text_or_empty(self._root / "proc/cpuinfo"))

    def _capacities(self, cpus: Mapping[int, CpuTimes]) -> dict[int, int]:
        folder = self._root / "sys/devices/system/cpu"
        texts = {cpu: text_or_empty(folder / f"cpu{cpu}/cpu_capacity") for cpu in cpus}
        return {cpu: int(text) for cpu, text in texts.items() if text.isdecimal()}

    # --- temperatures ---------------------------------------------------------------------------------

    def _temperatures(self) -> Reading[tuple[Temperature, ...]]:
        if self._sensors is None:
            self._sensors = self._find_sensors()
            self._limit = self._critical()
        found = []
        for path, name in self._sensors:
            text = text_or_empty(path)
            celsius = int(text) / 1000 if text.lstrip("-").isdecimal() else 0.0
            if int(celsius) in _SANE:
                found.append(Temperature(name, celsius, self._limit if name == "SoC" else None))
        if not found:
            return Missing("no temperature sensor can be read here")
        return Ok(hottest(found), self._now())

    def _find_sensors(self) -> tuple[tuple[Path, str], ...]:
        """The files of all sensors with what they measure. Where hwmon has none, the thermal zones."""
        found = []
        for chip in sorted(self._root.glob("sys/class/hwmon/hwmon*")):
            own = text_or_empty(chip / "name")
            for sensor in sorted(chip.glob("temp*_input")):
                label = text_or_empty(chip / sensor.name.replace("_input", "_label"))
                if own not in _PRIMARY or label in ("", _PRIMARY[own]):
                    found.append((sensor, _SENSORS.get(own, clean_line(own) or "sensor")))
        if found:
            return tuple(found)
        zones = sorted(self._root.glob("sys/class/thermal/thermal_zone*"))
        kinds = ((zone, text_or_empty(zone / "type")) for zone in zones)
        return tuple((zone / "temp", _SENSORS.get(kind, clean_line(kind) or "zone")) for zone, kind in kinds)

    def _critical(self) -> float | None:
        """Where the firmware switches the machine off: 104.8 degrees on a GB10."""
        for kind in sorted(self._root.glob("sys/class/thermal/thermal_zone*/trip_point_*_type")):
            if text_or_empty(kind) == "critical":
                text = text_or_empty(kind.with_name(kind.name.replace("_type", "_temp")))
                if text.isdecimal() and int(text) // 1000 in _SANE:
                    return int(text) / 1000
        return None

    # --- disks, links, faults -------------------------------------------------------------------------

    def _disks(self) -> Reading[Mapping[str, DiskCounters]]:
        text = self._told("proc/diskstats")
        if isinstance(text, Missing):
            return text
        found = parse_disks(text)
        return Ok(found, self._now()) if found else Missing("/proc/diskstats names no disk")

    def _links(self) -> Reading[Mapping[str, LinkCounters]]:
        text = self._told("proc/net/dev")
        if isinstance(text, Missing):
            return text
        found = {name: self._link(name, *counts) for name, counts in parse_links(text).items()}
        return Ok(found, self._now()) if found else Missing("/proc/net/dev names no link")

    def _link(self, name: str, received: int, sent: int) -> LinkCounters:
        folder = self._root / "sys/class/net" / name
        speed = text_or_empty(folder / "speed")  # -1 while it is down; unreadable for some drivers
        up = text_or_empty(folder / "operstate") in ("up", "unknown")
        return LinkCounters(received, sent, up, int(speed) if speed.isdecimal() else None)

    def _faults(self) -> Reading[FaultCounters]:
        text = self._told("proc/vmstat")
        if isinstance(text, Missing):
            return text
        found = parse_faults(text)
        return Missing("/proc/vmstat counts no faults") if found is None else Ok(found, self._now())

    def _told(self, path: str) -> str | Missing:
        try:
            return (self._root / path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return Missing(f"/{path}: {(error.strerror or str(error)).lower()}")
