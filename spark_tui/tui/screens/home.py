"""Home: the engines on this box, the selected one's boot and facts, and what happened lately."""

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
from spark_tui.core.jobs import StepState
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import SparkError
from spark_tui.domain.reading import reason_of
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.screens.help import tour
from spark_tui.tui.widgets.boot_timeline import BootTimelineView
from spark_tui.tui.widgets.engine_detail import EngineFacts, EngineGraphs, EngineSummary, JobSteps, LogTail
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.row_list import Column, Row, RowList

if TYPE_CHECKING:
    from spark_tui.core.jobs import JobView
    from spark_tui.domain.logs.view import EngineView
    from spark_tui.domain.metrics.series import Sample

COLUMNS = (
    Column("name"),
    Column("state", width=14),
    Column("port", width=6, right=True, hide_below=34),
    Column("reach", width=10, hide_below=44),
)

KEY = "bold $footer-key-foreground"


def no_engine() -> Content:
    """What stands in an empty list: the keys to go on with."""
    return Content.assemble(
        ("Nothing serves here yet.", "bold"),
        "\n\nPress ",
        (key_of("show_presets"), KEY),
        " to choose a preset,\nor ",
        (key_of("help"), KEY),
        " for all keys.",
    )


EVENTS_SHOWN = 5


class EventFeed(Line):
    """The newest events at the foot, in no more room than they take."""

    def __init__(self) -> None:
        super().__init__(id="events")

    def say(self, width: int) -> Content:
        """One line per event, as many as fit."""
        events = self.screen.app.context.store.world.events[-EVENTS_SHOWN:]  # type: ignore[attr-defined]
        if not events:
            return Content.styled("Nothing has happened since spark-tui was opened.", "$dim")
        lines = [
            fmt.event_line(event, datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S"))
            for event in events
        ]
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)


class HomeScreen(FrameScreen):
    """The first screen."""

    SCOPE = Scope.HOME
    TAB = "show_home"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.HOME)
    AUTO_FOCUS = "#engine-list"

    def compose_body(self) -> ComposeResult:
        """Engines, detail, events."""
        with Horizontal(id="columns"):
            with Container(id="engines-pane", classes="pane") as engines:
                engines.border_title = "Engines"
                yield RowList(COLUMNS, no_engine(), id="engine-list")
                yield EngineGraphs(self.spark.glyphs, id="engine-graphs")
            with VerticalScroll(id="detail-pane", classes="pane"):
                yield EngineSummary()
                yield JobSteps(self.spark.glyphs)
                yield BootTimelineView(self.context.clock, self.spark.glyphs, id="boot")
                yield EngineFacts()
                yield LogTail()
        with Container(id="events-pane", classes="pane") as events:
            events.border_title = "Events"
            yield EventFeed()

    def on_mount(self) -> None:
        """Binds the panes to their slices."""
        self._unsubscribe: Callable[[], None] | None = None
        for name in ("engines", "jobs"):
            self.bind_slice(name, lambda _: self._show())
        self.bind_slice("selected", lambda _: self._show_selected())
        self.bind_slice("events", lambda _: self.query_one(EventFeed).renew())
        self._tail_timer = self.set_interval(0.5, self._renew_tail, pause=True)

    def on_screen_suspend(self) -> None:
        """Nothing ticks on a hidden screen."""
        self._tail_timer.pause()
        self._end_following()

    def on_screen_resume(self) -> None:
        """Catches up."""
        self._tail_timer.resume()

    def _follow(self) -> None:
        if self.is_current and self._unsubscribe is None:
            self._unsubscribe = self.context.metrics.subscribe(self._sampled)

    def on_unmount(self) -> None:
        """The screen is gone."""
        self._end_following()

    def _end_following(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _sampled(self, sample: Sample) -> None:
        """The box is looked at once a second, whatever becomes of the engines."""
        from spark_tui.core.metrics import HOST

        if sample.engine == HOST:
            self.call_later(self._renew_graphs)

    def _renew_graphs(self) -> None:
        """Of the selected engine, as long as it serves. Home asks no engine more often for it: each question is a
        line in the engine's own log."""
        view, now = self.selected_engine, self.context.clock.now()
        if view is None or view.state is not EngineState.SERVING:
            self.query_one(EngineGraphs).show(None, now)
            return
        self._follow()  # what measures is loaded for the first engine that serves
        from spark_tui.tui.widgets.graph import WINDOW_SECONDS

        name, metrics = view.name, self.context.metrics
        self.query_one(EngineGraphs).show(lambda metric: metrics.series(name, metric, WINDOW_SECONDS), now)

    # --- show -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        engines = self.engines()
        rows = [_engine_row(view, self._job(view.name)) for view in engines]
        names = {view.name for view in engines}
        rows += [_job_row(job) for job in self.spark.jobs if job.title not in names and job.state is not StepState.DONE]
        self.query_one(RowList).show(rows, self._empty())
        self.query_one(RowList).select(self.spark.selected)
        self._show_selected()

    def _empty(self) -> Content:
        why = reason_of(self.spark.engines)
        if not why or why == "not read yet":
            return no_engine() if not why else Content.styled("Looking for engines ...", "$dim")
        return Content.assemble(
            ("Engines are not known.", "bold $error"),
            "\n\n",
            fmt.safe(why),
            "\n\nPress ",
            (key_of("show_doctor"), KEY),
            " for all that is wrong with this box.",
        )

    def _job(self, name: str) -> JobView | None:
        return next((job for job in reversed(self.spark.jobs) if job.title == name), None)

    def _show_selected(self) -> None:
        view, name = self.selected_engine, self.spark.selected
        job = self._job(name)
        pane = self.query_one("#detail-pane")
        entitle(pane, name or "Welcome")
        summary = self.query_one(EngineSummary)
        summary.engine, summary.nothing = view, None if job else tour
        summary.renew()
        steps = self.query_one(JobSteps)
        steps.job = job if job is not None and job.state is not StepState.DONE else None
        steps.display = steps.job is not None
        steps.renew()
        facts = self.query_one(EngineFacts)
        facts.explanation = self.spark.explain(view) if view is not None else None
        facts.preset = view is not None and self.spark.presets.get(view.container.preset) is not None
        facts.display = view is not None
        facts.renew()
        boot = self.query_one(BootTimelineView)
        boot.display = view is not None
        if view is not None:
            past = self.context.history.past(view.container) if view.timeline.current is not None else ()
            boot.show(view.timeline, folded=view.state is not EngineState.STARTING, past=past)
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
                job = self._job(self.spark.selected)
                return job is not None and job.state is StepState.RUNNING
        return super().offers(id_)

    def _renew_tail(self) -> None:
        tail = self.query_one(LogTail)
        watch = self.context.supervisor.find(self.spark.selected) if self.spark.selected else None
        tail.buffer = watch.buffer if watch is not None else None
        tail.display = watch is not None
        tail.renew()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """The row under the cursor is the engine that all screens speak of."""
        if message.key:
            self.spark.selected = message.key

    # --- act ------------------------------------------------------------------------------------------

    def action_launch(self) -> None:
        """Chooses a preset."""
        self.spark.switch_mode("presets")

    def action_apply_remedy(self) -> None:
        """The launch form of its preset, with the change written into it that the cause or a finding proposes."""
        self.spark.apply_fix(self.selected_engine)

    def action_open_logs(self) -> None:
        """The selected engine's log."""
        self.spark.switch_mode("logs")

    def action_stop(self) -> None:
        """Stops the selected engine, after asking."""
        view = self.selected_engine
        if view is None or not view.container.running:
            self.notify("No running engine is selected.", markup=False)
            return
        self._confirm_and(view, "Stop", "It stops gracefully; the container stays, with its log.")

    def action_restart(self) -> None:
        """Restarts the selected engine, after asking."""
        view = self.selected_engine
        if view is None:
            self.notify("No engine is selected.", markup=False)
            return
        self._confirm_and(view, "Restart", "It stops, and starts with the settings that it has.")

    def action_remove(self) -> None:
        """Removes the selected engine, after asking."""
        view = self.selected_engine
        if view is None or view.container.running:
            self.notify("Select an engine that has ended: a running one is stopped first.", markup=False)
            return
        self._confirm_and(view, "Remove", "The container and its log are deleted.")

    @work(exit_on_error=False, exclusive=True, group="secure")
    async def action_secure_engine(self) -> None:
        """Restarts the selected engine with a key, after saying what that means."""
        view = self.selected_engine
        if view is None:
            self.notify("No engine is selected.", markup=False)
            return
        if self.context.jobs.running(view.name) is not None:
            self.notify(f"{view.name} is being launched: wait until it serves.", markup=False)
            return
        from spark_tui.tui.screens.modals import ConfirmScreen

        try:
            secured = await self.context.securing.plan(view)
            question = ConfirmScreen(f"Make a key for {view.name}?", secured.what, verb="Make a key")
            if not await self.app.push_screen_wait(question):
                return
            self.context.jobs.launch(secured.request)
        except SparkError as error:
            self.spark.report(error)
            return
        self.app.copy_to_clipboard(secured.key_file)
        self.notify(f"The key will be in {secured.key_file}; that path is copied.", markup=False, timeout=12)

    def action_cancel_job(self) -> None:
        """Cancels the launch of the selected engine."""
        name = self.spark.selected
        if self.context.jobs.running(name) is None:
            self.notify("No launch is under way here.", markup=False)
            return
        self._act("Cancel", name)

    def _confirm_and(self, view: EngineView, verb: str, what: str) -> None:
        name = view.name

        def decided(yes: bool | None) -> None:
            if yes:
                self._act(verb, name)

        typed = name if not view.container.ours else ""
        from spark_tui.tui.screens.modals import ConfirmScreen

        self.app.push_screen(ConfirmScreen(f"{verb} {name}?", what, verb=verb, type_to_confirm=typed), decided)

    @work(exit_on_error=False, group="act")
    async def _act(self, verb: str, name: str) -> None:
        supervisor, jobs = self.context.supervisor, self.context.jobs
        self.notify(f"{verb} {name} ...", markup=False, timeout=3)
        try:
            match verb:
                case "Stop":
                    await supervisor.stop(name)
                case "Restart":
                    await supervisor.restart(name, settle=self.context.budget.await_return)
                case "Remove":
                    await supervisor.remove(name)
                case "Cancel":
                    await jobs.cancel(name)
        except SparkError as error:
            self.spark.report(error)


def _engine_row(view: EngineView, job: JobView | None) -> Row:
    state = fmt.state(view)
    if job is not None and job.state is StepState.RUNNING and view.state is EngineState.SERVING:
        current = job.current
        if current is not None and current.id == "warm":
            state = Content.styled("WARMING UP", "$warning")
    port = Content.styled(f":{view.port}" if view.port else "", "$dim")
    return Row(view.name, (fmt.safe(view.name), state, port, fmt.exposure(view)))


def _job_row(job: JobView) -> Row:
    step = job.current
    word = step.label.upper() if step is not None and job.state is StepState.RUNNING else job.state.value.upper()
    percent = f" {step.progress:.0%}" if step is not None and step.progress is not None else ""
    style = "$error" if job.state is StepState.FAILED else "$warning"
    return Row(job.title, (fmt.safe(job.title), Content.styled(word + percent, style), Content(""), Content("")))
