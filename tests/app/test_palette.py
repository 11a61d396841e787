"""The palette: what it lists, how it finds, and what an entry does."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.home.palette import ThemeChooser, entries
from spark_tui.base.files import ScreenFolder
from spark_tui.base.settings import Settings
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.observe.engines.screen.logs import LogsScreen
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.format import ASCII, UNICODE
from spark_tui.tui.menu import Menu, MenuEntry, rank
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.themes import SPARK_ANSI
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.use.chat.screen.chat import ChatScreen
from tests.kit import Kit
from tests.tui.kit import GEMMA, QWEN, Sight, kit_of, seen


def found(*labels: str) -> list[MenuEntry]:
    return [MenuEntry(label, "Group", label, "", "", lambda: None) for label in labels]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("stop", "qwen  stop"),
        ("stop qw", "qwen  stop"),
        ("qw st", "qwen  stop"),
        ("gpt120", "gpt-oss-120b  launch"),
        ("STOP", "qwen  stop"),
        ("oss", "gpt-oss-120b  launch"),
    ],
)
def test_every_typed_word_counts_in_any_order_and_letter_by_letter(typed: str, first: str) -> None:
    every = found("nonstopping", "qwen  stop", "qwen  chat", "gpt-oss-120b  launch", "glosses over")
    assert rank(every, typed, ())[0].label == first


def test_what_was_used_lately_comes_first_and_nothing_is_found_by_chance() -> None:
    every = found("a chat", "b chat", "c chat")
    assert [each.label for each in rank(every, "", ("c chat", "b chat"))] == ["c chat", "b chat", "a chat"]
    assert rank(every, "chat", ("c chat",))[0].label == "c chat"
    assert rank(every, "zebra", ()) == []


def running(*, files: ScreenFolder | None = None) -> Kit:
    kit = kit_of(QWEN, GEMMA)
    if files is not None:
        vars(kit.context.ports)["screen_files"] = files
    kit.docker.add_container("qwen", labels=(("io.spark-tui.preset", "qwen"), ("io.spark-tui.port", "8000")))
    kit.api.serve()
    return kit


async def palette(sight: Sight, typed: str, *keys: str) -> None:
    await sight.press("colon")
    sight.on(Menu)
    await sight.type(typed)
    await sight.press(*keys)


async def test_engines_presets_and_actions_are_found_by_name_with_their_keys() -> None:
    async with seen(running(), (120, 36), "1") as sight:
        await sight.until(lambda: bool(sight.app.selected))
        assert isinstance(sight.app, SparkApp)
        listed = {entry.id: entry.key for entry in entries(sight.app)}
        assert listed["stop qwen"] == "x"
        assert listed["launch gemma"] == "l"
        assert listed["show_models"] == "2"
        assert "theme" in listed
        assert "setting refresh_seconds" in listed
        await palette(sight, "stop qwen", "enter")
        sight.on(ConfirmScreen)
        await sight.press("escape")
        await palette(sight, "gemma launch", "enter")
        sight.on(LaunchForm)
        await sight.press("escape")
        await palette(sight, "qwen logs", "enter")
        sight.on(LogsScreen)
        await sight.press("ctrl+p", "escape")
        sight.on(LogsScreen)


async def test_the_arrows_choose_while_typing_and_no_match_does_nothing() -> None:
    async with seen(running(), (80, 24), "1") as sight:
        await palette(sight, "")
        rows = sight.app.screen.query_one(RowList)
        first = rows.key
        await sight.press("down")
        assert rows.key != first
        await sight.type("zzzz")
        await sight.until_seen("No matches.")
        await sight.press("enter")
        assert sight.app.current_mode == "home"


async def test_its_columns_follow_the_size_of_the_window() -> None:
    async with seen(kit_of(QWEN), (160, 50), "colon") as sight:
        await sight.pilot.resize_terminal(80, 24)
        await sight.until(lambda: sight.app.screen.size.width == 80)
        resized = sight.text
        await sight.press("escape", "colon")
        assert sight.text == resized


async def test_it_opens_over_the_prompt_of_the_chat() -> None:
    async with seen(running(), (120, 36), "6") as sight:
        sight.on(ChatScreen)
        await sight.press("ctrl+p")
        sight.on(Menu)


async def test_what_was_chosen_is_first_the_next_time_the_program_runs(tmp_path: Path) -> None:
    files = ScreenFolder(tmp_path)
    async with seen(running(files=files), (120, 36), "1") as sight:
        await palette(sight, "doctor", "enter")
        await sight.press("1")
    async with seen(running(files=files), (120, 36), "1") as sight:
        await palette(sight, "")
        assert sight.app.screen.query_one(RowList).key == "show_doctor"
        await sight.until_seen("Recent")


async def test_read_only_lists_nothing_that_changes_what_runs() -> None:
    kit = running()
    kit.context.settings = replace(Settings(), read_only=True)
    app = SparkApp(kit.context, UNICODE)
    async with app.run_test() as pilot:
        sight = Sight(kit, app, pilot)
        await sight.until(lambda: bool(app.world[PRESETS].presets and app.selected))
        ids = {entry.id for entry in entries(app)}
        assert not {"stop qwen", "edit qwen", "restart qwen", "launch gemma", "drop_cache"} & ids
        assert {"logs qwen", "preset gemma", "chat qwen"} <= ids


async def test_the_screen_below_the_themes_is_seen_in_sixteen_colours() -> None:
    kit = kit_of(QWEN)
    app = SparkApp(kit.context, ASCII, SPARK_ANSI)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(ThemeChooser(("spark-dark", "spark-ansi")))
        await pilot.pause()
        rows = app.screen._compositor.render_strips(app.size)
        text = "\n".join("".join(segment.text for segment in row) for row in rows)
    assert "1 Home" in text and "spark-dark" in text


@pytest.mark.parametrize(
    ("typed", "id_"),
    [
        ("update", "update_preset"), ("free memory", "drop_cache"), ("exit", "quit"), ("speed", "start_bench"),
        ("fast", "start_bench"), ("download", "search_hub"), ("upgrade image", "update_preset"),
    ],
)  # fmt: skip
async def test_actions_of_every_screen_are_found_by_the_words_that_people_use(typed: str, id_: str) -> None:
    async with seen(kit_of(QWEN), (120, 36), "1") as sight:
        assert isinstance(sight.app, SparkApp)
        assert id_ in [each.id for each in rank(tuple(entries(sight.app)), typed, ())][:6]


async def test_an_action_of_another_screen_goes_there_and_is_done() -> None:
    async with seen(kit_of(QWEN, GEMMA), (120, 36), "1") as sight:
        await palette(sight, "presets: sort", "enter")
        screen = sight.on(PresetsScreen)
        await sight.until(lambda: screen._search.sort != "preset")
