"""The Bench screen's ground: the list of runs, the pages of one, and the measurement that is under way.

The measurement belongs to the screen and goes on while another one is shown. It is painted once a second at most.
"""

from __future__ import annotations

import asyncio
from typing import Final

from textual import work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, TabbedContent, TabPane

from spark_tui.core.bench_progress import BenchProgress
from spark_tui.domain.bench.compare import Comparison, compare
from spark_tui.domain.bench.plan import BenchPlan
from spark_tui.domain.bench.result import Result
from spark_tui.domain.bench.run import BenchRun
from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.screens import bench_beside as beside
from spark_tui.tui.screens import bench_pages as pages
from spark_tui.tui.screens import bench_words as words
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.widgets.bench_curve import BenchCurve, Curves
from spark_tui.tui.widgets.figures import Figures
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.page import Page, Part, sentence
from spark_tui.tui.widgets.row_list import Row, RowList

PAINT_SECONDS: Final = 1.0
"""A measurement reports several times a second; a person over SSH needs it once."""
AGE_SECONDS: Final = 30.0
"""How old the words on age may be."""
MAX_TITLE: Final = 80


class ProgressLine(Line):
    """How far the measurement is; away while none is under way."""

    def __init__(self, glyphs: Glyphs, *, simulated: bool) -> None:
        super().__init__(id="progress")
        self._glyphs = glyphs
        self._simulated = simulated
        self.progress: BenchProgress | None = None
        self.stopping = False
        self.display = False

    def say(self, width: int) -> Content:
        """A bar, and what is sent just now."""
        lines = words.progress_lines(
            self.progress, self._glyphs, width, stopping=self.stopping, simulated=self._simulated
        )
        return Content("\n").join(lines)


class BenchGround(FrameScreen):
    """Shows what was measured and what is being measured. What keys do is in bench.py."""

    def compose_body(self) -> ComposeResult:
        """Runs on the left, the pages of one on the right; one above the other when it is narrow."""
        glyphs = self.spark.glyphs
        with Horizontal(id="columns"):
            with Container(id="list-pane", classes="pane") as pane:
                pane.border_title = "Runs"
                yield Input(placeholder="filter: model, engine, format, status", id="filter", compact=True)
                yield RowList(words.COLUMNS, Content(""), titles=True, gap=1, id="run-list")
            with Container(id="run-pane", classes="pane"):
                yield ProgressLine(glyphs, simulated=self.context.demo)
                with TabbedContent(id="pages"):
                    with TabPane("Run", id="run-page"), VerticalScroll():
                        yield Page(pages.LABEL_WIDTH, id="run-head")
                        yield Figures(id="sweep")
                        yield BenchCurve(glyphs, id="curve")
                        yield Figures(id="depths")
                        yield Page(pages.LABEL_WIDTH, id="run-foot")
                    with TabPane("Conditions", id="conditions-page"), VerticalScroll():
                        yield Page(pages.LABEL_WIDTH, id="conditions")
                    with TabPane("Compare", id="compare-page"), VerticalScroll():
                        yield Page(beside.INDENT, id="compare")
                    with TabPane("A/B", id="pair-page"), VerticalScroll():
                        yield Page(beside.INDENT, id="pair-head")
                        yield Figures(id="pair-levels")
                        yield BenchCurve(glyphs, id="pair-curve")
                        yield Page(beside.INDENT, id="pair-foot")

    def on_mount(self) -> None:
        """Reads the ledger; engines come and go."""
        self._results: tuple[Result, ...] = ()
        self._marked: tuple[str, ...] = ()
        self._progress: BenchProgress | None = None
        self._measured: tuple[str, ...] = ()
        self._plan = BenchPlan()
        self._stop: asyncio.Event | None = None
        self._ended = asyncio.Event()
        self._problems: tuple[str, ...] = ()
        self._shown: object = None
        self._painted_at = float("-inf")
        self._paint_waits = False
        self.query_one("#filter").display = False
        self.bind_slice("engines", lambda _: self._engines_changed())

    def on_screen_resume(self) -> None:
        """Somebody looks: results of the command line are here too."""
        self.read_ledger()
        self._show()

    # --- what there is --------------------------------------------------------------------------------

    @property
    def runs_list(self) -> RowList:
        """The list on the left."""
        return self.query_one("#run-list", RowList)

    @property
    def result(self) -> Result | None:
        """The entry under the cursor; None on one that is being measured."""
        key = self.runs_list.key
        return next((result for result in self._results if result.id == key), None)

    @property
    def marked(self) -> tuple[Result, ...]:
        """The marked entries, A before B."""
        known = {result.id: result for result in self._results}
        return tuple(known[id_] for id_ in self._marked if id_ in known)

    @property
    def measuring(self) -> bool:
        """A measurement is under way."""
        return self._stop is not None

    @work(exit_on_error=False, exclusive=True, group="ledger")
    async def read_ledger(self, select: str = "") -> None:
        """Reads what was kept, in a thread: it is a file that grows. `select` puts the cursor on an entry."""
        try:
            kept = await asyncio.to_thread(self.context.results.all)
            problems = self.context.results.problems()
        except SparkError as error:
            self.spark.report(error)
            return
        if problems and problems != self._problems:
            self.notify(f"{len(problems)} results cannot be read. {problems[0]}", severity="warning", markup=False)
        self._results, self._problems = kept, problems
        self._marked = tuple(id_ for id_ in self._marked if any(each.id == id_ for each in kept))
        self._show()
        if select:
            self.runs_list.select(select)

    # --- show -----------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Paints at most once a second: now, or when that second is over."""
        if self._paint_waits:
            return
        left = self._painted_at + PAINT_SECONDS - self.context.clock.monotonic()
        if left <= 0:
            self._show()
        else:
            self._paint_waits = True
            self._show_later(left)

    @work(exit_on_error=False, group="paint")
    async def _show_later(self, seconds: float) -> None:
        await self.context.clock.sleep(seconds)
        self._paint_waits = False
        if self.is_current:
            self._show()

    def _engines_changed(self) -> None:
        """Engines are named while there are no runs, and while one is measured; else only the runs grow older."""
        old = self.context.clock.monotonic() - self._painted_at > AGE_SECONDS
        if old or self.measuring or not self._results:
            self._show_list()

    def _show(self) -> None:
        """List, progress and pages. What has not changed is not repainted."""
        self._show_list()
        self._show_progress()
        self._show_pages()

    def _show_list(self) -> None:
        self._painted_at = self.context.clock.monotonic()
        wanted = self.query_one("#filter", Input).value.lower().split()
        now, results = self.context.clock.now(), self._results
        chosen = [result for result in results if words.matches(result, wanted)]
        rows = [*self._live_rows(), *(words.result_row(each, now, self._mark_of(each.id)) for each in chosen)]
        count = f"{len(chosen)} of {len(results)}" if wanted else str(len(results) or "")
        unread = f", {len(self._problems)} unreadable" if self._problems else ""
        entitle(self.query_one("#list-pane"), f"{count}{unread}", below=True)
        self.runs_list.show(rows, words.empty_text(self.engines(), filtered=bool(wanted and results)))

    def _live_rows(self) -> list[Row]:
        if not self.measuring:
            return []
        views = {view.name: view for view in self.engines()}
        return [words.live_row(name, views.get(name), self._progress, self.spark.glyphs) for name in self._measured]

    def _mark_of(self, id_: str) -> str:
        return "AB"[self._marked.index(id_)] if id_ in self._marked else ""

    def _show_progress(self) -> None:
        line = self.query_one(ProgressLine)
        line.progress, line.stopping = self._progress, self._stop is not None and self._stop.is_set()
        line.display = self.measuring
        line.renew()

    def on_row_list_moved(self, _: RowList.Moved) -> None:
        """Another run."""
        self._show_pages()

    def _show_pages(self) -> None:
        key, result = self.runs_list.key, self.result
        live = key.removeprefix(words.LIVE) if key.startswith(words.LIVE) else ""
        if live:
            self._show_live(live)
        elif result is None:
            self._show_run(None, BenchPlan(concurrency=()), words.Now(), [sentence(words.WHAT, "$dim")])
        else:
            plan = result.run.plan if result.run is not None else BenchPlan(concurrency=())
            self._show_run(result.run, plan, words.Now(), pages.head_parts(result, self.context.clock.now()))
        self._show_beside(result)
        title = live or (result.engine or result.model if result is not None else "")
        entitle(self.query_one("#run-pane"), truncate(clean_line(title), MAX_TITLE))
        self._to_the_top(key)

    def _show_live(self, name: str) -> None:
        run = words.live_run(self._progress, name)
        head = words.headline(run) if run is not None else ""
        parts = [sentence(head, "bold")] if head else []
        self._show_run(run, self._plan, words.now_of(self._progress, name, self.spark.glyphs), parts)

    def _show_run(self, run: BenchRun | None, plan: BenchPlan, now: words.Now, head: list[Part]) -> None:
        self.query_one("#run-head", Page).tell(head)
        self.query_one("#sweep", Figures).tell(words.SWEEP_HEADS, words.sweep_rows(run, plan, now))
        self.query_one("#depths", Figures).tell(words.DEPTH_HEADS, words.depth_rows(run, plan, now))
        self.query_one("#curve", BenchCurve).draw(words.curves_of(run))
        self.query_one("#run-foot", Page).tell(pages.box_parts(run) if run is not None else ())
        self.query_one("#conditions", Page).tell(
            pages.condition_parts(run) if run is not None else [sentence("Known with the first figures.", "$dim")]
        )

    # --- beside others --------------------------------------------------------------------------------

    def _show_beside(self, result: Result | None) -> None:
        """Compares only when something else is to be compared: with many runs that takes a moment."""
        live = self._progress.runs if self._progress is not None and result is None else ()
        ground = (result, self._marked, len(self._results), live)
        if ground == self._shown:
            return
        self._shown = ground
        self._show_compare(result.run if result is not None else None)
        both = len(live) == 2 and all(run.levels for run in live)
        self._show_pair(compare(live[0], live[1]) if both else self._pair(result))

    def _show_compare(self, run: BenchRun | None) -> None:
        page = self.query_one("#compare", Page)
        if run is None:
            page.tell([sentence("Choose a run that was measured.", "$dim")])
            return
        from spark_tui.domain.bench.published import references

        history = beside.history_parts(run, self._results, self.context.clock.now())
        published = beside.published_parts(run, self.context.results.published(run), references())
        page.tell([*history, *published])

    def _pair(self, result: Result | None) -> Comparison | None:
        """The two marked runs; else the one under the cursor with the one that it was measured in turn with."""
        marked = [each.run for each in self.marked if each.run is not None]
        if len(marked) == 2:
            return compare(marked[0], marked[1])
        run = result.run if result is not None else None
        other = next((each.run for each in self._results if run is not None and each.id == run.pair), None)
        if run is None or other is None:
            return None
        known = [each.id for each in self._results]  # the newest first; of a pair the first engine comes first
        first, second = sorted((run, other), key=lambda each: known.index(each.id))
        return compare(first, second)

    def _show_pair(self, found: Comparison | None) -> None:
        head, foot = self.query_one("#pair-head", Page), self.query_one("#pair-foot", Page)
        if found is None:
            marked = self.marked
            told = f"A is {words.short_model(marked[0].model)}, {marked[0].id}. " if marked else ""
            head.tell([sentence(f"{told}{beside.how_to_compare()}", "$dim")])
            foot.tell(())
        else:
            head.tell(beside.pair_head(found, self.context.clock.now()))
            foot.tell(beside.pair_foot(found))
        self.query_one("#pair-levels", Figures).tell(
            beside.PAIR_HEADS, beside.pair_rows(found) if found is not None else ()
        )
        self.query_one("#pair-curve", BenchCurve).draw(beside.pair_curves(found) if found is not None else Curves())

    # --- pages ----------------------------------------------------------------------------------------

    def _to_the_top(self, key: str) -> None:
        if key != getattr(self, "_top_of", None):
            self._top_of = key
            for scroll in self.query("#pages VerticalScroll"):
                scroll.scroll_home(animate=False)

    def turn(self, step: int) -> None:
        """The next page, or the one before."""
        tabs = self.query_one(TabbedContent)
        names = [str(pane.id) for pane in tabs.query(TabPane)]
        tabs.active = names[(names.index(tabs.active) + step) % len(names)]

    def tell(self, text: str) -> None:
        """A short notice."""
        self.notify(fmt.safe(text).plain, markup=False)
