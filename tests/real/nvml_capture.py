"""Records what our GPU helper reads from a real NVIDIA GPU: `python -m tests.real.nvml_capture OUT.json`.

Needs a driver and the Python package nvidia-ml-py. A small allocation by the CUDA driver library shows whether
per-process memory is reported; nothing of CUDA needs to be installed.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from spark_tui.base.executors import SystemClock
from spark_tui.base.quantities import MIB
from spark_tui.machine.nvml import NvmlGpu

HELD = 256 * MIB
BUSY_SECONDS = 8.0
QUERY = (
    "name,driver_version,utilization.gpu,power.draw,temperature.gpu,clocks.sm,memory.used,memory.total,"
    "clocks_event_reasons.active"
)


class Context:
    """A CUDA context that holds memory, by libcuda alone."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._check("cuInit", 0)
        device, context, self._memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._check("cuDeviceGet", ctypes.byref(device), 0)
        self._check("cuCtxCreate_v2", ctypes.byref(context), 0, device)
        self._check("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(HELD))

    def busy(self, seconds: float) -> None:
        """Writes its memory over and over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(200):
                self._check("cuMemsetD32_v2", self._memory, ctypes.c_uint(0), ctypes.c_size_t(HELD // 4))
            self._check("cuCtxSynchronize")

    def close(self) -> None:
        """Gives the memory back."""
        self._check("cuMemFree_v2", self._memory)

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} gave {code}")


def raw_answers(count: int) -> list[dict[str, Any]]:
    """The helper's own lines, one second apart."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "spark_tui.machine.nvml_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()) + os.pathsep + os.environ.get("PYTHONPATH", "")},
        text=True,
    ) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        answers = [json.loads(helper.stdout.readline())]
        for _ in range(count):
            began = time.monotonic()
            helper.stdin.write("\n")
            helper.stdin.flush()
            answers.append(json.loads(helper.stdout.readline()) | {"took_seconds": round(time.monotonic() - began, 4)})
            time.sleep(1.0)
        helper.stdin.close()
        helper.wait(5)
    return answers


def said(*argv: str) -> str:
    """What a command printed; its error where it failed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


async def through_the_probe() -> str:
    """The same by the whole adapter, as a person's words."""
    gpu = NvmlGpu(SystemClock())
    try:
        for _ in range(10):
            reading = await gpu.read()
            await asyncio.sleep(1.0)
        return repr(reading)
    finally:
        await gpu.close()


def main() -> int:
    """Writes the capture and returns 0."""
    idle = raw_answers(2)
    context = Context()
    held = raw_answers(2)
    busy = _while_busy()
    context.close()
    capture = {
        "source": "tests/real/nvml_capture.py on a real GPU",
        "own_pid": os.getpid(),
        "held_bytes": HELD,
        "idle": idle,
        "held": held,
        "busy": busy,
        "probe": asyncio.run(through_the_probe()),
        "nvidia_smi": said("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"),
        "nvidia_smi_apps": said("nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv"),
        "nvidia_smi_performance": said("nvidia-smi", "-q", "-d", "PERFORMANCE"),
    }
    Path(sys.argv[1]).write_text(json.dumps(capture, indent=1) + "\n", encoding="utf-8")
    return 0


def _while_busy() -> list[dict[str, Any]]:
    """The helper's lines while a process of its own keeps the GPU busy."""
    code = f"from tests.real.nvml_capture import Context; Context().busy({BUSY_SECONDS})"
    with subprocess.Popen([sys.executable, "-c", code]) as worker:
        time.sleep(3.0)
        answers = raw_answers(3)
        worker.wait(30)
    return answers


if __name__ == "__main__":
    sys.exit(main())
