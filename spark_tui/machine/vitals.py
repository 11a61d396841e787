"""The machine's vital signs, read on request: by psutil, and by hand what psutil does not know."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.host import vitals
from spark_tui.base.host.memory import container_id
from spark_tui.base.quantities import MIB, hexadecimal
from spark_tui.base.text import clean_line
from spark_tui.machine.procfs import cpu_numbers, psutil_at, text_or_empty, why

_T = TypeVar("_T")

_SENSORS: Final = {"acpitz": "SoC", "coretemp": "CPU", "k10temp": "CPU", "nvme": "NVMe", "mlx5": "ConnectX"}
"""hwmon names -> what people call them. Others keep their own name."""
_PRIMARY: Final = {"nvme": "Composite"}
"""Chips of which one sensor represents all."""
_SANE: Final = range(1, 200)
"""Degrees. A Wi-Fi card that is down reports 0."""
_DISK: Final = re.compile(r"nvme\d+n\d+|sd[a-z]+|vd[a-z]+|mmcblk\d+")
"""Whole disks: no partitions, no loop devices, of which a Spark has twenty."""
_NOT_LINKS: Final = re.compile(r"lo|docker\d*|veth.*|br-.*|virbr.*|ifb.*|dummy.*|cni.*|flannel.*|tunl.*|sit\d.*")
WORTH_BYTES: Final = 8 * MIB
"""Smaller processes are left out."""
CLOSER: Final = 16
"""The kernel walks all pages of a process for its PSS: only this many of the heaviest are asked."""


class HostVitals(Struct, eq=False):
    """The VitalsProbe port. `root` is where the host's file system is seen; clocks are arguments."""

    _root: Path = Path("/")
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    _at: float = 0.0
    _before: dict[str, vitals.Counters] = field(default_factory=dict)
    _clusters: tuple[vitals.CpuCluster, ...] = field(default_factory=lambda: ())
    _sensors: tuple[tuple[Path, str], ...] | None = None
    _limit: float | None = None

    def look(self) -> vitals.Vitals:
        at = self.monotonic()
        seconds, self._at = at - self._at, at
        return vitals.Vitals(
            self._loads(seconds),
            self._temperatures(),
            self._disks(seconds),
            self._links(seconds),
            self._faults(seconds),
        )

    def _rates(
        self, kind: str, read: Callable[[], vitals.Counters], seconds: float
    ) -> Reading[dict[str, tuple[float, ...]]]:
        """Counters of one kind per second since the look before."""
        try:
            after = read()
        except (OSError, RuntimeError, ValueError) as error:
            self._before.pop(kind, None)
            return Missing(f"/proc/{kind}: {why(error)}")
        if not after:
            return Missing(f"/proc/{kind} lists nothing")
        before, self._before[kind] = self._before.get(kind), after
        return (
            vitals.TWO_READINGS_NEEDED
            if before is None or seconds <= 0
            else Ok(vitals.per_second(before, after, seconds))
        )

    def _made(self, rates: Reading[dict[str, tuple[float, ...]]], make: Callable[..., _T]) -> Reading[tuple[_T, ...]]:
        if isinstance(rates, Missing):
            return rates
        return Ok(tuple(make(name, *values) for name, values in rates.value.items()), self.now())

    # --- processors, disks, links, faults -------------------------------------------------------------

    def _loads(self, seconds: float) -> Reading[tuple[vitals.ClusterLoad, ...]]:
        def read() -> vitals.Counters:
            times = psutil_at(self._root).cpu_times(percpu=True)
            numbers = cpu_numbers(self._root) or range(len(times))
            if not self._clusters:  # which processor is of which kind does not change
                self._clusters = self._kinds(numbers)
            idle = {number: each.idle + each.iowait for number, each in zip(numbers, times, strict=False)}
            total = {number: sum(each[:8]) for number, each in zip(numbers, times, strict=False)}  # guests are in user
            return {
                each.name: (
                    sum(total[cpu] - idle[cpu] for cpu in each.cpus if cpu in total),
                    sum(total[cpu] for cpu in each.cpus if cpu in total),
                )
                for each in self._clusters
            }

        rates = self._rates("stat", read, seconds)
        if isinstance(rates, Missing):
            return rates
        loads = []
        for each in self._clusters:
            busy, total = rates.value[each.name]
            loads.append(
                vitals.ClusterLoad(each.name, len(each.cpus), min(100.0, 100.0 * busy / total) if total else 0.0)
            )
        return Ok(tuple(loads), self.now())

    def _kinds(self, cpus: Sequence[int]) -> tuple[vitals.CpuCluster, ...]:
        """By part number from sysfs or cpuinfo, else by capacity."""
        folder = self._root / "sys/devices/system/cpu"
        midrs = {cpu: hexadecimal(text_or_empty(folder / f"cpu{cpu}/regs/identification/midr_el1")) for cpu in cpus}
        parts = {cpu: midr >> 4 & 0xFFF for cpu, midr in midrs.items() if midr is not None}
        texts = {cpu: text_or_empty(folder / f"cpu{cpu}/cpu_capacity") for cpu in cpus}
        capacities = {cpu: int(text) for cpu, text in texts.items() if text.isdecimal()}
        return vitals.clusters_of(
            cpus, parts or vitals.parse_parts(text_or_empty(self._root / "proc/cpuinfo")), capacities
        )

    def _disks(self, seconds: float) -> Reading[tuple[vitals.DiskRate, ...]]:
        def read() -> vitals.Counters:
            found = psutil_at(self._root).disk_io_counters(perdisk=True)
            return {
                name: (each.read_bytes, each.write_bytes, each.busy_time / 10)  # milliseconds -> per cent of a second
                for name, each in found.items()
                if _DISK.fullmatch(name)
            }

        return self._made(
            self._rates("diskstats", read, seconds),
            lambda name, read, written, busy: vitals.DiskRate(name, read, written, min(100.0, busy)),
        )

    def _links(self, seconds: float) -> Reading[tuple[vitals.LinkRate, ...]]:
        def read() -> vitals.Counters:
            found = psutil_at(self._root).net_io_counters(pernic=True)
            kept = {name: each for name, each in found.items() if not _NOT_LINKS.fullmatch(name)}
            rdma = {name: self._rdma_bytes(name) for name in kept}
            return {
                name: (each.bytes_recv + rdma[name][0], each.bytes_sent + rdma[name][1]) for name, each in kept.items()
            }

        def link(name: str, received: float, sent: float) -> vitals.LinkRate:
            folder = self._root / "sys/class/net" / name
            speed = text_or_empty(folder / "speed")  # -1 while it is down; unreadable for some drivers
            up = text_or_empty(folder / "operstate") in ("up", "unknown")
            return vitals.LinkRate(name, received, sent, up, int(speed) if speed.isdecimal() else None)

        return self._made(self._rates("net/dev", read, seconds), link)

    def _rdma_bytes(self, name: str) -> tuple[int, int]:
        """Received and sent past the kernel, which the interface's own counters leave out. mlx5 counts them in words of
        four bytes."""
        ports = next(iter((self._root / "sys/class/net" / name / "device/infiniband").glob("*/ports/1/counters")), None)
        if ports is None:
            return 0, 0
        texts = (text_or_empty(ports / f"port_{each}_data") for each in ("rcv", "xmit"))
        received, sent = (4 * int(text) if text.isdecimal() else 0 for text in texts)
        return received, sent

    def _faults(self, seconds: float) -> Reading[vitals.FaultRate]:
        """psutil knows the swapped pages of /proc/vmstat, and neither faults nor OOM kills."""
        kills = 0

        def read() -> vitals.Counters:
            nonlocal kills
            found = vitals.parse_faults((self._root / "proc/vmstat").read_text(encoding="utf-8", errors="replace"))
            if found is None:
                return {}
            *counters, kills = found
            return {"faults": tuple(counters)}

        rates = self._rates("vmstat", read, seconds)
        if isinstance(rates, Missing):
            return rates
        major, swapped_in, swapped_out = rates.value["faults"]
        return Ok(vitals.FaultRate(major, swapped_in, swapped_out, kills), self.now())

    # --- temperatures ---------------------------------------------------------------------------------

    def _temperatures(self) -> Reading[tuple[vitals.Temperature, ...]]:
        """By hand: psutil.sensors_temperatures() searches all of /sys each time, reads five files for one, and does not
        know at which temperature the firmware switches off."""
        if self._sensors is None:
            self._sensors = tuple(self._find_sensors())
            for kind in sorted(self._root.glob("sys/class/thermal/thermal_zone*/trip_point_*_type")):
                text = text_or_empty(kind.with_name(kind.name.replace("_type", "_temp")))
                if text_or_empty(kind) == "critical" and text.isdecimal() and int(text) // 1000 in _SANE:
                    self._limit = int(text) / 1000  # the firmware switches the machine off: 104.8 degrees on a GB10
                    break
        found = []
        for path, name in self._sensors:
            text = text_or_empty(path)
            celsius = int(text) / 1000 if text.lstrip("-").isdecimal() else 0.0
            if int(celsius) in _SANE:
                found.append(vitals.Temperature(name, celsius, self._limit if name == "SoC" else None))
        return Ok(vitals.hottest(found), self.now()) if found else Missing("no temperature sensor found")

    def _find_sensors(self) -> Iterator[tuple[Path, str]]:
        """The files of all sensors with what they measure. Where hwmon has none, the thermal zones."""
        found = False
        for chip in sorted(self._root.glob("sys/class/hwmon/hwmon*")):
            own = text_or_empty(chip / "name")
            for sensor in sorted(chip.glob("temp*_input")):
                label = text_or_empty(chip / sensor.name.replace("_input", "_label"))
                if own not in _PRIMARY or label in ("", _PRIMARY[own]):
                    found = True
                    yield sensor, _SENSORS.get(own, clean_line(own) or "sensor")
        if not found:
            for zone in sorted(self._root.glob("sys/class/thermal/thermal_zone*")):
                kind = text_or_empty(zone / "type")
                yield zone / "temp", _SENSORS.get(kind, clean_line(kind) or "zone")

    # --- processes ------------------------------------------------------------------------------------

    def processes(self, gpu: Sequence[vitals.GpuProcess], limit: int) -> Reading[tuple[vitals.HostProcess, ...]]:
        """The heaviest processes, by PSS where it may be read, and every one of `gpu`. Never raises."""
        psutil, held = psutil_at(self._root), {process.pid: process.memory for process in gpu}
        rough: list[tuple[Any, vitals.HostProcess]] = []
        try:
            for process in psutil.process_iter():
                try:
                    rss = process.memory_info().rss
                    if rss >= WORTH_BYTES or process.pid in held:
                        rough.append((process, vitals.HostProcess(process.pid, "", rss, gpu=held.get(process.pid))))
                except (psutil.Error, OSError):  # gone
                    continue
        except OSError as error:
            return Missing(f"/proc: {why(error)}")
        rough.sort(key=lambda pair: (-pair[1].weight, pair[1].pid))
        kept = []
        for rank, (process, found) in enumerate(rough[: max(limit, CLOSER)]):
            try:
                container = container_id(text_or_empty(self._root / f"proc/{found.pid}/cgroup"))
                found = replace(found, name=clean_line(process.name()), container=container)  # noqa: PLW2901
                if rank < CLOSER:
                    memory = process.memory_full_info()
                    found = replace(found, pss=memory.pss, swap=memory.swap)  # noqa: PLW2901
            except psutil.NoSuchProcess:
                continue
            except (psutil.Error, OSError):  # another user's: it has neither
                pass
            kept.append(found)
        return Ok(vitals.heaviest(kept, limit), self.now())

    def container_memory(self, pid: int) -> Reading[vitals.ContainerMemory]:
        try:
            lines = (self._root / f"proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            return Missing(f"/proc/{pid}/cgroup: {why(error)}")
        path = next((line[3:] for line in lines if line[:3] == "0::"), "")
        if not path:
            return Missing("cgroups of version 1 are not supported")
        folder = self._root / "sys/fs/cgroup" / path.lstrip("/")
        texts = [text_or_empty(folder / f"memory.{name}") for name in ("current", "stat", "swap.current", "max")]
        found = vitals.parse_cgroup_memory(*texts)
        return Missing(f"{path}/memory.current cannot be read") if found is None else Ok(found, self.now())
