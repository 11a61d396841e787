"""The window over a log, as arithmetic: whatever happens, the screen is full and positions stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.observe.engines.screen.pager import LogRow, LogWindow


class Window(LogWindow):
    """Over lines that a test chooses."""

    numbers = range(100)

    @property
    def shown(self) -> list[int]:
        return [row.number for row in self.visible()]


def window(heights: dict[int, int] | None = None, height: int = 5, count: int = 100, top: int | None = None) -> Window:
    made = Window(lambda number: (heights or {}).get(number, 1))
    made.height, made.numbers = height, range(count)
    if top is not None:
        made.following = False
        made.put_on_top(top)
    return made


def test_it_stands_at_the_end_until_it_is_scrolled() -> None:
    view = window()
    assert view.shown == [95, 96, 97, 98, 99]
    view.numbers = range(103)
    assert view.shown == [98, 99, 100, 101, 102]
    view.following = False
    view.scroll_by(-2)
    view.numbers = range(110)
    assert view.shown == [96, 97, 98, 99, 100]


def test_lines_that_go_do_not_move_what_is_read() -> None:
    view = window(top=50)
    view.numbers = range(40, 140)
    assert view.shown[0] == 50
    view.numbers = range(60, 160)
    assert view.shown[0] == 60, "what has gone cannot be shown"


def test_tall_lines_scroll_row_by_row_and_the_end_of_a_tall_last_one_is_in_view() -> None:
    view, seen = window({1: 4}, height=3, count=5, top=0), []
    for _ in range(6):
        seen.append(view.visible()[0])
        view.scroll_by(1)
    assert seen == [LogRow(*at) for at in ((0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0))]
    assert window({2: 7}, height=3, count=3).visible() == [LogRow(2, part) for part in (4, 5, 6)]


def test_a_line_is_revealed_by_the_smallest_move_and_one_far_away_comes_to_the_upper_third() -> None:
    near, far = window(top=50), window(height=9, count=1000, top=10)
    for view, number, top in ((near, 52, 50), (near, 56, 52), (near, 49, 49), (far, 600, 597), (far, 2, 0)):
        view.reveal(number)
        assert view.top == top


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
    view = window(tall, height, len(heights))
    for move, amount in moves:
        view.following = move == "follow"
        match move:
            case "scroll":
                view.scroll_by(amount)
            case "go_to":
                view.put_on_top(amount)
            case "reveal":
                view.reveal(max(0, amount))
            case "width":
                tall.update({number: 1 + (rows + abs(amount)) % 6 for number, rows in tall.items()})
            case "trim":
                start, stop = view.numbers.start, view.numbers.stop
                view.numbers = range(min(stop - 1, start + abs(amount) % 5), stop)
        rows = view.visible()
        everything = [LogRow(number, part) for number in view.numbers for part in range(tall[number])]
        assert len(rows) == min(height, len(everything))
        start = everything.index(rows[0])
        assert rows == everything[start : start + len(rows)]
        index, last = view.place()
        assert 0 <= index <= last


@given(LINES, st.integers(1, 12), st.integers(0, 39))
def test_a_revealed_line_is_on_screen(heights: list[int], height: int, number: int) -> None:
    view = window(dict(enumerate(heights)), height, len(heights), top=0)
    number = min(number, len(heights) - 1)
    view.reveal(number)
    shown = view.shown.count(number)
    assert shown == min(height, heights[number]) or (heights[number] > height and shown)
