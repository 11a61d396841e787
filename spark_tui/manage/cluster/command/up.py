"""up: a preset on this machine, or on several."""

from __future__ import annotations

import click

from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.remote import Spread
from spark_tui.catalog.presets.model.overrides import pairs_from
from spark_tui.cli.command import command, complete, settings_option, yes_option
from spark_tui.cli.session import Session
from spark_tui.run.launch.command.launch import launch, plan_launch
from spark_tui.run.launch.show.progress import may

_UP_EXAMPLES = """\
  spark-tui up gpt-oss-120b
  spark-tui up gpt-oss-120b --set max_model_len=65536 --port 8001
  spark-tui up gpt-oss-120b --expose lan        with an API key, made for you
  spark-tui up gpt-oss-120b --dry-run           print the docker run
  spark-tui up minimax-m2.7-awq --nodes duo     on several Sparks
  spark-tui up gpt-oss-120b --json              one object per step, then the result
"""


@command("up", _UP_EXAMPLES)
@click.argument("name", metavar="PRESET", shell_complete=complete("presets"))
@settings_option("A value of the preset; may be repeated.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port on this machine.")
@click.option("--name", "engine", metavar="NAME", help="The container's name.  [the preset's]")
@click.option("--expose", type=click.Choice(["local", "lan"]), help="Who can reach it.  [local]")
@click.option("--api-key/--no-api-key", default=None, help="Require a key.  [with --expose lan]")
@click.option("--nodes", metavar="NAMES", help="A cluster, or nodes of one with commas.")
@click.option(
    "--parallel",
    type=click.Choice([each.value for each in Spread]),
    help="How the nodes share the work.  [the preset's, else tp]",
)
@click.option("--dry-run", is_flag=True, help="Print the docker run and change nothing; works without Docker.")
@click.option("--wait/--no-wait", default=True, help="Wait until it serves.  [--wait]")
@click.option("--warm/--no-warm", default=True, help="Make the slow first request.  [--warm]")
@click.option(
    "--fetch/--no-fetch",
    default=True,
    help="Download missing model files first; else the engine downloads them.  [--fetch]",
)
@click.option(
    "--replace", "replace_running", is_flag=True, help="Stop an engine of that name that runs with other settings."
)
@click.option("--force", is_flag=True, help="Launch even if it does not fit in memory.")
@click.option("--service", is_flag=True, help="For systemd: wait for Docker, stay until the engine ends.")
@yes_option
def up(
    session: Session,
    name: str,
    settings: tuple[str, ...],
    port: int | None,
    engine: str | None,
    expose: str | None,
    api_key: bool | None,
    nodes: str | None,
    parallel: str | None,
    dry_run: bool,
    service: bool,
    yes: bool,
    **how: bool,
) -> None:
    """Launch a preset and follow it until it serves.

    Check, download the model, pull the image, create, start, follow the boot, warm up. Finished steps are skipped, so
    the same command resumes after an interruption. Prints the engine's address.
    """
    key = None if api_key is None else "yes" if api_key else "no"
    options = (("port", port), ("name", engine), ("exposure", expose), ("api_key", key))
    # An option of its own wins over the same key after `--set`.
    pairs = pairs_from(settings) | {key: str(value) for key, value in options if value is not None}
    if not (dry_run or service or may(session, "Launch", engine or name, yes=yes)):
        raise RefusedError("Not started.", f"See what it comes to: spark-tui up {name} --dry-run")
    if nodes is not None:
        from spark_tui.manage.cluster.command.nodes import launch_on_nodes  # a third of what `up` would import

        launch_on_nodes(session, name, pairs, nodes, Spread(parallel) if parallel else None, how, dry_run=dry_run)
    elif parallel:
        raise UsageError("--parallel is about several nodes.", f"Name them: spark-tui up {name} --nodes CLUSTER")
    elif dry_run:
        plan_launch(session, name, pairs, fetch=how["fetch"])
    else:
        launch(session, name, pairs, how, service=service, yes=yes)
