"""hosts: other boxes, and what each serves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from spark_tui.cli.diagnostics import error_object
from spark_tui.cli.output import Cell, Column, Table
from spark_tui.cli.session import Session
from spark_tui.domain.errors import ExitCode, RefusedError, UsageError
from spark_tui.domain.remote import RemoteBox, RemoteEngine, memory_words, serving_words

if TYPE_CHECKING:
    from spark_tui.cli import shapes
    from spark_tui.core.context import Context
    from spark_tui.core.hosts import HostView

NONE_YET = "No other boxes are named. Name one: spark-tui config set hosts.NAME USER@ADDRESS"


def list_hosts(session: Session) -> int:
    """Asks each host of the settings. Returns 3 when one has no answer, 0 otherwise. Raises RefusedError in a demo."""

    async def look(context: Context) -> list[HostView]:
        return sorted([view async for view in context.hosts.look()], key=lambda view: view.host.name)

    views = session.run(look)
    if session.as_json:
        session.out.json([_shape(view) for view in views])
    elif views:
        session.out.table(_table(views))
        _tell_problems(session, views)
    else:
        session.err.say(NONE_YET)
    return ExitCode.UNREACHABLE if any(view.problem for view in views) else ExitCode.DONE


def _table(views: list[HostView]) -> Table:
    columns = (
        Column("NAME", name=True),
        Column("BOX", flexible=True, spare=2),
        Column("USABLE", right=True),
        Column("SERVES", flexible=True, spare=1),
    )
    return Table(columns, tuple(_row(view) for view in views))


def _row(view: HostView) -> tuple[Cell | str, ...]:
    host, box = view.host, view.box
    if box is None:
        summary = view.problem.summary if view.problem else ""
        return host.name, host.destination, "n/a", Cell(summary.removeprefix(host.name).lstrip(": "), "red")
    return host.name, box.hostname or host.destination, memory_words(box), serving_words(box)


def _tell_problems(session: Session, views: list[HostView]) -> None:
    """What to do about each that has no answer."""
    for view in views:
        if view.problem is not None:
            session.err.problem(view.problem)


def _shape(view: HostView) -> shapes.Object:
    host, problem = view.host, view.problem
    found = {"id": host.name, "ssh": host.destination, "command": host.command, "reachable": view.box is not None}
    if view.box is None:
        why = problem.summary if problem else ""
        nothing = dict.fromkeys(("hostname", "available_bytes", "total_bytes", "engines"))
        reasons = {f"{key}_reason": why for key in nothing}
        return found | nothing | reasons | {"error": error_object(problem) if problem else None}
    return found | _box(view.box)


def _box(box: RemoteBox) -> shapes.Object:
    from spark_tui.cli import shapes

    return {
        **shapes.maybe("hostname", box.hostname, "it does not tell"),
        **shapes.read("available_bytes", box.available, int),
        **shapes.read("total_bytes", box.total, int),
        **shapes.read("engines", box.engines, lambda engines: [_engine(each) for each in engines]),
    }


def _engine(engine: RemoteEngine) -> shapes.Object:
    from spark_tui.cli import shapes

    return {
        "id": engine.name,
        "state": engine.state,
        **shapes.maybe("model", engine.model, "it does not tell"),
        **shapes.maybe("port", engine.port, "no port is published"),
    }


HOST: Final = "--host"
BEFORE_COMMAND: Final = f"It stands before the command: spark-tui {HOST} NAME ps"


def host_asked(arguments: Sequence[str], with_value: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
    """The host, and the arguments for it; None where `--host` does not stand before the command.

    `with_value` are the options there that take a value. Raises UsageError when it was given twice, RefusedError for a
    demo.
    """
    rest: list[str] = []
    found: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            rest.append(word)
            break
        taken = None if equals or name not in with_value else next(words, None)
        if name != HOST or (not equals and taken is None):  # without a value it is for click to say so
            rest += [word] if taken is None else [word, taken]
        else:
            found.append(value if equals else taken or "")
    rest += words
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(f"{HOST} was given twice.", "Name one host: one box after the other.")
    if "--demo" in rest:
        raise RefusedError("A demo is simulated here, and leads to no other box.", f"Leave out --demo, or {HOST}.")
    return found[0], tuple(rest)


def go_there(session: Session, name: str, arguments: tuple[str, ...]) -> None:
    """This process becomes the command on that host; its exit code is ours. Raises UsageError for a host that is not
    known, UnreachableError without ssh."""
    session.err.as_json = "--json" in arguments
    typed = session.stdin is not None and session.stdin.isatty()
    context = session.opened()  # for the settings and ssh: nothing else of it is made
    context.hosts.become(name, arguments, terminal=typed and session.out.terminal.interactive)
