"""One run of a command: its options, its settings, its streams, and the core, opened when first needed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from spark_tui.cli.output import Diagnostics, Interrupted, Output
from spark_tui.domain.errors import RefusedError
from spark_tui.domain.settings import (
    LOOKS,
    Folders,
    Origin,
    Settings,
    SettingsError,
    Source,
    defaults,
    folders_of,
    variable_of,
)

if TYPE_CHECKING:  # asyncio and the core cost more than `--help` may
    import asyncio

    from spark_tui.core.context import Context

T = TypeVar("T")

PROGRAM: Final = "spark-tui"
DEMO_HOME: Final = Path("/home/spark")


@dataclass(slots=True)
class Options:
    """What every command takes. Empty: as the settings have it."""

    as_json: bool = False
    demo: bool = False
    read_only: bool = False
    store: str = ""
    docker_host: str = ""
    config: str = ""


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a command reads and writes, and the environment that it respects."""

    stdin: TextIO | None
    stdout: TextIO | None
    stderr: TextIO | None
    environment: Mapping[str, str]


Opener = Callable[[Options, Mapping[str, str]], "Context"]


# --- settings ---------------------------------------------------------------------------------------------


def folders_for(options: Options, environment: Mapping[str, str]) -> Folders:
    """The person's folders."""
    home = Path(environment.get("HOME") or Path.home())
    folders = folders_of(environment, home)
    return replace(folders, config=_typed(options.config, home)) if options.config else folders


def _typed(text: str, home: Path) -> Path:
    """A path that was typed; a relative one starts in the working directory."""
    path = Path(text)
    inside = path.parts[1:] if path.parts[:1] == ("~",) else None  # `--store=~/x`: no shell expands that
    return Path.cwd() / path if inside is None else home.joinpath(*inside)


def _changed(settings: Settings, key: str, value: str | bool, origin: Origin | None = None) -> Settings:
    origin = origin or Origin(Source.OPTION, f"--{key.replace('_', '-')}")
    try:
        return settings.changed(origin, **{key: value})
    except ValueError as error:
        raise SettingsError(f"{origin.where} {error}.", "See: spark-tui --help") from None


def demo_settings(options: Options, environment: Mapping[str, str]) -> Settings:
    """Defaults, except for the variables that say how the screen looks."""
    settings = defaults(folders_of({}, DEMO_HOME))
    for name, key in ((variable_of(key), key) for key in LOOKS):
        if name in environment:
            settings = _changed(settings, key, environment[name], Origin(Source.ENVIRONMENT, name))
    if settings.keymap:
        from spark_tui.core.config import checked_keys

        checked_keys(settings)
    return _changed(settings, "read_only", True) if options.read_only else settings


def open_context(options: Options, environment: Mapping[str, str]) -> Context:
    """The core by the person's settings, with this command's options over them. Raises SettingsError."""
    from spark_tui.core.context import build, build_demo, read_settings

    if options.demo:
        return build_demo(demo_settings(options, environment))
    folders = folders_for(options, environment)
    settings = read_settings(folders, environment)
    if options.store:
        settings = _changed(settings, "store", str(_typed(options.store, folders.home)))
    if options.docker_host:
        settings = _changed(settings, "docker_host", options.docker_host)
    if options.read_only:
        settings = _changed(settings, "read_only", True)
    return build(settings.resolved(folders.home), folders, environment)


# --- the run ----------------------------------------------------------------------------------------------


def interrupted() -> Interrupted:
    """Ctrl-C with nothing to report."""
    return Interrupted("", "")


class Session:
    """Handed to every command; `command` is the whole of it, as it was typed.

    Work on the core runs on one event loop, call by call, so that a prompt can wait for a person between two calls.
    """

    def __init__(self, streams: Streams, opener: Opener | None = None) -> None:
        self.options = Options()
        self.command = PROGRAM
        self.stdin = streams.stdin
        self.environment = streams.environment
        self.out = Output(streams.stdout, streams.environment)
        self.err = Diagnostics(streams.stderr, streams.environment)
        self._opener = opener or open_context
        self._runner: asyncio.Runner | None = None
        self._context: Context | None = None

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
        finally:
            runner.close()

    @property
    def as_json(self) -> bool:
        """The person asked for data."""
        return self.options.as_json

    def run(
        self,
        work: Callable[[Context], Coroutine[Any, Any, T]],
        *,
        on_interrupt: Callable[[], Interrupted] = interrupted,
    ) -> T:
        """Runs `work` on the core. Raises its SparkError, or what `on_interrupt` makes of a Ctrl-C."""
        if self._runner is None:
            import asyncio

            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self._work(work))
        except KeyboardInterrupt:
            raise on_interrupt() from None

    async def _work(self, work: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
        if self._context is None:
            self._context = self._opener(self.options, self.environment)
            if self._context.demo:
                self.err.say("DEMO: a simulated Spark.", "dim")
        return await work(self._context)

    def opened(self) -> Context:
        """A core for another event loop; the caller closes it."""
        return self._opener(self.options, self.environment)

    def refuse_if_read_only(self, context: Context) -> None:
        """Raises RefusedError in read-only mode."""
        if self.options.read_only or context.settings.read_only:
            raise RefusedError(
                "Read-only mode: this command is disabled.",
                "Leave out --read-only, or set read_only to false in the settings.",
            )


# --- questions --------------------------------------------------------------------------------------------


def confirm(session: Session, question: str, *, yes: bool) -> bool:
    """The person's answer; no is the default. `yes` answers for them. Raises RefusedError without a terminal."""
    if yes:
        return True
    if session.as_json or session.stdin is None or not session.stdin.isatty():
        raise RefusedError(f"Not a terminal: {question}", "Confirm with --yes.")
    session.err.stream(f"{question} [y/N] ")
    return session.stdin.readline().strip().lower() in ("y", "yes")


def typed(session: Session, question: str, wanted: str) -> bool:
    """Whether the person types exactly that; false without a terminal."""
    if session.as_json or session.stdin is None or not session.stdin.isatty():
        return False
    session.err.stream(question)
    return session.stdin.readline().strip() == wanted
