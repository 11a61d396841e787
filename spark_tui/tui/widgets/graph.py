"""A graph of curves over time that repaints only what looks different.

Textual repaints a line of a widget from where the widget begins to the last cell that changed. The cells at the right
edge, which fill up each second, and the cursor are therefore widgets of their own that lie over the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.events import Resize
from textual.geometry import Offset, Region
from textual.strip import Strip
from textual.widget import Widget

from spark_tui.domain.graph_curve import Curve
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.graph_paint import PennedRows, last_difference, part_of
from spark_tui.tui.widgets.graph_pen import Row
from spark_tui.tui.widgets.graph_picture import Picture, Subject, View, picture_of
from spark_tui.tui.widgets.graph_raster import GraphKind, kind_for


class Graph(PennedRows):
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

    @property
    def kind(self) -> GraphKind:
        """How curves are drawn."""
        return self._kind

    @kind.setter
    def kind(self, kind: GraphKind) -> None:
        if kind is not self._kind:
            self._kind = kind
            self._renew()

    def on_resize(self, _: Resize) -> None:
        """Another size, another picture."""
        self._renew()

    # --- paint ----------------------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Row]:
        """The picture's."""
        return self.picture.rows

    def _renew(self) -> None:
        size = self.size
        if self._subject is None or not size.width:
            return
        old = self.picture
        self.picture = picture_of(self._subject, self._curves, self._view, self._kind, size.width, size.height, old)
        new = self.picture
        live, curves = new.live, new.curve_rows
        self._edge.show(Offset(live.start, curves.start), [part_of(new.rows[y], live) for y in curves])
        self._cursor.show(Offset(new.cursor_at, curves.start), new.cursor)
        if (len(old.rows), old.live, old.curve_rows) != (len(new.rows), live, curves):
            self.refresh()
        else:
            self._repaint(old)

    def _repaint(self, old: Picture) -> None:
        """Of each row, from its beginning to the last cell that differs and is not the edge's."""
        regions = []
        for y, (was, now) in enumerate(zip(old.rows, self.picture.rows, strict=True)):
            still = range(self.picture.live.start if y in self.picture.curve_rows else len(now.text))
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
        self._rows: Sequence[Row] = ()

    def show(self, at: Offset, rows: Sequence[Row]) -> None:
        """These rows, with their first cell there; no rows, and it is not there at all."""
        old, self._rows = self._rows, rows
        place = Region(*at, len(rows[0].text), len(rows)) if rows else Region()
        if place != self._place:
            self._move(place)
        elif regions := [Region(0, y, place.width, 1) for y, row in enumerate(rows) if row != old[y]]:
            self.refresh(*regions)

    def _move(self, place: Region) -> None:
        if place.size != self._place.size:
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
        """One row."""
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self._graph.rich_style)
        return self._graph.strip(self._rows[y])
