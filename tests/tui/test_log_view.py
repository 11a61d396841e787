"""The log view: follows until the reader moves, finds, filters, copies, and shows hostile text as text."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from spark_tui.core.log_buffer import LogBuffer
from spark_tui.core.log_search import LineFilter, Query
from spark_tui.services.ports import LogLine
from spark_tui.tui.themes import SPARK_DARK
from spark_tui.tui.widgets.log_view import LogView

STAMP = "2026-05-21T21:02:50.123456789Z"


class LogApp(App[None]):
    """A log view and nothing else."""

    def __init__(self, buffer: LogBuffer) -> None:
        super().__init__()
        self.register_theme(SPARK_DARK)
        self.theme = SPARK_DARK.name
        self.buffer = buffer

    def compose(self) -> ComposeResult:
        yield LogView(flush_seconds=0.01)

    def on_mount(self) -> None:
        self.query_one(LogView).show(self.buffer)
        self.query_one(LogView).focus()


def filled(*texts: str) -> LogBuffer:
    buffer = LogBuffer()
    buffer.extend([LogLine(STAMP, text) for text in texts])
    return buffer


def numbered(count: int, start: int = 0) -> list[LogLine]:
    return [LogLine(STAMP, f"line {number}") for number in range(start, start + count)]


def rows(view: LogView) -> list[str]:
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def settle(pilot) -> None:
    for _ in range(4):
        await pilot.pause(0.02)


async def test_it_follows_until_the_reader_moves_up_and_says_how_many_lines_are_new() -> None:
    app = LogApp(filled())
    async with app.run_test(size=(80, 10)) as pilot:
        view = app.query_one(LogView)
        app.buffer.extend(numbered(100))
        await settle(pilot)
        assert view.following
        assert rows(view)[-1].endswith("line 99")
        await pilot.press("up", "up")
        assert not view.following
        before = rows(view)
        app.buffer.extend(numbered(50, 100))
        await settle(pilot)
        assert rows(view) == before, "what is read stays where it is"
        assert view.new_lines == 50
        await pilot.press("end")
        assert view.following
        assert rows(view)[-1].endswith("line 149")


async def test_lines_that_the_buffer_lets_go_do_not_shift_what_is_read() -> None:
    app = LogApp(LogBuffer(max_lines=200))
    app.buffer.extend(numbered(200))
    async with app.run_test(size=(80, 10)) as pilot:
        view = app.query_one(LogView)
        await settle(pilot)
        await pilot.press("pageup", "pageup")
        before = rows(view)
        app.buffer.extend(numbered(100, 200))
        await settle(pilot)
        assert rows(view) == before


async def test_keys_move_to_both_ends_and_wrong_keys_do_nothing() -> None:
    app = LogApp(filled())
    app.buffer.extend(numbered(500))
    async with app.run_test(size=(80, 10)) as pilot:
        view = app.query_one(LogView)
        await settle(pilot)
        await pilot.press("g")
        assert rows(view)[0].endswith("line 0")
        await pilot.press("up", "z", "Q", "left")
        assert rows(view)[0].endswith("line 0")
        await pilot.press("pagedown")
        assert view.selected_text() == "line 9"
        await pilot.press("G")
        assert view.following


async def test_search_goes_to_the_nearest_match_above_and_n_walks_on() -> None:
    app = LogApp(filled(*(f"needle {n}" if n % 100 == 50 else f"hay {n}" for n in range(1000))))
    async with app.run_test(size=(80, 10)) as pilot:
        view = app.query_one(LogView)
        await settle(pilot)
        view.search(Query("NEEDLE".lower()))
        await settle(pilot)
        assert view.selected_text() == "needle 950"
        assert view.match_text == "match 10 of 10"
        view.previous_match()
        assert view.selected_text() == "needle 850"
        view.next_match()
        view.next_match()
        assert view.selected_text() == "needle 950", "the last match is the last"
        view.search(Query("nowhere"))
        await settle(pilot)
        assert view.match_text == "no match"
        assert view.selected_text() == "needle 950"


async def test_a_filter_shows_matching_lines_only_and_new_ones_as_they_come() -> None:
    app = LogApp(filled("INFO 05-21 21:02:50 [a.py:1] fine", "ERROR 05-21 21:02:50 [a.py:2] broken"))
    async with app.run_test(size=(80, 10)) as pilot:
        view = app.query_one(LogView)
        view.filter(LineFilter(level=40))
        await settle(pilot)
        assert view.shown_count == 1
        app.buffer.extend([LogLine(STAMP, "ERROR 05-21 21:02:51 [a.py:3] worse"), LogLine(STAMP, "INFO: fine")])
        await settle(pilot)
        assert view.shown_count == 2
        assert rows(view)[1].endswith("ERROR worse")
        view.filter(None)
        assert view.shown_count == 4


async def test_marked_lines_are_copied_together() -> None:
    app = LogApp(filled(*(f"line {n}" for n in range(20))))
    async with app.run_test(size=(80, 10)) as pilot:
        view = app.query_one(LogView)
        await settle(pilot)
        await pilot.press("shift+up", "shift+up")
        assert view.selected_text() == "line 17\nline 18\nline 19"
        await pilot.press("up")
        assert view.selected_text() == "line 16"


@pytest.mark.parametrize(
    "text",
    [
        "[/red] closes nothing",
        "[@click=app.quit]press[/]",
        "\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07",
        "\x1b]52;c;aGFjaw==\x07clip",
        "bad \ufffd bytes \x00\x01\x02",
        "wide 漢字 and 🚀 glyphs",
        "a\rb\rc",
        "\u202eright to left",
        "x" * 60_000,
        "漢" * 5_000,
        "",
    ],
)
@pytest.mark.parametrize("wrap", [False, True])
async def test_hostile_text_is_text(text: str, wrap: bool) -> None:
    app = LogApp(filled("before", text, "after"))
    async with app.run_test(size=(40, 12)) as pilot:
        view = app.query_one(LogView)
        if wrap:
            view.toggle_wrap()
        await settle(pilot)
        shown = [view.render_line(y) for y in range(12)]
        assert all(strip.cell_length == 40 for strip in shown)
        assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for strip in shown for c in strip.text)
        assert app.is_running
        assert shown[0].text.strip() or wrap


async def test_markup_is_shown_as_it_stands() -> None:
    app = LogApp(filled("open [/models/x]: no such file"))
    async with app.run_test(size=(80, 5)) as pilot:
        await settle(pilot)
        assert rows(app.query_one(LogView))[0].endswith("open [/models/x]: no such file")


async def test_wrapping_shows_all_of_a_long_line() -> None:
    app = LogApp(filled("start " + "x" * 100 + " end"))
    async with app.run_test(size=(40, 8)) as pilot:
        view = app.query_one(LogView)
        await settle(pilot)
        assert "end" not in "".join(rows(view))
        view.toggle_wrap()
        assert "end" in "".join(rows(view))


async def test_a_quiet_log_is_not_repainted() -> None:
    app = LogApp(filled(*(f"line {n}" for n in range(50))))
    async with app.run_test(size=(80, 10)) as pilot:
        view = app.query_one(LogView)
        await settle(pilot)
        painted = view._rows
        await settle(pilot)
        assert view._rows is painted
