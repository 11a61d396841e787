"""A graph of curves over time that repaints only what looks different."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual.events import Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from spark_tui.base.graph import Curve, Panel, TimeAxis, nice_scale, time_axis
from spark_tui.base.host.series import MetricId
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.graph_picture import (
    CellKind,
    GraphView,
    PenRow,
    Picture,
    Subject,
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
    RowCanvas > .graph--first { color: $mem-engine; }
    RowCanvas > .graph--second { color: $mem-apps; }
    RowCanvas > .graph--threshold { color: $warning; }
    RowCanvas > .graph--quiet { color: $dim; }
    RowCanvas > .graph--title { text-style: bold; }
    RowCanvas > .graph--warning { color: $warning; text-style: bold; }
    RowCanvas > .graph--cursor { color: $foreground; background: $cursor-row; }
    RowCanvas > .graph--first-at-cursor { color: $foreground; background: $cursor-row; text-style: bold; }
    RowCanvas > .graph--second-at-cursor { color: $foreground; background: $cursor-row; text-style: bold; }
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
        strip, width = self.strip(self.rows[y]), self.size.width
        return strip if strip.cell_length == width else strip.extend_cell_length(width, self.rich_style)

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


def changed_regions(was: Sequence[PenRow], now: Sequence[PenRow]) -> list[Region]:
    """Of each row that differs, from the first cell that does to the last. Both have as many rows."""
    found = []
    for y, (old, new) in enumerate(zip(was, now, strict=True)):
        if old != new:
            cells = zip_longest(zip(old.text, old.pens, strict=True), zip(new.text, new.pens, strict=True))
            differ = [x for x, (one, other) in enumerate(cells) if one != other]
            found.append(Region(differ[0], y, differ[-1] + 1 - differ[0], 1))
    return found


class Graph(RowCanvas):
    """Up to two curves, a value axis, a time axis, an alarm line and a cursor; `draw` says what stands there now."""

    DEFAULT_CSS = """
    Graph { width: 1fr; height: 8; }
    """

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._kind = kind_for(glyphs)
        self._subject: Subject | None = None
        self._curves: tuple[Curve, ...] = ()
        self._view = GraphView(0.0, 60.0)
        self.picture = Picture()

    # --- what it shows --------------------------------------------------------------------------------

    def draw(self, subject: Subject, curves: Sequence[Curve], view: GraphView) -> None:
        """Shows these curves; costs a repaint only of the cells that differ."""
        if subject != self._subject:
            self.picture = Picture()  # another subject has another scale
        self._subject, self._curves, self._view = subject, tuple(curves), view
        self._renew()

    def on_resize(self, _: Resize) -> None:
        self._renew()

    def _renew(self) -> None:
        size, old = self.size, self.picture
        if self._subject is not None and size.width:
            self.picture = picture_of(self._subject, self._curves, self._view, self._kind, size.width, size.height, old)
            self.show_rows(self.picture.rows)


WINDOW_SECONDS: Final = 300.0
SPARK_LEVELS: Final[Mapping[str, str]] = {"unicode": "▁▂▃▄▅▆▇█", "console": ".░▒█", "ascii": "_.:=#"}


def sparkline(curve: Curve, now: float, cells: int, glyphs: Glyphs, window: float = WINDOW_SECONDS) -> str:
    """One character per stretch of time, by the greatest value in it; blank where nothing is known.

    Cells stand on multiples of wall-clock time, so the line moves once per cell and not once per sample.
    """
    axis = time_axis(window, cells, now, parts=1)
    found = curve.buckets(axis)
    known = [part for part in found if part is not None]
    if not known:
        return " " * cells
    low, high = min(part.low for part in known), max(part.high for part in known)
    metric, levels = curve.series.metric, SPARK_LEVELS.get(glyphs.name, SPARK_LEVELS["ascii"])
    scale = nice_scale(low, high, domain=metric.domain, unit=metric.unit)
    top = len(levels) - 1
    return "".join(" " if part is None else levels[round(scale.share(part.high) * top)] for part in found)


GUTTER: Final = 2
LEAST_HEIGHT: Final = 7
LEAST_WIDTH: Final = 37
"""Two beside each other on a terminal of 80 columns, three on one of 120: a headline with its range fits."""


class Chart(Struct, frozen=True):
    """One graph: what it is about, and its curves."""

    subject: Subject
    curves: tuple[Curve, ...]


def chart_of(panel: Panel, read: Callable[[MetricId], Curve]) -> Chart:
    """A panel with what is known now."""
    first, pairs = panel.metrics[0], zip(panel.names, panel.metrics, strict=True)
    subject = Subject(panel.title, first.unit, panel.domain or first.domain, first.decimals, panel.alarm)
    return Chart(subject, tuple(replace(read(metric), name=name) for name, metric in pairs))


class GraphGrid(Widget):
    """`draw` gets the charts of a page, `per_page` at most. All are equally wide: they share one time axis, which with
    `one_axis` stands below the lowest graphs alone. `least` are the cells and rows of the smallest graph."""

    DEFAULT_CSS = """
    GraphGrid { layout: grid; width: 1fr; height: 1fr; overflow: hidden hidden; grid-gutter: 0 2; }
    GraphGrid Graph { width: 100%; height: 100%; }
    """

    class Rearranged(Message):
        """There is room for another number of graphs: draw again."""

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        least: tuple[int, int] = (LEAST_WIDTH, LEAST_HEIGHT),
        one_axis: bool = False,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._least = least
        self._one_axis = one_axis
        self._shape = (0, 0, 0)
        self._graphs: list[Graph] = []  # made when they are first needed; those that are not needed now are hidden

    # --- room -----------------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Graphs beside each other."""
        return max(1, (self.size.width + GUTTER) // (self._least[0] + GUTTER))

    @property
    def per_page(self) -> int:
        """How many graphs there is room for."""
        return self.columns * max(1, self.size.height // self._least[1])

    def pages(self, charts: int) -> int:
        """The number of pages for that many charts; at least one."""
        return max(1, -(-charts // max(1, self.per_page)))

    def on_resize(self, _: Resize) -> None:
        self.post_message(self.Rearranged())

    # --- show -----------------------------------------------------------------------------------------

    @property
    def axis(self) -> TimeAxis | None:
        """The time axis of what is on screen."""
        return next((graph.picture.axis for graph in self._graphs if graph.display and graph.picture.axis), None)

    def draw(self, charts: Sequence[Chart], view: GraphView) -> None:
        """Shows the charts of one page; a graph that stays repaints only what differs."""
        if not self.size.width:
            return
        count = len(charts)
        rows = max(1, -(-count // self.columns))
        columns = max(1, -(-count // rows))
        width = max(1, (self.size.width - GUTTER * (columns - 1)) // columns)
        new = [Graph(self._glyphs) for _ in range(count - len(self._graphs))]
        if new:
            self._graphs += new
            self.mount(*new)
        for number, graph in enumerate(self._graphs):
            if graph.display is not (number < count):
                graph.display = number < count
        if (columns, rows, width) != self._shape:
            self._shape = columns, rows, width
            self.styles.grid_size_columns, self.styles.grid_size_rows = columns, rows
            self.styles.grid_columns = " ".join([str(width)] * columns)
        for number, (graph, chart) in enumerate(zip(self._graphs[:count], charts, strict=True)):
            if self._one_axis:
                lowest = number + columns >= count
                above = charts[number % columns : number : columns] if lowest else ()
                curves = tuple(curve for each in above for curve in each.curves)
                view = replace(view, foot=lowest, above=curves)
            graph.draw(chart.subject, chart.curves, view)
