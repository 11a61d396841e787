"""The frame around every screen: who and what on top, the memory strip, the tabs; the keys at the foot.

Slices of the World come from the app's reactives. A hidden screen repaints nothing: it catches up when shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Static

from spark_tui.core.actions import ACTIONS, DANGEROUS, Scope, allowed, of_scope
from spark_tui.core.context import Context
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.reading import value_of
from spark_tui.tui.widgets.bars import KeyBar, TabBar, TopBar
from spark_tui.tui.widgets.memory_strip import MemoryStrip

if TYPE_CHECKING:
    from spark_tui.tui.app import SparkApp

MINIMUM_WIDTH, MINIMUM_HEIGHT = 60, 15


class FrameScreen(Screen[None]):
    """Subclasses give `SCOPE`, `TAB` (an action id) and `compose_body`."""

    SCOPE: ClassVar[Scope]
    TAB: ClassVar[str]
    KEYS_TOO: ClassVar[tuple[str, ...]] = ()
    """Actions of everywhere that the footer names on this screen alone."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012 - Textual's shape
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

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
        keys.actions = allowed(
            tuple(a for a in (*of_scope(self.SCOPE), *of_scope(Scope.GLOBAL)) if a.footer or a.id in self.KEYS_TOO),
            read_only=self.context.settings.read_only,
        )
        self.bind_slice("identity", lambda value: _set(top, identity=value))
        self.bind_slice("uptime_minutes", lambda value: _set(top, uptime=value))
        self.bind_slice("selected", lambda _: _set(top, engine=self.selected_engine))
        self.bind_slice("engines", lambda _: _set(top, engine=self.selected_engine))
        self.bind_slice("memory", lambda value: _set(strip, memory=value))
        self.bind_slice("pressure", lambda value: _set(strip, pressure=value))
        self.bind_slice("gpu", lambda value: _set(strip, gpu=value))
        self.bind_slice("judgement", lambda value: _set(strip, judgement=value))
        self.bind_slice("alarms", lambda value: _set(strip, alarms=value))
        self.bind_slice("docker", lambda value: _set(keys, docker=value))

    def bind_slice(self, name: str, show: Callable[[Any], None]) -> None:
        """Calls `show` with the app's reactive `name` now and on every change while this screen is the one shown."""
        self._slices = [*getattr(self, "_slices", []), (name, show)]
        self.watch(self.app, name, lambda value: show(value) if self.is_current else None, init=False)
        show(getattr(self.app, name))

    def on_screen_resume(self) -> None:
        """Catches up with what changed while it was hidden."""
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
        self.set_class(small, "-too-small")
        if small:
            self.query_one("#too-small", Static).update(
                f"{width}x{height} is too small: spark-tui needs {MINIMUM_WIDTH}x{MINIMUM_HEIGHT}. q quits."
            )

    def engines(self) -> tuple[EngineView, ...]:
        """The engines of the latest World; empty while none are known."""
        return value_of(self.spark.engines) or ()


def _set(bar: TopBar | MemoryStrip | KeyBar, **values: Any) -> None:
    for name, value in values.items():
        setattr(bar, name, value)
    bar.renew()
