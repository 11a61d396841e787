"""Home: the engines of this machine, the selected one's launch, boot, facts and log, and the latest events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content

from spark_tui.core.actions import Scope, key_of
from spark_tui.core.jobs import Step, StepState
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import SparkError
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.reading import reason_of
from spark_tui.present.engines import engine_page, home_table, latest_job, step_word
from spark_tui.present.page import Row, Section, Tone
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.screen_table import make_screen
from spark_tui.tui.screens.help import TourText
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.page import Page, page_lines
from spark_tui.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from spark_tui.core.jobs import JobView
    from spark_tui.core.logs import LogBuffer
    from spark_tui.domain.metrics.series import Sample

KEY = "bold $footer-key-foreground"


EVENTS_SHOWN = 5
LABEL_WIDTH = 11
LEAST_BAR = 8
"""A bar of fewer cells says less than its percentage."""
STEP_STYLE = {
    StepState.PENDING: "$dim",
    StepState.RUNNING: "bold $warning",
    StepState.DONE: "$success",
    StepState.SKIPPED: "$dim",
    StepState.FAILED: "bold $error",
    StepState.CANCELLED: "$warning",
}


def no_engine() -> Content:
    """An empty list: the next keys."""
    head, presets, keys = ("No engine is running.", "bold"), (key_of("show_presets"), KEY), (key_of("help"), KEY)
    return Content.assemble(head, "\n\nPress ", presets, " to choose a preset,\nor ", keys, " for all keys.")


class EventFeed(Line):
    """The newest events at the foot, in no more room than they take."""

    def __init__(self) -> None:
        super().__init__(id="events")

    def say(self, width: int) -> Content:
        events = self.screen.app.context.store.world.events[-EVENTS_SHOWN:]  # type: ignore[attr-defined]
        if not events:
            return Content.styled("No events yet.", "$dim")
        lines = [
            fmt.event_line(event, datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S"))
            for event in events
        ]
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)


class JobSteps(Line):
    """A launch under way, or one that failed: its steps, and the fix."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="job-steps")
        self._glyphs = glyphs
        self.job: JobView | None = None

    def say(self, width: int) -> Content:
        """One line per step that has begun or failed; empty without a job. Steps that are over share one line, and the
        timeline shows the boot."""
        job = self.job
        if job is None or job.state is StepState.DONE:
            return Content("")
        begun = [step for step in job.steps if step.state is not StepState.PENDING]
        if job.error:
            evidence = [line for line in job.detail.splitlines() if line.strip()][-3:]
            rows = (Row(job.error, "failed", Tone.BAD), Row(job.remedy, "fix"), *(Row(each, "|") for each in evidence))
            lines = [self._step(step, width) for step in begun]
            lines += page_lines((Section(rows=rows),), width, most=4, indent=LABEL_WIDTH)
        else:
            over = ", ".join(step_word(step) for step in begun if step.state.over)
            row = Section(rows=(Row(over, "launch"),))
            lines = page_lines((row,), width, most=1, indent=LABEL_WIDTH) if over else []
            running = [step for step in begun if step.state is StepState.RUNNING and step.id != "follow"]
            lines += [self._step(step, width) for step in running]
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)

    def _step(self, step: Step, width: int) -> Content:
        seconds = f" {human_duration(step.seconds)}" if step.seconds is not None and step.seconds >= 1 else ""
        line = Content.assemble(
            (f"{step.label:<17}", "$dim"),
            (f"{step.state.value:<9}", STEP_STYLE[step.state]),
            fmt.safe(step.detail),
            (seconds, "$dim"),
        )
        if step.progress is None or step.state is not StepState.RUNNING:
            return line
        percent = f" {step.progress:.0%}"
        cells = min(40, width - line.cell_length - 2 - len(percent))
        if cells < LEAST_BAR:
            return Content.assemble(line.truncate(width - len(percent), ellipsis=True), percent)
        full = round(step.progress * cells)
        bar = (self._glyphs.full * full, "$primary"), (self._glyphs.empty * (cells - full), "$rule")
        return Content.assemble(line, "  ", *bar, percent)


class LogTail(Line):
    """The last lines of a log, access lines left out: enough to see that it moves."""

    LOOK_BACK = 400

    def __init__(self) -> None:
        super().__init__(id="log-tail")
        self.buffer: LogBuffer | None = None

    def say(self, width: int) -> Content:
        from spark_tui.domain.logs.line import LineKind, parse_line  # not for the first frame

        buffer, found = self.buffer, list[Content]()
        if buffer is None:
            return Content("")
        for number in range(buffer.end - 1, max(buffer.first, buffer.end - self.LOOK_BACK) - 1, -1):
            record = parse_line(buffer.line(number).text)
            if record.kind not in (LineKind.ACCESS, LineKind.BLANK) and record.message.strip():
                found.append(fmt.safe(record.message, "$dim").truncate(width, ellipsis=True))
                if len(found) == max(1, self.size.height):
                    break
        return Content("\n").join(found[::-1])


class HomeScreen(FrameScreen):
    """The first screen."""

    SCOPE = Scope.HOME
    TAB = "show_home"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.HOME)
    AUTO_FOCUS = "#engine-list"

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with Container(id="engines-pane", classes="pane") as engines:
                engines.border_title = "Engines"
                yield RowList(empty=no_engine(), id="engine-list")
            with VerticalScroll(id="detail-pane", classes="pane"):
                yield Page(LABEL_WIDTH, most=1, id="summary")
                yield TourText(id="welcome")
                yield JobSteps(self.spark.glyphs)
                yield Page(LABEL_WIDTH, most=3, id="facts")
                yield LogTail()
        with Container(id="events-pane", classes="pane") as events:
            events.border_title = "Events"
            yield EventFeed()

    def on_mount(self) -> None:
        self._unsubscribe: Callable[[], None] | None = None
        for name in ("engines", "jobs"):
            self.bind_slice(name, lambda _: self._show())
        self.bind_slice("selected", lambda _: self._show_selected())
        self.bind_slice("events", lambda _: self.query_one(EventFeed).renew())
        self._tail_timer = self.set_interval(0.5, self._renew_tail, pause=True)

    def on_screen_suspend(self) -> None:
        self._tail_timer.pause()
        self._end_following()

    def on_screen_resume(self) -> None:
        self._tail_timer.resume()

    def on_unmount(self) -> None:
        self._end_following()

    def _end_following(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _sampled(self, sample: Sample) -> None:
        """The machine is sampled once a second, whatever the engines do."""
        from spark_tui.core.metrics import HOST

        if sample.engine == HOST:
            self.call_later(self._renew_graphs)

    def _renew_graphs(self) -> None:
        """Of the selected engine while it serves, without asking it more often: each request is a line in its log."""
        view, now = self.selected_engine, self.context.clock.now()
        serves = view is not None and view.state is EngineState.SERVING
        if not serves and not self.query("#engine-graphs"):
            return
        from spark_tui.tui.widgets.graph import WINDOW_SECONDS, EngineGraphs  # for the first engine that serves

        if not self.query(EngineGraphs):
            self.query_one("#engines-pane").mount(EngineGraphs(self.spark.glyphs, id="engine-graphs"))
        graphs = self.query_one(EngineGraphs)
        if view is None or not serves:
            graphs.show(None, now)
            return
        name, metrics = view.name, self.context.metrics
        if self.is_current and self._unsubscribe is None:
            self._unsubscribe = metrics.subscribe(self._sampled)
        graphs.show(lambda metric: metrics.series(name, metric, WINDOW_SECONDS), now)

    # --- show -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        rows = self.query_one(RowList)
        rows.show_table(home_table(self.engines(), self.spark.jobs), self._empty())
        rows.select(self.spark.selected)
        self._show_selected()

    def _empty(self) -> Content:
        why = reason_of(self.spark.engines)
        if not why or why == "not read yet":
            return no_engine() if not why else Content.styled("Finding engines ...", "$dim")
        return Content.assemble(
            ("Cannot list engines.", "bold $error"),
            "\n\n",
            fmt.safe(why),
            "\n\nPress ",
            (key_of("show_doctor"), KEY),
            " for all problems of this machine.",
        )

    def _show_selected(self) -> None:
        view, name = self.selected_engine, self.spark.selected
        job = latest_job(self.spark.jobs, name)
        pane = self.query_one("#detail-pane")
        entitle(pane, name or "Welcome")
        self.query_one("#summary", Page).show(engine_page(view) if view is not None else ())
        welcome = self.query_one(TourText)
        welcome.display = view is None and job is None
        welcome.renew()
        steps = self.query_one(JobSteps)
        steps.job = job if job is not None and job.state is not StepState.DONE else None
        steps.display = steps.job is not None
        steps.renew()
        for widget in self.query("#facts, #boot"):
            widget.display = view is not None
        if view is not None:
            from spark_tui.present.logs import explanation_rows  # both for the first engine, not for the first frame
            from spark_tui.tui.widgets.boot_timeline import BootTimelineView

            preset = self.spark.presets.get(view.container.preset) is not None
            rows = explanation_rows(self.spark.explain(view), preset=preset, key=key_of("apply_remedy"))
            self.query_one("#facts", Page).show((Section(rows=tuple(rows)),))
            if not self.query("#boot"):
                boot = BootTimelineView(self.context.clock, self.spark.glyphs, id="boot")
                self.query_one("#detail-pane").mount(boot, before="#facts")
            past = self.context.history.past(view.container) if view.timeline.current is not None else ()
            starting = view.state is EngineState.STARTING
            self.query_one(BootTimelineView).show(view.timeline, folded=not starting, past=past)
        self._renew_tail()
        self._renew_graphs()
        self.name_keys()

    def offers(self, id_: str) -> bool:
        """Of an engine that has ended nothing is stopped, and without a launch none is cancelled."""
        view = self.selected_engine
        match id_:
            case "stop":
                return view is not None and view.container.running
            case "restart" | "open_logs":
                return view is not None
            case "cancel_job":
                job = latest_job(self.spark.jobs, self.spark.selected)
                return job is not None and job.state is StepState.RUNNING
        return super().offers(id_)

    def _renew_tail(self) -> None:
        tail = self.query_one(LogTail)
        watch = self.context.supervisor.find(self.spark.selected) if self.spark.selected else None
        tail.buffer = watch.buffer if watch is not None else None
        tail.display = watch is not None
        tail.renew()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """The row under the cursor is the engine that all screens show."""
        if message.key:
            self.spark.selected = message.key

    # --- act ------------------------------------------------------------------------------------------

    def action_launch(self) -> None:
        self.spark.switch_mode("presets")

    def action_apply_remedy(self) -> None:
        self.spark.apply_fix(self.selected_engine)

    def action_open_logs(self) -> None:
        self.spark.switch_mode("logs")

    def action_stop(self) -> None:
        view = self.selected_engine
        running = view is not None and view.container.running
        self._ask(
            "Stop", "Stops gracefully. The container stays, with its log.", running, "No running engine is selected."
        )

    def action_restart(self) -> None:
        exists = self.selected_engine is not None
        self._ask("Restart", "Stops and starts with the same settings.", exists, "No engine is selected.")

    def action_remove(self) -> None:
        view = self.selected_engine
        ended = view is not None and not view.container.running
        self._ask("Remove", "The container and its log are deleted.", ended, "Stop the engine before removing it.")

    def _ask(self, verb: str, what: str, possible: bool, otherwise: str) -> None:
        """Acts on the selected engine after asking; of one that is not ours the name must be typed."""
        view = self.selected_engine
        if view is None or not possible:
            self.notify(otherwise, markup=False)
            return
        name = view.name

        def decided(yes: bool | None) -> None:
            if yes:
                self._act(verb, name)

        typed = name if not view.container.ours else ""
        self.app.push_screen(make_screen("confirm", f"{verb} {name}?", what, verb=verb, type_to_confirm=typed), decided)

    @work(exit_on_error=False, exclusive=True, group="secure")
    async def action_secure_engine(self) -> None:
        """Restarts the selected engine with a key, after saying what that means."""
        view = self.selected_engine
        if view is None:
            self.notify("No engine is selected.", markup=False)
            return
        if self.context.jobs.running(view.name) is not None:
            self.notify(f"{view.name} is starting. Wait until it serves.", markup=False)
            return
        try:
            secured = await self.context.securing.plan(view)
            question = make_screen("confirm", f"Secure {view.name} with an API key?", secured.what, verb="Secure")
            if not await self.app.push_screen_wait(question):
                return
            self.context.jobs.launch(secured.request)
        except SparkError as error:
            self.spark.report(error)
            return
        self.app.copy_to_clipboard(secured.key_file)
        self.notify(f"API key file: {secured.key_file} (path copied).", markup=False, timeout=12)

    def action_cancel_job(self) -> None:
        name = self.spark.selected
        if self.context.jobs.running(name) is None:
            self.notify("No launch is running.", markup=False)
            return
        self._act("Cancel", name)

    @work(exit_on_error=False, group="act")
    async def _act(self, verb: str, name: str) -> None:
        supervisor, jobs = self.context.supervisor, self.context.jobs
        self.notify(f"{verb} {name} ...", markup=False, timeout=3)
        try:
            match verb:
                case "Stop":
                    await supervisor.stop(name)
                case "Restart":
                    await supervisor.restart(name, settle=self.context.memory_gate.await_return)
                case "Remove":
                    await supervisor.remove(name)
                case "Cancel":
                    await jobs.cancel(name)
        except SparkError as error:
            self.spark.report(error)
