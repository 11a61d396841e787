"""Curves as characters, in three ways: braille dots, columns of eighth blocks, and what a console or ASCII can show.

Pure: buckets and a scale in, rows of characters out. Two curves differ in shape, never in colour alone: with dots the
first is a connected line and the second a dotted one; with columns the second is a row of marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.graph_buckets import Bucket, merged
from spark_tui.domain.graph_scale import Scale
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.graph_pen import Pen, Row

MAX_CURVES = 2
PARTS = 2
"""Buckets per cell."""


class GraphKind(StrEnum):
    """How curves are drawn."""

    BRAILLE = "braille"
    BLOCKS = "blocks"
    CONSOLE = "console"
    ASCII = "ascii"


CURVE_PENS = (Pen.FIRST, Pen.SECOND)


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of one kind. `levels` fill a cell from the foot, the last one wholly; the first one also marks
    a value at the foot of the axis, which is not nothing."""

    levels: str
    spread: str
    dot: str
    threshold: str
    side: str
    tick: str
    corner: str
    line: str
    cursor: str
    foot: str
    gap: str
    swatches: tuple[str, str]


MARKS = {
    GraphKind.BRAILLE: Marks("⣀⣤⣶⣿", "⣿", "•", "╌", "│", "┤", "└", "─", "│", "▲", "×", ("━", "┅")),
    GraphKind.BLOCKS: Marks("▁▂▃▄▅▆▇█", "▒", "•", "╌", "│", "┤", "└", "─", "│", "▲", "×", ("█", "•")),
    GraphKind.CONSOLE: Marks(".▒█", "░", "•", "-", "│", "┤", "└", "─", "│", "▲", "×", ("█", "•")),
    GraphKind.ASCII: Marks(".:#", "=", "o", "-", "|", "+", "+", "-", "|", "^", "x", ("#", "o")),
}


def kind_for(glyphs: Glyphs) -> GraphKind:
    """Braille where everything can be shown, else what the terminal has."""
    return {"unicode": GraphKind.BRAILLE, "console": GraphKind.CONSOLE}.get(glyphs.name, GraphKind.ASCII)


def kinds_for(glyphs: Glyphs) -> tuple[GraphKind, ...]:
    """What a person can choose from on this terminal, the best first."""
    everything = tuple(GraphKind)
    return everything[everything.index(kind_for(glyphs)) :]


class Canvas:
    """Cells that can be written one at a time; row 0 is at the top."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._text = [[" "] * columns for _ in range(rows)]
        self._pens: list[list[str]] = [[Pen.NOTHING] * columns for _ in range(rows)]

    def put(self, x: int, y: int, char: str, pen: str) -> None:
        """Writes one cell; what lies outside is left out."""
        if 0 <= x < self.columns and 0 <= y < self.rows:
            self._text[y][x], self._pens[y][x] = char, pen

    def get(self, x: int, y: int) -> tuple[str, str]:
        """One cell: its character and its pen."""
        return self._text[y][x], self._pens[y][x]

    def lines(self) -> list[Row]:
        """The rows, from the top."""
        return [Row("".join(text), "".join(pens)) for text, pens in zip(self._text, self._pens, strict=True)]


def draw_curves(canvas: Canvas, kind: GraphKind, curves: Sequence[Sequence[Bucket | None]], scale: Scale) -> None:
    """Up to MAX_CURVES curves, each with PARTS buckets for every column of the canvas."""
    for number, curve in enumerate(curves[:MAX_CURVES]):
        if kind is GraphKind.BRAILLE:
            _dots(canvas, merged(curve, PARTS) if number else curve, scale, CURVE_PENS[number], PARTS if number else 1)
        elif number:
            _marks(canvas, merged(curve, PARTS), scale, MARKS[kind].dot)
        else:
            _columns(canvas, merged(curve, PARTS), scale, MARKS[kind])


def row_of(scale: Scale, value: float, kind: GraphKind, rows: int) -> int:
    """The row, from the top, in which a value is drawn."""
    if kind is GraphKind.BRAILLE:
        return rows - 1 - _dot_level(scale, value, rows) // 4
    size = len(MARKS[kind].levels)
    return rows - 1 - (_height(scale, value, rows * size) - 1) // size


# --- dots -------------------------------------------------------------------------------------------------

_BRAILLE = 0x2800
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
"""Bits of a cell's dots, from the foot up (Unicode chapter 21.1)."""


def _dot_level(scale: Scale, value: float, rows: int) -> int:
    return round(scale.share(value) * (rows * 4 - 1))


def _dots(canvas: Canvas, curve: Sequence[Bucket | None], scale: Scale, pen: Pen, stride: int) -> None:
    """From the least to the greatest value of each bucket. A curve without stride is one line: jumps are joined."""
    before: tuple[int, int] | None = None
    for number, bucket in enumerate(curve):
        if bucket is None:
            before = None
            continue
        low, high = _dot_level(scale, bucket.low, canvas.rows), _dot_level(scale, bucket.high, canvas.rows)
        first, last = low, high
        if before is not None and bucket.joined and stride == 1:
            first, last = min(low, before[1] + 1), max(high, before[0] - 1)
        for level in range(first, last + 1):
            _dot(canvas, number * stride, level, pen)
        before = low, high


def _dot(canvas: Canvas, x: int, level: int, pen: Pen) -> None:
    column, row = x // 2, canvas.rows - 1 - level // 4
    char, _ = canvas.get(column, row)
    bits = ord(char) - _BRAILLE if _BRAILLE <= ord(char) < _BRAILLE + 256 else 0
    canvas.put(column, row, chr(_BRAILLE + (bits | (_RIGHT if x % 2 else _LEFT)[level % 4])), pen)


# --- columns ----------------------------------------------------------------------------------------------


def _height(scale: Scale, value: float, units: int) -> int:
    return max(1, round(scale.share(value) * units))


def _columns(canvas: Canvas, curve: Sequence[Bucket | None], scale: Scale, marks: Marks) -> None:
    """A column up to the greatest value; what lies above the least one is drawn lighter."""
    size = len(marks.levels)
    for x, bucket in enumerate(curve):
        if bucket is None:
            continue
        low = _height(scale, bucket.low, canvas.rows * size)
        high = _height(scale, bucket.high, canvas.rows * size)
        for row in range((high - 1) // size + 1):
            filled = min(size, high - row * size)
            above = row * size >= low and filled == size
            canvas.put(x, canvas.rows - 1 - row, marks.spread if above else marks.levels[filled - 1], Pen.FIRST)


def _marks(canvas: Canvas, curve: Sequence[Bucket | None], scale: Scale, mark: str) -> None:
    """A mark at every row between the least and the greatest value."""
    rows = canvas.rows
    for x, bucket in enumerate(curve):
        if bucket is not None:
            low, high = (min(rows - 1, int(scale.share(value) * rows)) for value in (bucket.low, bucket.high))
            for row in range(low, high + 1):
                canvas.put(x, rows - 1 - row, mark, Pen.SECOND)
