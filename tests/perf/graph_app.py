"""Four graphs of 80x8 that get a sample each second: the program whose bytes test_graph_cost.py counts.

python -m tests.perf.graph_app WINDOW_SECONDS KIND [idle]
"""

from __future__ import annotations

import math
import random
import sys
import time
from typing import Any

from textual.app import App, ComposeResult
from textual.containers import Grid
from textual.screen import Screen

from spark_tui.base.graph import Curve
from spark_tui.base.host.series import MetricId, SeriesView
from spark_tui.tui.format import ASCII, UNICODE, Glyphs
from spark_tui.tui.textual_private import QuietScreen
from spark_tui.tui.themes import SPARK_DARK
from spark_tui.tui.widgets.graph import Graph
from spark_tui.tui.widgets.graph_picture import GraphView, Subject

GRAPHS = (
    (Subject("decode", "tok/s"), (MetricId.DECODE_RATE,)),
    (Subject("TTFT", "s"), (MetricId.TTFT_P50, MetricId.TTFT_P95)),
    (Subject("KV cache", "%", (0.0, 100.0), alarm=90.0), (MetricId.KV_USAGE,)),
    (Subject("requests", "req", decimals=0), (MetricId.RUNNING, MetricId.WAITING)),
)


class GraphApp(App[None]):
    """Two by two."""

    CSS = "Grid { grid-size: 2; grid-columns: 80; grid-rows: 8; } Graph { width: 80; height: 8; }"

    def __init__(self, window: float, glyphs: Glyphs, *, idle: bool) -> None:
        super().__init__()
        self.register_theme(SPARK_DARK)
        self.theme = SPARK_DARK.name
        self._window, self._glyphs, self._idle = window, glyphs, idle
        self._random = random.Random(7)
        self._times: list[float] = []
        self._values: dict[MetricId, list[float]] = {metric: [] for _, metrics in GRAPHS for metric in metrics}

    def get_default_screen(self) -> Screen[Any]:
        """The program's own, for what it writes."""
        return QuietScreen()

    def compose(self) -> ComposeResult:
        """The graphs."""
        with Grid():
            for _ in GRAPHS:
                yield Graph(self._glyphs)

    def on_mount(self) -> None:
        """A window full of samples, then one a second."""
        now = time.time()
        for age in range(int(self._window) + 10, 0, -1):
            self._sample(now - age)
        self._draw()
        if not self._idle:
            self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        self._sample(time.time())
        self._draw()

    def _sample(self, at: float) -> None:
        noise = self._random.random
        self._times.append(at)
        for metric, value in (
            (MetricId.DECODE_RATE, 42 + 6 * math.sin(at / 20) + 3 * noise()),
            (MetricId.TTFT_P50, 0.30 + 0.05 * noise()),
            (MetricId.TTFT_P95, 0.80 + 0.20 * noise()),
            (MetricId.KV_USAGE, 40 + 30 * math.sin(at / 90)),
            (MetricId.RUNNING, round(4 + 3 * math.sin(at / 15))),
            (MetricId.WAITING, max(0, round(3 * math.sin(at / 25)))),
        ):
            self._values[metric].append(value)

    def _draw(self) -> None:
        now = time.time()
        view = GraphView(now, self._window)
        for graph, (subject, metrics) in zip(self.query(Graph), GRAPHS, strict=False):
            names = ("",) if len(metrics) == 1 else ("a", "b")
            graph.draw(
                subject,
                [
                    Curve(name, SeriesView(metric, tuple(self._times), tuple(self._values[metric])))
                    for name, metric in zip(names, metrics, strict=True)
                ],
                view,
            )


if __name__ == "__main__":
    GraphApp(float(sys.argv[1]), ASCII if "ascii" in sys.argv else UNICODE, idle="idle" in sys.argv).run()
