"""The table of keys, whole: every action, its help, and the command that does the same; the tour of the screen."""

from __future__ import annotations

import pytest

from spark_tui.core.actions import Scope, of_scope, shown, use_keys
from spark_tui.tui.screens.help import CLI_FROM, KeyTable, TourScreen, tour
from spark_tui.tui.screens.presets import PresetsScreen
from tests.tui.kit import QWEN, kit_of, seen


@pytest.mark.parametrize("width", [72, CLI_FROM, 109, 122, 180])
@pytest.mark.parametrize("scope", list(Scope))
def test_no_command_is_broken_and_no_line_is_too_long(scope: Scope, width: int) -> None:
    lines = KeyTable(scope, read_only=False).say(width).plain.split("\n")
    assert all(len(line) <= width for line in lines)
    for action in (*of_scope(scope), *of_scope(Scope.GLOBAL)):
        if action.cli:
            assert any(line.rstrip().endswith(f"spark-tui {action.cli}") for line in lines), action.id


def test_commands_stand_in_one_column_where_there_is_room_for_it() -> None:
    lines = KeyTable(Scope.MODELS, read_only=False).say(122).plain.split("\n")
    assert len({line.index("spark-tui ") for line in lines if "spark-tui " in line}) == 1


@pytest.mark.parametrize(
    ("key", "written"), [("ctrl+end", "^End"), ("ctrl+p", "^p"), ("f2", "F2"), ("question_mark", "?"), ("left", "Left")]
)
def test_keys_are_written_as_on_the_keyboard(key: str, written: str) -> None:
    assert shown(key) == written


@pytest.mark.parametrize("width", [40, 58, 74, 110])
def test_the_tour_names_the_keys_in_force_and_fits_its_place(width: int) -> None:
    use_keys({"drop_cache": ("f9",), "quit": ("Q",)})
    try:
        lines = tour(width).plain.split("\n")
    finally:
        use_keys({})
    assert all(len(line) <= width for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "F9 frees the cache" in text
    assert "Q Quit." in text


async def test_the_tour_is_there_while_nothing_serves_and_by_its_key_over_any_screen() -> None:
    async with seen(kit_of(QWEN), (80, 24), "1") as sight:
        await sight.until_seen("Serve a model in three keys.", "shows this", "Quit.")
        await sight.press("3", "f1")
        sight.on(TourScreen)
        await sight.until_seen("Quick tour", "Quit.")
        await sight.press("escape")
        sight.on(PresetsScreen)
