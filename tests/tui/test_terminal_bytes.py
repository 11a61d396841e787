"""What is written to the terminal leaves on it what the compositor has drawn, in few bytes."""

from __future__ import annotations

from typing import Any

import pyte
import pytest
from rich.color import ColorSystem
from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.tui.textual_private import QuietScreen, change, codes_of

SIZE = (120, 36)


class Terminal:
    """A terminal that gets what would be written to a real one."""

    def __init__(self, width: int, height: int) -> None:
        self.screen = pyte.Screen(width, height)
        self.stream = pyte.Stream(self.screen)
        self.sent = ""

    def feed(self, text: str) -> None:
        self.sent += text
        self.stream.feed(text)

    def cells(self) -> list[list[tuple[str, str, str, bool]]]:
        """Character, colour, background and boldness; a blank has no colour to show."""
        return [
            [
                (cell.data, cell.fg if cell.data.strip() else "", cell.bg, cell.bold and bool(cell.data.strip()))
                for cell in (self.screen.buffer[y][x] for x in range(self.screen.columns))
            ]
            for y in range(self.screen.lines)
        ]


class Painted(SparkApp):
    """The program, with a terminal although it is headless."""

    terminal = Terminal(*SIZE)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(renderable, CompositorUpdate) and screen is self.screen and not self._batch_count:
            self.terminal.feed(renderable.render_segments(self.console))
        super()._display(screen, renderable)


def drawn(app: SparkApp) -> list[list[tuple[str, str, str, bool]]]:
    """What the terminal would show if all of the screen were written anew, in Textual's own way."""
    terminal = Terminal(*SIZE)
    for y, strip in enumerate(app.screen._compositor.render_strips(app.size)):
        unused = Strip([Segment(text, fresh(style), control) for text, style, control in strip])
        terminal.feed(f"\x1b[{y + 1};1H" + unused.render(app.console))
    return terminal.cells()


Cells = list[list[tuple[str, str, str, bool]]]


def differing(shown: Cells, expected: Cells) -> list[object]:
    """The first cells that are not the same, with their places."""
    rows = enumerate(zip(shown, expected, strict=True))
    found = [(y, x, *both) for y, row in rows for x, both in enumerate(zip(*row, strict=True)) if both[0] != both[1]]
    return [len(found), *found[:8]] if found else []


def fresh(style: Style | None) -> Style | None:
    """The same style as a new object: Rich keeps the codes of the palette that an object was first written with."""
    names = ("bold", "dim", "italic", "underline", "blink", "reverse", "strike")
    if style is None:
        return None
    return Style(color=style.color, bgcolor=style.bgcolor, **{name: getattr(style, name) for name in names})


async def test_the_terminal_shows_what_every_screen_has_drawn() -> None:
    app = Painted(build_demo())
    app.terminal = Terminal(*SIZE)
    keys = ("1", "5", "left", "2", "3", "4", "7", "8", "m", "1", "question_mark", "escape", "3", "down", "slash")
    async with app.run_test(size=SIZE) as pilot:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            before = len(app.terminal.sent)
            for _ in range(1000):  # what changes by itself is written too
                if app.terminal.cells() == drawn(app) and (key not in "15" or len(app.terminal.sent) > before):
                    break
                await pilot.pause(0.01)
            assert differing(app.terminal.cells(), drawn(app)) == [], key


class Wide(Widget):
    """One line of any text."""

    text = "abcdef"

    def render_line(self, y: int) -> Strip:
        return Strip([Segment(self.text, Style(color="red", bgcolor="blue"))])


class OneLine(App[None]):
    """A quiet screen with one line."""

    CSS = "Wide { width: 20; height: 1; }"

    def get_default_screen(self) -> Screen[Any]:
        return QuietScreen()

    def compose(self) -> ComposeResult:
        yield Wide()


@pytest.mark.parametrize(("text", "written"), [("abcdef", "d"), ("a漢字ef", "漢")])
async def test_a_changed_cell_is_written_alone_but_for_wide_characters(text: str, written: str) -> None:
    app = OneLine()
    async with app.run_test(size=(20, 3)) as pilot:
        widget, compositor = app.query_one(Wide), app.screen._compositor
        widget.text = text
        widget.refresh()
        await pilot.pause()
        compositor.render_partial_update()
        widget.refresh(Region(3, 0, 1, 1))
        compositor.update_widgets({widget})
        update = compositor.render_partial_update()
        assert isinstance(update, ChopsUpdate)
        sent = update.render_segments(app.console)
        assert written in sent
        assert ("a" in sent) == (not text.isascii())


def test_a_colour_that_stays_is_not_named_again() -> None:
    def style(**more: Any) -> Any:
        return codes_of(Style(**more), ColorSystem.TRUECOLOR)

    green, red = style(color="#00ff00", bgcolor="#101010"), style(color="#ff0000", bgcolor="#101010")
    bold = style(color="#ff0000", bgcolor="#101010", bold=True)
    assert change(green, green) == ""
    assert change(green, red) == "\x1b[38;2;255;0;0m"
    assert change(red, bold) == "\x1b[1m"
    assert change(bold, red) == "\x1b[0;38;2;255;0;0;48;2;16;16;16m"
    assert change(red, style(bgcolor="#101010")) == "\x1b[39m"
