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


_STATUS_EXAMPLES = """\
  spark-tui status
  spark-tui status --json | jq .memory.available_bytes
  spark-tui status --watch --plain              a sentence when something changes
"""


@_command("status", _STATUS_EXAMPLES)
@click.option("--plain", is_flag=True, help="One sentence a line, no table: for a screen reader or a pager.")
@click.option("-w", "--watch", is_flag=True, help="With --plain: a line for each change, until Ctrl-C.")
def status(session: Session, plain: bool, watch: bool) -> None:
    """The box, Docker, and what serves.

    Memory is shown even when Docker cannot be reached; the exit code is then 3.
    """
    if watch and not plain:
        raise click.UsageError("--watch goes with --plain; figures line by line: spark-tui memory --watch")
    if plain:
        from spark_tui.cli.plain import plain_status

        plain_status(session, watch=watch)
        return
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


_MEMORY_EXAMPLES = """\
  spark-tui memory
  spark-tui memory --watch                      a line a second, until Ctrl-C
  spark-tui memory --json | jq .available_bytes
"""


@_command("memory", _MEMORY_EXAMPLES)
@click.option("-w", "--watch", is_flag=True, help="A line for each reading, until Ctrl-C.")
def memory(session: Session, watch: bool) -> None:
    """The unified memory now: engines, applications, driver, cache, free, available.

    One pool for CPU and GPU. In use, cache and free add up to the total.
    """
    from spark_tui.cli.memory import memory as work

    work(session, watch=watch)


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


_DIFF_EXAMPLES = """\
  spark-tui presets diff gpt-oss-120b
  spark-tui presets diff gpt-oss-120b --set max_model_len=65536
"""


@_command("diff", _DIFF_EXAMPLES)
@click.argument("name")
@click.argument("container", required=False, default="")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `up`; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="Settings that agree, too.")
def presets_diff(session: Session, name: str, container: str, settings: tuple[str, ...], everything: bool) -> None:
    """What the preset says, what a launch would use, and what its container really uses."""
    from spark_tui.cli.comparing import diff_preset

    diff_preset(session, name, container, settings, everything=everything)


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
presets.add_command(presets_diff)
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


# --- models -----------------------------------------------------------------------------------------------


@click.group("models", cls=Commands, invoke_without_command=True)
@common_options()
@click.pass_context
def models(ctx: click.Context) -> None:
    """Checkpoints in the store: list, fetch, look into, verify, delete. Without a command: the list."""
    if ctx.invoked_subcommand is None:
        from spark_tui.cli.models import list_models

        list_models(ctx.obj)


@_command("list", "  spark-tui models list --json | jq '.models[] | select(.state != \"complete\") | .id'")
def models_list(session: Session) -> None:
    """What is here, how whole it is, when it was last read, and who uses it.

    What is wrong, and caches of other tools, are told on standard error.
    """
    from spark_tui.cli.models import list_models

    list_models(session)


_revision = click.option("--revision", default="", metavar="REF", help="A branch, tag or commit.  [the current one]")


_INSPECT_EXAMPLES = """\
  spark-tui models inspect nvidia/Qwen3.6-27B-NVFP4
  spark-tui models inspect nvidia/Qwen3.6-27B-NVFP4 --hub      before it is fetched
"""


@_command("inspect", _INSPECT_EXAMPLES)
@_name
@_revision
@click.option("--files", is_flag=True, help="Each file, too.")
@click.option("--hub", is_flag=True, help="As it is on the Hub: a few kilobytes of it are read.")
def models_inspect(session: Session, name: str, revision: str, files: bool, hub: bool) -> None:
    """What a checkpoint is by its own files, and what it will do on a Spark.

    Configs and headers are read, never a tensor: format and its exceptions, speed at most, KV cache, chat, licence.
    """
    if hub:
        from spark_tui.cli.inspecting_hub import inspect_on_hub

        inspect_on_hub(session, name, revision, files=files)
        return
    from spark_tui.cli.inspecting import inspect_model

    inspect_model(session, name, revision, files=files)


@_command("verify", "  spark-tui models verify openai/gpt-oss-120b")
@_name
@_revision
def models_verify(session: Session, name: str, revision: str) -> int:
    """Hash every file and compare it with the Hub's digests. Needs no network.

    Names the files to fetch again; the exit code is then 1.
    """
    from spark_tui.cli.models import verify

    return verify(session, name, revision)


_RM_EXAMPLES = """\
  spark-tui models rm openai/gpt-oss-20b --dry-run
  spark-tui models rm openai/gpt-oss-20b --revision 1a2b3c4
  spark-tui models rm openai/gpt-oss-20b --leftovers
"""


@_command("rm", _RM_EXAMPLES)
@_name
@click.option("--revision", default="", metavar="REF", help="Only that branch, tag or commit.")
@click.option("--leftovers", is_flag=True, help="Only what interrupted downloads have left, and data nobody uses.")
@click.option("--dry-run", is_flag=True, help="Say what would go and what that would free.")
@click.option("--unchecked", is_flag=True, help="Even if Docker does not tell what its containers use.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for the name.")
def models_rm(session: Session, name: str, **options: Any) -> None:
    """Delete a model, after you have typed its name. Refused while an engine uses it.

    Data that other models use too stays.
    """
    from spark_tui.cli.models import remove

    if options["revision"] and options["leftovers"]:
        raise click.UsageError("--revision and --leftovers are two things.")
    remove(session, name, **options)


_SEARCH_EXAMPLES = """\
  spark-tui models search qwen3.6 --format nvfp4 --fits
  spark-tui models search --publisher nvidia --format nvfp4 --max-size 70g --sort updated
"""


@_command("search", _SEARCH_EXAMPLES)
@click.argument("words", nargs=-1)
@click.option("--format", "formats", multiple=True, metavar="FORMAT", help="nvfp4, fp8, mxfp4, ...; may be repeated.")
@click.option("--publisher", default="", metavar="NAME", help="Only of this account.")
@click.option("--max-size", default="", metavar="SIZE", help="Weights of at most so much: 70g.")
@click.option("--fits", is_flag=True, help="Only what one Spark can hold.")
@click.option("--gguf", is_flag=True, help="GGUF repositories too.")
@click.option(
    "--sort", type=click.Choice(["downloads", "trending", "likes", "updated", "created"]), default="downloads",
    help="[downloads]",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 100), default=20, metavar="N", help="At most so many.  [20]")
def models_search(session: Session, words: tuple[str, ...], **options: Any) -> None:
    """Look for models on the Hugging Face Hub: format, size, whether one Spark holds them.

    The format is by the config where the Hub tells it, else by tags and name, which may lie: inspect before you pull.
    """
    from spark_tui.cli.searching import search_models

    search_models(session, words, **options)


_PULL_EXAMPLES = """\
  spark-tui models pull nvidia/Qwen3.6-27B-NVFP4 --dry-run
  spark-tui models pull gpt-oss-120b                     all that a preset needs
  spark-tui models pull nvidia/Qwen3.6-27B-NVFP4 --background --limit 50m
  spark-tui models pull Qwen/Qwen3-30B-A3B-GGUF --file Qwen3-30B-A3B-Q4_K_M.gguf --to gguf
"""


@_command("pull", _PULL_EXAMPLES)
@click.argument("what", metavar="REPO|PRESET")
@click.option("--revision", default="", metavar="REF", help="A branch, tag or commit.  [main]")
@click.option("--file", "files", multiple=True, metavar="PATTERN", help="Only these files; may be repeated.")
@click.option("--all-files", "everything", is_flag=True, help="Also what no engine here reads.")
@click.option("--to", "folder", default="", metavar="FOLDER", help="Into a folder of the store, not the Hub's cache.")
@click.option("--again", is_flag=True, help="What is here is damaged: fetch it anew.")
@click.option("--limit", default="", metavar="SIZE", help="All downloads together at most so much a second; none.")
@click.option("--dry-run", is_flag=True, help="Say what would be fetched.")
@click.option("--background", is_flag=True, help="Start it and return.")
def models_pull(session: Session, what: str, **options: Any) -> None:
    """Fetch a model, or all that a preset needs, into the store.

    It goes on when the terminal is closed, and where it stopped after an interruption. Ctrl-C pauses it. The token is
    that of HF_TOKEN or `hf auth login`.
    """
    from spark_tui.cli.pulling import PullOptions
    from spark_tui.cli.pulling import pull as work

    work(session, what, PullOptions(**options))


@_command("downloads", "  spark-tui models downloads --limit 50m\n  spark-tui models downloads --json")
@click.option("--limit", default="", metavar="SIZE", help="From now on, all together at most so much a second; none.")
@click.option("--at-once", type=click.IntRange(1, 8), metavar="N", help="From now on, so many at once.  [2]")
@click.option("--clear", is_flag=True, help="Take what is done off the list.")
def models_downloads(session: Session, **options: Any) -> None:
    """Downloads: running, waiting, paused, failed, done."""
    from spark_tui.cli.downloads import list_downloads

    list_downloads(session, **options)


_downloads = click.argument("names", metavar="DOWNLOAD", nargs=-1, required=True)


@_command("pause")
@_downloads
def models_pause(session: Session, names: tuple[str, ...]) -> None:
    """Pause downloads, by id or repository. What has arrived is kept."""
    from spark_tui.cli.downloads import pause as work

    work(session, names)


@_command("resume")
@_downloads
@click.option("--background", is_flag=True, help="Return at once.")
def models_resume(session: Session, names: tuple[str, ...], background: bool) -> None:
    """Go on with paused, interrupted or failed downloads."""
    from spark_tui.cli.downloads import resume as work

    work(session, names, background=background)


@_command("cancel")
@_downloads
@click.option("--discard", is_flag=True, help="Delete the parts of files, too.")
def models_cancel(session: Session, names: tuple[str, ...], discard: bool) -> None:
    """End downloads and take them off the list. Whole files stay; so do parts, unless --discard."""
    from spark_tui.cli.downloads import cancel as work

    work(session, names, discard=discard)


models.add_command(models_list)
models.add_command(models_search)
models.add_command(models_pull)
models.add_command(models_downloads)
models.add_command(models_pause)
models.add_command(models_resume)
models.add_command(models_cancel)
models.add_command(models_inspect)
models.add_command(models_verify)
models.add_command(models_rm)


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
@click.option("--force", is_flag=True, help="Launch what does not fit into memory, too.")
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


@_command("secure", "  spark-tui secure gpt-oss-120b")
@_name
@click.option("--wait/--no-wait", default=True, help="Stay until it serves again.  [--wait]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def secure(session: Session, name: str, wait: bool, yes: bool) -> None:
    """Give an engine that everyone in the network can use an API key.

    It starts anew with the settings that it has. The key stays in a private file, whose path is printed.
    """
    from spark_tui.cli.securing import secure as work

    work(session, name, wait=wait, yes=yes)


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


_HISTORY_EXAMPLES = """\
  spark-tui history                             the latest starts
  spark-tui history gpt-oss-120b       one engine or preset, the newest in full
  spark-tui history --failed --json | jq -r '.[].failure'
"""


@_command("history", _HISTORY_EXAMPLES)
@click.argument("name", required=False)
@click.option("--failed", is_flag=True, help="Only those that did not come to serve.")
@click.option("-n", "--limit", type=click.IntRange(1, 5000), default=20, metavar="N", help="At most so many.  [20]")
def history(session: Session, name: str | None, failed: bool, limit: int) -> None:
    """Earlier starts: what they took, what they measured, why they failed.

    Kept while spark-tui is open, and by `up`: ~/.local/share/spark-tui/history.
    """
    from spark_tui.cli.history import history as work

    work(session, name, failed=failed, limit=limit)


_CHAT_EXAMPLES = """\
  spark-tui chat gpt-oss-120b                   a conversation; /help in it
  spark-tui chat gpt-oss-120b --continue        the last one again
  spark-tui chat gpt-oss-120b -m "Why is the sky blue?"
  git diff | spark-tui chat gpt-oss-120b -m "Review this:"
  spark-tui chat qwen3.6-27b -m "What is this?" --image photo.jpg
"""


def _setting(*names: str, metavar: str, help: str, **attributes: Any) -> Callable[[F], F]:  # noqa: A002 - click's name
    """A chat setting, read and ranged by the domain: its errors name it."""
    return click.option(*names, metavar=metavar, help=help, **attributes)


def _chat_settings(function: F) -> F:
    """Everything that can be set for an answer."""
    options = (
        _setting("--system", metavar="TEXT|@FILE", help="The system prompt.  [the preset's]"),
        _setting("--temperature", metavar="T", help="Sampling temperature, 0 to 2."),
        _setting("--top-p", metavar="P", help="Nucleus sampling."),
        _setting("--top-k", metavar="N", help="Only the N likeliest tokens; 0 is all."),
        _setting("--min-p", metavar="P", help="Only tokens with this share of the likeliest one's probability."),
        _setting("--max-tokens", metavar="N", help="At most so many tokens, reasoning included."),
        _setting("--seed", metavar="N", help="The same seed, the same answer, as far as the engine can."),
        _setting("--stop", metavar="TEXT", multiple=True, help="End before this text; may be repeated."),
        _setting("--presence-penalty", metavar="X", help="-2 to 2; above 0 speaks of new things."),
        _setting("--frequency-penalty", metavar="X", help="-2 to 2; above 0 repeats words less."),
        _setting("--repetition-penalty", metavar="X", help="Above 1 repeats less, of the prompt too."),
        click.option("--thinking/--no-thinking", default=None, help="Let a reasoning model reason, or not."),
        click.option("--keep-thinking", "preserve_thinking", is_flag=True, default=None,
                     help="Send the reasoning of earlier answers too."),
        _setting("--effort", "reasoning_effort", metavar="WORD", help="none, minimal, low, medium, high, xhigh, max."),
        _setting("--budget", "thinking_budget", metavar="N", help="At most so many tokens of reasoning."),
        _setting("--schema", metavar="JSON|@FILE", help="The answer is JSON of this schema."),
        _setting("--logprobs", metavar="N", help="Tell the N likeliest tokens for each; 0 to 20."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@_command("chat", _CHAT_EXAMPLES)
@_name
@click.option("-m", "--message", metavar="TEXT", help="The question; text that is piped in is put below it.")
@click.option("--image", "images", multiple=True, metavar="FILE", help="A picture with it; may be repeated.")
@click.option("--audio", "sounds", multiple=True, metavar="FILE", help="A sound with it; may be repeated.")
@click.option(
    "--continue",
    "goes_on",
    is_flag=False,
    flag_value="last",
    default="",
    metavar="[ID]",
    help="Go on with a conversation that is kept.  [the last one]",
)
@click.option("--save/--no-save", "keep", default=None, help="Keep it.  [conversations yes, single questions no]")
@click.option("--model", default="", metavar="NAME", help="Another name that the engine serves (a LoRA).")
@click.option("--tools", default="", metavar="FILE", help="Tools in JSON; in a conversation you type their results.")
@click.option("--tool-choice", metavar="WORD", help="auto, none, required, or a tool's name.")
@_chat_settings
@click.option("--show-reasoning", is_flag=True, help="Show the reasoning, on standard error.")
def chat(session: Session, name: str, images: tuple[str, ...], sounds: tuple[str, ...], **typed: Any) -> None:
    """Talk to an engine. The answer goes to standard output, its figures to standard error.

    Without -m on a terminal: a conversation, line by line, which is kept in ~/.local/share/spark-tui/conversations.
    With --json every piece of the answer is an object on a line, and the last one is all of it.
    """
    from spark_tui.cli.talking import ChatOptions
    from spark_tui.cli.talking import chat as work

    message, goes_on, keep, model, tools = (typed.pop(key) for key in ("message", "goes_on", "keep", "model", "tools"))
    reasoning = typed.pop("show_reasoning")
    typed["stop"] = list(typed["stop"]) or None
    choice = typed.pop("tool_choice")
    settings = tuple((key, value) for key, value in typed.items() if value is not None)
    options = ChatOptions(
        message, settings, tools, (*images, *sounds), model, goes_on, keep, reasoning, tool_choice=choice or ""
    )
    work(session, name, options)


# --- conversations ----------------------------------------------------------------------------------------


@click.group("conversations", cls=Commands, invoke_without_command=True)
@common_options()
@click.pass_context
def conversations(ctx: click.Context) -> None:
    """Conversations with models that are kept. Without a command: the list.

    They are files of yours, private, in ~/.local/share/spark-tui/conversations.
    """
    if ctx.invoked_subcommand is None:
        from spark_tui.cli.conversations import list_conversations

        list_conversations(ctx.obj)


_conversation = click.argument("conversation", metavar="ID|last")


@_command("list", '  spark-tui conversations list --search "CUDA graph"')
@click.option("--search", default="", metavar="TEXT", help="Where this was said.")
def conversations_list(session: Session, search: str) -> None:
    """All conversations, the latest first; or where something was said."""
    from spark_tui.cli.conversations import list_conversations

    list_conversations(session, search)


@_command("show", "  spark-tui conversations show last | less")
@_conversation
def conversations_show(session: Session, conversation: str) -> None:
    """One conversation, as Markdown, or as data with --json."""
    from spark_tui.cli.conversations import show_conversation

    show_conversation(session, conversation)


@_command("export", "  spark-tui conversations export last --format json -o talk.json")
@_conversation
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), default="markdown", help="[markdown]")
@click.option("-o", "--output", default="", metavar="FILE", help="Write it there, where there is no file yet.")
@click.option("--force", is_flag=True, help="Take the place of a file.")
def conversations_export(session: Session, conversation: str, form: str, output: str, force: bool) -> None:
    """One conversation for elsewhere: Markdown to be read, JSON with everything, to be imported again."""
    from spark_tui.cli.conversations import export_conversation

    export_conversation(session, conversation, form, output, force=force)


@_command("import", "  spark-tui conversations import talk.json")
@click.argument("file")
def conversations_import(session: Session, file: str) -> None:
    """Our own JSON or Markdown, or a JSON list of messages. Prints the new id."""
    from spark_tui.cli.conversations import import_conversation

    import_conversation(session, file)


@_command("rename", '  spark-tui conversations rename last "Kernel hunt"')
@_conversation
@click.argument("title")
def conversations_rename(session: Session, conversation: str, title: str) -> None:
    """Give a conversation a title."""
    from spark_tui.cli.conversations import rename_conversation

    rename_conversation(session, conversation, title)


@_command("rm", "  spark-tui conversations rm 20261121-101500-3fa2c1")
@_conversation
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def conversations_rm(session: Session, conversation: str, yes: bool) -> None:
    """Delete a conversation, and the pictures in it."""
    from spark_tui.cli.conversations import remove_conversation

    remove_conversation(session, conversation, yes=yes)


for _each in (
    conversations_list, conversations_show, conversations_export, conversations_import, conversations_rename,
    conversations_rm,
):  # fmt: skip
    conversations.add_command(_each)


# --- metrics ----------------------------------------------------------------------------------------------

_METRICS_EXAMPLES = """\
  spark-tui metrics gpt-oss-120b              speed, queue, latency, KV cache
  spark-tui metrics gpt-oss-120b --watch        a line each second
  spark-tui metrics gpt-oss-120b --json | jq .ttft.p95_seconds
"""


@_command("metrics", _METRICS_EXAMPLES)
@_name
@click.option("-w", "--watch", is_flag=True, help="A line each second, until Ctrl-C.")
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="With --watch: so many lines.")
@click.option("--seconds", type=click.FloatRange(1, 60), metavar="S", help="How long to look.  [5]")
def metrics(session: Session, name: str, watch: bool, count: int | None, seconds: float | None) -> None:
    """How fast an engine serves, by its own counters.

    Quantiles come from histograms: beside each stands the bucket that the true value is in.
    """
    from spark_tui.cli import metrics as work

    if watch and seconds is not None:
        raise click.UsageError("--watch looks until you stop it: leave out --seconds.")
    if count is not None and not watch:
        raise click.UsageError("--count goes with --watch.")
    if watch:
        work.watch_metrics(session, name, count)
    else:
        work.metrics(session, name, seconds or 5.0)


# --- benchmarks -----------------------------------------------------------------------------------------


def _counts(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """`1,2,4,8` as whole numbers."""
    words = [word.strip().replace("_", "") for word in value.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of whole numbers: write it as 1,2,4,8.", ctx, parameter)
    return tuple(int(word) for word in words)


_BENCH_EXAMPLES = """\
  spark-tui bench gpt-oss-120b
  spark-tui bench gpt-oss-120b --concurrency 1,2,4,8,16 --input 2048
  spark-tui bench gpt-oss-120b --concurrency "" --prefill-depths 1024,16384
  spark-tui bench qwen-a --ab qwen-b            two running engines, in turn
  spark-tui bench gpt-oss-120b --json > run.json
"""


@_command("bench", _BENCH_EXAMPLES)
@_name
@click.option("--concurrency", default="1,2,4,8", callback=_counts, metavar="N,N", help="Streams.  [1,2,4,8]")
@click.option("--input", "input_tokens", type=int, default=1024, metavar="N", help="Prompt tokens.  [1024]")
@click.option("--output", "output_tokens", type=int, default=128, metavar="N", help="Answer tokens.  [128]")
@click.option(
    "--prefill-depths", "depths", default="", callback=_counts, metavar="N,N", help="Prompt lengths, one stream."
)
@click.option("--passes", type=int, default=3, metavar="N", help="How often all is repeated.  [3]")
@click.option("--rounds", type=int, default=2, metavar="N", help="Requests per stream and pass.  [2]")
@click.option("--warmup", type=int, default=2, metavar="N", help="Uncounted requests per stream first.  [2]")
@click.option("--content", type=click.Choice(["random", "prose"]), default="random", help="Of the prompts.  [random]")
@click.option("--warm-cache", is_flag=True, help="The same prompt each time: measures the prefix cache.")
@click.option("--as-text", is_flag=True, help="Send prompts as text and not as token ids.")
@click.option("--temperature", type=click.FloatRange(0, 10), default=0.0, metavar="T", help="Of sampling.  [0]")
@click.option("--seed", type=int, default=1, metavar="N", help="Of the prompts.  [1]")
@click.option("--ab", "other", default="", metavar="OTHER", help="A second running engine, measured in turn.")
def bench(session: Session, name: str, other: str, content: str, warm_cache: bool, as_text: bool, **load: Any) -> int:
    """Measure how fast an engine is: one stream, several, long prompts.

    Real streaming requests with prompts of an exact length that no cache knows. Latencies as `vllm bench serve`
    defines them. Failed and short requests are told, never averaged away. The result is kept: see `results`.
    """
    from spark_tui.cli.benching import bench as work
    from spark_tui.domain.bench.plan import BenchPlan, Content, PromptCache, PromptForm

    plan = BenchPlan(
        **load,
        content=Content(content),
        prompt_cache=PromptCache.WARM if warm_cache else PromptCache.COLD,
        form=PromptForm.TEXT if as_text else PromptForm.TOKENS,
    )
    return work(session, name, plan, other=other)


@click.group("results", cls=Commands, invoke_without_command=True)
@common_options()
@click.pass_context
def results(ctx: click.Context) -> None:
    """What was measured on this box: list, show, compare, export. Without a command: the list."""
    if ctx.invoked_subcommand is None:
        from spark_tui.cli.benching import list_results

        list_results(ctx.obj)


_STATUSES = ("benchmarked", "working", "pending", "failed")


@_command("list", "  spark-tui results list --model qwen\n  spark-tui results --json | jq -r '.[].id'")
@click.option("--model", default="", metavar="TEXT", help="Only models and engines with that in their name.")
@click.option("--status", type=click.Choice(_STATUSES), default=None, help="Only those.")
def results_list(session: Session, model: str, status: str | None) -> None:
    """All results, the newest first."""
    from spark_tui.cli.benching import ListOptions, list_results

    list_results(session, ListOptions(model, status or ""))


@_command("show", "  spark-tui results show last")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
def results_show(session: Session, keys: tuple[str, ...]) -> None:
    """A result in full, and what others published for that model."""
    from spark_tui.cli.benching import show_results

    show_results(session, keys)


@_command("compare", "  spark-tui results compare 3f2a 9c1b\n  spark-tui results compare last")
@click.argument("first", metavar="ID|ENGINE")
@click.argument("second", required=False, default="", metavar="[ID|ENGINE]")
def results_compare(session: Session, first: str, second: str) -> int:
    """The second beside the first; one alone beside this box's last result of the same model and load.

    Like with like: with another load nothing is compared, and every other difference is named.
    """
    from spark_tui.cli.benching import compare_results

    return compare_results(session, first, second)


@_command("export", "  spark-tui results export --format markdown > RESULTS.md")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
@click.option(
    "--format", "format_", type=click.Choice(["markdown", "csv", "json"]), default="markdown", help="[markdown]"
)
def results_export(session: Session, keys: tuple[str, ...], format_: str) -> None:
    """Results for others, on standard output; all of them when none is named."""
    from spark_tui.cli.benching import export_results

    export_results(session, keys, format_)


@_command("mark", '  spark-tui results mark acme/big-70b failed "CUDA driver error 35"')
@click.argument("model")
@click.argument("status", type=click.Choice(_STATUSES[1:]))
@click.argument("reason", required=False, default="")
@click.option("--quantization", default="", metavar="TEXT", help="NVFP4, FP8 ...")
@click.option("--runtime", default="", metavar="TEXT", help="vllm, sglang ...")
def results_mark(session: Session, model: str, status: str, reason: str, quantization: str, runtime: str) -> None:
    """Note that a model works, failed, or is still to be tried."""
    from spark_tui.cli.benching import mark_result

    mark_result(session, model, status, reason, quantization=quantization, runtime=runtime)


for _each in (results_list, results_show, results_compare, results_export, results_mark):
    results.add_command(_each)


# --- memory -----------------------------------------------------------------------------------------------

_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@_command("drop-caches", "  spark-tui drop-caches\n  spark-tui drop-caches --install     no password from then on")
@click.option("--image", default="", metavar="IMAGE", help="A local image to do it in a container with.")
@click.option("--install", is_flag=True, help="Allow it for good, by an exact sudo rule that is shown first.")
@click.option("--uninstall", is_flag=True, help="Take that rule away.")
@click.option("--polkit", is_flag=True, help="With these: a systemd unit that polkit lets you start, not sudo.")
@_yes
def drop_caches(session: Session, image: str, install: bool, uninstall: bool, polkit: bool, yes: bool) -> None:
    """Give up the page cache, which CUDA counts as used.

    Usable memory stays the same, free memory rises. Root's business: what this user is allowed is used, else sudo asks.
    """
    from spark_tui.cli import caches

    if install and uninstall:
        raise click.UsageError("--install and --uninstall are two things.")
    if polkit and not (install or uninstall):
        raise click.UsageError("--polkit goes with --install or --uninstall.")
    if install:
        (caches.install_unit if polkit else caches.install_grant)(session, yes=yes)
    elif uninstall:
        (caches.remove_unit if polkit else caches.remove_grant)(session)
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


_DOCTOR_EXAMPLES = """\
  spark-tui doctor
  spark-tui doctor --gpu-container --report report.txt
"""


@_command("doctor", _DOCTOR_EXAMPLES)
@click.option("--gpu-container", is_flag=True, help="Start a container with the GPU, too; it is removed again.")
@click.option("--report", default="", metavar="FILE", help="Write it all to a file, keys and tokens masked.")
def doctor(session: Session, gpu_container: bool, report: str) -> int:
    """What is wrong with this box, and what to do about it. Exit code 1: a check fails."""
    from spark_tui.cli.doctoring import doctor as work

    return work(session, gpu_container=gpu_container, report=report)


_SERVE_EXAMPLES = """\
  spark-tui serve
  ssh -L 8765:127.0.0.1:8765 my-spark spark-tui serve     from a laptop
"""


@_command("serve", _SERVE_EXAMPLES)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where it listens.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, metavar="PORT", help="[8765]; 0: any.")
@click.option("--to-network", is_flag=True, help="Allow an address that other machines can reach.")
def serve(session: Session, host: str, port: int, to_network: bool) -> None:
    """The control centre in your browser, behind a token.

    Needs an optional part: pip install 'spark-tui[web]'.
    """
    from spark_tui.cli.serving import serve as work

    work(session, host=host, port=port, to_network=to_network)


# --- settings ---------------------------------------------------------------------------------------------


@click.group("config", cls=Commands, invoke_without_command=True)
@common_options()
@click.pass_context
def config(ctx: click.Context) -> None:
    """Settings: each value, and where it comes from. Without a command: all of them."""
    if ctx.invoked_subcommand is None:
        from spark_tui.cli.config import list_settings

        list_settings(ctx.obj)


_key = click.argument("key")


@_command("list", "  spark-tui config list --json | jq '.[] | select(.origin != \"default\")'")
def config_list(session: Session) -> None:
    """All settings: the defaults, then the file, then SPARK_TUI_* variables; the later counts."""
    from spark_tui.cli.config import list_settings

    list_settings(session)


@_command("get", "  spark-tui config get store\n  spark-tui config get keymap.stop")
@_key
def config_get(session: Session, key: str) -> None:
    """One value, on standard output; where it comes from, on standard error."""
    from spark_tui.cli.config import get_setting

    get_setting(session, key)


_SET_EXAMPLES = """\
  spark-tui config set theme spark-light
  spark-tui config set keymap.stop ctrl+x       your own key; ids: spark-tui config keys
  spark-tui config set read_only true
"""


@_command("set", _SET_EXAMPLES)
@_key
@click.argument("value")
def config_set(session: Session, key: str, value: str) -> None:
    """Write a value into the settings file. Comments and order in it stay."""
    from spark_tui.cli.config import change_setting

    change_setting(session, key, value)


@_command("unset", "  spark-tui config unset theme")
@_key
def config_unset(session: Session, key: str) -> None:
    """Take a value out of the settings file: the default counts again."""
    from spark_tui.cli.config import change_setting

    change_setting(session, key, None)


@_command("keys", "  spark-tui config keys | grep Home")
def config_keys(session: Session) -> None:
    """Every action of the control centre: its id for `keymap`, its keys, where it applies."""
    from spark_tui.cli.config import list_keys

    list_keys(session)


@_command("path", "  $EDITOR $(spark-tui config path)")
def config_path(session: Session) -> None:
    """Where the settings file is, or would be."""
    from spark_tui.cli.config import tell_path

    tell_path(session)


for _each in (config_list, config_get, config_set, config_unset, config_keys, config_path):
    config.add_command(_each)


COMMANDS: Final = (
    status,
    memory,
    presets,
    models,
    fit,
    up,
    ps,
    logs,
    explain,
    history,
    chat,
    metrics,
    conversations,
    bench,
    results,
    restart,
    secure,
    down,
    drop_caches,
    guard,
    doctor,
    config,
    serve,
)
