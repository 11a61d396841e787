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


def _command(name: str, epilog: str = "") -> Callable[[Callable[..., int | None]], click.Command]:
    """A command with the common options, handed the session."""
    examples = f"\b\nExamples:\n{epilog}" if epilog else None

    def make(function: Callable[..., int | None]) -> click.Command:
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


@_command("check", "  spark-tui presets check\n  spark-tui presets check gpt-oss-120b --set kv_cache_dtype=fp8")
@click.argument("name", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `up`; may be repeated.")
@click.option("--notes", is_flag=True, help="With all presets: notes too.")
def presets_check(session: Session, name: str | None, settings: tuple[str, ...], notes: bool) -> int:
    """What would go wrong with a launch, why, and the change that helps. Exit code 4: an error was found."""
    from spark_tui.cli.checking import check_presets

    return check_presets(session, name, settings, everything=notes)


_IMPORT_EXAMPLES = """\
  spark-tui presets import recipe.yaml --name mine
  git clone https://github.com/spark-arena/eugr-recipes.git && spark-tui presets import eugr-recipes
"""


@_command("import", _IMPORT_EXAMPLES)
@click.argument("source", metavar="FILE|FOLDER")
@click.option("--name", default="", metavar="NAME", help="The preset's name.  [the file's]")
@click.option("--force", is_flag=True, help="Take the place of a preset of that name.")
def presets_import(session: Session, source: str, name: str, force: bool) -> None:
    """Recipes of eugr (version 1) and sparkrun (version 2) become presets of yours.

    A file, a folder of them, or a registry cloned with git. Nothing in them is run: hooks and mods are shown.
    """
    from spark_tui.cli.dialects import import_presets

    import_presets(session, source, name=name, replace=force)


_FORMATS = ("docker-run", "compose", "systemd", "quadlet", "sparkrun", "eugr")
_EXPORT_EXAMPLES = """\
  spark-tui presets export gpt-oss-120b --format compose > compose.yaml
  spark-tui presets export gpt-oss-120b --format systemd -o gpt-oss-120b.service
  spark-tui presets export gpt-oss-120b --format sparkrun --set max_model_len=65536
"""


@_command("export", _EXPORT_EXAMPLES)
@_name
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="docker-run", help="[docker-run]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `up`; may be repeated.")
@click.option("-o", "--output", default="", metavar="FILE", help="Write it there, where there is no file yet.")
def presets_export(session: Session, name: str, format_: str, settings: tuple[str, ...], output: str) -> None:
    """A preset for another tool: a command, a Compose file, a service, a recipe.

    Keys and tokens are never in it: it names the private file that holds them.
    """
    from spark_tui.cli.dialects import export_preset

    export_preset(session, name, format_, settings, output)


presets.add_command(presets_list)
presets.add_command(presets_show)
presets.add_command(presets_check)
presets.add_command(presets_import)
presets.add_command(presets_export)


_FIT_EXAMPLES = """\
  spark-tui fit gpt-oss-120b
  spark-tui fit gpt-oss-120b --set max_model_len=65536 --json | jq .verdict
"""


@_command("fit", _FIT_EXAMPLES)
@_name
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A value of the preset; may be repeated.")
def fit(session: Session, name: str, settings: tuple[str, ...]) -> None:
    """Does a preset fit into the memory that is free now, and what would help.

    Weights, KV cache, state and the rest; measured where the checkpoint is in the store. Changes nothing.
    """
    from spark_tui.cli.fitting import fit as work

    work(session, name, settings)


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


_EXPLAIN_EXAMPLES = """\
  spark-tui explain gpt-oss-120b                a container's last start
  spark-tui explain boot.log                    a file (also .gz, and Docker's own JSON)
  docker logs vllm 2>&1 | spark-tui explain -
"""


@_command("explain", _EXPLAIN_EXAMPLES)
@click.argument("what", metavar="NAME|FILE|-")
def explain(session: Session, what: str) -> None:
    """Read a start-up log: phases, kernels, memory, root cause, remedy.

    Says where the time went, whether FP4 runs natively, why it failed, and which setting helps.
    """
    from spark_tui.cli.explain import explain as work

    work(session, what)


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


# --- memory -----------------------------------------------------------------------------------------------

_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@_command("drop-caches", "  spark-tui drop-caches\n  spark-tui drop-caches --install     no password from then on")
@click.option("--image", default="", metavar="IMAGE", help="A local image to do it in a container with.")
@click.option("--install", is_flag=True, help="Allow it for good, by an exact sudo rule that is shown first.")
@click.option("--uninstall", is_flag=True, help="Take that rule away.")
@_yes
def drop_caches(session: Session, image: str, install: bool, uninstall: bool, yes: bool) -> None:
    """Give up the page cache, which CUDA counts as used.

    Usable memory stays the same, free memory rises. Root's business: what this user is allowed is used, else sudo asks.
    """
    from spark_tui.cli import caches

    if install and uninstall:
        raise click.UsageError("--install and --uninstall are two things.")
    if install:
        caches.install_grant(session, yes=yes)
    elif uninstall:
        caches.remove_grant(session)
    else:
        caches.drop_caches(session, image=image, yes=yes)


_GUARD_EXAMPLES = """\
  spark-tui guard                               in the foreground, until Ctrl-C
  spark-tui guard --install                     as a systemd unit of yours
  spark-tui guard --status                      does it run, and what did it do
"""


@_command("guard", _GUARD_EXAMPLES)
@click.option("--every-engine", is_flag=True, help="Engines that spark-tui did not launch may be stopped too.")
@click.option("--status", "show", is_flag=True, help="Whether one runs, and what it did.")
@click.option("--install", is_flag=True, help="As a systemd unit of yours, which is shown first.")
@click.option("--uninstall", is_flag=True, help="Stop and remove that unit.")
@_yes
def guard(session: Session, every_engine: bool, show: bool, install: bool, uninstall: bool, yes: bool) -> None:
    """Stop an engine before the box runs out of memory and freezes.

    Looks at memory ten times a second when it is short. First a graceful stop, then a kill; the reason is kept.
    """
    from spark_tui.cli import guarding

    if install + uninstall + show > 1:
        raise click.UsageError("--status, --install and --uninstall are different things.")
    if show:
        guarding.guard_status(session)
    elif install:
        guarding.install_unit(session, every_engine=every_engine, yes=yes)
    elif uninstall:
        guarding.uninstall_unit(session)
    else:
        guarding.guard(session, every_engine=every_engine)


COMMANDS: Final = (status, memory, presets, fit, up, ps, logs, explain, chat, restart, down, drop_caches, guard)
