"""Engines on the command line: the one that a name means, and the table of all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from spark_tui.cli.tables import Cell, Column, Table
from spark_tui.core.context import Context
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.view import EngineView, runtime_of
from spark_tui.domain.errors import ContainerNotFound
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.text import clean_line, truncate

SHORT_ID: Final = 12
_MAX_NAMED: Final = 8

STATE_STYLE: Final = {
    EngineState.SERVING: "green",
    EngineState.STARTING: "yellow",
    EngineState.RESTARTING: "yellow",
    EngineState.NOT_ANSWERING: "bold red",
    EngineState.FAILED: "red",
}

_COLUMNS: Final = (
    Column("NAME"),
    Column("STATE"),
    Column("PORT", right=True),
    Column("REACH"),
    Column("UP", right=True),
    Column("MODEL", flexible=True),
)


def suggestion(wanted: str, known: Iterable[str], what: str) -> str:
    """`Did you mean qwen36?`, else what there is, else that there is none."""
    names = sorted(clean_line(name) for name in known)
    near = difflib.get_close_matches(wanted.lower(), [name.lower() for name in names], n=3, cutoff=0.5)
    meant = [name for name in names if name.lower() in near] or [
        name for name in names if wanted.lower() in name.lower()
    ]
    if meant:
        return f"Did you mean {' or '.join(meant[:3])}?"
    if not names:
        return f"There are no {what} here."
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"The {what} here: {', '.join(names[:_MAX_NAMED])}{more}."


async def find_container(context: Context, name: str, *, engines_only: bool = True) -> ContainerFacts:
    """The container that a name or an id means. Raises ContainerNotFound with near names.

    With `engines_only` a container that serves no model is not found: stopping a database by a slip of the finger is
    not what this program is for.
    """
    containers = await context.docker.containers()
    found = next((c for c in containers if c.name == name), None) or _by_id(containers, name)
    shown = truncate(clean_line(name), 60)
    engines = [c.name for c in containers if runtime_of(c)]
    if found is None:
        what = "engine" if engines_only else "container"
        raise ContainerNotFound(f"There is no {what} named {shown}.", suggestion(name, engines, "engines"))
    if engines_only and not runtime_of(found):
        raise ContainerNotFound(
            f"{shown} is a container ({clean_line(found.image)}), and not one that serves a model.",
            f"{suggestion(name, engines, 'engines')} For other containers use docker itself.",
        )
    return found


def _by_id(containers: Sequence[ContainerFacts], text: str) -> ContainerFacts | None:
    found = [c for c in containers if len(text) >= SHORT_ID and c.id.startswith(text)]
    return found[0] if len(found) == 1 else None


def state_text(view: EngineView) -> str:
    """`SERVING`, `FAILED 1`, or the phase while it starts: `WEIGHTS 62%`."""
    if view.state is EngineState.FAILED:
        return f"FAILED {view.container.exit_code}"
    phase = view.timeline.current
    if view.state is EngineState.STARTING and phase is not None:
        return phase.label.upper() + (f" {phase.progress:.0%}" if phase.progress is not None else "")
    return view.state.value


def table(views: Sequence[EngineView], now: float) -> Table:
    """One row per engine."""
    rows = tuple(
        (
            Cell(view.name, "bold"),
            Cell(state_text(view), STATE_STYLE.get(view.state, "dim")),
            str(view.port or "-"),
            Cell(view.exposure.value, "bold red" if view.exposure.value == "LAN NO KEY" else ""),
            _up(view.container, now),
            view.model or "-",
        )
        for view in views
    )
    return Table(_COLUMNS, rows)


def _up(container: ContainerFacts, now: float) -> str:
    if container.running and container.started_at is not None:
        return human_duration(max(0.0, now - container.started_at))
    if container.finished_at is not None:
        return ago(now - container.finished_at)
    return "-"


def ago(seconds: float) -> str:
    """`12s ago`, `59m ago`, `2d ago`: one unit, for it is only a hint."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(0, int(seconds))}s ago"
