"""The app itself: what a change of the World costs."""

from __future__ import annotations

import string
from typing import Any

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.keys import _character_to_key

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.home.palette import entries
from spark_tui.app.rooms import ROOMS
from spark_tui.base.errors import RefusedError
from spark_tui.base.finding import Ok, value_of
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.quantities import GIB, gib
from spark_tui.tui.format import UNICODE
from spark_tui.tui.frame import TOAST_SECONDS
from spark_tui.tui.widgets.memory_strip import MemoryStrip
from tests.tui.kit import kit_of

MODES = tuple(name for each in ROOMS.features() for name in (*each.modes, *each.asides))


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
        assert app.world.memory == kit.context.store.world.memory
        assert whole_screens == []


async def test_the_first_frame_shows_the_memory() -> None:
    shown: list[str] = []
    kit = kit_of()
    app = SparkApp(kit.context, UNICODE)

    def first_frame() -> None:
        shown.append(app.screen.query_one(MemoryStrip).say(120).plain)

    app._start = first_frame  # type: ignore[method-assign]  # nothing is collected after it
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
    memory = value_of(kit.host.memory())
    assert memory is not None
    assert f"{gib(memory.available)} GiB available" in shown[0]


async def test_a_size_of_before_that_arrives_late_does_not_stay() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.screen.post_message(Resize(Size(160, 50), Size(160, 50)))
        await pilot.pause()
        assert app.screen.size == Size(80, 24)
        assert not app.screen.has_class("-wide")


async def test_one_notice_at_a_time_and_an_error_stays_until_a_key_and_in_the_events() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        for _ in range(3):
            app.notify("Choose a run first.", markup=False, timeout=60)
            app.notify("Something else.", markup=False)
        await pilot.pause()
        assert [(toast.message, toast.timeout) for toast in app._notifications] == [("Something else.", TOAST_SECONDS)]
        app.report(RefusedError("No room.", "Stop an engine."))
        await pilot.pause()
        [error] = app._notifications
        assert (error.message, error.timeout > 3600) == ("No room.\nStop an engine.", True)
        assert [(event.text, event.remedy) for event in app.context.store.world.events] == [
            ("No room.", "Stop an engine.")
        ]
        await pilot.press("down")
        assert not list(app._notifications)


async def test_the_palette_names_nothing_twice_and_nothing_that_cannot_be_done_now() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        for mode in MODES:
            app.switch_mode(mode)
            await pilot.pause()
            found = list(entries(app))
            assert len(found) == len({entry.id for entry in found}) == len({entry.label for entry in found}), mode
        app.switch_mode("home")
        await pilot.pause()
        of_an_engine = {"Stop", "Restart", "Cancel", "Remove", "Make a key", "At boot", "Schedule"}
        assert not of_an_engine & {entry.label for entry in entries(app)}


@pytest.mark.parametrize("mode", MODES)
async def test_a_key_that_means_nothing_here_does_nothing(mode: str) -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await app.switch_mode(mode)
        await pilot.pause()
        screen, bound = app.screen, {each.binding.key for each in app.screen.active_bindings.values()}
        idle = [letter for letter in string.punctuation + string.digits if _character_to_key(letter) not in bound]
        assert "at" in map(_character_to_key, idle) or mode == "logs"
        await pilot.press(*idle)
        assert (app.screen, app.is_running) == (screen, True)
