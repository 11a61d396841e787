"""The program: its commands, the control centre, and how every run ends."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

import click

from spark_tui import __version__
from spark_tui.base.errors import ExitCode, MeasurementVoid, RefusedError, SparkError, UsageError
from spark_tui.cli.command import Commands, common_options
from spark_tui.cli.options import Options
from spark_tui.cli.output import ReaderGone
from spark_tui.cli.session import PROGRAM, Opener, Session, Streams

COMMANDS: Final = {
    "status": ("spark_tui.observe.engines.command.status", "Show the machine, Docker and what is serving."),
    "memory": (
        "spark_tui.observe.memory.command",
        "Show unified memory: engines, applications, driver, cache, free, available.",
    ),
    "presets": ("spark_tui.catalog.fit.command.presets", "List and show recipes."),
    "registries": (
        "spark_tui.catalog.presets.command.registries",
        "Use recipes of public registries, pinned to a commit.",
    ),
    "recommend": (
        "spark_tui.catalog.fit.command.recommend",
        "Recommend presets for a purpose on this machine, and say why others are left out.",
    ),
    "from-ollama": (
        "spark_tui.catalog.fit.command.recommend",
        "Propose presets for the models that Ollama has, with the speed to expect.",
    ),
    "models": ("spark_tui.catalog.library.command.models", "List, download, inspect, verify and delete checkpoints."),
    "images": (
        "spark_tui.manage.images.command.images",
        "List container images: disk, versions inside, used by, moved tags.",
    ),
    "draft": ("spark_tui.catalog.fit.command.draft", "Draft a preset for a model that has none."),
    "fit": ("spark_tui.catalog.fit.command.fit", "Check whether a preset fits in the memory that is free now."),
    "up": ("spark_tui.manage.cluster.command.up", "Launch a preset and follow it until it serves."),
    "ps": ("spark_tui.run.launch.command.ps", "List engines: name, state, port, exposure, model."),
    "logs": ("spark_tui.observe.engines.command.logs", "Print a container's log, or those of several by time."),
    "explain": (
        "spark_tui.observe.engines.command.explain",
        "Explain a start-up log: phases, kernels, memory, root cause, fix.",
    ),
    "history": ("spark_tui.observe.metrics.command.history", "Show earlier starts: duration, measurements, failures."),
    "events": ("spark_tui.observe.metrics.command.history", "Show what happened on this machine."),
    "chat": ("spark_tui.use.chat.command.chat", "Chat with an engine."),
    "connect": ("spark_tui.use.connect.command", "Connect a coding agent or a chat front end to an engine."),
    "metrics": ("spark_tui.observe.metrics.command.metrics", "Show how fast an engine serves, by its own counters."),
    "conversations": ("spark_tui.use.chat.command.conversations", "Manage saved conversations."),
    "bench": ("spark_tui.use.bench.command.bench", "Measure how fast an engine is: one stream, several, long prompts."),
    "tune": (
        "spark_tui.manage.tune.command",
        "Search for the settings that make a preset fastest, by measuring them in turn.",
    ),
    "results": ("spark_tui.use.bench.command.bench", "List, show, compare and export benchmark results."),
    "prove": (
        "spark_tui.use.prove.command.prove",
        "Prove that an engine does what agents need: tool calls, reasoning, structured output, depth.",
    ),
    "canary": (
        "spark_tui.use.prove.command.canary",
        "Measure idle engines each night, and show when their figures change.",
    ),
    "edit": ("spark_tui.run.launch.command.edit", "Change the settings of a running engine."),
    "update": (
        "spark_tui.manage.images.command.update",
        "Try a preset's newer image beside the old one, then keep it or go back.",
    ),
    "restart": ("spark_tui.run.launch.command.engines", "Stop and start an engine with its current settings."),
    "secure": ("spark_tui.run.launch.command.engines", "Give an engine that is open to the network an API key."),
    "down": ("spark_tui.manage.cluster.command.down", "Stop an engine."),
    "boot": ("spark_tui.run.service.command.boot", "Start engines with the machine."),
    "schedule": (
        "spark_tui.run.service.command.schedule",
        "Stop and start an engine at set times, by a systemd timer.",
    ),
    "gateway": ("spark_tui.manage.gateway.command", "Serve all engines at one address, and launch models on request."),
    "drop-caches": ("spark_tui.observe.memory.command", "Free the page cache, which CUDA counts as used."),
    "guard": ("spark_tui.observe.memory.command", "Stop an engine before the machine runs out of memory and freezes."),
    "doctor": ("spark_tui.manage.doctor.command", "Check this machine: what is wrong and how to fix it."),
    "config": ("spark_tui.app.config.command", "Show and change settings."),
    "serve": ("spark_tui.app.serve", "Open the control centre in a browser, behind a token."),
    "hosts": ("spark_tui.manage.cluster.command.remote", "List other machines: reachable, serving, available memory."),
    "cluster": ("spark_tui.manage.cluster.command.cluster", "Manage sets of machines that serve one model together."),
    "last-copy": ("spark_tui.app.config.command", "Print what was copied last on the screen."),
    "completion": ("spark_tui.app.completion", "Set up shell completion for bash, zsh or fish."),
    "man": ("spark_tui.cli.man", "Print the manual page, or install it for man."),
}
"""Every command in the order of the help: the module that declares it, and its first sentence. `--help` imports none
of the modules; a command's own is imported when it is asked for."""

UNLISTED: Final = {"node": "spark_tui.manage.cluster.command.node"}
"""Commands that the program itself uses, with their modules."""

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
    """The top group: everything in its help comes from COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Without importing a command."""
        return [(name, summary.rstrip(".")) for name, (_, summary) in COMMANDS.items()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module_name = COMMANDS[cmd_name][0] if cmd_name in COMMANDS else UNLISTED.get(cmd_name)
        if module_name and cmd_name not in self.commands:
            module = import_module(module_name)
            self.add_command(getattr(module, cmd_name.replace("-", "_")))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in UNLISTED:
            return args[0], self.get_command(ctx, args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Command names without importing a command."""
        items = [
            click.shell_completion.CompletionItem(name, help=summary)
            for name, summary in self.summaries(ctx)
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


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
        return open_control_centre(ctx.obj)
    return ExitCode.DONE


def open_control_centre(session: Session) -> int:
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

    return run_app(context)


def run(arguments: Sequence[str], streams: Streams | None = None, opener: Opener | None = None) -> int:
    """Runs one command line and returns its exit code. Tests give streams and an opener of their own."""
    if streams is None:
        streams = Streams(sys.stdin, sys.stdout, sys.stderr, os.environ)
    try:
        with Session(streams, opener or _open) as session:
            session.command = shlex.join((PROGRAM, *arguments))
            session.names_of = _names
            return int(_run(session, arguments))
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:  # `| head` has read enough: done, without a word. What is still buffered is dropped
        if streams.stdout is sys.__stdout__:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)
        return int(ExitCode.DONE)


def _open(options: Options, environment: Mapping[str, str]) -> Any:
    from spark_tui.app.opening import open_context  # settings cost more than `--help` may

    return open_context(options, environment)


def _names(session: Session, kind: str) -> list[str]:
    from spark_tui.app.completion import names

    return names(session, kind)


def _run(session: Session, arguments: Sequence[str]) -> ExitCode | int:
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
