"""The kernel's tables of vital signs as values. A line that makes no sense is passed over: nothing here raises."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from spark_tui.domain.host.vitals import Cluster, CpuTimes, DiskCounters, FaultCounters

SECTOR: Final = 512
"""`/proc/diskstats` counts in these, whatever the disk's own are."""
_PARTS: Final = {0xD85: "X925", 0xD87: "A725"}
"""Arm's part numbers of the GB10's two kinds (MIDR bits 15..4)."""
_DISK: Final = re.compile(r"nvme\d+n\d+|sd[a-z]+|vd[a-z]+|mmcblk\d+")
_NOT_LINKS: Final = re.compile(r"lo|docker\d*|veth.*|br-.*|virbr.*|ifb.*|dummy.*|cni.*|flannel.*|tunl.*|sit\d.*")
_CPU_LINE: Final = re.compile(r"cpu(\d+)")
_IDLE, _IO_WAIT, _GUEST = 3, 4, 8
_FAULTS: Final = {
    "pgmajfault": "major",
    "pswpin": "swapped_in",
    "pswpout": "swapped_out",
    "oom_kill": "oom_kills",
    "compact_stall": "compaction_stalls",
}


def parse_cpus(text: str) -> dict[int, CpuTimes]:
    """`/proc/stat` -> ticks by processor. Waiting for a disk is idle time; guests are in user time already."""
    found = {}
    for line in text.splitlines():
        name, *words = line.split()[:9] or [""]
        match = _CPU_LINE.fullmatch(name)
        ticks = _numbers(words)
        if match and len(ticks) > _IO_WAIT:
            total = sum(ticks[:_GUEST])
            found[int(match[1])] = CpuTimes(total - ticks[_IDLE] - ticks[_IO_WAIT], total)
    return found


def parse_faults(text: str) -> FaultCounters | None:
    """`/proc/vmstat` -> the counters that matter; None where it counts no faults."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in _FAULTS and value.strip().isdecimal():
            found[_FAULTS[name]] = int(value)
    return FaultCounters(**found) if "major" in found else None


def parse_disks(text: str) -> dict[str, DiskCounters]:
    """`/proc/diskstats` -> whole disks: no partitions, no loop devices, of which a Spark has twenty."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 13 or not _DISK.fullmatch(words[2]):
            continue
        figures = _numbers(words[3:13])
        if len(figures) == 10:
            found[words[2]] = DiskCounters(figures[2] * SECTOR, figures[6] * SECTOR, figures[9])
    return found


def parse_links(text: str) -> dict[str, tuple[int, int]]:
    """`/proc/net/dev` -> bytes received and sent by link, without Docker's own and the loopback."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        figures = _numbers(rest.split())
        if colon and len(figures) >= 9 and not _NOT_LINKS.fullmatch(name.strip()):
            found[name.strip()] = (figures[0], figures[8])
    return found


def parse_parts(cpuinfo: str) -> dict[int, int]:
    """`/proc/cpuinfo` of an Arm machine -> part number by processor. It has neither a model name nor a clock."""
    found: dict[int, int] = {}
    cpu = None
    for line in cpuinfo.splitlines():
        name, _, value = (word.strip() for word in line.partition(":"))
        if name == "processor" and value.isdecimal():
            cpu = int(value)
        elif name == "CPU part" and cpu is not None:
            part = hexadecimal(value)
            if part is not None:
                found[cpu] = part
    return found


def part_of_midr(midr: int) -> int:
    """The part number in `midr_el1`."""
    return midr >> 4 & 0xFFF


def clusters_of(
    cpus: Iterable[int], parts: Mapping[int, int] | None = None, capacities: Mapping[int, int] | None = None
) -> tuple[Cluster, ...]:
    """Processors by kind, the strongest kind first: by part number, else by the capacity that the kernel gives them
    (1024 for the strongest), else all in one."""
    numbers = sorted(cpus)
    parts, capacities = parts or {}, capacities or {}
    if numbers and all(cpu in parts for cpu in numbers):
        kinds = {cpu: _PARTS.get(parts[cpu], f"part {parts[cpu]:#x}") for cpu in numbers}
    elif numbers and all(cpu in capacities for cpu in numbers) and len({capacities[cpu] for cpu in numbers}) > 1:
        most = max(capacities[cpu] for cpu in numbers)
        kinds = {cpu: "big" if capacities[cpu] == most else "little" for cpu in numbers}
    else:
        kinds = dict.fromkeys(numbers, "CPU")
    names = sorted(set(kinds.values()), key=lambda name: (_STRONGEST.get(name, 1), name))
    return tuple(Cluster(name, tuple(cpu for cpu in numbers if kinds[cpu] == name)) for name in names)


_STRONGEST: Final = {"X925": 0, "big": 0, "A725": 2, "little": 2}


def hexadecimal(text: str) -> int | None:
    """`0xd85` -> 3461; None for anything else."""
    try:
        return int(text, 16)
    except ValueError:
        return None


def _numbers(words: Iterable[str]) -> list[int]:
    """As many numbers as there are at the beginning."""
    found = []
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= 20):
            break
        found.append(int(word))
    return found
