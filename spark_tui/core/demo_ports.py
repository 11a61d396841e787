"""The simulated Spark: names the adapters of the demo."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tui.domain.settings import Folders, Settings, defaults

if TYPE_CHECKING:
    from spark_tui.core.wiring import GuardPorts
    from spark_tui.services.demo.api import DemoApi
    from spark_tui.services.demo.bench import DemoLoad
    from spark_tui.services.demo.conversations import DemoSecrets, MemoryConversations
    from spark_tui.services.demo.docker import DemoDocker
    from spark_tui.services.demo.history import DemoHistory
    from spark_tui.services.demo.host import DemoDoctorProbe, DemoDropper, DemoGpu, DemoHost, DemoVitals
    from spark_tui.services.demo.hub import DemoDownloads, DemoHub
    from spark_tui.services.demo.metrics import DemoMetrics
    from spark_tui.services.demo.models import DemoCheckpoints, DemoModels
    from spark_tui.services.demo.world import DemoWorld
    from spark_tui.services.files import FileLogArchive
    from spark_tui.services.ports import Clock, PersonFiles, RemoteShell, ResultStore
    from spark_tui.services.presets.imports import FolderRecipeShelf
    from spark_tui.services.presets.store import PresetFiles

DEMO_IMAGES = ("vllm/vllm-openai:nightly",)
"""Here from the start in the demo; other images are pulled, which the demo shows too."""


def demo_settings(told: Settings, folders: Folders) -> Settings:
    """A box on which nothing was set: of the person's settings `told` only the looks count, and read-only."""
    return replace(
        defaults(folders), read_only=told.read_only, refresh_seconds=told.refresh_seconds,
        theme=told.theme, glyphs=told.glyphs, keymap=told.keymap,
    )  # fmt: skip


class DemoPorts:
    """One world behind every port. Each is imported and made when it is first used: the first frame waits for none.

    `logs` is a real folder, for the logs that the person saves.
    """

    guarding: GuardPorts | None = None
    person_files: PersonFiles | None = None
    remote_shell: RemoteShell | None = None
    results: ResultStore | None = None

    def __init__(self, logs: Path, *, seed: int = 0, clock: Clock | None = None) -> None:
        self._logs = logs
        self._seed = seed
        if clock is not None:
            self.clock = clock

    @cached_property
    def clock(self) -> Clock:
        """The system's clock, where no other was given."""
        from spark_tui.services.executors import SystemClock

        return SystemClock()

    @cached_property
    def _world(self) -> DemoWorld:
        from spark_tui.services.demo.world import DemoWorld

        return DemoWorld(self.clock, self._seed)

    @cached_property
    def docker(self) -> DemoDocker:
        """Containers that replay recorded starts."""
        from spark_tui.services.demo.docker import DemoDocker

        return DemoDocker(self._world, images=DEMO_IMAGES)

    @cached_property
    def api(self) -> DemoApi:
        """The engines' answers."""
        from spark_tui.services.demo.api import DemoApi

        return DemoApi(self._world)

    @cached_property
    def host(self) -> DemoHost:
        """The pool that the engines fill."""
        from spark_tui.services.demo.host import DemoHost

        return DemoHost(self._world)

    @cached_property
    def gpu(self) -> DemoGpu:
        """Recorded telemetry."""
        from spark_tui.services.demo.host import DemoGpu

        return DemoGpu(self._world)

    @cached_property
    def presets(self) -> PresetFiles:
        """Ours alone."""
        from spark_tui.services.presets.store import PresetFiles, builtin_directory

        return PresetFiles(builtin_directory())

    @cached_property
    def secrets(self) -> DemoSecrets:
        """Keys that nobody else has."""
        from spark_tui.services.demo.conversations import DemoSecrets

        return DemoSecrets(self._world)

    @cached_property
    def archive(self) -> FileLogArchive:
        """The folder of saved logs."""
        from spark_tui.services.files import FileLogArchive

        return FileLogArchive(self._logs)

    @cached_property
    def dropper(self) -> DemoDropper:
        """The page cache, given up at once."""
        from spark_tui.services.demo.host import DemoDropper

        return DemoDropper(self.host)

    @cached_property
    def doctor_probe(self) -> DemoDoctorProbe:
        """What only the doctor looks at."""
        from spark_tui.services.demo.host import DemoDoctorProbe

        return DemoDoctorProbe()

    @cached_property
    def recipes(self) -> FolderRecipeShelf:
        """Other people's recipes."""
        from spark_tui.services.presets.imports import FolderRecipeShelf

        return FolderRecipeShelf(None)

    @cached_property
    def models(self) -> DemoModels:
        """A store with models in it."""
        from spark_tui.services.demo.models import DemoModels

        return DemoModels(self.clock)

    @cached_property
    def checkpoints(self) -> DemoCheckpoints:
        """Their configs and headers."""
        from spark_tui.services.demo.models import DemoCheckpoints

        return DemoCheckpoints()

    @cached_property
    def hub(self) -> DemoHub:
        """A few models to find."""
        from spark_tui.services.demo.hub import DemoHub

        return DemoHub(self.clock)

    @cached_property
    def downloader(self) -> DemoDownloads:
        """Downloads that take no network."""
        from spark_tui.services.demo.hub import DemoDownloads

        return DemoDownloads(self.clock, self.hub, self.models)

    @cached_property
    def metrics(self) -> DemoMetrics:
        """The engines' metrics pages."""
        from spark_tui.services.demo.metrics import DemoMetrics

        return DemoMetrics(self._world)

    @cached_property
    def vitals(self) -> DemoVitals:
        """Processors, disks, links, processes."""
        from spark_tui.services.demo.host import DemoVitals

        return DemoVitals(self._world)

    @cached_property
    def load(self) -> DemoLoad:
        """Load that nothing has to bear."""
        from spark_tui.services.demo.bench import DemoLoad

        return DemoLoad(self._world)

    @cached_property
    def conversations(self) -> MemoryConversations:
        """Conversations, until it is left."""
        from spark_tui.services.demo.conversations import MemoryConversations

        return MemoryConversations()

    @cached_property
    def history(self) -> DemoHistory:
        """What this box remembers."""
        from spark_tui.services.demo.history import DemoHistory

        return DemoHistory(self.clock, self._world)
