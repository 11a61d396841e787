"""Doctor: what is wrong is under the cursor at once, with its remedy; looking again and trying the GPU are keys."""

from __future__ import annotations

from typing import Any

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.settings import Settings
from spark_tui.tui.format import UNICODE
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.row_list import RowList
from tests.tui.kit import SIZES
from tests.tui.quiet import text_of, until


async def settle(app: SparkApp, pilot: Any, *words: str) -> str:
    await until(app, lambda: all(word in text_of(app) for word in words))
    return text_of(app)


async def test_the_first_problem_is_under_the_cursor_with_its_remedy() -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await pilot.press("8", "home")
            await settle(app, pilot, "earlyoom", "--avoid", "WARN", "passed")
            assert app.screen.query_one(RowList).key == "earlyoom", size
            app.copy_to_clipboard("")
            await pilot.press("y")
            assert "--avoid" in app.clipboard, size
            assert "PASS" not in text_of(app), f"{size}: what passed is folded while something needs attention"
            app.clear_notifications()
            await pilot.press("z", "end", "y")
            await settle(app, pilot, "PASS")
            assert any("Nothing to copy here." in notice.message for notice in app._notifications), size
            await pilot.press("z", "escape")
            await settle(app, pilot, "[1 Home]")


async def test_what_passed_stands_below_a_short_list_where_there_is_room() -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("8")
        await settle(app, pilot, "earlyoom", "Needs attention")
        assert not app.screen.query_one("#more").display, "no room"
        assert "The clock is synchronised." not in text_of(app)
        for size in ((120, 36), (160, 50)):
            await pilot.resize_terminal(*size)
            await settle(app, pilot, "earlyoom", "Needs attention", "The clock is synchronised.")
            assert app.screen.query_one("#more").display, size
            await pilot.press("z")
            await settle(app, pilot, "PASS")
            assert not app.screen.query_one("#more").display, f"{size}: they are in the list now"
            await pilot.press("z")
        await pilot.resize_terminal(120, 24)
        assert not app.screen.query_one("#more").display, "no room again"
        await pilot.resize_terminal(120, 40)
        await settle(app, pilot, "The clock is synchronised.")


async def test_the_gpu_container_is_tried_only_after_a_yes() -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("8")
        await settle(app, pilot, "earlyoom")
        await pilot.press("P")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("y")
        await settle(app, pilot, "A container with the GPU starts.")


async def test_read_only_has_no_such_key() -> None:
    app = SparkApp(build_demo(Settings(read_only=True)), UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("8")
        await settle(app, pilot, "earlyoom")
        await pilot.press("P")
        assert not isinstance(app.screen, ConfirmScreen)
        assert "GPU container" not in text_of(app)
