"""down: stops an engine, on all machines that serve it."""

from __future__ import annotations

from contextlib import suppress

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.errors import ExitCode, RefusedError, SparkError
from spark_tui.cli.command import command, engine_argument, grace_option, yes_option
from spark_tui.cli.names import find_container
from spark_tui.cli.session import Session
from spark_tui.manage.cluster.show.cluster import cleared_object
from spark_tui.manage.cluster.use.launch import ClusterLauncher
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.show.progress import may
from spark_tui.run.service.use import BootUnits


@command("down", "  spark-tui down gpt-oss-120b\n  spark-tui down gpt-oss-120b --remove")
@engine_argument
@click.option("--remove", is_flag=True, help="Remove the container too, with its log.")
@grace_option
@yes_option
def down(session: Session, name: str, remove: bool, grace_seconds: int, yes: bool) -> int:
    """Stop an engine. Its container and log stay, unless --remove.

    One on several nodes is stopped and removed on all of them, and each is proven to be clean (exit code 1 if not).
    """
    if session.run(lambda context: _on_nodes(context, name)):
        return _down_on_nodes(session, name)
    found = session.run(lambda context: find_container(context, name, acts=True), changes=True)
    if not may(session, "Stop", found.name, yes=yes):
        session.err.say("Nothing was changed.")
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


async def _on_nodes(context: Context, name: str) -> bool:
    return context.ports.has("remote_shell") and context[ClusterLauncher].read(name) is not None


def _down_on_nodes(session: Session, name: str) -> int:
    session.err.say(f"Stopping {name} on all nodes ...")
    results = session.run(lambda context: context[ClusterLauncher].stop(name), changes=True)
    session.out.json({"id": name, "stopped": True, "nodes": [cleared_object(each) for each in results]})
    for each in results:
        session.err.say(each.text)
        if each.problem is not None:
            session.err.say(f"  {each.problem.remedy}")
    if all(each.clean for each in results):
        return ExitCode.DONE
    session.err.say(f"It is remembered. Again, when the node is back: spark-tui down {name}")
    return ExitCode.FAILED
