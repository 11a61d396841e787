"""What every command is made of: groups, the common options, and arguments whose values the shell completes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from spark_tui.base.feature import named
from spark_tui.base.text import same_name, spelled_like
from spark_tui.cli.session import PROGRAM, Session

F = TypeVar("F", bound=Callable[..., Any])
Work = Callable[..., int | None]


class Commands(click.Group):
    """A group that lists its commands as they were added: the way through a day, not the alphabet.

    `places` has the modules of commands that are declared elsewhere: one is imported when it is asked for.
    """

    places: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places or self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.places and cmd_name not in self.commands:
            self.add_command(command_at(self.places[cmd_name], cmd_name))
        return super().get_command(ctx, cmd_name)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, each.get_short_help_str(limit=200)) for name, each in found if each and not each.hidden]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds a command whatever its case, and names the nearest one for a mistyped word."""
        word, known = args[0], self.list_commands(ctx)
        meant = same_name(word, known)
        if meant or word.startswith("-"):
            return super().resolve_command(ctx, [meant or word, *args[1:]])
        near = spelled_like(word, known)
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        raise click.UsageError(f"No such command {word!r}.{hint}", ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """First sentences whole: wrapped where the window is narrow, and never cut."""
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))

    def add(self, *commands: click.Command) -> None:
        for each in commands:
            self.add_command(each)

    def sub(self, name: str, examples: str = "") -> Callable[[Work], click.Command]:
        """Decorates the work of one of its commands."""

        def add(work: Work) -> click.Command:
            made = command(name, examples)(work)
            self.add_command(made)
            return made

        return add


# --- what every command takes -----------------------------------------------------------------------------


def _common(*names: str, **attributes: Any) -> Callable[[F], F]:
    """An option that may stand before the command or after it; it goes into the session's options."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        session = ctx.find_object(Session)
        if session is None or not value or parameter.name is None:
            return
        setattr(session.options, parameter.name, value)
        session.out.as_json = session.err.as_json = session.options.as_json

    return click.option(*names, expose_value=False, callback=keep, is_eager=True, **attributes)


_host_option: Final = click.option(
    "--host",
    metavar="NAME",
    expose_value=False,  # it never gets as far as a command here: see `remote`
    help="Run on another machine, through ssh; before the command.  [spark-tui hosts]",
)


def common_options(*, everything: bool = False) -> Callable[[F], F]:
    """All of them, for the program (`everything`) shown in its help, for a command only those that are used daily."""
    hidden = not everything
    options = (
        _common("--json", "as_json", is_flag=True, help="Print data instead of text."),
        _common("--demo", is_flag=True, help="A simulated Spark: needs no Docker and no GPU, changes nothing."),
        _common("--read-only", is_flag=True, hidden=hidden, help="Refuse whatever would change what runs."),
        _common("--docker-host", metavar="URL", hidden=hidden, help="Docker's address, as in DOCKER_HOST."),
        _common("--store", metavar="FOLDER", hidden=hidden, help="Where the models are.  [~/vllm]"),
        _common("--config", metavar="FOLDER", hidden=hidden, help="Settings, presets and keys.  [~/.config/spark-tui]"),
    )

    def add(function: F) -> F:
        function = _host_option(function) if everything else function
        for option in reversed(options):
            function = option(function)
        return function

    return add


def command(name: str, examples: str = "") -> Callable[[Work], click.Command]:
    """Makes a command of its work: with the common options, and handed the session."""
    epilog = f"\b\nExamples:\n{examples}" if examples else None

    def make(work: Work) -> click.Command:
        return click.command(name, epilog=epilog)(common_options()(click.make_pass_decorator(Session)(work)))

    return make


def command_at(module: str, name: str) -> click.Command:
    """The command of that name, which the module declares as a variable of its own."""
    found = vars(named(module)).values()
    return next(each for each in found if isinstance(each, click.Command) and each.name == name)


def group(name: str, places: Mapping[str, str] = {}) -> Callable[[Callable[..., int | None]], Commands]:
    """A group with the common options. What it decorates is its work when none of its commands is given; `places` are
    the modules of its commands, where it has them elsewhere."""

    def make(work: Callable[..., int | None]) -> Commands:
        def alone(ctx: click.Context, /, **given: Any) -> int | None:
            return work(ctx.obj, **given) if ctx.invoked_subcommand is None else None

        update_wrapper(alone, work)
        callback = common_options()(click.pass_context(alone))
        made = click.group(name, cls=Commands, invoke_without_command=True)(callback)
        made.places = places
        return made

    return make


def run_command(*words: str) -> None:
    """Runs another command of the program, as if it had been typed in the place of this one."""
    root = click.get_current_context().find_root()
    root.command.main(list(words), prog_name=PROGRAM, standalone_mode=False, obj=root.obj)


# --- what many commands take ------------------------------------------------------------------------------


def complete(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes names of a kind: presets, engines, models, settings."""

    def found(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        session = ctx.find_object(Session)
        names = session.names_of(session, kind) if session is not None and session.names_of is not None else []
        return [CompletionItem(name) for name in names if name.startswith(typed)]

    return found


engine_argument: Final = click.argument("name", shell_complete=complete("engines"))
optional_engine_argument: Final = click.argument(
    "name", required=False, default="", metavar="[NAME]", shell_complete=complete("engines")
)
"""For `names.engine_name`."""
preset_argument: Final = click.argument("name", shell_complete=complete("presets"))
model_argument: Final = click.argument("name", shell_complete=complete("models"))
setting_argument: Final = click.argument("key", shell_complete=complete("settings"))

grace_option: Final = click.option(
    "--timeout",
    "grace_seconds",
    type=click.IntRange(0, 3600),
    default=30,
    metavar="SECONDS",
    help="Time to stop before it is killed.  [30]",
)
yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def settings_option(text: str = "As for `up`; may be repeated.") -> Callable[[F], F]:
    """`--set KEY=VALUE`: other values than the preset's, for this time."""
    return click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=text)
