"""Paging through a log: the rows on screen, the cursor, what is marked, filtered and found. Nothing is painted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spark_tui.base.text import clean_line
from spark_tui.observe.explain.model.line import REACH, traceback_at
from spark_tui.observe.explain.use import LineFilter, LogBuffer, MatchIndex, Query


class LogRow(NamedTuple):
    """One row on screen: the line's number, and which of the line's rows."""

    number: int
    part: int


class LogWindow:
    """The part of a log that is on screen. Follows the end until it is scrolled.

    `rows_of` says how many rows a line takes at the current width. Lines go by their absolute numbers.
    """

    def __init__(self, rows_of: Callable[[int], int]) -> None:
        self.rows_of = rows_of
        self.height = 0
        self.following = True
        self.top = 0
        self._hidden = 0

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of the lines that may be shown, ascending: a range, or a list where a filter is on."""
        raise NotImplementedError

    def visible(self) -> list[LogRow]:
        """What is on screen now, top to bottom; shorter than the window only where there are too few lines."""
        numbers, out = self.numbers, list[LogRow]()
        if numbers and self.height > 0:
            index, hidden = self._settle()
            while len(out) < self.height and index < len(numbers):
                out += [LogRow(numbers[index], part) for part in range(hidden, self.rows_of(numbers[index]))]
                index, hidden = index + 1, 0
        return out[: self.height]

    def place(self) -> tuple[int, int]:
        """For a scroll bar: index of the window's first line, and that index when the end is in view."""
        return (self._settle()[0], self._bottom()[0]) if self.numbers and self.height > 0 else (0, 0)

    def scroll_by(self, rows: int) -> None:
        numbers = self.numbers
        if not numbers or self.height <= 0:
            return
        index, hidden = self._settle()
        while rows > 0 and index < len(numbers):
            left = self.rows_of(numbers[index]) - hidden
            if rows < left:
                hidden, rows = hidden + rows, 0
            else:
                index, hidden, rows = index + 1, 0, rows - left
        while rows < 0 and (index > 0 or hidden > 0):
            if hidden:
                step = min(hidden, -rows)
                hidden, rows = hidden - step, rows + step
            else:
                index -= 1
                hidden = self.rows_of(numbers[index])
        self.top, self._hidden = numbers[min(index, len(numbers) - 1)], hidden

    def put_on_top(self, index: int) -> None:
        """Puts the line of that index on top, as far as the end allows."""
        if numbers := self.numbers:
            self.top, self._hidden = numbers[max(0, min(index, len(numbers) - 1))], 0

    def reveal(self, number: int) -> None:
        """Moves as little as shows a line, or a part of one that is taller than the window; one far away comes to the
        upper third."""
        numbers = self.numbers
        if not numbers or self.height <= 0:
            return
        target = min(bisect_left(numbers, number), len(numbers) - 1)
        index, hidden = self._settle()
        tall = self.rows_of(numbers[target])
        if index - target > self.height or target - index > 2 * self.height:
            self.put_on_top(target)
            if (target, 0) <= self._bottom():
                self.scroll_by(-min(self.height // 3, max(0, self.height - tall)))
        elif target < index or (target == index and hidden):
            if tall <= self.height:
                self.put_on_top(target)
            elif target < index:  # one taller than the window is entered from below: its end first
                self.top, self._hidden = numbers[target], tall - self.height
        else:
            below = sum(self.rows_of(numbers[at]) for at in range(index, target + 1)) - hidden - self.height
            if below > 0:
                self.scroll_by(min(below, below + self.height - tall))

    def _settle(self) -> tuple[int, int]:
        """Index and hidden rows of the top line, after the lines or the width may have changed."""
        numbers, at = self.numbers, self._bottom()
        if not self.following:
            index = min(bisect_left(numbers, self.top), len(numbers) - 1)
            same = numbers[index] == self.top
            at = min((index, min(self._hidden, self.rows_of(self.top) - 1) if same else 0), at)
        self.top, self._hidden = numbers[at[0]], at[1]
        return at

    def _bottom(self) -> tuple[int, int]:
        numbers = self.numbers
        index, rows = len(numbers), 0
        while index > 0 and rows < self.height:
            index -= 1
            rows += self.rows_of(numbers[index])
        return index, max(0, rows - self.height)


class LogPager(LogWindow):
    """Follows the end until the reader moves; from then on there is a cursor, and nothing moves under it."""

    def __init__(self, buffer: LogBuffer, rows_of: Callable[[int], int]) -> None:
        super().__init__(rows_of)
        self.buffer = buffer
        self.rows: list[LogRow] = []
        self._filtered: MatchIndex | None = None
        self._found: MatchIndex | None = None
        self._wanted_jump = 0
        self._cursor = 0
        self._mark: int | None = None
        self._end_when_left = 0
        self.places: tuple[int, ...] = ()
        """Numbers of the lines that `visit` goes to, ascending."""
        self.jumped_to: int | None = None
        """The line of a match that was jumped to, until the view has scrolled sideways to the match."""

    # --- what is shown --------------------------------------------------------------------------------

    def show(self, buffer: LogBuffer) -> None:
        """Another log, from its end; filter and search stay."""
        wanted, query = self._filtered.wanted if self._filtered is not None else None, self.query
        self.buffer, self.rows = buffer, []
        self.filter(wanted)
        self._found = MatchIndex(buffer, LineFilter(query=query)) if query is not None else None
        self.follow()

    def filter(self, wanted: LineFilter | None) -> None:
        """Shows only the lines that pass; None shows all."""
        self._filtered = None if wanted is None or wanted.off else MatchIndex(self.buffer, wanted)
        self._mark = None

    @property
    def query(self) -> Query | None:
        return self._found.wanted.query if self._found is not None else None

    @property
    def numbers(self) -> Sequence[int]:
        return range(self.buffer.first, self.buffer.end) if self._filtered is None else self._filtered.numbers

    @property
    def folded(self) -> Mapping[int, int]:
        """How many lines are folded into a shown one."""
        return self._filtered.folded if self._filtered is not None else {}

    def shown_for(self, number: int) -> int | None:
        """The line that stands for this one: itself, or the one that it is folded into; None where the filter hides
        it."""
        numbers = self.numbers
        index = bisect_left(numbers, number)
        if index >= len(numbers):
            return None
        folds = self._filtered is not None and self._filtered.wanted.fold and not self._filtered.wanted.level
        return numbers[index] if folds or numbers[index] == number else None

    @property
    def filtered_out(self) -> bool:
        """There are lines, and the filter hides all of them."""
        return self._filtered is not None and self._filtered.complete and len(self.buffer) > 0 and not self.numbers

    def step(self) -> bool:
        """A bounded step of filter and search; whether both have looked at every line."""
        complete = True
        if self._filtered is not None:
            self._filtered.hold = -1 if self.following or not self.rows else self.rows[-1].number
        for index in (self._filtered, self._found):
            if index is not None and not index.complete:
                complete = index.step() and complete
        if complete and self._wanted_jump:
            step, self._wanted_jump = self._wanted_jump, 0
            self.jump(step)
        return complete

    def lay_out(self, height: int) -> None:
        self.height = height
        self.rows = self.visible()

    # --- moving ---------------------------------------------------------------------------------------

    @property
    def new_lines(self) -> int:
        """Shown lines that came since the end was left."""
        return 0 if self.following else len(self.numbers) - bisect_left(self.numbers, self._end_when_left)

    @property
    def cursor(self) -> int | None:
        """The line under the cursor; None while the end is followed, and where no line is shown."""
        return None if self.following or not self.numbers else self._cursor

    def follow(self) -> None:
        self._mark = None
        self.following = True

    def leave_end(self) -> None:
        """Puts the cursor on the last line; the window stays where it is."""
        if self.following:
            numbers = self.numbers
            self._cursor = numbers[-1] if numbers else 0
            self._end_when_left = self.buffer.end
            self.following = False

    def _index_of(self, number: int) -> int:
        return max(0, min(bisect_left(self.numbers, number), len(self.numbers) - 1))

    def go_to(self, index: int, *, keep_mark: bool = False) -> None:
        """Puts the cursor on the n-th shown line and brings it into view."""
        numbers = self.numbers
        self.leave_end()
        if numbers:
            self._mark = self._mark if keep_mark else None
            self._cursor = numbers[max(0, min(index, len(numbers) - 1))]
            self.reveal(self._cursor)

    def go_to_line(self, number: int) -> None:
        self.go_to(self._index_of(number))

    def mark(self, step: int, number: int | None = None) -> None:
        """Marks from where the marking began to `step` lines beyond a line, by default the one under the cursor."""
        self.leave_end()
        self._mark = self._cursor if self._mark is None else self._mark
        self.go_to(self._index_of(self._cursor if number is None else number) + step, keep_mark=True)

    def move(self, step: int) -> None:
        """One line up or down; through a line that is taller than the screen, row by row."""
        at_end = self.following or self._index_of(self._cursor) >= len(self.numbers) - 1
        if step > 0 and self.following:
            return
        self.leave_end()
        edge = self.rows[0 if step < 0 else -1] if self.rows else None
        hidden = 0
        if edge is not None and edge.number == self._cursor:
            hidden = edge.part if step < 0 else self.rows_of(edge.number) - 1 - edge.part
        if hidden > 0:
            self.scroll_by(step)
        elif not (step > 0 and at_end):
            self.go_to(self._index_of(self._cursor) + step)

    def page(self, step: int) -> None:
        """One page up or down; the cursor keeps its row."""
        numbers = self.numbers
        if not numbers or (step > 0 and self.following):
            return
        self.leave_end()
        stood, cursor = self.visible(), self._index_of(self._cursor)
        if not self.scroll(step * max(1, self.height - 1)):
            self.go_to(0 if step < 0 else len(numbers) - 1)
            return
        first, last = (self._index_of(self.rows[edge].number) for edge in (0, -1))
        self.go_to(max(first, min(cursor + first - self._index_of(stood[0].number), last)))

    def scroll(self, rows: int) -> bool:
        """Moves the window and leaves the cursor; whether the window moved."""
        self.leave_end()
        before = self.visible()
        self.scroll_by(rows)
        self.rows = self.visible()
        return self.rows != before

    def drag_to(self, share: float) -> None:
        """The scroll bar: 0 is the oldest line, 1 the end, which is followed."""
        _, last = self.place()
        index = round(max(0.0, min(share, 1.0)) * last)
        if index >= last:
            self.follow()
        else:
            self.leave_end()
            self.put_on_top(index)

    # --- search and places ----------------------------------------------------------------------------

    def search(self, query: Query | None) -> None:
        """Finds every match, and goes to the nearest one above, else below; None ends the search."""
        self._found = MatchIndex(self.buffer, LineFilter(query=query)) if query is not None else None
        self._wanted_jump = -1 if query is not None else 0

    def jump(self, step: int) -> None:
        """To the next match, or the previous one; the last match is the last."""
        if self._found is not None and not self._found.complete:
            self._wanted_jump = step
        elif matches := self._matches():
            self.jumped_to = self._go_among(matches, step)

    def visit(self, step: int) -> bool:
        """To the next of the `places` that are shown, or the previous one; whether there is any. The last is the
        last."""
        places = sorted({shown for place in self.places if (shown := self.shown_for(place)) is not None})
        if places:
            self._go_among(places, step)
        return bool(places)

    def _go_among(self, numbers: Sequence[int], step: int) -> int:
        origin = self.buffer.end if self.following else self._cursor
        index = bisect_right(numbers, origin) if step > 0 else bisect_left(numbers, origin) - 1
        number = numbers[max(0, min(index, len(numbers) - 1))]
        self.go_to_line(number)
        return number

    def _matches(self) -> Sequence[int]:
        found = self._found.numbers if self._found is not None else []
        if self._filtered is None:
            return found
        shown = frozenset(self._filtered.numbers)
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

    # --- marked ---------------------------------------------------------------------------------------

    def is_marked(self, number: int) -> bool:
        """Whether the line is under the cursor or marked."""
        mark = self._cursor if self._mark is None else self._mark
        return not self.following and min(self._cursor, mark) <= number <= max(self._cursor, mark)

    def selected_text(self) -> str:
        """The marked lines, else the one under the cursor, else the last one; cleaned, secrets masked."""
        numbers = self.numbers
        if not numbers:
            return ""
        cursor = len(numbers) - 1 if self.following else self._index_of(self._cursor)
        first, last = sorted((cursor, cursor if self._mark is None else self._index_of(self._mark)))
        return self._text_of(numbers[first : last + 1])

    def traceback_text(self) -> str:
        """The traceback under the cursor, without lines that other processes wrote into it; empty where none is."""
        numbers = self.numbers
        if not numbers:
            return ""
        cursor = numbers[-1] if self.following else self._cursor
        first, end = max(self.buffer.first, cursor - REACH), min(self.buffer.end, cursor + REACH)
        own = [at for at in range(first, end) if self.buffer.owner(at) == self.buffer.owner(cursor)]
        found = traceback_at(own.index(cursor), [self.buffer.line(at).text for at in own])
        return self._text_of(own[at] for at in found)

    def _text_of(self, numbers: Iterable[int]) -> str:
        return "\n".join(clean_line(self.buffer.line(number).text) for number in numbers)
