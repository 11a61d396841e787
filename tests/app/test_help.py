"""The table of keys, whole: every action, its help, and the command that does the same; the tour of the screen."""

from __future__ import annotations

import re

import pytest

from spark_tui.base.actions import Scope, key_of, of_scope, shown, use_keys
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.help import HelpScreen, TourScreen, tour
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.use.connect.screen import ConnectScreen
from tests.tui.kit import QWEN, Sight, kit_of, seen


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
async def test_a_command_is_whole_or_left_out_and_the_keys_stand_first(size: tuple[int, int]) -> None:
    async with seen(kit_of(QWEN), size, "3", "question_mark") as sight:
        sight.on(HelpScreen)
        lines = sight.text.split("\n")
        for action in of_scope(Scope.PRESETS)[:5]:
            keys = " ".join(map(shown, action.keys))
            [line] = [line for line in lines if re.search(rf"[|│] *\S? *{re.escape(keys)} +{action.label} ", line)]
            assert f"spark-tui {action.cli}" in line or "spark-tui" not in line
        assert (sum("spark-tui" in line for line in lines) > 3) == (size[0] > 80)


async def test_what_is_typed_filters_the_keys_and_enter_does_the_first() -> None:
    async with seen(kit_of(QWEN), (120, 36), "3", "question_mark") as sight:
        await sight.type("revers")
        await sight.press("enter")
        assert sight.on(PresetsScreen)._search.reverse


async def test_in_the_help_of_a_dialog_a_key_is_the_dialogs_own() -> None:
    async with seen(kit_of(QWEN), (120, 36), "3", "enter", "f1") as sight:
        sight.on(HelpScreen)
        await sight.type("back")
        await sight.press("enter")
        await sight.until(lambda: isinstance(sight.app.screen, PresetsScreen))


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


async def test_every_key_of_the_tour_does_what_it_says() -> None:
    text = tour(110).plain
    for id_ in ("show_presets", "show_chat", "open_memory", "open_connect", "open_cluster", "open_hosts", "tour"):
        assert key_of(id_) in text.split(), id_
    async with seen(kit_of(QWEN), (120, 36), "3", "enter") as sight:
        sight.on(LaunchForm)
        await sight.until(lambda: sight.on(LaunchForm).overrides is not None and not sight.on(LaunchForm).problem)
        await sight.press("ctrl+l")
        await sight.until(lambda: bool(sight.app.world.jobs))
        await sight.press("1", key_of("open_connect"))
        sight.on(ConnectScreen)


async def test_the_tour_is_there_while_nothing_serves_and_by_its_key_over_any_screen() -> None:
    async with seen(kit_of(QWEN), (80, 24), "1") as sight:
        await sight.until_seen("Serve a model in four keys.", "shows this", "Quit.")
        await sight.press("3", "f1")
        sight.on(HelpScreen)
        await sight.press("f12")
        sight.on(TourScreen)
        await sight.until_seen("Quick tour", "Quit.")
        await sight.press("escape")
        sight.on(PresetsScreen)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (("3",), "Keys on Presets"),
        (("3", "slash", "f"), "Keys on Presets"),
        (("3", "enter"), "Keys in this dialog"),
        (("6",), "Keys on Chat"),
        (("colon", "x"), "Keys in this dialog"),
    ],
    ids=["a screen", "its filter", "a form", "the prompt", "a dialog"],
)
async def test_f1_opens_the_help_everywhere_and_closes_it_again(keys: tuple[str, ...], says: str) -> None:
    async with seen(kit_of(QWEN), (120, 36), *keys) as sight:
        before = sight.app.screen
        await sight.press("f1")
        sight.on(HelpScreen)
        assert says in sight.text
        await sight.press("f1")
        assert sight.app.screen is before


async def test_the_help_opens_again_while_the_one_before_still_closes() -> None:
    async with seen(kit_of(QWEN), (120, 36), "f1") as sight:
        before = sight.app.screen
        sight.app.action_help()
        sight.app.action_help()
        await sight.until_seen("Keys on Presets")
        sight.on(HelpScreen)
        assert sight.app.screen is not before


async def test_the_help_of_a_form_names_its_keys() -> None:
    async with seen(kit_of(QWEN), (120, 36), "enter", "f1") as sight:
        assert "^l" in sight.text
        assert "Esc" in sight.text
        assert "Everywhere" not in sight.text
        assert "Use the suggestion" in sight.text, "a long label is whole"
        assert "Focus Next" not in sight.text


async def test_the_footer_names_no_key_that_is_text_in_the_input_which_has_the_focus() -> None:
    async with seen(kit_of(QWEN), (160, 50)) as sight:
        assert "filter_presets" in footer(sight)
        await sight.press("slash")
        assert "filter_presets" not in footer(sight)
        assert "palette" in " ".join(footer(sight))
        await sight.press("escape")
        await sight.until(lambda: "filter_presets" in footer(sight))


def footer(sight: Sight) -> list[str]:
    return [action.id for action in sight.app.screen.query_one(KeyBar).actions]
