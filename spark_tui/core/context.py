"""The composition root: the only place that names concrete adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tui.core.store import Store
from spark_tui.domain.settings import Folders, Settings, defaults, folders_of

if TYPE_CHECKING:
    from spark_tui.core.alarms import AlarmBoard
    from spark_tui.core.benchmark import Benchmark
    from spark_tui.core.budget import LaunchBudget
    from spark_tui.core.cache import CacheControl
    from spark_tui.core.chat_meter import EngineMeter
    from spark_tui.core.chat_target import ChatTarget
    from spark_tui.core.collectors import Collectors
    from spark_tui.core.config import Config
    from spark_tui.core.conversations import Conversations
    from spark_tui.core.doctor import Doctor
    from spark_tui.core.downloads import Downloads, Hub
    from spark_tui.core.engines import EngineSupervisor
    from spark_tui.core.fitting import Fitting
    from spark_tui.core.guard import Guard, LoadGuard, OnEntry
    from spark_tui.core.health_watch import HealthWatch
    from spark_tui.core.history import History
    from spark_tui.core.job_runner import JobRunner
    from spark_tui.core.launch import Launcher
    from spark_tui.core.library import Library
    from spark_tui.core.memory_detail import GuardStanding, MemoryInspector
    from spark_tui.core.memory_ledger import LedgerReader
    from spark_tui.core.memory_watch import MemoryWatch
    from spark_tui.core.metrics import EngineMetricsCollector
    from spark_tui.core.preflight import Preflight
    from spark_tui.core.preset_checks import PresetChecks
    from spark_tui.core.restart_breaker import RestartBreaker
    from spark_tui.core.results import Results
    from spark_tui.core.secure import Securing
    from spark_tui.domain.engine.endpoint import Endpoint
    from spark_tui.domain.engine.view import EngineView
    from spark_tui.domain.errors import SparkError
    from spark_tui.domain.host.gpu import GpuReading
    from spark_tui.domain.host.guard import Policy
    from spark_tui.domain.host.paths import HostPaths
    from spark_tui.domain.reading import Reading
    from spark_tui.services.drop_caches import SystemCacheDropper
    from spark_tui.services.ports import (
        CacheDropper,
        CheckpointSource,
        Clock,
        ContainerEngine,
        EngineApi,
        GpuProbe,
        GuardHands,
        GuardJournal,
        HostProbe,
        LogArchive,
        PresetSource,
        RecipeShelf,
        SecretStore,
        UserUnits,
    )
    from spark_tui.services.ports_bench import LoadDriver, ResultStore
    from spark_tui.services.ports_chat import ConversationStore, PersonFiles
    from spark_tui.services.ports_doctor import DoctorProbe
    from spark_tui.services.ports_history import HistoryLedger
    from spark_tui.services.ports_hub import Downloader, HubClient
    from spark_tui.services.ports_metrics import MetricsSource
    from spark_tui.services.ports_store import ModelStore
    from spark_tui.services.ports_vitals import VitalsProbe

METRICS_DELAY_SECONDS = 0.3
"""The first frame does not wait for what nobody can see yet."""
DEMO_IMAGES = ("vllm/vllm-openai:nightly",)
"""Here from the start in the demo; other images are pulled, which the demo shows too."""


@dataclass(frozen=True)
class GuardPorts:
    """What the memory guard works with."""

    hands: GuardHands
    journal: GuardJournal
    units: UserUnits


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
    history: HistoryLedger | None = None
    load: LoadDriver | None = None
    results: ResultStore | None = None
    doctor_probe: DoctorProbe | None = None


class RealPorts:
    """The real world. Each adapter is imported and made when it is first used: the first frame waits for none."""

    def __init__(self, settings: Settings, folders: Folders, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._folders = folders
        self._environ = environ

    @cached_property
    def clock(self) -> Clock:
        """The system's clock."""
        from spark_tui.services.clock import SystemClock

        return SystemClock()

    @cached_property
    def docker(self) -> ContainerEngine:
        """The Docker engine of the settings, else of DOCKER_HOST, else of this machine."""
        from spark_tui.services.docker_engine import DockerEngine

        own = self._settings.docker_host
        environ = {**self._environ, "DOCKER_HOST": own} if own else self._environ
        return DockerEngine(environ, port_owner=self.host.port_owner)

    @cached_property
    def api(self) -> EngineApi:
        """HTTP to the engines."""
        from spark_tui.services.vllm_api import VllmApi

        return VllmApi()

    @cached_property
    def metrics(self) -> MetricsSource:
        """The engines' metrics pages."""
        from spark_tui.services.metrics_http import HttpMetrics

        return HttpMetrics()

    @cached_property
    def history(self) -> HistoryLedger:
        """The history's file."""
        from spark_tui.services.ledger import SqliteLedger

        return SqliteLedger(self._folders.history, now=self.clock.now)

    @cached_property
    def load(self) -> LoadDriver:
        """The helper process that sends a benchmark's load."""
        from spark_tui.services.bench_http import HttpLoadDriver

        return HttpLoadDriver()

    @cached_property
    def results(self) -> ResultStore:
        """The folder of results."""
        from spark_tui.services.bench_results import FileResults

        return FileResults(self._folders.benchmarks)

    @cached_property
    def host(self) -> HostProbe:
        """/proc and /sys."""
        from spark_tui.services.procfs import ProcfsHost

        return ProcfsHost()

    @cached_property
    def vitals(self) -> VitalsProbe:
        """Processors, disks, links, processes."""
        from spark_tui.services.procfs_vitals import ProcfsVitals

        return ProcfsVitals()

    @cached_property
    def gpu(self) -> GpuProbe:
        """NVML, in a process of its own."""
        from spark_tui.services.nvml import NvmlGpu

        return NvmlGpu(self.clock)

    @cached_property
    def presets(self) -> PresetSource:
        """Ours and the person's."""
        from spark_tui.services.preset_files import PresetFiles, builtin_directory

        return PresetFiles(builtin_directory(), self._settings.presets)

    @cached_property
    def recipes(self) -> RecipeShelf:
        """Other people's recipes, and the person's preset folder."""
        from spark_tui.services.preset_imports import FolderRecipeShelf

        return FolderRecipeShelf(self._settings.presets)

    @cached_property
    def checkpoints(self) -> CheckpointSource:
        """The model store's configs and headers."""
        from spark_tui.services.checkpoints import StoreCheckpoints

        return StoreCheckpoints(Path(self._settings.store))

    @cached_property
    def models(self) -> ModelStore:
        """The model store on the disk; what was found in it is kept in the cache folder."""
        from spark_tui.services.files import PrivateFolder
        from spark_tui.services.model_store import FolderModelStore

        kept = PrivateFolder(self._folders.cache / "models")
        store, home = Path(self._settings.store), self._folders.home
        return FolderModelStore(store, kept, environ=self._environ, home=home)

    @cached_property
    def hub(self) -> HubClient:
        """The Hugging Face Hub."""
        from spark_tui.services.hub_client import HuggingFaceHub

        return HuggingFaceHub(self._environ)

    @cached_property
    def downloader(self) -> Downloader:
        """Downloads into the model store, each in a process of its own."""
        from spark_tui.services.hub_download import DetachedDownloads

        return DetachedDownloads(self._folders.downloads, Path(self._settings.store), self._environ)

    @cached_property
    def conversations(self) -> ConversationStore:
        """The folder of conversations."""
        from spark_tui.services.conversations import FileConversations

        return FileConversations(self._folders.conversations)

    @cached_property
    def person_files(self) -> PersonFiles:
        """Files that the person names."""
        from spark_tui.services.person_files import SystemPersonFiles

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
        from spark_tui.services.drop_caches import SystemCacheDropper

        return SystemCacheDropper()

    @cached_property
    def doctor_probe(self) -> DoctorProbe:
        """What only the doctor looks at."""
        from spark_tui.services.doctor_probe import FileDoctorProbe

        return FileDoctorProbe(self._environ)

    @cached_property
    def guarding(self) -> GuardPorts:
        """The memory guard's hands and memory."""
        from spark_tui.services.guard_hands import SystemGuardHands
        from spark_tui.services.guard_journal import FileGuardJournal
        from spark_tui.services.user_units import SystemdUserUnits

        own = self._settings.docker_host
        environ = {**self._environ, "DOCKER_HOST": own} if own else self._environ
        return GuardPorts(
            SystemGuardHands(environ, self.dropper),
            FileGuardJournal(self._folders.guard),
            SystemdUserUnits(self._folders.home, self._environ),
        )


class Context:
    """Everything that a front end needs, put together once, each part when it is first asked for."""

    def __init__(self, settings: Settings, ports: Ports | RealPorts, paths: HostPaths, *, demo: bool = False) -> None:
        self.settings = settings
        self.demo = demo
        self._ports = ports
        self._paths = paths

    @property
    def clock(self) -> Clock:
        """The time."""
        return self._ports.clock

    @property
    def docker(self) -> ContainerEngine:
        """Containers."""
        return self._ports.docker

    @property
    def api(self) -> EngineApi:
        """The engines' own servers."""
        return self._ports.api

    @property
    def host(self) -> HostProbe:
        """The machine."""
        return self._ports.host

    @property
    def presets(self) -> PresetSource:
        """Preset files."""
        return self._ports.presets

    @property
    def recipes(self) -> RecipeShelf:
        """Recipe files as they are written. Raises RefusedError where there are none: in a simulation."""
        if self._ports.recipes is None:
            from spark_tui.domain.errors import RefusedError

            raise RefusedError("There are no recipe files here.", "Leave out --demo.")
        return self._ports.recipes

    @cached_property
    def fitting(self) -> Fitting:
        """Whether launches fit."""
        from spark_tui.core.fitting import Fitting

        return Fitting(self.checkpoints, self.preflight, self.host, self.store, lambda: self.history.starts)

    @cached_property
    def checkpoints(self) -> CheckpointSource:
        """Checkpoints in the store; in a simulation there are none."""
        from spark_tui.core.fitting import NoCheckpoints

        return self._ports.checkpoints or NoCheckpoints()

    @cached_property
    def library(self) -> Library:
        """The model store: what is there, who uses it, verifying, deleting."""
        from spark_tui.core.library import Library, NoModels

        ports, paths = self._ports, self._paths
        models = ports.models or NoModels()
        return Library(models, self.docker, self.presets, self.store, self.clock, paths.store, paths.home)

    @cached_property
    def hub(self) -> Hub:
        """The Hub, asked with the person's token."""
        from spark_tui.core.downloads import Hub, NoHub

        return Hub(self._ports.hub or NoHub(), self.secrets)

    @cached_property
    def downloads(self) -> Downloads:
        """Fetching models: plans, the queue, going on after an interruption."""
        from spark_tui.core.downloads import Downloads, NoDownloads

        downloader = self._ports.downloader or NoDownloads()
        return Downloads(self.hub, downloader, self.host, self.store, self.clock, Path(self._paths.store))

    @property
    def secrets(self) -> SecretStore:
        """Keys and tokens."""
        return self._ports.secrets

    @property
    def archive(self) -> LogArchive:
        """Saved logs."""
        return self._ports.archive

    @cached_property
    def store(self) -> Store:
        """The World."""
        return Store(self.clock)

    @cached_property
    def supervisor(self) -> EngineSupervisor:
        """Every engine on the box, under watch."""
        from spark_tui.core.engines import EngineSupervisor

        return EngineSupervisor(self.docker, self.api, self.secrets, self.store, self.clock, self._ports.checkpoints)

    @cached_property
    def conversations(self) -> Conversations:
        """Conversations with models, kept and new."""
        from spark_tui.core.conversations import Conversations

        ports = self._ports
        return Conversations(
            self.api, self.clock, self.presets, Path(self._paths.store),
            store=ports.conversations, files=ports.person_files, meter=self._chat_meter, advise=self._chat_advice,
        )  # fmt: skip

    def _chat_advice(self, error: SparkError, target: ChatTarget) -> SparkError:
        from spark_tui.core.chat_target import advised
        from spark_tui.domain.reading import value_of

        views: tuple[EngineView, ...] = value_of(self.store.world.engines) or ()
        return advised(error, target, self.secrets.path(target.engine), views)

    def _chat_meter(self) -> EngineMeter | None:
        from spark_tui.core.chat_meter import meter_on

        return meter_on(self._ports.metrics) if self._ports.metrics is not None else None

    # --- memory ---------------------------------------------------------------------------------------

    @cached_property
    def cache(self) -> CacheControl:
        """The page cache, given up on a person's wish."""
        from spark_tui.core.cache import CacheControl, NothingAllowed

        dropper = self._ports.dropper or NothingAllowed()
        return CacheControl(dropper, self.docker, self.host, self.supervisor, self.store, self.clock)

    @cached_property
    def load_guard(self) -> LoadGuard:
        """Keeps memory free while a launch loads."""
        from spark_tui.core.guard import LoadGuard

        return LoadGuard(self.host, self.cache, self.supervisor, self.clock, self.guard_policy)

    @cached_property
    def ledger(self) -> LedgerReader:
        """Who holds the pool."""
        from spark_tui.core.memory_ledger import LedgerReader

        return LedgerReader(self.host)

    @cached_property
    def alarms(self) -> AlarmBoard:
        """What is wrong now."""
        from spark_tui.core.alarms import AlarmBoard

        return AlarmBoard(self.store, self.clock)

    @cached_property
    def memory_inspector(self) -> MemoryInspector:
        """Processes, containers and vital signs, for who looks."""
        from spark_tui.core.memory_detail import MemoryInspector, NoVitals

        return MemoryInspector(self._ports.vitals or NoVitals(), self.store, self._guard_standing)

    def _guard_standing(self) -> Reading[GuardStanding]:
        from spark_tui.core.memory_detail import NO_GUARD, GuardStanding
        from spark_tui.domain.reading import Ok

        ports = self._ports.guarding
        if ports is None:
            return NO_GUARD
        return Ok(GuardStanding(ports.journal.running(), ports.journal.entries()), self.clock.now())

    @cached_property
    def memory_watch(self) -> MemoryWatch:
        """Memory judged second by second."""
        from spark_tui.core.memory_watch import MemoryWatch

        return MemoryWatch(self.store, self.clock, self.ledger, self.alarms)

    @cached_property
    def health(self) -> HealthWatch:
        """Wedged engines, a stuck power state, leaked shared memory."""
        from spark_tui.core.health_watch import HealthWatch

        return HealthWatch(
            self.store, self.clock, self.host, self.api, self.supervisor, self.alarms, self.metrics.token_sample,
            read_only=self.settings.read_only,
        )  # fmt: skip

    @cached_property
    def restart_breaker(self) -> RestartBreaker:
        """Ends crash loops of our own engines."""
        from spark_tui.core.restart_breaker import RestartBreaker, no_entries

        guarding, settings = self._ports.guarding, self.settings
        return RestartBreaker(
            self.docker, self.supervisor, self.store, self.clock, self.alarms,
            guarding.journal.entries if guarding is not None else no_entries,
            acting=settings.stop_crash_loops and not settings.read_only,
        )  # fmt: skip

    @property
    def guard_policy(self) -> Policy:
        """The guard's figures, with the floors of the settings."""
        from spark_tui.domain.host.guard import Policy
        from spark_tui.domain.quantities import GIB

        serving, loading = self.settings.guard_serving_gib, self.settings.guard_loading_gib
        return Policy(serving_floor=int(serving * GIB), loading_floor=int(loading * GIB))

    @property
    def guarding(self) -> GuardPorts:
        """The guard's outside world. Raises RefusedError where there is none: in the demo."""
        if self._ports.guarding is None:
            from spark_tui.domain.errors import RefusedError

            raise RefusedError("There is nothing to guard here: this Spark is simulated.", "Leave out --demo.")
        return self._ports.guarding

    def new_guard(self, on_entry: OnEntry, *, only_ours: bool = True) -> Guard:
        """A watchdog, which the caller runs. Raises RefusedError in the demo."""
        from spark_tui.core.guard import Guard

        ports = self.guarding
        return Guard(
            self.host, ports.hands, ports.journal, self.clock, self.guard_policy,
            only_ours=only_ours, on_entry=on_entry,
        )  # fmt: skip

    # --- benchmarks -----------------------------------------------------------------------------------

    @cached_property
    def results(self) -> Results:
        """What was measured, and what others published."""
        from spark_tui.core.results import Results

        store = self._ports.results
        if store is None:
            from spark_tui.services.bench_results import MemoryResults

            store = MemoryResults()
        return Results(store, self.clock)

    @cached_property
    def benchmark(self) -> Benchmark:
        """Measuring. Raises RefusedError where there is nothing to send load with."""
        from spark_tui.core.benchmark import Benchmark

        if self._ports.load is None:
            from spark_tui.domain.errors import RefusedError

            raise RefusedError("Nothing can be measured here.", "Open spark-tui as it is installed.")
        floor = self.guard_policy.serving_floor
        return Benchmark(
            self._ports.load, self.docker, self.host, self._ports.gpu, self.supervisor, self.results, self.clock, floor
        )

    @cached_property
    def doctor(self) -> Doctor:
        """What is wrong with this box. Raises RefusedError where there is none to look at."""
        from spark_tui.core.doctor import Doctor

        ports = self._ports
        if ports.doctor_probe is None:
            from spark_tui.domain.errors import RefusedError

            raise RefusedError("There is no box to examine here.", "Leave out --demo.")
        return Doctor(
            ports.doctor_probe, ports.host, ports.gpu, ports.docker, ports.dropper, ports.secrets, ports.presets,
            store=Path(self._paths.store), caches=Path(self._paths.caches),
        )  # fmt: skip

    # --- launching ------------------------------------------------------------------------------------

    @cached_property
    def preflight(self) -> Preflight:
        """Checks before a launch."""
        from spark_tui.core.preflight import Preflight

        return Preflight(self.docker, self.host, self.secrets, self._paths)

    @cached_property
    def checks(self) -> PresetChecks:
        """The rules, with what this machine knows."""
        from spark_tui.core.preset_checks import PresetChecks

        root = Path(self._paths.store)
        return PresetChecks(self.docker, self.host, self.secrets, self.preflight, self.checkpoints, self.store, root)

    @cached_property
    def launcher(self) -> Launcher:
        """Launches."""
        from spark_tui.core.launch import Launcher

        return Launcher(
            self.docker,
            self.api,
            self.archive,
            self.supervisor,
            self.preflight,
            self.clock,
            self.load_guard,
            self.budget,
        )

    @property
    def securing(self) -> Securing:
        """Keys for engines that have none."""
        from spark_tui.core.secure import Securing

        return Securing(self.presets, self.preflight, self.secrets)

    @cached_property
    def budget(self) -> LaunchBudget:
        """Launches held against the memory there is."""
        from spark_tui.core.budget import LaunchBudget

        return LaunchBudget(
            self.fitting, self.cache, self.supervisor, self.store, self.clock, self.collectors.collect_ready
        )

    @cached_property
    def jobs(self) -> JobRunner:
        """Launches in the background."""
        from spark_tui.core.job_runner import JobRunner

        return JobRunner(self.launcher, self.supervisor, self.store)

    @cached_property
    def collectors(self) -> Collectors:
        """What is read again and again."""
        from spark_tui.core.collectors import Collectors

        ports = self._ports
        return Collectors(
            self.store, self.clock, ports.host, ports.gpu, ports.docker, ports.presets, self.settings.refresh_seconds,
            memory_watch=self.memory_watch, on_gpu=self._gpu_read,
        )  # fmt: skip

    def _gpu_read(self, reading: Reading[GpuReading]) -> None:
        """Watched for a stuck power state once the program stays."""
        if "health" in vars(self):
            self.health.gpu_read(reading)

    @cached_property
    def metrics(self) -> EngineMetricsCollector:
        """The series of every engine that serves, and of the box."""
        from spark_tui.core.metrics import EngineMetricsCollector, NoMetrics

        def endpoint(name: str) -> Endpoint | None:
            watch = self.supervisor.find(name)
            return watch.endpoint if watch else None

        return EngineMetricsCollector(self._ports.metrics or NoMetrics(), self.store, self.clock, endpoint)

    @cached_property
    def history(self) -> History:
        """What this box remembers. Starts are known and kept once `remember` was awaited."""
        from spark_tui.core.history import History, NoHistory

        return History(self._ports.history or NoHistory(), self.clock, self.store)

    async def remember(self) -> None:
        """From here on earlier starts are known, and those that end are kept."""
        await self.history.load()
        self.supervisor.on_views = self.history.observe

    async def run(self) -> None:
        """Collects and watches until cancelled; the TUI runs this beside its own loop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._remember_on())
            group.create_task(self.collectors.run())
            group.create_task(self.supervisor.run())
            group.create_task(self._collect_metrics())
            group.create_task(self.health.run())
            group.create_task(self.restart_breaker.run())
            group.create_task(self._follow_downloads())
            if not self.settings.read_only:  # the last step of a launch is a request to the engine
                group.create_task(self.jobs.resume_starting())

    async def _collect_metrics(self) -> None:
        await self.clock.sleep(METRICS_DELAY_SECONDS)
        await self.metrics.run()

    async def _follow_downloads(self) -> None:
        await self.clock.sleep(METRICS_DELAY_SECONDS)
        await self.downloads.run(resume=not self.settings.read_only)

    async def _remember_on(self) -> None:
        if self._ports.history is None:
            return
        await self.clock.sleep(METRICS_DELAY_SECONDS)
        self.metrics.subscribe(self.history.note)
        await self.remember()
        self.history.observe(self.supervisor.views())
        await self.history.run()

    async def close(self) -> None:
        """Ends jobs, streams, connections and helper processes. Containers go on."""
        for part in ("jobs", "library", "supervisor"):
            if part in vars(self):
                await getattr(self, part).close()
        for port in (
            "load",
            "metrics",
            "gpu",
            "api",
            "docker",
            "dropper",
            "models",
            "hub",
            "downloader",
            "conversations",
            "person_files",
            "history",
        ):
            if vars(self._ports).get(port) is not None:
                await getattr(self._ports, port).close()


def read_settings(folders: Folders, environ: Mapping[str, str]) -> Settings:
    """Defaults, the settings file, the environment. Raises SettingsError."""
    from spark_tui.services.settings import load_settings

    settings = load_settings(environ, folders)
    if settings.keymap:
        from spark_tui.core.config import checked_keys

        checked_keys(settings)
    return settings


def open_config(folders: Folders, environ: Mapping[str, str]) -> Config:
    """The settings, to look at and to change."""
    from spark_tui.core.config import Config
    from spark_tui.services.settings import SettingsFile

    return Config(SettingsFile(folders), lambda: read_settings(folders, environ), defaults(folders))


def build(settings: Settings, folders: Folders, environ: Mapping[str, str]) -> Context:
    """The real world."""
    return Context(settings, RealPorts(settings, folders, environ), _host_paths(settings, folders))


def build_demo(
    settings: Settings | None = None, folders: Folders | None = None, *, seed: int = 0, clock: Clock | None = None
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Touches no Docker; a saved log is a real file."""
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

    simulated = folders_of({}, Path("/home/spark"))
    clock = clock or SystemClock()
    world = DemoWorld(clock, seed)
    host = DemoHost(world)
    models, hub = DemoModels(clock), DemoHub(clock)
    ports = Ports(
        clock=clock,
        docker=DemoDocker(world, images=DEMO_IMAGES),
        api=DemoApi(world),
        host=host,
        gpu=DemoGpu(world),
        presets=PresetFiles(builtin_directory()),
        secrets=DemoSecrets(world),
        archive=FileLogArchive((folders or simulated).logs),
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
        history=DemoHistory(clock),
    )
    told = settings or Settings()
    shown = replace(
        defaults(simulated), read_only=told.read_only, refresh_seconds=told.refresh_seconds,
        theme=told.theme, glyphs=told.glyphs, keymap=told.keymap,
    )  # fmt: skip
    return Context(shown, ports, _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    from spark_tui.domain.host.paths import HostPaths

    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
