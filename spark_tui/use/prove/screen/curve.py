"""Throughput by the number of streams, as a picture: the curve, what it is held against, and its knee.

tok/s by streams   ⠒ 50 % of linear   ⢕ lost   │ knee 8
   200┤                          ⢀⢄⢔⢔⢔⢔⢔⢔⢔⢔⢔⢔⣀⢔⢞⢔⢔⢔⣀⣀⣀⣀⣀⣀•
      │                    ⢀⢀⢄⢔⢔⢔⣀⣀⣀⣠⣤••••••••⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
   100┤             ⣀⣀⣀⣠⣤⣤⣴⣶⣶⣾⣿••••••••⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
      │•⣀⣠⣤⣤⣤⣶⣶⣶⣾•••••••••••••••⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
     0┤•••••••••••⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
      └1───────────2────────────4────────────8───────────16
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from textual.events import Resize

from spark_tui.base.graph import LABEL_CELLS, Bucket, Scale, nice_scale
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.graph import RowCanvas
from spark_tui.tui.widgets.graph_picture import (
    MARKS,
    PARTS,
    Canvas,
    CellKind,
    GraphKind,
    PenRow,
    draw_curves,
    kind_for,
    row_of,
    rows_with_axis,
    shade,
)

MARGIN = LABEL_CELLS + 1
LEAST_ROWS = 5
LEAST_COLUMNS = MARGIN + 16
RIGHT = 2
"""Cells right of the last level, for half of its label."""


class Curves(Struct, frozen=True):
    """tok/s by the number of streams, with a name each; `knee` in streams. Up to `linear`, where it is known,
    the distance from the first curve is shaded."""

    name: str = ""
    rates: tuple[tuple[int, float], ...] = ()
    other_name: str = ""
    other: tuple[tuple[int, float], ...] = ()
    knee: int | None = None
    knee_words: str = ""
    linear: tuple[tuple[int, float], ...] = ()


UNIT: Final = "tok/s"
TITLE: Final = "tok/s by streams"


class BenchCurve(RowCanvas):
    """Draws Curves; takes no room while there are fewer than two levels. Only rows that differ are repainted."""

    DEFAULT_CSS = """
    BenchCurve { width: 1fr; height: 9; }
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._kind = kind_for(glyphs)
        self._curves = Curves()
        self.display = False

    def draw(self, curves: Curves) -> None:
        self._curves = curves
        self.display = len(curves.rates) > 1
        self._renew()

    def on_resize(self, _: Resize) -> None:
        self._renew()

    def _renew(self) -> None:
        self.show_rows(curve_rows(self._curves, self._kind, self.size.width, self.size.height))


def curve_rows(curves: Curves, kind: GraphKind, width: int, height: int) -> tuple[PenRow, ...]:
    """The picture in rows of that width; none where there is no room or nothing to draw."""
    if width < LEAST_COLUMNS or height < LEAST_ROWS or len(curves.rates) < 2:
        return ()
    columns, rows = width - MARGIN - RIGHT, height - 2
    known = dict(curves.rates)
    axis = _Axis(sorted({*known, *dict(curves.other)} if curves.other_name else known), columns)
    shown = [*curves.rates, *(curves.other if curves.other_name else ())]
    scale = nice_scale(0.0, max(rate for _, rate in shown), unit=UNIT, ticks=max(1, (rows - 1) // 2))
    canvas = Canvas(columns, rows)
    buckets = [_buckets(axis, known, scale), _buckets(axis, dict(curves.other), scale)]
    draw_curves(canvas, kind, buckets, scale)
    if kind is GraphKind.FILLED and curves.linear:
        shade(canvas, buckets[0], _buckets(axis, dict(curves.linear), scale, cut=True), scale, CellKind.QUIET)
    if curves.knee is not None:  # a line, behind the curves
        x = axis.column(curves.knee)
        for y in range(rows):
            if canvas.get(x, y)[0] == " ":
                canvas.put(x, y, MARKS[kind].side, CellKind.WARNING)
    for streams, rate in curves.rates:
        canvas.put(axis.column(streams), row_of(scale, rate, rows), MARKS[kind].dot, CellKind.TITLE)
    lines = [_headline(curves, kind, width)]
    for row in rows_with_axis(canvas, scale, UNIT, kind):
        lines.append(PenRow(row.text + " " * RIGHT, row.pens + CellKind.NOTHING * RIGHT))
    return (*lines, _foot(axis, curves, kind))


class _Axis:
    """Streams on a scale of doublings: 1, 2, 4 and 8 are equally far apart."""

    def __init__(self, levels: Sequence[int], columns: int) -> None:
        self.levels = levels
        self.columns = columns
        self._low = math.log2(levels[0])
        self._span = max(1e-9, math.log2(levels[-1]) - self._low)

    def column(self, streams: float) -> int:
        return round((math.log2(streams) - self._low) / self._span * (self.columns - 1))

    def at(self, share: float) -> float:
        """Doublings at a share of the width."""
        return self._low + share * self._span


def _buckets(axis: _Axis, rates: Mapping[int, float], scale: Scale, *, cut: bool = False) -> list[Bucket | None]:
    """Values between the levels, straight from one to the next; nothing beyond them. Above the scale nothing either, or
    `cut`, its end."""
    count = axis.columns * PARTS
    places = sorted((math.log2(streams), rate) for streams, rate in rates.items())
    found: list[Bucket | None] = []
    for number in range(count):
        value = _between(places, axis.at(number / max(1, count - 1)))
        if cut and value is not None:
            value = min(value, scale.high)
        found.append(Bucket(value, value, value, value, 1, True) if value is not None and value <= scale.high else None)
    return found


def _between(places: Sequence[tuple[float, float]], x: float) -> float | None:
    if not places or x < places[0][0] - 1e-9 or x > places[-1][0] + 1e-9:
        return None
    after = min(max(1, bisect_right(places, (x, math.inf))), len(places) - 1)
    (x0, y0), (x1, y1) = places[max(0, after - 1)], places[after]
    return y0 if x1 <= x0 else y0 + (y1 - y0) * min(1.0, max(0.0, (x - x0) / (x1 - x0)))


def _headline(curves: Curves, kind: GraphKind, width: int) -> PenRow:
    """The title and what the marks mean, in shorter words where these do not fit."""
    others = (curves.other_name,) if curves.other_name else ("50 % of linear scaling", "50 % of linear", "50 %")
    for other in others:
        text, pens = _legend(curves, kind, other)
        if len(text) <= width:
            break
    return PenRow(f"{text[:width]:<{width}}", f"{pens[:width]:<{width}}")


def _legend(curves: Curves, kind: GraphKind, other: str) -> tuple[str, str]:
    swatches = MARKS[kind].swatches
    parts = [(TITLE, CellKind.TITLE)]
    if curves.name:
        parts += [(f"   {swatches[0]}", CellKind.FIRST), (f" {curves.name}", CellKind.QUIET)]
    if curves.other:
        parts += [(f"   {swatches[1]}", CellKind.SECOND), (f" {other}", CellKind.QUIET)]
    if curves.linear and kind is GraphKind.FILLED:
        parts += [("   ⢕", CellKind.QUIET), (" lost", CellKind.QUIET)]
    if curves.knee_words:
        parts.append((f"   {MARKS[kind].side} {curves.knee_words}", CellKind.WARNING))
    text = "".join(part for part, _ in parts)
    return text, "".join(pen * len(part) for part, pen in parts)


def _foot(axis: _Axis, curves: Curves, kind: GraphKind) -> PenRow:
    """The levels, each under its point, as far as they have room."""
    marks = MARKS[kind]
    text = [*marks.line * axis.columns, *" " * RIGHT]
    pens: list[str] = [CellKind.QUIET] * len(text)
    first = [axis.levels[0], axis.levels[-1], *([curves.knee] if curves.knee else [])]
    for streams in dict.fromkeys((*first, *axis.levels)):
        label, x = str(streams), axis.column(streams)
        begin = min(max(0, x - (len(label) - 1) // 2), len(text) - len(label))
        around = text[max(0, begin - 1) : begin + len(label) + 1]
        if any(char.isdigit() for char in around):
            continue
        text[begin : begin + len(label)] = label
        if streams == curves.knee:
            pens[begin : begin + len(label)] = CellKind.WARNING * len(label)
    margin = " " * LABEL_CELLS + marks.corner
    return PenRow(margin + "".join(text), CellKind.QUIET * MARGIN + "".join(pens))
