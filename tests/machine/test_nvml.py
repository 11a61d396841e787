"""The GPU helper against a stand-in for the driver's library: a GB10, one that hangs, one that is not there."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from spark_tui.base.executors import SystemClock
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import GpuProcess, GpuReading, Throttle, Throttled
from spark_tui.base.quantities import GIB, MIB
from spark_tui.machine.nvml import BACKOFF_SECONDS, RETRY_SECONDS, NvmlGpu
from tests import TESTS
from tests.fakes_host import FakeClock

STUB = TESTS / "fixtures" / "gb10" / "nvml_stub.c"
Probe = Callable[..., NvmlGpu]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the stand-in libnvidia-ml.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(STUB)], check=True)
    return folder


@pytest.fixture
async def probe(library: Path) -> AsyncIterator[Probe]:
    """Makes probes on the stand-in, and ends them."""
    made: list[NvmlGpu] = []

    def make(mode: str = "gb10", clock: FakeClock | SystemClock | None = None, folder: Path = library) -> NvmlGpu:
        environment = {"LD_LIBRARY_PATH": str(folder), "STUB_MODE": mode}
        made.append(NvmlGpu(clock or SystemClock(), environment=environment))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def read(gpu: NvmlGpu) -> Ok[GpuReading]:
    """A reading, once the helper has started."""
    async with asyncio.timeout(20):
        while not isinstance(reading := await gpu.read(), Ok):
            assert isinstance(reading, Missing)
            assert "starting" in reading.reason or "yet" in reading.reason
    return reading


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


async def test_a_gb10_reports_everything_but_memory(probe: Probe) -> None:
    reading = await read(probe())
    assert reading.value == GpuReading(
        name="NVIDIA GB10",
        utilization_percent=96,
        power_watts=47.25,
        temperature_c=62,
        sm_clock_mhz=2411,
        memory_used=None,
        memory_total=None,
        unified=True,
        driver="580.142",
        processes=(GpuProcess(2747, 18 * MIB, compute=False), GpuProcess(5190, 88_831 * MIB)),
    )
    assert reading.value.compute_memory() == Ok(88_831 * MIB)


async def test_a_driver_that_claims_a_memory_total_on_a_gb10_is_not_believed(probe: Probe) -> None:
    reading = (await read(probe("claims"))).value
    assert (reading.memory_used, reading.memory_total, reading.unified) == (None, None, True)
    assert GpuProcess(2911, None) in (reading.processes or ()), "N/A stays unknown"
    assert isinstance(reading.compute_memory(), Missing)


async def test_a_gpu_with_memory_of_its_own_reports_it_and_every_field_may_be_absent(probe: Probe) -> None:
    reading = (await read(probe("discrete"))).value
    assert (reading.memory_used, reading.memory_total, reading.unified) == (9 * GIB, 48 * GIB, False)
    assert (await read(probe("bare"))).value == GpuReading(name="NVIDIA GPU", unified=True)


async def test_the_counters_show_what_held_the_clock_down_between_two_readings(probe: Probe) -> None:
    clock = FakeClock()
    gpu = probe(clock=clock)
    assert (await read(gpu)).value.throttled is None, "one reading of a counter says nothing"
    clock.tick(2.0)
    assert (await read(gpu)).value.throttled == (Throttled(Throttle.POWER_CAP, 0.3),)


async def test_a_driver_without_counters_is_believed_by_its_bits(probe: Probe) -> None:
    reading = (await read(probe("nocounters"))).value
    assert reading.throttled == (Throttled(Throttle.POWER_CAP, 1.0), Throttled(Throttle.THERMAL, 1.0))


async def test_one_helper_serves_all_calls_and_ends_with_the_probe(probe: Probe) -> None:
    gpu = probe()
    await read(gpu)
    pid = gpu.helper_pid
    await read(gpu)
    assert pid is not None
    assert gpu.helper_pid == pid
    await gpu.close()
    assert not alive(pid)


async def test_a_helper_that_is_started_early_reads_by_itself_and_answers_the_first_call(probe: Probe) -> None:
    gpu = probe()
    await asyncio.to_thread(gpu.start)  # no event loop is needed
    pid = gpu.helper_pid
    assert pid is not None
    reading = await read(gpu)
    assert (reading.value.name, gpu.helper_pid) == ("NVIDIA GB10", pid)
    gpu.start()
    assert gpu.helper_pid == pid


async def test_a_driver_that_hangs_costs_a_second_and_its_helper(probe: Probe) -> None:
    clock = FakeClock()
    gpu = probe("hang", clock)
    while "yet" not in (first := await gpu.read()).reason:  # up to the driver's door
        assert "starting" in first.reason
    pid = gpu.helper_pid
    assert pid is not None
    clock.tick(20)
    started = time.monotonic()
    reading = await gpu.read()
    assert time.monotonic() - started < 1.1
    assert isinstance(reading, Missing)
    assert reading.reason.startswith("driver does not answer")
    assert not alive(pid)


async def test_a_hanging_driver_is_asked_again_after_pauses_that_grow(probe: Probe) -> None:
    clock = FakeClock()
    gpu = probe("hang", clock)
    pauses = []
    for _ in range(3):
        while gpu.helper_pid is None:
            await gpu.read()
        clock.tick(20)
        while gpu.helper_pid is not None:
            await gpu.read()
        waited = 0
        while gpu.helper_pid is None and waited < 100:
            clock.tick(1)
            waited += 1
            await gpu.read()
        pauses.append(waited)
    first, most = BACKOFF_SECONDS
    assert pauses == [first, first * 2, first * 4]
    assert most == 60


async def test_a_slow_first_answer_is_waited_for(probe: Probe) -> None:
    gpu = probe("slow")
    started = time.monotonic()
    first = await gpu.read()
    assert isinstance(first, Missing)
    assert time.monotonic() - started < 1.1
    pid = gpu.helper_pid
    await read(gpu)
    assert gpu.helper_pid == pid, "the helper that was slow is the one that answers"


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("nogpu", "no NVIDIA GPU here"),
        ("noinit", "the NVIDIA driver is not loaded"),
        ("lost", "the GPU has fallen off the bus: restart the machine"),
        ("nolibrary", "no NVIDIA driver here (libnvidia-ml.so.1 not found)"),
    ],
)
async def test_where_there_is_nothing_to_read_no_helper_stays(
    probe: Probe, tmp_path: Path, mode: str, why: str
) -> None:
    clock = FakeClock()
    gpu = probe(mode, clock, **({"folder": tmp_path} if mode == "nolibrary" else {}))
    while (reading := await gpu.read()) != Missing(why):
        assert isinstance(reading, Missing)
        assert "starting" in reading.reason
    assert gpu.helper_pid is None
    clock.tick(RETRY_SECONDS - 1)
    assert await gpu.read() == Missing(why)
    assert gpu.helper_pid is None, "asked seldom"


async def test_a_helper_that_dies_says_how_and_is_started_again(probe: Probe) -> None:
    clock = FakeClock()
    gpu = probe("crash", clock)
    while "starting" in (reading := await gpu.read()).reason:
        pass
    assert reading == Missing("the GPU helper ended (exit code 7)")
    clock.tick(BACKOFF_SECONDS[0])
    await gpu.read()
    assert await gpu.read() == Missing("the GPU helper ended (exit code 7)")


async def test_a_helper_killed_from_outside_is_replaced(probe: Probe) -> None:
    clock = FakeClock()
    gpu = probe(clock=clock)
    await read(gpu)
    assert gpu.helper_pid is not None
    os.kill(gpu.helper_pid, 9)
    assert isinstance(await gpu.read(), Missing)
    clock.tick(BACKOFF_SECONDS[0])
    assert isinstance(await read(gpu), Ok)


def _helper(library: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "spark_tui.machine.nvml_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )


def test_the_helper_is_small_has_its_own_name_and_ends_with_its_parent(library: Path) -> None:
    with _helper(library) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        assert json.loads(helper.stdout.readline()) == {"hello": 1}
        helper.stdin.write("\n")
        helper.stdin.flush()
        assert json.loads(helper.stdout.readline())["gpu"]["name"] == "NVIDIA GB10"
        status = Path(f"/proc/{helper.pid}/status").read_text(encoding="utf-8")
        assert "Name:\tspark-tui-gpu\n" in status, "rules for the OOM killer look for python"
        rss_kib = int(status.partition("VmRSS:")[2].split()[0])
        print(f"\nhelper: RSS {rss_kib / 1024:.1f} MiB")
        assert rss_kib < 24 * 1024
        helper.stdin.close()
        assert helper.wait(timeout=5) == 0


def test_the_probe_itself_imports_no_sdk() -> None:
    code = "import sys, spark_tui.machine.nvml; print('pynvml' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
