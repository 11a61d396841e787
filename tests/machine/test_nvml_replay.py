"""Readings of a real GPU (an H200, recorded by tests/real/nvml_*.py), read again as on that day."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from spark_tui.base.finding import Ok
from spark_tui.base.host.memory import memory_breakdown
from spark_tui.base.host.vitals import GpuReading, Throttle, throttled_between
from spark_tui.base.quantities import MIB
from spark_tui.machine.nvml import reading_of
from tests import TESTS
from tests.fakes_host import IDLE_MEMORY

GPU = TESTS / "fixtures" / "gpu"
CAPTURE: dict[str, Any] = json.loads((GPU / "h200.json").read_text(encoding="utf-8"))
POWER_CAP: dict[str, Any] = json.loads((GPU / "h200-power-cap.json").read_text(encoding="utf-8"))


def readings(part: str) -> list[GpuReading]:
    found = [reading_of(line["gpu"]) for line in CAPTURE[part] if "gpu" in line]
    assert found
    return [reading for reading in found if reading is not None]


@pytest.mark.parametrize("part", ["idle", "held", "busy"])
def test_every_field_of_a_data_centre_gpu_is_read(part: str) -> None:
    for line, reading in zip(CAPTURE[part][1:], readings(part), strict=True):
        assert reading.name == "NVIDIA H200"
        assert reading.driver == "580.159.04"
        assert reading.unified is False, "it has its own memory"
        assert None not in (reading.utilization_percent, reading.power_watts, reading.temperature_c)
        assert None not in (reading.sm_clock_mhz, reading.memory_used, reading.memory_total)
        assert set(line["gpu"]["throttle_ns"]) < set(Throttle), "five counters, each by the name of its reason"


def test_a_process_is_charged_what_its_context_and_its_allocation_take() -> None:
    own, held = CAPTURE["own_pid"], CAPTURE["held_bytes"]
    assert readings("idle")[0].processes == ()
    for reading in readings("held"):
        [process] = reading.processes or ()
        assert (process.pid, process.compute) == (own, True)
        assert process.memory is not None
        assert held + 128 * MIB < process.memory < held + 1024 * MIB, "a context of its own comes on top"
        assert reading.memory_used is not None
        assert process.memory <= reading.memory_used


def test_what_we_read_is_what_nvidia_smi_says() -> None:
    row = [cell.strip() for cell in CAPTURE["nvidia_smi"].splitlines()[1].split(",")]
    reading = readings("held")[-1]
    assert row[:2] == [reading.name, reading.driver]
    assert row[7] == f"{(reading.memory_total or 0) // MIB} MiB"
    assert row[8] == "0x0000000000000000"
    [pid, _] = CAPTURE["nvidia_smi_apps"].splitlines()[1].split(", ")
    assert int(pid) == CAPTURE["own_pid"]


def test_load_shows_in_every_vital_sign() -> None:
    idle, busy = readings("idle")[-1], readings("busy")[-1]
    assert busy.utilization_percent == 100
    assert (busy.power_watts or 0) > 3 * (idle.power_watts or 0)
    assert (busy.temperature_c or 0) > (idle.temperature_c or 0)
    assert len(busy.processes or ()) == 2


def test_a_gpu_with_memory_of_its_own_takes_no_part_of_the_pool() -> None:
    found = memory_breakdown(IDLE_MEMORY, Ok(readings("busy")[-1], 0.0))
    assert found.engines is None
    assert "its own memory" in found.no_engines


def test_counters_that_stand_still_throttle_nothing() -> None:
    before, after = ({Throttle(k): v for k, v in line["gpu"]["throttle_ns"].items()} for line in CAPTURE["busy"][1:3])
    assert throttled_between(before, after, 1.0) == ()


def test_an_answer_takes_milliseconds() -> None:
    later = [line["took_seconds"] for part in ("idle", "held", "busy") for line in CAPTURE[part][2:]]
    assert max(later) < 0.02


def capped() -> list[tuple[float, GpuReading, dict[Throttle, int]]]:
    """`(seconds, reading, counters)` of the GPU at rest, under a load that its power limit holds down, and at rest."""
    found = []
    for answer in POWER_CAP["answers"]:
        reading = reading_of(answer["gpu"])
        assert reading is not None
        counters = {Throttle(kind): value for kind, value in answer["gpu"]["throttle_ns"].items()}
        found.append((answer["at_seconds"], reading, counters))
    return found


def test_counters_are_nanoseconds_as_nvidia_smi_says_in_microseconds() -> None:
    told = int(POWER_CAP["nvidia_smi"].splitlines()[1].split(", ")[1].removesuffix(" us"))
    assert capped()[-1][2][Throttle.POWER_CAP] // 1000 == told


def test_a_gpu_at_its_power_limit_is_throttled_for_that_reason_all_the_time_and_for_no_other() -> None:
    rows = capped()
    for (was, earlier, before), (now, reading, after) in pairwise(rows):
        said = throttled_between(before, after, now - was)
        if (reading.power_watts or 0) > 650:
            [only] = said
            assert only.kind is Throttle.POWER_CAP
            assert only.share > 0.9
        elif (earlier.utilization_percent, reading.utilization_percent) == (0, 0):
            assert said == ()
    assert any((reading.power_watts or 0) > 650 for _, reading, _ in rows), "the load reached the limit"
