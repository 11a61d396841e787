"""When figures are on the screen after a start, as ratios to the first frame's time in the same run."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pytest

from tests.perf.live_engine import NAME, WATTS, live_engine
from tests.perf.raw_terminal import RawTerminal
from tests.perf.test_tui_cost import FRAME, TERMINAL, _quiet_environment
from tests.pty_app import spark_tui

ROUNDS = 7
SHOWN = {"memory": "free ", "GPU": WATTS, "engine": NAME}
"""A word of each figure."""


@pytest.mark.timeout(300)
def test_memory_is_in_the_first_frame_and_the_rest_follows_soon(tmp_path: Path) -> None:
    found: dict[str, list[float]] = {name: [] for name in SHOWN}
    frames = []
    with live_engine(tmp_path) as leads:
        env = {**os.environ, **TERMINAL, **_quiet_environment(tmp_path), "PYTHONDONTWRITEBYTECODE": "", **leads}
        shown = SHOWN if "LD_LIBRARY_PATH" in leads else {**SHOWN, "GPU": "GPU"}
        for _ in range(ROUNDS):
            started = time.monotonic()
            with RawTerminal(spark_tui(), env, columns=120, rows=36) as app:
                app.wait_for(*(word for word in FRAME if word not in ("DEMO", "Finding engines")))
                first = time.monotonic() - started
                frames.append(first)
                for name, word in shown.items():
                    app.wait_for(word)
                    found[name].append((time.monotonic() - started) / first)
    times = {name: statistics.median(ratios) for name, ratios in found.items()}
    said = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in times.items())
    print(f"\nfirst frame {min(frames):.2f} s; since the start, in frames: {said}")
    assert times["memory"] < 1.1
    assert times["GPU"] < 1.1
    assert times["engine"] < 2.6
