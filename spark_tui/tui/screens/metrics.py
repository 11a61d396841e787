"""Metrics: the selected engine's curves and the box's, their latencies as a table, and a cursor that reads both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
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
from spark_tui.domain.metrics.graph import WINDOWS, Curve, clock_text, seconds_text, window_text
from spark_tui.domain.metrics.quantiles import Latency, Quantile
from spark_tui.domain.metrics.series import MetricId, Sample, Stretch
from spark_tui.domain.metrics.serving import EngineMetrics
from spark_tui.domain.quantities import GIB, human_duration
from spark_tui.domain.reading import Missing, Reading, Stale, value_of
from spark_tui.domain.text import clean_line
from spark_tui.tui import format as fmt
from spark_tui.tui.format import ASCII
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.graph import Chart, GraphGrid
from spark_tui.tui.widgets.graph_picture import Subject, View, kinds_for
from spark_tui.tui.widgets.line import Line, hanging, packed, spread

if TYPE_CHECKING:
    from spark_tui.core.metrics import Attention


Read = Callable[[MetricId], Curve]
"""What is known of a series; the name is the graph's to give."""

KV_FULL_PERCENT: Final = 90.0
"""Near its end the KV cache preempts requests."""
HOT_CELSIUS: Final = 90.0
"""Loaded GB10s were seen at up to 86 C; the board trips at 104.8 C."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph of the screen: its series, and the name of each where there are two."""

    title: str
    metrics: tuple[MetricId, ...]
    names: tuple[str, ...] = ("",)
    alarm: float | None = None
    domain: tuple[float, float | None] | None = None

    @property
    def subject(self) -> Subject:
        """What the graph is about."""
        first = self.metrics[0]
        return Subject(self.title, first.unit, self.domain or first.domain, first.decimals, self.alarm)


PANELS: Final = (
    Panel("decode", (MetricId.DECODE_RATE,)),
    Panel("TTFT", (MetricId.TTFT_P50, MetricId.TTFT_P95), ("p50", "p95")),
    Panel("requests", (MetricId.RUNNING, MetricId.WAITING), ("running", "waiting")),
    Panel("KV cache", (MetricId.KV_USAGE,), alarm=KV_FULL_PERCENT),
    Panel("prefill", (MetricId.PREFILL_RATE,)),
    Panel("inter-token", (MetricId.ITL_P50, MetricId.ITL_P95), ("p50", "p95")),
    Panel("memory", (MetricId.MEMORY_IN_USE, MetricId.MEMORY_ENGINES), ("used", "engines")),
    Panel("GPU", (MetricId.GPU_UTILIZATION,)),
    Panel("power", (MetricId.GPU_POWER,)),
    Panel("SM clock", (MetricId.GPU_CLOCK,)),
    Panel("temperature", (MetricId.GPU_TEMPERATURE,), alarm=HOT_CELSIUS, domain=(0.0, 100.0)),
    Panel("drafts accepted", (MetricId.ACCEPTANCE,)),
    Panel("accepted length", (MetricId.ACCEPTED_LENGTH,)),
    Panel("prefix hits", (MetricId.PREFIX_HITS,)),
    Panel("end to end", (MetricId.E2E_P50, MetricId.E2E_P95), ("p50", "p95")),
    Panel("queue", (MetricId.QUEUE_P50, MetricId.QUEUE_P95), ("p50", "p95")),
    Panel("finished/min", (MetricId.FINISHED_RATE, MetricId.FAILED_RATE), ("all", "failed")),
    Panel("preemptions", (MetricId.PREEMPTION_RATE,)),
    Panel("waiting", (MetricId.WAITING_CAPACITY, MetricId.WAITING_DEFERRED), ("capacity", "deferred")),
    Panel("energy", (MetricId.ENERGY,)),
)
"""In the order of a person's questions: is it fast, does it queue, does it fit, what does the box do, why."""


def panels_with(memory_total: int | None, floor_bytes: int) -> tuple[Panel, ...]:
    """The panels, the memory's drawn to the whole pool with an alarm where the guard's floor begins."""
    if memory_total is None:
        return PANELS
    total = memory_total / GIB
    alarm = total - floor_bytes / GIB
    return tuple(
        replace(panel, domain=(0.0, total), alarm=alarm) if panel.title == "memory" else panel for panel in PANELS
    )


def existing(panels: Sequence[Panel], read: Read) -> tuple[Panel, ...]:
    """The panels of which there is something to draw; a curve without any value is left out of its graph."""
    found = []
    for panel in panels:
        pairs = [pair for pair in zip(panel.metrics, panel.names, strict=True) if read(pair[0]).has_values]
        if pairs and pairs[0][0] is panel.metrics[0]:
            found.append(replace(panel, metrics=tuple(m for m, _ in pairs), names=tuple(n for _, n in pairs)))
    return tuple(found)


def chart(panel: Panel, read: Read) -> Chart:
    """A panel with what is known now."""
    pairs = zip(panel.names, panel.metrics, strict=True)
    return Chart(panel.subject, tuple(replace(read(metric), name=name) for name, metric in pairs))


# --- the line on top --------------------------------------------------------------------------------------


def heading(view: EngineView | None, window: float, page: int, pages: int) -> Content:
    """` qwen36  SERVING   1 m [5 m] 15 m 1 h 6 h   page 1/3`: the window in use is in brackets."""
    who = (
        Content.assemble(fmt.safe(f" {view.name}", "bold"), "  ", fmt.state(view))
        if view is not None
        else Content.styled(" no engine: the box alone", "$dim")
    )
    parts: list[Content | tuple[str, str]] = [who, ("   ", "")]
    for seconds in WINDOWS:
        here = seconds == window
        text = f"[{window_text(seconds)}]" if here else f" {window_text(seconds)} "
        parts.append((text, "bold $primary" if here else "$dim"))
    if pages > 1:
        parts.append((f"   page {page + 1}/{pages}", "$dim"))
    return Content.assemble(*parts)


def pace(paused_at: float | None, zone: tzinfo | None = None, *, simulated: bool = False) -> Content:
    """Whether what is seen is now; of a demo, that it and all before it is made up."""
    if paused_at is None:
        return Content.styled("simulated, live " if simulated else "live ", "$warning" if simulated else "$success")
    on = f"{key_of('pause_metrics')} goes on"
    return Content.styled(f"PAUSED at {clock_text(paused_at, zone)}, {on} ", "bold $warning")


# --- the line below ---------------------------------------------------------------------------------------


def cursor_words(cursor: float, now: float, gap: str, zone: tzinfo | None = None) -> Content:
    """The time that is read, and why there is nothing to read where nothing is."""
    line = Content.assemble(
        (f" at {clock_text(cursor, zone)}", "bold"), (f"   {fmt.ago(now - cursor)}   Esc goes back to now", "$dim")
    )
    return Content.assemble(line, "   ", fmt.safe(f"no values: {gap}", "$warning")) if gap else line


def gap_words(curves: Iterable[Curve], begin: float, zone: tzinfo | None = None) -> Content:
    """The latest gap and the latest new start in view, in words; else how to read values."""
    curves = tuple(curves)
    shown = {(gap.begin, gap.reason): gap for curve in curves for gap in curve.gaps if gap.end >= begin}
    anew = {time for curve in curves for time in curve.restarts if time >= begin}
    parts = []
    if shown:
        gap = max(shown.values(), key=lambda gap: gap.end)
        more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        lasted = human_duration(max(1.0, gap.end - gap.begin))
        parts.append(fmt.safe(f" no values at {clock_text(gap.begin, zone)} for {lasted}: {gap.reason}{more}", "$dim"))
    if anew:
        parts.append(Content.styled(f" R: the engine started anew at {clock_text(max(anew), zone)}", "$dim"))
    return Content.assemble(*parts) if parts else Content.styled(" Left and Right read the values at a time", "$dim")


def trouble_words(view: EngineView | None, current: Reading[EngineMetrics]) -> Content | None:
    """Why an engine's own graphs stand still or are not there; None when they move."""
    if view is None:
        return Content.styled(" No engine is selected: 3 chooses a preset, 1 shows what runs.", "$dim")
    if isinstance(current, Stale):
        return fmt.safe(f" No answer: {current.error}", "$warning")
    if not isinstance(current, Missing):
        return None
    if view.state is EngineState.STARTING:
        return fmt.safe(f" {view.name} is starting: its metrics come when it serves.", "$dim")
    return fmt.safe(f" {view.name} has no metrics: {current.reason}", "$warning")


def nothing(view: EngineView | None) -> Content:
    """Stands where the graphs would be while there are no values at all."""
    if view is None:
        do = f"{key_of('show_presets')} chooses a preset to launch; {key_of('show_home')} shows what runs."
    elif view.state is EngineState.STARTING:
        do = f"Wait until it serves; {key_of('show_logs')} shows its log."
    else:
        do = f"{key_of('show_logs')} shows its log; {key_of('restart')} on Home starts it again."
    return Content.assemble(("Nothing is measured yet.", "bold"), "\n\n", (do, "$dim"))


# --- the table --------------------------------------------------------------------------------------------

LATENCIES: Final = (("TTFT", "ttft"), ("inter-token", "itl"), ("end to end", "e2e"), ("queue", "queue"))
LABEL: Final = 13
_CELL, _MEAN, _COUNT = 15, 10, 9
TABLE_WIDTH: Final = LABEL + 3 * _CELL + _MEAN + _COUNT


def latency_table(title: str, reading: Reading[EngineMetrics], sign: str = "±") -> list[Content]:
    """One line of titles, one per kind of latency: `320 ±12 ms`, for the bucket tells how far off it can be."""
    head = f"{title:<{LABEL}}" + "".join(f"{name:>{_CELL}}" for name in ("p50", "p95", "p99"))
    lines = [Content.styled(head + f"{'mean':>{_MEAN}}{'count':>{_COUNT}}", "$dim")]
    metrics = value_of(reading)
    for label, field in LATENCIES:
        found: Reading[Latency] = Missing("") if metrics is None else getattr(metrics, field)
        if isinstance(found, Missing):
            lines.append(Content.assemble((f"{label:<{LABEL}}", "$dim"), fmt.safe(found.reason or "-", "$dim")))
        else:
            lines.append(_latency_line(label, found.value, sign))
    return lines


def _latency_line(label: str, latency: Latency, sign: str) -> Content:
    cells = "".join(f"{quantile_text(q, sign):>{_CELL}}" for q in (latency.p50, latency.p95, latency.p99))
    mean = "-" if latency.mean is None else seconds_text(latency.mean)
    return Content.assemble(
        (f"{label:<{LABEL}}", "$dim"), cells, (f"{mean:>{_MEAN}}{latency.count:>{_COUNT},}", "$dim")
    )


def quantile_text(quantile: Quantile, sign: str = "±") -> str:
    """`320 ±12 ms`, `1.83 s ±825 ms`; in the last, open bucket only its foot is known: `over 80 s`."""
    if math.isinf(quantile.high):
        return f"over {seconds_text(quantile.low)}"
    value, error = seconds_text(quantile.value), seconds_text(quantile.error)
    unit = f" {error.rpartition(' ')[2]}"
    return f"{value.removesuffix(unit) if value.endswith(unit) else value} {sign}{error}"


def totals(current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics]) -> list[Content]:
    """What the server has counted: how requests ended, how far guesses are right, what the cache holds."""
    now, ever = value_of(current), value_of(lifetime)
    parts = []
    if ever is not None and (total := value_of(ever.finished_count)) is not None:
        reasons = ", ".join(f"{clean_line(reason)} {count:,.0f}" for reason, count in ever.finished if count)
        parts.append(("finished", f"{total:,.0f}" + (f" ({reasons})" if reasons else "")))
    drafting = value_of(now.drafting) if now is not None else None
    if drafting is not None and drafting.positions:
        parts.append(("drafts by position", " ".join(f"{share:.0%}" for share in drafting.positions)))
    if now is not None and (capacity := value_of(now.kv_capacity_tokens)) is not None:
        parts.append(("KV cache", f"{capacity:,} tokens"))
    if ever is not None and (preempted := value_of(ever.preemptions_ever)) is not None:
        parts.append(("preemptions", f"{preempted:,.0f}"))
    return [Content.assemble((f"{label} ", "$dim"), fmt.safe(value)) for label, value in parts]


def window_title(metrics: Reading[EngineMetrics]) -> str:
    """`last 60s`."""
    known = value_of(metrics)
    return "last look" if known is None or not known.seconds else f"last {human_duration(known.seconds)}"


def not_drawn(panels: Sequence[Panel], shown: Sequence[Panel], read: Read) -> list[tuple[Content, Content]]:
    """The graphs that are not there, and why: a label, and what is told of one reason."""
    titles = {panel.title for panel in shown}
    by_reason: dict[str, list[str]] = {}
    for panel in panels:
        if panel.title not in titles:
            reason = read(panel.metrics[0]).series.reason or "no value in the last six hours"
            by_reason.setdefault(reason, []).append(panel.title)
    return [
        (
            Content.styled("not drawn", "$dim"),
            Content.assemble(fmt.safe(", ".join(names)), fmt.safe(f": {reason}", "$dim")),
        )
        for reason, names in by_reason.items()
    ]


def notes(reading: Reading[EngineMetrics]) -> list[tuple[Content, Content]]:
    """What the figures are not."""
    metrics = value_of(reading)
    return [(Content.styled("note", "$dim"), fmt.safe(note, "$dim")) for note in metrics.notes] if metrics else []


# --- copying ----------------------------------------------------------------------------------------------


def copied(name: str, at: float, panels: Sequence[Panel], read: Read) -> str:
    """Values at a time as lines of `name<TAB>value`, named as `--json` names them; a first line says of what.

    What was not known then is left out.
    """
    lines = [f"# {clean_line(name) or 'host'} {datetime.fromtimestamp(at).astimezone().isoformat(timespec='seconds')}"]
    for metric in dict.fromkeys(metric for panel in panels for metric in panel.metrics):
        value = read(metric).at(at)
        if value is not None and math.isfinite(value):
            lines.append(f"{metric.value}\t{value:.6g}")
    return "\n".join(lines)


BETWEEN = 4
"""Cells between two tables beside each other."""


class Words(Line):
    """One line: words at its two ends."""

    def __init__(self, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.left = Content("")
        self.right = Content("")

    def say(self, width: int) -> Content:
        """One line."""
        return spread(self.left, self.right, width)


class Latencies(Line):
    """Quantiles of the last minute; beside them those since the server's start, where there is room."""

    def __init__(self) -> None:
        super().__init__(id="latencies")
        self.tables: list[list[Content]] = []
        self.totals: list[Content] = []
        self.more: list[tuple[Content, Content]] = []

    def say(self, width: int) -> Content:
        """The tables, what was counted since the start, and what is not drawn."""
        beside = len(self.tables) > 1 and width >= 2 * TABLE_WIDTH + BETWEEN
        if beside:
            rows = zip(*self.tables, strict=True)
            lines = [
                Content.assemble(left, " " * max(2, TABLE_WIDTH + BETWEEN - left.cell_length), right)
                for left, right in rows
            ]
        else:
            lines = [line for table in self.tables for line in (*table, Content(""))][:-1]
        lines += packed(self.totals, Content(" " * BETWEEN), width)
        lines = [line.truncate(width, ellipsis=True) for line in lines]
        if self.more:
            lines += [Content(""), *(line for label, text in self.more for line in hanging(label, text, LABEL, width))]
        return Content("\n").join(lines)


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
        self._panels: tuple[Panel, ...] = ()
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

    def _all_panels(self) -> tuple[Panel, ...]:
        memory = value_of(self.spark.memory)
        return panels_with(memory.total if memory else None, self.context.guard_policy.serving_floor)

    def _find_panels(self) -> None:
        """Which graphs there are, asked every few seconds."""
        name, now = self.spark.selected, self.context.clock.monotonic()
        if self._looked[0] != name or not self._panels or now - self._looked[1] >= EXISTING_SECONDS:
            self._looked = name, now
            self._panels = existing(self._all_panels(), self._read_all)

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
            charts = [chart(panel, self._read) for panel in self._panels[first : first + grid.per_page]]
            grid.draw(charts, View(self._now, self._window, self._cursor))
            self._curves = tuple(curve for chart in charts for curve in chart.curves)
        self._show_words(grid)
        self._show_table()
        if not self._panels:
            self.query_one("#nothing", Static).update(nothing(self.selected_engine))

    def _show_words(self, grid: GraphGrid) -> None:
        bar, status = self.query_one("#metrics-bar", Words), self.query_one("#metrics-status", Words)
        pages = 1 if self.has_class("-only-table") else grid.pages(len(self._panels))
        bar.left = heading(self.selected_engine, self._window, self._page, pages)
        bar.right = pace(self._paused, simulated=self.context.demo)
        bar.renew()
        trouble = trouble_words(self.selected_engine, self.context.metrics.current(self.spark.selected))
        if self._cursor is not None:
            gap = next(filter(None, (curve.gap_at(self._cursor) for curve in self._curves)), "")
            status.left = cursor_words(self._cursor, self._now, gap)
        elif trouble is not None and self._paused is None:
            status.left = trouble
        else:
            axis = grid.axis
            begin = axis.begin if axis is not None else self._now - self._window
            status.left = gap_words(self._curves, begin)
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
        table.tables = [latency_table(window_title(current), current, sign)]
        if only or self.size.width >= 2 * TABLE_WIDTH + 6:
            table.tables.append(latency_table("since start", lifetime, sign))
        table.totals = totals(current, lifetime)
        table.more = [*notes(current), *not_drawn(self._all_panels(), self._panels, self._read_all)] if only else []
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
        text = copied(self.spark.selected, at, self._panels, self._read)
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied {text.count(chr(10))} values.", markup=False, timeout=3)

    def action_metrics_of_next(self) -> None:
        """The next engine."""
        names = [view.name for view in self.engines()]
        if names:
            here = names.index(self.spark.selected) if self.spark.selected in names else -1
            self.spark.selected = names[(here + 1) % len(names)]
