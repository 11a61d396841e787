"""Names on the command line: the container or engine that one means."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts, outside_docker
from spark_tui.base.engine.state import runtime_of
from spark_tui.base.errors import ContainerNotFound, UsageError
from spark_tui.base.text import MOST_NAMED, clean_line, known_names, truncate
from spark_tui.cli.session import Session
from spark_tui.machine.engines import EngineFinder


def engine_name(session: Session, name: str) -> str:
    """The name that was given; without one that of the only engine that runs, or where none runs, of the only one.
    Raises UsageError where several come into question, or none."""
    if name:
        return name

    async def work(context: Context) -> list[str]:
        engines = [each for each in await context[EngineFinder].all() if runtime_of(each)]
        running = [each for each in engines if each.running]
        return sorted(clean_line(each.name) for each in running or engines)

    found = session.run(work)
    if len(found) == 1:
        return found[0]
    command = click.get_current_context().command_path
    if not found:
        raise UsageError("There is no engine here.", "Launch a preset: spark-tui up PRESET (spark-tui presets list)")
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    raise UsageError(
        f"There are {len(found)} engines: {', '.join(found[:MOST_NAMED])}{more}.", f"Name one: {command} {found[0]}"
    )


async def find_container(
    context: Context, name: str, *, engines_only: bool = True, acts: bool = False
) -> ContainerFacts:
    """The engine that a name, an id or an address means. Raises ContainerNotFound with near names; with `acts`, for
    what stops or starts it, RefusedError where it runs outside Docker.

    With `engines_only` a container that serves no model is not found: stopping a database by a slip of the finger is
    not what this program is for.
    """
    found, containers = await context[EngineFinder].find(name)
    shown = truncate(clean_line(name), 60)
    engines = [c.name for c in containers if runtime_of(c)]
    if found is None:
        what = "engine" if engines_only else "container"
        raise ContainerNotFound(f"There is no {what} named {shown}.", known_names(name, engines, "engines"))
    if engines_only and not runtime_of(found):
        raise ContainerNotFound(
            f"{shown} is a container ({clean_line(found.image)}), and not one that serves a model.",
            f"{known_names(name, engines, 'engines')} For other containers use docker itself.",
        )
    if acts and found.bare:
        raise outside_docker(found, acts=True)
    return found
