"""Everything that can be pressed can be clicked: tabs, footer, strip, chips, titles, rows, the keys on a frame."""

from __future__ import annotations

import pytest

from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.help import HelpScreen
from spark_tui.tui.menu import Menu
from spark_tui.tui.modals import ConfirmScreen
from tests.tui.kit import GEMMA, QWEN, Sight, kit_of, seen


def place(sight: Sight, words: str, *, last: bool = False) -> tuple[int, int]:
    """Column and row of the first of these words on screen, or of the last ones."""
    found = [(line.index(words), y) for y, line in enumerate(sight.text.split("\n")) if words in line]
    return found[-1 if last else 0]


async def click(sight: Sight, words: str, *, times: int = 1, button: int = 1, last: bool = False) -> None:
    await sight.pilot.click(offset=place(sight, words, last=last), times=times, button=button)


async def test_a_tab_shows_its_screen_also_while_something_is_typed() -> None:
    async with seen(kit_of(QWEN), (120, 36), "3", "slash") as sight:
        await click(sight, "2 Models")
        await sight.until(lambda: sight.app.current_mode == "models")


async def test_a_key_of_the_footer_does_what_it_says() -> None:
    async with seen(kit_of(QWEN), (120, 36), "3") as sight:
        await click(sight, "l Launch", last=True)
        await sight.until(lambda: isinstance(sight.app.screen, LaunchForm))


async def test_the_memory_strip_opens_the_memory() -> None:
    async with seen(kit_of(QWEN), (120, 36), "3") as sight:
        await sight.until_seen("available")
        await click(sight, "MEM ")
        await sight.until(lambda: sight.app.current_mode == "memory")


async def test_a_chip_and_a_title_narrow_and_sort_the_presets() -> None:
    async with seen(kit_of(QWEN, GEMMA), (120, 36), "3") as sight:
        screen = sight.on(PresetsScreen)
        await click(sight, "T tools")
        await sight.until(lambda: screen._search.tools is True)
        await click(sight, "T tools")
        await click(sight, "tok/s")
        await sight.until(lambda: screen._search.sort == "tok_s")
        await click(sight, "tok/s v")
        await sight.until(lambda: screen._search.reverse)


async def test_a_second_click_opens_a_row_and_the_right_button_shows_what_can_be_done() -> None:
    async with seen(kit_of(QWEN, GEMMA), (120, 36), "3") as sight:
        await click(sight, "Gemma 31B", button=3)
        await sight.until(lambda: isinstance(sight.app.screen, HelpScreen))
        assert sight.app.screen_stack[-2] is not None
        await sight.press("escape")
        assert sight.on(PresetsScreen).rows.key == "gemma"
        await click(sight, "Qwen3.6-35B-A3B", times=2)
        await sight.until(lambda: isinstance(sight.app.screen, LaunchForm))


@pytest.mark.parametrize("hint", ["Esc back", "F1 help"])
async def test_the_keys_on_a_frame_are_pressed_there(hint: str) -> None:
    async with seen(kit_of(QWEN), (120, 36), "3", "enter") as sight:
        form = sight.on(LaunchForm)
        await click(sight, hint)
        await sight.until(lambda: sight.app.screen is not form)


async def test_a_click_in_the_menu_runs_the_row() -> None:
    async with seen(kit_of(QWEN), (120, 36), "3", "colon") as sight:
        sight.on(Menu)
        await sight.type("quit")
        await click(sight, "Quit", last=True)
        await sight.until(lambda: sight.app._exit or isinstance(sight.app.screen, ConfirmScreen))
