"""A whole core on fakes: one object to arrange and to look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from spark_tui.app.first import run
from spark_tui.base.context import Context
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.jobs import Step, put
from spark_tui.base.ports import MetricsSource
from spark_tui.base.settings import Settings
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetCatalogue
from spark_tui.catalog.presets.use.imports import RecipeStore
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.metrics.use.history import HistoryStore
from tests.fakes_api import FakeEngineApi
from tests.fakes_docker import FakeDocker
from tests.fakes_files import MemoryState
from tests.fakes_host import FakeArchive, FakeClock, FakeGpu, FakeHost, FakeRouters, FakeSecrets
from tests.fakes_ports import Ports

IMAGE = "vllm/vllm-openai:nightly"
PRESET = Preset(
    name="qwen",
    origin=Origin.BUILTIN,
    file="qwen.yaml",
    model="org/qwen",
    image=IMAGE,
    command="vllm serve {model} --port {port} --max-model-len {max_model_len}",
    defaults=(("port", 8000), ("max_model_len", 4096)),
)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """With that work in the background."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class FixedPresets:
    """A PresetSource of given presets."""

    def __init__(self, *presets: Preset) -> None:
        self.catalogue = PresetCatalogue(presets)

    def load(self) -> PresetCatalogue:
        return self.catalogue

    glance = load


class Kit:
    """Fakes, and the core on them. The image is here, and a started container serves at once unless told otherwise."""

    def __init__(self, *presets: Preset) -> None:
        self.clock = FakeClock()
        self.docker = FakeDocker()
        self.api = FakeEngineApi(self.clock)
        self.host = FakeHost()
        self.gpu = FakeGpu()
        self.secrets = FakeSecrets()
        self.archive = FakeArchive()
        self.docker.add_image(IMAGE)
        self.docker.on_start = lambda _: self.api.serve()
        self.presets = FixedPresets(*(presets or (PRESET,)))
        self.recipes: RecipeStore | None = None
        self.history: HistoryStore | None = None
        self.metrics: MetricsSource | None = None
        self.state = MemoryState()
        self.routers = FakeRouters()
        self.context = self.opened()
        self.steps: tuple[Step, ...] = ()
        self.reports: list[Step] = []

    def opened(self) -> Context:
        """A core on these fakes, as when the program is opened once more."""
        ports = Ports(
            self.clock,
            self.docker,
            self.api,
            self.host,
            self.gpu,
            self.presets,
            self.secrets,
            self.archive,
            recipes=self.recipes,
            history=self.history,
            metrics=self.metrics,
            state=self.state,
            routers=self.routers,
        )
        return Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test"))

    def report(self, step: Step) -> None:
        """Takes a launch's reports."""
        self.reports.append(step)
        self.steps = put(self.steps, step)

    def step(self, id_: str) -> Step:
        """A step's last report."""
        return next(step for step in self.steps if step.id == id_)

    @asynccontextmanager
    async def supervised(self) -> AsyncIterator[None]:
        """With the supervisor's loops running."""
        async with running(self.context[EngineSupervisor].run()):
            yield

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[None]:
        """With everything running that runs beside a screen."""
        async with running(run(self.context)):
            yield

    async def until(self, condition: Callable[[], bool]) -> None:
        """Moves the clock until the condition holds."""
        await self.clock.until(condition)
