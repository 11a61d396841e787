"""What graphs cost: bytes to the terminal each second, CPU time, and how long the longest window takes to draw."""

from __future__ import annotations

import math
import sys
import time

import pytest

from spark_tui.base.graph import WINDOWS, Curve
from spark_tui.base.host.series import MetricId, SeriesView
from spark_tui.tui.widgets.graph_picture import GraphKind, GraphView, Picture, Subject, picture_of
from tests.pty_app import PtyApp

BUDGET_BYTES = 4096
SECONDS = 20.0


def _program(window: float, glyphs: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "tests.perf.graph_app", str(window), glyphs, *flags]


@pytest.mark.parametrize(("window", "glyphs"), [(60, "unicode"), (300, "unicode"), (60, "ascii")])
def test_four_graphs_of_80x8_with_a_sample_a_second_stay_within_the_budget(window: int, glyphs: str) -> None:
    with PtyApp(_program(window, glyphs), columns=160, rows=50) as app:
        app.wait_for("decode", "TTFT", "KV cache", "requests")
        time.sleep(2)
        before, cpu = app.bytes_read, app.cpu_seconds()
        time.sleep(SECONDS)
        sent = (app.bytes_read - before) / SECONDS
        share = (app.cpu_seconds() - cpu) / SECONDS
        print(f"\n{window} s, {glyphs}: {sent:.0f} B/s, {share:.1%} of a core")
        assert sent < BUDGET_BYTES


def test_graphs_that_get_nothing_new_write_nothing() -> None:
    with PtyApp(_program(300, "unicode", "idle"), columns=160, rows=50) as app:
        app.wait_for("decode", "requests")
        app.wait_quiet(2.0)
        before = app.bytes_read
        time.sleep(3)
        assert app.bytes_read == before


@pytest.mark.parametrize("kind", list(GraphKind))
def test_six_hours_draw_in_a_tenth_of_a_second(kind: GraphKind) -> None:
    now, count = 1_763_733_000.0, WINDOWS[-1]
    times = tuple(now - count + number for number in range(count))
    curves = [
        Curve(
            name, SeriesView(MetricId.DECODE_RATE, times, tuple(40 + math.sin(number / 50) for number in range(count)))
        )
        for name in ("a", "b")
    ]
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        picture_of(Subject("decode", "tok/s"), curves, GraphView(now, count), kind, 120, 12, Picture())
        seconds.append(time.perf_counter() - started)
    print(f"\n6 h of two curves, {kind}: {min(seconds) * 1000:.1f} ms")
    assert min(seconds) < 0.1
