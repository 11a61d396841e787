"""The Textual application: modes, the bridge from the store, and what keys do everywhere."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rich.text import Text
from textual import work
from textual.app import SuspendNotSupported, SystemCommand
from textual.binding import BindingType
from textual.events import DescendantFocus, Key, Paste, Resize
from textual.events import Event as TextualEvent
from textual.filter import LineFilter
from textual.geometry import Size
from textual.notifications import Notify
from textual.reactive import Initialize, Reactive
from textual.screen import Screen
from textual.theme import Theme
from textual.worker import Worker, WorkerState

from spark_tui.core.actions import ACTIONS, DANGEROUS, Scope, action, allowed, key_of, use_keys
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.reading import value_of
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean, clean_line
from spark_tui.tui.format import Glyphs, PlainCharacters, choose
from spark_tui.tui.frame import FrameApp, FrameScreen, bindings
from spark_tui.tui.key_queue import KeyHandled, KeyQueue
from spark_tui.tui.screen_table import make_screen, modes
from spark_tui.tui.textual_private import end_same_notices
from spark_tui.tui.themes import THEMES, theme_for

if TYPE_CHECKING:
    from spark_tui.core.context import Context

T = TypeVar("T")

_OUR_THEMES = {each.name: each for each in THEMES}
NOT_IN_PALETTE = ("command_palette", "help")
"""The palette itself, and the help, which it lists by itself."""
CRASHED = "spark-tui crashed. Containers keep running. Please report this: spark-tui doctor --report FILE"


def _shows(mode: str) -> Callable[[SparkApp], None]:
    def show(self: SparkApp) -> None:
        self.switch_mode(mode)

    return show


class SparkApp(FrameApp):
    TITLE = "spark-tui"
    CSS_PATH: ClassVar = ["app.tcss", "screens/home.tcss"]  # both at once: every later file parses all of them again
    ENABLE_COMMAND_PALETTE = True
    MODES = modes()
    DEFAULT_MODE = "home"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.GLOBAL)

    action_show_home = _shows("home")
    action_show_models = _shows("models")
    action_show_presets = _shows("presets")
    action_show_logs = _shows("logs")
    action_show_doctor = _shows("doctor")
    action_show_metrics = _shows("metrics")
    action_show_chat = _shows("chat")
    action_show_bench = _shows("bench")

    def _theme_at_start(self) -> str:
        return self._opening_theme

    theme: Reactive[str] = Reactive(Initialize(_theme_at_start))
    """Ours from the first style sheet on: one that is set later has all of them parsed again."""

    def __init__(self, context: Context, glyphs: Glyphs | None = None, theme: Theme | None = None) -> None:
        glyphs = glyphs or choose(context.settings.glyphs)
        self._plain = PlainCharacters(glyphs)
        self._opening_theme = (theme or theme_for(context.settings.theme)).name
        super().__init__(context, glyphs)
        self._key_queue = KeyQueue(self, super().on_event)
        own = dict(context.settings.keymap)
        use_keys(own)
        self.set_keymap({id_: ",".join(keys) for id_, keys in own.items()})

    @property
    def available_themes(self) -> dict[str, Theme]:
        return super().available_themes | _OUR_THEMES

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *([self._plain] if self._plain.enabled else [])]

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Starts the core beside the screens, once the first frame is out."""
        # After `fg` the terminal holds what the shell wrote: every cell is written again.
        self.app_resume_signal.subscribe(self, lambda _: self.call_later(self.screen.refresh, layout=True))
        self.take(self.context.store.world)
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self.bridge()
        self.run_core()

    @work(exit_on_error=False, group="core")
    async def run_core(self) -> None:
        """Collectors and supervisor. They turn failures of the outside into readings."""
        await self.context.in_thread(self.context.preload)  # keys are answered meanwhile
        gc.freeze()  # what the start has made stays: no collection looks at it again
        try:
            self.context.collectors.load_presets()
            await self.context.run()
        finally:
            gc.unfreeze()  # of an app that ended, nothing stays behind

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

    async def on_unmount(self) -> None:
        """Leaves containers running; ends streams, connections and helpers."""
        await self.context.close()

    async def action_quit(self) -> None:
        """Leaves, and names what keeps running."""
        running = [view.name for view in value_of(self.engines) or () if view.container.running]
        self.exit(message=f"Still running: {', '.join(running)}." if running else None)

    def crash_report(self, error: BaseException) -> Text:
        """The traceback without locals, which may hold keys, prompts and answers; secrets in its messages are
        masked."""
        shown = clean(mask_secrets("".join(traceback.format_exception(error))))
        return Text.assemble(shown.rstrip(), "\n\n", (CRASHED, "bold"), "\n")

    # --- events ---------------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        """Of two sizes in quick succession the older may arrive last: then the terminal is asked."""
        if self.is_headless or self.is_web:
            return
        size = Size(*shutil.get_terminal_size(event.size))
        if size != event.size:
            self.post_message(Resize(size, size))

    async def on_event(self, event: TextualEvent) -> None:
        """What is typed goes to the screens in its order; everything else as Textual has it."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            await self._key_queue.put(event)
        else:
            await super().on_event(event)

    def on_key_handled(self, message: KeyHandled) -> None:
        self._key_queue.handled(message)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """No cursor blinks: over SSH it would be the only thing sent at rest."""
        if getattr(event.widget, "cursor_blink", False):
            setattr(event.widget, "cursor_blink", False)  # noqa: B010 - of an Input, which is not imported for this

    def on_notify(self, event: Notify) -> None:
        """A notice that is shown already is not shown twice: it stays for as long as the new one would."""
        end_same_notices(self, event.notification)

    def on_key(self, event: Key) -> None:
        """A key that read-only mode leaves out says so."""
        scope = getattr(self.screen, "SCOPE", None)
        if not self.context.settings.read_only or scope is None:
            return
        for each in ACTIONS:
            if each.dangerous and each.scope in (Scope.GLOBAL, scope) and event.key in each.keys:
                self.notify(f"Read-only mode: {each.label} is disabled.", markup=False)
                return

    # --- actions --------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Read-only mode leaves out what would change something."""
        if action in DANGEROUS and self.context.settings.read_only:
            return False
        return super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action of this screen and of the whole app that can be done now, the help, and the themes."""
        scopes = {Scope.GLOBAL, getattr(screen, "SCOPE", Scope.GLOBAL)}
        named: set[str] = set()
        for entry in allowed(ACTIONS, read_only=self.context.settings.read_only):
            offered = not isinstance(screen, FrameScreen) or screen.offers(entry.id)
            if entry.scope in scopes and entry.id not in NOT_IN_PALETTE and entry.label not in named and offered:
                named.add(entry.label)  # of two with the same label, the global one does it too
                name = entry.id if hasattr(screen, f"action_{entry.id}") else f"app.{entry.id}"
                yield SystemCommand(entry.label, entry.help, partial(screen.run_action, name))
        yield SystemCommand("Help", action("help").help, self.action_help)
        for theme in THEMES:
            yield SystemCommand(f"Theme {theme.name}", "Colours", partial(setattr, self, "theme", theme.name))

    def action_help(self) -> None:
        scope = getattr(self.screen, "SCOPE", None)
        if scope is not None:
            self.push_screen(make_screen("help", scope, read_only=self.context.settings.read_only))

    def action_tour(self) -> None:
        if getattr(self.screen, "SCOPE", None) is not None:
            self.push_screen(make_screen("tour"))

    def action_open_memory(self) -> None:
        """Memory, over whatever is shown; once more goes back."""
        if self.current_mode == "memory":
            self.action_back_from_memory()
        else:
            self.before_memory = self.current_mode
            self.switch_mode("memory")

    def action_suspend_process(self) -> None:
        """To the shell, where one waits: over `ssh -t HOST spark-tui` there is none to bring the program back."""
        if os.getpgrp() == os.getsid(0):  # a shell with job control gives every job a group of its own
            self.notify(f"No shell to suspend to. {key_of('quit')} quits.", markup=False)
            return
        super().action_suspend_process()

    @work(exit_on_error=False, exclusive=True, group="drop_cache")
    async def action_drop_cache(self) -> None:
        """Frees the page cache, after asking where something has to be asked."""
        from spark_tui.tui.screens.modals import free_cache_question

        cache = self.context.cache
        try:
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
        except SparkError as error:
            self.report(error)
        else:
            self.notify(result.sentence, timeout=10, markup=False)

    @work(exit_on_error=False, exclusive=True, group="hosts")
    async def action_open_hosts(self) -> None:
        """Opens another host through ssh. Everything here keeps running meanwhile."""
        hosts = self.context.hosts
        try:
            host: Any = await self.push_screen_wait(make_screen("hosts", hosts))
            if host is not None:
                await self.lend_terminal(
                    partial(hosts.open, host), "ssh", f"spark-tui --host {host.name}",
                    f"{host.name}: ssh {host.destination} ... (q comes back here)",
                )  # fmt: skip
        except SparkError as error:
            self.report(error)

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


def run_app(context: Context) -> None:
    SparkApp(context, theme=theme_for(context.settings.theme, os.environ)).run()
