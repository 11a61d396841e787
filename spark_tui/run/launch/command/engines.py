"""The commands restart and secure: an engine that runs is started again."""

from __future__ import annotations

from functools import partial

import click
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.jobs import Report, StepState
from spark_tui.catalog.fit.use.fit import MemoryGate
from spark_tui.cli.command import command, engine_argument, grace_option, yes_option
from spark_tui.cli.names import find_container
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session, confirm, interrupted
from spark_tui.observe.engines.show.engines import engine_object
from spark_tui.observe.engines.use.engines import EngineSupervisor, view_of
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.show.progress import RESUMED, followed, keeps_starting, may
from spark_tui.run.launch.use.launch import Launcher
from spark_tui.run.launch.use.secure import Secured, Securing


@command("restart", "  spark-tui restart gpt-oss-120b --wait")
@engine_argument
@click.option("--wait/--no-wait", default=False, help="Wait until it serves again.  [--no-wait]")
@grace_option
@yes_option
def restart(session: Session, name: str, wait: bool, grace_seconds: int, yes: bool) -> None:
    """Stop and start an engine with its current settings."""
    found = session.run(lambda context: find_container(context, name, acts=True), changes=True)
    if not may(session, "Restart", found.name, yes=yes):
        session.err.say("Nothing was changed.")
        return
    begun: list[str] = []
    between: list[str] = []

    async def work(context: Context) -> None:
        container = await find_container(context, name)
        session.err.say(f"Restarting {container.name} ...")

        async def settle() -> None:
            between.append(container.name)
            came_back = await context[MemoryGate].await_return()
            if came_back:
                session.err.say(came_back)

        await context[EngineSupervisor].restart(container.name, grace_seconds, settle=settle)
        begun.append(container.name)
        if wait:
            launcher = context[Launcher]

            async def resume(report: Report) -> EngineView:
                return await launcher.resume(container.name, lambda step: report(step) if step.id in RESUMED else None)

            view = await followed(session, context, container.name, resume)
        else:
            watch = await context[EngineSupervisor].watch(container.name)
            await watch.settled()
            view = watch.view()
        session.out.json_line({"type": "result", **engine_object(view, context.clock.now())})
        if wait:
            session.out.line(view.base_url)
        else:
            session.err.say(f"{container.name} is starting. Follow it: spark-tui logs {container.name} -f")

    def left() -> Interrupted:
        if begun:
            return keeps_starting(begun[0])
        if between:
            return Interrupted(f"{between[0]} was stopped.", f"Start it: spark-tui restart {between[0]}")
        return interrupted()

    session.run(work, changes=True, on_interrupt=left)


@command("secure", "  spark-tui secure gpt-oss-120b")
@engine_argument
@click.option("--wait/--no-wait", default=True, help="Wait until it serves again.  [--wait]")
@yes_option
def secure(session: Session, name: str, wait: bool, yes: bool) -> None:
    """Give an engine that is open to the network an API key.

    Restarts it with its current settings. The key is kept in a private file; its path is printed.
    """

    async def look(context: Context) -> tuple[str, Secured]:
        view = await view_of(context, await find_container(context, name))
        return view.name, await context[Securing].plan(view)

    engine, secured = session.run(look, changes=True)
    session.err.note(secured.what)
    if not (confirm(session, f"Make a key for {engine}?", yes=yes) and may(session, "Restart", engine, yes=yes)):
        session.err.say("Nothing was changed.")
        return
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        request = replace(secured.request, wait=wait)
        launched = await followed(session, context, engine, partial(context[Launcher].launch, request), moved)
        session.out.json_line(
            {
                "type": "result",
                **engine_object(launched.view, context.clock.now()),
                "key_file": secured.key_file,
                "key_variable": secured.key_variable,
            }
        )
        session.out.line(secured.key_file)
        session.err.say(f"The API key is in that file, as {secured.key_variable}.")

    session.run(work, on_interrupt=lambda: _interrupted(engine, moved))


def _interrupted(engine: str, moved: dict[str, StepState]) -> Interrupted:
    if moved.get("start") is StepState.DONE:
        return keeps_starting(engine)
    return Interrupted(f"{engine} was not started with a key.", "See whether it runs: spark-tui ps")
