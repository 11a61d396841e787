"""`logs`: the log of one engine, or of several by time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts, outside_docker
from spark_tui.base.errors import ContainerNotFound, UsageError
from spark_tui.base.executors import end_tasks
from spark_tui.base.ports import LogLine
from spark_tui.base.quantities import ago
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean, last_overwrite
from spark_tui.cli.command import command, complete
from spark_tui.cli.names import engine_name, find_container
from spark_tui.cli.session import Session
from spark_tui.observe.engines.use.engines import EngineSupervisor, stamp_before, stamp_of_start
from spark_tui.observe.explain.model.line import by_time, moment_of
from spark_tui.observe.explain.model.timeline import PhaseId

GATHER_SECONDS: Final = 0.2
"""How long lines of one log wait for earlier ones of another, which is silent."""


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
    session: Session,
    names: tuple[str, ...],
    follow: bool,
    tail: int | None,
    since: str,
    until: str,
    stamps: bool,
    raw: bool,
) -> None:
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
    views = await context[EngineSupervisor].look()
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
