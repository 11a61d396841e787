"""The Textual application: modes, the bridge from the store, and what keys do everywhere."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final, TypeVar

from rich.text import Text
from textual import work
from textual.app import SuspendNotSupported
from textual.binding import BindingType
from textual.events import DescendantFocus, Key, Paste, Resize
from textual.events import Event as TextualEvent
from textual.filter import LineFilter
from textual.geometry import Size
from textual.reactive import Initialize, Reactive
from textual.theme import Theme
from textual.worker import Worker, WorkerState

from spark_tui.app.engines_frame import EnginesApp, parts
from spark_tui.app.first import first_figures, run
from spark_tui.app.rooms import ROOMS, Rooms
from spark_tui.base.actions import (
    ACTIONS,
    Scope,
    is_dangerous,
    key_of,
    known_actions,
    use_actions,
    use_keys,
    use_screen,
)
from spark_tui.base.context import Context
from spark_tui.base.errors import RefusedError
from spark_tui.base.secret import mask_secrets
from spark_tui.base.settings import THEME_NAMES, SettingsError
from spark_tui.base.text import clean, clean_line
from spark_tui.base.under_way import under_way
from spark_tui.machine.settings import user_themes
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.format import Glyphs, PlainCharacters, choose
from spark_tui.tui.frame import FrameScreen, acting, bindings
from spark_tui.tui.key_queue import GUARD_S, KeyHandled, KeyQueue
from spark_tui.tui.themes import THEMES, in_console_colours, own_theme, theme_for

T = TypeVar("T")

_OUR_THEMES = {each.name: each for each in THEMES}
CRASHED = "spark-tui crashed. Containers keep running. Please report this: spark-tui doctor --report FILE"


_COLLECT_OBJECTS: Final = 5_000
"""New objects after which Python looks for garbage by itself, once the start is over: looks at 5,000 take up to 5 ms,
at 100,000 up to 150 ms, which a key would wait for."""
_COLLECT_SECONDS: Final = 60.0
_QUIET_SECONDS: Final = 5.0
"""Without a key: a collection takes some hundredths of a second."""
RESTORE_SECONDS: Final = 100
"""So long a signal waits for an engine that an A/B has promised to start again."""


_HERE: Final = Path(__file__).parent


class SparkApp(EnginesApp):
    TITLE = "spark-tui"
    CSS_PATH: ClassVar = [
        _HERE / "control_centre.tcss",
        _HERE / "home/screen.tcss",
    ]  # both at once: every later file parses all of them again
    ENABLE_COMMAND_PALETTE = False  # ours knows engines, presets, models and settings too
    DEFAULT_MODE = "home"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.GLOBAL)

    def _theme_at_start(self) -> str:
        return self._opening_theme.name

    theme: Reactive[str] = Reactive(Initialize(_theme_at_start))
    """Ours from the first style sheet on: one that is set later has all of them parsed again."""

    def __init__(
        self, context: Context, glyphs: Glyphs | None = None, theme: Theme | None = None, rooms: Rooms = ROOMS
    ) -> None:
        glyphs = glyphs or choose(context.settings.glyphs)
        self._plain = PlainCharacters(glyphs)
        wanted = context.settings.theme
        self._own_themes = None if wanted in THEME_NAMES else user_themes(context)
        found = () if self._own_themes is None else self._own_themes.themes
        named = (own_theme(each) for each in found if each.name == wanted)
        self._opening_theme = next(named, theme or theme_for(wanted))
        features = tuple(rooms.features())
        modes = {name: place for each in features for name, place in each.modes.items()}
        asides = {name: place for each in features for name, place in each.asides.items()}
        dialogs = {name: place for each in features for name, place in each.dialogs.items()}
        super().__init__(context, glyphs, modes | asides | dialogs, asides)
        for name in modes | asides:
            if name not in self.MODES:
                self.add_mode(name, partial(self.make_screen, name))
            show = partial(self.show_aside if name in asides else self.show_mode, name)
            setattr(self, f"action_{'open' if name in asides else 'show'}_{name}", show)
        self.key_queue = KeyQueue(self, super().on_event)
        self._pressed_at, self._settled = 0.0, False
        own = dict(context.settings.keymap)
        use_keys(own)
        use_screen()
        use_actions(rooms.actions)
        for each in known_actions()[len(ACTIONS) :]:
            if each.scope == Scope.GLOBAL:
                self.bind(",".join(each.keys), each.id, description=each.label, show=each.footer)
        self.set_keymap({id_: ",".join(keys) for id_, keys in own.items()})

    @cached_property
    def available_themes(self) -> dict[str, Theme]:
        # One dictionary, to which the palette adds: Textual looks a theme up for every line that it draws.
        return {self._opening_theme.name: self._opening_theme} | super().available_themes | _OUR_THEMES

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *([self._plain] if self._plain.enabled else [])]

    # --- life -----------------------------------------------------------------------------------------

    async def on_mount(self) -> None:
        """Starts the core beside the screens, once the first frame is out."""
        # After `fg` the terminal holds what the shell wrote: every cell is written again.
        self.app_resume_signal.subscribe(self, lambda _: self.call_later(self.screen.refresh, layout=True))
        self.key_queue.guard = 0.0 if self.is_headless else GUARD_S
        await first_figures(self.context)
        self.take(self.context.store.world)
        self.notices.begin(self.context.clock.now())
        self.call_after_refresh(self._start)
        if self._own_themes is not None and self.theme != self.context.settings.theme:
            choose = f"Choose another: {key_of('command_palette')} theme"
            gone = SettingsError(f"Theme {self.context.settings.theme} not found.", choose)
            for problem in self._own_themes.problems or (gone,):
                self.call_later(self.report, problem)

    def _start(self) -> None:
        self.bridge()
        self.run_core()

    @work(exit_on_error=False, group="core")
    async def run_core(self) -> None:
        """Collectors and supervisor. They turn failures of the outside into readings."""
        gc.freeze()  # what the start has made stays: no collection looks at it again
        before = gc.get_threshold()
        gc.set_threshold(_COLLECT_OBJECTS)
        self.set_interval(_COLLECT_SECONDS, self._collect)
        try:
            await run(self.context)
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()  # of an app that ended, nothing stays behind

    def _collect(self) -> None:
        """Drawn lines refer to themselves, so that only a collection frees them: left to Python, after half an hour.
        What the first minute has made stays too, and keeps the later looks short."""
        if monotonic() - self._pressed_at >= _QUIET_SECONDS:
            gc.collect()
            if not self._settled:
                self._settled = True
                gc.freeze()

    @work(exit_on_error=False, group="bridge")
    async def bridge(self) -> None:
        async for world in self.context.store.changes():
            self.take(world)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that failed is shown, not swallowed; the app stays, and so do the containers."""
        if event.state is WorkerState.ERROR:
            self.log.error(event.worker.name, event.worker.error)
            self.notify(
                f"{event.worker.name} failed: {event.worker.error!r}. Restart spark-tui; containers keep running.",
                severity="error",
                timeout=60,
                markup=False,
            )

    @property
    def end_seconds(self) -> int:
        restores = self.measurement is not None and self.measurement.restored
        return RESTORE_SECONDS if restores else super().end_seconds

    async def on_unmount(self) -> None:
        """Leaves containers running; ends streams, connections and helpers."""
        self.notices.end()
        await self.context.close()

    async def action_quit(self) -> None:
        self._leave()

    @work(exit_on_error=False, group="leave")
    async def _leave(self) -> None:
        """Asks first while work is under way that ends with this program, and awaits the end of a measurement, unless
        it is awaited already. Names what became of it and what keeps running."""
        said = []
        if works := under_way(self.context.store.world, self.measurement):
            question = f"Quit during the {' and the '.join(each.what for each in works)}?"
            what = "\n".join(dict.fromkeys(each.end for each in works))
            if not await self.push_screen_wait(self.make_screen("confirm", question, what, verb="Quit")):
                return
        if (measured := self.measurement) is not None and not measured.stop.is_set():
            self.notify(f"Stopping the {measured.title} ...", markup=False)
            await measured.end()
            said.append(f"The {measured.title} was stopped.")
        running = [view.name for view in self.world.known(ENGINES) if view.container.running]
        said += [f"Still running: {', '.join(running)}."] if running else []
        self.exit(message=" ".join(said) or None)

    def crash_report(self, error: BaseException) -> Text:
        """The traceback without locals, which may hold keys, prompts and answers; secrets in its messages are
        masked."""
        shown = clean(mask_secrets("".join(traceback.format_exception(error))))
        return Text.assemble(shown.rstrip(), "\n\n", (CRASHED, "bold"), "\n")

    # --- events ---------------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        """Of two sizes in quick succession the older may arrive last, and a report may be of any size: only the
        terminal's own is taken."""
        if self.is_headless or self.is_web:
            return
        size = Size(*shutil.get_terminal_size(event.size))
        if size != event.size:
            event.prevent_default()
            self.post_message(Resize(size, size))

    async def on_event(self, event: TextualEvent) -> None:
        """What is typed goes to the screens in its order; everything else as Textual has it."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            self.end_error()
            self._pressed_at = monotonic()
            await self.key_queue.put(event)
        else:
            await super().on_event(event)

    def on_key_handled(self, message: KeyHandled) -> None:
        self.key_queue.handled(message)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """No cursor blinks: over SSH it would be the only thing sent at rest."""
        if getattr(event.widget, "cursor_blink", False):
            setattr(event.widget, "cursor_blink", False)  # noqa: B010 - of an Input, which is not imported for this

    def on_key(self, event: Key) -> None:
        """A key that read-only mode leaves out says so."""
        scope = getattr(self.screen, "SCOPE", None)
        if not self.context.settings.read_only or scope is None:
            return
        for each in known_actions():
            if each.dangerous and each.scope in (Scope.GLOBAL, scope) and event.key in each.keys:
                self.notify(f"Read-only mode: {each.label} is disabled.", markup=False)
                return

    # --- actions --------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Read-only mode leaves out what would change something."""
        if is_dangerous(action) and self.context.settings.read_only:
            return False
        return super().check_action(action, parameters)

    def show_mode(self, mode: str) -> None:
        """A screen that has a tab."""
        if self.current_mode == mode and isinstance(self.screen, FrameScreen):
            self.screen.chosen_again()
        self.switch_mode(mode)

    def action_command_palette(self) -> None:
        if isinstance(self.screen, FrameScreen):
            from spark_tui.app.home.palette import open_palette

            open_palette(self)

    def action_help(self) -> None:
        """The keys of the screen, or of the dialog over it; in the help itself it closes the help."""
        screen = self.screen
        if screen.name in ("help", "tour"):
            screen.dismiss(None)
        else:
            help_ = self.make_screen("help", screen, read_only=self.context.settings.read_only)
            self.push_screen(help_, lambda entry: entry.start(self) if entry else None)

    action_help_anywhere = action_help

    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        """The screen as it is, secrets masked as on it, into the state folder."""
        files = self.context.ports.get("screen_files")
        if files is None:
            return
        stamp = datetime.fromtimestamp(self.context.clock.now()).strftime("%Y%m%d-%H%M%S")
        try:
            saved = files.write(f"screenshots/{self.current_mode}-{stamp}.svg", self.export_screenshot())
        except OSError as error:
            self.notify(f"Not saved: {error.strerror or error}.", severity="error", markup=False)
        else:
            self.notify(f"Saved to {saved}", timeout=10, markup=False)

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        picture = super().export_screenshot(title=title, simplify=simplify)
        return in_console_colours(picture) if self.current_theme.ansi else picture

    def action_next_engine(self, step: int = 1) -> None:
        """The selected engine is the one after it, of those that the screen can show."""
        names = self.screen.engine_choices() if isinstance(self.screen, FrameScreen) and self.screen.OF_ENGINE else []
        if names:
            at = names.index(self.selected) if self.selected in names else -1 if step > 0 else 0
            self.selected = names[(at + step) % len(names)]

    def action_previous_engine(self) -> None:
        self.action_next_engine(-1)

    def action_yank(self) -> None:
        """Copies from the screen; one entry at once, of several one is chosen."""
        entries = self.screen.yanks() if isinstance(self.screen, FrameScreen) else ()
        if len(entries) > 1:
            self.push_screen(self.make_screen("yank", entries), lambda chosen: self.copy(chosen) if chosen else None)
        elif entries:
            self.copy(entries[0])
        else:
            self.notify("Nothing to copy here.", markup=False)

    def action_tour(self) -> None:
        if getattr(self.screen, "SCOPE", None) is not None:
            self.push_screen(self.make_screen("tour"))

    def action_suspend_process(self) -> None:
        """To the shell, where one waits: over `ssh -t HOST spark-tui` there is none to bring the program back."""
        if os.getpgrp() == os.getsid(0):  # a shell with job control gives every job a group of its own
            self.notify(f"No shell to suspend to. {key_of('quit')} quits.", markup=False)
            return
        super().action_suspend_process()

    @acting("drop_cache")
    async def action_drop_cache(self) -> None:
        """Frees the page cache, after asking where something has to be asked."""
        from spark_tui.observe.memory.screen import free_cache_question

        cache = self.context[parts.CacheControl]
        plan = await cache.plan()
        question = free_cache_question(plan)
        if question is not None and not await self.push_screen_wait(question):
            return

        async def on_terminal(argv: Sequence[str]) -> int:
            async def run() -> int:
                return cache.dropper.on_terminal(argv)

            return await self.lend_terminal(run, "sudo", "spark-tui drop-caches")

        consent = plan.route is None and plan.consent is not None
        result = await cache.drop(consent=consent, on_terminal=on_terminal)
        self.notify(result.sentence, timeout=10, markup=False)

    @acting("hosts")
    async def action_open_hosts(self) -> None:
        """Opens another host through ssh. Everything here keeps running meanwhile."""
        hosts = self.context[parts.Hosts]  # the demo has none
        host: Any = await self.push_screen_wait(self.make_screen("hosts", hosts))
        if host is not None:
            await self.lend_terminal(
                partial(hosts.open, host),
                "ssh",
                f"spark-tui --host {host.name}",
                f"{host.name}: ssh {host.destination} ... (q comes back here)",
            )

    async def lend_terminal(self, work: Callable[[], Awaitable[T]], program: str, command: str, note: str = "") -> T:
        """Gives the terminal to another program until `work` is done. Nothing is painted meanwhile, although the core
        keeps running. `command` does the same in a shell.

        Raises RefusedError where there is no terminal to give, and what `work` raises, once the screen is back: an
        error that left the block would leave it suspended.
        """
        try:
            with self.batch_update(), self.suspend():
                if note:
                    sys.stdout.write(f"{clean_line(note)}\n")
                    sys.stdout.flush()
                [outcome] = await asyncio.gather(work(), return_exceptions=True)
        except SuspendNotSupported:
            raise RefusedError(f"{program} needs a terminal.", f"Run this in a shell: {command}") from None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def run_app(context: Context, rooms: Rooms = ROOMS) -> int:
    """Returns the exit code once the person has left."""
    app = SparkApp(context, theme=theme_for(context.settings.theme, os.environ), rooms=rooms)
    app.run()
    return app.return_code or 0
