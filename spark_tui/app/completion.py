"""completion: what the shell completes, and the script that asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from spark_tui.base.context import Context
from spark_tui.base.engine.state import runtime_of
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.finding import value_of
from spark_tui.base.settings import folders_for
from spark_tui.catalog.models.use.downloads import Downloads
from spark_tui.catalog.presets.use.library import Library
from spark_tui.cli.command import command
from spark_tui.cli.session import PROGRAM, Session
from spark_tui.machine.engines import EngineFinder
from spark_tui.machine.settings import Config

VARIABLE: Final = "_SPARK_TUI_COMPLETE"
"""Set by the shell's script: the program then prints completions and does nothing else."""
SECONDS: Final = 2.0
"""A person who has pressed Tab waits no longer."""
SHELLS: Final = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_ZSHRC: Final = """
# spark-tui completion
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
source {file}
"""

EXAMPLES = """\
  spark-tui completion bash --install
  spark-tui completion fish | source            for this shell only
"""


# --- names ------------------------------------------------------------------------------------------------


async def _presets(context: Context) -> Iterable[str]:
    return (preset.name for preset in context.ports["presets"].glance().presets)


async def _engines(context: Context) -> Iterable[str]:
    found = await context[EngineFinder].all()
    return (container.name for container in found if runtime_of(container))


async def _models(context: Context) -> Iterable[str]:
    view = value_of(await context[Library].refresh())
    return () if view is None else (entry.model.id for entry in view.entries)


async def _images(context: Context) -> Iterable[str]:
    return (name for image in (await context.docker.images()).images for name in image.tags)


async def _clusters(context: Context) -> Iterable[str]:
    return (cluster.name for cluster in context.settings.clusters)


async def _downloads(context: Context) -> Iterable[str]:
    return (download.id for download in await context[Downloads].refresh())


SOURCES: Final[dict[str, Callable[[Context], Awaitable[Iterable[str]]]]] = {
    "presets": _presets,
    "engines": _engines,
    "models": _models,
    "images": _images,
    "downloads": _downloads,
    "clusters": _clusters,
}


def names(session: Session, kind: str) -> list[str]:
    """Names of that kind, sorted; none where they cannot be read in time. Writes nothing: a line is being typed."""
    session.err.as_json = True
    try:
        if kind == "settings":
            config = Config(folders_for(session.options.config, session.environment), session.environment)
            return sorted(entry.key for entry in config.entries())

        async def look(context: Context) -> Iterable[str]:
            async with asyncio.timeout(SECONDS):
                return await SOURCES[kind](context)

        return sorted(session.run(look))
    except (SparkError, OSError, TimeoutError):
        return []


# --- the script -------------------------------------------------------------------------------------------


@command("completion", EXAMPLES)
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
@click.option("--install", is_flag=True, help="Write it where new shells find it.")
def completion(session: Session, shell: str, install: bool) -> None:
    """Set up shell completion for bash, zsh or fish.

    Prints the script, or installs it for you. Completes commands, options, presets, engines, models and settings.
    """
    root = click.get_current_context().find_root().command
    script = ShellComplete.source(SHELLS[shell](root, {}, PROGRAM, VARIABLE))
    if not install:
        session.out.json({"id": shell, "script": script})
        session.out.write(script)
        return
    if session.options.demo:
        raise RefusedError("A demo changes nothing on this machine.", "Leave out --demo.")
    files = _install(session, shell, script)
    session.out.json({"id": shell, "installed": True, "files": [str(file) for file in files]})
    session.out.lines(str(file) for file in files)
    session.err.say(f"Installed. New {shell} shells complete {PROGRAM}.")


def _install(session: Session, shell: str, script: str) -> list[Path]:
    """The files that were written. bash and fish load theirs by name; zsh has no such folder for a user, so that its
    `.zshrc` gets three lines, once."""
    environment = session.environment
    home = Path(environment.get("HOME") or Path.home())
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    file = {
        "bash": data / "bash-completion" / "completions" / PROGRAM,
        "zsh": data / PROGRAM / "completion.zsh",
        "fish": config / "fish" / "completions" / f"{PROGRAM}.fish",
    }[shell]
    written = [file]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script, encoding="utf-8")
        if shell == "zsh":
            zshrc = Path(environment.get("ZDOTDIR") or home) / ".zshrc"
            before = zshrc.read_text(encoding="utf-8") if zshrc.exists() else ""
            if str(file) not in before:
                with zshrc.open("a", encoding="utf-8") as more:
                    more.write(_ZSHRC.format(file=file))
            written.append(zshrc)
    except OSError as error:
        raise SparkError(
            f"{error.filename or file} cannot be written: {error.strerror or error}.",
            f"Print the script and save it yourself: {PROGRAM} completion {shell}",
        ) from error
    return written
