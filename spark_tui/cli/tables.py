"""Aligned plain text: tables and labelled values, by terminal cells."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.text import cell_width, clean_line, truncate

GAP: Final = "  "
MIN_FLEXIBLE: Final = 12
"""A column that may be cut keeps at least so many cells unless it says otherwise, even if the line is too long."""

Paint = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. `right` aligns figures; `flexible` columns are cut where the window is too narrow.

    Columns that are `spare` are left out there, the highest number first; a `name`, which a person types into the next
    command, is cut only when all of them are gone. What is cut keeps `least` cells: with fewer it would say nothing.
    """

    title: str
    right: bool = False
    flexible: bool = False
    spare: int = 0
    name: bool = False
    least: int = MIN_FLEXIBLE


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with its colour. Text from outside is cleaned here."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; every row has a cell for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | str, ...], ...]

    def render(self, width: int | None, paint: Paint) -> list[str]:
        """The lines, heading first; within `width` cells where that can be."""
        rows = [tuple(_cell(cell) for cell in row) for row in self.rows]
        heading = tuple(Cell(column.title, "bold") for column in self.columns)
        widths = [max(cell_width(row[at].text) for row in (heading, *rows)) for at in range(len(self.columns))]
        shown = self._shown(widths, width)
        widths = self._cut(widths, shown, width)
        return [self._line(row, widths, shown, paint) for row in (heading, *rows)]

    def _shown(self, widths: Sequence[int], width: int | None) -> list[int]:
        """The columns that there is room for."""
        shown = list(range(len(self.columns)))
        spare = sorted((at for at in shown if self.columns[at].spare), key=lambda at: -self.columns[at].spare)
        for at in spare:
            if width is None or _total([self._least(at, widths[at]) for at in shown]) <= width:
                break
            shown.remove(at)
        return shown

    def _least(self, at: int, width: int) -> int:
        column = self.columns[at]
        return min(width, column.least) if column.flexible and not column.name else width

    def _cut(self, widths: list[int], shown: Sequence[int], width: int | None) -> list[int]:
        cut = list(widths)
        for at in reversed([at for at in shown if self.columns[at].flexible and width is not None]):
            over = _total([cut[each] for each in shown]) - (width or 0)
            if over > 0:
                cut[at] = min(cut[at], max(self.columns[at].least, cut[at] - over))
        return cut

    def _line(self, row: tuple[Cell, ...], widths: list[int], shown: Sequence[int], paint: Paint) -> str:
        parts = []
        for at in shown:
            column, cell = self.columns[at], row[at]
            text = truncate(cell.text, widths[at])
            space = " " * (widths[at] - cell_width(text))
            if column.right:
                parts.append(space + paint(text, cell.style))
            else:
                last = at == shown[-1]
                parts.append(paint(text, cell.style) + ("" if last else space))
        return GAP.join(parts).rstrip(" ")


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _cell(cell: Cell | str) -> Cell:
    given = cell if isinstance(cell, Cell) else Cell(cell)
    return Cell(clean_line(given.text), given.style)


def bar(fraction: float, cells: int, *, unicode: bool) -> str:
    """`████░░░░`, or `####....` for an old locale."""
    full, empty = ("█", "░") if unicode else ("#", ".")
    done = int(fraction * cells)
    return full * done + empty * (cells - done)


def labelled(pairs: Iterable[tuple[str, str]], width: int | None = None) -> list[str]:
    """`label  value` lines, the values aligned; pairs without a value are left out, long values are wrapped."""
    given = [(label, clean_line(value)) for label, value in pairs if value]
    indent = max((len(label) for label, _ in given), default=0) + len(GAP)
    lines = []
    for label, value in given:
        room = None if width is None else max(20, width - indent)
        first, *rest = wrapped(value, room)
        lines.append(f"{label:<{indent}}{first}".rstrip())
        lines += [" " * indent + line for line in rest]
    return lines


def bulleted(items: Iterable[str], width: int | None = None) -> list[str]:
    """`  - item` lines, long items wrapped."""
    lines = []
    for item in items:
        first, *rest = wrapped(clean_line(item), None if width is None else max(20, width - 4))
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return lines


def wrapped(text: str, width: int | None) -> list[str]:
    """`text` at word boundaries; addresses and paths are never broken. One line where there is no width."""
    if width is None:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
