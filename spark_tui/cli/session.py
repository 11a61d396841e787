"""One run of a command: its options, its settings, its streams, and the core, opened when first needed."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast

from msgspec import Struct

from spark_tui.base.errors import RefusedError
from spark_tui.cli.output import Diagnostics, Interrupted, Output

if TYPE_CHECKING:  # asyncio and the core cost more than `--help` may
    import asyncio

    from spark_tui.base.context import Context

T = TypeVar("T")

PROGRAM: Final = "spark-tui"
YOUNG_SECONDS: Final = 5.0
SETTLED_OBJECTS: Final = 5_000
"""New objects between two garbage collections of a command that still runs then: as on the screen, where looks at
100,000 took up to 0.15 s."""


class Options(Struct):
    """What every command takes. Empty: as the settings have it."""

    as_json: bool = False
    demo: bool = False
    read_only: bool = False
    store: str = ""
    docker_host: str = ""
    config: str = ""


class Streams(Struct, frozen=True):
    """Where a command reads and writes, and the environment that it respects."""

    stdin: TextIO | None
    stdout: TextIO | None
    stderr: TextIO | None
    environment: Mapping[str, str]


Opener = Callable[[Options, Mapping[str, str]], "Context"]


# --- the run ----------------------------------------------------------------------------------------------


def interrupted() -> Interrupted:
    """Ctrl-C with nothing to report."""
    return Interrupted("", "")


class Session:
    """Handed to every command; `command` is the whole of it, as it was typed.

    Work on the core runs on one event loop, call by call, so that a prompt can wait for a person between two calls.
    """

    def __init__(self, streams: Streams, opener: Opener) -> None:
        self.options = Options()
        self.command = PROGRAM
        self.stdin = streams.stdin
        self.environment = streams.environment
        self.out = Output(streams.stdout, streams.environment)
        self.err = Diagnostics(streams.stderr, streams.environment)
        self.names_of: Callable[[Session, str], list[str]] | None = None
        """Names of a kind that the shell completes: presets, engines, models, settings."""
        self.find_judge: Callable[[], Any] = lambda: None
        """Who judges what a log suggests, by the check of the launch that it would make."""
        self._opener = opener
        self._runner: asyncio.Runner | None = None
        self._context: Context | None = None
        self._ended_by = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            if self._context is not None:
                runner.run(self._context.close())
                ports = self._context.ports
                self.err.note(*(ports["history"].state.notes if "history" in ports.made() else ()))
        finally:
            runner.close()
            if self._ended_by:  # what was promised is restored: now as the sender expects
                signal.raise_signal(self._ended_by)

    @property
    def as_json(self) -> bool:
        return self.options.as_json

    def run(
        self,
        work: Callable[[Context], Coroutine[Any, Any, T]],
        *,
        changes: bool = False,
        on_interrupt: Callable[[], Interrupted] = interrupted,
    ) -> T:
        """Runs `work` on the core. Raises its SparkError, or what `on_interrupt` makes of a Ctrl-C; RefusedError where
        it `changes` something in read-only mode."""
        import asyncio

        self._runner = self._runner or asyncio.Runner()
        # The task itself holds no result. On its way out asyncio looks up its handler of Ctrl-C, and prints the task
        # with all that it holds into an error that is never shown: a tenth of a second for a thousand presets.
        found: list[T] = []
        try:
            self._runner.run(self._work(work, changes, found.append))
            return found[0]
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise on_interrupt() from None

    async def _work(
        self, work: Callable[[Context], Coroutine[Any, Any, T]], changes: bool, keep: Callable[[T], None]
    ) -> None:
        import asyncio

        if self._context is None:
            asyncio.get_running_loop().call_later(YOUNG_SECONDS, gc.set_threshold, SETTLED_OBJECTS)
            self._context = self.opened()
            if self._context.demo:
                self.err.say("DEMO: a simulated Spark.", "dim")
        if changes:
            self.refuse_if_read_only(self._context)
        loop, task = asyncio.get_running_loop(), cast("asyncio.Task[None]", asyncio.current_task())

        def end(number: int) -> None:
            self._ended_by = number
            loop.remove_signal_handler(number)  # a second one ends the program at once
            task.cancel()

        able = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
        ends = [each for each in able if signal.getsignal(each) is signal.SIG_DFL]
        for each in ends:
            loop.add_signal_handler(each, end, each)
        try:
            keep(await work(self._context))
        finally:
            for each in ends:
                loop.remove_signal_handler(each)

    def done(self, value: Any, text: str) -> None:
        """What the command has done: one JSON document as data, a sentence on standard error for a person."""
        self.out.json(value)
        self.err.say(text)

    def reopen(self) -> None:
        """Closes the core; what is done next gets another one, by the settings as they are then."""
        if self._runner is not None and self._context is not None:
            self._runner.run(self._context.close())
            self._context = None

    def opened(self) -> Context:
        """A core for another event loop; the caller closes it."""
        return self._opener(self.options, self.environment)

    def refuse_if_read_only(self, context: Context) -> None:
        if self.options.read_only or context.settings.read_only:
            raise RefusedError(
                "Read-only mode: this command is disabled.",
                "Leave out --read-only, or set read_only to false in the settings.",
            )


# --- questions --------------------------------------------------------------------------------------------


def at_terminal(session: Session) -> bool:
    """Whether a person can be asked."""
    return not session.as_json and session.stdin is not None and session.stdin.isatty()


def confirm(session: Session, question: str, *, yes: bool) -> bool:
    """The person's answer; no is the default. `yes` answers for them. Raises RefusedError without a terminal."""
    if yes:
        return True
    if session.stdin is None or not at_terminal(session):
        raise RefusedError(f"Not a terminal: {question}", "Confirm with --yes.")
    session.err.stream(f"{question} [y/N] ")
    return session.stdin.readline().strip().lower() in ("y", "yes")


def typed(session: Session, question: str, wanted: str) -> bool:
    """Whether the person types exactly that; false without a terminal."""
    if session.stdin is None or not at_terminal(session):
        return False
    session.err.stream(question)
    return session.stdin.readline().strip() == wanted
