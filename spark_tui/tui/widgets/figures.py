"""A table of figures without a cursor: as many columns as fit, the least important go first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from spark_tui.tui.widgets.line import Line

WIDE_GAP, GAP = 2, 1


@dataclass(frozen=True, slots=True)
class Head:
    """A column. One with a higher `spare` is left out sooner, those with 0 never; the last of a `spare` goes first."""

    title: str
    spare: int = 0
    right: bool = True


class Figures(Line):
    """Rows under headings; it takes no room while it has no rows."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self._heads: tuple[Head, ...] = ()
        self._rows: tuple[tuple[Content, ...], ...] = ()
        self.display = False

    def tell(self, heads: Sequence[Head], rows: Sequence[Sequence[Content]]) -> None:
        """Replaces what it shows."""
        self._heads, self._rows = tuple(heads), tuple(tuple(row) for row in rows)
        self.display = bool(self._rows)
        self.renew()

    def say(self, width: int) -> Content:
        """Headings and rows."""
        return Content("\n").join(table_lines(self._heads, self._rows, width))


def table_lines(heads: Sequence[Head], rows: Sequence[Sequence[Content]], width: int) -> list[Content]:
    """A line of headings and one per row, each at most `width` cells. Columns stand closer before one is left out."""
    sizes = [max([len(head.title), *(row[at].cell_length for row in rows)]) for at, head in enumerate(heads)]
    shown = _fitting(heads, sizes, width)
    gap = WIDE_GAP if _width(sizes, shown, WIDE_GAP) <= width else GAP
    titles = [Content.styled(head.title, "$dim") for head in heads]
    lines = [[_cell(heads[at], sizes[at], row[at]) for at in shown] for row in (titles, *rows)]
    return [Content(" " * gap).join(cells).truncate(width, ellipsis=True) for cells in lines]


def _fitting(heads: Sequence[Head], sizes: Sequence[int], width: int) -> list[int]:
    shown = list(range(len(heads)))
    while _width(sizes, shown, GAP) > width:
        gone = max(shown, key=lambda at: (heads[at].spare, at))
        if not heads[gone].spare:
            break
        shown.remove(gone)
    return shown


def _width(sizes: Sequence[int], shown: Sequence[int], gap: int) -> int:
    return sum(sizes[at] + gap for at in shown) - gap


def _cell(head: Head, size: int, cell: Content) -> Content:
    filler = " " * (size - cell.cell_length)
    return Content.assemble(filler, cell) if head.right else Content.assemble(cell, filler)
