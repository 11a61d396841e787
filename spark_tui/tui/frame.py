"""What every screen has: the app's slices of the World, and the frame of bars around a screen's body.

The memory strip, the tabs and the keys at the foot are the same on all screens. A hidden screen repaints nothing: it
catches up when it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.reactive import var
from textual.widget import Widget
from textual.widgets import Static

from spark_tui.core.actions import ACTIONS, DANGEROUS, Scope, allowed, key_of, of_scope, shown
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import ALL_WELL
from spark_tui.domain.presets.preset import PresetCatalogue
from spark_tui.domain.reading import NOT_READ_YET, Reading, value_of
from spark_tui.tui.format import Glyphs
from spark_tui.tui.screen_table import make_screen
from spark_tui.tui.textual_private import PlainCrashApp, QuietScreen
from spark_tui.tui.widgets.bars import KeyBar, TabBar, TopBar
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.memory_strip import MemoryStrip

if TYPE_CHECKING:
    from spark_tui.core.context import Context
    from spark_tui.core.jobs import JobView
    from spark_tui.core.store import World
    from spark_tui.domain.engine.container import DaemonFacts
    from spark_tui.domain.errors import SparkError
    from spark_tui.domain.event import Event
    from spark_tui.domain.finding import Finding
    from spark_tui.domain.host.drop_caches import DropResult
    from spark_tui.domain.host.memory import MemInfo, MemoryBreakdown
    from spark_tui.domain.host.vitals import GpuReading
    from spark_tui.domain.logs.explain import Explanation
    from spark_tui.domain.logs.view import EngineView
    from spark_tui.domain.models.download import Download
    from spark_tui.domain.presets.model_use import LibraryView

MINIMUM_WIDTH, MINIMUM_HEIGHT = 60, 15


class FrameApp(PlainCrashApp[None]):
    """The app as screens see it: the core, one slice of the World per `var`, and the selected engine.

    A widget wakes only when what it shows has changed, and repaints itself. A `reactive` of the app would repaint the
    whole screen on every change.
    """

    identity: var[HostIdentity] = var(HostIdentity(""), init=False)
    uptime_minutes: var[Reading[int]] = var(NOT_READ_YET, init=False)
    memory: var[Reading[MemInfo]] = var(NOT_READ_YET, init=False)
    pressure: var[Reading[float]] = var(NOT_READ_YET, init=False)
    gpu: var[Reading[GpuReading]] = var(NOT_READ_YET, init=False)
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
    downloads: var[Reading[tuple[Download, ...]]] = var(NOT_READ_YET, init=False)
    selected: var[str] = var("", init=False)
    """Name of the selected engine; all screens show that one."""

    def __init__(self, context: Context, glyphs: Glyphs) -> None:
        self.context = context  # screens are composed from both: they must be there before them
        self.glyphs = glyphs
        self.before_memory = "home"
        super().__init__()

    def take(self, world: World) -> None:
        """The only writer of the slices. The selected engine stays selected; before one is chosen, it is the first."""
        for name in SLICES:
            setattr(self, name, getattr(world, name))
        names = [view.name for view in value_of(self.engines) or ()]
        if self.selected not in names and self.selected not in [job.title for job in self.jobs]:
            self.selected = names[0] if names else ""

    @property
    def selected_engine(self) -> EngineView | None:
        return next((view for view in value_of(self.engines) or () if view.name == self.selected), None)

    def action_back_from_memory(self) -> None:
        self.switch_mode(self.before_memory)

    def explain(self, view: EngineView) -> Explanation:
        """What the engine's log means now, as core has it; an engine that core does not watch is explained here."""
        from spark_tui.domain.logs.explain import explain_view  # its rules are many: after the first frame

        known = self.context.store.world.explanations.get(view.name)
        return known or explain_view(view, now=self.context.clock.now())

    def apply_fix(self, view: EngineView | None) -> None:
        """The launch form of the engine's preset, with the change written into it that its log suggests."""
        proposed = self.explain(view).proposal if view is not None else None
        preset = self.presets.get(view.container.preset) if view is not None else None
        if view is None or proposed is None:
            self.notify("No fix available for this engine.", markup=False)
        elif preset is None:
            presets, imported = key_of("show_presets"), key_of("import_recipes")
            self.notify(
                f"Not started by spark-tui. Import it as a preset to edit it ({presets}, {imported}).", markup=False
            )
        else:
            name = {"name": view.name} if view.name != preset.name else {}
            self.push_screen(make_screen("launch_form", self.context, preset, {**name, **dict(proposed.change)}))

    def report(self, error: SparkError) -> None:
        """An error in two places: the toast with its remedy, its detail in the log."""
        self.log.error(error.id, error.summary, error.detail)
        self.notify(f"{error.summary}\n{error.remedy}".strip(), severity="error", timeout=12, markup=False)


SLICES = tuple(name for name, value in vars(FrameApp).items() if isinstance(value, var) and name != "selected")
"""Names of the World's fields that the app holds."""


class FrameScreen(QuietScreen[None]):
    """Subclasses give `SCOPE`, `TAB` (an action id) and `compose_body`."""

    SCOPE: ClassVar[Scope]
    TAB: ClassVar[str]
    KEYS_TOO: ClassVar[tuple[str, ...]] = ()
    """Global actions that the footer names on this screen alone."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012 - Textual's shape
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012
    _focus_before: Widget | None = None

    def compose(self) -> ComposeResult:
        tabs = [action for action in ACTIONS if action.id.startswith("show_")]
        yield TopBar(demo=self.context.demo, read_only=self.context.settings.read_only)
        yield MemoryStrip(self.spark.glyphs)
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
        self.name_keys()
        for name in ("identity", "uptime_minutes"):
            self.bind_slice(name, partial(_set, top, name))
        for name in ("selected", "engines"):
            self.bind_slice(name, lambda _: self._show_selected_engine(top))
        for name in ("memory", "pressure", "gpu", "memory_state", "alarms"):
            self.bind_slice(name, partial(_set, strip, name))
        self.bind_slice("docker", partial(_set, keys, "docker"))

    def _show_selected_engine(self, top: TopBar) -> None:
        """An engine; or a launch that has none yet: only those two can be selected."""
        top.engine = self.selected_engine
        top.launching = self.spark.selected if top.engine is None else ""
        top.renew()

    def bind_slice(self, name: str, show: Callable[[Any], None]) -> None:
        """Calls `show` with the app's reactive `name` now and on every change while this screen is the one shown."""
        self._slices = [*getattr(self, "_slices", []), (name, show)]
        self.watch(self.app, name, lambda value: show(value) if self.is_current else None, init=False)
        show(getattr(self.app, name))

    def resumed(self) -> None:
        """Catches up with what changed while it was hidden."""
        for name, show in getattr(self, "_slices", []):
            show(getattr(self.app, name))

    # --- keys -----------------------------------------------------------------------------------------

    def offers(self, id_: str) -> bool:
        """Whether that action has something to act on now. A key that has not works, and says why it does nothing;
        the footer leaves its room to others."""
        return True

    def name_keys(self) -> None:
        """What the footer names. A screen whose `offers` answers otherwise than before calls it."""
        known = tuple(a for a in (*of_scope(self.SCOPE), *of_scope(Scope.GLOBAL)) if a.footer or a.id in self.KEYS_TOO)
        able = allowed(known, read_only=self.context.settings.read_only)
        keys = self.query_one(KeyBar)
        keys.actions = tuple(action for action in able if self.offers(action.id))
        keys.renew()

    # --- size -----------------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        """A terminal that is too small gets a sentence instead of a broken layout. What is hidden loses the focus, and
        has it again when it is back."""
        if event.size != self.app.size:
            # The layout of an earlier size reported its own size after the window had changed again: a Resize in the
            # queue is replaced by the next, and the window's would be lost.
            self.post_message(Resize(self.app.size, self.app.size))
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
            tooltip=action.help,
            id=action.id,
        )
        for action in of_scope(*scopes)
    ]
