"""What it costs to watch memory: processor time per reading, and bytes on the line of a quiet box."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_tui.base.context import Context
from spark_tui.base.executors import SystemClock
from spark_tui.base.finding import Ok
from spark_tui.base.host.vitals import GpuProcess, GpuReading, HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import Settings
from spark_tui.machine.nvml import NvmlGpu
from spark_tui.machine.procfs import ProcfsHost
from spark_tui.observe.engines.use.collectors import Collectors
from tests.fakes_host import FakeGpu
from tests.fakes_ports import Ports
from tests.kit import Kit
from tests.pty_app import PtyApp

BUDGET = 0.005
"""Of a core, at one reading a second."""
STUB = Path(__file__).parent.parent / "fixtures" / "gb10" / "nvml_stub.c"


def cost(work: Callable[[], object], times: int) -> float:
    """Processor seconds of one call, the least of five rounds."""
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(times):
            work()
        rounds.append((time.process_time() - began) / times)
    return min(rounds)


async def test_one_reading_of_the_host_with_ledger_and_judgement_costs_half_a_percent_of_a_core_at_most() -> None:
    kit = Kit()
    gpu = FakeGpu(Ok(GpuReading("NVIDIA GB10", 96, 47.0, 60, 2411, unified=True, processes=(GpuProcess(1, GIB),))))
    ports = Ports(SystemClock(), kit.docker, kit.api, ProcfsHost(), gpu, kit.presets, kit.secrets, kit.archive)
    context = Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test"))
    await context[Collectors].collect_once()
    spent = cost(context[Collectors].sample_host, 200)
    print(f"\nhost reading: {spent * 1e6:.0f} us, {spent:.3%} of a core at 1 Hz")
    assert spent < BUDGET


async def test_one_reading_of_the_gpu_costs_half_a_percent_of_a_core_at_most(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libnvidia-ml.so.1"), str(STUB)], check=True)
    gpu = NvmlGpu(SystemClock(), environment={"LD_LIBRARY_PATH": str(tmp_path)})
    try:
        while not isinstance(await gpu.read(), Ok):
            pass
        child, before = f"/proc/{gpu.helper_pid}/stat", 0
        ours, ticks, readings = time.process_time(), _ticks(child), 200
        for _ in range(readings):
            await gpu.read()
        spent = (time.process_time() - ours + (_ticks(child) - ticks) / 100 - before) / readings
        print(f"\nGPU reading: {spent * 1e6:.0f} us with its helper, {spent:.3%} of a core at 1 Hz")
        assert spent < BUDGET
    finally:
        await gpu.close()


def _ticks(stat: str) -> int:
    words = Path(stat).read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def test_a_quiet_box_with_an_engine_sends_next_to_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.perf.quiet_box_app"]
    env = {"HOME": str(tmp_path), "TEXTUAL_ANIMATIONS": "none"}
    with PtyApp(argv, columns=120, rows=36, env=env) as app:
        app.wait_for("qwen", "available", timeout=60)
        time.sleep(4)
        before, seconds = app.bytes_read, 20.0
        time.sleep(seconds)
        sent = (app.bytes_read - before) / seconds
    print(f"\nquiet box with an engine: {sent:.0f} B/s")
    assert sent < 300
