"""Names on the command line: the preset, container or engine that one means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.state import runtime_of
from spark_tui.base.errors import ContainerNotFound, SparkError, UsageError
from spark_tui.base.text import clean_line, same_name, truncate
from spark_tui.catalog.presets.model.preset import Preset, PresetCatalogue
from spark_tui.cli.session import Session
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.view import EngineView

_SHORT_ID: Final = 12
_MAX_NAMED: Final = 8


def find_preset(context: Context, name: str) -> Preset:
    """The preset of that name. Raises UsageError with near names, or the PresetError of a file that would be it."""
    catalogue: PresetCatalogue = context.ports.get("presets").load()
    names = [preset.name for preset in catalogue.presets]
    found = catalogue.get(same_name(name, names))
    if found is not None:
        return found
    for problem in catalogue.problems:
        if problem.file.rpartition("/")[2].rpartition(".")[0] == name:
            raise problem
    raise UsageError(
        f"There is no preset named {truncate(clean_line(name), 60)}.",
        _known(name, names, "presets"),
    )


def _known(wanted: str, known: Iterable[str], what: str) -> str:
    """`Did you mean qwen36?`, else what there is, else that there is none."""
    names = sorted(clean_line(name) for name in known)
    near = difflib.get_close_matches(wanted.lower(), [name.lower() for name in names], n=3, cutoff=0.5)
    meant = [name for name in names if name.lower() in near] or [
        name for name in names if wanted.lower() in name.lower()
    ]
    if meant:
        return f"Did you mean {' or '.join(meant[:3])}?"
    if not names:
        return f"No {what} found."
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"Known {what}: {', '.join(names[:_MAX_NAMED])}{more}."


def engine_name(session: Session, name: str) -> str:
    """The name that was given; without one that of the only engine that runs, or where none runs, of the only one.
    Raises UsageError where several come into question, or none."""
    if name:
        return name

    async def work(context: Context) -> list[str]:
        engines = [each for each in await _containers(context) if runtime_of(each)]
        running = [each for each in engines if each.running]
        return sorted(clean_line(each.name) for each in running or engines)

    found = session.run(work)
    if len(found) == 1:
        return found[0]
    command = click.get_current_context().command_path
    if not found:
        raise UsageError("There is no engine here.", "Launch a preset: spark-tui up PRESET (spark-tui presets list)")
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    raise UsageError(
        f"There are {len(found)} engines: {', '.join(found[:_MAX_NAMED])}{more}.", f"Name one: {command} {found[0]}"
    )


async def find_container(context: Context, name: str, *, engines_only: bool = True) -> ContainerFacts:
    """The container that a name or an id means. Raises ContainerNotFound with near names.

    With `engines_only` a container that serves no model is not found: stopping a database by a slip of the finger is
    not what this program is for.
    """
    containers = await _containers(context, name)
    by_id = [c for c in containers if len(name) >= _SHORT_ID and c.id.startswith(name)]
    meant = same_name(name, [c.name for c in containers])
    found = next((c for c in containers if c.name == meant), by_id[0] if len(by_id) == 1 else None)
    shown = truncate(clean_line(name), 60)
    engines = [c.name for c in containers if runtime_of(c)]
    if found is None:
        what = "engine" if engines_only else "container"
        raise ContainerNotFound(f"There is no {what} named {shown}.", _known(name, engines, "engines"))
    if engines_only and not runtime_of(found):
        raise ContainerNotFound(
            f"{shown} is a container ({clean_line(found.image)}), and not one that serves a model.",
            f"{_known(name, engines, 'engines')} For other containers use docker itself.",
        )
    return found


async def _containers(context: Context, name: str = "") -> tuple[ContainerFacts, ...]:
    """What runs in Docker and outside it. Raises Docker's error unless what is asked for, or anything, runs outside."""
    bare = await context.in_thread(context.ports.host.bare_engines)
    try:
        return (*await context.docker.containers(), *bare)
    except SparkError:
        if not any(not name or each.name == name for each in bare):
            raise
        return tuple(bare)


async def engines_here(context: Context) -> tuple[EngineView, ...]:
    """Every engine; without Docker those outside it. Raises Docker's error where there are none."""
    try:
        return await context[EngineSupervisor].look()
    except SparkError:
        views = await context[EngineSupervisor].look(docker=False)
        if not views:
            raise
        return views


async def find_view(context: Context, name: str) -> EngineView:
    """That engine as it is now. Raises ContainerNotFound."""
    container = await find_container(context, name)
    views = await context[EngineSupervisor].look(docker=not container.bare)
    view = next((each for each in views if each.name == container.name), None)
    if view is None:
        raise ContainerNotFound(f"{container.name} was removed meanwhile.", "See: spark-tui ps -a")
    return view
