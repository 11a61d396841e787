"""status: the machine, Docker and what is serving."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

import click
from msgspec import Struct

from spark_tui.base.context import Context
from spark_tui.base.engine.container import DaemonFacts
from spark_tui.base.errors import SparkError
from spark_tui.base.page import moment
from spark_tui.base.store import World
from spark_tui.cli.command import command
from spark_tui.cli.session import Session
from spark_tui.observe.engines.show.engines import engine_table, failure_notes, spoken, status_object, status_page
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.view import EngineView


class _Snapshot(Struct, frozen=True):
    """The machine, Docker and its engines, at one moment. `error`: why Docker did not answer."""

    world: World
    now: float
    daemon: DaemonFacts | None = None
    views: tuple[EngineView, ...] = ()
    error: SparkError | None = None
    demo: bool = False


# --- status -------------------------------------------------------------------------------------------


_STATUS_EXAMPLES = """\
  spark-tui status
  spark-tui status --json | jq .memory.available_bytes
  spark-tui status --watch --plain              a sentence when something changes
"""


@command("status", _STATUS_EXAMPLES)
@click.option("--plain", is_flag=True, help="One sentence a line, no table: for a screen reader or a pager.")
@click.option("-w", "--watch", is_flag=True, help="With --plain: a line for each change, until Ctrl-C.")
def status(session: Session, plain: bool, watch: bool) -> None:
    """Show the machine, Docker and what is serving.

    Memory is shown even when Docker cannot be reached; the exit code is then 3.
    """
    if watch and not plain:
        raise click.UsageError("--watch needs --plain; figures line by line: spark-tui memory --watch")
    if plain:
        plain_status(session, watch=watch)
        return
    look = session.run(_look)
    session.out.answer(
        status_object(look.world, look.daemon, look.views, look.error, look.now, demo=look.demo),
        status_page(look.world, look.daemon, look.views, look.error),
    )
    if look.views:
        session.out.line()
        session.out.table(engine_table(look.views, look.now))
    session.err.note(*failure_notes(look.views))
    if look.error is not None:
        raise look.error


async def _look(context: Context) -> _Snapshot:
    host = asyncio.ensure_future(context[Collectors].collect_once())
    try:
        views = await context[EngineSupervisor].look()  # first: it gives up early where Docker is silent
        daemon = await context.docker.daemon()
    except SparkError as error:
        views = await context[EngineSupervisor].look(docker=False)
        await host
        return _Snapshot(context.store.world, context.clock.now(), None, views, error, demo=context.demo)
    except asyncio.CancelledError:
        host.cancel()
        raise
    await host
    return _Snapshot(context.store.world, context.clock.now(), daemon, views, demo=context.demo)


EVERY_SECONDS: Final = 2.0
STEP_GIB: Final = 4
"""Memory is announced again when it has moved by this: every reading would be noise."""

Spoken = dict[str, tuple[object, str]]
"""By subject: what decides whether it has changed, and its sentence."""


def plain_status(session: Session, *, watch: bool) -> None:
    """A sentence for each subject; with `watch` one more for each change. Raises Docker's error at the end."""

    async def work(context: Context) -> None:
        before: Spoken = {}
        while True:
            look = await _look(context)
            now = spoken(look.world, look.daemon, look.views, look.error)
            changed = {key: now[key] for key in now if key not in before or _moved(before[key][0], now[key][0])}
            lines = [(key, text) for key, (_, text) in changed.items()]
            lines += [(key, f"{key} is gone.") for key in before if key not in now and key not in _MACHINE]
            if not before and "docker" in now and now.keys() <= _MACHINE:
                lines.append(("engines", "No engines."))
            stamp = context.clock.now()
            session.out.json_lines({"at": moment(stamp), "id": key, "text": text} for key, text in lines)
            hour = datetime.fromtimestamp(stamp).astimezone().strftime("%H:%M:%S ") if watch else ""
            session.out.lines(f"{hour}{text}" for _, text in lines)
            before = {key: changed.get(key) or before[key] for key in now}
            if not watch:
                if look.error is not None:
                    raise look.error
                return
            await context.clock.sleep(max(EVERY_SECONDS, context.settings.refresh_seconds))

    session.run(work)


_MACHINE: Final = frozenset(("docker", "memory"))


def _moved(old: object, new: object) -> bool:
    """Figures move by a step, everything else by being different."""
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) >= STEP_GIB
    return old != new
