"""In a terminal with a small font nothing is drawn that it has no character for, and nothing moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.tui.format import ASCII, CONSOLE, UNICODE, Glyphs, plain
from spark_tui.tui.modals import ConfirmScreen
from tests.tui.kit import QWEN, Sight, kit_of

OF_THE_CONSOLE = set("─│┌┐└┘├┤┬┴┼═█▄▀▌▐░▒▓■►•…±·×")
"""What code page 437 and the console fonts of Debian both have, beyond ASCII, of what we draw."""


@pytest.mark.parametrize(("glyphs", "more"), [(ASCII, set()), (CONSOLE, OF_THE_CONSOLE)], ids=["ascii", "console"])
@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_every_screen_is_drawn_with_what_the_terminal_has(
    glyphs: Glyphs, more: set[str], size: tuple[int, int]
) -> None:
    kit = kit_of(QWEN)
    app = SparkApp(kit.context, glyphs)
    async with app.run_test(size=size, notifications=True) as pilot:
        sight = Sight(kit, app, pilot)
        for key in ("1", "2", "3", "4", "5", "7", "8", "m", "question_mark"):
            await sight.press(key)
            strange = {char for char in sight.text if not char.isascii()} - more
            assert not strange, f"after {key}: {strange}"
        await sight.press("escape")
        app.push_screen(ConfirmScreen("Stop it?", "It serves.", verb="Stop", type_to_confirm="qwen"))
        await sight.until_seen("Type qwen to confirm")
        assert not {char for char in sight.text if not char.isascii()} - more


async def test_a_terminal_that_has_every_character_pays_nothing() -> None:
    assert not [each for each in SparkApp(build_demo(), UNICODE).get_line_filters() if "Plain" in type(each).__name__]


@given(st.text())
def test_text_keeps_its_width_its_letters_and_its_ascii(text: str) -> None:
    for glyphs in (ASCII, CONSOLE, UNICODE):
        shown = plain(text, glyphs)
        assert [cell_len(char) for char in shown] == [cell_len(char) for char in text]
        kept = [at for at, char in enumerate(text) if char.isascii() or char.isalpha()]
        assert [shown[at] for at in kept] == [text[at] for at in kept]
    assert plain(text, UNICODE) is text


def test_words_stay_readable() -> None:
    assert plain("╭─ Grüße … “汉” ─╮", ASCII) == '+- Grüße ~ "汉" -+'
    assert plain("╭─ 50 % … ─╮", CONSOLE) == "┌─ 50 % … ─┐"
