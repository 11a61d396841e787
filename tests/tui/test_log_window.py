"""The window over a log, as arithmetic: whatever happens, the screen is full and positions stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.tui.widgets.log_reader import LogWindow, Row


def window(heights: dict[int, int] | None = None, height: int = 5) -> LogWindow:
    made = LogWindow(lambda number: (heights or {}).get(number, 1))
    made.height = height
    return made


def test_it_stands_at_the_end_until_it_is_scrolled() -> None:
    view = window()
    assert [row.number for row in view.rows(range(100))] == [95, 96, 97, 98, 99]
    assert [row.number for row in view.rows(range(103))] == [98, 99, 100, 101, 102]
    view.following = False
    view.scroll(range(103), -2)
    assert [row.number for row in view.rows(range(110))] == [96, 97, 98, 99, 100]


def test_lines_that_go_do_not_move_what_is_read() -> None:
    view = window()
    view.following = False
    view.go_to(range(100), 50)
    assert view.rows(range(40, 140))[0].number == 50
    assert view.rows(range(60, 160))[0].number == 60, "what has gone cannot be shown"


def test_tall_lines_scroll_row_by_row() -> None:
    view = window({1: 4}, height=3)
    view.following = False
    view.go_to(range(5), 0)
    seen = []
    for _ in range(6):
        seen.append(view.rows(range(5))[0])
        view.scroll(range(5), 1)
    assert seen == [Row(0, 0), Row(1, 0), Row(1, 1), Row(1, 2), Row(1, 3), Row(2, 0)]


def test_the_end_of_a_tall_last_line_is_in_view() -> None:
    assert window({2: 7}, height=3).rows(range(3)) == [Row(2, 4), Row(2, 5), Row(2, 6)]


def test_a_line_nearby_moves_the_window_as_little_as_shows_it() -> None:
    view = window()
    view.following = False
    view.go_to(range(100), 50)
    view.reveal(range(100), 52)
    assert view.top == 50
    view.reveal(range(100), 56)
    assert view.top == 52
    view.reveal(range(100), 49)
    assert view.top == 49


def test_a_line_far_away_comes_to_the_upper_third() -> None:
    view = window(height=9)
    view.following = False
    view.go_to(range(1000), 10)
    view.reveal(range(1000), 600)
    assert view.top == 597
    view.reveal(range(1000), 2)
    assert view.top == 0


LINES = st.lists(st.integers(1, 6), min_size=1, max_size=40)
MOVES = st.lists(
    st.tuples(st.sampled_from(["scroll", "go_to", "reveal", "follow", "width", "trim"]), st.integers(-50, 50)),
    max_size=20,
)


@given(LINES, st.integers(1, 12), MOVES)
def test_the_screen_is_never_emptier_than_it_must_be(
    heights: list[int], height: int, moves: list[tuple[str, int]]
) -> None:
    tall = dict(enumerate(heights))
    view = window(tall, height)
    numbers: range = range(len(heights))
    for move, amount in moves:
        view.following = move == "follow"
        match move:
            case "scroll":
                view.scroll(numbers, amount)
            case "go_to":
                view.go_to(numbers, amount)
            case "reveal":
                view.reveal(numbers, max(0, amount))
            case "width":
                tall.update({number: 1 + (rows + abs(amount)) % 6 for number, rows in tall.items()})
            case "trim":
                numbers = range(min(numbers.stop - 1, numbers.start + abs(amount) % 5), numbers.stop)
        rows = view.rows(numbers)
        everything = [Row(number, part) for number in numbers for part in range(tall[number])]
        assert len(rows) == min(height, len(everything))
        start = everything.index(rows[0])
        assert rows == everything[start : start + len(rows)]
        assert 0 <= view.index(numbers) <= view.last_index(numbers)


@given(LINES, st.integers(1, 12), st.integers(0, 39))
def test_a_revealed_line_is_on_screen(heights: list[int], height: int, number: int) -> None:
    view = window(dict(enumerate(heights)), height)
    view.following = False
    number = min(number, len(heights) - 1)
    view.go_to(range(len(heights)), 0)
    view.reveal(range(len(heights)), number)
    shown = [row for row in view.rows(range(len(heights))) if row.number == number]
    assert len(shown) == min(height, heights[number]) or (heights[number] > height and shown)
