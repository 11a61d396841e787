"""Reading a log: what is shown of it, where the reader stands, what is marked and found. No painting here."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from spark_tui.core.logs import LineFilter, LogBuffer, MatchIndex, Query
from spark_tui.domain.logs.groups import REACH, traceback_at
from spark_tui.domain.text import clean_line

Numbers = Sequence[int]
"""Numbers of the shown lines in rising order: a range, or a list where a filter is on."""


class Row(NamedTuple):
    """One row on screen: the line's number, and which of its rows."""

    number: int
    part: int


class LogWindow:
    """Follows the end until it is scrolled; `rows_of` says how many rows a line takes at the current width."""

    def __init__(self, rows_of: Callable[[int], int]) -> None:
        self._rows_of = rows_of
        self.height = 0
        self.following = True
        self.top = 0
        self._hidden = 0

    def rows(self, numbers: Numbers) -> list[Row]:
        """What is on screen now, top to bottom. Blank rows only where there are fewer lines than room."""
        if not numbers or self.height <= 0:
            return []
        index, hidden = self._settle(numbers)
        out: list[Row] = []
        while len(out) < self.height and index < len(numbers):
            number = numbers[index]
            out += [Row(number, part) for part in range(hidden, self._rows_of(number))]
            index, hidden = index + 1, 0
        return out[: self.height]

    def index(self, numbers: Numbers) -> int:
        """Where the window stands: index of its first line."""
        return self._settle(numbers)[0] if numbers and self.height > 0 else 0

    def last_index(self, numbers: Numbers) -> int:
        """Index of the first line when the end is in view."""
        return self._bottom(numbers)[0] if numbers and self.height > 0 else 0

    def scroll(self, numbers: Numbers, rows: int) -> None:
        """Moves the window by rows; the ends stop it."""
        if not numbers or self.height <= 0:
            return
        index, hidden = self._settle(numbers)
        while rows > 0 and index < len(numbers):
            here = self._rows_of(numbers[index]) - hidden
            if rows < here:
                hidden, rows = hidden + rows, 0
            else:
                index, hidden, rows = index + 1, 0, rows - here
        while rows < 0 and (index > 0 or hidden > 0):
            if hidden:
                step = min(hidden, -rows)
                hidden, rows = hidden - step, rows + step
            else:
                index -= 1
                hidden = self._rows_of(numbers[index])
        self._stand(numbers, min(index, len(numbers) - 1), hidden)

    def go_to(self, numbers: Numbers, index: int) -> None:
        """Puts the line of that index on top, as far as the end allows."""
        if numbers:
            self._stand(numbers, max(0, min(index, len(numbers) - 1)), 0)

    def reveal(self, numbers: Numbers, number: int) -> None:
        """Moves as little as shows a line, or a part of one that is taller than the window; one far away comes to the
        upper third."""
        if not numbers or self.height <= 0:
            return
        target = min(bisect_left(numbers, number), len(numbers) - 1)
        index, hidden = self._settle(numbers)
        if index - target > self.height or target - index > 2 * self.height:
            self._stand(numbers, target, 0)
            if (target, 0) <= self._bottom(numbers):
                room = max(0, self.height - self._rows_of(numbers[target]))
                self.scroll(numbers, -min(self.height // 3, room))
        elif target < index or (target == index and hidden):
            taller = self._rows_of(numbers[target]) - self.height
            if taller <= 0:
                self._stand(numbers, target, 0)
            elif target < index:  # one taller than the window is come upon from below: its end first
                self._stand(numbers, target, taller)
        else:
            below = sum(self._rows_of(numbers[i]) for i in range(index, target + 1)) - hidden - self.height
            if below > 0:
                self.scroll(numbers, min(below, below + self.height - self._rows_of(numbers[target])))

    def _settle(self, numbers: Numbers) -> tuple[int, int]:
        """Index and hidden rows of the top line, after the lines or the width may have changed."""
        bottom = self._bottom(numbers)
        if self.following:
            at = bottom
        else:
            index = min(bisect_left(numbers, self.top), len(numbers) - 1)
            same = numbers[index] == self.top
            at = min((index, min(self._hidden, self._rows_of(self.top) - 1) if same else 0), bottom)
        self._stand(numbers, *at)
        return at

    def _stand(self, numbers: Numbers, index: int, hidden: int) -> None:
        self.top, self._hidden = numbers[index], hidden

    def _bottom(self, numbers: Numbers) -> tuple[int, int]:
        index, rows = len(numbers), 0
        while index > 0 and rows < self.height:
            index -= 1
            rows += self._rows_of(numbers[index])
        return index, max(0, rows - self.height)


class LogReader:
    """Follows the end until the reader moves; from then on there is a cursor, and nothing moves under it.

    `rows_of` says how many rows a line takes. Lines go by their absolute numbers.
    """

    def __init__(self, buffer: LogBuffer, rows_of: Callable[[int], int]) -> None:
        self.buffer = buffer
        self.window = LogWindow(rows_of)
        self.rows: list[Row] = []
        self._rows_of = rows_of
        self._filtered: MatchIndex | None = None
        self._found: MatchIndex | None = None
        self._wanted_jump = 0
        self._cursor = 0
        self._mark: int | None = None
        self._end_when_left = 0
        self.places: tuple[int, ...] = ()
        """Numbers of the lines that somebody may want to jump to, ascending."""
        self.jumped_to: int | None = None
        """The line of a match that was jumped to, until somebody has brought the match into view."""

    # --- what is shown --------------------------------------------------------------------------------

    def show(self, buffer: LogBuffer) -> None:
        """Another log, from its end; filter and search stay."""
        wanted, query = self.wanted, self.query
        self.buffer = buffer
        self.filter(wanted)
        self._found = MatchIndex(buffer, LineFilter(query=query)) if query is not None else None
        self.follow()

    def filter(self, wanted: LineFilter | None) -> None:
        """Shows only the lines that pass; None shows all."""
        self._filtered = None if wanted is None or wanted.off else MatchIndex(self.buffer, wanted)
        self._mark = None

    @property
    def wanted(self) -> LineFilter | None:
        """The filter, if one is on."""
        return self._filtered.wanted if self._filtered is not None else None

    @property
    def query(self) -> Query | None:
        """What is searched for, if anything."""
        return self._found.wanted.query if self._found is not None else None

    @property
    def numbers(self) -> Numbers:
        """Numbers of the shown lines."""
        if self._filtered is not None:
            return self._filtered.numbers
        return range(self.buffer.first, self.buffer.end)

    @property
    def filtered_out(self) -> bool:
        """There are lines, and the filter lets none of them through."""
        return self._filtered is not None and self._filtered.complete and len(self.buffer) > 0 and not self.numbers

    def step(self) -> bool:
        """A bounded step of filter and search; whether both have looked at every line."""
        complete = True
        for index in (self._filtered, self._found):
            if index is not None and not index.complete:
                complete = index.step() and complete
        if complete and self._wanted_jump:
            step, self._wanted_jump = self._wanted_jump, 0
            self.jump(step)
        return complete

    def lay_out(self, height: int) -> None:
        """Works out the rows on screen."""
        self.window.height = height
        self.rows = self.window.rows(self.numbers)

    # --- following ------------------------------------------------------------------------------------

    @property
    def following(self) -> bool:
        """Whether the end is followed."""
        return self.window.following

    @property
    def new_lines(self) -> int:
        """Shown lines that came since the end was left."""
        return 0 if self.following else len(self.numbers) - bisect_left(self.numbers, self._end_when_left)

    def follow(self) -> None:
        """To the end, and stay there."""
        self._mark = None
        self.window.following = True

    def leave_end(self) -> None:
        """The reader moves: the cursor stands on the last line, and the window stays where it is."""
        if self.following:
            numbers = self.numbers
            self._cursor = numbers[-1] if numbers else 0
            self._end_when_left = self.buffer.end
            self.window.following = False

    # --- moving ---------------------------------------------------------------------------------------

    def _index_of(self, number: int) -> int:
        numbers = self.numbers
        return max(0, min(bisect_left(numbers, number), len(numbers) - 1))

    def go_to(self, index: int, *, keep_mark: bool = False) -> None:
        """Puts the cursor on the n-th shown line and brings it into view."""
        numbers = self.numbers
        self.leave_end()
        if not numbers:
            return
        if not keep_mark:
            self._mark = None
        self._cursor = numbers[max(0, min(index, len(numbers) - 1))]
        self.window.reveal(numbers, self._cursor)

    def go_to_line(self, number: int) -> None:
        """Puts the cursor on a line that is shown."""
        self.go_to(self._index_of(number))

    def mark_to_line(self, number: int, beyond: int = 0) -> None:
        """Marks from where the marking began to a shown line, or some lines beyond it."""
        self.leave_end()
        if self._mark is None:
            self._mark = self._cursor
        self.go_to(self._index_of(number) + beyond, keep_mark=True)

    def mark_by(self, step: int) -> None:
        """Extends what is marked by a line."""
        self.leave_end()
        self.mark_to_line(self._cursor, step)

    def move(self, step: int) -> None:
        """One line up or down; through a line that is taller than the screen, row by row."""
        at_end = self.following or self._index_of(self._cursor) >= len(self.numbers) - 1
        if step > 0 and self.following:
            return
        self.leave_end()
        edge = self.rows[0 if step < 0 else -1] if self.rows else None
        if edge is not None and edge.number == self._cursor:
            hidden = edge.part if step < 0 else self._rows_of(edge.number) - 1 - edge.part
            if hidden > 0:
                self.window.scroll(self.numbers, step)
                return
        if not (step > 0 and at_end):
            self.go_to(self._index_of(self._cursor) + step)

    def page(self, step: int) -> None:
        """One page up or down; the cursor goes along."""
        numbers = self.numbers
        if not numbers or (step > 0 and self.following):
            return
        self.leave_end()
        stood, cursor = self.window.rows(numbers), self._index_of(self._cursor)
        if not self.scroll(step * max(1, self.window.height - 1)):
            self.go_to(0 if step < 0 else len(numbers) - 1)
            return
        first, last = (self._index_of(self.rows[edge].number) for edge in (0, -1))
        moved = cursor + first - self._index_of(stood[0].number)
        self.go_to(max(first, min(moved, last)))

    def scroll(self, rows: int) -> bool:
        """Moves the window and leaves the cursor; whether there was anywhere to go."""
        self.leave_end()
        before = self.window.rows(self.numbers)
        self.window.scroll(self.numbers, rows)
        self.rows = self.window.rows(self.numbers)
        return self.rows != before

    def drag_to(self, share: float) -> None:
        """The scroll bar: 0 is the oldest line, 1 the end, which is followed."""
        last = self.window.last_index(self.numbers)
        index = round(max(0.0, min(share, 1.0)) * last)
        if index >= last:
            self.follow()
        else:
            self.leave_end()
            self.window.go_to(self.numbers, index)

    # --- search ---------------------------------------------------------------------------------------

    def search(self, query: Query | None) -> None:
        """Looks for every match, and goes to the nearest one above, else below; None ends the search."""
        self._found = MatchIndex(self.buffer, LineFilter(query=query)) if query is not None else None
        self._wanted_jump = -1 if query is not None else 0

    def jump(self, step: int) -> None:
        """To the next match, or the previous one; the last match is the last."""
        if self._found is None:
            return
        if not self._found.complete:
            self._wanted_jump = step
            return
        matches = self._matches()
        if matches:
            here = self.buffer.end if self.following else self._cursor
            index = bisect_right(matches, here) if step > 0 else bisect_left(matches, here) - 1
            self.jumped_to = matches[max(0, min(index, len(matches) - 1))]
            self.go_to_line(self.jumped_to)

    def _matches(self) -> list[int]:
        """Matches among the shown lines."""
        found = self._found.numbers if self._found is not None else []
        if self._filtered is None:
            return found
        shown = set(self._filtered.numbers)
        return [number for number in found if number in shown]

    @property
    def match_text(self) -> str:
        """`match 3 of 12`, `no match`, or empty without a search."""
        if self._found is None:
            return ""
        if not self._found.complete:
            return "searching ..."
        matches = self._matches()
        if not matches:
            return "no match"
        if self.following:
            return f"{len(matches):,} match{'es' if len(matches) > 1 else ''}"
        return f"match {min(bisect_left(matches, self._cursor) + 1, len(matches)):,} of {len(matches):,}"

    # --- places ---------------------------------------------------------------------------------------

    @property
    def cursor(self) -> int | None:
        """The line under the cursor; None while the end is followed."""
        return None if self.following else self._cursor

    def visit(self, step: int) -> bool:
        """To the next place among the shown lines, or the previous one; whether there is any. The last is the last."""
        shown = self.numbers
        places = [line for line in self.places if (at := bisect_left(shown, line)) < len(shown) and shown[at] == line]
        if not places:
            return False
        here = self.buffer.end if self.following else self._cursor
        index = bisect_right(places, here) if step > 0 else bisect_left(places, here) - 1
        self.go_to_line(places[max(0, min(index, len(places) - 1))])
        return True

    # --- marked ---------------------------------------------------------------------------------------

    def is_marked(self, number: int) -> bool:
        """Whether the line stands out: under the cursor, or marked."""
        if self.following:
            return False
        mark = self._cursor if self._mark is None else self._mark
        return min(self._cursor, mark) <= number <= max(self._cursor, mark)

    def selected_text(self) -> str:
        """The marked lines, else the one under the cursor, else the last one; cleaned, secrets masked."""
        numbers = self.numbers
        if not numbers:
            return ""
        here = len(numbers) - 1 if self.following else self._index_of(self._cursor)
        there = here if self._mark is None else self._index_of(self._mark)
        return self._text_of(numbers[index] for index in range(min(here, there), max(here, there) + 1))

    def traceback_text(self) -> str:
        """The traceback under the cursor, without the lines that other processes wrote into it; empty where none is."""
        numbers = self.numbers
        if not numbers:
            return ""
        here = numbers[-1] if self.following else self._cursor
        first, end = max(self.buffer.first, here - REACH), min(self.buffer.end, here + REACH)
        found = traceback_at(here, [line.text for line in self.buffer.slice(first, end)], first)
        return self._text_of(found)

    def _text_of(self, numbers: Iterable[int]) -> str:
        return "\n".join(clean_line(self.buffer.line(number).text) for number in numbers)
