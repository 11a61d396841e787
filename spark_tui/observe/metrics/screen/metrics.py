"""Metrics: the selected engine's curves and the machine's, their latencies as a table, and a cursor that reads both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from typing import ClassVar, Final, NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.engine.runtimes import runtime_named
from spark_tui.base.engine.state import EngineState
from spark_tui.base.finding import Reading, value_of
from spark_tui.base.graph import WINDOWS, Curve, Panel, clock_text, window_text
from spark_tui.base.host.series import HOST, MetricId, Sample, SeriesSlice
from spark_tui.base.page import TONES, Row, Section, Table, Tone
from spark_tui.base.page import Page as Sections
from spark_tui.base.quantities import GIB, human_duration
from spark_tui.base.text import cells_left
from spark_tui.observe.engines.show.activity import launch_words
from spark_tui.observe.engines.show.engines import engine_status
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.model.serving import EngineMetrics
from spark_tui.observe.metrics.model.slow import limits
from spark_tui.observe.metrics.show import metrics as present
from spark_tui.observe.metrics.show.metrics import clients_at, clients_page, vitals_section
from spark_tui.observe.metrics.use.history import PAST_BUCKETS, History
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector
from spark_tui.tui import format as fmt
from spark_tui.tui.format import ASCII, UNICODE
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.graph import GraphGrid, chart_of, sparkline
from spark_tui.tui.widgets.graph_picture import GraphView
from spark_tui.tui.widgets.line import Line, packed, spread
from spark_tui.tui.widgets.page import Page, page_lines
from spark_tui.tui.yank import Yank

WIDTHS: Final = (13, 15, 15, 16, 9, 9)
"""Cells of the columns of the latency table: fixed, so that nothing moves while numbers do."""
TABLE_WIDTH: Final = sum(WIDTHS)
BETWEEN: Final = 4
"""Cells between two tables beside each other."""


# --- lines ------------------------------------------------------------------------------------------------


def heading(view: EngineView | None, window: float, page: int, pages: int, room: int) -> Content:
    """` qwen36  ready   1 m [5 m] 15 m 1 h 6 h   page 1/3   vLLM 0.33.0   Qwen/Qwen3.6-35B-A3B`: the window in use is
    in brackets; page and what runs come last, where there is room for them."""
    who = Content.styled(" the machine only", "$dim")
    if view is not None:
        who = Content.assemble(fmt.safe(f" {view.name}", "bold"), "  ", fmt.styled(engine_status(view).cell))
    parts: list[Content | tuple[str, str]] = [who, ("   ", "")]
    for seconds in WINDOWS:
        text = window_text(seconds)
        parts.append((f"[{text}]", "bold $primary") if seconds == window else (f" {text} ", "$dim"))
    line = Content.assemble(*parts)
    more_texts: list[tuple[str, ...]] = [(f"page {page + 1}/{pages}" if pages > 1 else "",)]
    if view is not None:
        more_texts.append((f"{runtime_named(view.runtime).title} {view.version}",))
        more_texts.append((view.model, view.model.rpartition("/")[2]))
    for texts in more_texts:
        longer = (Content.assemble(line, "   ", fmt.safe(text.strip(), "$dim")) for text in texts if text)
        line = next((more for more in longer if more.cell_length < room), line)
    return line


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
    """The latest gap and the latest restart in view; empty without one."""
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
    return fmt.safe(text, "$dim")


def nothing(view: EngineView | None) -> Content:
    """Stands where the graphs would be while there are no values at all."""
    if view is None:
        do = f"{key_of('show_presets')} launch a preset  {key_of('show_home')} running engines"
    elif view.state is EngineState.STARTING:
        do = f"Waiting until it serves.  {key_of('show_logs')} log"
    else:
        do = f"{key_of('show_logs')} log  {key_of('restart')} on Home restarts it"
    return Content.assemble(("No values yet.", "bold"), "\n\n", (do, "$dim"))


class OtherGraph(NamedTuple):
    """A graph of another page in short; `trend` draws its first series in that many cells."""

    title: str
    value: str
    trend: Callable[[int], str]


class SlowPage(Page):
    """What is slow; below it, as far down as there is room, what other pages draw: a line each with its trend, and the
    trend over the whole width where there are lines left."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(dense=True, id=id)
        self.others: list[OtherGraph] = []

    def say(self, width: int) -> Content:
        lines = super().say(width).split("\n")
        room = cells_left(self.parent.size.height, len(lines), 1) if isinstance(self.parent, Widget) else 0
        shown = self.others[:room]
        if shown:
            lines.append(Content.styled("Other graphs", "bold"))
        for number, each in enumerate(shown):
            wide = number < room - len(shown)
            cells = cells_left(width if wide else OTHER_CELLS, len(each.title))
            head = Content.assemble((each.title, "$dim"), fmt.safe(f"{each.value:>{cells}}"))
            trend = Content.styled(each.trend(width if wide else max(1, width - OTHER_CELLS - 2)), "$success")
            lines += [head, trend] if wide else [Content.assemble(head, "  ", trend)]
        return Content("\n").join(lines)


class TwoEndedLine(Line):
    """One line: words at its two ends."""

    def __init__(self, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.left = Content("")
        self.right = Content("")

    def say(self, width: int) -> Content:
        return spread(self.left, self.right, width)


BIG: Final = (
    "█▀█▄█ ▀▀█▀▀██ ██▀▀█▀▀▀▀██▀██▀█   ",
    "█ █ █ █▀▀ ▀█▀▀█▀▀██▀█  ██▀█▀▀█▀▀▀",
    "▀▀▀▀▀▀▀▀▀▀▀▀  ▀▀▀▀▀▀▀  ▀▀▀▀▀▀▀   ",
)
"""The rows of `0123456789-` in large digits, three cells each."""
FIGURE_GAP: Final = 2
"""Cells between two figures, at least."""


def big(number: str) -> tuple[str, ...]:
    """A number in three rows."""
    places = ["0123456789-".find(char) for char in number]
    return tuple(
        " ".join(row[3 * at : 3 * at + 3] if at >= 0 else "▀" if row is BIG[-1] else " " for at in places)
        for row in BIG
    )


class Figures(Line):
    """Values in large digits, each with its name, unit and a note beside it: as many as there is room for."""

    def __init__(self) -> None:
        super().__init__(id="figures")
        self.figures: list[present.Figure] = []

    def say(self, width: int) -> Content:
        blocks: list[tuple[int, tuple[str, ...], tuple[Content, Content, Content]]] = []
        room = width
        for each in self.figures:
            digits = big(each.number)
            names = (fmt.safe(each.title, "bold"), fmt.safe(each.unit, "$dim"), fmt.safe(each.note, "$dim"))
            cells = len(digits[0]) + 1 + max(name.cell_length for name in names)
            if blocks and cells + FIGURE_GAP > room:
                continue
            room -= cells + FIGURE_GAP
            blocks.append((cells + FIGURE_GAP, digits, names))
        more = room // max(1, len(blocks))
        rows: list[list[Content]] = [[], [], []]
        for cells, digits, names in blocks:
            for row, dots, name in zip(rows, digits, names, strict=True):
                text = Content.assemble((dots, "bold $primary"), " ", name).truncate(width, ellipsis=True)
                row.append(Content.assemble(text, " " * cells_left(cells + more, text.cell_length)))
        return Content("\n").join(Content.assemble(*row) for row in rows)


class Latencies(Line):
    """Quantiles of the last minute; beside them those since the server's start or `aside`, where there is room."""

    def __init__(self) -> None:
        super().__init__(id="latencies")
        self.tables: list[Table] = []
        self.totals: list[tuple[str, str]] = []
        self.more: tuple[Row, ...] = ()
        self.aside: Sections = ()
        self.nodes: Sections = ()

    def say(self, width: int) -> Content:
        """The tables, what was counted since the start, what each node does, and what is not drawn."""
        tables, blank = [_table(table) for table in self.tables], Content("")
        room = TABLE_WIDTH + BETWEEN
        if self.aside:
            tables.append(page_lines(self.aside, width - room))
        if len(tables) > 1 and (self.aside or width >= room + TABLE_WIDTH):
            pairs = zip_longest(*tables, fillvalue=blank)
            lines = [Content.assemble(left, " " * max(2, room - left.cell_length), right) for left, right in pairs]
        else:
            lines = [line for table in tables for line in (*table, blank)][:-1]
        lines += totals_lines(self.totals, width)
        lines = [line.truncate(width, ellipsis=True) for line in lines]
        if self.nodes:
            lines += [blank, *page_lines(self.nodes, width)]
        if self.more:
            lines += [blank, *page_lines((Section(rows=self.more),), width)]
        return Content("\n").join(lines)


def totals_lines(pairs: Iterable[tuple[str, str]], width: int) -> list[Content]:
    """What was counted since the start, as labels and values."""
    parts = (Content.assemble((f"{label} ", "$dim"), fmt.safe(value)) for label, value in pairs)
    return packed(parts, Content(" " * BETWEEN), width)


def _one_line(pairs: Iterable[tuple[str, str]], width: int) -> Content:
    """The pairs where they fit on one line, with a blank before them; else nothing."""
    lines = totals_lines(pairs, width)
    return Content(" ").append(lines[0]) if len(lines) == 1 and lines[0].cell_length <= width else Content("")


def _table(table: Table) -> list[Content]:
    """Columns of fixed widths; a row without values has its reason, which is its last cell, beside its label."""
    titles = [column.title for column in table.columns]
    first = titles[1].rjust(WIDTHS[0] + WIDTHS[1] - len(titles[0]))
    lines = [Content.styled(titles[0] + first + _right(titles[1:])[WIDTHS[1] :], "$dim")]
    for label, *values, reason in table.rows:
        head = (f"{label.text:<{WIDTHS[0]}}", "$dim")
        if reason.text:
            lines.append(Content.assemble(head, fmt.safe(reason.text, "$dim")))
        else:
            lines.append(Content.assemble(head, fmt.safe(_right([cell.text for cell in values]))))
    return lines


def _right(texts: list[str]) -> str:
    return "".join(f" {text:>{width - 1}}" for text, width in zip(texts, WIDTHS[1:], strict=False))


# --- the screen -------------------------------------------------------------------------------------------

LONGEST: Final = float(WINDOWS[-1])
SLOWEST_SECONDS: Final = 5.0
"""Between two drawings. A window whose steps are shorter is drawn at each of them: of a minute every second."""
FIGURES_SECONDS: Final = 5.0
"""How often large values and what is slow follow the samples."""
EXISTING_SECONDS: Final = 5.0
"""How often the set of graphs is determined."""
TALL_ENOUGH: Final = 34
"""Rows of a terminal on which the table stands below the graphs from the start."""
WIDE_ENOUGH: Final = 140
"""Columns of a terminal on which what is slow stands beside the graphs."""
OTHER_CELLS: Final = 24
"""Cells of the name and the value of a graph that is on another page."""
FAR: Final = 10
"""Cells of a long step of the cursor."""


class MetricsScreen(FrameScreen):
    """Graphs, as many as fit; the rest on further pages."""

    SCOPE = Scope.METRICS
    TAB = "show_metrics"
    OF_ENGINE = True
    CSS_PATH = "metrics.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.METRICS)
    _named = (0, False)
    """What the footer's keys are named for: pages of graphs, 0 where there are no values yet, and whether it pauses."""

    def compose_body(self) -> ComposeResult:
        yield TwoEndedLine("metrics-bar")
        yield Figures()
        with Horizontal(id="metrics-body"):
            yield GraphGrid(self.spark.glyphs, one_axis=True, id="graphs")
            with VerticalScroll(id="slow-pane", can_focus=False):
                yield SlowPage(id="slow")
        yield Static("", id="nothing", markup=False)
        yield Latencies()
        yield TwoEndedLine("metrics-status")

    @property
    def selected_engine(self) -> EngineView | None:
        return self.world.named(ENGINES, self.spark.selected)

    def offers(self, id_: str) -> bool:
        pages, _ = self._named
        if id_ in ("cursor_back", "pause_metrics", "yank") and not pages:
            return False
        return super().offers(id_) and (id_ != "next_graphs" or pages > 1)

    def undoes(self, id_: str) -> bool:
        return self._named[1]

    def on_mount(self) -> None:
        self._window = float(WINDOWS[1])
        self._engine = ""
        self._page = 0
        self._cursor: float | None = None
        self._paused: float | None = None
        self._kept: dict[MetricId, Curve] = {}
        self._past: dict[MetricId, SeriesSlice] = {}
        self._curves: tuple[Curve, ...] = ()
        self._panels: tuple[Panel, ...] = ()
        self._looked = ("", 0.0)
        self._drawn_at = self._figures_at = 0.0  # since the epoch, and by the monotonic clock
        self._table: bool | None = None
        self._attention: ExitStack | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self.bind_slices(("selected",), self._other_engine)
        self.bind_slices((ENGINES,), self._show)

    def on_screen_suspend(self) -> None:
        """Hidden: engines are polled less often, and nothing is drawn."""
        if self._attention is not None and self._unsubscribe is not None:
            self._attention.close()
            self._unsubscribe()
            self._attention = self._unsubscribe = None

    on_unmount = on_screen_suspend

    def on_screen_resume(self) -> None:
        """Engines are asked once a second from now on, and each time the graphs follow."""
        if self._attention is None:
            self._attention = self.context[EngineMetricsCollector].attend()
            self._unsubscribe = self.context[EngineMetricsCollector].subscribe(self._sampled)
        self._show()

    def _sampled(self, sample: Sample) -> None:
        """The machine is sampled once a second whatever the engines do: one drawing for all of them, when the picture's
        step has moved."""
        if sample.engine != HOST or self._paused is not None:
            return
        axis = self.query_one(GraphGrid).axis
        step = min(SLOWEST_SECONDS, max(1.0, axis.bucket_seconds)) if axis is not None and self._figures_at else 1.0
        if self._now // step != self._drawn_at // step:
            self.call_later(self._show, sampled=True)

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
        return Curve(
            "",
            self.context[EngineMetricsCollector].series(self.spark.selected, metric, stretch),
            self._past.get(metric),
        )

    def _read_all(self, metric: MetricId) -> Curve:
        """All that is kept of a series."""
        return self._read(metric, LONGEST)

    @work(exit_on_error=False, exclusive=True, group="past")
    async def _read_past(self) -> None:
        """What was measured before this program was opened; a history that is off has nothing to add."""
        name, now = self.spark.selected, self.context.clock.now()
        found = await self.context[History].series(name, tuple(MetricId), now - LONGEST, now, PAST_BUCKETS)
        if name == self.spark.selected:
            self._past = {MetricId(stretch.key.metric): stretch for stretch in value_of(found) or ()}
            self._looked = ("", 0.0)
            self._show()

    def _all_panels(self) -> tuple[Panel, ...]:
        memory = value_of(self.world.memory)
        floor = int(self.context.settings.guard_serving_gib * GIB)
        return present.panels_with(memory.total if memory else None, floor)

    # --- show -----------------------------------------------------------------------------------------

    def _other_engine(self) -> None:
        """Called whenever the screen comes back, too."""
        if self.spark.selected != self._engine:
            self._engine = self.spark.selected
            self._page, self._cursor, self._paused, self._past = 0, None, None, {}
        if not self._past:
            self._read_past()
        self._show()

    def _show(self, *, sampled: bool = False) -> None:
        """All of it; after a sample alone, figures and rail only now and then: they cost more bytes than the graphs."""
        if not self.is_current:
            return
        name, monotonic = self.spark.selected, self.context.clock.monotonic()
        self._drawn_at = self.context.clock.now()
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
            charts = [chart_of(panel, self._read) for panel in self._on_page(grid)]
            grid.draw(charts, GraphView(self._now, self._window, self._cursor))
            self._curves = tuple(curve for chart in charts for curve in chart.curves)
        collector = self.context[EngineMetricsCollector]
        current, lifetime = collector.current(name), collector.lifetime(name)
        self._show_words(grid, current, lifetime)
        if not sampled or monotonic - self._figures_at >= FIGURES_SECONDS:
            self._figures_at = monotonic if grid.axis is not None else 0.0  # graphs without a place yet have none
            self._show_figures(grid)
            self._show_slow(current, lifetime)
        self._show_table(current, lifetime)
        if not self._panels:
            self.query_one("#nothing", Static).update(nothing(self.selected_engine))

    def _show_words(self, grid: GraphGrid, current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics]) -> None:
        bar, status = self.query_one("#metrics-bar", TwoEndedLine), self.query_one("#metrics-status", TwoEndedLine)
        pages = 1 if self.has_class("-only-table") else grid.pages(len(self._panels)) * bool(self._panels)
        if (pages, self._paused is not None) != self._named:
            self._named = pages, self._paused is not None
            self.name_keys()
        bar.right = pace(self._paused, simulated=self.context.demo)
        room = bar.size.width - bar.right.cell_length
        bar.left = heading(self.selected_engine, self._window, self._page, pages, room)
        bar.renew()
        launch = launch_words(self.world, self.spark.selected)
        trouble = present.trouble(self.selected_engine, current, self.world[ENGINES], launch)
        status.right, room = Content(""), status.size.width - 2
        if self._cursor is not None:
            gap = next(filter(None, (curve.gap_at(self._cursor) for curve in self._curves)), "")
            status.left = at_cursor(self._cursor, self._now, gap)
        elif trouble is not None and self._paused is None:
            keys = (
                f" {key_of('show_presets')} presets  {key_of('show_home')} running engines"
                if self._panels and trouble.tone is Tone.QUIET and not self.spark.selected
                else ""
            )
            status.left = fmt.safe(f" {trouble.text}{keys}", fmt.TONE_STYLES[trouble.tone])
        else:
            axis = grid.axis
            begin = axis.begin if axis is not None else self._now - self._window
            status.left = gaps_text(self._curves, begin)
            counted = present.counted(current, lifetime) if self._wide else []  # the verdict is beside the graphs
            status.left = status.left or _one_line(counted, room) or self._verdict(current, lifetime)
            ends = _one_line(present.token_counts(lifetime), room - status.left.cell_length)
            status.right = Content.assemble(ends, " ") if ends else ends
        status.renew()

    @property
    def _wide(self) -> bool:
        """What is slow stands beside the graphs."""
        return self.size.width >= WIDE_ENOUGH and not self.has_class("-only-table")

    def _verdict(self, current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics]) -> Content:
        """What holds the engine back most, in one sentence."""
        metrics = value_of(current)
        if metrics is None:
            return Content("")
        first = limits(metrics, self.world.gpu, value_of(lifetime))[0]
        return fmt.safe(f" {first.summary}", fmt.TONE_STYLES[TONES[first.severity]])

    def _on_page(self, grid: GraphGrid) -> tuple[Panel, ...]:
        """The panels of this page; the last page is as full as the others."""
        first = min(self._page * grid.per_page, max(0, len(self._panels) - grid.per_page))
        return self._panels[first : first + grid.per_page]

    def _show_figures(self, grid: GraphGrid) -> None:
        """Above the graphs, on a tall terminal that can show them."""
        row, axis = self.query_one(Figures), grid.axis
        row.display = self.app.size.height >= TALL_ENOUGH and self.spark.glyphs is UNICODE and bool(self._panels)
        if row.display and axis is not None:
            row.figures = present.figures(self._panels, self._read, axis, self._cursor)
            row.renew()

    def _show_slow(self, current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics]) -> None:
        """Beside the graphs, from `WIDE_ENOUGH` columns on; below it the graphs that are on other pages, in short."""
        found = present.slow_page(current, lifetime, self.world.gpu, self.spark.glyphs.full) if self._wide else ()
        pane, page, grid = self.query_one("#slow-pane"), self.query_one("#slow", SlowPage), self.query_one(GraphGrid)
        pane.display = bool(found)
        if not found:
            return
        shown, glyphs = self._on_page(grid), self.spark.glyphs
        page.others = []
        for panel in (panel for panel in self._panels if panel not in shown):
            curve = self._read(panel.metrics[0])
            value = curve.last if self._cursor is None else curve.at(self._cursor)
            trend = partial(sparkline, curve, self._now, glyphs=glyphs, window=self._window)
            page.others.append(OtherGraph(panel.title, present.figure_text(panel.metrics[0], value), trend))
        page.show((*found, *self._clients()))

    def _clients(self) -> Sections:
        """Who asks this engine through the gateway, where one runs."""
        gateway, view = self.world.gateway, self.selected_engine
        if gateway is None or view is None:
            return ()
        caching = view.timeline.facts.prefix_caching
        return clients_page(clients_at(gateway.clients, view.name), caching=caching)

    def _show_table(self, current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics]) -> None:
        table = self.query_one(Latencies)
        if self.has_class("-no-table"):
            return
        only, glyphs = self.has_class("-only-table"), self.spark.glyphs
        sign = "+-" if glyphs is ASCII else "±"
        both = only or self.size.width >= 2 * TABLE_WIDTH + 6
        since = None if both else lifetime
        table.tables = [present.latency_table(present.window_title(current), current, sign, since=since)]
        if both:
            table.tables.append(present.latency_table("since start", lifetime, sign))
        room = table.size.width - 2 - TABLE_WIDTH - BETWEEN - present.SHARE_BESIDE
        beside = not only and room > 0 and not self._wide
        table.aside = present.request_page(current, lifetime, glyphs.full, room) if beside else ()
        table.totals = [] if self._wide else present.counted(current, lifetime)
        record = next((each for each in self.world.launches if each.name == self.spark.selected), None)
        table.nodes = (vitals_section(record, self.world.nodes),) if record is not None else ()
        table.nodes += self._clients() if only else ()
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

    def yanks(self) -> tuple[Yank, ...]:
        """Every value at the cursor, or the latest ones."""
        at = self._cursor if self._cursor is not None else self._now
        return (Yank("Values", "v", lambda: present.copied(self.spark.selected, at, self._panels, self._read)),)
