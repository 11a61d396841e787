"""Looking: `status`, `ps`, `memory`."""

from __future__ import annotations

import click

from spark_tui.cli.commands.frame import command
from spark_tui.cli.session import Session

_STATUS_EXAMPLES = """\
  spark-tui status
  spark-tui status --json | jq .memory.available_bytes
  spark-tui status --watch --plain              a sentence when something changes
"""


@command("status", _STATUS_EXAMPLES)
@click.option("--plain", is_flag=True, help="One sentence a line, no table: for a screen reader or a pager.")
@click.option("-w", "--watch", is_flag=True, help="With --plain: a line for each change, until Ctrl-C.")
def status(session: Session, plain: bool, watch: bool) -> None:
    """The box, Docker, and what serves.

    Memory is shown even when Docker cannot be reached; the exit code is then 3.
    """
    if watch and not plain:
        raise click.UsageError("--watch goes with --plain; figures line by line: spark-tui memory --watch")
    if plain:
        from spark_tui.cli.status import plain_status

        plain_status(session, watch=watch)
        return
    from spark_tui.cli.status import status as work

    work(session)


@command("ps", "  spark-tui ps -a\n  spark-tui ps --json | jq -r '.[].id'")
@click.option("-a", "--all", "everything", is_flag=True, help="Ended engines too.")
def ps(session: Session, everything: bool) -> None:
    """Engines: name, state, port, who can reach it, model.

    Every container that serves a model is listed, whoever started it.
    """
    from spark_tui.cli.status import ps as work

    work(session, everything=everything)


_MEMORY_EXAMPLES = """\
  spark-tui memory
  spark-tui memory --watch                      a line a second, until Ctrl-C
  spark-tui memory --json | jq .available_bytes
"""


@command("memory", _MEMORY_EXAMPLES)
@click.option("-w", "--watch", is_flag=True, help="A line for each reading, until Ctrl-C.")
def memory(session: Session, watch: bool) -> None:
    """The unified memory now: engines, applications, driver, cache, free, available.

    One pool for CPU and GPU. In use, cache and free add up to the total.
    """
    from spark_tui.cli.memory import memory as work

    work(session, watch=watch)
