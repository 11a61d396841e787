"""The Textual application: modes, the bridge from the store, and what keys do everywhere."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.events import DescendantFocus, Key, Paste, Resize
from textual.events import Event as TextualEvent
from textual.filter import LineFilter
from textual.geometry import Size
from textual.notifications import Notify
from textual.reactive import Initialize, Reactive, var
from textual.screen import Screen
from textual.theme import Theme
from textual.worker import Worker, WorkerState

from spark_tui.core.actions import ACTIONS, DANGEROUS, Scope, key_of, use_keys
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import Judgement
from spark_tui.domain.presets.preset import PresetCatalogue
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import NOT_READ_YET, Reading, value_of
from spark_tui.tui.format import Glyphs, PlainCharacters, choose
from spark_tui.tui.key_queue import KeyPassed, TypedKeys
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens.factory import screen_factories
from spark_tui.tui.themes import THEMES, theme_for

if TYPE_CHECKING:
    from spark_tui.core.context import Context
    from spark_tui.core.jobs import JobView
    from spark_tui.core.library import LibraryView
    from spark_tui.core.store import World
    from spark_tui.domain.engine.container import DaemonFacts
    from spark_tui.domain.engine.view import EngineView
    from spark_tui.domain.errors import SparkError
    from spark_tui.domain.event import Event
    from spark_tui.domain.host.alarm import Alarm
    from spark_tui.domain.host.breakdown import Ledger
    from spark_tui.domain.host.drop_caches import DropResult
    from spark_tui.domain.host.memory import MemInfo
    from spark_tui.domain.host.vitals import GpuReading
    from spark_tui.domain.logs.explain import Explanation
    from spark_tui.domain.models.download import Download

_OUR_THEMES = {each.name: each for each in THEMES}


class SparkApp(App[None]):
    """One slice of the World per `var`: a widget wakes only when what it shows has changed, and repaints itself.

    A `reactive` of the app would repaint the whole screen on every change.
    """

    TITLE = "spark-tui"
    CSS_PATH: ClassVar = ["app.tcss", "screens/home.tcss"]  # both at once: every later file parses all of them again
    ENABLE_COMMAND_PALETTE = True
    MODES = screen_factories()
    DEFAULT_MODE = "home"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.GLOBAL)

    def _theme_at_start(self) -> str:
        return self._opening_theme

    theme: Reactive[str] = Reactive(Initialize(_theme_at_start))
    """Ours from the first style sheet on: one that is set later has all of them parsed again."""

    identity: var[HostIdentity] = var(HostIdentity(""), init=False)
    uptime_minutes: var[Reading[int]] = var(NOT_READ_YET, init=False)
    memory: var[Reading[MemInfo]] = var(NOT_READ_YET, init=False)
    pressure: var[Reading[float]] = var(NOT_READ_YET, init=False)
    gpu: var[Reading[GpuReading]] = var(NOT_READ_YET, init=False)
    docker: var[Reading[DaemonFacts]] = var(NOT_READ_YET, init=False)
    engines: var[Reading[tuple[EngineView, ...]]] = var(NOT_READ_YET, init=False)
    presets: var[PresetCatalogue] = var(PresetCatalogue(), init=False)
    ledger: var[Reading[Ledger]] = var(NOT_READ_YET, init=False)
    judgement: var[Judgement] = var(Judgement(), init=False)
    alarms: var[tuple[Alarm, ...]] = var((), init=False)
    last_drop: var[DropResult | None] = var(None, init=False)
    jobs: var[tuple[JobView, ...]] = var((), init=False)
    events: var[tuple[Event, ...]] = var((), init=False)
    library: var[Reading[LibraryView]] = var(NOT_READ_YET, init=False)
    downloads: var[Reading[tuple[Download, ...]]] = var(NOT_READ_YET, init=False)
    selected: var[str] = var("", init=False)
    """Name of the engine that the person has selected; all screens speak of that one."""

    def __init__(self, context: Context, glyphs: Glyphs | None = None, theme: Theme | None = None) -> None:
        self.context = context  # screens are composed from it: it must be there before they are
        self.glyphs = glyphs or choose(context.settings.glyphs)
        self._explained: dict[str, tuple[EngineView, Explanation]] = {}
        self._before_memory = "home"
        self._plain = PlainCharacters(self.glyphs)
        self._opening_theme = (theme or theme_for(context.settings.theme)).name
        super().__init__()
        self._typed = TypedKeys(self, super().on_event)
        own = dict(context.settings.keymap)
        use_keys(own)
        self.set_keymap({id_: ",".join(keys) for id_, keys in own.items()})

    @property
    def available_themes(self) -> dict[str, Theme]:
        """Textual's and ours."""
        return super().available_themes | _OUR_THEMES

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Every line goes through these; the last one is for terminals with a small font."""
        return [*super().get_line_filters(), *([self._plain] if self._plain.enabled else [])]

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Starts the core beside the screens, once the first frame is out."""
        self.app_resume_signal.subscribe(self, lambda _: self.call_later(self._repaint))
        self._apply(self.context.store.world)
        self.call_after_refresh(self._start)

    def _repaint(self) -> None:
        """After `fg` the terminal holds what the shell wrote: every cell is written anew."""
        self.screen.refresh(layout=True)

    def _start(self) -> None:
        self.bridge()
        self.run_core()

    def on_resize(self, event: Resize) -> None:
        """Of two sizes in quick succession the older may be told last: then the terminal is asked."""
        if self.is_headless or self.is_web:
            return
        size = Size(*shutil.get_terminal_size(event.size))
        if size != event.size:
            self.post_message(Resize(size, size))

    async def on_event(self, event: TextualEvent) -> None:
        """What is typed goes to the screens in its order; all else as Textual has it."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            await self._typed.typed(event)
        else:
            await super().on_event(event)

    def on_key_passed(self, message: KeyPassed) -> None:
        """The next key may go."""
        self._typed.passed(message)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """No cursor blinks, in the palette neither: over SSH it would be the only thing sent at rest."""
        if getattr(event.widget, "cursor_blink", False):
            setattr(event.widget, "cursor_blink", False)  # noqa: B010 - of an Input, which is not imported for this

    async def on_unmount(self) -> None:
        """Leaves containers running; ends streams, connections and helpers."""
        await self.context.close()

    @work(exit_on_error=False, group="core")
    async def run_core(self) -> None:
        """Collectors and supervisor. They turn failures of the outside into readings."""
        await asyncio.to_thread(self.context.preload)  # keys are answered meanwhile
        gc.freeze()  # what the start has made stays: no collection looks at it again
        self.context.collectors.load_presets()
        await self.context.run()

    @work(exit_on_error=False, group="bridge")
    async def bridge(self) -> None:
        """The only writer of the slices."""
        async for world in self.context.store.changes():
            self._apply(world)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that broke is seen, not swallowed; the app stays, and so do the containers."""
        if event.state is WorkerState.ERROR:
            self.log.error(event.worker.name, event.worker.error)
            self.notify(
                f"{event.worker.name} has stopped: {event.worker.error!r}. Restart spark-tui; containers go on.",
                severity="error",
                timeout=60,
                markup=False,
            )

    def _apply(self, world: World) -> None:
        self.identity = world.identity
        self.uptime_minutes = world.uptime_minutes
        self.memory = world.memory
        self.pressure = world.pressure
        self.gpu = world.gpu
        self.docker = world.docker
        self.engines = world.engines
        self.presets = world.presets
        self.ledger = world.ledger
        self.judgement = world.judgement
        self.alarms = world.alarms
        self.last_drop = world.last_drop
        self.jobs = world.jobs
        self.events = world.events
        self.library = world.library
        self.downloads = world.downloads
        self._keep_selection()

    def _keep_selection(self) -> None:
        """The selected engine stays selected; before the person chooses, it is the first that runs."""
        names = [view.name for view in value_of(self.engines) or ()]
        if self.selected not in names:
            launching = [job.title for job in self.jobs]
            if self.selected not in launching:
                self.selected = names[0] if names else ""

    @property
    def selected_engine(self) -> EngineView | None:
        """The selected engine's latest view."""
        return next((view for view in value_of(self.engines) or () if view.name == self.selected), None)

    def explain(self, view: EngineView) -> Explanation:
        """What the engine's log means now; the same object until something that it rests on changes."""
        from spark_tui.domain.logs.explain import explain_view  # its rules are many: after the first frame

        memory = value_of(self.memory)
        kept = self._explained.get(view.name)
        if kept is None or kept[0] != view:
            pool = None if memory is None else memory.total / GIB
            explanation = explain_view(view, now=self.context.clock.now(), pool_gib=pool, taken_ports=self._ports(view))
            kept = self._explained[view.name] = (view, explanation)
        return kept[1]

    def apply_remedy(self, view: EngineView | None) -> None:
        """The launch form of the engine's preset, with the change written into it that its log proposes."""
        from spark_tui.domain.logs.explain import proposal
        from spark_tui.tui.screens.launch_form import LaunchForm

        proposed = proposal(self.explain(view)) if view is not None else None
        preset = self.presets.get(view.container.preset) if view is not None else None
        if view is None or proposed is None:
            self.notify("Nothing to apply: neither a cause nor a finding here proposes a change.", markup=False)
        elif preset is None:
            self.notify("It was not launched from a preset that is here: change its own settings.", markup=False)
        else:
            name = {"name": view.name} if view.name != preset.name else {}
            self.push_screen(LaunchForm(self.context, preset, {**name, **dict(proposed.changes)}))

    def _ports(self, view: EngineView) -> set[int]:
        """Ports that other engines have."""
        views = value_of(self.engines) or ()
        return {other.port for other in views if other.port is not None and other.name != view.name}

    # --- what everyone can do -------------------------------------------------------------------------

    def action_show_home(self) -> None:
        """Home."""
        self.switch_mode("home")

    def action_show_models(self) -> None:
        """Models."""
        self.switch_mode("models")

    def action_show_presets(self) -> None:
        """Presets."""
        self.switch_mode("presets")

    def action_show_logs(self) -> None:
        """Logs."""
        self.switch_mode("logs")

    def action_show_doctor(self) -> None:
        """Doctor."""
        self.switch_mode("doctor")

    def action_show_metrics(self) -> None:
        """Metrics."""
        self.switch_mode("metrics")

    def action_show_chat(self) -> None:
        """Chat."""
        self.switch_mode("chat")

    def action_show_bench(self) -> None:
        """Bench."""
        self.switch_mode("bench")

    def action_open_memory(self) -> None:
        """Memory, over whatever is shown; once more goes back."""
        if self.current_mode == "memory":
            self.action_back_from_memory()
            return
        self._before_memory = self.current_mode
        self.switch_mode("memory")

    def action_back_from_memory(self) -> None:
        """Back to the screen from which Memory was opened."""
        self.switch_mode(self._before_memory)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Read-only mode leaves out what would change something."""
        if action in DANGEROUS and self.context.settings.read_only:
            return False
        return super().check_action(action, parameters)

    def on_key(self, event: Key) -> None:
        """A key that read-only mode leaves out says so."""
        scopes = (Scope.GLOBAL, getattr(self.screen, "SCOPE", None))
        if not self.context.settings.read_only or scopes[1] is None:
            return
        left_out = [each for each in ACTIONS if each.dangerous and each.scope in scopes and event.key in each.keys]
        if left_out:
            self.notify(f"Read-only: {left_out[0].label} is left out. Start without --read-only for it.", markup=False)

    def action_help(self) -> None:
        """The keys of this screen."""
        from spark_tui.tui.screens.help import HelpScreen

        scope = getattr(self.screen, "SCOPE", None)
        if scope is not None:
            self.push_screen(HelpScreen(scope, read_only=self.context.settings.read_only))

    def action_tour(self) -> None:
        """The screen in one look."""
        from spark_tui.tui.screens.modals import TourScreen

        if getattr(self.screen, "SCOPE", None) is not None:
            self.push_screen(TourScreen())

    @work(exit_on_error=False, exclusive=True, group="drop_cache")
    async def action_drop_cache(self) -> None:
        """Frees the page cache."""
        from spark_tui.tui.drop_cache import drop_cache

        await drop_cache(self)

    def action_suspend_process(self) -> None:
        """To the shell, where one waits: over `ssh -t HOST spark-tui` none does, and nothing would bring it back."""
        if os.getpgrp() == os.getsid(0):  # a shell with job control gives every job a group of its own
            self.notify(f"No shell waits here that could bring it back. {key_of('quit')} leaves.", markup=False)
            return
        super().action_suspend_process()

    @work(exit_on_error=False, exclusive=True, group="hosts")
    async def action_open_hosts(self) -> None:
        """Another box."""
        from spark_tui.tui.other_hosts import open_other_host

        await open_other_host(self)

    async def action_quit(self) -> None:
        """Leaves, and says what goes on."""
        running = [view.name for view in value_of(self.engines) or () if view.container.running]
        self.exit(message=f"Still running: {', '.join(running)}." if running else None)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """See `palette`."""
        from spark_tui.tui.palette import palette

        return palette(self, screen)

    def on_notify(self, event: Notify) -> None:
        """What is said already is not said twice: it stays for as long as the new one would."""
        new = event.notification
        for shown in [each for each in self._notifications if (each.message, each.title) == (new.message, new.title)]:
            self._unnotify(shown, refresh=False)

    def report(self, error: SparkError) -> None:
        """An error in two places: the toast with its remedy here, its detail in the log."""
        self.log.error(error.id, error.summary, error.detail)
        self.notify(f"{error.summary}\n{error.remedy}".strip(), severity="error", timeout=12, markup=False)

    def _fatal_error(self) -> None:
        """In place of Textual's, which shows the values of variables: keys, prompts, answers among them."""
        from spark_tui.tui.crash import crash_text

        self.bell()
        if self._exception is not None:
            self._exit_renderables.append(crash_text(self._exception))
        self._close_messages_no_wait()


def run_app(context: Context) -> None:
    """Opens the control centre and returns when the person leaves."""
    SparkApp(context, theme=theme_for(context.settings.theme, os.environ)).run()
