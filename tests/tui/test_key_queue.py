"""A burst of keys, as a slow line delivers it, does what the same keys do one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.events import Event, Key, Paste
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from spark_tui.app.control_centre import SparkApp
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.format import UNICODE
from spark_tui.tui.help import HelpScreen
from spark_tui.tui.key_queue import GUARD_S, KeyHandled, KeyQueue
from spark_tui.tui.modals import ConfirmScreen, TextDialog
from tests.tui.kit import QWEN, SMOL, kit_of, seen
from tests.tui.quiet import PLENTY_S, until

NAMES = {" ": "space", "/": "slash", "\r": "enter", "?": "question_mark"}


def burst(app: App[None], text: str) -> None:
    for character in text:
        app.post_message(Key(NAMES.get(character, character), character))


async def test_keys_for_a_screen_that_an_earlier_key_opens_reach_that_screen() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        burst(app, "23/qwen")
        await until(app, lambda: isinstance(app.focused, Input) and app.focused.value == "qwen", "the filter has all")
        assert app.current_mode == "presets"


async def test_pasted_text_waits_for_the_keys_before_it() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        burst(app, "3/")
        app.post_message(Paste("qwen"))
        burst(app, "3")
        await until(app, lambda: isinstance(app.focused, Input) and app.focused.value == "qwen3", "in its order")


async def test_a_key_after_enter_goes_where_enter_has_moved_the_focus() -> None:
    app = SparkApp(kit_of(QWEN, SMOL).context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        burst(app, "3/qwen\r?")
        await until(app, lambda: isinstance(app.screen, HelpScreen), "not typed into the filter")


async def test_a_key_after_one_that_closes_a_dialog_goes_to_the_screen_below() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    app.key_queue.timeout = 10 * PLENTY_S  # a dialog takes its messages with it: that is seen, and not waited for
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        burst(app, "3?")
        app.post_message(Key("escape", None))
        burst(app, "8")
        await until(
            app,
            lambda: (
                app.current_mode == "doctor" and len(app.screen_stack) == 1 and bool(app.screen.query("#check-list"))
            ),
            "Help is closed",
        )


@pytest.mark.parametrize("turns", range(0, 48, 4))
async def test_the_program_ends_also_while_a_key_opens_a_screen(turns: int) -> None:
    """However far the screen has come, in turns of the event loop: an error fails the test."""
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        burst(app, "8")
        for _ in range(turns):
            await asyncio.sleep(0)


async def test_every_screen_in_one_burst_ends_on_the_last() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        burst(app, "12345781234578" * 3 + "8m")
        await until(app, lambda: app.current_mode == "memory", "none overtakes another")
        await pilot.pause()
        assert app.current_mode == "memory"


class HandClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def guarded() -> AsyncIterator[tuple[SparkApp, Pilot[None], HandClock]]:
    """The app as at a terminal: keys that come in the moments after a dialog's first picture do not confirm it."""
    app, clock = SparkApp(kit_of().context, UNICODE), HandClock()
    async with app.run_test(size=(120, 36)) as pilot:
        app.key_queue.clock, app.key_queue.guard = clock, GUARD_S
        await pilot.pause()
        yield app, pilot, clock


async def pressed(app: App[None], pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        app.post_message(Key(NAMES.get(key, key), key if len(key) == 1 else None))
    await pilot.pause()
    await pilot.pause()


@pytest.mark.parametrize("confirm", ["y", "enter"])
async def test_a_question_is_not_answered_by_what_was_typed_before_it_could_be_read(confirm: str) -> None:
    async with guarded() as (app, pilot, clock):
        answers: list[bool | None] = []
        app.push_screen(ConfirmScreen("Free it?", "", verb="Free"), answers.append)
        await pressed(app, pilot, confirm)
        clock.now += GUARD_S * 0.9
        await pressed(app, pilot, "right", confirm)
        assert answers == []
        clock.now += GUARD_S
        await pressed(app, pilot, confirm)
        assert answers == [True]


async def test_a_question_in_the_midst_of_a_text_is_not_answered_by_a_letter_of_it() -> None:
    async with guarded() as (app, pilot, clock):
        answers: list[bool | None] = []
        app.push_screen(ConfirmScreen("Free it?", "", verb="Free"), answers.append)
        await pilot.pause()
        for letter in "o you like y":
            clock.now += GUARD_S * 0.9
            await pressed(app, pilot, letter)
        assert answers == []


@pytest.mark.parametrize("key", ["n", "escape"])
async def test_a_question_is_cancelled_at_once(key: str) -> None:
    async with guarded() as (app, pilot, _):
        answers: list[bool | None] = []
        app.push_screen(ConfirmScreen("Free it?", "", verb="Free"), answers.append)
        await pressed(app, pilot, key)
        assert answers == [False]


async def test_text_that_is_typed_ahead_of_a_dialog_is_kept_and_its_enter_is_not() -> None:
    async with guarded() as (app, pilot, clock):
        answers: list[str | None] = []
        app.push_screen(TextDialog("Save", "A name."), answers.append)
        await pilot.pause()
        await pressed(app, pilot, *"talk", "enter")
        assert answers == []
        clock.now += GUARD_S
        await pressed(app, pilot, "enter")
        assert answers == ["talk"]


async def test_a_launch_is_not_begun_by_a_key_that_came_before_its_form() -> None:
    async with seen(kit_of(QWEN)) as sight:
        app, clock = sight.app, HandClock()
        app.key_queue.clock, app.key_queue.guard = clock, GUARD_S
        await pressed(app, sight.pilot, "\r", "ctrl+l")
        await sight.until_seen("^l launch")
        await sight.press("ctrl+l")
        assert isinstance(app.screen, LaunchForm)
        clock.now += GUARD_S
        await sight.press("ctrl+l")
        await sight.until(lambda: bool(app.world.jobs))


HANGS_S = 2.0


class Second(Screen[None]):
    def on_key(self, event: Key) -> None:
        assert isinstance(self.app, SlowApp)
        self.app.seen.append((event.key, type(self).__name__))


class First(Second):
    """Opens a screen after many turns of the loop, as where the processor is busy with something else, and hangs."""

    async def _on_key(self, event: Key) -> None:
        latest = time.monotonic() + 0.5
        while event.key == "o" and time.monotonic() < latest:
            then = time.process_time() + 0.002
            while time.process_time() < then:
                pass
            await asyncio.sleep(0)
        if event.key == "o":
            self.app.push_screen(Second())
        if event.key == "h":
            await asyncio.sleep(HANGS_S)


class QueuedApp(App[None]):
    """Keys go through a queue of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = KeyQueue(self, super().on_event)

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key) and not event.is_forwarded:
            await self.queue.put(event)
        else:
            await super().on_event(event)

    def on_key_handled(self, message: KeyHandled) -> None:
        self.queue.handled(message)


class SlowApp(QueuedApp):
    """Notes which screen each key comes to."""

    def __init__(self) -> None:
        super().__init__()
        self.queue.timeout = 0.1
        self.seen: list[tuple[str, str]] = []

    def get_default_screen(self) -> Screen[None]:
        return First()


@pytest.mark.parametrize(("keys", "screen"), [("oa", "Second"), ("ha", "First")], ids=["at work", "hangs"])
async def test_a_key_waits_for_a_screen_that_is_at_work_and_only_a_moment_for_one_that_hangs(
    keys: str, screen: str
) -> None:
    app = SlowApp()
    async with app.run_test():
        began = time.monotonic()
        burst(app, keys)
        await until(app, lambda: not app.queue._waiting and app.queue._number == 2)
        assert keys == "oa" or time.monotonic() - began < HANGS_S, "it is not waited for to its end"
        await until(app, lambda: len(app.seen) == 2)
        assert app.seen == [(keys[0], "First"), ("a", screen)]


class Vanishing(Input):
    """Is gone before what follows its first key has reached it."""

    async def on_key(self, event: Key) -> None:
        event.stop()
        await self.remove()


class VanishingApp(QueuedApp):
    """Notes the keys that come up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def compose(self) -> ComposeResult:
        yield Vanishing()

    def on_key(self, event: Key) -> None:
        self.seen.append(event.key)


async def test_a_widget_that_is_removed_with_a_key_does_not_hold_the_next_ones_for_ever() -> None:
    app = VanishingApp()
    async with app.run_test() as pilot:
        await pilot.pause()
        app.screen.query_one(Vanishing).focus()
        await pilot.pause()
        burst(app, "abc")
        await until(app, lambda: app.seen == ["b", "c"], f"the others come through: {app.seen}")
