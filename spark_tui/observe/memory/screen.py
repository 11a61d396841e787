"""Memory: what holds unified memory, by part, process and container; its history, and the guard."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.finding import NOT_READ_YET, Reading, reason_of, value_of
from spark_tui.base.graph import Curve
from spark_tui.base.host.memory import ALL_WELL, SERVING_FLOOR, MemInfo, MemoryBreakdown
from spark_tui.base.host.series import MetricId, SeriesSlice
from spark_tui.base.page import TONES
from spark_tui.base.quantities import GIB, human_bytes
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.memory import show as present
from spark_tui.observe.memory.use.memory import DropPlan, MemoryDetail, MemoryInspector
from spark_tui.observe.metrics.use.history import PAST_BUCKETS, History
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.list_screen import go
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.graph import Graph
from spark_tui.tui.widgets.graph_picture import GraphView, Subject
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.memory_strip import bar
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.tui.yank import Yank

DETAIL_SECONDS: Final = 3.0
"""Hundreds of files are read for it, in a thread."""
DRAW_SECONDS: Final = 15.0
"""About one column of the shortest window: sooner there is nothing new to see."""
WINDOWS: Final = ((900.0, "15 min"), (3600.0, "1 h"), (21_600.0, "6 h"))
LINES: Final = (("available", MetricId.MEMORY_AVAILABLE), ("engines", MetricId.MEMORY_ENGINES))
SUBJECT: Final = Subject("memory", "GiB", domain=(0.0, None), alarm=SERVING_FLOOR / GIB, alarm_below=True)
PART_STYLES: Final = ("$mem-engine", "$mem-apps", "$accent", "$mem-cache", "$mem-cache", "$mem-free")
DRIVER_GLYPH: Final = "+"
LABEL_WIDTH: Final = 11
UNCHANGED = "Available memory stays the same; CUDA sees more free memory."


def free_cache_question(plan: DropPlan) -> ConfirmScreen | None:
    """What a person must agree to before the page cache is freed; None where nothing has to be asked."""
    words = [plan.warning] if plan.warning else []
    if plan.route is None:
        if plan.consent is not None:
            words.append(f"Needs root: a short-lived container of {plan.consent.image} does it.")
        elif plan.terminal is not None:
            words.append("Needs root: sudo asks for your password on this terminal. spark-tui never sees it.")
        words.append("To allow it permanently: spark-tui drop-caches --install")
    if not words:
        return None
    title = f"Free about {human_bytes(plan.droppable)} of page cache?" if plan.droppable else "Free the page cache?"
    return ConfirmScreen(title, "\n".join([UNCHANGED, *words]), verb="Free")


class Breakdown(Line):
    """The bar to scale, and a line for each of its parts."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="breakdown")
        self._glyphs = glyphs
        self.breakdown: Reading[MemoryBreakdown] = NOT_READ_YET
        self.memory: Reading[MemInfo] = NOT_READ_YET
        self.pressure: Reading[float] = NOT_READ_YET
        self.memory_state = ALL_WELL

    def say(self, width: int) -> Content:
        found, mem, glyphs = value_of(self.breakdown), value_of(self.memory), self._glyphs
        if found is None or mem is None:
            return fmt.safe(f"n/a: {reason_of(self.breakdown)}", "$warning")
        marks = (glyphs.engine, glyphs.apps, DRIVER_GLYPH, glyphs.kept, glyphs.cache, glyphs.free)
        lines = [Content.assemble(*bar(marks, PART_STYLES, found.sizes, width))]
        parts = present.memory_parts(found, mem, self.pressure, drop_key=key_of("drop_cache"))
        for number, part in enumerate(parts):
            style = PART_STYLES[number] if number < len(PART_STYLES) - 1 else "$dim" if part.name == "free" else ""
            label = (f"{part.name:<{LABEL_WIDTH}}", style)
            lines.append(Content.assemble(label, (f"{part.figure:<16}", "bold"), fmt.safe(part.note, "$dim")))
        tone = fmt.TONE_STYLES[TONES[self.memory_state.severity]]
        lines.append(fmt.safe(present.state_text(self.memory_state), tone))
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)


class MemoryScreen(FrameScreen):
    """Opened with `m`; Esc goes back to where it was opened."""

    SCOPE = Scope.MEMORY
    TAB = ""
    KEYS_TOO = ("drop_cache",)
    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.MEMORY)
    AUTO_FOCUS = "#processes"

    def __init__(self) -> None:
        super().__init__()
        self._detail = MemoryDetail()
        self._window = 0
        self._past: dict[MetricId, SeriesSlice] = {}

    def compose_body(self) -> ComposeResult:
        """Left: breakdown and processes. Right: the graph, containers, guard, machine."""
        with VerticalScroll(id="memory-body"):
            with Vertical(id="memory-left"):
                with Container(id="breakdown-pane", classes="pane") as breakdown:
                    breakdown.border_title = "Memory by owner"
                    yield Breakdown(self.spark.glyphs)
                with Container(id="processes-pane", classes="pane") as processes:
                    processes.border_title = "Processes"
                    yield RowList(titles=True, id="processes")
            with Vertical(id="memory-right"):
                with Container(id="history-pane", classes="pane") as history:
                    history.border_title = "History"
                    yield Graph(self.spark.glyphs, id="history")
                with VerticalScroll(id="side-pane", classes="pane") as side:
                    side.border_title = "Containers, guard, machine"
                    yield Page(id="side")

    def on_mount(self) -> None:
        """Binds the breakdown to its slices; reads details as long as it is shown."""
        for name in ("breakdown", "memory", "pressure", "memory_state"):
            self.bind_slice(name, partial(self._set, name))
        self.bind_slices(("last_drop",), self._show_side)
        self._looking = self.set_interval(DETAIL_SECONDS, self._look)
        self._drawing = self.set_interval(DRAW_SECONDS, self._draw)
        self.query_one("#processes", RowList).show_table(present.processes_table(self._detail))
        self._look()
        self._read_past()
        self.call_after_refresh(self._draw)

    def on_screen_suspend(self) -> None:
        """Nothing ticks on a hidden screen."""
        self._looking.pause()
        self._drawing.pause()

    def on_screen_resume(self) -> None:
        self._looking.resume()
        self._drawing.resume()
        self._look()
        self._draw()

    def _set(self, name: str, value: object) -> None:
        view = self.query_one(Breakdown)
        setattr(view, name, value)
        view.renew()

    @work(exit_on_error=False, exclusive=True, group="memory-detail")
    async def _look(self) -> None:
        self._detail = await self.context[MemoryInspector].look()
        self.query_one("#processes", RowList).show_table(present.processes_table(self._detail))
        self._show_side()

    def _show_side(self) -> None:
        page = present.detail_page(self._detail, self.world.last_drop, drop_key=key_of("drop_cache"))
        self.query_one("#side", Page).show(page)

    @work(exit_on_error=False, exclusive=True, group="memory-past")
    async def _read_past(self) -> None:
        """Samples from before this program was opened; none where the history is off."""
        now = self.context.clock.now()
        metrics = [metric for _, metric in LINES]
        found = await self.context[History].series("", metrics, now - WINDOWS[-1][0], now, PAST_BUCKETS)
        self._past = {MetricId(stretch.key.metric): stretch for stretch in value_of(found) or ()}
        self._draw()

    def _draw(self) -> None:
        seconds, name = WINDOWS[self._window]
        entitle(self.query_one("#history-pane"), f"Last {name}")
        series = self.context[EngineMetricsCollector].series
        curves = tuple(Curve(label, series("", metric, seconds), self._past.get(metric)) for label, metric in LINES)
        self.query_one(Graph).draw(SUBJECT, curves, GraphView(self.context.clock.now(), seconds))

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """The footer follows the process. In one column, the list comes into view as a person goes down it."""
        if message.row_list.has_focus and message.row_list.cursor:
            self.query_one("#processes-pane").scroll_visible(animate=False)
        self.name_keys()

    def yanks(self) -> tuple[Yank, ...]:
        return (Yank("Breakdown", "b", self._breakdown_text),)

    def _breakdown_text(self) -> str:
        """The parts as lines of `name<TAB>figure<TAB>note`."""
        view = self.query_one(Breakdown)
        found, mem = value_of(view.breakdown), value_of(view.memory)
        parts = () if found is None or mem is None else present.memory_parts(found, mem, view.pressure)
        return "\n".join("\t".join((part.name, part.figure, part.note)) for part in parts)

    def offers(self, id_: str) -> bool:
        """Only a process in an engine's container can be stopped with its engine."""
        return bool(self._engine_here) if id_ == "stop_owner" else super().offers(id_)

    @property
    def _engine_here(self) -> str:
        """The engine whose process is under the cursor; empty where it is none."""
        key = self.query_one("#processes", RowList).key
        found = next((each for each in value_of(self._detail.processes) or () if str(each.pid) == key), None)
        views = (
            view for view in self.world.known(ENGINES) if found is not None and view.container.id == found.container
        )
        return next((view.name for view in views), "")

    async def action_stop_owner(self) -> None:
        """Stops the engine of the process, after asking."""
        if name := self._engine_here:
            await go(self.spark, "home", "stop", engine=name)
        else:
            self.notify("No engine owns this process.", markup=False)

    def action_memory_window(self) -> None:
        self._window = (self._window + 1) % len(WINDOWS)
        self._draw()

    def action_leave_memory(self) -> None:
        self.spark.show_aside("memory")
