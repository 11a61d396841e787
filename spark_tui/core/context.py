"""The composition root: the use cases put together on the ports, each made when it is first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from spark_tui.core.store import Store
from spark_tui.core.wiring import GuardPorts, Ports, demo_ports, real_ports
from spark_tui.domain.host.identity import HostPaths
from spark_tui.domain.quantities import GIB
from spark_tui.domain.settings import Folders, Settings, defaults, folders_of
from spark_tui.services.executors import in_thread

if TYPE_CHECKING:
    from spark_tui.core.bench import Benchmark
    from spark_tui.core.bench_ab import ABPlanner
    from spark_tui.core.cache import CacheControl
    from spark_tui.core.chat import ChatTarget, ReadCounters
    from spark_tui.core.collectors import Collectors
    from spark_tui.core.config import Config
    from spark_tui.core.conversations import Conversations
    from spark_tui.core.crash_loops import RestartBreaker
    from spark_tui.core.doctor import Doctor
    from spark_tui.core.downloads import Downloads, Hub, LaunchDownloads
    from spark_tui.core.engines import EngineSupervisor
    from spark_tui.core.fit import LaunchChecks, MemoryGate
    from spark_tui.core.guard import Guard, GuardLauncher, LoadGuard
    from spark_tui.core.health import HealthWatch
    from spark_tui.core.history import History
    from spark_tui.core.hosts import Hosts
    from spark_tui.core.launch import JobRunner, Launcher
    from spark_tui.core.library import Library
    from spark_tui.core.memory import BreakdownReader, MemoryInspector, MemoryWatch
    from spark_tui.core.metrics import EngineMetricsCollector
    from spark_tui.core.preflight import Preflight
    from spark_tui.core.results import Results
    from spark_tui.core.secure import Securing
    from spark_tui.core.store import AlarmBoard
    from spark_tui.domain.engine.state import Endpoint
    from spark_tui.domain.errors import SparkError
    from spark_tui.domain.host.guard import Policy
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
        PresetSource,
        RecipeStore,
        SecretStore,
        UserFiles,
    )


P = ParamSpec("P")
R = TypeVar("R")

DEMO_HOME: Final = Path("/home/spark")
"""The home of the simulated Spark's user."""
METRICS_DELAY_SECONDS = 0.3
"""The first frame does not wait for what is not on it."""
PARTS_TO_RUN = ("collectors", "engines", "metrics", "history", "health", "crash_loops", "guard", "downloads", "launch")
"""Modules of the core, most of it: a third of a second of imports."""
PARTS_TO_CLOSE = ("jobs", "library", "supervisor")
"""In this order, and only those that were made."""
PORTS_TO_CLOSE = (
    "load", "metrics", "gpu", "api", "docker", "dropper",
    "models", "hub", "downloader", "conversations", "user_files", "history",
)  # fmt: skip
"""After the parts, which use them."""

Part: TypeAlias = tuple[str, "Callable[[Any, Context], Any]"]
"""Where the use case is, below spark_tui.core, and how it is made of its class and the context."""

PARTS: Final[Mapping[str, Part]] = {
    # engines
    "supervisor": (
        "engines:EngineSupervisor",
        lambda make, c: make(
            c.docker, c.api, c.secrets, c.store, c.clock, c.ports.get("checkpoints")
        ),
    ),
    "metrics": (
        "metrics:EngineMetricsCollector", lambda make, c: make(c.ports.metrics, c.store, c.clock, c.endpoint_of)
    ),
    "history": ("history:History", lambda make, c: make(c.ports.history, c.clock, c.store)),
    "collectors": (
        "collectors:Collectors",
        lambda make, c: make(
            c.store, c.clock, c.host, c.ports.gpu, c.docker, c.presets, c.settings.refresh_seconds,
            memory_watch=c.memory_watch, on_gpu=c.gpu_read,
        ),
    ),
    # memory
    "cache": (
        "cache:CacheControl", lambda make, c: make(c.ports.dropper, c.docker, c.host, c.supervisor, c.store, c.clock)
    ),
    "guard_policy": (
        "guard:Policy",
        lambda make, c: make(
            serving_floor=int(c.settings.guard_serving_gib * GIB), loading_floor=int(c.settings.guard_loading_gib * GIB)
        ),
    ),
    "load_guard": (
        "guard:LoadGuard", lambda make, c: make(c.host, c.cache, c.supervisor, c.clock, c.guard_policy)
    ),
    "guard_launcher": (  # None where the settings or the demo want no guard of their own
        "guard:GuardLauncher",
        lambda make, c: make(c.guarding.starter, c.guarding.journal, c.supervisor, c.store, c.clock)
        if c.ports.has("guarding") and c.guarding.starter and c.settings.guard_auto and not c.settings.read_only
        else None,
    ),
    "new_guard": (  # a watchdog, which the caller runs
        "guard:Guard",
        lambda make, c: partial(
            make, c.host, c.guarding.actuator, c.guarding.journal, c.clock, c.guard_policy,
            end_loops=c.settings.stop_crash_loops,
        ),
    ),
    "breakdown": ("memory:BreakdownReader", lambda make, c: make(c.host)),
    "alarms": ("store:AlarmBoard", lambda make, c: make(c.store)),
    "memory_inspector": (
        "memory:MemoryInspector", lambda make, c: make(c.ports.vitals, c.store, c.clock, c.ports.get("guarding"))
    ),
    "memory_watch": ("memory:MemoryWatch", lambda make, c: make(c.store, c.clock, c.breakdown, c.alarms)),
    "health": (
        "health:HealthWatch",
        lambda make, c: make(
            c.store, c.clock, c.host, c.api, c.supervisor, c.alarms, lambda engine: c.metrics.of(engine).token_sample(),
            read_only=c.settings.read_only,
        ),
    ),
    "restart_breaker": (
        "crash_loops:RestartBreaker",
        lambda make, c: make(
            c.docker, c.supervisor, c.store, c.clock, c.alarms,
            *([c.guarding.journal.entries] if c.ports.has("guarding") else []),
            acting=c.settings.stop_crash_loops and not c.settings.read_only,
        ),
    ),
    "doctor": (
        "doctor:Doctor",
        lambda make, c: make(
            c.ports.doctor_probe, c.host, c.ports.gpu, c.docker, c.ports.dropper, c.secrets, c.presets,
            store=Path(c.paths.store), caches=Path(c.paths.caches),
        ),
    ),
    # models
    "library": (
        "library:Library",
        lambda make, c: make(c.ports.models, c.docker, c.presets, c.store, c.clock, c.paths.store, c.paths.home),
    ),
    "hub": ("downloads:Hub", lambda make, c: make(c.ports.hub, c.secrets, c.host)),
    "downloads": (
        "downloads:Downloads",
        lambda make, c: make(c.hub, c.ports.downloader, c.host, c.store, c.clock, Path(c.paths.store)),
    ),
    "fetching": (
        "downloads:LaunchDownloads",
        lambda make, c: make(c.downloads, c.ports.models, c.preflight.has_file, c.clock, c.paths.store)
        if c.ports.has("hub") else None,
    ),
    # launching
    "preflight": ("preflight:Preflight", lambda make, c: make(c.docker, c.host, c.secrets, c.paths)),
    "checks": (
        "fit:LaunchChecks",
        lambda make, c: make(
            c.docker, c.host, c.secrets, c.preflight, c.checkpoints, c.store, lambda: c.history.starts
        ),
    ),
    "memory_gate": (
        "fit:MemoryGate",
        lambda make, c: make(c.checks, c.cache, c.supervisor, c.store, c.clock, c.collectors.collect_ready),
    ),
    "launcher": (
        "launch:Launcher",
        lambda make, c: make(
            c.docker, c.api, c.archive, c.supervisor, c.preflight, c.clock, c.load_guard, c.memory_gate, c.fetching,
            c.guard_launcher,
        ),
    ),
    "jobs": ("launch:JobRunner", lambda make, c: make(c.launcher, c.supervisor, c.store)),
    "securing": ("secure:Securing", lambda make, c: make(c.presets, c.preflight, c.secrets)),
    # chat and bench
    "conversations": (
        "conversations:Conversations",
        lambda make, c: make(
            c.api, c.clock, c.presets, Path(c.paths.store),
            store=c.ports.get("conversations"),
            files=c.ports.get("user_files"),
            meter=c.chat_meter(), advise=c.chat_advice,
        ),
    ),
    "results": ("results:Results", lambda make, c: make(c.ports.results, c.clock)),
    "benchmark": (
        "bench:Benchmark",
        lambda make, c: make(
            c.ports.load, c.ports.metrics, c.docker, c.host, c.ports.gpu, c.supervisor, c.launcher, c.results, c.clock,
            c.guard_policy.serving_floor,
        ),
    ),
    "ab_planner": ("bench_ab:ABPlanner", lambda make, c: make(c.catalogue, c.preflight)),
    # other machines
    "hosts": (
        "hosts:Hosts",
        lambda make, c: make(c.settings.hosts, c.ports.remote_shell, read_only=c.settings.read_only),
    ),
}  # fmt: skip
"""A part whose ports have no adapter raises RefusedError when it is asked for."""


PORTS: Final = (
    "clock", "docker", "api", "host", "presets", "recipes", "secrets", "archive", "checkpoints", "user_files",
    "guarding",
)  # fmt: skip
"""Ports that are attributes of the context too."""


class Context:
    """Everything that a front end needs. The parts of `PARTS` are attributes, made when they are first asked for."""

    settings: Settings
    ports: Ports
    paths: HostPaths
    clock: Clock
    docker: ContainerEngine
    api: EngineApi
    host: HostProbe
    presets: PresetSource
    recipes: RecipeStore
    secrets: SecretStore
    archive: LogArchive
    checkpoints: CheckpointSource
    user_files: UserFiles
    guarding: GuardPorts
    supervisor: EngineSupervisor
    metrics: EngineMetricsCollector
    history: History
    collectors: Collectors
    cache: CacheControl
    load_guard: LoadGuard
    guard_policy: Policy
    guard_launcher: GuardLauncher | None
    new_guard: Callable[..., Guard]
    breakdown: BreakdownReader
    alarms: AlarmBoard
    memory_inspector: MemoryInspector
    memory_watch: MemoryWatch
    health: HealthWatch
    restart_breaker: RestartBreaker
    doctor: Doctor
    library: Library
    hub: Hub
    downloads: Downloads
    fetching: LaunchDownloads | None
    preflight: Preflight
    checks: LaunchChecks
    memory_gate: MemoryGate
    launcher: Launcher
    jobs: JobRunner
    securing: Securing
    conversations: Conversations
    results: Results
    benchmark: Benchmark
    ab_planner: ABPlanner
    hosts: Hosts

    def __init__(self, settings: Settings, ports: Ports, paths: HostPaths, *, demo: bool = False) -> None:
        self.settings = settings
        self.demo = demo
        self.ports = ports
        self.paths = paths

    if not TYPE_CHECKING:  # a name that is no part stays an error of the type checker

        def __getattr__(self, name: str) -> Any:
            if name in PORTS:
                return getattr(self.ports, name)
            if name not in PARTS:
                raise AttributeError(f"Context has no part {name!r}")
            place, make = PARTS[name]
            module, _, factory = place.partition(":")
            part = make(getattr(import_module(f"spark_tui.core.{module}"), factory), self)
            return vars(self).setdefault(name, part)

    # --- what parts are given -------------------------------------------------------------------------

    @cached_property
    def store(self) -> Store:
        """The World."""
        return Store(self.clock)

    def endpoint_of(self, name: str) -> Endpoint | None:
        """Where that engine's server is."""
        watch = self.supervisor.find(name)
        return watch.endpoint if watch else None

    def gpu_read(self, reading: Reading[GpuReading]) -> None:
        """Watched for a stuck power state once the program stays."""
        if "health" in vars(self):
            self.health.gpu_read(reading)

    def chat_advice(self, error: SparkError, target: ChatTarget) -> SparkError:
        """The error of an answer, with what this program knows of the engine."""
        from spark_tui.core.chat import advised
        from spark_tui.domain.reading import value_of

        views: tuple[EngineView, ...] = value_of(self.store.world.engines) or ()
        return advised(error, target, self.secrets.path(target.engine), views)

    def chat_meter(self) -> ReadCounters | None:
        """Reads an engine's counters around an answer; None without metrics."""
        from spark_tui.core.chat import meter_on

        return meter_on(self.ports.metrics) if self.ports.has("metrics") else None

    def catalogue(self) -> PresetCatalogue:
        """The presets as they were read last."""
        known = self.store.world.presets
        return known if known.presets else self.presets.load()

    # --- running --------------------------------------------------------------------------------------

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
            if self.guard_launcher is not None:
                group.create_task(self.guard_launcher.run())
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
        if not self.ports.has("history"):
            return
        await self.clock.sleep(METRICS_DELAY_SECONDS)
        self.metrics.subscribe(self.history.note)
        await self.remember()
        self.history.observe(self.supervisor.views())
        await self.history.run()

    async def in_thread(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a short blocking call, on threads of a bounded pool."""
        return await in_thread(call, *args, **kwargs)

    async def close(self) -> None:
        """Ends jobs, streams, connections and helper processes. Containers keep running."""
        for part in PARTS_TO_CLOSE:
            if part in vars(self):
                await getattr(self, part).close()
        for port in PORTS_TO_CLOSE:
            if port in self.ports.made():
                await getattr(self.ports, port).close()


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
    """This machine."""
    return Context(settings, real_ports(settings, folders, environ), _host_paths(settings, folders))


def build_demo(
    settings: Settings | None = None, folders: Folders | None = None, *, seed: int = 0, clock: Clock | None = None
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Of `settings` only the looks count, and read-only. Uses no
    Docker; a saved log is a real file."""
    simulated, given = folders_of({}, DEMO_HOME), settings or Settings()
    shown = replace(
        defaults(simulated), read_only=given.read_only, refresh_seconds=given.refresh_seconds,
        theme=given.theme, glyphs=given.glyphs, keymap=given.keymap,
    )  # fmt: skip
    return Context(shown, demo_ports(folders or simulated, seed, clock), _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
