"""Rows of characters with pens, painted so that only what differs is repainted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from spark_tui.tui.widgets.graph_pen import Pen, Row

_NAMES = {
    Pen.FIRST: "first",
    Pen.SECOND: "second",
    Pen.THRESHOLD: "threshold",
    Pen.QUIET: "quiet",
    Pen.TITLE: "title",
    Pen.WARNING: "warning",
    Pen.CURSOR: "cursor",
    Pen.FIRST_AT_CURSOR: "first-at-cursor",
    Pen.SECOND_AT_CURSOR: "second-at-cursor",
}


class PennedRows(Widget):
    """A widget that is made of rows; subclasses keep them and say which regions differ."""

    ALLOW_SELECT = False
    can_focus = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"graph--{name}" for name in _NAMES.values()}
    DEFAULT_CSS = """
    PennedRows > .graph--first { color: $mem-engine; }
    PennedRows > .graph--second { color: $mem-apps; }
    PennedRows > .graph--threshold { color: $warning; }
    PennedRows > .graph--quiet { color: $dim; }
    PennedRows > .graph--title { text-style: bold; }
    PennedRows > .graph--warning { color: $warning; text-style: bold; }
    PennedRows > .graph--cursor { color: $foreground; background: $cursor-row; }
    PennedRows > .graph--first-at-cursor { color: $foreground; background: $cursor-row; text-style: bold; }
    PennedRows > .graph--second-at-cursor { color: $foreground; background: $cursor-row; text-style: bold; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self._pens: dict[str, Style] = {}

    @property
    def rows(self) -> Sequence[Row]:
        """What stands there."""
        raise NotImplementedError

    def notify_style_update(self) -> None:
        """Colours are kept; now there are others."""
        super().notify_style_update()
        self._pens.clear()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One row."""
        rows = self.rows
        if y >= len(rows):
            return Strip.blank(self.size.width, self.rich_style)
        return self.strip(rows[y]).extend_cell_length(self.size.width, self.rich_style)

    def strip(self, row: Row) -> Strip:
        """A row as few segments."""
        segments, start = [], 0
        for pen, cells in groupby(carried_pens(row)):
            end = start + sum(1 for _ in cells)
            segments.append(Segment(row.text[start:end], self._style(pen)))
            start = end
        return Strip(segments, len(row.text))

    def _style(self, pen: str) -> Style:
        if pen not in self._pens:
            name = _NAMES.get(Pen(pen))
            own = self.get_component_rich_style(f"graph--{name}", partial=True) if name else Style()
            self._pens[pen] = self.rich_style + own
        return self._pens[pen]


def carried_pens(row: Row) -> str:
    """Pens in which a blank takes the one before it: blanks have no colour to show, and longer runs cost less."""
    if " " not in row.text:
        return row.pens
    found, pen = [], Pen.NOTHING.value
    for char, own in zip(row.text, row.pens, strict=True):
        if char != " " or own.isupper():
            pen = own
        elif pen.isupper():
            pen = Pen.NOTHING.value
        found.append(pen)
    return "".join(found)


def part_of(row: Row, cells: range) -> Row:
    """The cells of a row."""
    return Row(row.text[cells.start : cells.stop], row.pens[cells.start : cells.stop])


def changed_regions(was: Sequence[Row], now: Sequence[Row]) -> list[Region]:
    """Of each row that differs, from its beginning to the last cell that does. Both have as many rows, as wide."""
    ends = ((y, last_difference(old, new)) for y, (old, new) in enumerate(zip(was, now, strict=True)) if old != new)
    return [Region(0, y, end, 1) for y, end in ends if end]


def last_difference(was: Row, now: Row) -> int:
    """One more than the last cell that differs; 0 when none does."""
    if len(was.text) != len(now.text):
        return max(len(was.text), len(now.text))
    for x in range(len(now.text) - 1, -1, -1):
        if was.text[x] != now.text[x] or was.pens[x] != now.pens[x]:
            return x + 1
    return 0
