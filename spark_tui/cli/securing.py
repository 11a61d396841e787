"""secure: a key for an engine that everyone in the network can use."""

from __future__ import annotations

from dataclasses import replace

from spark_tui.cli import shapes
from spark_tui.cli.asking import confirm
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.engines import find_container
from spark_tui.cli.narrator import Narrator, keeps_starting, supervised, ticking
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.jobs import StepState
from spark_tui.core.secure import Secured
from spark_tui.domain.errors import ContainerNotFound


def secure(session: Session, name: str, *, wait: bool, yes: bool) -> None:
    """Asks, starts the engine anew with a key, and prints where the key is. Raises RefusedError for every engine that
    needs none or that spark-tui did not start."""

    async def look(context: Context) -> tuple[str, Secured]:
        session.refuse_if_read_only(context)
        container = await find_container(context, name)
        views = await context.supervisor.look()
        view = next((each for each in views if each.name == container.name), None)
        if view is None:
            raise ContainerNotFound(f"{container.name} has just gone.", "See: spark-tui ps -a")
        return view.name, await context.securing.plan(view)

    engine, secured = session.run(look)
    session.err.note(secured.what)
    if not confirm(session, f"Make a key for {engine}?", yes=yes):
        session.err.say("Nothing was changed.")
        return
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        narrator = Narrator(session, context, engine, moved)
        request = replace(secured.request, wait=wait)
        launched = await supervised(context, ticking(narrator, context.launcher.launch(request, narrator.step)))
        if session.as_json:
            session.out.json_line(
                {
                    "type": "result",
                    **shapes.engine(launched.view, context.clock.now()),
                    "key_file": secured.key_file,
                    "key_variable": secured.key_variable,
                }
            )
            return
        session.out.line(secured.key_file)
        session.err.say(f"The API key is in that file, as {secured.key_variable}.")

    session.run(work, on_interrupt=lambda: _interrupted(engine, moved))


def _interrupted(engine: str, moved: dict[str, StepState]) -> Interrupted:
    if moved.get("start") is StepState.DONE:
        return keeps_starting(engine)
    return Interrupted(f"{engine} was not started with a key.", "See whether it runs: spark-tui ps")
