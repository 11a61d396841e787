"""The state of memory: silent on every healthy Spark on record, loud before the one that froze."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.finding import Severity
from spark_tui.base.host.memory import ALL_WELL, MemInfo, fall_rate, memory_finding, parse_meminfo
from spark_tui.base.quantities import GIB, KIB, MIB
from tests.cases import all_cases
from tests.gb10_fixtures import TELEMETRY, TOTAL_KB, crash_timeline, rows, snapshot, telemetry


def mem(usable: float) -> MemInfo:
    return MemInfo(total=TOTAL_KB * KIB, free=int(usable * GIB) // 2, available=int(usable * GIB))


@all_cases(
    ("usable", "falling", "pressure", "loading", "severity"),
    [
        (110.0, 0.0, 0.0, False, Severity.OK),
        (6.1, 0.0, 0.0, False, Severity.OK),  # 5 % available: normal for days
        (4.9, 0.0, 0.0, False, Severity.OK),  # 4 % (hermes-agent #90713), PSI 0
        (4.9, 0.0, 0.0, True, Severity.OK),  # 1.6 times the floor of a load
        (4.4, 0.0, 0.0, True, Severity.WARNING),
        (2.9, 0.0, 0.0, True, Severity.ERROR),
        (2.9, 0.0, 0.0, False, Severity.WARNING),
        (1.9, 0.0, 0.0, False, Severity.ERROR),
        (1.9, 0.0, None, False, Severity.ERROR),
        (40.0, 5.0, 0.0, True, Severity.OK),  # weights stream in: a fall high above is no danger
        (11.0, 0.5, 0.0, False, Severity.WARNING),  # 22 s left
        (9.6, 2.42, 0.0, False, Severity.ERROR),  # the recorded collapse, at its beginning
        (9.6, 0.01, 0.0, False, Severity.OK),  # 16 minutes left
        (9.6, -3.0, 0.0, False, Severity.OK),  # it comes back
        (6.0, 0.0, 1.5, False, Severity.WARNING),  # `some avg10` under pressure in herald's capture
        (6.0, 0.0, 55.0, False, Severity.ERROR),
        (60.0, 0.0, 55.0, False, Severity.OK),  # a cgroup's own limit makes pressure too: the pool is fine
        (5.0, 0.0, None, False, Severity.OK),  # a kernel without PSI
    ],
)
def test_floor_trend_and_pressure_decide_together(
    usable: float, falling: float, pressure: float | None, loading: bool, severity: Severity
) -> None:
    found = memory_finding(mem(usable), falling=falling * GIB, pressure=pressure, loading=loading)
    assert found.severity is severity, found.summary
    assert (found == ALL_WELL) is (severity is Severity.OK)
    assert bool(found.remedy) is (severity is not Severity.OK)


@pytest.mark.parametrize(
    ("letter", "severity"),
    [
        ("A", Severity.OK),  # 22 GiB available of 121.6
        ("B", Severity.OK),  # 1.2 GiB free, and 13.7 available: free alone says nothing
        ("C", Severity.OK),
        ("D", Severity.OK),
        ("F", Severity.ERROR),  # free is almost all CMA: 0.5 GiB usable
        ("H", Severity.OK),
    ],
)
def test_every_captured_meminfo(letter: str, severity: Severity) -> None:
    assert memory_finding(parse_meminfo(snapshot(letter)), pressure=0.0).severity is severity


@pytest.mark.parametrize("unit", [1000**2, 1024**2], ids=["MB", "MiB"])
@pytest.mark.parametrize("path", TELEMETRY, ids=lambda path: path.stem)
def test_healthy_telemetry_raises_no_alarm(path: Path, unit: int) -> None:
    # Whether the files' MB are decimal is not stated: silent either way.
    samples = [(at, usable) for at, usable, _ in telemetry(path, unit)]
    assert min(usable for _, usable in samples) < 11 * GIB, "the box is full, by intent"
    for index in range(1, len(samples)):
        rate = fall_rate(samples[max(0, index - 1) : index + 1])
        assert memory_finding(mem(samples[index][1] / GIB), falling=rate, pressure=0.0).severity is Severity.OK


def test_none_of_38_benchmark_runs_raises_an_alarm_at_its_worst_moment() -> None:
    # Decimal megabytes: as MiB the highest of them would have left 138 MiB of a box that went on serving for hours.
    table = list(rows("memory_38runs.csv"))
    assert len(table) == 38
    for row in table:
        left = TOTAL_KB * KIB - int(float(row["mem_used_mb_max"])) * 1000**2
        assert 4 * GIB < left < 16 * GIB
        assert memory_finding(mem(left / GIB), pressure=0.0).severity is Severity.OK, row["dir"]


def test_the_recorded_crash_is_critical_at_its_last_reading_and_calm_before() -> None:
    points = crash_timeline()
    for index in range(1, len(points) - 1):
        rate = fall_rate(points[index - 1 : index + 1])
        assert memory_finding(mem(points[index][1] / GIB), falling=rate, pressure=0.0).severity is Severity.OK
    assert points[-1][1] == 2415 * MIB
    assert memory_finding(mem(points[-1][1] / GIB), falling=fall_rate(points[-2:])).severity is Severity.ERROR


def test_a_step_is_no_trend() -> None:
    assert fall_rate([]) == 0.0
    assert fall_rate([(0.0, 10)]) == 0.0
    assert fall_rate([(0.0, 10 * GIB), (1.0, 2 * GIB)]) == 0.0
    assert fall_rate([(0.0, 10 * GIB), (2.0, 6 * GIB)]) == 2 * GIB


@given(st.integers(0, 2**37), st.floats(-1e11, 1e11), st.none() | st.floats(0, 100), st.booleans())
def test_less_memory_is_never_less_severe(usable: int, falling: float, pressure: float | None, loading: bool) -> None:
    order = list(Severity)[::-1]

    def level(size: int) -> int:
        found = memory_finding(
            MemInfo(total=2**37, free=0, available=size), falling=falling, pressure=pressure, loading=loading
        )
        return order.index(found.severity)

    assert level(usable) >= level(usable + GIB)
