"""The app itself: what a change of the World costs."""

from __future__ import annotations

from typing import Any

from textual.events import Resize
from textual.geometry import Size

from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Ok
from spark_tui.tui.app import SparkApp
from spark_tui.tui.format import UNICODE
from tests.tui.kit import kit_of


async def test_a_new_reading_repaints_what_shows_it_and_not_the_whole_screen() -> None:
    kit = kit_of()
    app = SparkApp(kit.context, UNICODE)
    whole_screens: list[object] = []
    repaint = app.refresh

    def counted(*regions: Any, **options: Any) -> None:
        whole_screens.append(options)
        repaint(*regions, **options)

    async with app.run_test(size=(120, 36)) as pilot:
        await kit.clock.advance(3)
        await pilot.pause()
        app.refresh = counted  # type: ignore[method-assign]
        for gib in (70, 60, 50):
            kit.context.store.update(memory=Ok(MemInfo(120 * GIB, gib * GIB, gib * GIB), kit.clock.now()))
            await pilot.pause()
            await kit.clock.advance(0.2)
        assert app.memory == kit.context.store.world.memory
        assert whole_screens == []


async def test_a_size_of_before_that_arrives_late_does_not_stay() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.screen.post_message(Resize(Size(160, 50), Size(160, 50)))
        await pilot.pause()
        assert app.screen.size == Size(80, 24)
        assert not app.screen.has_class("-wide")


async def test_what_is_said_already_is_not_said_twice() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        for _ in range(3):
            app.notify("Choose a run first.", markup=False)
            app.notify("Something else.", markup=False)
        await pilot.pause()
        assert [toast.message for toast in app._notifications] == ["Choose a run first.", "Something else."]


async def test_the_palette_names_nothing_twice_and_nothing_that_cannot_be_done_now() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        for mode in app.MODES:
            app.switch_mode(mode)
            await pilot.pause()
            titles = [command.title for command in app.get_system_commands(app.screen)]
            assert len(titles) == len(set(titles)), mode
        app.switch_mode("home")
        await pilot.pause()
        assert not {"Stop", "Restart", "Cancel"} & {command.title for command in app.get_system_commands(app.screen)}
