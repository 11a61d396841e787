"""Metrics is full of values: what share of its body is blank, when its graphs have a past."""

from __future__ import annotations

import pytest

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.observe.metrics.screen.metrics import Figures, MetricsScreen
from tests.fakes_host import FakeClock
from tests.tui.blank import blank_share
from tests.tui.quiet import until

MOST = 0.45
"""The demo's load moves it by its clock, so it is read at one time of that."""
PAST_S = 27


@pytest.mark.parametrize("size", [(120, 36), (160, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_body_of_metrics_is_mostly_full(size: tuple[int, int]) -> None:
    clock = FakeClock()
    first = clock.monotonic()
    app = SparkApp(build_demo(clock=clock))

    def ready() -> bool:
        return isinstance(app.screen, MetricsScreen) and any(row.figures for row in app.screen.query(Figures))

    async with app.run_test(size=size) as pilot:
        await pilot.press("5")
        await until(app, ready, passes=lambda: clock.advance(0.25))
        while clock.monotonic() < first + PAST_S:
            await clock.advance(1.0)
            await pilot.pause()
        share = blank_share(app)
    print(f"\nMetrics at {size[0]}x{size[1]}: {share:.1%} blank")
    assert share < MOST
