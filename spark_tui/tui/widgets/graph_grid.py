"""Graphs beside and above one another, as many as there is room for; the rest is on further pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from textual.events import Resize
from textual.message import Message
from textual.widget import Widget

from spark_tui.domain.graph_curve import Curve
from spark_tui.domain.graph_time import TimeAxis
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.graph import Graph
from spark_tui.tui.widgets.graph_picture import Subject, View
from spark_tui.tui.widgets.graph_raster import GraphKind, kind_for

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
        self._kind = kind_for(glyphs)
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
        """How many pages so many charts take; at least one."""
        return max(1, -(-charts // max(1, self.per_page)))

    def on_resize(self, _: Resize) -> None:
        """Other room."""
        self.post_message(self.Rearranged())

    # --- show -----------------------------------------------------------------------------------------

    @property
    def kind(self) -> GraphKind:
        """How curves are drawn."""
        return self._kind

    @kind.setter
    def kind(self, kind: GraphKind) -> None:
        self._kind = kind
        for graph in self.query(Graph):
            graph.kind = kind

    @property
    def axis(self) -> TimeAxis | None:
        """The time axis of what is on screen."""
        return next((graph.picture.axis for graph in self.query(Graph) if graph.display and graph.picture.axis), None)

    def draw(self, charts: Sequence[Chart], view: View) -> None:
        """Shows the charts of one page; a graph that stays repaints only what differs."""
        if not self.size.width:
            return
        graphs = self._slots(len(charts))
        self._arrange(len(charts))
        for graph, chart in zip(graphs, charts, strict=True):
            graph.draw(chart.subject, chart.curves, view)

    def _slots(self, count: int) -> list[Graph]:
        """That many graphs, made when they are first needed; the others are hidden."""
        graphs = list(self.query(Graph))
        new = [Graph(self._glyphs, kind=self._kind) for _ in range(count - len(graphs))]
        if new:
            self.mount(*new)
        for number, graph in enumerate(graphs):
            graph.display = number < count
        return (graphs + new)[:count]

    def _arrange(self, count: int) -> None:
        columns = max(1, min(self.columns, count))
        rows = max(1, -(-count // columns))
        width = max(1, (self.size.width - GUTTER * (columns - 1)) // columns)
        if (columns, rows, width) != self._shape:
            self._shape = columns, rows, width
            self.styles.grid_size_columns, self.styles.grid_size_rows = columns, rows
            self.styles.grid_columns = " ".join([str(width)] * columns)
