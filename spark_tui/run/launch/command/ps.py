"""ps: engines, and the edits of them that were interrupted."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.ports import EDITS
from spark_tui.cli.command import command
from spark_tui.cli.session import Session
from spark_tui.observe.engines.show.engines import engine_object, engine_table, failure_notes
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.view import EngineView


@command("ps", "  spark-tui ps -a\n  spark-tui ps --json | jq -r '.[].id'")
@click.option("-a", "--all", "everything", is_flag=True, help="Stopped engines too.")
def ps(session: Session, everything: bool) -> None:
    """List engines: name, state, port, exposure, model.

    Lists every container that serves a model, also foreign ones, servers outside Docker, and the addresses of the
    setting `engines`. Every command takes an address too: spark-tui metrics http://192.168.1.7:8000
    """

    failed: list[SparkError] = []

    async def look(context: Context) -> tuple[tuple[EngineView, ...], float]:
        if _has_edits(context):
            from spark_tui.run.launch.use.edit import Editor

            session.err.note(*(f"{problem.summary} {problem.remedy}" for problem in context[Editor].unreadable()))
            session.err.note(
                *(
                    f"The edit of {entry.name} was interrupted. Finish it: spark-tui edit {entry.name}"
                    for entry in context[Editor].interrupted()
                )
            )
        try:
            return await context[EngineSupervisor].look(), context.clock.now()
        except SparkError as error:  # what runs outside Docker is still shown
            failed.append(error)
            return await context[EngineSupervisor].look(docker=False), context.clock.now()

    views, now = session.run(look)
    if failed and not views:
        raise failed[0]
    shown = views if everything else tuple(view for view in views if view.container.running)
    session.out.answer([engine_object(view, now) for view in shown], engine_table(shown, now))
    session.err.note(*failure_notes(shown))
    hidden = len(views) - len(shown)
    if hidden:
        ended = "1 engine has ended" if hidden == 1 else f"{hidden} engines have ended"
        session.err.say(f"{ended}: spark-tui ps -a")
    elif not views:
        session.err.say("No engines. Launch one: spark-tui up PRESET (spark-tui presets list)")
    if failed:
        raise failed[0]


def _has_edits(context: Context) -> bool:
    """Whether edits are written down, or may be: only then what reads them is loaded."""
    try:
        return bool(context.ports.state.names(EDITS))
    except SparkError:
        return True
