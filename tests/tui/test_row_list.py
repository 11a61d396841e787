"""The list: columns, groups, and a cursor that stays on its key and in view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.pilot import Pilot

from spark_tui.base.page import Cell, Column, Table, cells
from spark_tui.tui.format import ASCII, Glyphs
from spark_tui.tui.themes import SPARK_DARK
from spark_tui.tui.widgets.row_list import HEADINGS_FROM, RowList

COLUMNS = (Column("name", least=8), Column("size", right=True), Column("extra", keep=1))


def rows(*names: str, group: str = "") -> list[tuple[str, str]]:
    return [(name, group) for name in names]


def table(content: Sequence[tuple[str, str]]) -> Table:
    found = tuple(cells(name, "12", "more") for name, _ in content)
    names, groups = tuple(name for name, _ in content), tuple(group for _, group in content)
    return Table(COLUMNS, found, names, "Nothing here.", groups)


class Lists(App[None]):
    """One list, and what it said."""

    CSS = "RowList > .row-list--cursor { background: $cursor-row; } RowList { height: 1fr; }"

    def __init__(self, *, titles: bool = False) -> None:
        super().__init__()
        self.register_theme(SPARK_DARK)
        self.theme = SPARK_DARK.name
        self.glyphs: Glyphs = ASCII
        self.titles = titles
        self.moves: list[str] = []

    def compose(self) -> ComposeResult:
        yield RowList(titles=self.titles)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self.moves.append(message.key)

    @property
    def list(self) -> RowList:
        return self.query_one(RowList)

    @property
    def lines(self) -> list[str]:
        return [self.list.render_line(y).text for y in range(self.list.size.height)]


@asynccontextmanager
async def shown(
    content: Sequence[tuple[str, str]], size: tuple[int, int] = (40, 8), *, titles: bool = False
) -> AsyncIterator[tuple[Lists, Pilot[None]]]:
    app = Lists(titles=titles)
    async with app.run_test(size=size) as pilot:
        app.list.show_table(table(content))
        app.list.focus()
        await pilot.pause()
        yield app, pilot


class Around(Lists):
    """What is around the list takes the keys that it leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [(key, f"took('{key}')") for key in ("up", "down", "pagedown")]

    def __init__(self, *, titles: bool = False) -> None:
        super().__init__(titles=titles)
        self.taken: list[str] = []

    def action_took(self, key: str) -> None:
        self.taken.append(key)


async def test_at_its_ends_the_list_leaves_the_key_to_what_is_around_it() -> None:
    app = Around()
    async with app.run_test(size=(40, 8)) as pilot:
        app.list.show_table(table(rows("a", "b")))
        app.list.focus()
        await pilot.press("up", "down", "pagedown", "down", "up")
        assert app.taken == ["up", "pagedown", "down"]
        assert app.list.key == "a"


async def test_a_wide_list_keeps_the_figures_beside_their_names() -> None:
    app = Lists()
    async with app.run_test(size=(200, 4)) as pilot:
        app.list.show_table(table(rows("alpha")))
        await pilot.pause()
        assert app.lines[0].index("12") < 30
        assert len({each.style.bgcolor for each in app.list.render_line(0) if each.style is not None}) == 1
        assert len(app.lines[0]) == 200, "the cursor's row goes to the edge"


async def test_an_empty_list_says_what_to_do() -> None:
    async with shown([]) as (app, _):
        assert app.lines[0].startswith("Nothing here.")
        assert app.list.key == ""


async def test_numbers_are_on_the_right_and_narrow_lists_drop_what_matters_least() -> None:
    async with shown(rows("alpha"), (40, 4), titles=True) as (app, pilot):
        assert app.lines[0].split() == ["name", "size", "extra"]
        assert app.lines[1].index("12") + 2 == app.lines[0].index("size") + 4
        await pilot.resize_terminal(18, 4)
        await pilot.pause()
        assert "extra" not in app.lines[0]
        assert "alpha" in app.lines[1]


async def test_a_cell_that_has_no_room_shows_its_short_text_whole() -> None:
    async with shown([], (40, 4)) as (app, pilot):
        columns = (Column("name"), Column("fits", least=11))
        app.list.show_table(Table(columns, ((Cell("alpha"), Cell("stop qwen3.6-35b", short="stop engine")),), ("a",)))
        await pilot.pause()
        assert "stop qwen3.6-35b" in app.lines[0]
        await pilot.resize_terminal(22, 4)
        await pilot.pause()
        assert app.lines[0].split() == [">", "alpha", "stop", "engine"]


async def test_the_cursor_is_marked_by_a_sign() -> None:
    async with shown(rows("a", "b")) as (app, pilot):
        assert [line[0] for line in app.lines[:2]] == [">", " "]
        await pilot.press("down")
        assert [line[0] for line in app.lines[:2]] == [" ", ">"]


async def test_the_cursor_stays_on_its_key_when_rows_come_and_go() -> None:
    async with shown(rows("b", "c")) as (app, pilot):
        await pilot.press("down")
        app.list.show_table(table(rows("a", "b", "c", "d")))
        await pilot.pause()
        assert app.list.key == "c"
        app.list.show_table(table(rows("a")))
        await pilot.pause()
        assert app.list.key == "a"
        assert app.moves[-1] == "a"


async def test_rows_that_come_above_do_not_push_the_cursor_out_of_view() -> None:
    async with shown(rows("z")) as (app, pilot):
        app.list.show_table(table(rows(*(f"{number:02}" for number in range(50)), "z")))
        await pilot.pause()
        assert any(line.startswith("> z") for line in app.lines)


async def test_a_smaller_terminal_keeps_the_cursor_in_view() -> None:
    async with shown(rows(*"abcdefgh"), (40, 8)) as (app, pilot):
        await pilot.press("end")
        await pilot.resize_terminal(40, 3)
        await pilot.pause()
        assert any(line.startswith("> h") for line in app.lines)


async def test_groups_have_headings_that_the_cursor_skips() -> None:
    content = [*rows("a", "b", group="First"), *rows("c", group="Second")]
    async with shown(content, (40, HEADINGS_FROM)) as (app, pilot):
        assert [line.split()[0] for line in app.lines[:5]] == ["First", ">", "b", "Second", "c"]
        await pilot.press("down", "down")
        assert app.list.key == "c"
        assert app.lines[4].startswith("> c")


async def test_low_lists_do_without_headings_unless_all_of_it_fits() -> None:
    async with shown([*rows("a", group="First"), *rows("b", group="Second")], (40, 3)) as (app, pilot):
        assert [line.split()[-3] for line in app.lines[:2]] == ["a", "b"]
        await pilot.resize_terminal(40, 4)
        await pilot.pause()
        assert app.lines[0].startswith("First")


async def test_the_first_row_of_a_group_comes_with_its_heading() -> None:
    content = [*rows("a", group="First"), *rows(*(f"{n}" for n in range(30)), group="Second")]
    async with shown(content, (40, HEADINGS_FROM)) as (app, pilot):
        await pilot.press("end")
        assert not app.lines[0].startswith("First")
        await pilot.press("home")
        await pilot.pause()
        assert app.lines[0].startswith("First")


async def test_a_click_selects_the_row_and_never_a_heading_or_the_titles() -> None:
    content = [*rows("a", group="First"), *rows("b", group="Second")]
    async with shown(content, (40, HEADINGS_FROM + 1), titles=True) as (app, pilot):
        await pilot.click(RowList, offset=(3, 4))
        assert app.list.key == "b"
        for y in (0, 1, 3, 9):
            await pilot.click(RowList, offset=(3, y))
            assert app.list.key == "b"


@pytest.mark.parametrize("keys", [("k",), ("up",), ("pageup",), ("home",)])
async def test_above_the_first_row_there_is_nothing(keys: tuple[str, ...]) -> None:
    async with shown(rows("a", "b")) as (app, pilot):
        await pilot.press(*keys)
        assert app.list.key == "a"


async def test_a_row_is_never_wider_than_the_list() -> None:
    async with shown([*rows("x" * 300, "東" * 300, "a\tb\nc")]) as (app, _):
        assert all(app.list.render_line(y).cell_length == 40 for y in range(3))
