"""Metrics: the selected engine's curves and the machine's, their latencies as a table, and a cursor that reads both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from spark_tui.core.actions import Scope, key_of
from spark_tui.core.metrics import HOST
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.metrics.graph import WINDOWS, Curve, clock_text, window_text
from spark_tui.domain.metrics.series import MetricId, Sample, SeriesSlice
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.reading import value_of
from spark_tui.present import metrics as present
from spark_tui.present.page import Row, Section, Table
from spark_tui.tui import format as fmt
from spark_tui.tui.format import ASCII
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.graph import Chart, GraphGrid
from spark_tui.tui.widgets.graph_picture import Subject, View, kinds_for
from spark_tui.tui.widgets.line import Line, packed, spread
from spark_tui.tui.widgets.page import page_lines

if TYPE_CHECKING:
    from contextlib import ExitStack

WIDTHS: Final = (13, 15, 15, 15, 10, 9)
"""Cells of the columns of the latency table: fixed, so that nothing moves while numbers do."""
TABLE_WIDTH: Final = sum(WIDTHS)
BETWEEN: Final = 4
"""Cells between two tables beside each other."""


# --- lines ------------------------------------------------------------------------------------------------


def chart(panel: present.Panel, read: present.Read) -> Chart:
    """A panel with what is known now."""
    first, pairs = panel.metrics[0], zip(panel.names, panel.metrics, strict=True)
    subject = Subject(panel.title, first.unit, panel.domain or first.domain, first.decimals, panel.alarm)
    return Chart(subject, tuple(replace(read(metric), name=name) for name, metric in pairs))


def heading(view: EngineView | None, window: float, page: int, pages: int) -> Content:
    """` qwen36  SERVING   1 m [5 m] 15 m 1 h 6 h   page 1/3`: the window in use is in brackets."""
    who = Content.styled(" no engine: the machine only", "$dim")
    if view is not None:
        who = Content.assemble(fmt.safe(f" {view.name}", "bold"), "  ", fmt.state(view))
    parts: list[Content | tuple[str, str]] = [who, ("   ", "")]
    for seconds in WINDOWS:
        text = window_text(seconds)
        parts.append((f"[{text}]", "bold $primary") if seconds == window else (f" {text} ", "$dim"))
    return Content.assemble(*parts, (f"   page {page + 1}/{pages}" if pages > 1 else "", "$dim"))


def pace(paused_at: float | None, *, simulated: bool) -> Content:
    """Whether the picture is live."""
    if paused_at is None:
        return Content.styled("simulated, live " if simulated else "live ", "$warning" if simulated else "$success")
    text = f"PAUSED at {clock_text(paused_at, None)}, {key_of('pause_metrics')} continue "
    return Content.styled(text, "bold $warning")


def at_cursor(cursor: float, now: float, gap: str) -> Content:
    """The time under the cursor, and why it has no values."""
    ago = f"   {fmt.ago(now - cursor)}   Esc back to now"
    why = f"   no values: {gap}" if gap else ""
    return Content.assemble((f" at {clock_text(cursor, None)}", "bold"), (ago, "$dim"), fmt.safe(why, "$warning"))


def gaps_text(curves: Iterable[Curve], begin: float) -> Content:
    """The latest gap and the latest restart in view; without one, how to read values."""
    curves = tuple(curves)
    shown = {(gap.begin, gap.reason): gap for curve in curves for gap in curve.gaps if gap.end >= begin}
    restarts = {time for curve in curves for time in curve.restarts if time >= begin}
    text = ""
    if shown:
        gap = max(shown.values(), key=lambda gap: gap.end)
        more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        lasted = human_duration(max(1.0, gap.end - gap.begin))
        text += f" no values at {clock_text(gap.begin, None)} for {lasted}: {gap.reason}{more}"
    if restarts:
        text += f" R: engine restarted at {clock_text(max(restarts), None)}"
    return fmt.safe(text or " Left and Right read the values at a time", "$dim")


def nothing(view: EngineView | None) -> Content:
    """Stands where the graphs would be while there are no values at all."""
    if view is None:
        do = f"{key_of('show_presets')} launch a preset  {key_of('show_home')} running engines"
    elif view.state is EngineState.STARTING:
        do = f"Waiting until it serves.  {key_of('show_logs')} log"
    else:
        do = f"{key_of('show_logs')} log  {key_of('restart')} on Home restarts it"
    return Content.assemble(("No values yet.", "bold"), "\n\n", (do, "$dim"))


class TwoEndedLine(Line):
    """One line: words at its two ends."""

    def __init__(self, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.left = Content("")
        self.right = Content("")

    def say(self, width: int) -> Content:
        return spread(self.left, self.right, width)


class Latencies(Line):
    """Quantiles of the last minute; beside them those since the server's start, where there is room."""

    def __init__(self) -> None:
        super().__init__(id="latencies")
        self.tables: list[Table] = []
        self.totals: list[tuple[str, str]] = []
        self.more: tuple[Row, ...] = ()

    def say(self, width: int) -> Content:
        """The tables, what was counted since the start, and what is not drawn."""
        tables, blank = [_table(table) for table in self.tables], Content("")
        if len(tables) > 1 and width >= 2 * TABLE_WIDTH + BETWEEN:
            room = TABLE_WIDTH + BETWEEN
            pairs = zip_longest(*tables, fillvalue=blank)
            lines = [Content.assemble(left, " " * max(2, room - left.cell_length), right) for left, right in pairs]
        else:
            lines = [line for table in tables for line in (*table, blank)][:-1]
        totals = (Content.assemble((f"{label} ", "$dim"), fmt.safe(value)) for label, value in self.totals)
        lines += packed(totals, Content(" " * BETWEEN), width)
        lines = [line.truncate(width, ellipsis=True) for line in lines]
        if self.more:
            lines += [blank, *page_lines((Section(rows=self.more),), width)]
        return Content("\n").join(lines)


def _table(table: Table) -> list[Content]:
    """Columns of fixed widths; a row without values has its reason, which is its last cell, beside its label."""
    titles = [column.title for column in table.columns]
    lines = [Content.styled(f"{titles[0]:<{WIDTHS[0]}}" + _right(titles[1:]), "$dim")]
    for label, *cells, reason in table.rows:
        head = (f"{label.text:<{WIDTHS[0]}}", "$dim")
        if reason.text:
            lines.append(Content.assemble(head, fmt.safe(reason.text, "$dim")))
        else:
            lines.append(Content.assemble(head, fmt.safe(_right([cell.text for cell in cells]))))
    return lines


def _right(texts: list[str]) -> str:
    return "".join(f"{text:>{width}}" for text, width in zip(texts, WIDTHS[1:], strict=False))


# --- the screen -------------------------------------------------------------------------------------------

LONGEST: Final = float(WINDOWS[-1])
EXISTING_SECONDS: Final = 5.0
"""How often the set of graphs is determined."""
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
        yield TwoEndedLine("metrics-bar")
        with Container(id="metrics-body"):
            yield GraphGrid(self.spark.glyphs, id="graphs")
        yield Static("", id="nothing", markup=False)
        yield Latencies()
        yield TwoEndedLine("metrics-status")

    def on_mount(self) -> None:
        self._window = float(WINDOWS[1])
        self._engine = ""
        self._page = 0
        self._cursor: float | None = None
        self._paused: float | None = None
        self._kept: dict[MetricId, Curve] = {}
        self._past: dict[MetricId, SeriesSlice] = {}
        self._curves: tuple[Curve, ...] = ()
        self._panels: tuple[present.Panel, ...] = ()
        self._looked = ("", 0.0)
        self._table: bool | None = None
        self._attention: ExitStack | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self.bind_slice("selected", lambda _: self._other_engine())
        self.bind_slice("engines", lambda _: self._show())

    def on_screen_suspend(self) -> None:
        """Hidden: engines are polled less often, and nothing is drawn."""
        self._look_away()

    def on_screen_resume(self) -> None:
        """Engines are asked once a second from now on, and each time the graphs follow."""
        if self._attention is None:
            self._attention = self.context.metrics.attend()
            self._unsubscribe = self.context.metrics.subscribe(self._sampled)
        self._show()

    def on_unmount(self) -> None:
        self._look_away()

    def _look_away(self) -> None:
        if self._attention is not None and self._unsubscribe is not None:
            self._attention.close()
            self._unsubscribe()
            self._attention = self._unsubscribe = None

    def _sampled(self, sample: Sample) -> None:
        """The machine is sampled once a second whatever the engines do: one drawing for all of them."""
        if sample.engine == HOST and self._paused is None:
            self.call_later(self._show)

    def on_graph_grid_rearranged(self) -> None:
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

    def _all_panels(self) -> tuple[present.Panel, ...]:
        memory = value_of(self.spark.memory)
        return present.panels_with(memory.total if memory else None, self.context.guard_policy.serving_floor)

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
        name, monotonic = self.spark.selected, self.context.clock.monotonic()
        if self._looked[0] != name or not self._panels or monotonic - self._looked[1] >= EXISTING_SECONDS:
            self._looked = name, monotonic
            self._panels = present.existing(self._all_panels(), self._read_all)
        self.set_class(not self._panels, "-nothing")
        # The table is below the graphs on a tall terminal; where it is asked for on a low one, in their place.
        tall = self.app.size.height >= TALL_ENOUGH
        wanted = tall if self._table is None else self._table
        self.set_class(not wanted, "-no-table")
        self.set_class(wanted and not tall, "-only-table")
        grid = self.query_one(GraphGrid)
        if not self.has_class("-only-table"):
            self._page = min(self._page, grid.pages(len(self._panels)) - 1)
            first = self._page * grid.per_page
            charts = [chart(panel, self._read) for panel in self._panels[first : first + grid.per_page]]
            grid.draw(charts, View(self._now, self._window, self._cursor))
            self._curves = tuple(curve for chart in charts for curve in chart.curves)
        self._show_words(grid)
        self._show_table()
        if not self._panels:
            self.query_one("#nothing", Static).update(nothing(self.selected_engine))

    def _show_words(self, grid: GraphGrid) -> None:
        bar, status = self.query_one("#metrics-bar", TwoEndedLine), self.query_one("#metrics-status", TwoEndedLine)
        pages = 1 if self.has_class("-only-table") else grid.pages(len(self._panels))
        bar.left = heading(self.selected_engine, self._window, self._page, pages)
        bar.right = pace(self._paused, simulated=self.context.demo)
        bar.renew()
        trouble = present.trouble(self.selected_engine, self.context.metrics.current(self.spark.selected))
        if self._cursor is not None:
            gap = next(filter(None, (curve.gap_at(self._cursor) for curve in self._curves)), "")
            status.left = at_cursor(self._cursor, self._now, gap)
        elif trouble is not None and self._paused is None:
            keys = (
                f" {key_of('show_presets')} presets  {key_of('show_home')} running engines"
                if not self.spark.selected
                else ""
            )
            status.left = fmt.safe(f" {trouble.text}{keys}", fmt.TONE_STYLES[trouble.tone])
        else:
            axis = grid.axis
            begin = axis.begin if axis is not None else self._now - self._window
            status.left = gaps_text(self._curves, begin)
        status.renew()

    def _show_table(self) -> None:
        table = self.query_one(Latencies)
        if self.has_class("-no-table"):
            return
        metrics, name = self.context.metrics, self.spark.selected
        current = metrics.current(name)
        only = self.has_class("-only-table")
        sign = "+-" if self.spark.glyphs is ASCII else "±"
        lifetime = metrics.lifetime(name)
        table.tables = [present.latency_table(present.window_title(current), current, sign)]
        if only or self.size.width >= 2 * TABLE_WIDTH + 6:
            table.tables.append(present.latency_table("since start", lifetime, sign))
        table.totals = present.totals(current, lifetime)
        found = value_of(current)
        notes = tuple(Row(note, "note") for note in (found.notes if found is not None else ()))
        missing = present.not_drawn(self._all_panels(), self._panels, self._read_all)
        table.more = (*notes, *missing) if only else ()
        table.renew()

    # --- time -----------------------------------------------------------------------------------------

    def action_longer_window(self) -> None:
        self._change_window(1)

    def action_shorter_window(self) -> None:
        self._change_window(-1)

    def _change_window(self, step: int) -> None:
        index = WINDOWS.index(int(self._window)) + step
        self._window = float(WINDOWS[max(0, min(len(WINDOWS) - 1, index))])
        self._show()

    def action_pause_metrics(self) -> None:
        """Pauses or resumes the picture; what is measured meanwhile is not lost."""
        if self._paused is None:
            self._kept = {metric: self._read_all(metric) for metric in MetricId}
            self._paused = self.context.clock.now()
        else:
            self._paused = None
            self._kept = {}
        self._show()

    # --- cursor ---------------------------------------------------------------------------------------

    def action_cursor_back(self) -> None:
        self._move_cursor(-1)

    def action_cursor_on(self) -> None:
        self._move_cursor(1)

    def action_cursor_far_back(self) -> None:
        self._move_cursor(-FAR)

    def action_cursor_far_on(self) -> None:
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
        self._turn(1)

    def action_previous_graphs(self) -> None:
        self._turn(-1)

    def _turn(self, step: int) -> None:
        grid = self.query_one(GraphGrid)
        if not self.has_class("-only-table"):
            self._page = (self._page + step) % grid.pages(len(self._panels))
            self._show()

    def action_latency_table(self) -> None:
        self._table = self.has_class("-no-table")
        self._show()

    def action_graph_kind(self) -> None:
        """Another way to draw curves, for a font without dots or blocks."""
        grid = self.query_one(GraphGrid)
        kinds = kinds_for(self.spark.glyphs)
        grid.draw_as(kinds[(kinds.index(grid.kind) + 1) % len(kinds)])
        self.notify(f"Drawn with {grid.kind.value}.", markup=False, timeout=3)

    def action_copy_values(self) -> None:
        """Every value at the cursor, or the latest ones, to the clipboard."""
        at = self._cursor if self._cursor is not None else self._now
        text = present.copied(self.spark.selected, at, self._panels, self._read)
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied {text.count(chr(10))} values.", markup=False, timeout=3)

    def action_metrics_of_next(self) -> None:
        names = [view.name for view in self.engines()]
        if names:
            here = names.index(self.spark.selected) if self.spark.selected in names else -1
            self.spark.selected = names[(here + 1) % len(names)]
