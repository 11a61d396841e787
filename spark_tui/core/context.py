"""The composition root: the use cases put together, and the world that they work on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from spark_tui.core.store import Store
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.settings import Folders, Settings, defaults, folders_of

if TYPE_CHECKING:
    from spark_tui.core.bench import Benchmark, Results
    from spark_tui.core.bench_ab import Turns
    from spark_tui.core.cache import CacheControl
    from spark_tui.core.chat import ChatTarget, EngineMeter
    from spark_tui.core.collectors import Collectors
    from spark_tui.core.config import Config
    from spark_tui.core.conversations import Conversations
    from spark_tui.core.crash_loops import RestartBreaker
    from spark_tui.core.demo_ports import DemoPorts
    from spark_tui.core.doctor import Doctor
    from spark_tui.core.downloads import Downloads, Fetching, Hub
    from spark_tui.core.engines import EngineSupervisor
    from spark_tui.core.fit import Fitting, LaunchBudget
    from spark_tui.core.guard import Guard, GuardKeeper, LoadGuard, OnEntry
    from spark_tui.core.health import HealthWatch
    from spark_tui.core.history import History
    from spark_tui.core.hosts import Hosts
    from spark_tui.core.launch import JobRunner, Launcher
    from spark_tui.core.library import Library
    from spark_tui.core.memory import GuardStanding, LedgerReader, MemoryInspector, MemoryWatch
    from spark_tui.core.metrics import EngineMetricsCollector
    from spark_tui.core.preflight import Preflight, PresetChecks
    from spark_tui.core.secure import Securing
    from spark_tui.core.store import AlarmBoard
    from spark_tui.core.wiring import GuardPorts, Ports, RealPorts
    from spark_tui.domain.engine.state import Endpoint
    from spark_tui.domain.host.guard import Policy
    from spark_tui.domain.host.identity import HostPaths
    from spark_tui.domain.host.vitals import GpuReading
    from spark_tui.domain.logs.view import EngineView
    from spark_tui.domain.presets.preset import PresetCatalogue
    from spark_tui.domain.reading import Reading
    from spark_tui.services.ports import (
        CheckpointSource,
        Clock,
        ContainerEngine,
        EngineApi,
        HostProbe,
        LogArchive,
        PersonFiles,
        PresetSource,
        RecipeShelf,
        SecretStore,
    )


class ContextGround:
    """The outside world by its ports, and what every other part of the core stands on."""

    def __init__(
        self, settings: Settings, ports: Ports | RealPorts | DemoPorts, paths: HostPaths, *, demo: bool = False
    ) -> None:
        self.settings = settings
        self.demo = demo
        self._ports = ports
        self._paths = paths

    @property
    def paths(self) -> HostPaths:
        """Where the model store, the compile caches and the person's home lie."""
        return self._paths

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
            raise RefusedError("There are no recipe files here.", "Leave out --demo.")
        return self._ports.recipes

    @property
    def secrets(self) -> SecretStore:
        """Keys and tokens."""
        return self._ports.secrets

    @property
    def archive(self) -> LogArchive:
        """Saved logs."""
        return self._ports.archive

    @cached_property
    def checkpoints(self) -> CheckpointSource:
        """Checkpoints in the store; in a simulation there are none."""
        from spark_tui.core.fit import NoCheckpoints

        return self._ports.checkpoints or NoCheckpoints()

    @property
    def person_files(self) -> PersonFiles:
        """Files that the person names. Raises RefusedError where there are none: in a simulation."""
        if self._ports.person_files is None:
            raise RefusedError("No files are read or written here.", "Leave out --demo.")
        return self._ports.person_files

    @cached_property
    def hosts(self) -> Hosts:
        """Other boxes. Raises RefusedError where nothing leads there: in a simulation."""
        from spark_tui.core.hosts import Hosts

        if self._ports.remote_shell is None:
            raise RefusedError("No other box is reached from here.", "Leave out --demo.")
        return Hosts(self.settings.hosts, self._ports.remote_shell, read_only=self.settings.read_only)

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


class MemoryContext(ContextGround):
    """The pool: who holds it, what guards it, what is given back."""

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
        from spark_tui.core.memory import LedgerReader

        return LedgerReader(self.host)

    @cached_property
    def alarms(self) -> AlarmBoard:
        """What is wrong now."""
        from spark_tui.core.store import AlarmBoard

        return AlarmBoard(self.store)

    @cached_property
    def memory_inspector(self) -> MemoryInspector:
        """Processes, containers and vital signs, for who looks."""
        from spark_tui.core.memory import MemoryInspector, NoVitals

        return MemoryInspector(self._ports.vitals or NoVitals(), self.store, self._guard_standing)

    def _guard_standing(self) -> Reading[GuardStanding]:
        from spark_tui.core.memory import NO_GUARD, GuardStanding
        from spark_tui.domain.reading import Ok

        ports = self._ports.guarding
        if ports is None:
            return NO_GUARD
        return Ok(GuardStanding(ports.journal.running(), ports.journal.entries()), self.clock.now())

    @cached_property
    def memory_watch(self) -> MemoryWatch:
        """Memory judged second by second."""
        from spark_tui.core.memory import MemoryWatch

        return MemoryWatch(self.store, self.clock, self.ledger, self.alarms)

    @cached_property
    def health(self) -> HealthWatch:
        """Wedged engines, a stuck power state, leaked shared memory."""
        from spark_tui.core.health import HealthWatch

        return HealthWatch(
            self.store, self.clock, self.host, self.api, self.supervisor, self.alarms, self.metrics.token_sample,
            read_only=self.settings.read_only,
        )  # fmt: skip

    @cached_property
    def restart_breaker(self) -> RestartBreaker:
        """Ends crash loops of our own engines."""
        from spark_tui.core.crash_loops import RestartBreaker, no_entries

        guarding, settings = self._ports.guarding, self.settings
        return RestartBreaker(
            self.docker, self.supervisor, self.store, self.clock, self.alarms,
            guarding.journal.entries if guarding is not None else no_entries,
            acting=settings.stop_crash_loops and not settings.read_only,
        )  # fmt: skip

    @cached_property
    def guard_keeper(self) -> GuardKeeper | None:
        """Makes a guard run while an engine of ours does; None where the settings or the demo want none."""
        from spark_tui.core.guard import GuardKeeper

        ports = self._ports.guarding
        if ports is None or ports.starter is None or not self.settings.guard_auto or self.settings.read_only:
            return None
        return GuardKeeper(ports.starter, ports.journal, self.supervisor, self.store, self.clock)

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
            raise RefusedError("There is nothing to guard here: this Spark is simulated.", "Leave out --demo.")
        return self._ports.guarding

    def new_guard(self, on_entry: OnEntry, *, only_ours: bool = True, while_engines_run: bool = False) -> Guard:
        """A watchdog, which the caller runs; with `while_engines_run` it ends by itself some time after the last of
        them. Raises RefusedError in the demo."""
        from spark_tui.core.guard import Guard

        ports = self.guarding
        return Guard(
            self.host, ports.hands, ports.journal, self.clock, self.guard_policy,
            only_ours=only_ours, while_engines_run=while_engines_run, end_loops=self.settings.stop_crash_loops,
            on_entry=on_entry,
        )  # fmt: skip


P = ParamSpec("P")
R = TypeVar("R")

METRICS_DELAY_SECONDS = 0.3
"""The first frame does not wait for what nobody can see yet."""
PARTS_TO_RUN = (
    "collectors", "engines", "metrics", "history", "health", "crash_loops", "guard", "downloads",
    "launch",
)  # fmt: skip
"""Modules of the core, most of it: a third of a second of imports."""
PARTS_TO_CLOSE = ("jobs", "library", "supervisor")
"""In this order, and only those that were made."""
PORTS_TO_CLOSE = (
    "load", "metrics", "gpu", "api", "docker", "dropper",
    "models", "hub", "downloader", "conversations", "person_files", "history",
)  # fmt: skip
"""After the parts, which use them."""


class Context(MemoryContext):
    """Everything that a front end needs, put together once, each part when it is first asked for."""

    # --- models -------------------------------------------------------------------------------------

    @cached_property
    def fitting(self) -> Fitting:
        """Whether launches fit."""
        from spark_tui.core.fit import Fitting

        return Fitting(self.checkpoints, self.preflight, self.host, self.store, lambda: self.history.starts)

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

    # --- conversations ------------------------------------------------------------------------------

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
        from spark_tui.core.chat import advised
        from spark_tui.domain.reading import value_of

        views: tuple[EngineView, ...] = value_of(self.store.world.engines) or ()
        return advised(error, target, self.secrets.path(target.engine), views)

    def _chat_meter(self) -> EngineMeter | None:
        from spark_tui.core.chat import meter_on

        return meter_on(self._ports.metrics) if self._ports.metrics is not None else None

    # --- benchmarks ---------------------------------------------------------------------------------

    @cached_property
    def results(self) -> Results:
        """What was measured, and what others published."""
        from spark_tui.core.bench import Results

        store = self._ports.results
        if store is None:
            from spark_tui.services.bench.results import MemoryResults

            store = MemoryResults()
        return Results(store, self.clock)

    @cached_property
    def benchmark(self) -> Benchmark:
        """Measuring. Raises RefusedError where there is nothing to send load with."""
        from spark_tui.core.bench import Benchmark
        from spark_tui.core.metrics import NoMetrics

        if self._ports.load is None:
            raise RefusedError("Nothing can be measured here.", "Open spark-tui as it is installed.")
        floor = self.guard_policy.serving_floor
        return Benchmark(
            self._ports.load, self._ports.metrics or NoMetrics(), self.docker, self.host, self._ports.gpu,
            self.supervisor, self.results, self.clock, floor,
        )  # fmt: skip

    @cached_property
    def bench_turns(self) -> Turns:
        """Measuring two launches of which the box holds one at a time. Raises as `benchmark`."""
        from spark_tui.core.bench_ab import Sides, Turns

        def catalogue() -> PresetCatalogue:
            known = self.store.world.presets
            return known if known.presets else self.presets.load()

        sides = Sides(catalogue, self.preflight)
        return Turns(self.benchmark, self.launcher, self.supervisor, sides, self.clock)

    # --- launching ----------------------------------------------------------------------------------

    @cached_property
    def preflight(self) -> Preflight:
        """Checks before a launch."""
        from spark_tui.core.preflight import Preflight

        return Preflight(self.docker, self.host, self.secrets, self._paths)

    @cached_property
    def checks(self) -> PresetChecks:
        """The rules, with what this machine knows."""
        from spark_tui.core.preflight import PresetChecks

        root = Path(self._paths.store)
        return PresetChecks(self.docker, self.host, self.secrets, self.preflight, self.checkpoints, self.store, root)

    @cached_property
    def launcher(self) -> Launcher:
        """Launches."""
        from spark_tui.core.launch import Launcher

        return Launcher(
            self.docker, self.api, self.archive, self.supervisor, self.preflight, self.clock,
            self.load_guard, self.budget, self.fetching, self.guard_keeper,
        )  # fmt: skip

    @cached_property
    def fetching(self) -> Fetching | None:
        """What launches fetch first; None where there is no Hub."""
        from spark_tui.core.downloads import Fetching

        ports, paths = self._ports, self._paths
        if ports.hub is None or ports.downloader is None or ports.models is None:
            return None
        return Fetching(self.downloads, ports.models, self.preflight.has_file, self.clock, paths.store)

    @property
    def securing(self) -> Securing:
        """Keys for engines that have none."""
        from spark_tui.core.secure import Securing

        return Securing(self.presets, self.preflight, self.secrets)

    @cached_property
    def budget(self) -> LaunchBudget:
        """Launches held against the memory there is."""
        from spark_tui.core.fit import LaunchBudget

        return LaunchBudget(
            self.fitting, self.cache, self.supervisor, self.store, self.clock, self.collectors.collect_ready
        )

    @cached_property
    def jobs(self) -> JobRunner:
        """Launches in the background."""
        from spark_tui.core.launch import JobRunner

        return JobRunner(self.launcher, self.supervisor, self.store)

    # --- the box, and running on it -----------------------------------------------------------------

    @cached_property
    def doctor(self) -> Doctor:
        """What is wrong with this box. Raises RefusedError where there is none to look at."""
        from spark_tui.core.doctor import Doctor

        ports = self._ports
        if ports.doctor_probe is None:
            raise RefusedError("There is no box to examine here.", "Leave out --demo.")
        return Doctor(
            ports.doctor_probe, ports.host, ports.gpu, ports.docker, ports.dropper, ports.secrets, ports.presets,
            store=Path(self._paths.store), caches=Path(self._paths.caches),
        )  # fmt: skip

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

    async def remember(self) -> None:
        """From here on earlier starts are known, and those that end are kept."""
        await self.history.load()
        self.supervisor.on_views = self.history.observe

    def preload(self) -> None:
        """Imports what `run` is made of, and makes nothing: may be called in a thread."""
        for name in PARTS_TO_RUN:
            import_module(f"spark_tui.core.{name}")

    async def run(self) -> None:
        """Collects and watches until cancelled; the TUI runs this beside its own loop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._remember_on())
            group.create_task(self.collectors.run())
            group.create_task(self.supervisor.run())
            group.create_task(self._collect_metrics())
            group.create_task(self.health.run())
            group.create_task(self.restart_breaker.run())
            if self.guard_keeper is not None:
                group.create_task(self.guard_keeper.run())
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

    async def in_thread(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a short blocking call, on threads of a bounded pool."""
        from spark_tui.services.executors import in_thread

        return await in_thread(call, *args, **kwargs)

    async def close(self) -> None:
        """Ends jobs, streams, connections and helper processes. Containers go on."""
        for part in PARTS_TO_CLOSE:
            if part in vars(self):
                await getattr(self, part).close()
        for port in PORTS_TO_CLOSE:
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
    from spark_tui.core.wiring import RealPorts

    return Context(settings, RealPorts(settings, folders, environ), _host_paths(settings, folders))


def build_demo(
    settings: Settings | None = None, folders: Folders | None = None, *, seed: int = 0, clock: Clock | None = None
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Touches no Docker; a saved log is a real file."""
    from spark_tui.core.demo_ports import DemoPorts, demo_settings

    simulated = folders_of({}, Path("/home/spark"))
    shown = demo_settings(settings or Settings(), simulated)
    ports = DemoPorts((folders or simulated).logs, seed=seed, clock=clock)
    return Context(shown, ports, _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    from spark_tui.domain.host.identity import HostPaths

    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
