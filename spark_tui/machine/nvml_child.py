"""The helper process that alone talks to the GPU driver: `python -m spark_tui.machine.nvml_child`.

A hanging driver blocks its caller for minutes, and a thread that hangs in it cannot be ended: a process can. For every
line on standard input it answers with one line of JSON on standard output:

    {"hello": 1}                     once, before it touches the driver
    {"gpu": {...}}                   the readings; null where the driver does not report a value
    {"missing": "why"}               there is nothing to read here; the process then ends

It ends with its standard input, and so with its parent. Only the standard library is imported before the first
request, and only what this page needs: the process stays for as long as the program runs.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

COMM: Final = "spark-tui-gpu"
"""Its name in the process list. Rules for the out-of-memory killer on these machines look for `python` and `vllm`."""

_LIBRARY: Final = "libnvidia-ml.so.1"
_NO_LIBRARY: Final = f"no NVIDIA driver here ({_LIBRARY} not found)"
_FIRST_GPU: Final = 0
_ADDRESS_TRANSLATION: Final = 2  # NVML_DEVICE_ADDRESSING_MODE_ATS: the CPU's page tables, and its memory

_COUNTERS: Final = {
    "power cap": 74,
    "sync boost": 76,
    "thermal": 269,
    "hardware thermal": 270,
    "power brake": 271,
}
"""NVML_FI_DEV_CLOCKS_EVENT_REASON_*: the first two are those of the perf policies. A driver that does not know one says
so for that one alone."""


def main() -> int:
    """Answers requests until standard input ends. Returns 0, or 3 where there is nothing to read."""
    with suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:  # noqa: PTH123 - pathlib costs a third of a MiB
        comm.write(COMM)
    _say({"hello": 1})
    gpu: Gpu | None = None
    for _ in sys.stdin:
        try:
            gpu = gpu or Gpu()
            _say({"gpu": gpu.read()})
        except NoGpuFound as error:
            _say({"missing": str(error)})
            return 3
    return 0


class NoGpuFound(Exception):
    """No driver library, no driver, or no GPU."""


class Gpu:
    """The first GPU of the machine. A Spark has one."""

    def __init__(self) -> None:
        try:
            ctypes.CDLL(_LIBRARY)  # before the package, which looks for it too: importing that takes the longest
        except OSError as error:
            raise NoGpuFound(_NO_LIBRARY) from error
        try:
            import pynvml
        except ImportError as error:
            raise NoGpuFound("the Python package nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(_FIRST_GPU)
        except pynvml.NVMLError as error:
            raise NoGpuFound(_reason(pynvml, error)) from error

    def read(self) -> dict[str, Any]:
        """All readings; each is null on its own where the driver does not support or report it."""
        nvml, gpu = self._nvml, self._handle
        name = self._try(nvml.nvmlDeviceGetName, gpu)
        used, total = self._memory(name)
        power = self._try(nvml.nvmlDeviceGetPowerUsage, gpu)
        load = self._try(nvml.nvmlDeviceGetUtilizationRates, gpu)
        return {
            "name": name or "NVIDIA GPU",
            "driver": self._try(nvml.nvmlSystemGetDriverVersion) or "",
            "utilization_percent": None if load is None else load.gpu,
            "power_watts": None if power is None else power / 1000,
            "temperature_c": self._try(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            "sm_clock_mhz": self._try(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
            "memory_used": used,
            "memory_total": total,
            "unified": total is None,
            "processes": self._processes(),
            "throttle_ns": self._counters(),
            "throttle_bits": self._ask_for("nvmlDeviceGetCurrentClocksEventReasons"),
        }

    def _ask_for(self, function: str) -> Any:
        """The answer of a function that older packages and drivers do not have."""
        ask = getattr(self._nvml, function, None)
        return None if ask is None else self._try(ask, self._handle)

    def _counters(self) -> dict[str, int] | None:
        """Nanoseconds for which each reason has held the clock down, since the driver was loaded; None where no
        counter is supported."""
        fields = {number: name for name, number in _COUNTERS.items()}
        values = self._try(self._nvml.nvmlDeviceGetFieldValues, self._handle, list(fields))
        found = {fields[each.fieldId]: each.value.ullVal for each in values or () if each.nvmlReturn == 0}
        return found or None

    def _memory(self, name: str | None) -> tuple[int | None, int | None]:
        """Used and total bytes of the GPU's own memory; None for both where it has none of its own.

        A GB10 answers `not supported`. Should a driver claim a total there, it is ignored: memory is
        unified, and /proc/meminfo counts.
        """
        ask = self._nvml.nvmlDeviceGetMemoryInfo
        # Version 2 leaves out what the driver reserves for itself, as nvidia-smi does.
        memory = self._try(ask, self._handle, self._nvml.nvmlMemory_v2) or self._try(ask, self._handle)
        if memory is None or not memory.total:
            return None, None
        if name == "NVIDIA GB10" or self._ask_for("nvmlDeviceGetAddressingMode") == _ADDRESS_TRANSLATION:
            return None, None
        return memory.used, memory.total

    def _processes(self) -> list[list[Any]] | None:
        """`[pid, bytes or null, computes]` of every process with a context."""
        compute = self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        if compute is None:
            return None
        found = {process.pid: [process.pid, process.usedGpuMemory, True] for process in compute}
        for process in self._try(self._nvml.nvmlDeviceGetGraphicsRunningProcesses, self._handle) or ():
            found.setdefault(process.pid, [process.pid, process.usedGpuMemory, False])
        return [found[pid] for pid in sorted(found)]

    def _try(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None where the driver has none. A lost GPU or driver ends the process: all else is moot."""
        nvml = self._nvml
        try:
            return ask(*arguments)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
                raise NoGpuFound(_reason(nvml, error)) from error
            return None
        except UnicodeDecodeError:
            return None


def _reason(nvml: Any, error: Any) -> str:
    """What the failure means to the person who reads it."""
    return {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: _NO_LIBRARY,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
        nvml.NVML_ERROR_NO_PERMISSION: "this user may not ask the NVIDIA driver",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver and library differ in version: restart the machine",
        nvml.NVML_ERROR_NOT_FOUND: "no NVIDIA GPU here",
        nvml.NVML_ERROR_INVALID_ARGUMENT: "no NVIDIA GPU here",
        nvml.NVML_ERROR_GPU_IS_LOST: "the GPU has fallen off the bus: restart the machine",
    }.get(error.value, f"NVML: {error}")


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
