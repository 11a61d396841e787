"""What is drawn fits any width: while a window is dragged, a widget is for a moment narrower than anything in it."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from textual.events import Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.settings import Settings
from spark_tui.base.text import cells_left
from spark_tui.observe.engines.screen.boot_timeline import BootTimelineView
from spark_tui.observe.engines.screen.paint import PaintedLine, wrapped
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
    assert {"BootTimelineView", "MemoryStrip", "TopBar", "KeyBar", "Page"} <= drawn


@pytest.mark.timeout(240)
async def test_what_is_painted_line_by_line_is_painted_in_no_cells_too() -> None:
    app, drawn = SparkApp(build_demo(Settings())), set[str]()
    async with app.run_test(size=(160, 40)) as pilot:
        for keys in (("1",), ("2",), ("4",), ("6",), (*"hello", "enter")):
            await pilot.press(*keys)
            await pilot.pause()
            for widget in app.screen.query(Widget):
                if "render_line" not in vars(type(widget)) or not type(widget).__module__.startswith("spark_tui"):
                    continue
                drawn.add(type(widget).__name__)
                for width in range(4):
                    widget.styles.width, widget.styles.min_width = width, 0
                    await pilot.pause()
                    widget.render_lines(Region(0, 0, width, 12))
                widget.styles.width = "1fr"
    assert {"Transcript", "RowList", "LogView", "BootTimelineView"} <= drawn


async def test_a_size_that_is_past_is_not_laid_out_again() -> None:
    """Laid out, it reports itself once more: with a message between the two sizes they answered each other for ever."""
    past, widths = Size(186, 54), list[int]()

    def heard(message: Message) -> None:
        if isinstance(message, Resize):
            widths.append(message.size.width)

    app = SparkApp(build_demo(Settings()))
    async with app.run_test(size=(120, 36), message_hook=heard) as pilot:
        for key in (*"12345678", "1", "y", "escape", "ctrl+p"):  # the last ones are dialogs
            await pilot.press(key)
            await pilot.pause()
            app.screen.post_message(Resize(past, past))
            await pilot.pause()
        assert isinstance(app.screen, ModalScreen)
    assert [each for each in widths if each > 120] == [past.width] * 12


@pytest.mark.timeout(20)
@pytest.mark.parametrize("width", range(6))
@pytest.mark.parametrize("text", ["INFO 漢字 loaded", "plain ascii text", "\U0001f642" * 40])
def test_a_line_of_a_log_has_an_end_at_any_width(text: str, width: int) -> None:
    for indent in (0, 1, 5):
        rows = wrapped(PaintedLine(Strip([Segment(text)]), indent, ""), width)
        assert "".join(row.text for row in rows).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(("cells", "taken", "left"), [(80, (), 80), (80, (20, 30), 30), (10, (4, 6), 0), (3, (20,), 0)])
def test_what_is_left_of_a_line_is_never_less_than_nothing(cells: int, taken: tuple[int, ...], left: int) -> None:
    assert cells_left(cells, *taken) == left
