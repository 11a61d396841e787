"""Metrics is full of values: what share of its body is blank, once, when its figures have come."""

from __future__ import annotations

import pytest

from spark_tui.core.context import build_demo
from spark_tui.tui.app import SparkApp
from spark_tui.tui.screens.metrics import Figures, MetricsScreen
from tests.tui.blank import blank_share
from tests.tui.quiet import until

MOST = 0.45
"""The demo's load moves it between 43.8 and 45.1 %."""


@pytest.mark.parametrize("size", [(120, 36), (160, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_body_of_metrics_is_mostly_full(size: tuple[int, int]) -> None:
    app = SparkApp(build_demo())

    def ready() -> bool:
        return isinstance(app.screen, MetricsScreen) and any(row.figures for row in app.screen.query(Figures))

    async with app.run_test(size=size) as pilot:
        await pilot.press("5")
        await until(app, lambda: ready() and blank_share(app) < MOST)
        share = blank_share(app)
    print(f"\nMetrics at {size[0]}x{size[1]}: {share:.1%} blank")
    assert share < MOST
