"""Memory: who holds the pool, process by process and container by container, how it went, and what guards it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content

from spark_tui.core.actions import Scope, key_of
from spark_tui.core.memory import ContainerShare, GuardStatus, MemoryDetail
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.host.breakdown import EngineShare, MemoryBreakdown
from spark_tui.domain.host.drop_caches import DropResult
from spark_tui.domain.host.memory import ALL_WELL, SERVING_FLOOR, MemInfo
from spark_tui.domain.host.vitals import ContainerMemory, DiskRate, FaultRate, HostProcess, LinkRate, Vitals
from spark_tui.domain.metrics.graph import Curve
from spark_tui.domain.metrics.series import MetricId, Stretch
from spark_tui.domain.quantities import GIB, gib, human_bytes
from spark_tui.domain.reading import NOT_READ_YET, Missing, Reading, reason_of, value_of
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.graph import Graph
from spark_tui.tui.widgets.graph_picture import Subject, View
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.memory_strip import apportion
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence, told
from spark_tui.tui.widgets.row_list import Column, Row, RowList

LABEL_WIDTH = 11
DRIVER_GLYPH = "+"
PARTS = (
    ("engines", "$mem-engine"),
    ("apps", "$mem-apps"),
    ("driver", "$accent"),
    ("cache", "$mem-cache"),
    ("droppable", "$mem-cache"),
    ("free", "$mem-free"),
)
"""The ledger's parts in the order in which they are drawn."""

COLUMNS = (
    Column("process", minimum=12, maximum=44),
    Column("pid", width=7, right=True, hide_below=50),
    Column("PSS", width=8, right=True),
    Column("RSS", width=8, right=True, hide_below=70),
    Column("GPU", width=8, right=True),
    Column("container", width=17, hide_below=62),
)
NO_PROCESSES = Content.styled("Looking at processes ...", "$dim")


# --- the ledger -------------------------------------------------------------------------------------------


def ledger_lines(found: MemoryBreakdown, mem: MemInfo, pressure: Reading[float], width: int) -> list[Content]:
    """One line per part: its name, size, share of the pool, and who or what it is."""
    words = _notes(found)
    lines = []
    for (name, style), size in zip(PARTS, found.sizes, strict=True):
        unknown = (name == "engines" and found.engines is None) or (name == "driver" and found.driver is None)
        figure = "   n/a     " if unknown else f"{gib(size):>6} GiB {size / found.total:>4.0%}"
        lines.append(
            Content.assemble(
                (f"{name:<{LABEL_WIDTH}}", style if name != "free" else "$dim"),
                (f"{figure:<16}", "bold"),
                told(words[name], "$dim"),
            )
        )
    lines.append(
        Content.assemble(
            (f"{'available':<{LABEL_WIDTH}}", ""),
            (f"{gib(mem.available):>6} GiB {mem.available / mem.total:>4.0%} ", "bold"),
            ("what a new engine can count on", "$dim"),
        )
    )
    lines.append(_swap_line(mem, pressure))
    return [line.truncate(width, ellipsis=True) for line in lines]


def _notes(found: MemoryBreakdown) -> dict[str, str]:
    orphaned = f"; {gib(found.orphaned)} GiB of it held by nobody alive" if found.orphaned >= GIB // 4 else ""
    freed = f"page cache that {key_of('drop_cache')} frees"
    return {
        "engines": found.no_engines or _who(found.engines or ()),
        "apps": "processes, shared memory, kernel",
        "driver": found.no_driver or f"the GPU driver's own{orphaned}",
        "cache": "page cache that stays after a drop",
        "droppable": freed if found.droppable is not None else "the kernel does not tell",
        "free": "",
    }


def _who(shares: Iterable[EngineShare]) -> str:
    named = [f"{share.name or 'pid ' + ', '.join(map(str, share.pids))} {gib(share.memory)}" for share in shares]
    return ", ".join(named) or "no process computes on the GPU"


def _swap_line(mem: MemInfo, pressure: Reading[float]) -> Content:
    waiting = value_of(pressure)
    told_pressure = reason_of(pressure) if waiting is None else f"{waiting:.1f} % of 10 s waited"
    figure, whole = f"{'none':>6}", ""
    if mem.swap_total:
        figure = f"{gib(mem.swap_used):>6} GiB {mem.swap_used / mem.swap_total:>4.0%}"
        whole = f"of {gib(mem.swap_total)} GiB; "
    return Content.assemble(
        f"{'swap':<{LABEL_WIDTH}}", (f"{figure:<16}", "bold"), told(f"{whole}PSI {told_pressure}", "$dim")
    )


_LEVELS = {
    Severity.OK: ("OK", "$success"),
    Severity.WARNING: ("TIGHT", "bold $warning"),
    Severity.ERROR: ("CRITICAL", "bold $error"),
}


def state_line(state: Finding) -> Content:
    """`OK`, or `TIGHT  3.0 GiB usable, close to the floor of 2.0`."""
    word, style = _LEVELS[state.severity]
    return Content.assemble((f"{word:<{LABEL_WIDTH}}", style), fmt.safe(state.summary, "$dim"))


# --- processes --------------------------------------------------------------------------------------------


def process_rows(detail: MemoryDetail) -> list[Row]:
    """One row each, the heaviest first."""
    names = {share.id: share.name for share in detail.containers}
    return [_process_row(each, names) for each in value_of(detail.processes) or ()]


def _process_row(process: HostProcess, names: dict[str, str]) -> Row:
    container = names.get(process.container, process.container[:12])
    return Row(
        str(process.pid),
        (
            fmt.safe(process.name),
            Content.styled(str(process.pid), "$dim"),
            _size(process.pss),
            _size(process.rss, "$dim"),
            _size(process.gpu, "$mem-engine"),
            fmt.safe(container, "$secondary"),
        ),
    )


def _size(size: int | None, style: str = "") -> Content:
    """`78.2 GiB`, `612 MiB`; `-` where it is not known or nothing."""
    return Content.styled(human_bytes(size), style) if size else Content.styled("-", "$dim")


def no_processes(detail: MemoryDetail) -> Content:
    """Why there are none."""
    why = reason_of(detail.processes)
    return NO_PROCESSES if why in ("", "not read yet") else fmt.safe(why, "$warning")


# --- beside it --------------------------------------------------------------------------------------------


def side_parts(detail: MemoryDetail, last_drop: DropResult | None, now: float) -> list[Part]:
    """Containers, guard, last drop, machine."""
    return [
        *_container_parts(detail.containers),
        BLANK,
        *_guard_parts(detail.guard, now),
        BLANK,
        *_drop_parts(last_drop),
        BLANK,
        *_vital_parts(detail.vitals),
    ]


def _field(label: str, value: str, style: str = "") -> Part:
    return Content.styled(f"{label:<{LABEL_WIDTH}}", "$dim"), told(value, style)


def _container_parts(shares: tuple[ContainerShare, ...]) -> list[Part]:
    parts = [sentence("Containers", "bold")]
    for share in shares:
        gpu = "GPU n/a" if share.gpu is None else f"GPU {gib(share.gpu)} GiB"
        whose = "" if share.ours else "  (not started by spark-tui)"
        parts.append(sentence(f"{share.name}: {gpu}, {_charged(share.cpu)}{whose}", bullet="- "))
    return parts if shares else [*parts, sentence("No engine runs.", "$dim")]


def _charged(cpu: Reading[ContainerMemory]) -> str:
    found = value_of(cpu)
    if found is None:
        return f"CPU n/a: {reason_of(cpu)}"
    swap = f", swap {human_bytes(found.swap)}" if found.swap else ""
    cache = f" ({human_bytes(found.file)} of it page cache)" if found.file else ""
    return f"CPU {human_bytes(found.current)}{cache}{swap}"


def _guard_parts(guard: Reading[GuardStatus], now: float) -> list[Part]:
    standing = value_of(guard)
    if standing is None:
        return [_field("guard", reason_of(guard), "$dim")]
    if standing.running:
        parts = [_field("guard", "runs: it stops an engine before memory runs out", "$success")]
    else:
        parts = [_field("guard", "does not run; a launch starts one. For good: spark-tui guard --install", "$warning")]
    last = standing.last
    if last is not None:
        whose = f" {last.engine}" if last.engine else ""
        when = f"{fmt.ago(now - last.at)}, {fmt.day_and_time(last.at)}"
        parts.append(_field("last act", f"{when}: {last.act}{whose}: {last.reason}"))
    return parts


def _drop_parts(drop: DropResult | None) -> list[Part]:
    if drop is None:
        none = f"none since spark-tui was opened; {key_of('drop_cache')} frees the page cache"
        return [_field("last drop", none, "$dim")]
    rows = (("free", drop.before.free, drop.after.free), ("cache", drop.before.cache, drop.after.cache))
    figures = ", ".join(f"{name} {gib(before)} -> {gib(after)} GiB" for name, before, after in rows)
    return [_field("last drop", drop.sentence), _field("", figures, "$dim")]


def _vital_parts(vitals: Vitals) -> list[Part]:
    loads = "  ".join(f"{each.name} {each.percent:.0f} % of {each.cpus}" for each in value_of(vitals.clusters) or ())
    heat = "  ".join(
        f"{each.name} {each.celsius:.0f} C" + (f" (off at {each.limit:.0f})" if each.limit else "")
        for each in value_of(vitals.temperatures) or ()
    )
    disks = "  ".join(_disk(each) for each in value_of(vitals.disks) or ())
    links = "  ".join(_link(each) for each in value_of(vitals.links) or () if each.up)
    return [
        sentence("Machine", "bold"),
        _reading("processors", loads, vitals.clusters),
        _reading("heat", heat, vitals.temperatures),
        _reading("disk", disks, vitals.disks),
        _reading("network", links or "no link is up", vitals.links),
        _reading("faults", _faults(value_of(vitals.faults)), vitals.faults),
    ]


def _reading(label: str, text: str, reading: Reading[Any]) -> Part:
    if isinstance(reading, Missing):
        return _field(label, f"n/a: {reading.reason}", "$dim")
    return _field(label, text)


def _disk(disk: DiskRate) -> str:
    return f"{disk.name} reads {_rate(disk.read)}, writes {_rate(disk.written)}, busy {disk.busy_percent:.0f} %"


def _link(link: LinkRate) -> str:
    return f"{link.name} in {_rate(link.received)}, out {_rate(link.sent)}"


def _faults(faults: FaultRate | None) -> str:
    if faults is None:
        return ""
    killed = f", the kernel has ended {faults.oom_kills} for memory since boot" if faults.oom_kills else ""
    return f"{faults.major:.0f} major/s, swap in {faults.swapped_in:.0f}/s, out {faults.swapped_out:.0f}/s{killed}"


def _rate(rate: float) -> str:
    """Coarse: a quiet machine's crumbs are not repainted each time."""
    return "0" if rate < 10_240 else f"{human_bytes(rate)}/s"


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
        self.breakdown: Reading[MemoryBreakdown] = NOT_READ_YET
        self.memory: Reading[MemInfo] = NOT_READ_YET
        self.pressure: Reading[float] = NOT_READ_YET
        self.memory_state = ALL_WELL

    def say(self, width: int) -> Content:
        """Bar, parts, state."""
        found, mem = value_of(self.breakdown), value_of(self.memory)
        if found is None or mem is None:
            return fmt.safe(f"n/a: {reason_of(self.breakdown)}", "$warning")
        lines = [self._bar(found, width), *ledger_lines(found, mem, self.pressure, width)]
        return Content("\n").join([*lines, state_line(self.memory_state).truncate(width, ellipsis=True)])

    def _bar(self, found: MemoryBreakdown, width: int) -> Content:
        glyphs = self._glyphs
        marks = (glyphs.engine, glyphs.apps, DRIVER_GLYPH, glyphs.kept, glyphs.cache, glyphs.free)
        cells = zip(marks, PARTS, apportion(found.sizes, width), strict=True)
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
                    yield RowList(COLUMNS, NO_PROCESSES, titles=True, id="processes")
            with Vertical(id="memory-right"):
                with Container(id="history-pane", classes="pane") as history:
                    history.border_title = "History"
                    yield Graph(self.spark.glyphs, id="history")
                with VerticalScroll(id="side-pane", classes="pane") as side:
                    side.border_title = "Containers, guard, machine"
                    yield Page(LABEL_WIDTH, id="side")

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Binds the ledger to its slices; looks closer as long as it is shown."""
        for name in ("breakdown", "memory", "pressure", "memory_state"):
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
        self.query_one("#processes", RowList).show(process_rows(self._detail), no_processes(self._detail))
        self._show_side()

    def _show_side(self) -> None:
        now = self.context.clock.now()
        self.query_one("#side", Page).tell(side_parts(self._detail, self.spark.last_drop, now))

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
