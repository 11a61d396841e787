"""The frame around every screen: who and what on top, the memory strip, the tabs; the keys at the foot.

Slices of the World come from the app's reactives. A hidden screen repaints nothing: it catches up when shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Resize, ScreenResume
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from spark_tui.core.actions import ACTIONS, DANGEROUS, Scope, allowed, of_scope
from spark_tui.domain.reading import value_of
from spark_tui.tui.widgets.bars import KeyBar, TabBar, TopBar
from spark_tui.tui.widgets.memory_strip import MemoryStrip

if TYPE_CHECKING:
    from spark_tui.core.context import Context
    from spark_tui.domain.engine.view import EngineView
    from spark_tui.tui.app import SparkApp

MINIMUM_WIDTH, MINIMUM_HEIGHT = 60, 15


class FrameScreen(Screen[None]):
    """Subclasses give `SCOPE`, `TAB` (an action id) and `compose_body`."""

    SCOPE: ClassVar[Scope]
    TAB: ClassVar[str]
    KEYS_TOO: ClassVar[tuple[str, ...]] = ()
    """Actions of everywhere that the footer names on this screen alone."""
    _focus_before: Widget | None = None
    _was_shown = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012 - Textual's shape
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self._css_update_count = self.app._css_update_count  # else Textual parses all style sheets again for it
        width, height = self.app.size
        across = self._get_breakpoint_classes(width, self.HORIZONTAL_BREAKPOINTS)
        down = self._get_breakpoint_classes(height, self.VERTICAL_BREAKPOINTS)
        self.add_class(*across, *down, update=False)  # else all of it is styled twice

    def compose(self) -> ComposeResult:
        """The frame, with the screen's own body inside."""
        app = self.spark
        tabs = [action for action in ACTIONS if action.id.startswith("show_")]
        yield TopBar(demo=self.context.demo, read_only=self.context.settings.read_only)
        yield MemoryStrip(app.glyphs)
        yield TabBar(tabs, self.TAB)
        with Container(id="body"):
            yield from self.compose_body()
        yield KeyBar()
        yield Static("", id="too-small", markup=False)

    def compose_body(self) -> ComposeResult:
        """What the screen is for."""
        raise NotImplementedError

    def _compositor_refresh(self) -> None:
        """Nothing while the app gathers changes: Textual would draw the picture, throw it away, and take what it
        showed for painted. The first one comes whole once the screen is mounted."""
        if not self.app._batch_count:
            super()._compositor_refresh()

    # --- access ---------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkApp:
        """The app, typed."""
        return cast("SparkApp", self.app)

    @property
    def context(self) -> Context:
        """The core."""
        return self.spark.context

    @property
    def selected_engine(self) -> EngineView | None:
        """The engine that the person has selected, in its latest view."""
        return self.spark.selected_engine

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
        self.bind_slice("identity", lambda value: _set(top, identity=value))
        self.bind_slice("uptime_minutes", lambda value: _set(top, uptime=value))
        for name in ("selected", "engines"):
            self.bind_slice(name, lambda _: self._tell_selected(top))
        self.bind_slice("memory", lambda value: _set(strip, memory=value))
        self.bind_slice("pressure", lambda value: _set(strip, pressure=value))
        self.bind_slice("gpu", lambda value: _set(strip, gpu=value))
        self.bind_slice("judgement", lambda value: _set(strip, judgement=value))
        self.bind_slice("alarms", lambda value: _set(strip, alarms=value))
        self.bind_slice("docker", lambda value: _set(keys, docker=value))

    def _tell_selected(self, top: TopBar) -> None:
        """An engine; or a launch that has none yet: only those two can be selected."""
        engine = self.selected_engine
        _set(top, engine=engine, launching=self.spark.selected if engine is None else "")

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

    def bind_slice(self, name: str, show: Callable[[Any], None]) -> None:
        """Calls `show` with the app's reactive `name` now and on every change while this screen is the one shown."""
        self._slices = [*getattr(self, "_slices", []), (name, show)]
        self.watch(self.app, name, lambda value: show(value) if self.is_current else None, init=False)
        show(getattr(self.app, name))

    def _on_screen_resume(self, event: ScreenResume) -> None:
        """Catches up with what changed while it was hidden. What is shown for the first time was styled just now."""
        event.refresh_styles = event.refresh_styles and self._was_shown
        self._was_shown = True
        for name, show in getattr(self, "_slices", []):
            show(getattr(self.app, name))

    def on_resize(self, event: Resize) -> None:
        """A terminal that is too small gets a sentence instead of a ruin."""
        if event.size != self.app.size:
            # The layout of an earlier size told its own size after the window had changed again: a Resize in the
            # queue is replaced by the next, and the window's would be lost.
            self.post_message(Resize(self.app.size, self.app.size))
        width, height = self.app.size
        small = width < MINIMUM_WIDTH or height < MINIMUM_HEIGHT
        if small != self.has_class("-too-small"):
            self._keep_focus(small)
        self.set_class(small, "-too-small")
        if small:
            self.query_one("#too-small", Static).update(
                f"{width}x{height} is too small: spark-tui needs {MINIMUM_WIDTH}x{MINIMUM_HEIGHT}. q quits."
            )

    def _keep_focus(self, small: bool) -> None:
        """What is hidden loses the focus, and has it again when it is back."""
        if small:
            self._focus_before = self.focused
        elif self._focus_before is not None and self._focus_before.is_attached:
            self.call_after_refresh(self.set_focus, self._focus_before)

    def engines(self) -> tuple[EngineView, ...]:
        """The engines of the latest World; empty while none are known."""
        return value_of(self.spark.engines) or ()


def _set(bar: TopBar | MemoryStrip | KeyBar, **values: Any) -> None:
    for name, value in values.items():
        setattr(bar, name, value)
    bar.renew()
