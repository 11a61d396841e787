"""A machine whose one engine is as fast as its settings make it, for searches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.settings import Settings
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.cli.session import Options
from spark_tui.manage.tune.model import TuneGoal
from spark_tui.manage.tune.use import TuneProgress, Tuner, TuneRecord
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.use.bench.model.load import Load, LoadEvent, LoadResult
from tests.bench_kit import FakeLoad
from tests.fakes_files import MemoryResults
from tests.fakes_ports import Ports
from tests.kit import IMAGE, PRESET, Kit

RECIPE = f"""\
recipe_version: "2"
model: org/qwen
container: {IMAGE}
defaults:
  port: 8000
  max_model_len: 4096
  max_num_seqs: 4
command: |
  vllm serve {{model}} --port {{port}} --max-model-len {{max_model_len}} \\
    --max-num-seqs {{max_num_seqs}}
"""

TUNED = replace(
    PRESET,
    command="vllm serve {model} --port {port} --max-model-len {max_model_len} --max-num-seqs {max_num_seqs}",
    defaults=(("port", 8000), ("max_model_len", 4096), ("max_num_seqs", 4)),
)
OTHER = replace(PRESET, name="other", defaults=(("port", 8005), ("max_model_len", 2048)))


class PlantedLoad(FakeLoad):
    """A load that is as fast as the running engine's settings make it. `hangs` are words of a command that is never
    answered."""

    kit: TuneKit
    hangs: str = ""
    asked: str = ""

    async def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        if not self.kit.running():
            await self.clock.sleep(1.0)
            yield LoadResult(())
            return
        words = self.asked = self.kit.command()
        if self.hangs and self.hangs in words:
            self.kit.hung += 1
            await stop.wait()
        self.step = 0.02 / self.kit.speed(words)
        async for event in super().drive(endpoint, load, stop):
            yield event


class TuneKit(Kit):
    """A core with a preset of four sequences; the engine is fastest with sixteen, unless `speed` says otherwise."""

    def __init__(self, root: Path | None = None) -> None:
        """With a folder: the preset is a file there, and the person's own."""
        self.results = MemoryResults()
        self.seen: list[TuneProgress] = []
        self.hung = 0
        super().__init__(TUNED, OTHER)
        if root is not None:
            (root / "builtin").mkdir()
            (root / "qwen.yaml").write_text(RECIPE)
            presets: Any = PresetFiles(root / "builtin", root)
            self.presets, self.recipes = presets, FolderRecipeStore(root)
            self.context = self.opened()

    def opened(self) -> Context:
        self.load = PlantedLoad(self.clock)
        self.load.kit = self
        ports = Ports(
            self.clock, self.docker, self.api, self.host, self.gpu, self.presets, self.secrets, self.archive,
            load=self.load, results=self.results, state=self.state, recipes=self.recipes,
        )  # fmt: skip
        return Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test"))

    async def until(self, condition: Callable[[], bool]) -> None:
        """In larger steps: a search takes an hour."""
        await self.clock.until(condition, step=2.0, most=40_000.0)

    def running(self) -> list[ContainerFacts]:
        return [each.facts for each in self.docker.all_containers.values() if each.facts.running]

    def for_command(self, options: Options, environment: Mapping[str, str]) -> Context:
        """An opener for the command line; the clock runs by itself."""

        async def drive() -> None:
            while True:
                await asyncio.sleep(0.0005)
                await self.clock.advance(2.0)

        self.driving = asyncio.ensure_future(drive())
        self.context = self.opened()
        return self.context

    def command(self) -> str:
        [only] = self.running()
        return " ".join(only.argv)

    def speed(self, words: str) -> float:
        sequences = int(words.split("--max-num-seqs ")[1].split()[0]) if "--max-num-seqs" in words else 1
        return {1: 0.6, 2: 0.8, 4: 1.0, 8: 1.2, 16: 1.5, 32: 1.3}.get(sequences, 0.5)

    async def launched(self, name: str = "qwen", overrides: Overrides | None = None) -> None:
        preset = self.presets.load().get(name)
        assert preset is not None
        task = asyncio.create_task(
            self.context[Launcher].launch(LaunchRequest(preset, overrides or Overrides()), self.report)
        )
        await self.until(task.done)
        task.result()

    async def planned(self, **how: float) -> TuneRecord:
        await self.context[EngineSupervisor].look()
        return await self.context[Tuner].plan(TUNED, TuneGoal.THROUGHPUT, input_tokens=32, output_tokens=8, **how)

    async def tuned(
        self, record: TuneRecord, *, stop: asyncio.Event | None = None, meanwhile: Callable[[], None] = lambda: None
    ) -> TuneRecord:
        async with self.supervised():
            task = asyncio.create_task(self.context[Tuner].run(record, self.seen.append, stop=stop))

            def done() -> bool:
                meanwhile()
                return task.done()

            await self.until(done)
        return task.result()
