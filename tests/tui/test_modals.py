"""The question before something is done: what has to be typed has a place that is seen, at every size."""

from __future__ import annotations

from itertools import product

from textual.widgets import Button, Input

from spark_tui.tui.modals import ConfirmScreen
from tests.tui.kit import QWEN, Sight, kit_of, seen

NAME = "nemotron-3-super-120b-a12b-nvfp4-mtp"
LONG = "vLLM would refuse to start: it asks for 111.9 GiB, and 56.4 GiB are available. " * 12
SIZES = ((80, 24), (120, 36))


def asked(sight: Sight, what: str) -> ConfirmScreen:
    """The question, opened as the launch form opens it."""
    screen = ConfirmScreen(
        "It does not fit. Launch it all the same?",
        what,
        verb="Launch",
        type_to_confirm=NAME,
        because="It would fail, or freeze the machine.",
    )
    sight.app.push_screen(screen)
    return screen


async def test_the_line_to_type_on_is_framed_and_shows_what_is_typed() -> None:
    async with seen(kit_of(QWEN), SIZES[0], "enter") as sight:  # over the launch form, as it is met
        for size, what in product(SIZES, ("It needs more than there is.", LONG)):
            await sight.resized(size)
            screen = asked(sight, what)
            await sight.until_seen(f"{NAME} to confirm:")
            typed = screen.query_one("#typed", Input)
            assert typed.has_focus, (size, what)
            frame = sight.text.split("\n")[typed.region.y][typed.region.x : typed.region.right]
            assert set(frame) == set("╭─╮"), f"{size}, {what}: a place to write is seen without colours"
            await sight.type("nemotron")
            assert "nemotron" in sight.text.split("\n")[typed.content_region.y], (size, what)
            assert screen.query_one("#yes", Button).disabled, (size, what)
            for button in screen.query(Button):
                assert button.region.bottom < screen.query_one(".dialog").region.bottom, (
                    f"{size}, {what}: the answers are seen too"
                )
            await sight.type(NAME.removeprefix("nemotron"))
            await sight.press("enter")
            assert sight.app.screen is not screen, (size, what)


async def test_a_long_text_is_turned_by_keys() -> None:
    async with seen(kit_of(QWEN), (80, 24)) as sight:
        screen = asked(sight, f"{LONG} The last word.")
        await sight.until_seen(f"{NAME} to confirm:")
        assert "The last word." not in sight.text
        await sight.press(*["pagedown"] * 9)
        assert "The last word." in sight.text
        await sight.press("escape")
        assert sight.app.screen is not screen
