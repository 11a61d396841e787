"""The commands' declarations. Their work is imported when one of them runs: `--help` must cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable
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
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _command(name: str, epilog: str = "") -> Callable[[Callable[..., None]], click.Command]:
    """A command with the common options, handed the session."""
    examples = f"\b\nExamples:\n{epilog}" if epilog else None

    def make(function: Callable[..., None]) -> click.Command:
        return click.command(name, epilog=examples)(common_options()(session_of(function)))

    return make


_name = click.argument("name")


# --- looking ----------------------------------------------------------------------------------------------


@_command("status", "  spark-tui status\n  spark-tui status --json | jq .memory.available_bytes")
def status(session: Session) -> None:
    """The box, Docker, and what serves.

    Memory is shown even when Docker cannot be reached; the exit code is then 3.
    """
    from spark_tui.cli.looking import status as work

    work(session)


@_command("ps", "  spark-tui ps -a\n  spark-tui ps --json | jq -r '.[].id'")
@click.option("-a", "--all", "everything", is_flag=True, help="Ended engines too.")
def ps(session: Session, everything: bool) -> None:
    """Engines: name, state, port, who can reach it, model.

    Every container that serves a model is listed, whoever started it.
    """
    from spark_tui.cli.looking import ps as work

    work(session, everything=everything)


@_command("memory", "  spark-tui memory\n  spark-tui memory --json | jq .available_bytes")
def memory(session: Session) -> None:
    """The unified memory now: in use, cache, free, available.

    One pool for CPU and GPU. In use, cache and free add up to the total.
    """
    from spark_tui.cli.looking import memory as work

    work(session)


# --- presets ----------------------------------------------------------------------------------------------


@click.group("presets", cls=Commands, invoke_without_command=True)
@common_options()
@click.pass_context
def presets(ctx: click.Context) -> None:
    """Recipes: list them, look at one. Without a command: the list.

    Your own go into ~/.config/spark-tui/presets, as sparkrun v2 YAML; one of the same name takes the place of ours.
    """
    if ctx.invoked_subcommand is None:
        from spark_tui.cli.recipes import list_presets

        list_presets(ctx.obj)


@_command("list")
def presets_list(session: Session) -> None:
    """All presets; files that cannot be read are named on standard error."""
    from spark_tui.cli.recipes import list_presets

    list_presets(session)


@_command("show", "  spark-tui presets show gpt-oss-120b")
@_name
def presets_show(session: Session, name: str) -> None:
    """Everything that is known about one preset, and its command."""
    from spark_tui.cli.recipes import show_preset

    show_preset(session, name)


presets.add_command(presets_list)
presets.add_command(presets_show)


# --- launching --------------------------------------------------------------------------------------------

_UP_EXAMPLES = """\
  spark-tui up gpt-oss-120b
  spark-tui up gpt-oss-120b --set max_model_len=65536 --port 8001
  spark-tui up gpt-oss-120b --expose lan        with an API key, made for you
  spark-tui up gpt-oss-120b --dry-run           print the docker run
  spark-tui up gpt-oss-120b --json              one object per step, then the result
"""


@_command("up", _UP_EXAMPLES)
@click.argument("preset")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A value of the preset; may be repeated.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port on this machine.")
@click.option("--name", metavar="NAME", help="The container's name.  [the preset's]")
@click.option("--expose", type=click.Choice(["local", "lan"]), help="Who may reach it.  [local]")
@click.option("--api-key/--no-api-key", default=None, help="Ask for a key.  [with --expose lan]")
@click.option("--dry-run", is_flag=True, help="Print the docker run and change nothing; works without Docker.")
@click.option("--wait/--no-wait", default=True, help="Stay until it serves.  [--wait]")
@click.option("--warm/--no-warm", default=True, help="Make the slow first request.  [--warm]")
@click.option("--replace", is_flag=True, help="Stop an engine of that name that runs with other settings.")
def up(session: Session, preset: str, **options: Any) -> None:
    """Launch a preset and follow it until it serves.

    Check, pull, create, start, follow the boot, warm up. What is done already is skipped, so the same command goes on
    after an interruption. Prints the engine's address.
    """
    from spark_tui.cli.launching import UpOptions
    from spark_tui.cli.launching import up as work

    work(session, preset, UpOptions(**options))


_seconds = click.option(
    "--timeout", "grace_seconds", type=click.IntRange(0, 3600), default=30, metavar="SECONDS",
    help="Time to end by itself before it is killed.  [30]",
)  # fmt: skip


@_command("down", "  spark-tui down gpt-oss-120b\n  spark-tui down gpt-oss-120b --remove")
@_name
@click.option("--remove", is_flag=True, help="Remove the container too, and its log with it.")
@_seconds
def down(session: Session, name: str, remove: bool, grace_seconds: int) -> None:
    """Stop an engine. Its container and log stay, unless --remove."""
    from spark_tui.cli.running import down as work

    work(session, name, remove=remove, grace_seconds=grace_seconds)


@_command("restart", "  spark-tui restart gpt-oss-120b --wait")
@_name
@click.option("--wait/--no-wait", default=False, help="Stay until it serves again.  [--no-wait]")
@_seconds
def restart(session: Session, name: str, wait: bool, grace_seconds: int) -> None:
    """Stop and start an engine with the settings that it has."""
    from spark_tui.cli.running import restart as work

    work(session, name, wait=wait, grace_seconds=grace_seconds)


# --- logs and chat ----------------------------------------------------------------------------------------


@_command("logs", "  spark-tui logs gpt-oss-120b -f\n  spark-tui logs gpt-oss-120b --tail 50 > boot.log")
@_name
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the engine ends.")
@click.option("-n", "--tail", type=click.IntRange(0), metavar="N", help="The last N lines only.")
@click.option("-t", "--timestamps", is_flag=True, help="Docker's time before each line.")
@click.option("--raw", is_flag=True, help="Leave colours and other control codes in.")
def logs(session: Session, name: str, follow: bool, tail: int | None, timestamps: bool, raw: bool) -> None:
    """A container's log. Keys and tokens are masked, always."""
    from spark_tui.cli.running import logs as work

    work(session, name, follow=follow, tail=tail, stamps=timestamps, raw=raw)


_CHAT_EXAMPLES = """\
  spark-tui chat gpt-oss-120b                   a conversation
  spark-tui chat gpt-oss-120b -m "Why is the sky blue?"
  git diff | spark-tui chat gpt-oss-120b -m "Review this:"
"""


@_command("chat", _CHAT_EXAMPLES)
@_name
@click.option("-m", "--message", metavar="TEXT", help="The question; text that is piped in is put below it.")
@click.option("--system", default="", metavar="TEXT", help="The system prompt.")
@click.option("--temperature", type=click.FloatRange(0, 10), metavar="T", help="Sampling temperature.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), metavar="P", help="Nucleus sampling.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="At most so many tokens.")
@click.option("--seed", type=int, metavar="N", help="The same seed, the same answer, as far as the engine can.")
@click.option("--thinking/--no-thinking", default=None, help="Let a reasoning model reason, or not.")
@click.option("--effort", type=click.Choice(["low", "medium", "high"]), help="Reasoning effort (gpt-oss).")
@click.option("--show-reasoning", is_flag=True, help="Show the reasoning, on standard error.")
def chat(
    session: Session,
    name: str,
    message: str | None,
    system: str,
    effort: str | None,
    show_reasoning: bool,
    **sampling: Any,
) -> None:
    """Talk to an engine. The answer goes to standard output, its figures to standard error.

    Without -m on a terminal: a conversation, line by line.
    """
    from spark_tui.cli.talking import ChatOptions
    from spark_tui.cli.talking import chat as work
    from spark_tui.domain.chat import ChatParameters

    parameters = ChatParameters(**sampling, reasoning_effort=effort or "")
    work(session, name, ChatOptions(message, system, parameters, show_reasoning))


COMMANDS: Final = (status, memory, presets, up, ps, logs, chat, restart, down)
