"""Records the throttle counters of a real GPU at its power limit: `python -m tests.real.nvml_power_cap OUT.json`.

Needs a driver, nvidia-ml-py and PyTorch with CUDA. A large bf16 matrix product draws what the power limit allows; the
counters' growth beside the clock on the wall shows their unit, and `nvidia-smi` says which one it means.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SIDE = 16384
REST_SECONDS, LOAD_SECONDS, EVERY_SECONDS = 3.0, 12.0, 0.5
QUERY = "power.limit,clocks_event_reasons_counters.sw_power_cap,clocks_event_reasons_counters.sw_thermal_slowdown"


class Sampler(threading.Thread):
    """Asks the helper again and again; every answer gets its time in seconds."""

    def __init__(self) -> None:
        super().__init__()
        command = [sys.executable, "-m", "spark_tui.machine.nvml_child"]
        self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._over = threading.Event()
        self.answers: list[dict[str, Any]] = []

    def run(self) -> None:
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdout.readline()  # its greeting
        while not self._over.wait(EVERY_SECONDS):
            self._helper.stdin.write("\n")
            self._helper.stdin.flush()
            answer = json.loads(self._helper.stdout.readline())
            self.answers.append({**answer, "at_seconds": round(time.monotonic(), 4)})
        self._helper.communicate()

    def end(self) -> None:
        self._over.set()
        self.join()


def load(seconds: float) -> None:
    """Matrix products of random numbers, one after the other."""
    import torch  # type: ignore[import-not-found]

    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            torch.matmul(left, right)
        torch.cuda.synchronize()


def main() -> None:
    sampler = Sampler()
    sampler.start()
    time.sleep(REST_SECONDS)
    load(LOAD_SECONDS)
    time.sleep(REST_SECONDS)
    sampler.end()
    told = subprocess.run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"], capture_output=True, text=True)
    recorded = {"answers": sampler.answers, "nvidia_smi": told.stdout}
    Path(sys.argv[1]).write_text(json.dumps(recorded, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
