"""What the control centre does while it stays, from its first frame on: memory and GPU, then the engines, then the
rest."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from spark_tui.base.context import Context
from spark_tui.base.executors import keep, pause
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.observe.engines.use.collectors import Collectors

if TYPE_CHECKING:
    from spark_tui.observe.engines.use.engines import EngineSupervisor

FIRST_GPU_SECONDS = 0.05
"""The first frame waits no longer for the GPU: its helper has answered by then, or does soon after it."""
ENGINES_SECONDS = 2.0
"""The rest begins when the engines are listed, or after this long."""


def start_early(context: Context) -> None:
    """Starts the GPU's helper process, which reads while this one imports the screen."""
    if not context.demo:
        context.ports.gpu.start()


async def first_figures(context: Context) -> None:
    """This machine's name and memory, from a few small files, and the GPU if its helper has answered: for the first
    frame. A simulated machine is made after it."""
    if not context.demo:
        collectors = context[Collectors]
        collectors.sample_identity()
        collectors.sample_host()
        await collectors.sample_gpu(FIRST_GPU_SECONDS)


async def run(context: Context) -> None:
    """Collects and watches until cancelled; the TUI runs this beside its own loop. A part that fails is begun again,
    and ends no other."""
    await keep("Start", lambda: _run_parts(context), context.clock, context.store.fail)


async def _run_parts(context: Context) -> None:
    """Memory and GPU come first, then the engines: nothing else is imported before they are listed."""
    presets_read = asyncio.Event()

    async def read_presets() -> None:
        context.store.put(PRESETS, await context.in_thread(lambda: context.ports["presets"].load()))  # noqa: PLW0108 - made there
        presets_read.set()

    async with asyncio.TaskGroup() as group:
        await context.in_thread(context.ports.preload, ("host", "gpu"))
        group.create_task(keep("Collectors", context[Collectors].run, context.clock, context.store.fail))
        engines = await context.in_thread(import_module, "spark_tui.observe.engines.use.engines")
        supervisor: EngineSupervisor = context[engines.EngineSupervisor]
        group.create_task(keep("Engines", supervisor.run, context.clock, context.store.fail))
        await supervisor.listed(ENGINES_SECONDS)
        group.create_task(keep("Presets", read_presets, context.clock, context.store.fail))
        await pause(context.clock, ENGINES_SECONDS, presets_read)
        running = await context.in_thread(import_module, "spark_tui.app.running")  # keys are answered meanwhile
        await running.run(context)
