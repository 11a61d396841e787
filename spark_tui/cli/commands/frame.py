"""What every command is made of: the group in its order, the common options, and arguments that many take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from importlib import import_module
from typing import Any, Final, TypeVar

import click

from spark_tui.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])

session_of = click.make_pass_decorator(Session)


class Commands(click.Group):
    """A group that lists its commands as they were added: the way through a day, not the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its first sentence, whole: wrapped where the window is narrow, and never cut."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(limit=200)) for name, each in found if each and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def add(self, *commands: click.Command) -> None:
        """Adds them in this order."""
        for each in commands:
            self.add_command(each)


class Program(Commands):
    """The top group: a command's module (`modules`: by the command's name) is imported once it is asked for. The
    control centre opens without any."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of `modules`."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; None for a name that is none."""
        if cmd_name in self._modules and cmd_name not in self.commands:
            module = import_module(f"{__package__}.{self._modules[cmd_name]}")
            self.add_command(getattr(module, cmd_name.replace("-", "_")))
        return super().get_command(ctx, cmd_name)


# --- what every command takes -----------------------------------------------------------------------------


def _common(*names: str, **attributes: Any) -> Callable[[F], F]:
    """An option that may stand before the command or after it; it goes into the session's options."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        session = ctx.find_object(Session)
        if session is None or not value or parameter.name is None:
            return
        setattr(session.options, parameter.name, value)
        session.err.as_json = session.options.as_json

    return click.option(*names, expose_value=False, callback=keep, is_eager=True, **attributes)


_host_option: Final = click.option(
    "--host",
    metavar="NAME",
    expose_value=False,  # it never gets as far as a command here: see `elsewhere`
    help="Do it on another box, through ssh; stands before the command.  [spark-tui hosts]",
)


def common_options(*, everything: bool = False) -> Callable[[F], F]:
    """All of them, for the group (`everything`) shown in its help, for a command only those that are used daily."""
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


def command(name: str, epilog: str = "") -> Callable[[Callable[..., int | None]], click.Command]:
    """A command with the common options, handed the session."""
    examples = f"\b\nExamples:\n{epilog}" if epilog else None

    def make(function: Callable[..., int | None]) -> click.Command:
        return click.command(name, epilog=examples)(common_options()(session_of(function)))

    return make


def group(name: str) -> Callable[[Callable[[Session], None]], Commands]:
    """A group with the common options. What it decorates is its work when none of its commands is given."""

    def make(function: Callable[[Session], None]) -> Commands:
        def alone(ctx: click.Context) -> None:
            if ctx.invoked_subcommand is None:
                function(ctx.obj)

        callback = common_options()(click.pass_context(update_wrapper(alone, function)))
        return click.group(name, cls=Commands, invoke_without_command=True)(callback)

    return make


# --- what many commands take ------------------------------------------------------------------------------

name_argument: Final = click.argument("name")

yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def settings_option(told: str = "As for `up`; may be repeated.") -> Callable[[F], F]:
    """`--set KEY=VALUE`: other values than the preset's, for this time."""
    return click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=told)
