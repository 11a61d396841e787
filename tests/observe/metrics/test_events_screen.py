"""Events: reached from everywhere, each with its whole text; a notice does not stay."""

from __future__ import annotations

import pytest

from spark_tui.base.finding import EventKind, Severity
from spark_tui.observe.metrics.screen.events import EventsScreen
from tests.tui.kit import ESCAPE, MARKUP, QWEN, kit_of, seen

LONG = f"qwen failed (exit 1): {MARKUP} {ESCAPE} " + "no room is left for the KV cache " * 6


async def test_an_event_opens_with_its_whole_text_and_leads_back() -> None:
    kit = kit_of(QWEN)
    async with seen(kit, (100, 30), "E") as sight:
        await sight.until_seen("No events yet.")
        kit.context.store.say("qwen ready after 24s", kind=EventKind.READY, subject="qwen")
        detail = "Traceback\nlast line"
        kit.context.store.say(LONG, Severity.ERROR, "Lower it.", kind=EventKind.FAILED, subject="qwen", detail=detail)
        await sight.until_seen("ready after 24s", "qwen failed", "Lower it.", "last line", "[/red][bold]not")
        screen = sight.on(EventsScreen)
        assert screen.event is not None
        await sight.until_seen("All events of qwen")
        assert [yank.text for yank in screen.yanks()] == [f"{LONG}\nLower it.\n{detail}"]
        await sight.press("slash", "r", "e", "a", "d", "y", "enter")
        assert screen.event is not None
        assert screen.event.kind is EventKind.READY
        await sight.press("escape", "m")
        assert sight.app.current_mode == "memory"
        await sight.press("escape")
        assert sight.app.current_mode == "presets", "back to where a tab is"


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_escape_clears_the_filter_and_then_goes_back_to_where_it_was_opened(size: tuple[int, int]) -> None:
    kit = kit_of(QWEN)
    kit.context.store.say("something happened")
    async with seen(kit, size, "4", "E") as sight:
        await sight.press("slash", "s", "o")
        await sight.press("escape")
        assert sight.on(EventsScreen).filter_words == []
        await sight.press("escape")
        assert sight.app.current_mode == "logs"


async def test_a_click_on_the_feed_opens_the_events() -> None:
    kit = kit_of(QWEN)
    async with seen(kit, (120, 36), "1") as sight:
        kit.context.store.say("something happened")
        await sight.until_seen("something happened")
        await sight.pilot.click("#events")
        await sight.until(lambda: sight.app.current_mode == "events")
