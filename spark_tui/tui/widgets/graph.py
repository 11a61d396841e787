"""A graph of curves over time that repaints only what looks different.

Textual repaints a line of a widget from where the widget begins to the last cell that changed. The cells at the right
edge, which fill up each second, and the cursor are therefore widgets of their own that lie over the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.events import Resize
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from spark_tui.domain.metrics.graph import Curve, TimeAxis, buckets, nice_scale, time_axis, value_text
from spark_tui.domain.metrics.series import MetricId, SeriesView
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.graph_picture import (
    CellKind,
    GraphKind,
    PenRow,
    Picture,
    Subject,
    View,
    kind_for,
    picture_of,
)

_NAMES = {
    CellKind.FIRST: "first",
    CellKind.SECOND: "second",
    CellKind.THRESHOLD: "threshold",
    CellKind.QUIET: "quiet",
    CellKind.TITLE: "title",
    CellKind.WARNING: "warning",
    CellKind.CURSOR: "cursor",
    CellKind.FIRST_AT_CURSOR: "first-at-cursor",
    CellKind.SECOND_AT_CURSOR: "second-at-cursor",
}


class RowCanvas(Widget):
    """A widget that is made of rows."""

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
        self.rows: Sequence[PenRow] = ()
        self._pens: dict[str, Style] = {}

    def show_rows(self, rows: Sequence[PenRow]) -> None:
        """Puts these in place of the rows; only those that differ are repainted."""
        old, self.rows = self.rows, rows
        if len(old) != len(rows):
            self.refresh(layout=self.styles.auto_dimensions)
        elif regions := changed_regions(old, rows):
            self.refresh(*regions)

    def notify_style_update(self) -> None:
        """Colours are kept; now there are others."""
        super().notify_style_update()
        self._pens.clear()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self.rows):
            return Strip.blank(self.size.width, self.rich_style)
        return self.strip(self.rows[y]).extend_cell_length(self.size.width, self.rich_style)

    def strip(self, row: PenRow) -> Strip:
        """A row as few segments."""
        segments, start = [], 0
        for pen, cells in groupby(carried_pens(row)):
            end = start + sum(1 for _ in cells)
            segments.append(Segment(row.text[start:end], self._style(pen)))
            start = end
        return Strip(segments, len(row.text))

    def _style(self, pen: str) -> Style:
        if pen not in self._pens:
            name = _NAMES.get(CellKind(pen))
            own = self.get_component_rich_style(f"graph--{name}", partial=True) if name else Style()
            self._pens[pen] = self.rich_style + own
        return self._pens[pen]


def carried_pens(row: PenRow) -> str:
    """Pens in which a blank takes the one before it: blanks have no colour to show, and longer runs cost less."""
    if " " not in row.text:
        return row.pens
    found, pen = [], CellKind.NOTHING.value
    for char, own in zip(row.text, row.pens, strict=True):
        if char != " " or own.isupper():
            pen = own
        elif pen.isupper():
            pen = CellKind.NOTHING.value
        found.append(pen)
    return "".join(found)


def part_of(row: PenRow, cells: range) -> PenRow:
    return PenRow(row.text[cells.start : cells.stop], row.pens[cells.start : cells.stop])


def changed_regions(was: Sequence[PenRow], now: Sequence[PenRow]) -> list[Region]:
    """Of each row that differs, from its beginning to the last cell that does. Both have as many rows, as wide."""
    ends = ((y, last_difference(old, new)) for y, (old, new) in enumerate(zip(was, now, strict=True)) if old != new)
    return [Region(0, y, end, 1) for y, end in ends if end]


def last_difference(was: PenRow, now: PenRow) -> int:
    """One more than the last cell that differs; 0 when none does."""
    if len(was.text) != len(now.text):
        return max(len(was.text), len(now.text))
    for x in range(len(now.text) - 1, -1, -1):
        if was.text[x] != now.text[x] or was.pens[x] != now.pens[x]:
            return x + 1
    return 0


class Graph(RowCanvas):
    """Up to two curves, a value axis, a time axis, an alarm line and a cursor; `draw` says what stands there now."""

    DEFAULT_CSS = """
    Graph { width: 1fr; height: 8; layout: vertical; overflow: hidden hidden; }
    GraphPatch { position: absolute; width: 1; height: 1; }
    """

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        kind: GraphKind | None = None,
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._kind = kind or kind_for(glyphs)
        self._subject: Subject | None = None
        self._curves: tuple[Curve, ...] = ()
        self._view = View(0.0, 60.0)
        self._edge, self._cursor = GraphPatch(self), GraphPatch(self)
        self.picture = Picture()

    def compose(self) -> ComposeResult:
        """The edge lies over the curves, the cursor over both."""
        yield self._edge
        yield self._cursor

    # --- what it shows --------------------------------------------------------------------------------

    def draw(self, subject: Subject, curves: Sequence[Curve], view: View) -> None:
        """Shows these curves; costs a repaint only of the cells that differ."""
        if subject != self._subject:
            self.picture = Picture()  # another subject has another scale
        self._subject, self._curves, self._view = subject, tuple(curves), view
        self._renew()

    def draw_as(self, kind: GraphKind) -> None:
        """Draws curves in another way."""
        self._kind = kind
        self._renew()

    def on_resize(self, _: Resize) -> None:
        self._renew()

    def _renew(self) -> None:
        size, old = self.size, self.picture
        if self._subject is None or not size.width:
            return
        new = picture_of(self._subject, self._curves, self._view, self._kind, size.width, size.height, old)
        self.picture, self.rows = new, new.rows
        live, curves = new.live, new.curve_rows
        self._edge.show(Offset(live.start, curves.start), [part_of(new.rows[y], live) for y in curves])
        self._cursor.show(Offset(new.cursor_at, curves.start), new.cursor)
        if (len(old.rows), old.live, old.curve_rows) != (len(new.rows), live, curves):
            self.refresh()
            return
        regions = []  # of each row, from its beginning to the last cell that differs and is not the edge's
        for y, (was, now) in enumerate(zip(old.rows, new.rows, strict=True)):
            still = range(live.start if y in curves else len(now.text))
            if was != now and (end := last_difference(part_of(was, still), part_of(now, still))):
                regions.append(Region(0, y, end, 1))
        if regions:
            self.refresh(*regions)


class GraphPatch(Widget):
    """Cells that lie over a graph."""

    ALLOW_SELECT = False
    can_focus = False

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.display = False
        self._graph = graph
        self._place = Region()
        self._rows: Sequence[PenRow] = ()

    def show(self, at: Offset, rows: Sequence[PenRow]) -> None:
        """These rows, with their first cell there; no rows, and it is not there at all."""
        old, self._rows = self._rows, rows
        place, before = Region(*at, len(rows[0].text), len(rows)) if rows else Region(), self._place
        if place == before:
            if regions := [Region(0, y, place.width, 1) for y, row in enumerate(rows) if row != old[y]]:
                self.refresh(*regions)
            return
        if place.size != before.size:
            self.display = place.area > 0
            self.styles.width, self.styles.height = max(1, place.width), max(1, place.height)
        self._place = place
        self.styles.offset = Offset(place.x, place.y)
        self.refresh()

    def notify_style_update(self) -> None:
        """It wears the graph's colours."""
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self._graph.rich_style)
        return self._graph.strip(self._rows[y])


LABEL_CELLS: Final = 10
VALUE_CELLS: Final = 14
LEAST_CELLS: Final = 8
MOST_CELLS: Final = 30
GAP_CELLS: Final = 3
WINDOW_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Item:
    """One small graph: the series that is drawn, and those whose values stand beside it, each with its word."""

    label: str
    drawn: MetricId
    values: tuple[tuple[MetricId, str], ...] = ()


ITEMS: Final = (
    Item("decode", MetricId.DECODE_RATE),
    Item("TTFT p95", MetricId.TTFT_P95),
    Item("KV cache", MetricId.KV_USAGE),
    Item("requests", MetricId.RUNNING, ((MetricId.RUNNING, "run"), (MetricId.WAITING, "wait"))),
)
"""What Home shows of an engine that serves."""
_DRAWN: Final = tuple(sorted({metric for item in ITEMS for metric in (item.drawn, *(m for m, _ in item.values))}))
"""The series of them all."""


def sparkline(series: SeriesView, now: float, cells: int, levels: str, window: float = WINDOW_SECONDS) -> str:
    """One character per stretch of time, by the greatest value in it; blank where nothing is known.

    Cells stand on multiples of wall-clock time, so the line moves once per cell and not once per sample.
    """
    axis = time_axis(window, cells, now, parts=1)
    found = buckets(series.times, series.values, axis.first_bucket, axis.buckets, axis.bucket_seconds, series.step)
    known = [part for part in found if part is not None]
    if not known:
        return " " * cells
    low, high = min(part.low for part in known), max(part.high for part in known)
    metric = series.metric
    scale = nice_scale(low, high, domain=metric.domain, unit=metric.unit)
    top = len(levels) - 1
    return "".join(" " if part is None else levels[round(scale.share(part.high) * top)] for part in found)


def laid_out(
    items: Sequence[Item], series: Mapping[MetricId, SeriesView], now: float, levels: str, width: int
) -> list[PenRow]:
    """Those of which something is known, two beside each other where there is room."""
    least = LABEL_CELLS + VALUE_CELLS + LEAST_CELLS
    if width < least:
        return []
    beside = 2 if width >= 2 * least + GAP_CELLS else 1
    room = (width - GAP_CELLS * (beside - 1)) // beside
    cells = min(MOST_CELLS, room - LABEL_CELLS - VALUE_CELLS)
    pens = CellKind.QUIET * LABEL_CELLS + CellKind.NOTHING * VALUE_CELLS + CellKind.FIRST * cells
    graphs = []
    for item in items:
        found = series.get(item.drawn)
        if found is None or not any(map(math.isfinite, found.values)):
            continue
        values = [(series[metric].last, word) for metric, word in item.values]
        value = " ".join(f"{'-' if last is None else f'{last:.0f}'} {word}" for last, word in values)
        if not values:
            value = "-" if found.last is None else value_text(found.last, item.drawn.unit, item.drawn.decimals)
        line = sparkline(found, now, cells, levels)
        text = f"{item.label[:LABEL_CELLS]:<{LABEL_CELLS}}{value[:VALUE_CELLS]:<{VALUE_CELLS}}{line}"
        graphs.append(PenRow(f"{text:<{room}}", f"{pens:<{room}}"))
    gap = " " * GAP_CELLS
    rows = []
    for start in range(0, len(graphs), beside):
        parts = graphs[start : start + beside]
        text, both = gap.join(part.text for part in parts), gap.join(part.pens for part in parts)
        rows.append(PenRow(f"{text:<{width}}", f"{both:<{width}}"))
    return rows


GUTTER: Final = 2
LEAST_HEIGHT: Final = 7
GOOD_WIDTH: Final = 58
NARROW_WIDTH: Final = 38
"""Two beside each other on a terminal of 80 columns."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One graph: what it is about, and its curves."""

    subject: Subject
    curves: tuple[Curve, ...]


class GraphGrid(Widget):
    """`draw` gets the charts of a page, `per_page` at most. All are equally wide: they share one time axis."""

    DEFAULT_CSS = """
    GraphGrid { layout: grid; width: 1fr; height: 1fr; overflow: hidden hidden; grid-gutter: 0 2; }
    GraphGrid Graph { width: 100%; height: 100%; }
    """

    class Rearranged(Message):
        """There is room for another number of graphs: draw again."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._glyphs = glyphs
        self.kind = kind_for(glyphs)
        self._shape = (0, 0, 0)

    # --- room -----------------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Graphs beside each other."""
        width = self.size.width
        wide = (width + GUTTER) // (GOOD_WIDTH + GUTTER)
        return wide if wide > 1 else 2 if width >= 2 * NARROW_WIDTH + GUTTER else 1

    @property
    def per_page(self) -> int:
        """How many graphs there is room for."""
        return self.columns * max(1, self.size.height // LEAST_HEIGHT)

    def pages(self, charts: int) -> int:
        """The number of pages for that many charts; at least one."""
        return max(1, -(-charts // max(1, self.per_page)))

    def on_resize(self, _: Resize) -> None:
        self.post_message(self.Rearranged())

    # --- show -----------------------------------------------------------------------------------------

    def draw_as(self, kind: GraphKind) -> None:
        """Draws curves in another way."""
        self.kind = kind
        for graph in self.query(Graph):
            graph.draw_as(kind)

    @property
    def axis(self) -> TimeAxis | None:
        """The time axis of what is on screen."""
        return next((graph.picture.axis for graph in self.query(Graph) if graph.display and graph.picture.axis), None)

    def draw(self, charts: Sequence[Chart], view: View) -> None:
        """Shows the charts of one page; a graph that stays repaints only what differs."""
        if not self.size.width:
            return
        count = len(charts)
        columns = max(1, min(self.columns, count))
        rows = max(1, -(-count // columns))
        width = max(1, (self.size.width - GUTTER * (columns - 1)) // columns)
        graphs = list(self.query(Graph))  # made when they are first needed; those that are not needed now are hidden
        new = [Graph(self._glyphs, kind=self.kind) for _ in range(count - len(graphs))]
        if new:
            self.mount(*new)
        for number, graph in enumerate(graphs):
            graph.display = number < count
        if (columns, rows, width) != self._shape:
            self._shape = columns, rows, width
            self.styles.grid_size_columns, self.styles.grid_size_rows = columns, rows
            self.styles.grid_columns = " ".join([str(width)] * columns)
        for graph, chart in zip((graphs + new)[:count], charts, strict=True):
            graph.draw(chart.subject, chart.curves, view)


# --- of an engine -----------------------------------------------------------------------------------------

SPARK_LEVELS: Final[Mapping[str, str]] = {"unicode": "▁▂▃▄▅▆▇█", "console": ".░▒█", "ascii": "_.:=#"}


class EngineGraphs(RowCanvas):
    """Four small graphs of one engine, two beside each other where there is room; no height while nothing is known."""

    DEFAULT_CSS = """
    EngineGraphs { width: 100%; height: auto; }
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._levels = SPARK_LEVELS.get(glyphs.name, SPARK_LEVELS["ascii"])
        self._series: dict[MetricId, SeriesView] = {}
        self._now = 0.0

    def show(self, read: Callable[[MetricId], SeriesView] | None, now: float) -> None:
        """`read` gives the last minutes (WINDOW_SECONDS) of a series; None: no engine.

        Call it once a second while the screen is shown: it repaints only what differs.
        """
        self._series = {} if read is None else {metric: read(metric) for metric in _DRAWN}
        self._now = now
        self.show_rows(self._lay_out(self.size.width))

    def on_resize(self, _: Resize) -> None:
        self.show_rows(self._lay_out(self.size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lay_out(width)) if width else len(self.rows)

    def _lay_out(self, width: int) -> list[PenRow]:
        return laid_out(ITEMS, self._series, self._now, self._levels, width) if self._series else []
