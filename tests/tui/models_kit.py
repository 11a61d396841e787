"""The Models screen on fakes: a real store in a folder or the simulated one, a Hub and downloads that a test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import demo_ports
from spark_tui.base.context import Context
from spark_tui.base.engine.container import Mount
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.settings import Settings, folders_of
from spark_tui.catalog.library.screen.models import ModelsScreen
from spark_tui.catalog.models.adapter.checkpoints import StoreCheckpoints
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.presets.model.preset import PRESETS, Preset
from spark_tui.machine.settings import Config
from spark_tui.tui.format import UNICODE
from spark_tui.tui.widgets.page import Page
from tests.fakes_hub import FakeDownloader, FakeHub
from tests.kit import Kit
from tests.tui.kit import Sight


class Stock(Kit):
    """A Kit with a store in `root`; with `simulated`, store, Hub and downloads are those of the demo. In `home` are the
    person's settings."""

    def __init__(
        self,
        root: Path,
        *presets: Preset,
        simulated: bool = False,
        read_only: bool = False,
        hubs: tuple[str, ...] = (),
        tools: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> None:
        super().__init__(*presets)
        self.root = root
        self.hub, self.downloader = FakeHub(), FakeDownloader()
        parts = {
            "models": FolderModelStore(root, hubs=hubs, tools=tools),
            "checkpoints": StoreCheckpoints(root, tools=tuple(tools or ())),
            "hub": self.hub, "downloader": self.downloader,
        }  # fmt: skip
        if simulated:
            self.demo = demo_ports(clock=self.clock)
            parts = {name: getattr(self.demo, name) for name in parts}
        self.config = Config(folders_of({}, home or root), {})
        ports = self.context.ports.changed(**parts, **({"folders": self.config.folders, "environ": {}} if home else {}))
        settings = replace(Settings(), read_only=read_only, store=root if home else Settings().store)
        self.context = Context(settings, ports, HostPaths(str(root), "/caches", "/home/test", tools=tuple(tools or ())))

    def engine(self, name: str, *argv: str) -> None:
        """A container that mounts the store and serves."""
        self.docker.add_container(name, argv=("vllm", "serve", *argv), mounts=(Mount(str(self.root), "/models"),))


@asynccontextmanager
async def seen(kit: Stock, size: tuple[int, int] = (120, 36), *keys: str) -> AsyncIterator[Sight]:
    """The app, opened on the Models screen once the store was looked through, after these keys."""
    app = SparkApp(kit.context, UNICODE)
    async with app.run_test(size=size, notifications=True) as pilot:
        sight = Sight(kit, app, pilot)
        await sight.until(lambda: bool(app.world[PRESETS].presets))
        await sight.press("2")
        await sight.until(lambda: isinstance(app.screen, ModelsScreen) and app.screen.library is not None)
        for key in keys:
            await sight.press(key)
        yield sight


def page(sight: Sight, which: str) -> str:
    """The whole text of a page, also what is scrolled away."""
    return sight.app.screen.query_one(f"#{which}", Page).say(160).plain


def row_of(sight: Sight, name: str) -> str:
    """The list's part of the line of that model."""
    cells = (line.split("│")[1] for line in sight.text.splitlines() if line.startswith("│"))
    return next((cell for cell in cells if f" {name}" in cell), "")
