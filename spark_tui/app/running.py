"""What is watched once the engines are listed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import keep
from spark_tui.base.finding import value_of
from spark_tui.catalog.models.use.downloads import Downloads
from spark_tui.machine.gateway import read_status
from spark_tui.manage.cluster.use.monitor import ClusterJobs, ClusterMonitor
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.crash_loops import RestartBreaker
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.memory.use.guard import guard_launcher
from spark_tui.observe.memory.use.health import HealthWatch
from spark_tui.observe.metrics.use.history import History, HistoryStore, remember
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.run.service.use import BootUnits

METRICS_DELAY_SECONDS = 0.3
"""The first frame does not wait for what is not on it."""
GATEWAY_SECONDS = 5.0
CANARY_SECONDS = 3600.0


async def run(context: Context) -> None:
    """Watches until cancelled. A part that fails is begun again, and ends no other."""
    settings, ports = context.settings, context.ports
    async with asyncio.TaskGroup() as group:

        def watch(name: str, work: Callable[[], Awaitable[object]]) -> None:
            group.create_task(keep(name, work, context.clock, context.store.fail))

        if ports.has("history"):
            watch("History", partial(_soon, context, partial(_remember, context)))
        watch("Metrics", partial(_soon, context, context[EngineMetricsCollector].run))
        watch("Health checks", context[HealthWatch].run)
        context[Collectors].on_gpu = context[HealthWatch].gpu_read
        watch("Restart loops", context[RestartBreaker].run)
        launcher = context.once(guard_launcher)
        if launcher is not None:
            watch("Memory guard", launcher.run)
        watch("Downloads", partial(_soon, context, lambda: context[Downloads].run(resume=not settings.read_only)))
        if not settings.read_only:  # the last step of a launch is a request to the engine
            watch("Launches", partial(_resume, context))
        if settings.clusters and ports.has("remote_shell"):
            watch("Clusters", context[ClusterMonitor].run)
        if ports.has("state"):
            watch("Gateway", partial(_watch_gateway, context))
        if ports.has("boot"):
            watch("Boot units", partial(_look_at_boot, context))


async def _resume(context: Context) -> None:
    """What was interrupted on other nodes at once, for that this machine needs no Docker."""
    if context.ports.has("remote_shell"):
        await context[ClusterJobs].recover()
    await context[JobRunner].resume_starting()


async def _watch_gateway(context: Context) -> None:
    """What a gateway of this machine says of itself."""
    while True:
        with suppress(SparkError):  # a file that cannot be read: as if there were none
            context.store.update(gateway=await context.in_thread(read_status, context.ports.state))
        await context.clock.sleep(GATEWAY_SECONDS)


async def _look_at_boot(context: Context) -> None:
    """Which engines start with the machine or at set times: once, and after each change here."""
    units = context[BootUnits]
    try:
        context.store.update(boot=await units.look(), schedules=await units.look_at_schedules())
    except SparkError as error:
        context.store.fail(error)


async def _soon(context: Context, work: Callable[[], Awaitable[object]]) -> None:
    await context.clock.sleep(METRICS_DELAY_SECONDS)
    await work()


async def _remember(context: Context) -> None:
    await remember(context)
    history = context[History]
    context[EngineMetricsCollector].subscribe(context[HistoryStore].add_sample)
    history.observe(context[EngineSupervisor].views())
    await asyncio.gather(
        keep("History", history.run, context.clock, context.store.fail),
        keep("Canary", partial(_watch_canary, context), context.clock, context.store.fail),
    )


async def _watch_canary(context: Context) -> None:
    """What the nights show, once an hour; where none was measured, nothing is imported for it."""
    while True:
        if value_of(await context[HistoryStore].records("canary", limit=1)):
            from spark_tui.use.prove.use.canary import show_changes

            await show_changes(context[HistoryStore], context.clock, context.alarms)
        await context.clock.sleep(CANARY_SECONDS)
