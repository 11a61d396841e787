"""Metrics: the selected engine's curves and the box's, their latencies as a table, and a cursor that reads both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.widgets import Static

from spark_tui.core.actions import Scope
from spark_tui.core.metrics import HOST
from spark_tui.domain.engine.metric_series import MetricId, Sample
from spark_tui.domain.graph_curve import Curve
from spark_tui.domain.graph_time import WINDOWS
from spark_tui.domain.history import Stretch
from spark_tui.domain.reading import value_of
from spark_tui.tui.glyphs import ASCII
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens import metrics_words as words
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.screens.metrics_parts import Latencies, Words
from spark_tui.tui.widgets.graph_grid import GraphGrid
from spark_tui.tui.widgets.graph_picture import View
from spark_tui.tui.widgets.graph_raster import kinds_for

if TYPE_CHECKING:
    from spark_tui.core.metrics import Attention

LONGEST: Final = float(WINDOWS[-1])
EXISTING_SECONDS: Final = 5.0
"""How often it is asked anew which graphs there are."""
TALL_ENOUGH: Final = 34
"""Rows of a terminal on which the table stands below the graphs from the start."""
PAST_BUCKETS: Final = 2160
"""Of ten seconds each: so the history keeps what is older than an hour."""
FAR: Final = 10
"""Cells of a long step of the cursor."""


class MetricsScreen(FrameScreen):
    """Graphs, as many as fit; the rest on further pages."""

    SCOPE = Scope.METRICS
    TAB = "show_metrics"
    CSS_PATH = "metrics.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.METRICS)

    def compose_body(self) -> ComposeResult:
        """One line of words, the graphs, the table, one line of words."""
        yield Words("metrics-bar")
        with Container(id="metrics-body"):
            yield GraphGrid(self.spark.glyphs, id="graphs")
        yield Static("", id="nothing", markup=False)
        yield Latencies()
        yield Words("metrics-status")

    def on_mount(self) -> None:
        """Follows the engine that is selected, and looks while it is shown."""
        self._window = float(WINDOWS[1])
        self._engine = ""
        self._page = 0
        self._cursor: float | None = None
        self._paused: float | None = None
        self._kept: dict[MetricId, Curve] = {}
        self._past: dict[MetricId, Stretch] = {}
        self._curves: tuple[Curve, ...] = ()
        self._panels: tuple[words.Panel, ...] = ()
        self._looked = ("", 0.0)
        self._table: bool | None = None
        self._attention: Attention | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self.bind_slice("selected", lambda _: self._other_engine())
        self.bind_slice("engines", lambda _: self._show())

    def on_screen_suspend(self) -> None:
        """Nobody looks: engines are asked less often, and nothing is drawn."""
        self._look_away()

    def on_screen_resume(self) -> None:
        """Engines are asked once a second from now on, and each time the graphs follow."""
        if self._attention is None:
            self._attention = self.context.metrics.attend()
            self._unsubscribe = self.context.metrics.subscribe(self._sampled)
        self._show()

    def on_unmount(self) -> None:
        """The screen is gone."""
        self._look_away()

    def _look_away(self) -> None:
        if self._attention is not None and self._unsubscribe is not None:
            self._attention.end()
            self._unsubscribe()
            self._attention = self._unsubscribe = None

    def _sampled(self, sample: Sample) -> None:
        """The box is looked at once a second, whatever becomes of the engines: one drawing for all of them."""
        if sample.engine == HOST and self._paused is None:
            self.call_later(self._show)

    def on_graph_grid_rearranged(self) -> None:
        """There is room for another number of graphs."""
        self._show()

    # --- reading --------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self.context.clock.now() if self._paused is None else self._paused

    def _read(self, metric: MetricId, seconds: float = 0.0) -> Curve:
        """What a graph needs, `seconds` at least: its time axis may show somewhat more than the window."""
        if self._paused is not None:
            return self._kept[metric]
        stretch = min(LONGEST, max(seconds, 2 * self._window + 60))
        return Curve("", self.context.metrics.series(self.spark.selected, metric, stretch), self._past.get(metric))

    def _read_all(self, metric: MetricId) -> Curve:
        """All that is kept of a series."""
        return self._read(metric, LONGEST)

    @work(exit_on_error=False, exclusive=True, group="past")
    async def _read_past(self) -> None:
        """What was measured before this program was opened; a history that is off has nothing to add."""
        name, now = self.spark.selected, self.context.clock.now()
        found = await self.context.history.series(name, tuple(MetricId), now - LONGEST, now, PAST_BUCKETS)
        if name == self.spark.selected:
            self._past = {MetricId(stretch.key.metric): stretch for stretch in value_of(found) or ()}
            self._looked = ("", 0.0)
            self._show()

    def _all_panels(self) -> tuple[words.Panel, ...]:
        memory = value_of(self.spark.memory)
        return words.panels_with(memory.total if memory else None, self.context.guard_policy.serving_floor)

    def _find_panels(self) -> None:
        """Which graphs there are, asked every few seconds."""
        name, now = self.spark.selected, self.context.clock.monotonic()
        if self._looked[0] != name or not self._panels or now - self._looked[1] >= EXISTING_SECONDS:
            self._looked = name, now
            self._panels = words.existing(self._all_panels(), self._read_all)

    # --- show -----------------------------------------------------------------------------------------

    def _other_engine(self) -> None:
        """Called whenever the screen comes back, too."""
        if self.spark.selected != self._engine:
            self._engine = self.spark.selected
            self._page, self._cursor, self._paused, self._past = 0, None, None, {}
        if not self._past:
            self._read_past()
        self._show()

    def _show(self) -> None:
        if not self.is_current:
            return
        self._find_panels()
        self.set_class(not self._panels, "-nothing")
        self._place_table()
        grid = self.query_one(GraphGrid)
        if not self.has_class("-only-table"):
            self._page = min(self._page, grid.pages(len(self._panels)) - 1)
            first = self._page * grid.per_page
            charts = [words.chart(panel, self._read) for panel in self._panels[first : first + grid.per_page]]
            grid.draw(charts, View(self._now, self._window, self._cursor))
            self._curves = tuple(curve for chart in charts for curve in chart.curves)
        self._show_words(grid)
        self._show_table()
        if not self._panels:
            self.query_one("#nothing", Static).update(words.nothing(self.selected_engine))

    def _show_words(self, grid: GraphGrid) -> None:
        bar, status = self.query_one("#metrics-bar", Words), self.query_one("#metrics-status", Words)
        pages = 1 if self.has_class("-only-table") else grid.pages(len(self._panels))
        bar.left = words.heading(self.selected_engine, self._window, self._page, pages)
        bar.right = words.pace(self._paused, simulated=self.context.demo)
        bar.renew()
        trouble = words.trouble_words(self.selected_engine, self.context.metrics.current(self.spark.selected))
        if self._cursor is not None:
            gap = next(filter(None, (curve.gap_at(self._cursor) for curve in self._curves)), "")
            status.left = words.cursor_words(self._cursor, self._now, gap)
        elif trouble is not None and self._paused is None:
            status.left = trouble
        else:
            axis = grid.axis
            begin = axis.begin if axis is not None else self._now - self._window
            status.left = words.gap_words(self._curves, begin)
        status.renew()

    def _place_table(self) -> None:
        """Below the graphs on a tall terminal; where it is asked for on a low one, in their place."""
        tall = self.app.size.height >= TALL_ENOUGH
        wanted = tall if self._table is None else self._table
        self.set_class(not wanted, "-no-table")
        self.set_class(wanted and not tall, "-only-table")

    def _show_table(self) -> None:
        table = self.query_one(Latencies)
        if self.has_class("-no-table"):
            return
        metrics, name = self.context.metrics, self.spark.selected
        current = metrics.current(name)
        only = self.has_class("-only-table")
        sign = "+-" if self.spark.glyphs is ASCII else "±"
        lifetime = metrics.lifetime(name)
        table.tables = [words.latency_table(words.window_title(current), current, sign)]
        if only or self.size.width >= 2 * words.TABLE_WIDTH + 6:
            table.tables.append(words.latency_table("since start", lifetime, sign))
        table.totals = words.totals(current, lifetime)
        table.more = (
            [*words.notes(current), *words.not_drawn(self._all_panels(), self._panels, self._read_all)] if only else []
        )
        table.renew()

    # --- time -----------------------------------------------------------------------------------------

    def action_longer_window(self) -> None:
        """Shows more time."""
        self._change_window(1)

    def action_shorter_window(self) -> None:
        """Shows less time."""
        self._change_window(-1)

    def _change_window(self, step: int) -> None:
        index = WINDOWS.index(int(self._window)) + step
        self._window = float(WINDOWS[max(0, min(len(WINDOWS) - 1, index))])
        self._show()

    def action_pause_metrics(self) -> None:
        """Holds the picture still, or lets it go on; what is measured meanwhile is not lost."""
        if self._paused is None:
            self._kept = {metric: self._read_all(metric) for metric in MetricId}
            self._paused = self.context.clock.now()
        else:
            self._paused = None
            self._kept = {}
        self._show()

    # --- cursor ---------------------------------------------------------------------------------------

    def action_cursor_back(self) -> None:
        """Reads the values one cell earlier."""
        self._move_cursor(-1)

    def action_cursor_on(self) -> None:
        """Reads the values one cell later; beyond the last one is now."""
        self._move_cursor(1)

    def action_cursor_far_back(self) -> None:
        """Ten cells earlier."""
        self._move_cursor(-FAR)

    def action_cursor_far_on(self) -> None:
        """Ten cells later."""
        self._move_cursor(FAR)

    def _move_cursor(self, cells: int) -> None:
        axis = self.query_one(GraphGrid).axis
        if axis is None:
            return
        self._cursor = axis.moved(self._cursor, self._now, cells)
        self._show()

    def key_escape(self) -> None:
        """Back to now, else Home."""
        if self._cursor is not None:
            self._cursor = None
            self._show()
        else:
            self.spark.switch_mode("home")

    # --- the rest -------------------------------------------------------------------------------------

    def action_next_graphs(self) -> None:
        """The next page."""
        self._turn(1)

    def action_previous_graphs(self) -> None:
        """The page before."""
        self._turn(-1)

    def _turn(self, step: int) -> None:
        grid = self.query_one(GraphGrid)
        if not self.has_class("-only-table"):
            self._page = (self._page + step) % grid.pages(len(self._panels))
            self._show()

    def action_latency_table(self) -> None:
        """Shows or hides the table."""
        self._table = self.has_class("-no-table")
        self._show()

    def action_graph_kind(self) -> None:
        """Another way to draw curves, for a font that lacks dots or blocks."""
        grid = self.query_one(GraphGrid)
        kinds = kinds_for(self.spark.glyphs)
        grid.kind = kinds[(kinds.index(grid.kind) + 1) % len(kinds)]
        self.notify(f"Drawn with {grid.kind.value}.", markup=False, timeout=3)

    def action_copy_values(self) -> None:
        """Every value at the cursor, or the latest ones, to the clipboard."""
        at = self._cursor if self._cursor is not None else self._now
        text = words.copied(self.spark.selected, at, self._panels, self._read)
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied {text.count(chr(10))} values.", markup=False, timeout=3)

    def action_metrics_of_next(self) -> None:
        """The next engine."""
        names = [view.name for view in self.engines()]
        if names:
            here = names.index(self.spark.selected) if self.spark.selected in names else -1
            self.spark.selected = names[(here + 1) % len(names)]
