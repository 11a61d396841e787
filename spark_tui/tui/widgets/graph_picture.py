"""A whole graph as rows of characters: headline, curves with the value axis, time axis. Pure.

decode  44.0 tok/s                   min 0.0  avg 23.7  max 44.0
    50┤                               ⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⡄
      │                           ⣤⣤⣤⣤⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⡇
     0┤       ⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⡇
      └─────────13:49:00────────────13:49:30──×××××─────13:50:00
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import tzinfo
from enum import StrEnum
from itertools import product
from typing import Final, NamedTuple

from msgspec import Struct

from spark_tui.base.graph import (
    LABEL_CELLS,
    Bucket,
    Curve,
    Scale,
    TimeAxis,
    next_scale,
    nice_scale,
    tick_texts,
    time_axis,
    time_ticks,
    totals,
    value_text,
)
from spark_tui.base.host.series import Gap
from spark_tui.base.text import cells_left
from spark_tui.tui.format import UNICODE, Glyphs


class CellKind(StrEnum):
    """What a cell belongs to, one letter each; the widget knows their colours. Capitals stand under the cursor."""

    NOTHING = " "
    FIRST = "p"
    SECOND = "s"
    THRESHOLD = "t"
    QUIET = "q"
    TITLE = "b"
    WARNING = "w"
    CURSOR = "C"
    FIRST_AT_CURSOR = "P"
    SECOND_AT_CURSOR = "S"


class PenRow(NamedTuple):
    """One line of a picture: its characters, and the pen of each."""

    text: str
    pens: str


MAX_CURVES = 2
PARTS = 2
"""Buckets per cell."""


class GraphKind(StrEnum):
    """How curves are drawn: as areas of dots, or with what every font has."""

    FILLED = "filled"
    ASCII = "ascii"


CURVE_PENS = (CellKind.FIRST, CellKind.SECOND)


class GraphCharacters(Struct, frozen=True):
    """The characters of one kind; `dot` is the second curve where there is no Braille, and a point."""

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
    GraphKind.FILLED: GraphCharacters("•", "╌", "│", "┤", "└", "─", "│", "▲", "×", ("⣿", "⠒")),
    GraphKind.ASCII: GraphCharacters("o", "-", "|", "+", "+", "-", "|", "^", "x", ("#", "o")),
}


def kind_for(glyphs: Glyphs) -> GraphKind:
    """Areas of dots where everything can be shown."""
    return GraphKind.FILLED if glyphs is UNICODE else GraphKind.ASCII


class Canvas:
    """Cells that can be written one at a time; row 0 is at the top."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._text = [[" "] * columns for _ in range(rows)]
        self._pens: list[list[str]] = [[CellKind.NOTHING] * columns for _ in range(rows)]

    def put(self, x: int, y: int, char: str, pen: str) -> None:
        """Writes one cell; what lies outside is left out."""
        if 0 <= x < self.columns and 0 <= y < self.rows:
            self._text[y][x], self._pens[y][x] = char, pen

    def get(self, x: int, y: int) -> tuple[str, str]:
        return self._text[y][x], self._pens[y][x]

    def lines(self) -> list[PenRow]:
        return [PenRow("".join(text), "".join(pens)) for text, pens in zip(self._text, self._pens, strict=True)]


def draw_curves(canvas: Canvas, kind: GraphKind, curves: Sequence[Sequence[Bucket | None]], scale: Scale) -> None:
    """Up to MAX_CURVES curves, each with PARTS buckets for every column of the canvas."""
    for number, curve in enumerate(curves[:MAX_CURVES]):
        if not number:
            _area(canvas, curve, scale)
            continue
        if kind is GraphKind.FILLED:
            shade(canvas, curves[0], curve, scale, CellKind.SECOND)
        _dots(canvas, curve, scale)


def row_of(scale: Scale, value: float, rows: int) -> int:
    """The row, from the top, in which a value is drawn."""
    return rows - 1 - _dot_level(scale, value, rows) // 4


# --- dots -------------------------------------------------------------------------------------------------

_BRAILLE = 0x2800
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
"""Bits of a cell's dots, from the foot up (Unicode chapter 21.1)."""


_AREA: Final = tuple(
    tuple(chr(_BRAILLE + sum(_LEFT[:left]) + sum(_RIGHT[:right])) for right in range(5)) for left in range(5)
)
"""A cell by the dots that are filled from its foot, at its left and at its right."""
_PLAIN: Final = {
    ord(char): "#" if max(left, right) > 2 else ":" if max(left, right) > 1 else "."
    for left, chars in enumerate(_AREA)
    for right, char in enumerate(chars)
    if left or right
}
"""The same cells in characters of every font."""


def _dot_level(scale: Scale, value: float, rows: int) -> int:
    return round(scale.share(value) * (rows * 4 - 1))


def _area(canvas: Canvas, curve: Sequence[Bucket | None], scale: Scale) -> None:
    """Everything from the foot up to the greatest value of each bucket."""
    dots = [0 if bucket is None else _dot_level(scale, bucket.high, canvas.rows) + 1 for bucket in curve]
    for x in range(len(dots) // PARTS):
        left, right = dots[PARTS * x], dots[PARTS * x + 1]
        for row in range(-(-max(left, right) // 4)):
            filled = _AREA[min(4, max(0, left - 4 * row))][min(4, max(0, right - 4 * row))]
            canvas.put(x, canvas.rows - 1 - row, filled, CellKind.FIRST)


def _dots(canvas: Canvas, curve: Sequence[Bucket | None], scale: Scale) -> None:
    """The second curve as one line, from the least to the greatest value of each bucket: jumps are joined. In the
    area of the first one it is a gap, in its own colour, and the area stays as high as it is; at its foot, which is
    nothing, it is not drawn."""
    before: tuple[int, int] | None = None
    for number, bucket in enumerate(curve):
        if bucket is None:
            before = None
            continue
        low, high = (_dot_level(scale, value, canvas.rows) for value in (bucket.low, bucket.high))
        first, last = low, high
        if before is not None and bucket.joined:
            first, last = min(low, before[1] + 1), max(high, before[0] - 1)
        for level in range(first, last + 1):
            x, row = number // 2, canvas.rows - 1 - level // 4
            char, own = canvas.get(x, row)
            if own == CellKind.FIRST and not level:
                continue
            bits = ord(char) - _BRAILLE if _BRAILLE <= ord(char) < _BRAILLE + 256 else 0
            dot = chr(_BRAILLE + (bits ^ (_RIGHT if number % 2 else _LEFT)[level % 4]))
            canvas.put(x, row, dot, CellKind.SECOND)
        before = low, high


def shade(
    canvas: Canvas, below: Sequence[Bucket | None], above: Sequence[Bucket | None], scale: Scale, pen: CellKind
) -> None:
    """Every other dot between two curves where the second one lies above the first, as far as the cells are free."""
    for x, (low, high) in enumerate(zip(below, above, strict=True)):
        if low is None or high is None:
            continue
        first, last = (_dot_level(scale, value, canvas.rows) for value in (low.high, high.low))
        for level in range(first + 1, last):
            row = canvas.rows - 1 - level // 4
            char, own = canvas.get(x // 2, row)
            if (level + x) % 2 and own in (CellKind.NOTHING, CellKind.THRESHOLD, pen):
                bits = ord(char) - _BRAILLE if own == pen else 0
                dot = chr(_BRAILLE + (bits | (_RIGHT if x % 2 else _LEFT)[level % 4]))
                canvas.put(x // 2, row, dot, pen)


MARGIN: Final = LABEL_CELLS + 1
"""Cells left of the curves, the same in every graph: graphs above one another have one time axis."""

MINIMUM_ROWS: Final = 3
MINIMUM_COLUMNS: Final = MARGIN + 8
HEAD_GAP: Final = 2
"""Cells between the values of a headline and what stands at its right, at least."""
TAIL_GAP: Final = 3
AXIS_ROWS: Final = 5
"""From this height on there is a time axis."""

NONE: Final = "-"
RESTART: Final = "R"
"""On the time axis: a new start of the engine was seen here."""


class Subject(Struct, frozen=True):
    """What a graph is about. `thresholds` are lines across it; a value at or beyond `alarm` is a warning (below it,
    where `alarm_below`)."""

    title: str
    unit: str
    domain: tuple[float, float | None] = (0.0, None)
    decimals: int = 1
    alarm: float | None = None
    alarm_below: bool = False

    def alarming(self, value: float) -> bool:
        """Whether a value deserves attention."""
        if self.alarm is None:
            return False
        return value <= self.alarm if self.alarm_below else value >= self.alarm


class GraphView(Struct, frozen=True):
    """How a person looks: up to when, over how many seconds, at which time the cursor stands. `foot`: with a time axis
    of its own where it is high enough, on which gaps and restarts of the curves of `above` are marked too."""

    now: float
    window: float
    cursor: float | None = None
    zone: tzinfo | None = None
    foot: bool = True
    above: tuple[Curve, ...] = ()


class Picture(Struct, frozen=True):
    """Rows of equal width. `cursor_at` is the cell of each row in which the cursor stands; None without one."""

    rows: tuple[PenRow, ...] = ()
    axis: TimeAxis | None = None
    scale: Scale | None = None
    cursor_at: int | None = None


def picture_of(
    subject: Subject,
    curves: Sequence[Curve],
    view: GraphView,
    kind: GraphKind,
    width: int,
    height: int,
    before: Picture,
) -> Picture:
    """The picture at a size; empty where there is no room. `before`, of the same height, keeps a scale from jumping
    that follows its values: one with a fixed top is the same whatever was drawn before."""
    if width < MINIMUM_COLUMNS or height < MINIMUM_ROWS:
        return Picture()
    foot = view.foot and height >= AXIS_ROWS
    rows = height - 2 if foot else height - 1
    axis = time_axis(view.window, width - MARGIN, view.now, parts=PARTS)
    curves = curves[:MAX_CURVES]
    found = [curve.buckets(axis) for curve in curves]
    settled = [parts[: len(parts) - axis.live * PARTS] for parts in found]
    known = [part for parts in found for part in parts if part is not None]
    low, high = min((part.low for part in known), default=0.0), max((part.high for part in known), default=0.0)
    wanted = nice_scale(low, high, domain=subject.domain, unit=subject.unit, ticks=max(1, (rows - 1) // 2))
    scale = next_scale(before.scale if subject.domain[1] is None and len(before.rows) == height else None, wanted)
    canvas = Canvas(axis.columns, rows)
    threshold = subject.alarm if subject.alarm is not None and scale.low <= subject.alarm <= scale.high else None
    if threshold is not None:
        y = row_of(scale, threshold, rows)
        for x in range(axis.columns):
            canvas.put(x, y, MARKS[kind].threshold, CellKind.THRESHOLD)
    draw_curves(canvas, kind, found, scale)
    column = axis.column(view.cursor) if view.cursor is not None else None
    if column is not None:  # the cells under the cursor are all that the headline shows
        settled = [parts[column * PARTS : (column + 1) * PARTS] for parts in found]
        shown = [next((part for part in reversed(parts) if part is not None), None) for parts in settled]
    else:
        latest = [curve.last for curve in curves]
        shown = [
            None if last is None or not math.isfinite(last) else Bucket(last, last, last, last, 1, True)
            for last in latest
        ]
    for unit_in_title, gap in ((False, 2), (True, 2), (True, 1), (True, 0)):  # as few cells as the width asks for
        head = _head(subject, curves, shown, kind, gap, unit_in_title=unit_in_title and len(curves) > 1)
        if len(head.text) <= width:
            break
    summaries = _summaries(subject, settled[0], shown[0]) if len(settled) == 1 else ()
    tail = _tail(subject, summaries, kind, cells_left(width, len(head.text), HEAD_GAP), line=threshold is not None)
    # What changes each second stands at the left, where it is cheap to repaint.
    gap = cells_left(width, len(head.text), len(tail.text))
    text, pens = head.text + " " * gap + tail.text, head.pens + CellKind.NOTHING * gap + tail.pens
    lines = [PenRow(text[:width], pens[:width])]
    lines += rows_with_axis(canvas, scale, subject.unit, kind)
    if foot:
        lines.append(_time_line(axis, (*curves, *view.above), kind, view.zone))
    if column is None:
        return Picture(tuple(lines), axis, scale)
    at = MARGIN + column
    for y in range(1, len(lines)):
        lines[y] = _under_cursor(lines[y], at, kind, foot=foot and y == len(lines) - 1)
    return Picture(tuple(lines), axis, scale, at)


def _under_cursor(row: PenRow, at: int, kind: GraphKind, *, foot: bool) -> PenRow:
    """A row with the cursor in one cell: the curve that it goes through, else a line. At the foot, on the time axis, a
    time that stands there stays readable."""
    char, pen = row.text[at], row.pens[at]
    if foot:
        char, pen = MARKS[kind].foot if char == MARKS[kind].line else char, CellKind.CURSOR.value
    elif pen in CURVE_PENS:
        pen = pen.upper()
    else:
        char, pen = MARKS[kind].cursor, CellKind.CURSOR.value
    return PenRow(row.text[:at] + char + row.text[at + 1 :], row.pens[:at] + pen + row.pens[at + 1 :])


def rows_with_axis(canvas: Canvas, scale: Scale, unit: str, kind: GraphKind) -> list[PenRow]:
    """The canvas beside its value axis; of two labels that would share a row the foot's and the top's come first."""
    ticks = scale.ticks()
    texts = tick_texts(ticks, unit)
    labels: dict[int, str] = {}
    for index in (0, len(ticks) - 1, *range(1, len(ticks) - 1)):
        labels.setdefault(row_of(scale, ticks[index], canvas.rows), texts[index])
    rows = []
    for y, row in enumerate(canvas.lines()):
        side = MARKS[kind].tick if y in labels else MARKS[kind].side
        text = row.text
        if kind is GraphKind.ASCII:
            cells = zip(text.translate(_PLAIN), row.pens, strict=True)
            text = "".join(MARKS[kind].dot if pen == CellKind.SECOND else char for char, pen in cells)
        rows.append(PenRow(f"{labels.get(y, ''):>{LABEL_CELLS}}{side}{text}", CellKind.QUIET * MARGIN + row.pens))
    return rows


# --- headline ---------------------------------------------------------------------------------------------


def _tail(subject: Subject, summaries: Sequence[str], kind: GraphKind, room: int, *, line: bool) -> PenRow:
    """What the line across the picture is, and least, mean and greatest value: as much as there is room for."""
    legends = _legends(subject, kind) if line else (PenRow("", ""),)
    for legend, summary in (*product(legends, summaries[: 2 if line else 3]), *product(legends, ("",))):
        gap = " " * (TAIL_GAP if legend.text and summary else 0)
        if len(legend.text) + len(gap) + len(summary) <= room:
            pens = CellKind.NOTHING * len(gap) + CellKind.QUIET * len(summary)
            return PenRow(f"{legend.text}{gap}{summary}", legend.pens + pens)
    return PenRow("", "")


def _legends(subject: Subject, kind: GraphKind) -> tuple[PenRow, ...]:
    """`╌╌ warns at 90 %`, and the same in one word: `╌╌ 90`."""
    mark = MARKS[kind].threshold * 2
    value = value_text(subject.alarm or 0.0, subject.unit, 0 if (subject.alarm or 0.0) % 1 == 0 else subject.decimals)
    texts = (f" warns {'below' if subject.alarm_below else 'at'} {value}", f" {value.partition(' ')[0]}")
    return tuple(PenRow(mark + text, CellKind.THRESHOLD * len(mark) + CellKind.QUIET * len(text)) for text in texts)


def _head(
    subject: Subject,
    curves: Sequence[Curve],
    shown: Sequence[Bucket | None],
    kind: GraphKind,
    gap: int,
    *,
    unit_in_title: bool,
) -> PenRow:
    """The title, then each curve's mark, name and value; their common unit beside the title where room is scarce, and
    without a `gap` as few words as can be."""
    in_title = unit_in_title and subject.unit not in ("s", "req", "")
    text, pens = subject.title, CellKind.TITLE * len(subject.title)
    if in_title and gap:
        text, pens = f"{text} {subject.unit}", pens + CellKind.QUIET * (len(subject.unit) + 1)
    for number, (curve, bucket) in enumerate(zip(curves, shown, strict=True)):
        mark = f"{MARKS[kind].swatches[number]} {curve.name} " if curve.name else ""
        value = NONE if bucket is None else value_text(bucket.last, subject.unit, subject.decimals)
        if in_title:
            value = value.removesuffix(f" {subject.unit}")
        value = value if gap else value.replace(" ", "")
        alarm = "!" if bucket is not None and number == 0 and subject.alarming(bucket.last) else ""
        pen = CellKind.WARNING if alarm else CellKind.QUIET if bucket is None else CURVE_PENS[number]
        text += " " * max(1, gap) + mark + value + alarm
        pens += (
            CellKind.NOTHING * max(1, gap)
            + CURVE_PENS[number] * min(1, len(mark))
            + CellKind.QUIET * max(0, len(mark) - 1)
        )
        pens += pen * (len(value) + len(alarm))
    return PenRow(text, pens)


def _summaries(subject: Subject, parts: Sequence[Bucket | None], latest: Bucket | None) -> tuple[str, ...]:
    """`min 0  avg 38.2  max 44.0`, and shorter `0 / 38.2 / 44.0` or `max 44.0`: of what is in the picture. The part
    that still fills up counts for the extremes alone: a mean of it would change each second."""
    known, now = totals(parts), totals((latest,))
    if known is None:
        return ()
    if now is not None:
        known = known._replace(low=min(known.low, now.low), high=max(known.high, now.high))
    words = [value_text(value, subject.unit, subject.decimals) for value in known]
    if subject.unit and all(word.endswith(f" {subject.unit}") for word in words):
        words = [word.removesuffix(f" {subject.unit}") for word in words]
    named = "  ".join(f"{name} {word}" for name, word in zip(("min", "avg", "max"), words, strict=True))
    return named, " / ".join(words), f"max {words[2]}"


# --- time axis --------------------------------------------------------------------------------------------


def _time_line(axis: TimeAxis, curves: Sequence[Curve], kind: GraphKind, zone: tzinfo | None) -> PenRow:
    """The foot: round times, a mark where the engine could not be asked and one where it restarted."""
    marks = MARKS[kind]
    text = [marks.line] * axis.columns
    pens: list[str] = [CellKind.QUIET] * axis.columns
    for column in sorted({x for curve in curves for gap in curve.gaps for x in _columns_of(axis, gap)}):
        text[column], pens[column] = marks.gap, CellKind.WARNING
    for found in (axis.column(time) for curve in curves for time in curve.restarts):
        if found is not None:
            text[found], pens[found] = RESTART, CellKind.WARNING
    for column, label in time_ticks(axis, zone):
        place = slice(column - len(label) // 2, column - len(label) // 2 + len(label))
        if place.start >= 0 and set(text[place]) == {marks.line} and place.stop <= axis.columns:
            text[place] = label
    margin = " " * LABEL_CELLS + marks.corner
    return PenRow(margin + "".join(text), CellKind.QUIET * MARGIN + "".join(pens))


def _columns_of(axis: TimeAxis, gap: Gap) -> range:
    """The columns that a gap touches; a short one has at least one."""
    if gap.end < axis.begin or gap.begin >= axis.end:
        return range(0)
    first, last = axis.column(max(gap.begin, axis.begin)), axis.column(gap.end)
    return range(first or 0, (axis.columns - 1 if last is None else last) + 1)
