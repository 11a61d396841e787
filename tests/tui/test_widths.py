"""What is drawn fits any width: while a window is dragged, a widget is for a moment narrower than anything in it."""

from __future__ import annotations

import pytest

from spark_tui.core.context import build_demo
from spark_tui.domain.settings import Settings
from spark_tui.domain.text import cells_left
from spark_tui.tui.app import SparkApp
from spark_tui.tui.widgets.boot_timeline import BootTimelineView
from spark_tui.tui.widgets.line import Line

SCREENS = ("1", "2", "3", "4", "5", "7", "8", "m", "E", "J", "question_mark")
LEAVES = {"E", "J", "question_mark"}
WIDTHS = (*range(1, 61), *range(61, 240, 7))


@pytest.mark.timeout(240)
async def test_every_line_of_every_screen_is_drawn_at_any_width() -> None:
    app, drawn = SparkApp(build_demo(Settings())), set[str]()
    async with app.run_test(size=(200, 50)) as pilot:
        for key in SCREENS:
            await pilot.press(key)
            await pilot.pause()
            for line in app.screen.query(Line):
                drawn.add(type(line).__name__)
                for width in WIDTHS:
                    line.say(width)
            for view in app.screen.query(BootTimelineView):
                drawn.add(type(view).__name__)
                for width in WIDTHS:
                    view.lines(width)
            if key in LEAVES:
                await pilot.press("escape")
    assert {"BootTimelineView", "MemoryStrip", "TopBar", "KeyBar", "Page", "KeyTable"} <= drawn


@pytest.mark.parametrize(("cells", "taken", "left"), [(80, (), 80), (80, (20, 30), 30), (10, (4, 6), 0), (3, (20,), 0)])
def test_what_is_left_of_a_line_is_never_less_than_nothing(cells: int, taken: tuple[int, ...], left: int) -> None:
    assert cells_left(cells, *taken) == left
