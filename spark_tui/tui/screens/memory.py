"""Memory: who holds the pool, process by process and container by container, how it went, and what guards it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content

from spark_tui.core.actions import Scope
from spark_tui.core.memory_detail import MemoryDetail
from spark_tui.domain.engine.metric_series import MetricId
from spark_tui.domain.graph_curve import Curve
from spark_tui.domain.history import Stretch
from spark_tui.domain.host.ledger import Ledger
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.severity import SERVING_FLOOR, Judgement
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import NOT_READ_YET, Reading, reason_of, value_of
from spark_tui.tui import format as fmt
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens import memory_words as words
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.widgets.graph import Graph
from spark_tui.tui.widgets.graph_picture import Subject, View
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.memory_strip import apportion
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList

DETAIL_SECONDS: Final = 3.0
"""Hundreds of files are read for it, in a thread."""
DRAW_SECONDS: Final = 15.0
"""About what one column of the shortest window stands for: sooner there is nothing new to see."""
WINDOWS: Final = ((900.0, "15 min"), (3600.0, "1 h"), (21_600.0, "6 h"))
LINES: Final = (("available", MetricId.MEMORY_AVAILABLE), ("engines", MetricId.MEMORY_ENGINES))
PAST_BUCKETS: Final = 2160
"""Of ten seconds each: so the history keeps what is older than an hour."""
SUBJECT: Final = Subject("memory", "GiB", domain=(0.0, None), alarm=SERVING_FLOOR / GIB, alarm_below=True)


class LedgerView(Line):
    """The bar to scale, and a line for each of its parts."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="ledger")
        self._glyphs = glyphs
        self.ledger: Reading[Ledger] = NOT_READ_YET
        self.memory: Reading[MemInfo] = NOT_READ_YET
        self.pressure: Reading[float] = NOT_READ_YET
        self.judgement = Judgement()

    def say(self, width: int) -> Content:
        """Bar, parts, judgement."""
        found, mem = value_of(self.ledger), value_of(self.memory)
        if found is None or mem is None:
            return fmt.safe(f"n/a: {reason_of(self.ledger)}", "$warning")
        lines = [self._bar(found, width), *words.ledger_lines(found, mem, self.pressure, width)]
        return Content("\n").join([*lines, words.judgement_line(self.judgement).truncate(width, ellipsis=True)])

    def _bar(self, found: Ledger, width: int) -> Content:
        glyphs = self._glyphs
        marks = (glyphs.engine, glyphs.apps, words.DRIVER_GLYPH, glyphs.kept, glyphs.cache, glyphs.free)
        cells = zip(marks, words.PARTS, apportion(found.sizes, width), strict=True)
        return Content.assemble(*(Content.styled(mark * count, style) for mark, (_, style), count in cells if count))


class MemoryScreen(FrameScreen):
    """Opened with `m`; Esc goes back to where it was opened."""

    SCOPE = Scope.MEMORY
    TAB = ""
    KEYS_TOO = ("drop_cache",)
    CSS_PATH = "memory.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.MEMORY)
    AUTO_FOCUS = "#processes"

    def __init__(self) -> None:
        super().__init__()
        self._detail = MemoryDetail()
        self._window = 0
        self._past: dict[MetricId, Stretch] = {}

    def compose_body(self) -> ComposeResult:
        """Left: ledger and processes. Right: the graph, and what else there is to know."""
        with VerticalScroll(id="memory-body"):
            with Vertical(id="memory-left"):
                with Container(id="ledger-pane", classes="pane") as ledger:
                    ledger.border_title = "Who holds the pool"
                    yield LedgerView(self.spark.glyphs)
                with Container(id="processes-pane", classes="pane") as processes:
                    processes.border_title = "Processes"
                    yield RowList(words.COLUMNS, words.NO_PROCESSES, titles=True, id="processes")
            with Vertical(id="memory-right"):
                with Container(id="history-pane", classes="pane") as history:
                    history.border_title = "History"
                    yield Graph(self.spark.glyphs, id="history")
                with VerticalScroll(id="side-pane", classes="pane") as side:
                    side.border_title = "Containers, guard, machine"
                    yield Page(words.LABEL_WIDTH, id="side")

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Binds the ledger to its slices; looks closer as long as it is shown."""
        for name in ("ledger", "memory", "pressure", "judgement"):
            self.bind_slice(name, partial(self._set, name))
        self.bind_slice("last_drop", lambda _: self._show_side())
        self._looking = self.set_interval(DETAIL_SECONDS, self._look)
        self._drawing = self.set_interval(DRAW_SECONDS, self._draw)
        self._look()
        self._read_past()
        self.call_after_refresh(self._draw)

    def on_screen_suspend(self) -> None:
        """Nothing ticks on a hidden screen."""
        self._looking.pause()
        self._drawing.pause()

    def on_screen_resume(self) -> None:
        """Catches up."""
        self._looking.resume()
        self._drawing.resume()
        self._look()
        self._draw()

    def _set(self, name: str, value: object) -> None:
        view = self.query_one(LedgerView)
        setattr(view, name, value)
        view.renew()

    # --- show -----------------------------------------------------------------------------------------

    @work(exit_on_error=False, exclusive=True, group="memory-detail")
    async def _look(self) -> None:
        self._detail = await self.context.memory_inspector.look()
        self.query_one("#processes", RowList).show(words.process_rows(self._detail), words.no_processes(self._detail))
        self._show_side()

    def _show_side(self) -> None:
        now = self.context.clock.now()
        self.query_one("#side", Page).tell(words.side_parts(self._detail, self.spark.last_drop, now))

    @work(exit_on_error=False, exclusive=True, group="memory-past")
    async def _read_past(self) -> None:
        """What was measured before this program was opened; a history that is off has nothing to add."""
        now = self.context.clock.now()
        metrics = [metric for _, metric in LINES]
        found = await self.context.history.series("", metrics, now - WINDOWS[-1][0], now, PAST_BUCKETS)
        self._past = {MetricId(stretch.key.metric): stretch for stretch in value_of(found) or ()}
        self._draw()

    def _draw(self) -> None:
        seconds, name = WINDOWS[self._window]
        entitle(self.query_one("#history-pane"), f"Last {name}")
        series = self.context.metrics.series
        curves = tuple(Curve(word, series("", metric, seconds), self._past.get(metric)) for word, metric in LINES)
        self.query_one(Graph).draw(SUBJECT, curves, View(self.context.clock.now(), seconds))

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Where all is in one column, the list comes into view as a person goes down it."""
        if message.row_list.has_focus and message.row_list.cursor:
            self.query_one("#processes-pane").scroll_visible(animate=False)

    # --- act ------------------------------------------------------------------------------------------

    def action_memory_window(self) -> None:
        """A longer stretch of history, and round again."""
        self._window = (self._window + 1) % len(WINDOWS)
        self._draw()

    def action_leave_memory(self) -> None:
        """Back to where it was opened."""
        self.spark.action_back_from_memory()
