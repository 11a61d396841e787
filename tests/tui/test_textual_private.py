"""Every private name of Textual that is used still does what it is used for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from textual.app import App
from textual.events import Paste
from textual.notifications import Notification
from textual.screen import Screen
from textual.widgets import Input, TextArea

import spark_tui.tui
from spark_tui.tui.app import SparkApp
from spark_tui.tui.format import UNICODE
from spark_tui.tui.frame import FrameScreen
from spark_tui.tui.textual_private import PasteInput, end_same_notices
from tests.tui.kit import kit_of

NAMES = {
    Screen: ("_compositor_refresh", "_get_breakpoint_classes", "_on_screen_resume"),
    App: ("_fatal_error", "_close_messages_no_wait", "_unnotify"),
    Input: ("_on_paste",),
    TextArea: ("_on_key", "_on_paste"),
}
"""By class; those that only an object has are used in the tests below."""


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in NAMES.items() for name in names])
def test_the_name_is_still_there(owner: type, name: str) -> None:
    assert callable(getattr(owner, name))


def test_private_names_of_textual_are_used_in_one_file_only() -> None:
    private = {name for names in NAMES.values() for name in names}
    private |= {"_css_update_count", "_batch_count", "_exception", "_exit_renderables", "_notifications", "_compositor"}
    allowed = {"prompt.py": {"_on_key", "_on_paste"}}  # a text area is not loaded before the first frame
    folder = Path(spark_tui.tui.__file__).parent
    found = {
        (path.name, node.attr if isinstance(node, ast.Attribute) else node.name)
        for path in folder.rglob("*.py")
        if path.name != "textual_private.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Attribute, ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.attr if isinstance(node, ast.Attribute) else node.name) in private
    }
    assert {(file, name) for file, name in found if name not in allowed.get(file, ())} == set()


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


async def test_a_notice_that_says_the_same_is_ended() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(notifications=True) as pilot:
        app.notify("one", markup=False)
        app.notify("two", markup=False)
        await pilot.pause()
        end_same_notices(app, Notification("one"))
        assert [each.message for each in app._notifications] == ["two"]


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
