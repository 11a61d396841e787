"""Every private name of Textual that is used still does what it is used for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from textual._compositor import Compositor
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers import linux_driver, web_driver
from textual.events import Paste
from textual.screen import Screen
from textual.widgets import Input, TextArea

import spark_tui
from spark_tui.app.control_centre import SparkApp
from spark_tui.tui.format import UNICODE
from spark_tui.tui.frame import FrameScreen
from spark_tui.tui.textual_private import PasteInput, TerminalParser, write_to_terminal
from tests.tui.kit import kit_of

NAMES = {
    Compositor: ("_get_renders", "_regions_to_spans"),
    Screen: ("_compositor_refresh", "_get_breakpoint_classes", "_on_screen_resume"),
    App: ("_fatal_error", "_close_messages_no_wait"),
    Input: ("_on_paste",),
    TextArea: ("_on_key", "_on_paste"),
    XTermParser: ("_sequence_to_key_events", "parse_mouse_code"),
}
"""By class; those that only an object has are used in the tests below."""


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in NAMES.items() for name in names])
def test_the_name_is_still_there(owner: type, name: str) -> None:
    assert callable(getattr(owner, name))


def test_private_names_of_textual_are_used_in_one_file_only() -> None:
    private = {name for names in NAMES.values() for name in names}
    private |= {
        "_css_update_count",
        "_batch_count",
        "_exception",
        "_exit_renderables",
        "_parse_cache",
        "_notifications",
        "_driver",
        "_compositor",
        "_dirty_regions",
    }
    allowed = {"prompt.py": {"_on_key", "_on_paste"}}  # a text area is not loaded before the first frame
    folder = Path(spark_tui.__file__).parent
    found = {
        (path.name, node.attr if isinstance(node, ast.Attribute) else node.name)
        for path in folder.rglob("*.py")
        if path.name != "textual_private.py" and "from textual" in path.read_text("utf-8")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Attribute, ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.attr if isinstance(node, ast.Attribute) else node.name) in private
    }
    assert {(file, name) for file, name in found if name not in allowed.get(file, ())} == set()


def test_both_drivers_read_with_the_parser_that_ours_stands_in_for() -> None:
    assert {driver.XTermParser for driver in (linux_driver, web_driver)} <= {XTermParser, TerminalParser}


async def test_a_screen_is_styled_once_and_not_painted_while_changes_are_batched() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, FrameScreen)
        assert screen._css_update_count == app._css_update_count
        assert screen.has_class("-normal", "-tall")
        with app.batch_update():
            assert app._batch_count == 1
        assert app._batch_count == 0


async def test_bytes_reach_the_terminal() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test():
        assert app._driver is not None
        written: list[str] = []
        app._driver.write = written.append  # type: ignore[method-assign]
        write_to_terminal(app, "\a")
        assert written == ["\a"]


class Doubled(PasteInput):
    def pasted(self, text: str) -> str | None:
        return None if text == "none" else text * 2


async def test_a_paste_is_what_the_widget_makes_of_it() -> None:
    app: App[None] = App()
    async with app.run_test() as pilot:
        line = Doubled()
        await app.screen.mount(line)
        for text in ("ab", "none"):
            line.post_message(Paste(text))
        await pilot.pause()
        assert line.value == "abab"
