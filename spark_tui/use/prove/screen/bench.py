"""Bench: how fast an engine is, alone and under load; earlier runs, published figures, two runs side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import TabbedContent

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.engine.runtimes import published_of
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import EventKind
from spark_tui.base.jobs import BenchStatus
from spark_tui.base.page import Page as Sections
from spark_tui.base.page import Section, Tone
from spark_tui.base.text import cells_left
from spark_tui.base.under_way import Measurement
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.library import stored_commit
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.results.feature import PROOFS
from spark_tui.observe.results.model.compare import Comparison, compare
from spark_tui.observe.results.model.plan import BenchPlan, segments
from spark_tui.observe.results.model.proof import Verdict, engine_badge
from spark_tui.observe.results.model.run import KNEE_EFFICIENCY, BenchRun, Result, RunOutcome
from spark_tui.observe.results.use import Results, read_proofs
from spark_tui.tui.format import Glyphs, safe
from spark_tui.tui.frame import acting, bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen
from spark_tui.tui.modals import ChoiceDialog, ConfirmScreen, TextDialog
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.yank import Yank
from spark_tui.use.bench.show import bench as present
from spark_tui.use.bench.show.export import exported, markdown
from spark_tui.use.bench.use.bench import Benchmark, BenchProgress, BenchStep
from spark_tui.use.prove import show as proving
from spark_tui.use.prove.screen.curve import BenchCurve, Curves
from spark_tui.use.prove.screen.form import BenchForm, BenchRequest
from spark_tui.use.prove.screen.level_bars import LevelBars
from spark_tui.use.prove.use.prove import ProofProgress, Prover

AGE_SECONDS: Final = 30.0
"""How old the ages in the list may be."""
END_SECONDS: Final = 95.0
"""How long leaving the program waits at most for a measurement to keep what it has, and to restore an engine."""
TALL_ENOUGH: Final = 34
"""Rows of a terminal on which conditions and comparisons stand below the list."""
RAIL_COLUMNS: Final = 150
"""Columns from which on such a terminal has a pane for the conditions, and the curve below the list."""
NO_RUN: Final = "Choose a run first."
FORMATS: Final = {"md": "markdown", "markdown": "markdown", "json": "json"}


class ProgressLine(Line):
    """How far the measurement is: a bar, and what is being sent. Hidden while there is none."""

    def __init__(self, glyphs: Glyphs, *, simulated: bool) -> None:
        super().__init__(id="progress")
        self._glyphs = glyphs
        self._simulated = simulated
        self.progress: BenchProgress | None = None
        self.proof: ProofProgress | None = None
        self.stopping = False
        self.display = False

    def say(self, width: int) -> Content:
        progress, glyphs = self.progress, self._glyphs
        if self.stopping and (progress is not None or self.proof is not None):
            return Content.styled("Stopping. Results so far are saved...", "$warning")
        if self.proof is not None and self.proof.total:
            return safe(proving.progress_text(self.proof), "$primary")
        if progress is None:
            return Content.styled("Checking the engine...", "$dim")
        text = present.progress_text(progress, simulated=self._simulated)
        if progress.step is not BenchStep.MEASURING:
            return safe(text, "$primary")
        count = f"  {present.progress_count(progress)}"
        room = max(4, min(40, width - len(count)))
        full = round(room * progress.done / max(1, progress.total))
        bar = ((glyphs.full * full, "$primary"), (glyphs.empty * cells_left(room, full), "$rule"))
        return Content("\n").join([Content.assemble(*bar, (count, "bold")), safe(text)])


class BenchScreen(ListScreen):
    """The runs, and the selected run's pages; a measurement under way has rows of its own."""

    SCOPE = Scope.BENCH
    TAB = "show_bench"
    CSS_PATH: ClassVar = [LIST_CSS, "bench.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.BENCH)
    AUTO_FOCUS = "#run-list"
    LIST = "run-list"
    LIST_TITLE = "Runs"
    FILTER = "filter: model, engine, format, status"
    PAGES = (("run", "Run"), ("conditions", "Conditions"), ("compare", "Compare"), ("pair", "A/B"), ("prove", "Prove"))

    action_filter_runs = ListScreen.action_filter
    action_next_bench_page = ListScreen.action_next_tab
    action_previous_bench_page = ListScreen.action_previous_tab

    def offers(self, id_: str) -> bool:
        match id_:
            case "cancel_bench":
                return self.measuring
            case "mark_run":
                return self.result is not None and self.result.run is not None
            case "export_runs" | "filter_runs":
                return bool(self._results)
            case "delete_run" | "yank":
                return self.result is not None
        return super().offers(id_)

    def compose_list(self) -> ComposeResult:
        """Below the runs, where there is room: what the run was measured under and what it compares with."""
        yield from super().compose_list()
        with VerticalScroll(id="beside-scroll", can_focus=False):
            yield Page(id="beside")
            yield Page(id="beside-conditions", dense=True)
        yield BenchCurve(self.spark.glyphs, id="list-curve")

    def compose_rail(self) -> ComposeResult:
        """On a wide screen the conditions have a pane of their own."""
        with Container(id="rail", classes="pane") as rail:
            rail.border_title = "Conditions"
            with VerticalScroll(can_focus=False):
                yield Page(id="rail-conditions", dense=True)

    def compose_detail(self) -> ComposeResult:
        """The progress stands above the pages."""
        yield ProgressLine(self.spark.glyphs, simulated=self.context.demo)
        yield from super().compose_detail()

    def compose_page(self, name: str) -> ComposeResult:
        """A run's bars stand between its tables, its curve and that of two runs below theirs."""
        yield Page(id=name)
        if name == "run":
            yield Page(id="sweep")
            yield LevelBars(self.spark.glyphs, id="level-bars")
            yield Page(id="depths")
            yield Page(id="run-foot")
            yield BenchCurve(self.spark.glyphs, id="curve")
        elif name == "pair":
            yield BenchCurve(self.spark.glyphs, id="pair-curve")
            yield Page(id="pair-foot")

    def on_mount(self) -> None:
        """Binds the list to the engines: they are named while there are no runs."""
        self._results: tuple[Result, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._marked: tuple[str, ...] = ()
        self._progress: BenchProgress | None = None
        self._measured: tuple[str, ...] = ()
        self._proof: ProofProgress | None = None
        self._plan = BenchPlan()
        self._compared: object = None
        self._comparison: Sections = ()
        self.bind_slices((ENGINES,), self._engines_changed)
        self.bind_slices((PROOFS, "selected"), self._show_proof)

    def on_screen_resume(self) -> None:
        """The command line may have added results."""
        self.read_results()
        self._read_proofs()
        self.show_rows()

    @acting("proofs")
    async def _read_proofs(self) -> None:
        await read_proofs(self.context)

    def on_resize(self, event: Resize) -> None:
        """Three panes where there is room for them."""
        rail = event.size.width >= RAIL_COLUMNS and event.size.height >= TALL_ENOUGH
        if rail is not self.has_class("-rail"):
            self.set_class(rail, "-rail")
            self.show_selected()

    @property
    def result(self) -> Result | None:
        """The result under the cursor; None on one that is being measured."""
        key = self.rows.key
        return next((result for result in self._results if result.id == key), None)

    @property
    def marked(self) -> tuple[Result, ...]:
        known = {result.id: result for result in self._results}
        return tuple(known[id_] for id_ in self._marked if id_ in known)

    @property
    def measuring(self) -> bool:
        return self.spark.measurement is not None

    @acting("results")
    async def read_results(self, select: str = "") -> None:
        """Reads the results, in a thread: it is a file that grows. `select` puts the cursor on one."""
        kept = await self.context.in_thread(self.context[Results].all)
        problems = self.context[Results].problems()
        if problems and problems != self._problems:
            self.notify(f"{len(problems)} results cannot be read. {problems[0]}", severity="warning", markup=False)
        self._results, self._problems = kept, problems
        self._marked = tuple(id_ for id_ in self._marked if any(each.id == id_ for each in kept))
        self.show_rows()
        if select:
            self.rows.select(select)

    # --- show -----------------------------------------------------------------------------------------

    def _engines_changed(self) -> None:
        """Only the ages change while there are runs and nothing is measured."""
        old = self.context.clock.monotonic() - self._painted_at > AGE_SECONDS
        if old or self.measuring or not self._results:
            self.show_rows()

    def show_rows(self) -> None:
        """What is being measured, then the results that the filter finds."""
        self._painted_at = self.context.clock.monotonic()
        words, engines = self.filter_words, self.world.known(ENGINES)
        chosen = [result for result in self._results if present.matches(result, words)]
        glyphs, live = self.spark.glyphs, self._measured if self.measuring else ()
        views = {view.name: view for view in engines}
        measured = [
            present.live_row(name, views.get(name), self._progress, (glyphs.running, glyphs.pending)) for name in live
        ]
        table = present.run_table(chosen, self.context.clock.now(), self._marked, measured)
        self.rows.show_table(table, self._empty(filtered=bool(words and self._results)))
        self.show_count(
            len(chosen), len(self._results), f", {len(self._problems)} unreadable" if self._problems else ""
        )
        line = self.query_one(ProgressLine)
        line.progress, line.proof = self._progress, self._proof
        line.stopping = self.spark.measurement is not None and self.spark.measurement.stop.is_set()
        line.display = self.measuring
        line.renew()
        self.show_selected()

    def _empty(self, *, filtered: bool) -> Content:
        if filtered:
            return Content.styled("No matching runs. Esc clears the filter.", "$dim")
        names = [view.name for view in present.serving(self.world.known(ENGINES))]
        if not names:
            return Content.assemble("No runs yet.\n\n", (present.no_engine(self.world[ENGINES]), "$dim"))
        return Content.assemble(
            "No runs yet.\n\n",
            (key_of("start_bench"), "bold $primary"),
            " or ",
            (key_of("open_run"), "bold $primary"),
            " to start a benchmark of ",
            safe(" or ".join(names), "bold"),
        )

    def show_selected(self) -> None:
        key, result, progress = self.rows.key, self.result, self._progress
        live = key.removeprefix(present.LIVE) if key.startswith(present.LIVE) else ""
        left = present.NOTHING_LEFT
        if live:
            run = progress.run_of(live) if progress is not None else None
            head = present.sentence(present.headline(run), Tone.STRONG) if run is not None else ()
            planned = tuple(dict.fromkeys(segment.key for segment in segments(self._plan)))
            left = present.LevelsLeft(planned)
            if progress is not None and progress.engine == live and progress.segment is not None:
                left = present.LevelsLeft(planned, progress.segment.key, self.spark.glyphs.running)
        elif result is None:
            run, head = None, present.sentence(present.INTRODUCTION)
        else:
            run, head = result.run, present.head_page(result, self.context.clock.now())
        self.page("run").show(head)
        for name, table in (("sweep", present.sweep_table(run, left)), ("depths", present.depth_table(run, left))):
            self.page(name).display = bool(table.rows)
            self.page(name).show((Section(table=table),))
        tall, rail = self.app.size.height >= TALL_ENOUGH, self.has_class("-rail")
        self.query_one(LevelBars).show(run, stacked=rail)
        self.query_one("#list-curve" if rail else "#curve", BenchCurve).draw(curves_of(run))
        self.query_one("#curve" if rail else "#list-curve", BenchCurve).draw(Curves())
        self.page("run-foot").show(present.foot_page(run, beside=tall) if run is not None else ())
        conditions = present.conditions_page(run) if run is not None else ()
        self.page("conditions").show(conditions or present.sentence("Known with the first figures."))
        self._show_compared(result)
        self._show_proof()
        beside, count = run is not None and tall, len(self._results)
        self.query_one("#beside-scroll").display = beside
        # The list takes what its rows need, and at most half.
        self.rows.styles.height = min(count + 1, self.app.size.height // 2 - 4) if beside else "1fr"
        if beside:
            self.page("beside").show(self._comparison)
            self.page("beside-conditions").display = not rail
            self.page("beside-conditions").show(() if rail else present.brief(conditions))
        self.query_one("#rail").display = rail and run is not None
        self.page("rail-conditions").show(present.brief(conditions) if rail else ())
        self.show_title(live or (result.engine or result.model if result is not None else ""))
        self.name_keys()

    def _show_compared(self, result: Result | None) -> None:
        """Compares only when something else is to be compared: with many runs that takes a moment."""
        live = self._progress.runs if self._progress is not None and result is None else ()
        compared = (result, self._marked, len(self._results), live)
        if compared == self._compared:
            return
        self._compared = compared
        run, now = result.run if result is not None else None, self.context.clock.now()
        page = present.sentence("Choose a run that was measured.")
        if run is not None:
            figures = published_of(run.conditions.model).figure
            published = present.published_page(run, self.context[Results].published(run), figures)
            page = (*present.history_page(run, self._results, now), *published)
        self._comparison = page
        self.page("compare").show(page)
        both = len(live) == 2 and all(each.levels for each in live)
        pair = compare(live[0], live[1]) if both else self._pair(run)
        if pair is None:
            marked = self.marked
            chosen = f"A is {present.short_model(marked[0].model)}, {marked[0].id}. " if marked else ""
            self.page("pair").show(present.sentence(f"{chosen}{present.how_to_compare()}"))
        else:
            self.page("pair").show((*present.pair_head(pair, now), Section(table=present.pair_table(pair))))
        self.query_one("#pair-curve", BenchCurve).draw(pair_curves(pair))
        self.page("pair-foot").show(present.pair_foot(pair) if pair is not None else ())

    def _show_proof(self) -> None:
        """The proof under way, else that of the run's engine, else of the selected one."""
        if self._proof is not None:
            self.page("prove").show(proving.live_page(self._proof))
            return
        proofs, result = self.world[PROOFS], self.result
        name = result.engine if result is not None and result.engine else self.spark.selected
        view = self.world.named(ENGINES, name)
        commit = stored_commit(self.world[LIBRARY], view.model) if view is not None else ""
        badge = engine_badge(proofs, view, commit) if view is not None else None
        proof = badge.proof if badge is not None else next((p for p in proofs if p.conditions.engine == name), None)
        now, key = self.context.clock.now(), key_of("prove_engine")
        self.page("prove").show(proving.proof_page(proof, proofs, now, badge, name=name, key=key))

    def _pair(self, run: BenchRun | None) -> Comparison | None:
        """The two marked runs; else the one under the cursor with the other one of its A/B."""
        marked = [each.run for each in self.marked if each.run is not None]
        if len(marked) == 2:
            return compare(marked[0], marked[1])
        other = next((each.run for each in self._results if run is not None and each.id == run.pair), None)
        if run is None or other is None:
            return None
        known = [each.id for each in self._results]  # the newest first; of a pair the first engine comes first
        first, second = sorted((run, other), key=lambda each: known.index(each.id))
        return compare(first, second)

    # --- measure --------------------------------------------------------------------------------------

    def action_start_bench(self) -> None:
        """The form: what is measured, how long it takes, what argues against it."""
        if self.measuring:
            self._toast(f"A measurement is under way; {key_of('cancel_bench')} ends it, and keeps what it has.")
        elif not present.serving(self.world.known(ENGINES)):
            self._toast(present.no_engine(self.world[ENGINES]))
        else:
            form = BenchForm(self.context, self.world.known(ENGINES), self.spark.selected, self._results)
            self.app.push_screen(form, self._ordered)

    def _ordered(self, order: BenchRequest | None) -> None:
        if order is None or self.measuring:
            return
        if not order.launches:
            self._start(order)
            return
        question, what = present.ab_question(order.launches, order.plan)
        self.app.push_screen(
            ConfirmScreen(question, what, verb="Start"),
            lambda yes: self._start(order) if yes and not self.measuring else None,
        )

    def _start(self, order: BenchRequest) -> None:
        self._progress, self._plan = None, order.plan
        self._measured = tuple(dict.fromkeys(variant.name for variant in order.variants))
        kind = "A/B" if len(order.variants) > 1 else "benchmark"
        restored = order.variants[0].name if order.launches else ""
        self.spark.measurement = measured = Measurement(
            kind, self._measured, asyncio.Event(), asyncio.Event(), restored
        )
        self.query_one(TabbedContent).active = "pair-page" if len(order.variants) > 1 else "run-page"
        self.show_rows()
        self.rows.select(present.LIVE + self._measured[0])
        self._measure(order, measured.stop)

    @work(exit_on_error=False, group="bench")
    async def _measure(self, order: BenchRequest, stop: asyncio.Event) -> None:
        runs: Sequence[BenchRun] = ()
        try:
            runs = await self.context[Benchmark].run(order.variants, order.plan, self._report, stop=stop)
        except SparkError as error:
            self.spark.report(error, EventKind.BENCH)
        finally:
            self._release()
        for run in runs:
            self.context.store.say(present.ended_text(run), kind=EventKind.BENCH, subject=run.conditions.engine)
            self.notify(
                present.ended_text(run),
                severity="information" if run.ending is RunOutcome.COMPLETED else "warning",
                timeout=4 if self.is_current else 10,  # this page shows it too, under the notice
                markup=False,
            )
        self.read_results(next((run.id for run in runs if run.levels), ""))

    def _release(self) -> None:
        """Nothing is measured or proved any more."""
        measured, self.spark.measurement = self.spark.measurement, None
        self._progress, self._proof = None, None
        self.context.store.update(bench=None)
        if measured is not None:
            measured.ended.set()

    def _report(self, progress: BenchProgress) -> None:
        self._progress = progress
        status = BenchStatus(progress.engine, progress.step.value, progress.done, progress.total, progress.seconds_left)
        self._renew(status)

    def _renew(self, status: BenchStatus) -> None:
        self.context.store.update(bench=status)
        if self.is_current:
            self.repaint_soon()

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_prove_engine(self) -> None:
        """Asks which engine, and how thoroughly."""
        if self.measuring:
            self._toast(f"A measurement is under way; {key_of('cancel_bench')} ends it, and keeps what it has.")
            return
        names = [view.name for view in present.serving(self.world.known(ENGINES))]
        if not names:
            self._toast(present.no_engine(self.world[ENGINES]))
            return
        names.sort(key=lambda name: name != self.spark.selected)
        choices = [
            (f"{name}{mode}", f"{name}   {text}")
            for name in names
            for mode, text in (("", "about 2 minutes"), (" full", "all cases and long contexts, no time limit"))
        ]
        answer = await self.app.push_screen_wait(ChoiceDialog("Prove what agents need", choices))
        if answer is not None and not self.measuring:
            name, _, mode = answer.partition(" ")
            self._prove(name, full=bool(mode))

    @work(exit_on_error=False, group="bench")
    async def _prove(self, name: str, *, full: bool) -> None:
        self._measured, self._proof = (), ProofProgress(name)
        self.spark.measurement = measured = Measurement("proof", (name,), asyncio.Event(), asyncio.Event())
        self.query_one(TabbedContent).active = "prove-page"
        self.show_rows()

        def report(progress: ProofProgress) -> None:
            self._proof = progress
            self._renew(BenchStatus(name, "proving", len(progress.cases), progress.total))

        try:
            proof = await self.context[Prover].run(name, report, full=full, stop=measured.stop)
        except SparkError as error:
            self.spark.report(error, EventKind.BENCH)
        else:
            text = f"{name}: {proving.headline(proof)}"
            self.context.store.say(text, kind=EventKind.BENCH, subject=name)
            right = proof.complete and not proof.ids(Verdict.FAIL)
            self.notify(text, severity="information" if right else "warning", markup=False)
        finally:
            self._release()
            self.show_rows()

    def action_cancel_bench(self) -> None:
        """Ends the measurement; what was measured is kept."""
        if self.spark.measurement is None:
            self._toast("No measurement is under way.")
        else:
            self.spark.measurement.stop.set()
            self.show_rows()

    async def on_unmount(self) -> None:
        """Leaving the program: the measurement ends, and keeps what it has."""
        if (measured := self.spark.measurement) is not None:
            await asyncio.wait((asyncio.ensure_future(measured.end()),), timeout=END_SECONDS)

    def _toast(self, text: str) -> None:
        self.notify(safe(text).plain, markup=False)

    # --- results --------------------------------------------------------------------------------------

    def action_mark_run(self) -> None:
        """Marks A, then B, then A again; a marked one is unmarked."""
        result = self.result
        if result is None or result.run is None:
            self._toast("Only what was measured can be compared." if result is not None else NO_RUN)
            return
        if result.id in self._marked:
            self._marked = tuple(id_ for id_ in self._marked if id_ != result.id)
        else:
            self._marked = (*self._marked[-1:], result.id)
        self.show_rows()
        if len(self._marked) == 2:
            self.query_one(TabbedContent).active = "pair-page"

    def _chosen(self) -> tuple[Result, ...]:
        """The two marked runs, else the one under the cursor; says so where there is none."""
        marked, result = self.marked, self.result
        chosen = marked if len(marked) == 2 else (result,) if result is not None else ()
        if not chosen:
            self._toast(NO_RUN)
        return chosen

    def yanks(self) -> tuple[Yank, ...]:
        """The tables as Markdown: of the run under the cursor, of both marked ones."""
        result, marked = self.result, self.marked
        run = [Yank(f"Run {result.id}", "r", lambda: markdown((result,)))] if result is not None else []
        pair = [Yank("Both marked runs", "b", lambda: markdown(marked))] if len(marked) == 2 else []
        return (*run, *pair)

    @acting("ask")
    async def action_export_runs(self) -> None:
        """Asks which runs and where to, and writes the file."""
        results = self._results
        if not results:
            self._toast("There is nothing to export yet.")
            return
        if len(results) > 1 and (self.result is not None or len(self.marked) == 2):
            chosen = self._chosen()
            first = "The two marked runs" if len(chosen) == 2 else f"This run, {chosen[0].id}"
            choices = (("chosen", first), ("all", f"All {len(results)} runs on this machine"))
            answer = await self.app.push_screen_wait(ChoiceDialog("Export", choices))
            if answer is None:
                return
            results = chosen if answer == "chosen" else results
        hint = "NAME.md is for reading, NAME.json has everything."
        path = await self.app.push_screen_wait(TextDialog("Export to a file", hint, placeholder="~/bench.md"))
        if path is None:
            return
        written = await self.context.user_files.write(path, exported(results, format_of(path)))
        self.notify(f"Written: {written}", timeout=10, markup=False)

    def action_delete_run(self) -> None:
        """Asks, and deletes the two marked runs, else the one under the cursor."""
        chosen = self._chosen()
        if not chosen:
            return
        question = "Delete both marked runs?" if len(chosen) == 2 else f"Delete run {chosen[0].id}?"
        what = "; and ".join(present.result_line(result, self.context.clock.now()) for result in chosen)

        def decided(yes: bool | None) -> None:
            if yes:
                self._delete(chosen)

        self.app.push_screen(ConfirmScreen(question, f"{what}. This cannot be undone.", verb="Delete"), decided)

    @acting("delete", exclusive=False)
    async def _delete(self, chosen: Sequence[Result]) -> None:
        count = await self.context.in_thread(self.context[Results].delete, chosen)
        self._toast(f"Deleted: {count} run{'s' if count != 1 else ''}.")
        self.read_results()

    # --- pages ----------------------------------------------------------------------------------------

    def action_open_run(self) -> None:
        """Into the page, to scroll; on an empty list the form."""
        if self.rows.key:
            tabs = self.query_one(TabbedContent)
            self.query_one(f"#{tabs.active} VerticalScroll").focus()
        elif self.context.settings.read_only:
            self._toast("Read-only: nothing is measured.")
        else:
            self.action_start_bench()

    def action_open_references(self) -> None:
        self.spark.show_aside("references")

    def turn_page(self, step: int) -> None:
        """Another page, which has the focus where the last one had it."""
        reading = not self.rows.has_focus
        super().turn_page(step)
        if reading:
            self.call_after_refresh(self.action_open_run)


def format_of(path: str) -> str:
    """The format of a file of that name. Raises UsageError for another ending."""
    found = FORMATS.get(path.lower().rpartition(".")[2])
    if found is None:
        raise UsageError(f"Unknown format: {path}.", "Let its name end in .md or .json.")
    return found


def curves_of(run: BenchRun | None) -> Curves:
    """The sweep as a picture, against half of linear scaling: where they cross is the knee."""
    rates = tuple(sorted(run.throughput.items())) if run is not None else ()
    curve = run.scaling if run is not None else None
    one = dict(rates).get(1)
    half = tuple((streams, streams * one * KNEE_EFFICIENCY) for streams, _ in rates) if one else ()
    knee = curve.knee_streams if curve is not None else None
    words = present.knee_text(curve) if curve is not None and knee is not None else ""
    linear = tuple((streams, streams * one) for streams, _ in rates) if one else ()
    return Curves("", rates, "", half, knee, words, linear)


def pair_curves(found: Comparison | None) -> Curves:
    """Both sweeps as a picture; nothing where they are not comparable."""
    if found is None or not found.comparable:
        return Curves()
    first, second = found.first, found.second
    return Curves("A", tuple(sorted(first.throughput.items())), "B", tuple(sorted(second.throughput.items())))
