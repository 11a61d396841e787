"""metrics: how fast an engine serves, by its own counters, once or second by second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import EngineUnreachable
from spark_tui.base.executors import end_tasks
from spark_tui.base.finding import value_of
from spark_tui.base.host.series import MetricId, Sample
from spark_tui.base.launches import ClusterRecord
from spark_tui.base.page import Object, Page, moment
from spark_tui.cli.command import command, optional_engine_argument
from spark_tui.cli.names import engine_name, find_container
from spark_tui.cli.session import Session
from spark_tui.machine.gateway import read_status
from spark_tui.machine.nodes import HERE, Nodes
from spark_tui.observe.engines.show.engines import engine_status
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor, view_of
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.show import metrics as show
from spark_tui.observe.metrics.show.metrics import agents_page, vitals_objects, vitals_section
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector

ACCESS_LINES: Final = 5_000
"""Of a log's end, in which clients are counted."""
HEADING_LINES: Final = 20
"""Lines of `--watch` between two headings."""
WATCHED: Final = (
    ("DECODE", MetricId.DECODE_RATE, 8),
    ("PREFILL", MetricId.PREFILL_RATE, 8),
    ("RUN", MetricId.RUNNING, 4),
    ("WAIT", MetricId.WAITING, 4),
    ("TTFT95", MetricId.TTFT_P95, 7),
    ("ITL50", MetricId.ITL_P50, 6),
    ("KV%", MetricId.KV_USAGE, 5),
    ("HIT%", MetricId.PREFIX_HITS, 5),
    ("ACC%", MetricId.ACCEPTANCE, 5),
    ("GPU%", MetricId.GPU_UTILIZATION, 5),
    ("W", MetricId.GPU_POWER, 5),
)
"""Title, series and width of the columns of `--watch`."""

_EXAMPLES = """\
  spark-tui metrics gpt-oss-120b              speed, queue, latency, KV cache
  spark-tui metrics gpt-oss-120b --watch        a line each second
  spark-tui metrics gpt-oss-120b --agents       prompts read again, by client, and why
  spark-tui metrics minimax-m2.7-awq            on several nodes: what each does, too
  spark-tui metrics gpt-oss-120b --json | jq .ttft.p95_seconds
"""


@command("metrics", _EXAMPLES)
@optional_engine_argument
@click.option("-w", "--watch", is_flag=True, help="A line each second, until Ctrl-C.")
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="Number of lines of --watch.")
@click.option("--seconds", type=click.FloatRange(1, 60), metavar="S", help="Length of the measurement.  [5]")
@click.option("--agents", is_flag=True, help="What agents' prompts cost, by client, since the start.")
def metrics(session: Session, name: str, watch: bool, count: int | None, seconds: float | None, agents: bool) -> None:
    """Show how fast an engine serves, by its own counters.

    Without NAME: the engine that runs, if it is the only one. Quantiles come from histograms: beside each stands
    how far off it can be.
    """
    if watch and seconds is not None:
        raise click.UsageError("--watch has no end of its own: leave out --seconds.")
    if count is not None and not watch:
        raise click.UsageError("--count needs --watch.")
    if agents and watch:
        raise click.UsageError("--agents looks back to the start: leave out --watch.")
    name = engine_name(session, name)
    if watch:
        session.run(lambda context: _watch(session, context, name, count))
        return
    window = seconds or 5.0

    async def work(context: Context) -> tuple[Object, Page, tuple[str, ...]]:
        record = await _launch_on_nodes(context, name)
        looks = context.store.world.nodes
        nodes = () if record is None else (vitals_section(record, looks),)
        objects = [] if record is None else vitals_objects(record, looks)
        if record is not None and (host := context[Nodes].reach(record.head.node)).destination != HERE:
            there = f"Speed and latency: spark-tui --host {host.name} metrics {record.name}"
            return {"id": record.name, "nodes": objects}, nodes, (there,)
        view = await _serving(context, name)
        session.err.say(f"Measuring for {window:g} s...", "dim")
        first: float | None = None
        async with _samples(context, view.name) as samples:
            async for sample in samples:
                first = sample.at if first is None else first
                if sample.at - first >= window:
                    break
        collector = context[EngineMetricsCollector]
        now = value_of(collector.current(view.name))
        if now is None:
            raise EngineUnreachable(f"{view.name} reported no metrics.", f"See its log: spark-tui logs {view.name}")
        ever, parts = value_of(collector.lifetime(view.name)), collector.of(view.name).parts()
        if agents and ever is not None:
            gateway = await context.in_thread(read_status, context.ports.state)
            clients = gateway.clients if gateway is not None else ()
            page, shape = agents_page(view, ever, await _log_end(context, view), clients)
            return shape, page, ()
        look = show.MetricsSnapshot(view, now, ever, parts, context.store.world.gpu, context.clock.now())
        return {**show.look_object(look), "nodes": objects}, (*show.metrics_page(look), *nodes), now.notes

    found, page, notes = session.run(work)
    session.out.answer(found, page)
    for note in notes:
        session.err.say(note, "dim")


async def _log_end(context: Context, view: EngineView) -> tuple[str, ...]:
    """The last lines of an engine's log."""
    if view.container.bare:  # its log is not with Docker
        return ()
    async with aclosing(context.docker.logs(view.container.id, tail=ACCESS_LINES, follow=False)) as batches:
        return tuple([line.text async for batch in batches for line in batch])


async def _launch_on_nodes(context: Context, name: str) -> ClusterRecord | None:
    """The launch on several nodes of that name, once each of its nodes was asked what it does; None for another."""
    if not context.settings.clusters or not context.ports.has("launches"):
        return None
    launches = context[context.ports.launches]
    await launches.read()
    record = next((each for each in context.store.world.launches if each.name == name), None)
    if record is not None:
        await launches.look(record)
    return record


async def _serving(context: Context, name: str) -> EngineView:
    """The engine of that name or id, which must serve. Raises ContainerNotFound or EngineUnreachable."""
    view = await view_of(context, await find_container(context, name))
    if view.state is not EngineState.SERVING:
        raise EngineUnreachable(
            f"{view.name} is not serving: {engine_status(view).text}. Metrics need a serving engine.",
            f"See its log: spark-tui logs {view.name}",
        )
    return view


@asynccontextmanager
async def _samples(context: Context, name: str) -> AsyncIterator[AsyncIterator[Sample]]:
    """The engine's samples as they come, while the machine and its engines are watched. A failed reading raises its
    error in the consumer; so does a fault of the watch."""
    queue: asyncio.Queue[Sample] = asyncio.Queue()
    collector = context[EngineMetricsCollector]
    end = collector.subscribe(lambda sample: queue.put_nowait(sample) if sample.engine == name else None)
    works = (context[Collectors].run(), context[EngineSupervisor].run(), collector.run())
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(work) for work in works]

    async def samples() -> AsyncGenerator[Sample, None]:
        while True:
            waiting = asyncio.ensure_future(queue.get())
            try:
                await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    for task in tasks:
                        if task.done():
                            task.result()
                sample = await waiting
            finally:
                waiting.cancel()
            if sample.gap:
                raise collector.of(name).error or EngineUnreachable(
                    f"{name}: {sample.gap}.", f"See its log: spark-tui logs {name}"
                )
            yield sample

    try:
        with collector.attend():
            async with aclosing(samples()) as stream:
                yield stream
    finally:
        end()
        await end_tasks(*tasks)


async def _watch(session: Session, context: Context, name: str, count: int | None) -> None:
    """A line each second until Ctrl-C, or `count` of them. Raises the engine's error when it stops answering."""
    view = await _serving(context, name)
    written = 0
    async with _samples(context, view.name) as samples:
        async for sample in samples:
            host = {
                metric: context[EngineMetricsCollector].series("", metric, 10.0).last
                for metric in MetricId
                if metric.of_host
            }
            values = {**{metric: value for metric, value in host.items() if value is not None}, **sample.values}
            session.out.json_line(show.sample_object(sample, values))
            if written % HEADING_LINES == 0:
                session.out.line("TIME      " + " ".join(f"{title:>{width}}" for title, _, width in WATCHED))
            known = ((values.get(metric), metric.decimals, width) for _, metric, width in WATCHED)
            cells = (("-" if value is None else f"{value:.{digits}f}").rjust(width) for value, digits, width in known)
            at = (moment(sample.at) or "")[11:19]
            session.out.line(f"{at}  " + " ".join(cells) + ("  restarted" if sample.restarted else ""))
            written += 1
            if count is not None and written >= count:
                break
