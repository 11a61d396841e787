"""Engines on the command line: their logs, and what stops and restarts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Final

import click
from msgspec.structs import replace

from spark_tui.cli.command import command, complete, engine_argument, yes_option
from spark_tui.cli.names import engine_name, find_container, find_view
from spark_tui.cli.output import Interrupted
from spark_tui.cli.progress import LaunchProgress, keeps_starting, may, resumed, shown, supervised
from spark_tui.cli.session import Session, confirm, interrupted
from spark_tui.core.context import Context
from spark_tui.core.engines import outside_docker, stamp_before, stamp_of_start
from spark_tui.core.jobs import StepState
from spark_tui.core.secure import Secured
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.errors import ContainerNotFound, ExitCode, RefusedError, SparkError, UsageError
from spark_tui.domain.logs.moments import by_time, moment_of
from spark_tui.domain.logs.timeline import PhaseId
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean, last_overwrite
from spark_tui.present.cluster import cleared_object
from spark_tui.present.engines import ago, engine_object
from spark_tui.services.executors import end_tasks
from spark_tui.services.ports import LogLine

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
            await context.supervisor.stop(container.name, grace_seconds)
        if remove:
            await context.supervisor.remove(container.name)
        starts = ""
        with suppress(SparkError):  # without systemd there is none
            known = await context.boot.look_at_schedules() if context.ports.has("boot") else {}
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
    return context.ports.has("remote_shell") and context.clusters.read(name) is not None


def _down_on_nodes(session: Session, name: str) -> int:
    session.err.say(f"Stopping {name} on all nodes ...")
    results = session.run(lambda context: context.clusters.stop(name), changes=True)
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
            came_back = await context.memory_gate.await_return()
            if came_back:
                session.err.say(came_back)

        await context.supervisor.restart(container.name, grace_seconds, settle=settle)
        begun.append(container.name)
        if wait:
            view = await supervised(context, resumed(session, context, container.name))
        else:
            watch = await context.supervisor.watch(container.name)
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


# --- logs ---------------------------------------------------------------------------------------------


@command(
    "logs", "  spark-tui logs gpt-oss-120b --tail 50 > boot.log\n  spark-tui logs gpt-oss-120b qwen -f --since -10m"
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete("engines"))
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the engine ends.")
@click.option("-n", "--tail", type=click.IntRange(0), metavar="N", help="The last N lines only.")
@click.option("--since", metavar="TIME", default="", help="Lines from then on: 14:05, 14:05:30, -10m, start, ready.")
@click.option("--until", metavar="TIME", default="", help="Lines up to then: 14:05, 14:05:30, -10m.")
@click.option("-t", "--timestamps", "stamps", is_flag=True, help="Docker's time before each line.")
@click.option("--raw", is_flag=True, help="Keep colours and other control codes.")
def logs(
    session: Session, names: tuple[str, ...], follow: bool, tail: int | None, since: str, until: str, stamps: bool,
    raw: bool,
) -> None:  # fmt: skip
    """Print a container's log, or those of several by time. Keys and tokens are always masked.

    Without NAME: the engine that runs, if it is the only one.
    """
    names = names or (engine_name(session, ""),)

    async def work(context: Context) -> None:
        asked = [await find_container(context, name, engines_only=False) for name in names]
        found = tuple({each.id: each for each in asked}.values())
        for bare in (each for each in found if each.bare):
            raise outside_docker(bare)
        now, several = context.clock.now(), len(found) > 1
        end, width = stamp_before(moment_of(until, now)) if until else "~", max(len(each.name) for each in found)
        streams = []
        for each in found:
            begun = await _begin(context, each, since, now) if since else ""
            streams.append(context.docker.logs(each.id, tail=tail, follow=follow and each.running, since=begun))
        async with aclosing(_in_step(streams)) as arrivals:
            async for batches in arrivals:
                order = [(found[log].name, *batches[log][at]) for log, at in by_time(batches)]
                lines = [
                    (name, stamp, mask_secrets(text if raw else clean(last_overwrite(text))))
                    for name, stamp, text in order
                    if stamp <= end
                ]
                rows = ({"engine": name, "stamp": stamp, "text": text} for name, stamp, text in lines)
                plain = ({"stamp": stamp, "text": text} for _, stamp, text in lines)
                session.out.json_lines(rows if several else plain, raw=raw)
                heads = (f"{name:<{width}} | " * several + f"{stamp} " * stamps for name, stamp, _ in lines)
                session.out.lines(head + text for head, (_, _, text) in zip(heads, lines, strict=True))
        for each in found if follow else ():
            session.err.say(await _end_of(context, each))

    session.run(work)


async def _begin(context: Context, container: ContainerFacts, since: str, now: float) -> str:
    """The stamp of the first line that is wanted. Raises UsageError for what is no moment of this engine."""
    if since == "start":
        return stamp_of_start(container)
    if since != "ready":
        return stamp_before(moment_of(since, now))
    views = await context.supervisor.look()
    found = (each.timeline.phase(PhaseId.READY).started_at for each in views if each.container.id == container.id)
    at = next(found, None)
    if at is None:
        raise UsageError(f"{container.name} has not been ready since its last start.", "Use: --since start")
    return stamp_before(at)


async def _in_step(
    streams: Sequence[AsyncGenerator[Sequence[LogLine], None]],
) -> AsyncGenerator[list[Sequence[LogLine]], None]:
    """Lines of each stream, none later than what the others still have to hand over; a stream that is silent is
    waited for only a moment. Keeps one batch of each."""
    waiting: list[Sequence[LogLine]] = [() for _ in streams]
    reads = {asyncio.ensure_future(anext(stream, None)): at for at, stream in enumerate(streams)}
    ended, done = set[int](), set[asyncio.Task[Sequence[LogLine] | None]]()
    try:
        while reads or any(waiting):
            pause, done = GATHER_SECONDS if any(waiting) else None, set()
            if reads:
                done, _ = await asyncio.wait(reads, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            for read in done:
                at, batch = reads.pop(read), read.result()
                waiting[at] = batch or ()
                if batch is None:
                    ended.add(at)
            if done and reads:
                continue
            upto = "~" if reads else min((max(batch)[0] for batch in waiting if batch), default="~")
            cuts = [next((at for at, line in enumerate(batch) if line.stamp > upto), len(batch)) for batch in waiting]
            yield [batch[:cut] for batch, cut in zip(waiting, cuts, strict=True)]
            waiting = [batch[cut:] for batch, cut in zip(waiting, cuts, strict=True)]
            for at in {at for at, batch in enumerate(waiting) if not batch} - ended - set(reads.values()):
                reads[asyncio.ensure_future(anext(streams[at], None))] = at
    finally:
        await end_tasks(*reads)
        for stream in streams:
            await stream.aclose()


async def _end_of(context: Context, container: ContainerFacts) -> str:
    """Why there are no more lines."""
    name = container.name
    try:
        ended = await context.docker.inspect(container.id) if container.running else container
    except ContainerNotFound:
        return f"{name} has been removed."
    if ended.running:
        return f"The log of {name} has ended; the container runs."
    when = "" if ended.finished_at is None else f" {ago(context.clock.now() - ended.finished_at)}"
    return f"{name} ended{when} with exit code {ended.exit_code}."


@command("secure", "  spark-tui secure gpt-oss-120b")
@engine_argument
@click.option("--wait/--no-wait", default=True, help="Wait until it serves again.  [--wait]")
@yes_option
def secure(session: Session, name: str, wait: bool, yes: bool) -> None:
    """Give an engine that is open to the network an API key.

    Restarts it with its current settings. The key is kept in a private file; its path is printed.
    """

    async def look(context: Context) -> tuple[str, Secured]:
        view = await find_view(context, name)
        return view.name, await context.securing.plan(view)

    engine, secured = session.run(look, changes=True)
    session.err.note(secured.what)
    if not (confirm(session, f"Make a key for {engine}?", yes=yes) and may(session, "Restart", engine, yes=yes)):
        session.err.say("Nothing was changed.")
        return
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        progress = LaunchProgress(session, context, engine, moved)
        request = replace(secured.request, wait=wait)
        launched = await supervised(context, shown(progress, context.launcher.launch(request, progress.step)))
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
