"""What every screen has: the app's slices of the World, and the frame of bars around a screen's body.

The status bar, the activity line, the tabs and the keys at the foot are the same on all screens. A hidden screen
repaints nothing: it catches up when it is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, cast

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Key, Resize
from textual.notifications import Notify, SeverityLevel
from textual.reactive import var
from textual.screen import Screen
from textual.widget import AwaitMount, Widget
from textual.widgets import Static
from textual.worker import Worker

from spark_tui.base.actions import Scope, allowed, is_dangerous, of_scope, shown
from spark_tui.base.errors import SparkError
from spark_tui.base.feature import Slice, named
from spark_tui.base.finding import EventKind, Severity
from spark_tui.base.page import Cell
from spark_tui.base.quantities import GIB
from spark_tui.base.store import World
from spark_tui.base.text import clean
from spark_tui.base.under_way import Measurement, disturbed, under_way
from spark_tui.tui.format import Glyphs
from spark_tui.tui.terminal_notices import TerminalNotices
from spark_tui.tui.textual_private import PlainCrashApp, QuietScreen, write_to_terminal
from spark_tui.tui.widgets.bars import ActivityLine, KeyBar, TabBar, TopBar
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.memory_strip import MemoryStrip
from spark_tui.tui.yank import LAST_COPY, Yank

if TYPE_CHECKING:
    from spark_tui.base.context import Context
    from spark_tui.base.jobs import Activity

DIALOGS: Final = {
    "choice": "spark_tui.tui.modals:ChoiceDialog",
    "confirm": "spark_tui.tui.modals:ConfirmScreen",
    "help": "spark_tui.tui.help:HelpScreen",
    "tour": "spark_tui.tui.help:TourScreen",
    "yank": "spark_tui.tui.modals:YankMenu",
}
"""Those that every screen may open. Each is imported when it is first shown."""
_UNDONE: Final = {"Fold": "Unfold", "Pause": "Resume"}
"""What a key is named where it takes back what it did."""
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
    """The app as screens see it: the core, the World, and the selected engine.

    A widget wakes only when what it shows has changed, and repaints itself. A `reactive` of the app would repaint the
    whole screen on every change.
    """

    BARS: ClassVar[tuple[str | Slice[Any], ...]] = ()
    """What the bars show of engines, and of what is under way."""
    world: var[World] = var(World(), init=False, always_update=True)
    selected: var[str] = var("", init=False)
    """Name of the selected engine; all screens show that one."""

    def __init__(self, context: Context, glyphs: Glyphs, screens: Mapping[str, str], asides: Collection[str]) -> None:
        self._screens = {**DIALOGS, **screens}
        self._asides = asides
        self.context = context  # screens are composed from both: they must be there before them
        self.glyphs = glyphs
        wanted = context.settings.notify.split(",")
        self.notices = TerminalNotices(wanted, os.environ, partial(write_to_terminal, self))
        self._error_shown = False
        self._before_aside = "home"
        self.measurement: Measurement | None = None
        super().__init__()

    def make_screen(self, name: str, *arguments: Any, **options: Any) -> Screen[Any]:
        """A new screen or dialog of that name. Raises KeyError for one that no room has."""
        screen: Screen[Any] = named(self._screens[name])(*arguments, **options)
        return screen

    def take(self, world: World) -> None:
        """The only writer of the World."""
        self.world = world
        self.notices.events(world.events)

    def engine_names(self) -> list[str]:
        raise NotImplementedError

    def engine_words(self) -> tuple[Cell, tuple[Cell, ...]]:
        """Of several engines the selected one with its state, and how many are in each: for the bar on top."""
        raise NotImplementedError

    def activities(self) -> tuple[Activity, ...]:
        """What is under way on this machine."""
        raise NotImplementedError

    def has_preset(self, name: str) -> bool:
        raise NotImplementedError

    def apply_fix(self, engine: str) -> None:
        """The launch form of the engine's preset, with the change written into it that its log suggests."""
        raise NotImplementedError

    def edit_engine(self, engine: str, changes: Mapping[str, str] | None = None) -> None:
        """The launch form with the settings of an engine that runs; `changes` are written into it."""
        raise NotImplementedError

    async def settle_store(self) -> bool:
        """Asks once where downloads go, if that is open. Whether one may start; to be called by a worker. Raises
        RefusedError where the answer counts from the next start on."""
        raise NotImplementedError

    def on_notify(self, event: Notify) -> None:
        """One toast at a time."""
        self.clear_notifications()
        self._error_shown = event.notification.severity == "error"

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """A toast covers what is under it: it goes soon, whatever it says; an error stays until a key."""
        seconds = ERROR_SECONDS if severity == "error" else TOAST_SECONDS
        super().notify(message, title=title, severity=severity, timeout=seconds, markup=markup)

    def simulate_key(self, key: str) -> None:
        """As if it came from the keyboard: one that a widget sends would end at that widget on its way up."""
        event = Key(key, None)
        event.set_sender(self)
        self.post_message(event)

    def end_error(self) -> None:
        """A key was pressed: the error was read."""
        if self._error_shown:
            self._error_shown = False
            self.clear_notifications()

    def show_aside(self, mode: str) -> None:
        """A screen over whatever is shown; once more goes back."""
        self.turn_to(self._before_aside if self.current_mode == mode else mode)

    def turn_to(self, mode: str) -> AwaitMount:
        """Shows that screen; one that is not aside is where Esc goes back to."""
        if self.current_mode not in self._asides:
            self._before_aside = self.current_mode
        return self.switch_mode(mode)

    def launched(self, name: str | None) -> None:
        """Home shows how an engine starts that a form has launched."""
        if name:
            self.selected = name
            self.switch_mode("home")

    async def may(self, then: str, name: str) -> bool:
        """Whether `then` may be done with that engine: asks while work is under way that it would disturb. A
        measurement of this program is stopped for it, and its end awaited. To be called by a worker. Raises SparkError
        where it is unknown what other programs do."""
        own = under_way(self.context.store.world, self.measurement)
        for each in disturbed(then, name, own, self.context.ports.get("state")):
            stopped = self.measurement if own and each is own[0] else None
            what = f"The {each.what} continues, and its result may suffer." if stopped is None else each.end
            question = f"{then} {name} during the {each.what}?"
            if not await self.push_screen_wait(self.make_screen("confirm", question, what, verb=then)):
                return False
            if stopped is not None:
                await stopped.end()
        return True

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


class FrameScreen(QuietScreen[None]):
    """Subclasses give `SCOPE`, `TAB` (an action id) and `compose_body`. `folded`: the key that folds unfolds."""

    SCOPE: ClassVar[str]
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
    def world(self) -> World:
        return self.spark.world

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In read-only mode the dangerous actions do not exist: no key, no palette entry, no call."""
        if is_dangerous(action) and self.context.settings.read_only:
            return False
        return super().check_action(action, parameters)

    # --- slices ---------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Binds the bars to their slices. Textual calls the handlers of every class: subclasses do not call this."""
        top, strip, keys = self.query_one(TopBar), self.query_one(MemoryStrip), self.query_one(KeyBar)
        strip.floor = int(self.context.settings.guard_serving_gib * GIB)
        self.name_keys()
        shown: dict[Line, tuple[str, ...]] = {
            top: ("identity", "gpu", "vitals"),
            strip: ("memory", "breakdown", "pressure", "memory_state"),
            keys: ("docker",),
        }
        for bar, names in shown.items():
            for name in names:
                self.bind_slice(name, partial(_set, bar, name))
        self.bind_slices((*self.spark.BARS, "selected"), lambda: self._show_engines(top))
        line = self.query_one(ActivityLine)
        self.bind_slices((*self.spark.BARS, "alarms"), lambda: self._show_activities(line))

    def _show_engines(self, top: TopBar) -> None:
        """How many there are in each state; of several, the one that is selected."""
        top.selected, top.counts = self.spark.engine_words()
        top.renew()

    def _show_activities(self, line: ActivityLine) -> None:
        line.activities = self.spark.activities()
        line.alarms = self.world.alarms
        line.renew()

    def bind_slice(self, name: str, show: Callable[[Any], None]) -> None:
        """Calls `show` with that field of the World now, and on every change while this screen is the one shown."""
        self.bind_slices((name,), lambda: show(getattr(self.world, name)))

    def bind_slices(self, names: Sequence[str | Slice[Any]], show: Callable[[], None]) -> None:
        """Calls `show` now, and on every change of a field or a slice of the World, or of the `selected` engine, while
        this screen is the one shown."""

        def look(before: World, now: World) -> None:
            if self.is_current and any(_part(before, name) != _part(now, name) for name in names):
                show()

        self._shows = (*self._shows, show)
        self.watch(self.app, "world", look, init=False)
        if "selected" in names:
            self.watch(self.app, "selected", lambda: show() if self.is_current else None, init=False)
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

    def undoes(self, id_: str) -> bool:
        """Whether the key of that action takes back what it did before: the footer names what it does now."""
        return self.folded

    def chosen_again(self) -> None:
        """Its key was pressed while it was shown already."""

    def name_keys(self) -> None:
        """What the footer names. A screen whose `offers` answers otherwise than before calls it."""
        known = tuple(a for a in (*of_scope(self.SCOPE), *of_scope(Scope.GLOBAL)) if a.footer or a.id in self.KEYS_TOO)
        able = allowed(known, read_only=self.context.settings.read_only)
        typing = hasattr(self.focused, "cursor_blink")  # an Input or a TextArea, which are not imported for this
        keys = self.query_one(KeyBar)
        keys.actions = tuple(
            replace(each, label=_UNDONE[each.label]) if each.label in _UNDONE and self.undoes(each.id) else each
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
        return self.spark.engine_names()

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


def _part(world: World, name: str | Slice[Any]) -> object:
    return world[name] if isinstance(name, Slice) else getattr(world, name, None)


def _set(bar: Line, name: str, value: object) -> None:
    setattr(bar, name, value)
    bar.renew()


def bindings(*scopes: str) -> list[BindingType]:
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
