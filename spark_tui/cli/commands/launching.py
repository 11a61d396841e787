"""Launching: `up`, `down`, `restart`, `secure`."""

from __future__ import annotations

from typing import Any

import click

from spark_tui.cli.commands.frame import command, name_argument, settings_option, yes_option
from spark_tui.cli.session import Session

_UP_EXAMPLES = """\
  spark-tui up gpt-oss-120b
  spark-tui up gpt-oss-120b --set max_model_len=65536 --port 8001
  spark-tui up gpt-oss-120b --expose lan        with an API key, made for you
  spark-tui up gpt-oss-120b --dry-run           print the docker run
  spark-tui up gpt-oss-120b --json              one object per step, then the result
"""


@command("up", _UP_EXAMPLES)
@click.argument("preset")
@settings_option("A value of the preset; may be repeated.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port on this machine.")
@click.option("--name", metavar="NAME", help="The container's name.  [the preset's]")
@click.option("--expose", type=click.Choice(["local", "lan"]), help="Who may reach it.  [local]")
@click.option("--api-key/--no-api-key", default=None, help="Ask for a key.  [with --expose lan]")
@click.option("--dry-run", is_flag=True, help="Print the docker run and change nothing; works without Docker.")
@click.option("--wait/--no-wait", default=True, help="Stay until it serves.  [--wait]")
@click.option("--warm/--no-warm", default=True, help="Make the slow first request.  [--warm]")
@click.option(
    "--fetch/--no-fetch", default=True,
    help="Bring what is missing of the model into the store first; else the engine fetches it.  [--fetch]",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Stop an engine of that name that runs with other settings.")
@click.option("--force", is_flag=True, help="Launch what does not fit into memory, too.")
def up(session: Session, preset: str, **options: Any) -> None:
    """Launch a preset and follow it until it serves.

    Check, fetch the model, pull the image, create, start, follow the boot, warm up. What is done already is skipped, so
    the same command goes on after an interruption. Prints the engine's address.
    """
    from spark_tui.cli.launch import UpOptions
    from spark_tui.cli.launch import up as work

    work(session, preset, UpOptions(**options))


_seconds = click.option(
    "--timeout", "grace_seconds", type=click.IntRange(0, 3600), default=30, metavar="SECONDS",
    help="Time to end by itself before it is killed.  [30]",
)  # fmt: skip


@command("down", "  spark-tui down gpt-oss-120b\n  spark-tui down gpt-oss-120b --remove")
@name_argument
@click.option("--remove", is_flag=True, help="Remove the container too, and its log with it.")
@_seconds
def down(session: Session, name: str, remove: bool, grace_seconds: int) -> None:
    """Stop an engine. Its container and log stay, unless --remove."""
    from spark_tui.cli.engines import down as work

    work(session, name, remove=remove, grace_seconds=grace_seconds)


@command("restart", "  spark-tui restart gpt-oss-120b --wait")
@name_argument
@click.option("--wait/--no-wait", default=False, help="Stay until it serves again.  [--no-wait]")
@_seconds
def restart(session: Session, name: str, wait: bool, grace_seconds: int) -> None:
    """Stop and start an engine with the settings that it has."""
    from spark_tui.cli.engines import restart as work

    work(session, name, wait=wait, grace_seconds=grace_seconds)


@command("secure", "  spark-tui secure gpt-oss-120b")
@name_argument
@click.option("--wait/--no-wait", default=True, help="Stay until it serves again.  [--wait]")
@yes_option
def secure(session: Session, name: str, wait: bool, yes: bool) -> None:
    """Give an engine that everyone in the network can use an API key.

    It starts anew with the settings that it has. The key stays in a private file, whose path is printed.
    """
    from spark_tui.cli.engines import secure as work

    work(session, name, wait=wait, yes=yes)
