"""Engines on the command line: their logs, and what stops and restarts them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import click
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.errors import ExitCode, RefusedError, SparkError
from spark_tui.base.jobs import StepState
from spark_tui.catalog.fit.use.fit import MemoryGate
from spark_tui.cli.command import command, engine_argument, yes_option
from spark_tui.cli.names import find_container
from spark_tui.cli.output import Interrupted
from spark_tui.cli.progress import LaunchProgress, keeps_starting, may, resumed, shown, supervised
from spark_tui.cli.session import Session, confirm, interrupted
from spark_tui.manage.cluster.show.cluster import cleared_object
from spark_tui.manage.cluster.use.launch import ClusterLauncher
from spark_tui.observe.engines.show.engines import engine_object
from spark_tui.observe.engines.use.engines import EngineSupervisor, outside_docker, view_of
from spark_tui.run.launch.use.launch import Launcher
from spark_tui.run.launch.use.secure import Secured, Securing
from spark_tui.run.service.use import BootUnits

GATHER_SECONDS: Final = 0.2


# --- down ---------------------------------------------------------------------------------------------


_grace = click.option(
    "--timeout", "grace_seconds", type=click.IntRange(0, 3600), default=30, metavar="SECONDS",
    help="Time to stop before it is killed.  [30]",
)  # fmt: skip


@command("down", "  spark-tui down gpt-oss-120b\n  spark-tui down gpt-oss-120b --remove")
@engine_argument
@click.option("--remove", is_flag=True, help="Remove the container too, with its log.")
@_grace
@yes_option
def down(session: Session, name: str, remove: bool, grace_seconds: int, yes: bool) -> int:
    """Stop an engine. Its container and log stay, unless --remove.

    One on several nodes is stopped and removed on all of them, and each is proven to be clean (exit code 1 if not).
    """
    if session.run(lambda context: _on_nodes(context, name)):
        return _down_on_nodes(session, name)
    if not _free(session, name, "Stop", yes=yes):
        return ExitCode.DONE

    async def work(context: Context) -> tuple[ContainerFacts, bool, str]:
        container = await find_container(context, name)
        if remove and not container.ours:
            raise RefusedError(
                f"{container.name} was not made by spark-tui: with it, its settings would be gone.",
                f"Stop it without --remove, or remove it yourself: docker rm {container.name}",
            )
        if container.running:
            session.err.say(f"Stopping {container.name} (at most {grace_seconds} s, then it is killed) ...")
            await context[EngineSupervisor].stop(container.name, grace_seconds)
        if remove:
            await context[EngineSupervisor].remove(container.name)
        starts = ""
        with suppress(SparkError):  # without systemd there is none
            known = await context[BootUnits].look_at_schedules() if context.ports.has("boot") else {}
            starts = known[container.name].schedule.start if container.name in known else ""
        return container, container.running, starts

    container, ran, starts = session.run(work, changes=True)
    session.out.json(
        {"id": container.name, "container_id": container.id, "was_running": ran, "stopped": True, "removed": remove}
    )
    done = "stopped" if ran else "was not running"
    session.err.say(f"{container.name} {done}{' and is removed, its log too' if remove else ''}.")
    if not remove:
        session.err.say(f"Its log is kept: spark-tui logs {container.name}")
    if starts:
        again = f"Its schedule {'launches' if remove else 'starts'} it again at {starts}"
        session.err.say(f"{again}. To end that: spark-tui schedule {container.name} --remove")
    return ExitCode.DONE


def _free(session: Session, name: str, verb: str, *, yes: bool) -> bool:
    """Whether an engine may be stopped or restarted: see `may`."""

    async def found(context: Context) -> str:
        container = await find_container(context, name)
        if container.bare:
            raise outside_docker(container, acts=True)
        return container.name

    if may(session, verb, session.run(found, changes=True), yes=yes):
        return True
    session.err.say("Nothing was changed.")
    return False


async def _on_nodes(context: Context, name: str) -> bool:
    return context.ports.has("remote_shell") and _clusters(context).read(name) is not None


def _clusters(context: Context) -> ClusterLauncher:
    from spark_tui.manage.cluster.use.launch import ClusterLauncher

    return context[ClusterLauncher]


def _down_on_nodes(session: Session, name: str) -> int:
    session.err.say(f"Stopping {name} on all nodes ...")
    results = session.run(lambda context: _clusters(context).stop(name), changes=True)
    session.out.json({"id": name, "stopped": True, "nodes": [cleared_object(each) for each in results]})
    for each in results:
        session.err.say(each.text)
        if each.problem is not None:
            session.err.say(f"  {each.problem.remedy}")
    if all(each.clean for each in results):
        return ExitCode.DONE
    session.err.say(f"It is remembered. Again, when the node is back: spark-tui down {name}")
    return ExitCode.FAILED


# --- restart ------------------------------------------------------------------------------------------


@command("restart", "  spark-tui restart gpt-oss-120b --wait")
@engine_argument
@click.option("--wait/--no-wait", default=False, help="Wait until it serves again.  [--no-wait]")
@_grace
@yes_option
def restart(session: Session, name: str, wait: bool, grace_seconds: int, yes: bool) -> None:
    """Stop and start an engine with its current settings."""
    if not _free(session, name, "Restart", yes=yes):
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
            view = await supervised(context, resumed(session, context, container.name))
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
        progress = LaunchProgress(session, context, engine, moved)
        request = replace(secured.request, wait=wait)
        launched = await supervised(context, shown(progress, context[Launcher].launch(request, progress.step)))
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
