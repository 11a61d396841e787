"""What every screen has: the app's slices of the World, and the frame of bars around a screen's body.

The status bar, the activity line, the tabs and the keys at the foot are the same on all screens. A hidden screen
repaints nothing: it catches up when it is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, cast

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.notifications import Notify, SeverityLevel
from textual.reactive import var
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from spark_tui.base.actions import DANGEROUS, Scope, allowed, key_of, of_scope, shown
from spark_tui.base.engine.boot import BootStatus
from spark_tui.base.engine.container import DaemonFacts
from spark_tui.base.errors import SparkError
from spark_tui.base.event import Event, EventKind
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.host.identity import HostIdentity
from spark_tui.base.host.memory import ALL_WELL, MemInfo, MemoryBreakdown
from spark_tui.base.host.vitals import GpuReading, Vitals
from spark_tui.base.jobs import BenchStatus, JobView
from spark_tui.base.page import Cell
from spark_tui.base.quantities import GIB
from spark_tui.base.reading import NOT_READ_YET, Reading, value_of
from spark_tui.base.text import clean
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.catalog.presets.use.catalogue import catalogue
from spark_tui.manage.cluster.model.protocol import NodeLook, rank_of
from spark_tui.observe.engines.show.activity import activities, engine_counts, engine_statuses, window_title
from spark_tui.tui.format import Glyphs
from spark_tui.tui.screen_table import make_screen
from spark_tui.tui.terminal_notices import TerminalNotices
from spark_tui.tui.textual_private import PlainCrashApp, QuietScreen, write_to_terminal
from spark_tui.tui.widgets.bars import ActivityLine, KeyBar, TabBar, TopBar
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.memory_strip import MemoryStrip
from spark_tui.tui.yank import LAST_COPY, Yank

if TYPE_CHECKING:
    from spark_tui.base.context import Context
    from spark_tui.base.engine.schedule import ScheduleStatus
    from spark_tui.base.host.drop_caches import DropResult
    from spark_tui.base.store import World
    from spark_tui.base.under_way import Measurement
    from spark_tui.catalog.models.model.download import Download
    from spark_tui.catalog.presets.model.library import LibraryView
    from spark_tui.manage.cluster.model.record import ClusterRecord
    from spark_tui.manage.gateway.model import GatewayStatus
    from spark_tui.manage.images.model import ImagesView
    from spark_tui.observe.explain.model.explain import Explanation
    from spark_tui.observe.explain.model.view import EngineView
    from spark_tui.observe.results.model.proof import Proof

ASIDES = ("memory", "events", "cluster", "cluster_doctor", "connect")
"""Screens without a tab."""
TOAST_SECONDS = 3.0
ERROR_SECONDS = 86_400.0
"""Until a key is pressed."""
MINIMUM_WIDTH, MINIMUM_HEIGHT = 60, 15


P = ParamSpec("P")


def acting(
    group: str, *, exclusive: bool = True
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, Worker[None]]]:
    """Makes a method of a screen or the app a worker, `exclusive`: the only one of its group. Its SparkError is
    reported."""

    def decorated(method: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Worker[None]]:
        @work(exit_on_error=False, exclusive=exclusive, group=group)
        @wraps(method)
        async def run(*args: P.args, **options: P.kwargs) -> None:
            try:
                await method(*args, **options)
            except SparkError as error:
                cast("FrameApp", cast("Widget", args[0]).app).report(error)

        return run

    return decorated


class FrameApp(PlainCrashApp[None]):
    """The app as screens see it: the core, one slice of the World per `var`, and the selected engine.

    A widget wakes only when what it shows has changed, and repaints itself. A `reactive` of the app would repaint the
    whole screen on every change.
    """

    identity: var[HostIdentity] = var(HostIdentity(""), init=False)
    memory: var[Reading[MemInfo]] = var(NOT_READ_YET, init=False)
    pressure: var[Reading[float]] = var(NOT_READ_YET, init=False)
    gpu: var[Reading[GpuReading]] = var(NOT_READ_YET, init=False)
    vitals: var[Reading[Vitals]] = var(NOT_READ_YET, init=False)
    docker: var[Reading[DaemonFacts]] = var(NOT_READ_YET, init=False)
    engines: var[Reading[tuple[EngineView, ...]]] = var(NOT_READ_YET, init=False)
    presets: var[PresetCatalogue] = var(PresetCatalogue(), init=False)
    breakdown: var[Reading[MemoryBreakdown]] = var(NOT_READ_YET, init=False)
    memory_state: var[Finding] = var(ALL_WELL, init=False)
    alarms: var[tuple[Finding, ...]] = var((), init=False)
    last_drop: var[DropResult | None] = var(None, init=False)
    jobs: var[tuple[JobView, ...]] = var((), init=False)
    events: var[tuple[Event, ...]] = var((), init=False)
    library: var[Reading[LibraryView]] = var(NOT_READ_YET, init=False)
    images: var[Reading[ImagesView]] = var(NOT_READ_YET, init=False)
    downloads: var[Reading[tuple[Download, ...]]] = var(NOT_READ_YET, init=False)
    boot: var[Mapping[str, BootStatus]] = var({}, init=False)
    schedules: var[Mapping[str, ScheduleStatus]] = var({}, init=False)
    bench: var[BenchStatus | None] = var(None, init=False)
    proofs: var[tuple[Proof, ...]] = var((), init=False)
    launches: var[tuple[ClusterRecord, ...]] = var((), init=False)
    gateway: var[GatewayStatus | None] = var(None, init=False)
    nodes: var[Mapping[str, NodeLook | SparkError]] = var({}, init=False)
    selected: var[str] = var("", init=False)
    """Name of the selected engine; all screens show that one."""

    def __init__(self, context: Context, glyphs: Glyphs) -> None:
        self.context = context  # screens are composed from both: they must be there before them
        self.glyphs = glyphs
        wanted = context.settings.notify.split(",")
        self.notices = TerminalNotices(wanted, os.environ, partial(write_to_terminal, self))
        self._error_shown = False
        self._before_aside = "home"
        self.measurement: Measurement | None = None
        super().__init__()

    def take(self, world: World) -> None:
        """The only writer of the slices. The selected engine stays selected; before one is chosen, it is the first."""
        for name in SLICES:
            setattr(self, name, getattr(world, name))
        names = [view.name for view in value_of(self.engines) or ()]
        others = [job.title for job in self.jobs] + [record.name for record in self.launches]
        if self.selected not in names and self.selected not in others:
            self.selected = names[0] if names else ""
        self.notices.events(world.events)
        self.notices.title(window_title(world))

    @property
    def selected_engine(self) -> EngineView | None:
        return next((view for view in value_of(self.engines) or () if view.name == self.selected), None)

    @property
    def selected_record(self) -> ClusterRecord | None:
        """The launch on several nodes that the selected engine is a rank of, where this machine keeps it."""
        view = self.selected_engine
        if view is not None and rank_of(view.container) is None:
            return None
        named = (each for each in self.launches if self.selected in (each.name, *(rank.name for rank in each.ranks)))
        return next(named, None)

    def refuses(self, verb: str) -> bool:
        """Whether `verb` is not done with the selected engine: a bare process, or one rank of several. Says then how
        the person does it, or how it is done on all ranks."""
        view = self.selected_engine
        if view is not None and view.container.bare:
            from spark_tui.base.engine.container import outside_docker

            self.notify(str(outside_docker(view.container, acts=True)), severity="warning", markup=False)
            return True
        if view is None or rank_of(view.container) is None:
            return False
        from spark_tui.manage.cluster.show.cluster import not_alone

        self.notify(not_alone(view.name, self.selected_record, verb, key_of("stop")), severity="warning", markup=False)
        return True

    def on_notify(self, event: Notify) -> None:
        """One toast at a time."""
        self.clear_notifications()
        self._error_shown = event.notification.severity == "error"

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information", timeout: float | None = None,
        markup: bool = True,
    ) -> None:  # fmt: skip
        """A toast covers what is under it: it goes soon, whatever it says; an error stays until a key."""
        seconds = ERROR_SECONDS if severity == "error" else TOAST_SECONDS
        super().notify(message, title=title, severity=severity, timeout=seconds, markup=markup)

    def end_error(self) -> None:
        """A key was pressed: the error was read."""
        if self._error_shown:
            self._error_shown = False
            self.clear_notifications()

    def show_aside(self, mode: str) -> None:
        """Memory or Events, over whatever is shown; once more goes back."""
        if self.current_mode == mode:
            self.switch_mode(self._before_aside)
            return
        if self.current_mode not in ASIDES:
            self._before_aside = self.current_mode
        self.switch_mode(mode)

    def action_open_memory(self) -> None:
        self.show_aside("memory")

    def action_open_events(self) -> None:
        self.show_aside("events")

    def action_open_cluster(self) -> None:
        self.show_aside("cluster")

    def stop_on_nodes(self, record: ClusterRecord | None) -> None:
        """Stops a launch on all its nodes after asking; one that is still coming up is cancelled, which undoes it."""
        if record is None:
            self.notify("Nothing runs on several nodes.", markup=False)
            return
        from spark_tui.manage.cluster.show.cluster import stop_question
        from spark_tui.run.launch.use.runner import JobRunner

        async def act() -> None:
            jobs = self.context[JobRunner]
            try:
                if jobs.running(record.name) is not None:
                    await jobs.cancel(record.name)
                else:
                    jobs.stop_on_nodes(record)
            except SparkError as error:
                self.report(error)

        def decided(yes: bool | None) -> None:
            if yes:
                self.run_worker(act(), group="act", exit_on_error=False)

        question, what = stop_question(record)
        self.push_screen(make_screen("confirm", question, what, verb="Stop"), decided)

    def explain(self, view: EngineView) -> Explanation:
        """What the engine's log means now, as core has it; an engine that core does not watch is explained here."""
        from spark_tui.observe.explain.model.explain import explain_view  # its rules are many: after the first frame

        known = self.context.store.world.explanations.get(view.name)
        return known or explain_view(view, now=self.context.clock.now())

    def apply_fix(self, view: EngineView | None) -> None:
        """The launch form of the engine's preset, with the change written into it that its log suggests."""
        proposed = self.explain(view).proposal if view is not None else None
        preset = catalogue(self.context).get(view.container.preset) if view is not None else None
        if view is None or proposed is None:
            self.notify("No fix available for this engine.", markup=False)
        elif preset is None:
            self.draft_engine(view)
        else:
            record = self.selected_record
            engine, nodes = (view.name, {}) if record is None else (record.name, {"nodes": record.cluster})
            name = {"name": engine} if engine != preset.name else {}
            self.push_screen(make_screen("launch_form", self.context, preset, name | nodes | dict(proposed.change)))

    def draft_engine(self, view: EngineView | None) -> None:
        """The draft of a preset for an engine that was started by hand, with the change that its log suggests."""
        from spark_tui.catalog.fit.use.draft import Drafts

        if view is None:
            self.notify("No engine is selected.", markup=False)
        elif catalogue(self.context).get(view.container.preset) is not None:
            self.notify(f"{view.name} runs from the preset {view.container.preset}.", markup=False)
        else:
            proposed = self.explain(view).proposal
            changes = dict(proposed.change) if proposed is not None else {}
            container = view.container
            dialog = make_screen(
                "draft", self.context, f"Draft: {view.name}", lambda: self.context[Drafts].of_container(container),
                changes=changes,
            )  # fmt: skip
            self.push_screen(dialog, self.launched)

    def launched(self, name: str | None) -> None:
        """Home shows how an engine starts that a form has launched."""
        if name:
            self.selected = name
            self.switch_mode("home")

    @acting("proofs")
    async def read_proofs(self) -> None:
        """Reads the kept proofs, in a thread: the command line may have added one."""
        # its modules are imported in the thread too
        kept = await self.context.in_thread(lambda: self.context.ports.get("proofs").all())
        known = {proof.id: proof for proof in (*kept, *self.context.store.world.proofs)}  # one may be new since
        self.context.store.update(proofs=tuple(sorted(known.values(), key=lambda proof: -proof.at)))

    async def may(self, then: str, name: str) -> bool:
        """Whether `then` may be done with that engine: asks while work is under way that it would disturb. A
        measurement of this program is stopped for it, and its end awaited. To be called by a worker. Raises SparkError
        where it is unknown what other programs do."""
        from spark_tui.base.under_way import disturbed, under_way

        own = under_way(self.context.store.world, self.measurement)
        for each in disturbed(then, name, own, self.context.ports.get("state")):
            stopped = self.measurement if own and each is own[0] else None
            what = f"The {each.what} continues, and its result may suffer." if stopped is None else each.end
            question = f"{then} {name} during the {each.what}?"
            if not await self.push_screen_wait(make_screen("confirm", question, what, verb=then)):
                return False
            if stopped is not None:
                await stopped.end()
        return True

    def edit_engine(self, view: EngineView | None, changes: Mapping[str, str] | None = None) -> None:
        """The launch form with the settings of an engine that runs; `changes` are written into it."""
        if view is None or not view.container.running:
            self.notify("No running engine is selected.", markup=False)
            return
        if self.refuses("Edit"):
            return
        from spark_tui.run.launch.use.edit import Editor

        try:
            preset = self.context[Editor].running(view).preset
        except SparkError as error:
            self.report(error)
        else:
            self.push_screen(make_screen("launch_form", self.context, preset, changes, view))

    def copy(self, entry: Yank) -> None:
        """Sends the text to the terminal, which may drop it, and keeps all but a secret in a private file."""
        try:
            text = entry.read()
        except SparkError as error:
            self.report(error)
            return
        self.copy_to_clipboard(text)
        files, sent = self.context.ports.get("screen_files"), f"{entry.label} sent to the terminal (OSC 52)."
        if entry.secret:
            self.notify(f"{sent} Not kept in a file.", markup=False)
        elif files is None:
            self.notify(sent, markup=False)
        else:
            try:
                files.write(LAST_COPY, clean(text))
            except OSError as error:
                why = f"No copy kept: {error.strerror or error}."
                self.notify(f"{sent} {why}", severity="warning", markup=False)
            else:
                self.notify(f"{sent} Also: spark-tui last-copy", markup=False)

    def report(self, error: SparkError, kind: EventKind = EventKind.NOTE) -> None:
        """An error in three places: the toast with its remedy, its detail in the log, all of it in the events."""
        self.context.store.say(error.summary, Severity.ERROR, error.remedy, kind=kind, detail=error.detail)
        self.log.error(error.id, error.summary, error.detail)
        self.notify(f"{error.summary}\n{error.remedy}".strip(), severity="error", markup=False)


SLICES = tuple(name for name, value in vars(FrameApp).items() if isinstance(value, var) and name != "selected")
"""Names of the World's fields that the app holds."""


class FrameScreen(QuietScreen[None]):
    """Subclasses give `SCOPE`, `TAB` (an action id) and `compose_body`. `folded`: the key that folds unfolds."""

    SCOPE: ClassVar[Scope]
    TAB: ClassVar[str]
    folded = False
    OF_ENGINE: ClassVar[bool] = False
    """Whether it shows the selected engine."""
    KEYS_TOO: ClassVar[tuple[str, ...]] = ()
    """Global actions that the footer names on this screen alone."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012 - Textual's shape
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012
    _focus_before: Widget | None = None
    _shows: tuple[Callable[[], None], ...] = ()
    _shown_before = False

    def compose(self) -> ComposeResult:
        tabs = [action for action in of_scope(Scope.GLOBAL) if action.id.startswith("show_")]
        yield TopBar(self.spark.glyphs, demo=self.context.demo, read_only=self.context.settings.read_only)
        yield MemoryStrip(self.spark.glyphs)
        yield ActivityLine(self.spark.glyphs)
        yield TabBar(tabs, self.TAB)
        with Container(id="body"):
            yield from self.compose_body()
        yield KeyBar()
        yield Static("", id="too-small", markup=False)

    def compose_body(self) -> ComposeResult:
        raise NotImplementedError

    # --- access ---------------------------------------------------------------------------------------

    @property
    def spark(self) -> FrameApp:
        return cast("FrameApp", self.app)

    @property
    def context(self) -> Context:
        return self.spark.context

    @property
    def selected_engine(self) -> EngineView | None:
        return self.spark.selected_engine

    @property
    def selected_launch(self) -> str:
        """`qwen fetching 16%` while a launch is selected that has no container yet, else empty."""
        status = engine_statuses(self.context.store.world).get(self.spark.selected)
        return "" if status is None or self.selected_engine is not None else f"{self.spark.selected} {status.text}"

    def engines(self) -> tuple[EngineView, ...]:
        return value_of(self.spark.engines) or ()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In read-only mode the dangerous actions do not exist: no key, no palette entry, no call."""
        if action in DANGEROUS and self.context.settings.read_only:
            return False
        return super().check_action(action, parameters)

    # --- slices ---------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Binds the bars to their slices. Textual calls the handlers of every class: subclasses do not call this."""
        top, strip, keys = self.query_one(TopBar), self.query_one(MemoryStrip), self.query_one(KeyBar)
        strip.floor = int(self.context.settings.guard_serving_gib * GIB)
        self.name_keys()
        for name in ("identity", "gpu", "vitals"):
            self.bind_slice(name, partial(_set, top, name))
        for name in ("memory", "breakdown", "pressure", "memory_state"):
            self.bind_slice(name, partial(_set, strip, name))
        self.bind_slices(("engines", "jobs", "selected"), lambda: self._show_engines(top))
        line = self.query_one(ActivityLine)
        slices = ("engines", "jobs", "downloads", "library", "bench", "alarms")
        self.bind_slices(slices, lambda: self._show_activities(line))
        self.bind_slice("docker", partial(_set, keys, "docker"))

    def _show_engines(self, top: TopBar) -> None:
        """How many there are in each state; of several, the one that is selected."""
        world, name = self.context.store.world, self.spark.selected
        statuses = engine_statuses(world)
        known = name in statuses and len(statuses) > 1
        top.selected = Cell(f"{name} {statuses[name].text}", statuses[name].tone) if known else Cell("")
        top.counts = engine_counts(world, statuses)
        top.renew()

    def _seconds_left(self, view: EngineView) -> float | None:
        from spark_tui.observe.metrics.use.history import History

        return self.context[History].eta(view).seconds

    def _show_activities(self, line: ActivityLine) -> None:
        world = self.context.store.world
        line.activities = activities(world, self._seconds_left)
        line.alarms = world.alarms
        line.renew()

    def bind_slice(self, name: str, show: Callable[[Any], None]) -> None:
        """Calls `show` with the app's reactive `name` now and on every change while this screen is the one shown."""
        self.bind_slices((name,), lambda: show(getattr(self.app, name)))

    def bind_slices(self, names: Sequence[str], show: Callable[[], None]) -> None:
        """Calls `show` now, and on every change of one of the app's reactives while this screen is the one shown."""
        self._shows = (*self._shows, show)
        for name in names:
            self.watch(self.app, name, lambda: show() if self.is_current else None, init=False)
        show()

    def resumed(self) -> None:
        """Catches up with what changed while it was hidden. A screen that was mounted just now has nothing to catch up
        with."""
        for show in self._shows if self._shown_before else ():
            show()
        self._shown_before = True
        if self.is_mounted:
            self.name_keys()

    # --- keys -----------------------------------------------------------------------------------------

    def offers(self, id_: str) -> bool:
        """Whether that action has something to act on now. A key that has not works, and says why it does nothing;
        the footer leaves its room to others."""
        if id_ in ("next_engine", "previous_engine"):
            return self.OF_ENGINE and len(self.engine_choices()) > 1
        if id_ == "open_cluster":
            return bool(self.context.settings.clusters)
        return id_ != "yank" or type(self).yanks is not FrameScreen.yanks

    def chosen_again(self) -> None:
        """Its key was pressed while it was shown already."""

    def name_keys(self) -> None:
        """What the footer names. A screen whose `offers` answers otherwise than before calls it."""
        known = tuple(a for a in (*of_scope(self.SCOPE), *of_scope(Scope.GLOBAL)) if a.footer or a.id in self.KEYS_TOO)
        able = allowed(known, read_only=self.context.settings.read_only)
        typing = hasattr(self.focused, "cursor_blink")  # an Input or a TextArea, which are not imported for this
        keys = self.query_one(KeyBar)
        keys.actions = tuple(
            replace(each, label="Unfold") if each.label == "Fold" and self.folded else each
            for each in able
            if self.offers(each.id) and not (typing and each.typed)
        )
        keys.renew()

    def on_descendant_focus(self) -> None:
        self.name_keys()

    def on_descendant_blur(self) -> None:
        self.name_keys()

    def engine_choices(self) -> list[str]:
        """The engines that this screen can show."""
        return [view.name for view in self.engines()]

    def yanks(self) -> tuple[Yank, ...]:
        """What `y` copies here now."""
        return ()

    # --- size -----------------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        """A terminal that is too small gets a sentence instead of a broken layout. What is hidden loses the focus, and
        has it again when it is back."""
        width, height = self.app.size
        small = width < MINIMUM_WIDTH or height < MINIMUM_HEIGHT
        if small and not self.has_class("-too-small"):
            self._focus_before = self.focused
        elif not small and self.has_class("-too-small"):
            before = self._focus_before
            if before is not None and before.is_attached:
                self.call_after_refresh(self.set_focus, before)
        self.set_class(small, "-too-small")
        if small:
            self.query_one("#too-small", Static).update(
                f"{width}x{height} is too small: spark-tui needs {MINIMUM_WIDTH}x{MINIMUM_HEIGHT}. q quits."
            )


def _set(bar: Line, name: str, value: object) -> None:
    setattr(bar, name, value)
    bar.renew()


def bindings(*scopes: Scope) -> list[BindingType]:
    """Textual bindings of these scopes, from the registry of actions; each runs the action method of the same id."""
    return [
        Binding(
            ",".join(action.default_keys),  # a class is made once: the app lays a person's own keys over these
            action.id,
            action.label,
            show=action.footer,
            key_display=shown(action.default_keys[0]),
            priority=action.id == "help_anywhere",  # fields and dialogs do not keep it
            tooltip=action.help,
            id=action.id,
        )
        for action in of_scope(*scopes)
    ]
