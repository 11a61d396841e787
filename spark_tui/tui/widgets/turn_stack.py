"""Turns below one another, as lines. A long conversation is not laid out whole: what nobody looks at is guessed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from textual.content import Content

from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.turn import Laid, Turn, TurnLines

_BLANK = Content("")


class Anchor(NamedTuple):
    """A line that is seen: its turn, its number in it, how many lines the turn has at what width, what it says.
    `rough`: the turn was only guessed."""

    key: int = -1
    line: int = 0
    lines: int = 1
    width: int = 0
    content: Content = _BLANK
    rough: bool = False


class TurnStack:
    """The lines of turns at one width, a blank one between two turns. `is_open` says whether reasoning is in full."""

    def __init__(self, width: int, glyphs: Glyphs, is_open: Callable[[Turn], bool]) -> None:
        self.height = 0
        """Lines in all."""
        self.laid: list[Laid] = []
        self.starts: list[int] = []
        self._is_open = is_open
        self._glyphs = glyphs
        self._layout = TurnLines(width, glyphs)

    @property
    def width(self) -> int:
        """Cells of a line."""
        return self._layout.width

    @width.setter
    def width(self, width: int) -> None:
        if width != self._layout.width:
            self.clear()
            self._layout = TurnLines(width, self._glyphs)

    def clear(self) -> None:
        """No turns."""
        self.laid, self.starts, self.height = [], [], 0

    # --- lay out --------------------------------------------------------------------------------------

    def show(self, turns: Sequence[Turn], same: int, *, enough: int, keep: int) -> None:
        """Lays out `turns`, of which the first `same` are as they were: from the end on until `enough` lines are known,
        and the one whose key is `keep`. How long the others are is guessed."""
        same = min(same, len(self.laid))
        self._layout.forget({laid.turn.key for laid in self.laid[same:]} - {turn.key for turn in turns[same:]})
        told: list[Laid] = []
        lines = 0
        for turn in reversed(turns[same:]):
            lay = self._layout.lay if lines <= enough or turn.key == keep else self._layout.guess
            told.append(lay(turn, open_=self._is_open(turn)))
            lines += len(told[-1].lines)
        self.laid[same:] = told[::-1]
        self._pile(same)

    def lay_exactly(self, places: Iterable[int]) -> None:
        """Lays out those of the turns at these places that were guessed."""
        rough = [place for place in places if self.laid[place].rough]
        for place in rough:
            turn = self.laid[place].turn
            self.laid[place] = self._layout.lay(turn, open_=self._is_open(turn))
        if rough:
            self._pile(rough[0])

    def _pile(self, first: int) -> None:
        """Puts the turns from that place on below each other."""
        del self.starts[first:]
        height = self.starts[-1] + len(self.laid[first - 1].lines) + 1 if first else 0
        for laid in self.laid[first:]:
            self.starts.append(height)
            height += len(laid.lines) + 1
        self.height = max(0, height - 1)

    # --- look -----------------------------------------------------------------------------------------

    def at(self, y: int) -> tuple[Laid | None, int]:
        """The turn at line `y`, and the line in it; None between turns and below the last one."""
        index = bisect_right(self.starts, y) - 1
        if index < 0 or y - self.starts[index] >= len(self.laid[index].lines):
            return None, 0
        return self.laid[index], y - self.starts[index]

    def line(self, y: int) -> Content | None:
        """What line `y` says."""
        laid, line = self.at(y)
        return None if laid is None else laid.lines[line]

    def rough_in(self, top: int, height: int) -> list[int]:
        """The places of turns that are seen there, and were only guessed."""
        first = max(0, bisect_right(self.starts, top) - 1)
        return [place for place in range(first, bisect_left(self.starts, top + height)) if self.laid[place].rough]

    # --- keep a place ---------------------------------------------------------------------------------

    def anchor(self, y: int) -> Anchor:
        """Line `y`, to find it again."""
        index = bisect_right(self.starts, y) - 1
        if index < 0:
            return Anchor()
        laid, line = self.laid[index], y - self.starts[index]
        return Anchor(laid.turn.key, line, len(laid.lines), self.width, self.line(y) or _BLANK, laid.rough)

    def place(self, anchor: Anchor) -> int:
        """Where the line of the anchor is now; if it is no more, about the same place in its turn."""
        index = bisect_left(self.laid, anchor.key, key=lambda laid: laid.turn.key)
        if index == len(self.laid) or self.laid[index].turn.key != anchor.key:
            return 0
        start, lines = self.starts[index], self.laid[index].lines
        if anchor.line >= anchor.lines:  # the blank line after the turn
            return start + len(lines)
        if not anchor.rough and (anchor.content or anchor.width == self.width):
            if anchor.line < len(lines) and lines[anchor.line] == anchor.content:
                return start + anchor.line
            same = [i for i, line in enumerate(lines) if line == anchor.content]
            if same:
                return start + min(same, key=lambda i: abs(i - anchor.line))
        line = anchor.line
        if anchor.rough or anchor.width != self.width:
            line = line * len(lines) // anchor.lines
        return start + min(line, max(0, len(lines) - 1))
