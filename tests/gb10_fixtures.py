"""Readings of real GB10 machines, as the tests of memory use them. Each file names its source in its first line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from spark_tui.base.host.vitals import GpuReading
from spark_tui.base.quantities import MIB

GB10 = Path(__file__).parent / "fixtures" / "gb10"
TOTAL_KB = 127_535_084
"""MemTotal of the boxes whose telemetry does not state it."""
TELEMETRY = sorted((GB10 / "telemetry").glob("*.csv"))


def snapshot(letter: str) -> str:
    """One block of the captured `/proc/meminfo` readings: `A` to `H`."""
    text = (GB10 / "meminfo_snapshots.txt").read_text(encoding="utf-8")
    block = re.search(rf"^## {letter}\..*\n((?:[^#\n].*\n)+)", text, re.MULTILINE)
    assert block is not None
    return block[1]


def rows(name: str) -> Iterator[dict[str, str]]:
    """The rows of a CSV file whose first line is its source; lines that begin with # are passed over."""
    lines = (GB10 / name).read_text(encoding="utf-8").splitlines()
    yield from csv.DictReader(line for line in lines if not line.startswith("#"))


def crash_timeline() -> list[tuple[float, int]]:
    """`(seconds, usable bytes)` of the box that froze after the last row. The file's MB are MiB: used and free add up
    to MemTotal."""
    found = []
    for row in rows("crash_timeline_sysmon.csv"):
        hours, minutes, seconds = map(int, row["time"].split(":"))
        found.append((hours * 3600.0 + minutes * 60 + seconds, int(row["mem_free_mb"]) * MIB))
    return [(at - found[0][0], free) for at, free in found]


def telemetry(path: Path, unit: int) -> list[tuple[float, int, GpuReading]]:
    """`(seconds, usable bytes, GPU)` of one healthy run. Whether its MB are 1000^2 or 1024^2 bytes is not stated."""
    total = TOTAL_KB * 1024
    return [
        (
            float(row["elapsed_s"]),
            total - int(row["mem_used_mb"]) * unit,
            GpuReading(
                "NVIDIA GB10",
                int(row["gpu_util"]),
                float(row["power_w"]),
                int(row["temp_c"]),
                int(row["sm_mhz"]),
                unified=True,
            ),
        )
        for row in rows(f"telemetry/{path.name}")
    ]


def interpolated(points: list[tuple[float, int]], at: float) -> int:
    """Usable bytes between two readings: the straight line, which is the slowest way from one to the other."""
    if at <= points[0][0]:
        return points[0][1]
    for (began, first), (ended, last) in pairwise(points):
        if at <= ended:
            return int(first + (last - first) * (at - began) / (ended - began))
    return points[-1][1]
