"""The command line's frame: parsing, the control centre, and how every run ends."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from spark_tui import __version__
from spark_tui.cli.commands import COMMANDS
from spark_tui.cli.commands.frame import Program, common_options
from spark_tui.cli.output import ReaderGone
from spark_tui.cli.remote import BEFORE_COMMAND, HOST, go_there, host_asked
from spark_tui.cli.session import PROGRAM, Opener, Session, Streams
from spark_tui.domain.errors import ExitCode, SparkError, UsageError

SSH_DEFAULTS = (("TEXTUAL_FPS", "20"), ("TEXTUAL_ANIMATIONS", "none"), ("TEXTUAL_SMOOTH_SCROLL", "0"))
"""Fewer bytes over a line that may be slow. Below 15 frames a second typing would lag."""

EPILOG = """\b
Examples:
  spark-tui --demo                              look around on a simulated Spark
  spark-tui up gpt-oss-120b                     launch, wait until it serves, warm it up
  spark-tui chat gpt-oss-120b -m "Hello"        ask one question
  spark-tui ps --json | jq '.[].url'            for scripts

\b
Standard output is data, standard error tells what happens. With --json an error
is {"error": {"id", "summary", "remedy", "detail", "exit_code"}} on standard error.

\b
Exit codes: 0 done, 1 failed, 2 wrong usage or a name that nothing has, 3 Docker,
the Hub or the engine cannot be reached, 4 refused by a check, 130 interrupted.
"""


@click.group(
    cls=Program,
    modules=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@common_options(everything=True)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Serve language models on a DGX Spark: pick a preset, launch it, watch it boot, talk to it.

    Without a command: the control centre, full screen.
    """
    if ctx.invoked_subcommand is None:
        open_control_centre(ctx.obj)


_OPTIONS_WITH_VALUE = frozenset(
    name for each in cli.params if isinstance(each, click.Option) and not each.is_flag for name in each.opts
)


def open_control_centre(session: Session) -> None:
    """The full screen, until the person leaves."""
    if session.as_json:
        raise UsageError("The control centre has no --json.", "Ask for data with: spark-tui status --json")
    in_browser = session.environment.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")  # `serve` speaks to it by pipes
    at_terminal = session.out.terminal.interactive and session.stdin is not None and session.stdin.isatty()
    if not (at_terminal or in_browser):
        raise UsageError(
            "The control centre needs a terminal.", "For scripts: spark-tui status, ps, up ... (see spark-tui --help)"
        )
    for name in ("COLUMNS", "LINES"):  # exported once, they would hold against the window's real size for good
        os.environ.pop(name, None)
    if "SSH_CONNECTION" in os.environ:
        for name, value in SSH_DEFAULTS:  # Textual reads them once, when it is imported
            os.environ.setdefault(name, value)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup too: without its terminal a screen has no purpose
    from spark_tui.tui.app import run_app

    run_app(session.opened())


def run(arguments: Sequence[str], streams: Streams | None = None, opener: Opener | None = None) -> int:
    """Runs one command line and returns its exit code. Tests give streams and an opener of their own."""
    if streams is None:
        streams = Streams(sys.stdin, sys.stdout, sys.stderr, os.environ)
    try:
        with Session(streams, opener) as session:
            session.command = shlex.join((PROGRAM, *arguments))
            return int(_run(session, arguments))
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        return _reader_gone(streams)


def _run(session: Session, arguments: Sequence[str]) -> ExitCode | int:
    try:
        there = host_asked(arguments, _OPTIONS_WITH_VALUE)
        if there is not None:
            go_there(session, *there)
        code: Any = cli.main(list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=session)
        session.out.flush()
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
        return UsageError(error.format_message(), BEFORE_COMMAND)
    return UsageError(error.format_message(), f"See: {path} --help")


def _reader_gone(streams: Streams) -> int:
    """`| head` has read what it wanted: done, without a word. What is still buffered goes nowhere."""
    if streams.stdout is sys.__stdout__:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    return int(ExitCode.DONE)
