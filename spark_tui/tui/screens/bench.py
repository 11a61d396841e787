"""Bench: how fast an engine is, alone and under load; earlier runs, other people's figures, two side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import ClassVar, Final

from textual import work
from textual.binding import BindingType
from textual.widgets import Input, TabbedContent

from spark_tui.core.actions import Scope
from spark_tui.core.bench_progress import BenchProgress
from spark_tui.core.key_words import key_of
from spark_tui.domain.bench.codec import result_to_json
from spark_tui.domain.bench.export import csv_text, markdown
from spark_tui.domain.bench.result import Result
from spark_tui.domain.bench.run import BenchRun, Ending
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens import bench_words as words
from spark_tui.tui.screens.bench_fields import BenchOrder
from spark_tui.tui.screens.bench_form import BenchForm
from spark_tui.tui.screens.bench_ground import BenchGround
from spark_tui.tui.screens.bench_pages import in_a_line
from spark_tui.tui.screens.bench_turn_words import question
from spark_tui.tui.screens.modals import ConfirmScreen

END_SECONDS: Final = 95.0
"""How long leaving the program waits at most for a measurement to keep what it has, and to put an engine back."""
NO_RUN: Final = "Choose a run first."


class BenchScreen(BenchGround):
    """What keys do."""

    SCOPE = Scope.BENCH
    TAB = "show_bench"
    CSS_PATH = "bench.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.BENCH)
    AUTO_FOCUS = "#run-list"

    # --- measure --------------------------------------------------------------------------------------

    def action_start_bench(self) -> None:
        """The form: what is measured, how long it takes, what speaks against it."""
        if self.measuring:
            self.tell(f"A measurement is under way; {key_of('cancel_bench')} ends it, and keeps what it has.")
        elif not words.serving(self.engines()):
            self.tell(words.no_engine(self.engines()))
        else:
            form = BenchForm(self.context, self.engines(), self.spark.selected, self._results)
            self.app.push_screen(form, self._ordered)

    def _ordered(self, order: BenchOrder | None) -> None:
        if order is None or self.measuring:
            return
        if order.sides is None:
            self._begin(order)
            return

        def decided(yes: bool | None) -> None:
            if yes and not self.measuring:
                self._begin(order)

        title, what = question(order.sides, order.plan)
        self.app.push_screen(ConfirmScreen(title, what, verb="Start"), decided)

    def _begin(self, order: BenchOrder) -> None:
        self._stop, self._ended = asyncio.Event(), asyncio.Event()
        self._progress, self._plan = None, order.plan
        other = order.sides[1].name if order.sides is not None else order.other
        self._measured = tuple(dict.fromkeys(name for name in (order.engine, other) if name))
        self.query_one(TabbedContent).active = "pair-page" if order.other else "run-page"
        self._show()
        self.runs_list.select(words.LIVE + order.engine)
        self._measure(order, self._stop)

    @work(exit_on_error=False, group="bench")
    async def _measure(self, order: BenchOrder, stop: asyncio.Event) -> None:
        runs: Sequence[BenchRun] = ()
        try:
            runs = await self._runs(order, stop)
        except SparkError as error:
            self.spark.report(error)
        finally:
            self._stop, self._progress = None, None
            self._ended.set()
        self._told_end(runs)
        kept = next((run.id for run in runs if run.levels), "")
        self.read_ledger(kept)

    async def _runs(self, order: BenchOrder, stop: asyncio.Event) -> Sequence[BenchRun]:
        if order.sides is not None:
            return await self.context.bench_turns.run(order.sides, order.plan, self._report, stop=stop)
        if not order.other:
            return (await self.context.benchmark.run(order.engine, order.plan, self._report, stop=stop),)
        return await self.context.benchmark.versus(order.engine, order.other, order.plan, self._report, stop=stop)

    def _report(self, progress: BenchProgress) -> None:
        self._progress = progress
        if self.is_current:
            self.changed()

    def _told_end(self, runs: Sequence[BenchRun]) -> None:
        """Wherever the person is now, they hear how it ended."""
        for run in runs:
            done, name = run.ending is Ending.COMPLETED, run.conditions.engine
            answered = words.headline(run) or f"{run.counts.complete} requests answered"
            figures = answered if run.counts.complete else "no request came to its end"
            text = f"{name}: {figures}" if done else f"{name}: {run.ending.value}, {run.reason}. Kept: {figures}"
            seconds = 4 if self.is_current else 10  # here the page tells it too, and a notice lies over it
            self.notify(text, severity="information" if done else "warning", timeout=seconds, markup=False)

    def action_cancel_bench(self) -> None:
        """Ends the measurement; what was measured is kept."""
        if self._stop is None:
            self.tell("No measurement is under way.")
        else:
            self._stop.set()
            self._show()

    async def on_unmount(self) -> None:
        """Leaving the program: the measurement ends, and keeps what it has."""
        if self._stop is not None:
            self._stop.set()
            await asyncio.wait((asyncio.ensure_future(self._ended.wait()),), timeout=END_SECONDS)

    # --- compare --------------------------------------------------------------------------------------

    def action_mark_run(self) -> None:
        """Marks A, then B, then anew; a marked one is unmarked."""
        result = self.result
        if result is None or result.run is None:
            self.tell("Only what was measured can be compared." if result is not None else NO_RUN)
            return
        if result.id in self._marked:
            self._marked = tuple(id_ for id_ in self._marked if id_ != result.id)
        else:
            self._marked = (*self._marked[-1:], result.id) if len(self._marked) > 1 else (*self._marked, result.id)
        self._show()
        if len(self._marked) == 2:
            self.query_one(TabbedContent).active = "pair-page"

    # --- give away ------------------------------------------------------------------------------------

    def _chosen(self) -> tuple[Result, ...]:
        """What `y` and `e` speak of: the two marked runs, else the one under the cursor."""
        marked, result = self.marked, self.result
        if len(marked) == 2:
            return marked
        return (result,) if result is not None else ()

    def action_copy_run(self) -> None:
        """The tables as Markdown, to the clipboard."""
        chosen = self._chosen()
        if not chosen:
            self.tell(NO_RUN)
            return
        self.app.copy_to_clipboard(markdown(chosen))
        what = "both marked runs" if len(chosen) == 2 else f"run {chosen[0].id}"
        self.tell(f"Copied {what} as Markdown.")

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_export_runs(self) -> None:
        """Asks which runs and where to, and writes the file."""
        from spark_tui.tui.screens.chat_dialogs import ChoiceDialog, TextDialog

        chosen, results = self._chosen(), self._results
        if not results:
            self.tell("There is nothing to export yet.")
            return
        if chosen and len(results) > 1:
            first = "The two marked runs" if len(chosen) == 2 else f"This run, {chosen[0].id}"
            choices = (("chosen", first), ("all", f"All {len(results)} runs of this box"))
            answer = await self.app.push_screen_wait(ChoiceDialog("Export", choices))
            if answer is None:
                return
            results = chosen if answer == "chosen" else results
        hint = "NAME.md is for reading, NAME.csv for a spreadsheet (a line per level), NAME.json has everything."
        path = await self.app.push_screen_wait(TextDialog("Export to a file", hint, placeholder="~/bench.md"))
        if path is None:
            return
        try:
            written = await self.context.person_files.write(path, exported(results, path))
        except SparkError as error:
            self.spark.report(error)
        else:
            self.notify(f"Written: {written}", timeout=10, markup=False)

    def action_delete_run(self) -> None:
        """Asks, and deletes the two marked runs, else the one under the cursor."""
        chosen = self._chosen()
        if not chosen:
            self.tell(NO_RUN)
            return
        question = "Delete both marked runs?" if len(chosen) == 2 else f"Delete run {chosen[0].id}?"
        what = "; and ".join(in_a_line(result, self.context.clock.now()) for result in chosen)

        def decided(yes: bool | None) -> None:
            if yes:
                self._delete(chosen)

        screen = ConfirmScreen(question, f"{what}. The figures are gone for good.", verb="Delete")
        self.app.push_screen(screen, decided)

    @work(exit_on_error=False, group="delete")
    async def _delete(self, chosen: Sequence[Result]) -> None:
        try:
            count = await asyncio.to_thread(self.context.results.delete, chosen)
        except SparkError as error:
            self.spark.report(error)
            return
        self.tell(f"Deleted: {count} run{'s' if count != 1 else ''}.")
        self.read_ledger()

    # --- find and read --------------------------------------------------------------------------------

    def action_open_run(self) -> None:
        """Into the page, to scroll; on an empty list the form."""
        if self.runs_list.key:
            tabs = self.query_one(TabbedContent)
            self.query_one(f"#{tabs.active} VerticalScroll").focus()
        elif self.context.settings.read_only:
            self.tell("Read-only: nothing is measured.")
        else:
            self.action_start_bench()

    def action_next_bench_page(self) -> None:
        """The page to the right."""
        self._turn_with_focus(1)

    def action_previous_bench_page(self) -> None:
        """The page to the left."""
        self._turn_with_focus(-1)

    def _turn_with_focus(self, step: int) -> None:
        """Who reads a page goes on reading the next one."""
        reading = not self.runs_list.has_focus
        self.turn(step)
        if reading:
            self.call_after_refresh(self.action_open_run)

    def action_filter_runs(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, _: Input.Changed) -> None:
        """The list follows the filter."""
        self._show()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the list; an empty filter goes away."""
        self._leave_filter(keep=True)

    def _leave_filter(self, *, keep: bool) -> None:
        box = self.query_one("#filter", Input)
        if not keep:
            box.value = ""
        box.display = bool(box.value)
        self.runs_list.focus()

    def key_escape(self) -> None:
        """One step back: from a page to the list, then without the filter, then Home."""
        box = self.query_one("#filter", Input)
        if box.display and (box.has_focus or self.runs_list.has_focus):
            self._leave_filter(keep=False)
        elif not self.runs_list.has_focus:
            self.runs_list.focus()
        else:
            self.spark.switch_mode("home")

    def key_down(self) -> None:
        """From the filter into what it found."""
        if self.query_one("#filter", Input).has_focus:
            self.runs_list.focus()


def exported(results: Sequence[Result], path: str) -> str:
    """The text for a file of that name. Raises UsageError for an ending that is none of the three."""
    ending = path.lower().rpartition(".")[2]
    if ending == "csv":
        return csv_text(results)
    if ending == "json":
        return json.dumps([result_to_json(result) for result in results], indent=2) + "\n"
    if ending in ("md", "markdown"):
        return markdown(results)
    raise UsageError(f"What is to be written to {path} is not clear.", "Let its name end in .md, .csv or .json.")
