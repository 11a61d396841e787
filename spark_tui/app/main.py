"""The program: its commands, the control centre, and how every run ends."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import click

from spark_tui import __version__
from spark_tui.app.rooms import ROOMS, Rooms
from spark_tui.base.errors import ExitCode, MeasurementVoid, RefusedError, SparkError, UsageError
from spark_tui.base.feature import named
from spark_tui.cli.command import Commands, command_at, common_options
from spark_tui.cli.output import ReaderGone
from spark_tui.cli.session import PROGRAM, Opener, Options, Session, Streams

SSH_DEFAULTS: Final = (("TEXTUAL_FPS", "20"), ("TEXTUAL_ANIMATIONS", "none"), ("TEXTUAL_SMOOTH_SCROLL", "0"))
"""Fewer bytes over a line that may be slow. Below 15 frames a second typing would lag."""

EPILOG: Final = """\b
Examples:
  spark-tui --demo                              try it on a simulated Spark
  spark-tui up gpt-oss-120b                     launch, wait until it serves, warm it up
  spark-tui chat gpt-oss-120b -m "Hello"        ask one question
  spark-tui ps --json | jq '.[].url'            for scripts

\b
Data goes to stdout, messages to stderr. With --json an error is
{"error": {"id", "summary", "remedy", "detail", "exit_code"}} on stderr.

\b
Exit codes: 0 done, 1 failed, 2 usage error or unknown name, 3 Docker, the Hub
or the engine cannot be reached, 4 refused by a check, 130 interrupted.
"""
HOST: Final = "--host"


class Program(Commands):
    """The top group: its commands are those of the rooms. A command's module is imported when it is asked for."""

    rooms: Rooms = ROOMS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rooms.commands())

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Without importing a command."""
        return [(name, summary.rstrip(".")) for name, summary in self.rooms.commands().items()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = "" if cmd_name in self.commands else self.rooms.module_of(cmd_name)
        if module:
            self.add_command(command_at(module, cmd_name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A name as it is written needs no list of them all."""
        found = self.get_command(ctx, args[0])
        return (args[0], found, args[1:]) if found else super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Command names without importing a command."""
        items = [
            click.shell_completion.CompletionItem(name, help=summary)
            for name, summary in self.summaries(ctx)
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def program(rooms: Rooms) -> Program:
    """The command line of these rooms."""

    @click.group(
        cls=Program,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog=EPILOG,
    )
    @common_options(everything=True)
    @click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
    @click.pass_context
    def cli(ctx: click.Context) -> int:
        """Serve language models on a DGX Spark: pick a preset, launch it, watch it boot, talk to it.

        Without a command: the control centre, full screen.
        """
        if ctx.invoked_subcommand is None:
            return open_control_centre(ctx.obj, rooms)
        return ExitCode.DONE

    cli.rooms = rooms
    return cli


cli: Final = program(ROOMS)


def open_control_centre(session: Session, rooms: Rooms) -> int:
    if session.as_json:
        raise UsageError("The control centre has no --json.", "Ask for data with: spark-tui status --json")
    in_browser = session.environment.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")  # `serve` uses pipes
    at_terminal = session.out.terminal.interactive and session.stdin is not None and session.stdin.isatty()
    if not (at_terminal or in_browser):
        raise UsageError(
            "The control centre needs a terminal.", "For scripts: spark-tui status, ps, up ... (see spark-tui --help)"
        )
    if not in_browser:  # whose driver reads its window's size there
        for name in ("COLUMNS", "LINES"):  # exported once, they would hold against the window's real size for good
            os.environ.pop(name, None)
    if "SSH_CONNECTION" in os.environ:
        for name, value in SSH_DEFAULTS:  # Textual reads them once, when it is imported
            os.environ.setdefault(name, value)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup too: without its terminal a screen has no purpose
    context = session.opened()
    from spark_tui.app.first import start_early

    start_early(context)
    from spark_tui.app.control_centre import run_app

    return run_app(context, rooms)


def run(
    arguments: Sequence[str], streams: Streams | None = None, opener: Opener | None = None, cli: Program = cli
) -> int:
    """Runs one command line and returns its exit code. Tests give streams and an opener of their own."""
    if streams is None:
        streams = Streams(sys.stdin, sys.stdout, sys.stderr, os.environ)
    try:
        with Session(streams, opener or partial(_open, cli.rooms)) as session:
            session.command = shlex.join((PROGRAM, *arguments))
            session.names_of = _names
            session.find_judge = partial(named, "spark_tui.catalog.presets.model.rules.check:judge")
            return int(_run(cli, session, arguments))
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:  # `| head` has read enough: done, without a word. What is still buffered is dropped
        if streams.stdout is sys.__stdout__:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)
        return int(ExitCode.DONE)


def _open(rooms: Rooms, options: Options, environment: Mapping[str, str]) -> Any:
    from spark_tui.app.opening import open_context  # settings cost more than `--help` may

    return open_context(options, environment, rooms)


def _names(session: Session, kind: str) -> list[str]:
    from spark_tui.app.completion import names

    return names(session, kind)


def _run(cli: Program, session: Session, arguments: Sequence[str]) -> ExitCode | int:
    try:
        there = host_asked(arguments)
        if there is not None:  # this process becomes the command on that host; its exit code is ours
            name, rest = there
            session.err.as_json = "--json" in rest
            typed = session.stdin is not None and session.stdin.isatty()
            from spark_tui.machine.nodes import Hosts

            session.opened()[Hosts].become(name, rest, terminal=typed and session.out.terminal.interactive)
        code: Any = cli.main(list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=session)
        session.out.flush()
    except MeasurementVoid as error:
        session.out.json({"id": error.engine, "void": error.summary})
        from spark_tui.observe.metrics.use.history import keep_void

        session.run(partial(keep_void, error))
        session.err.error(error)
        return error.exit_code
    except SparkError as error:
        session.err.error(error)
        return error.exit_code
    except click.Abort:
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        session.err.as_json = session.err.as_json or "--json" in arguments
        session.err.error(_usage(error))
        return ExitCode.USAGE
    except ReaderGone:
        raise BrokenPipeError from None
    return code if isinstance(code, int) else ExitCode.DONE


def _usage(error: click.ClickException) -> UsageError:
    """What click found wrong, in our shape."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else PROGRAM
    if isinstance(error, click.NoSuchOption) and error.option_name == HOST:
        return UsageError(error.format_message(), f"Put it before the command: spark-tui {HOST} NAME ps")
    return UsageError(error.format_message(), f"See: {path} --help")


def host_asked(arguments: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The host, and the arguments for it; None where `--host` does not stand before the command.

    Raises UsageError when it was given twice, RefusedError for a demo.
    """
    options = [each for each in cli.params if isinstance(each, click.Option) and not each.is_flag]
    with_value = {name for each in options for name in each.opts}
    rest: list[str] = []
    found: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            rest.append(word)
            break
        taken = None if equals or name not in with_value else next(words, None)
        if name != HOST or (not equals and taken is None):  # without a value it is for click to say so
            rest += [word] if taken is None else [word, taken]
        else:
            found.append(value if equals else taken or "")
    rest += words
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(f"{HOST} was given twice.", "Name one host.")
    if "--demo" in rest:
        raise RefusedError("Remote hosts are not available in the demo.", f"Leave out --demo, or {HOST}.")
    return found[0], tuple(rest)
