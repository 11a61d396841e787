"""An app that has ended leaves nothing behind: a test process opens thousands of them, and a browser's opens one after
the other."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

from textual.events import ScreenResume
from textual.message import Message

from spark_tui.app.control_centre import SparkApp
from spark_tui.base.executors import in_thread
from spark_tui.manage.doctor.screen import DoctorScreen
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.format import UNICODE
from spark_tui.tui.textual_private import OnceParsed, QuietScreen
from tests.tui.kit import QWEN, kit_of, seen
from tests.tui.quiet import PLENTY_S


async def opened_and_ended() -> list[weakref.ref[object]]:
    """What an app was, and what it showed; a list, a form and Home among it."""
    async with seen(kit_of(QWEN), (120, 36), "enter") as sight:
        sight.on(LaunchForm)
        kept: list[weakref.ref[object]] = [weakref.ref(sight.app), weakref.ref(sight.app.screen)]
        await sight.press("escape", "1")
        return [*kept, weakref.ref(sight.app.screen), weakref.ref(sight.kit.context)]


async def test_an_app_that_ended_is_garbage() -> None:
    await asyncio.gather(*(in_thread(time.sleep, 0.05) for _ in range(8)))  # a thread keeps the stderr of its start
    kept = await asyncio.create_task(opened_and_ended())
    latest = time.monotonic() + PLENTY_S
    while any(each() is not None for each in kept) and time.monotonic() < latest:
        await asyncio.sleep(0.05)  # a call on a thread may be on its way back
        gc.collect()
    assert [each() for each in kept] == [None] * len(kept)


async def test_a_screen_that_brings_a_style_sheet_has_no_other_parsed_again() -> None:
    async with seen(kit_of(QWEN), (120, 36)) as sight:
        sheet = sight.app.stylesheet
        assert isinstance(sheet, OnceParsed)
        sources, rules = len(sheet.source), {id(rule) for rule in sheet.rules if not rule.is_default_rules}
        await sight.press("enter")
        assert len(sheet.source) > sources
        assert rules < {id(rule) for rule in sheet.rules}


async def test_a_screen_that_is_opened_is_told_once_that_it_is_shown_and_again_when_it_is_back() -> None:
    told: list[str] = []

    def heard(message: Message) -> None:
        if isinstance(message, ScreenResume):
            told.append(repr(message))

    app = SparkApp(kit_of(QWEN).context, UNICODE)
    async with app.run_test(size=(120, 36), message_hook=heard) as pilot:
        await pilot.pause()
        told.clear()
        await pilot.press("8")
        assert isinstance(app.screen, DoctorScreen)
        assert len(told) == 1
        await pilot.press("1", "8")
        assert len(told) == 3


async def test_a_form_knows_the_window_before_it_is_styled() -> None:
    async with seen(kit_of(QWEN), (120, 36)) as sight:
        form = LaunchForm(sight.kit.context, QWEN)
        assert isinstance(form, QuietScreen)
        assert form._css_update_count == sight.app._css_update_count
        assert form.classes >= {"-normal"}
