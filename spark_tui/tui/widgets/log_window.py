"""Which rows of a log are on screen: a window over numbered lines, each one row tall or more.

The position is a line's absolute number and how many of its rows are hidden above, so that neither lines which the
buffer lets go nor another width shift what is read. Only the lines around the window are ever measured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
