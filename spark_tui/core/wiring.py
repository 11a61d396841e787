"""The real world: names the concrete adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tui.domain.settings import Folders, Settings

if TYPE_CHECKING:
    from spark_tui.services.host.drop_caches import SystemCacheDropper
    from spark_tui.services.ports import (
        CacheDropper,
        CheckpointSource,
        Clock,
        ContainerEngine,
        ConversationStore,
        DoctorProbe,
        Downloader,
        EngineApi,
        GpuProbe,
        GuardHands,
        GuardJournal,
        GuardStarter,
        HistoryStore,
        HostProbe,
        HubClient,
        LoadDriver,
        LogArchive,
        MetricsSource,
        ModelStore,
        PersonFiles,
        PresetSource,
        RecipeShelf,
        RemoteShell,
        ResultStore,
        SecretStore,
        UserUnits,
        VitalsProbe,
    )


class RealPorts:
    """The real world. Each adapter is imported and made when it is first used: the first frame waits for none."""

    def __init__(self, settings: Settings, folders: Folders, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._folders = folders
        self._environ = environ

    @cached_property
    def clock(self) -> Clock:
        """The system's clock."""
        from spark_tui.services.executors import SystemClock

        return SystemClock()

    @cached_property
    def docker(self) -> ContainerEngine:
        """The Docker engine of the settings, else of DOCKER_HOST, else of this machine."""
        from spark_tui.services.docker.engine import DockerEngine

        return DockerEngine(self._docker_environ, port_owner=self.host.port_owner)

    @cached_property
    def api(self) -> EngineApi:
        """HTTP to the engines."""
        from spark_tui.services.engine_api.client import VllmApi

        return VllmApi()

    @cached_property
    def metrics(self) -> MetricsSource:
        """The engines' metrics pages."""
        from spark_tui.services.engine_api.metrics import HttpMetrics

        return HttpMetrics()

    @cached_property
    def history(self) -> HistoryStore:
        """The history's file."""
        from spark_tui.services.history.db import HistoryDb

        return HistoryDb(self._folders.history, now=self.clock.now)

    @cached_property
    def load(self) -> LoadDriver:
        """The helper process that sends a benchmark's load."""
        from spark_tui.services.bench.driver import HttpLoadDriver

        return HttpLoadDriver()

    @cached_property
    def results(self) -> ResultStore:
        """The folder of results."""
        from spark_tui.services.bench.results import FileResults

        return FileResults(self._folders.benchmarks)

    @cached_property
    def host(self) -> HostProbe:
        """/proc and /sys."""
        from spark_tui.services.host.procfs import ProcfsHost

        return ProcfsHost()

    @cached_property
    def vitals(self) -> VitalsProbe:
        """Processors, disks, links, processes."""
        from spark_tui.services.host.procfs import ProcfsVitals

        return ProcfsVitals()

    @cached_property
    def gpu(self) -> GpuProbe:
        """NVML, in a process of its own."""
        from spark_tui.services.host.nvml import NvmlGpu

        return NvmlGpu(self.clock)

    @cached_property
    def presets(self) -> PresetSource:
        """Ours and the person's."""
        from spark_tui.services.presets.store import PresetFiles, builtin_directory

        return PresetFiles(builtin_directory(), self._settings.presets)

    @cached_property
    def recipes(self) -> RecipeShelf:
        """Other people's recipes, and the person's preset folder."""
        from spark_tui.services.presets.imports import FolderRecipeShelf

        return FolderRecipeShelf(self._settings.presets)

    @cached_property
    def checkpoints(self) -> CheckpointSource:
        """The model store's configs and headers."""
        from spark_tui.services.store.checkpoints import StoreCheckpoints

        return StoreCheckpoints(Path(self._settings.store))

    @cached_property
    def models(self) -> ModelStore:
        """The model store on the disk; what was found in it is kept in the cache folder."""
        from spark_tui.services.files import PrivateFolder
        from spark_tui.services.store.store import FolderModelStore

        kept = PrivateFolder(self._folders.cache / "models")
        store, home = Path(self._settings.store), self._folders.home
        return FolderModelStore(store, kept, environ=self._environ, home=home)

    @cached_property
    def hub(self) -> HubClient:
        """The Hugging Face Hub."""
        from spark_tui.services.hub.client import HuggingFaceHub

        return HuggingFaceHub(self._environ)

    @cached_property
    def downloader(self) -> Downloader:
        """Downloads into the model store, each in a process of its own."""
        from spark_tui.services.hub.downloads import DetachedDownloads

        return DetachedDownloads(self._folders.downloads, Path(self._settings.store), self._environ)

    @cached_property
    def conversations(self) -> ConversationStore:
        """The folder of conversations."""
        from spark_tui.services.conversations import FileConversations

        return FileConversations(self._folders.conversations)

    @cached_property
    def person_files(self) -> PersonFiles:
        """Files that the person names."""
        from spark_tui.services.files import SystemPersonFiles

        return SystemPersonFiles(self._folders.home)

    @cached_property
    def secrets(self) -> SecretStore:
        """Private files."""
        from spark_tui.services.files import PrivateFolder
        from spark_tui.services.secrets import FileSecrets

        return FileSecrets(PrivateFolder(self._folders.secrets), self._environ, self._folders.home)

    @cached_property
    def archive(self) -> LogArchive:
        """The folder of saved logs."""
        from spark_tui.services.files import FileLogArchive

        return FileLogArchive(self._folders.logs)

    @cached_property
    def dropper(self) -> SystemCacheDropper:
        """The page cache, by what this user is allowed."""
        from spark_tui.services.host.drop_caches import SystemCacheDropper

        return SystemCacheDropper()

    @cached_property
    def doctor_probe(self) -> DoctorProbe:
        """What only the doctor looks at."""
        from spark_tui.services.host.doctor import FileDoctorProbe

        return FileDoctorProbe(self._environ)

    @cached_property
    def remote_shell(self) -> RemoteShell:
        """The person's ssh."""
        from spark_tui.services.ssh import SshHosts

        return SshHosts(self._environ)

    @cached_property
    def guarding(self) -> GuardPorts:
        """The memory guard's hands and memory."""
        from spark_tui.services.docker.socket import DockerSocket
        from spark_tui.services.guard.actuator import FileGuardJournal, SystemGuardHands
        from spark_tui.services.guard.process import GuardProcess
        from spark_tui.services.guard.units import SystemdUserUnits

        docker = DockerSocket(self._docker_environ)
        journal, log = FileGuardJournal(self._folders.guard), self._folders.guard / "guard.log"
        return GuardPorts(
            SystemGuardHands(docker, self.dropper),
            journal,
            SystemdUserUnits(self._folders.home, self._environ),
            GuardProcess(self._settings, self._docker_environ, journal, log, docker.local),
        )

    @property
    def _docker_environ(self) -> Mapping[str, str]:
        own = self._settings.docker_host
        return {**self._environ, "DOCKER_HOST": own} if own else self._environ


@dataclass(frozen=True)
class GuardPorts:
    """What the memory guard works with."""

    hands: GuardHands
    journal: GuardJournal
    units: UserUnits
    starter: GuardStarter | None = None


@dataclass(frozen=True)
class Ports:
    """The outside world, simulated or given."""

    clock: Clock
    docker: ContainerEngine
    api: EngineApi
    host: HostProbe
    gpu: GpuProbe
    presets: PresetSource
    secrets: SecretStore
    archive: LogArchive
    dropper: CacheDropper | None = None
    guarding: GuardPorts | None = None
    recipes: RecipeShelf | None = None
    checkpoints: CheckpointSource | None = None
    metrics: MetricsSource | None = None
    models: ModelStore | None = None
    hub: HubClient | None = None
    downloader: Downloader | None = None
    vitals: VitalsProbe | None = None
    conversations: ConversationStore | None = None
    person_files: PersonFiles | None = None
    history: HistoryStore | None = None
    load: LoadDriver | None = None
    results: ResultStore | None = None
    doctor_probe: DoctorProbe | None = None
    remote_shell: RemoteShell | None = None
