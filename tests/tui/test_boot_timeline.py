"""The boot timeline: the list while it loads, one line afterwards; words as well as colours."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from spark_tui.domain.engine.boot import BootTracker
from spark_tui.tui.glyphs import ASCII
from spark_tui.tui.widgets.boot_timeline import BootTimelineView
from tests.fakes_host import FakeClock
from tests.log_fixtures import read_log

GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"


def tracked(until: str = "") -> BootTracker:
    tracker = BootTracker()
    for line in read_log(GB10):
        tracker.feed(None, line)
        if until and until in line:
            break
    return tracker


class TimelineApp(App[None]):
    def compose(self) -> ComposeResult:
        yield BootTimelineView(FakeClock(), ASCII)


def said(app: TimelineApp, width: int) -> str:
    return app.query_one(BootTimelineView).say(width).plain


@pytest.mark.parametrize("width", [40, 80, 120, 200])
async def test_while_it_loads_every_phase_has_its_line(width: int) -> None:
    app = TimelineApp()
    async with app.run_test(size=(width, 20)):
        app.query_one(BootTimelineView).show(tracked("17% Completed").timeline(), folded=False)
        text = said(app, width)
        lines = text.splitlines()
        assert all(len(line) <= width for line in lines)
        weights = next(line for line in lines if "Weights" in line)
        assert weights.startswith(ASCII.running)
        assert "17%" in weights
        assert any(line.startswith(ASCII.done) and "Config" in line for line in lines)
        assert any(line.startswith(ASCII.pending) and "Compile" in line for line in lines)


async def test_afterwards_the_phases_that_took_time_stand_on_one_line() -> None:
    app = TimelineApp()
    async with app.run_test(size=(120, 20)):
        app.query_one(BootTimelineView).show(tracked().timeline(), folded=True)
        text = said(app, 120)
        assert "weights 3m" in text
        assert "compile" in text
        assert text.count("\n") <= 2


async def test_a_failure_is_a_word() -> None:
    tracker = tracked("17% Completed")
    tracker.container_ended(1)
    app = TimelineApp()
    async with app.run_test(size=(120, 20)):
        view = app.query_one(BootTimelineView)
        view.show(tracker.timeline(), folded=True)
        assert "FAILED" in said(app, 120)
        view.show(tracker.timeline(), folded=False)
        assert f"{ASCII.failed} Weights" in said(app, 120)
