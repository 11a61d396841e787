"""The log view: follows until the reader moves, finds, filters, copies, and shows hostile text as text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta, timezone

import pytest
from textual.app import App, ComposeResult
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen

from spark_tui.base.ports import LogLine
from spark_tui.observe.engines.screen.view import LOCAL_SECONDS, SSH_SECONDS, LogView
from spark_tui.observe.explain.use import LineFilter, LogBuffer, Query
from spark_tui.tui.format import UNICODE
from spark_tui.tui.themes import SPARK_DARK, SPARK_LIGHT
from tests.tui.quiet import until

STAMP = "2026-05-21T21:02:50.123456789Z"


class LogApp(App[None]):
    """A log view and nothing else."""

    def __init__(self, buffer: LogBuffer) -> None:
        super().__init__()
        self.register_theme(SPARK_DARK)
        self.theme = SPARK_DARK.name
        self.buffer = buffer
        self.heard: list[str] = []

    def on_log_view_follow_changed(self) -> None:
        self.heard.append("follow")

    def on_log_view_search_changed(self) -> None:
        self.heard.append("search")

    def compose(self) -> ComposeResult:
        yield LogView(flush_seconds=0.01, glyphs=UNICODE, zone=timezone(timedelta(hours=2)))

    def on_mount(self) -> None:
        self.query_one(LogView).show(self.buffer)
        self.query_one(LogView).focus()


def filled(*texts: str) -> LogBuffer:
    buffer = LogBuffer()
    buffer.extend([LogLine(STAMP, text) for text in texts])
    return buffer


def numbered(count: int, start: int = 0) -> list[LogLine]:
    return [LogLine(STAMP, f"line {number}") for number in range(start, start + count)]


def many(count: int, **limits: int) -> LogBuffer:
    buffer = LogBuffer(**limits)
    buffer.extend(numbered(count))
    return buffer


@asynccontextmanager
async def opened(buffer: LogBuffer, size: tuple[int, int] = (80, 10)) -> AsyncIterator[tuple[LogApp, LogView, Pilot]]:
    app = LogApp(buffer)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield app, app.query_one(LogView), pilot


def rows(view: LogView) -> list[str]:
    return [view.render_line(y).text[:-1].rstrip() for y in range(view.size.height)]  # without the scroll bar


def step(view: LogView, by: int) -> None:
    with view.paging() as pager:
        pager.jump(by)


async def settle(pilot: Pilot) -> None:
    for _ in range(4):
        await pilot.pause(0.02)


async def test_it_follows_until_the_reader_moves_up_and_says_how_many_lines_are_new() -> None:
    async with opened(filled()) as (app, view, pilot):
        app.buffer.extend(numbered(100))
        await settle(pilot)
        assert view.pager.following
        assert rows(view)[-1].endswith("line 99")
        await pilot.press("up", "up")
        assert not view.pager.following
        before = rows(view)
        app.buffer.extend(numbered(50, 100))
        await settle(pilot)
        assert rows(view) == before, "what is read stays where it is"
        assert view.pager.new_lines == 50
        await pilot.press("end")
        assert view.pager.following
        assert rows(view)[-1].endswith("line 149")


async def test_lines_that_the_buffer_lets_go_do_not_shift_what_is_read() -> None:
    async with opened(many(200, max_lines=200)) as (app, view, pilot):
        await pilot.press("pageup", "pageup")
        before = rows(view)
        app.buffer.extend(numbered(100, 200))
        await settle(pilot)
        assert rows(view) == before


async def test_keys_move_to_both_ends_and_wrong_keys_do_nothing() -> None:
    async with opened(many(500)) as (_, view, pilot):
        await pilot.press("g")
        assert rows(view)[0].endswith("line 0")
        await pilot.press("up", "z", "Q", "left")
        assert rows(view)[0].endswith("line 0")
        await pilot.press("pagedown")
        assert view.pager.selected_text() == "line 9"
        await pilot.press("G")
        assert view.pager.following


async def test_search_goes_to_the_nearest_match_above_and_n_walks_on() -> None:
    async with opened(filled(*(f"needle {n}" if n % 100 == 50 else f"hay {n}" for n in range(1000)))) as (
        _,
        view,
        pilot,
    ):
        view.search(Query("NEEDLE".lower()))
        await settle(pilot)
        assert view.pager.selected_text() == "needle 950"
        assert view.pager.match_text == "match 10 of 10"
        step(view, -1)
        assert view.pager.selected_text() == "needle 850"
        step(view, 1)
        step(view, 1)
        assert view.pager.selected_text() == "needle 950", "the last match is the last"
        view.search(Query("nowhere"))
        await settle(pilot)
        assert view.pager.match_text == "no match"
        assert view.pager.selected_text() == "needle 950"


async def test_a_filter_shows_matching_lines_only_and_new_ones_as_they_come() -> None:
    async with opened(filled("INFO 05-21 21:02:50 [a.py:1] fine", "ERROR 05-21 21:02:50 [a.py:2] broken")) as (
        app,
        view,
        pilot,
    ):
        view.filter(LineFilter(level=40))
        await settle(pilot)
        assert len(view.pager.numbers) == 1
        app.buffer.extend([LogLine(STAMP, "ERROR 05-21 21:02:51 [a.py:3] worse"), LogLine(STAMP, "INFO: fine")])
        await settle(pilot)
        assert len(view.pager.numbers) == 2
        assert rows(view)[1].endswith("ERROR worse")
        view.filter(None)
        assert len(view.pager.numbers) == 4


async def test_marked_lines_are_copied_together() -> None:
    async with opened(many(20)) as (_, view, pilot):
        await pilot.press("shift+up", "shift+up")
        assert view.pager.selected_text() == "line 17\nline 18\nline 19"
        await pilot.press("up")
        assert view.pager.selected_text() == "line 16"


HOSTILE = (
    "[/red] closes nothing", "[@click=app.quit]press[/]", "\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07",
    "\x1b]52;c;aGFjaw==\x07clip", "bad \ufffd bytes \x00\x01\x02", "wide 漢字 and 🚀 glyphs", "a\rb\rc",
    "\u202eright to left", "x" * 60_000, "漢" * 5_000, "",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("wrap", [False, True])
async def test_hostile_text_is_text(text: str, wrap: bool) -> None:
    async with opened(filled("before", text, "after"), (40, 12)) as (app, view, pilot):
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
    async with opened(filled("start " + "x" * 100 + " end"), (40, 8)) as (_, view, _):
        assert "end" not in "".join(rows(view))
        view.toggle_wrap()
        assert "end" in "".join(rows(view))


def count_refreshes(view: LogView) -> list[tuple[object, ...]]:
    """Every repaint from now on, as the regions asked for; an empty tuple is all of it."""
    asked: list[tuple[object, ...]] = []
    refresh = view.refresh

    def counted(*regions: Region, **how: bool) -> LogView:
        asked.append(regions)
        return refresh(*regions, **how)

    view.refresh = counted  # type: ignore[method-assign,assignment]
    return asked


async def test_a_quiet_log_is_not_repainted() -> None:
    async with opened(many(50)) as (_, view, pilot):
        asked = count_refreshes(view)
        await settle(pilot)
        assert asked == []


async def test_new_lines_repaint_only_the_rows_that_they_fill() -> None:
    async with opened(filled("line 0", "line 1")) as (app, view, pilot):
        asked = count_refreshes(view)
        app.buffer.extend(numbered(1, 2))
        await settle(pilot)
        assert asked == [(Region(0, 2, 80, 1),)]
        assert rows(view)[2].endswith("line 2")


async def test_lines_below_what_is_read_repaint_no_text() -> None:
    async with opened(many(1000), (80, 20)) as (app, view, pilot):
        await pilot.press("g")
        asked = count_refreshes(view)
        app.buffer.extend(numbered(10, 1000))
        await settle(pilot)
        assert asked == []


async def test_no_timer_runs_while_nobody_looks() -> None:
    async with opened(filled("line 0")) as (app, view, pilot):
        flusher = view._flusher
        assert flusher is not None
        assert flusher._active.is_set()
        await app.push_screen(Screen())
        await settle(pilot)
        assert not flusher._active.is_set()
        app.buffer.extend(numbered(1, 1))
        app.pop_screen()
        await settle(pilot)
        assert flusher._active.is_set()
        assert rows(view)[1].endswith("line 1"), "it catches up"
        await app.push_screen(ModalScreen())
        await settle(pilot)
        assert flusher._active.is_set(), "behind a dialog it is still in view"


@pytest.mark.parametrize(("ssh", "seconds"), [("", LOCAL_SECONDS), ("10.0.0.1 1 10.0.0.2 22", SSH_SECONDS)])
def test_over_ssh_it_is_quieter(ssh: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    if ssh:
        monkeypatch.setenv("SSH_CONNECTION", ssh)
    assert LogView()._flush == seconds


# --- what is said about the log ---------------------------------------------------------------------------


async def test_why_no_more_lines_come_stands_below_the_last_one() -> None:
    async with opened(many(50)) as (app, view, pilot):
        app.buffer.end_of_log("the container has ended")
        await settle(pilot)
        assert rows(view)[-1] == "End of the log: the container has ended"
        assert rows(view)[-2].endswith("line 49")
        app.buffer.fail("the Docker daemon went away [/x]")
        await settle(pilot)
        assert rows(view)[-1] == "The log cannot be read on: the Docker daemon went away [/x]"
        app.buffer.extend(numbered(1, 50))
        await settle(pilot)
        assert rows(view)[-1].endswith("line 50")


async def test_an_empty_log_says_that_it_is_empty_and_a_filter_that_it_hides_all() -> None:
    async with opened(LogBuffer()) as (app, view, pilot):
        assert rows(view)[0] == "No lines yet."
        app.buffer.extend(numbered(3))
        view.filter(LineFilter(level=40))
        await settle(pilot)
        assert rows(view)[0] == "No line passes the filter."


async def test_the_screen_hears_when_following_or_the_search_changes() -> None:
    async with opened(many(100)) as (app, view, pilot):
        app.heard.clear()
        await pilot.press("up", "up", "end")
        assert app.heard == ["follow", "follow"]
        app.heard.clear()
        view.search(Query("line 7"))
        await settle(pilot)
        assert set(app.heard) == {"follow", "search"}
        assert view.pager.match_text == "match 11 of 11"


# --- how a line looks -------------------------------------------------------------------------------------


async def painted(*texts: str, width: int = 100, stamp: str = STAMP) -> list[str]:
    buffer = LogBuffer()
    buffer.extend([LogLine(stamp, text) for text in texts])
    async with opened(buffer, (width, 10)) as (_, view, _):
        return rows(view)


async def test_time_process_level_and_message() -> None:
    lines = await painted(
        "(EngineCore pid=199) INFO 05-21 21:03:31 [x.py:1] fine",
        "(APIServer pid=1) WARNING 05-21 21:03:31 [x.py:1] careful",
        "(APIServer pid=1) ERROR 05-21 21:03:31 [x.py:1] broken",
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
    )
    assert lines[:4] == [
        "23:02:50 EngineCore fine",
        "23:02:50 APIServer  WARNING careful",
        "23:02:50 APIServer  ERROR broken",
        '23:02:50            127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
    ]


async def test_without_a_stamp_the_logs_own_time_is_shown() -> None:
    assert (await painted("INFO 05-21 21:03:31 [x.py:1] fine", stamp=""))[0] == "21:03:31 fine"
    assert (await painted("no time at all", stamp="nonsense"))[0].strip() == "no time at all"


async def test_ranks_can_be_told_apart() -> None:
    lines = await painted(
        *(f"(Worker_DP0_TP{rank}_EP{rank} pid=7) INFO 05-21 21:03:31 [x.py:1] loading" for rank in (0, 1)),
        "(EngineCore_DP1 pid=7) INFO 05-21 21:03:31 [x.py:1] loading",
    )
    names = [line.split()[1] for line in lines[:3]]
    assert len(set(names)) == 3
    assert names[2] == "EngineCore_DP1"


@pytest.mark.parametrize(("width", "start"), [(40, "fine"), (50, "EngineCore fine"), (60, "23:02:50 EngineCore fine")])
async def test_where_it_is_narrow_the_message_has_the_room(width: int, start: str) -> None:
    assert (await painted("(EngineCore pid=199) INFO 05-21 21:03:31 [x.py:1] fine", width=width + 1))[0] == start


async def test_a_line_that_goes_on_beyond_the_edge_has_a_mark_there() -> None:
    async with opened(filled("start " + "x" * 100 + " end"), (61, 5)) as (_, view, pilot):
        assert rows(view)[0].endswith("x\u2026")
        await pilot.press("right", "right", "right", "right")
        assert rows(view)[0].startswith("\u2026x")
        assert rows(view)[0].endswith("x end")
        await pilot.press("left", "left", "left", "left", "left")
        assert rows(view)[0].startswith("23:02:50 start")


async def test_of_a_huge_line_the_rest_is_counted_and_copied() -> None:
    async with opened(filled("x" * 5_000), (80, 40)) as (_, view, pilot):
        view.toggle_wrap()
        await settle(pilot)
        assert "+3,000 characters" in " ".join(rows(view))
        assert view.pager.selected_text() == "x" * 5_000


async def test_wrapped_rows_keep_every_wide_glyph_and_break_at_words() -> None:
    async with opened(filled("漢" * 60, "some words that do not fit on one row of so narrow a screen"), (31, 12)) as (
        _,
        view,
        pilot,
    ):
        view.toggle_wrap()
        await settle(pilot)
        text = "".join(rows(view))
        assert text.count("漢") == 60
        assert any(row.endswith("not fit on") for row in rows(view))


async def test_every_row_of_a_line_taller_than_the_screen_can_be_reached() -> None:
    async with opened(filled("before", " ".join(f"word{n:03}" for n in range(100)), "after"), (60, 6)) as (
        _,
        view,
        pilot,
    ):
        view.toggle_wrap()
        await settle(pilot)
        seen = " ".join(rows(view))
        for _ in range(40):
            await pilot.press("up")
            seen += " ".join(rows(view))
        assert all(f"word{n:03}" in seen for n in range(100))
        assert rows(view)[0].endswith("before")
        for _ in range(40):
            await pilot.press("down")
        assert rows(view)[-1].endswith("after")


async def test_secrets_are_neither_shown_nor_copied() -> None:
    async with opened(filled("non-default args: {'api_key': ['sesame']}"), (80, 5)) as (_, view, _):
        assert "sesame" not in "".join(rows(view)) + view.pager.selected_text()


async def test_another_theme_and_another_size_repaint_everything() -> None:
    async with opened(many(100)) as (app, view, pilot):
        before = view.render_line(0)
        app.register_theme(SPARK_LIGHT)
        app.theme = SPARK_LIGHT.name
        await settle(pilot)
        assert list(view.render_line(0)) != list(before)
        await pilot.resize_terminal(20, 5)
        await settle(pilot)
        assert [row.strip() for row in rows(view)] == [f"line {n}" for n in range(95, 100)]


# --- search under a filter, and the mouse -----------------------------------------------------------------


async def test_the_search_finds_only_what_the_filter_shows() -> None:
    async with opened(filled("INFO: disk full", "ERROR: disk full", "INFO: disk full")) as (_, view, pilot):
        view.filter(LineFilter(level=40))
        view.search(Query("disk"))
        await settle(pilot)
        assert view.pager.match_text == "match 1 of 1"
        assert view.pager.selected_text() == "ERROR: disk full"


async def test_a_match_beyond_the_edge_comes_into_view() -> None:
    async with opened(filled("x" * 200 + " needle " + "y" * 200, "a needle at once"), (80, 5)) as (_, view, pilot):
        view.search(Query("needle"))
        await settle(pilot)
        assert rows(view)[1].endswith("a needle at once")
        step(view, -1)
        assert "needle" in rows(view)[0]
        step(view, 1)
        assert rows(view)[1].endswith("a needle at once")


async def test_a_long_log_is_searched_without_holding_up_the_screen() -> None:
    async with opened(filled(*(f"line {n}" for n in range(19_999)), "needle")) as (_, view, pilot):
        view.search(Query("needle"))
        assert view.pager.match_text == "searching ..."
        await until(pilot.app, lambda: view.pager.match_text != "searching ...")
        assert view.pager.match_text == "match 1 of 1"


async def test_the_wheel_scrolls_and_follows_again_at_the_end() -> None:
    async with opened(many(100)) as (_, view, pilot):
        await pilot._post_mouse_events([MouseScrollUp], view, offset=(5, 5))
        assert not view.pager.following
        assert rows(view)[-1].endswith("line 96")
        for _ in range(2):
            await pilot._post_mouse_events([MouseScrollDown], view, offset=(5, 5))
        assert view.pager.following
        assert rows(view)[-1].endswith("line 99")


async def test_dragging_marks_lines_and_a_click_takes_one() -> None:
    async with opened(many(100)) as (_, view, pilot):
        await pilot.mouse_down(view, offset=(12, 2))
        await pilot.hover(view, offset=(12, 4))
        await pilot.mouse_up(view, offset=(12, 4))
        assert view.pager.selected_text() == "line 92\nline 93\nline 94"
        await pilot.click(view, offset=(12, 1))
        assert view.pager.selected_text() == "line 91"
        assert not view.pager.following


async def test_the_scroll_bar_goes_to_any_place_and_its_foot_follows() -> None:
    async with opened(many(1000), (80, 11)) as (_, view, pilot):
        await pilot.click(view, offset=(79, 0))
        assert rows(view)[0].endswith("line 0")
        await pilot.click(view, offset=(79, 5))
        assert rows(view)[0].endswith("line 494")
        await pilot.click(view, offset=(79, 10))
        assert view.pager.following


async def test_a_key_while_the_view_has_no_room_reads_the_log_that_it_has_now() -> None:
    async with opened(many(40)) as (app, view, pilot):
        view.styles.height = 0
        await settle(pilot)
        view.show(many(2))
        app.set_focus(view)
        view.action_sideways(1)
        view.styles.height = "1fr"
        await settle(pilot)
        assert [row.split()[-1] for row in rows(view)[:2]] == ["0", "1"]
