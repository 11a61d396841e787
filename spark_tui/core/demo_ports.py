"""The simulated Spark: names the adapters of the demo."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tui.core.context_ports import Ports
from spark_tui.domain.settings import Folders, Settings, defaults
from spark_tui.services.clock import SystemClock
from spark_tui.services.demo.api import DemoApi
from spark_tui.services.demo.bench import DemoLoad
from spark_tui.services.demo.caches import DemoDropper
from spark_tui.services.demo.checkpoints import DemoCheckpoints
from spark_tui.services.demo.conversations import MemoryConversations
from spark_tui.services.demo.docker import DemoDocker
from spark_tui.services.demo.doctor import DemoDoctorProbe
from spark_tui.services.demo.downloads import DemoDownloads
from spark_tui.services.demo.history import DemoHistory
from spark_tui.services.demo.host import DemoGpu, DemoHost
from spark_tui.services.demo.hub import DemoHub
from spark_tui.services.demo.metrics import DemoMetrics
from spark_tui.services.demo.models import DemoModels
from spark_tui.services.demo.secrets import DemoSecrets
from spark_tui.services.demo.vitals import DemoVitals
from spark_tui.services.demo.world import DemoWorld
from spark_tui.services.files import FileLogArchive
from spark_tui.services.preset_files import PresetFiles, builtin_directory
from spark_tui.services.preset_imports import FolderRecipeShelf

if TYPE_CHECKING:
    from spark_tui.services.ports import Clock

DEMO_IMAGES = ("vllm/vllm-openai:nightly",)
"""Here from the start in the demo; other images are pulled, which the demo shows too."""


def demo_settings(told: Settings, folders: Folders) -> Settings:
    """A box on which nothing was set: of the person's settings `told` only the looks count, and read-only."""
    return replace(
        defaults(folders), read_only=told.read_only, refresh_seconds=told.refresh_seconds,
        theme=told.theme, glyphs=told.glyphs, keymap=told.keymap,
    )  # fmt: skip


def demo_ports(logs: Path, *, seed: int = 0, clock: Clock | None = None) -> Ports:
    """One world behind every port. `logs` is a real folder, for the logs that the person saves."""
    clock = clock or SystemClock()
    world = DemoWorld(clock, seed)
    host = DemoHost(world)
    models, hub = DemoModels(clock), DemoHub(clock)
    return Ports(
        clock=clock,
        docker=DemoDocker(world, images=DEMO_IMAGES),
        api=DemoApi(world),
        host=host,
        gpu=DemoGpu(world),
        presets=PresetFiles(builtin_directory()),
        secrets=DemoSecrets(world),
        archive=FileLogArchive(logs),
        dropper=DemoDropper(host),
        doctor_probe=DemoDoctorProbe(),
        recipes=FolderRecipeShelf(None),
        models=models,
        checkpoints=DemoCheckpoints(),
        hub=hub,
        downloader=DemoDownloads(clock, hub, models),
        metrics=DemoMetrics(world),
        vitals=DemoVitals(world),
        load=DemoLoad(world),
        conversations=MemoryConversations(),
        history=DemoHistory(clock, world),
    )
