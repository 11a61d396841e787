"""The composition root: the use cases put together on the ports, each made when it is first asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from msgspec.structs import replace

from spark_tui.core.poller import keep, pause
from spark_tui.core.store import Store
from spark_tui.core.wiring import GuardPorts, Ports, class_at, demo_ports, real_ports
from spark_tui.domain.errors import SparkError
from spark_tui.domain.finding import Finding
from spark_tui.domain.host.identity import HostPaths
from spark_tui.domain.presets.preset import Origin, Preset
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Reading, value_of
from spark_tui.domain.settings import Folders, Settings, defaults, folders_of
from spark_tui.services.executors import in_thread

if TYPE_CHECKING:
    from spark_tui.core.bench import Benchmark
    from spark_tui.core.bench_ab import ABPlanner
    from spark_tui.core.boot import BootUnits
    from spark_tui.core.cache import CacheControl
    from spark_tui.core.canary import CanaryRunner
    from spark_tui.core.chat import ChatTarget
    from spark_tui.core.cluster import ClusterPlanner
    from spark_tui.core.cluster_doctor import ClusterDoctor, NodeExaminer
    from spark_tui.core.cluster_launch import ClusterLauncher
    from spark_tui.core.cluster_monitor import ClusterMonitor
    from spark_tui.core.collectors import Collectors
    from spark_tui.core.config import Config
    from spark_tui.core.connect import Connector
    from spark_tui.core.conversations import Conversations
    from spark_tui.core.copying import ClusterCopier, NodeCopier
    from spark_tui.core.crash_loops import RestartBreaker
    from spark_tui.core.doctor import Doctor
    from spark_tui.core.downloads import Downloads, Hub, LaunchDownloads
    from spark_tui.core.draft import Drafts
    from spark_tui.core.edit import Editor
    from spark_tui.core.engines import EngineSupervisor
    from spark_tui.core.finder import PresetFinder
    from spark_tui.core.fit import LaunchChecks, MemoryGate
    from spark_tui.core.gateway import Gateway
    from spark_tui.core.guard import Guard, GuardLauncher, LoadGuard
    from spark_tui.core.health import HealthWatch
    from spark_tui.core.history import History
    from spark_tui.core.hosts import Hosts
    from spark_tui.core.images import Images
    from spark_tui.core.install import Installer
    from spark_tui.core.last_launches import LastLaunches
    from spark_tui.core.launch import Launcher
    from spark_tui.core.library import Library
    from spark_tui.core.memory import BreakdownReader, MemoryInspector, MemoryWatch
    from spark_tui.core.metrics import EngineMetricsCollector
    from spark_tui.core.next_step import NextStep
    from spark_tui.core.node import Node
    from spark_tui.core.nodes import Nodes
    from spark_tui.core.pins import Pins
    from spark_tui.core.preflight import Preflight
    from spark_tui.core.prove import Prover
    from spark_tui.core.registries import RegistryManager
    from spark_tui.core.results import Results
    from spark_tui.core.rights import AllowedPresets
    from spark_tui.core.runner import JobRunner
    from spark_tui.core.secure import Securing
    from spark_tui.core.store import AlarmBoard
    from spark_tui.core.tune import Tuner
    from spark_tui.core.update import Updater
    from spark_tui.domain.engine.state import Endpoint
    from spark_tui.domain.gateway import GatewayPolicy
    from spark_tui.domain.host.guard import Policy
    from spark_tui.domain.host.vitals import GpuReading
    from spark_tui.domain.logs.view import EngineView
    from spark_tui.domain.presets.preset import PresetCatalogue
    from spark_tui.services.ports import (
        CheckpointSource,
        Clock,
        ContainerEngine,
        EngineApi,
        HostProbe,
        LogArchive,
        RecipeStore,
        SecretStore,
        UserFiles,
    )
    from spark_tui.services.settings import UserThemes


P = ParamSpec("P")
R = TypeVar("R")

DEMO_HOME: Final = Path("/home/spark")
"""The home of the simulated Spark's user."""
FIRST_GPU_SECONDS = 0.05
"""The first frame waits no longer for the GPU: its helper has answered by then, or does soon after it."""
METRICS_DELAY_SECONDS = 0.3
"""The first frame does not wait for what is not on it."""
OTHER_PARTS = ("metrics", "history", "health", "restart_breaker", "load_guard", "downloads", "launcher", "jobs")
"""Most of the core: a third of a second of imports."""
ENGINES_SECONDS = 2.0
"""The rest begins when the engines are listed, or after this long."""
GATEWAY_SECONDS = 5.0
CANARY_SECONDS = 3600.0
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
    "supervisor": ("engines:EngineSupervisor", lambda make, c: make(c.ports, c.store)),
    "metrics": (
        "metrics:EngineMetricsCollector", lambda make, c: make(c.ports.metrics, c.store, c.clock, c.endpoint_of)
    ),
    "history": (
        "history:History",
        lambda make, c: make(
            c.ports.history, c.clock, c.store,
            (lambda: c.guarding.journal.entries()) if c.ports.has("guarding") else None,  # noqa: PLW0108 - made when asked
        ),
    ),
    "collectors": (
        "collectors:Collectors",
        lambda make, c: make(
            c.store, c.ports, c.settings.refresh_seconds, c.memory_watch, c.gpu_read
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
            store=Path(c.paths.store), caches=Path(c.paths.caches), themes=lambda: c.user_themes().problems,
            guarded=c.guarding.journal.running if c.ports.has("guarding") else lambda: True,  # the demo's machine
            drifts=c.drifts,
        ),
    ),
    # models
    "library": (
        "library:Library",
        lambda make, c: make(c.ports.models, c.docker, c.presets, c.store, c.clock, c.paths.store, c.paths.home),
    ),
    "images": (
        "images:Images",
        lambda make, c: make(c.docker, c.presets, c.ports.get("history"), c.store, c.clock),
    ),
    "drafts": (
        "draft:Drafts",
        lambda make, c: make(
            c.library, c.checkpoints, c.hub, c.docker, c.presets, c.ports.get("recipes"), c.store, c.paths
        ),
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
    "next_step": (
        "next_step:NextStep",
        lambda make, c: make(
            c.library, c.checks, c.store, lambda: c.history.starts if c.ports.has("history") else ()
        ),
    ),
    # launching
    "preflight": ("preflight:Preflight", lambda make, c: make(c.docker, c.host, c.secrets, c.paths)),
    "checks": (
        "fit:LaunchChecks",
        lambda make, c: make(
            c.docker, c.host, c.secrets, c.preflight, c.checkpoints, c.store, lambda: c.history.starts,
            auto=c.settings.memory_share == "auto",
        ),
    ),
    "finder": (
        "finder:PresetFinder",
        lambda make, c: make(
            c.checks, c.results.all if c.ports.has("results") else tuple, lambda: c.history.starts, c.drifts
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
            c.guard_launcher, c.reviewed,
        ),
    ),
    "registries": (
        "registries:RegistryManager", lambda make, c: make(c.ports.registries, c.recipes, c.clock, c.presets.load)
    ),
    "editor": (
        "edit:Editor",
        lambda make, c: make(
            c.launcher, c.preflight, c.checks, c.docker, c.archive, c.secrets, c.ports.state, c.catalogue, c.history,
            c.in_flight, f"spark-tui on {c.host.identity().hostname} (pid {os.getpid()})",
        ),
    ),
    "pins": (
        "pins:Pins",
        lambda make, c: make(
            c.history, c.presets, c.ports.get("recipes"), c.docker, c.store,
            lambda: c.results.all() if c.ports.has("results") else (),
            lambda: c.ports.proofs.all() if c.ports.has("proofs") else (),
            c.reviewed,
        ),
    ),
    "updater": (
        "update:Updater",
        lambda make, c: make(
            c.docker, c.host, c.editor, c.launcher, c.supervisor, c.history, c.archive, c.ports.state, c.clock,
            c.catalogue,
        ),
    ),
    "last_launches": ("last_launches:LastLaunches", lambda make, c: make(c.ports.state, c.preflight)),
    "jobs": (
        "runner:JobRunner",
        lambda make, c: make(
            c.launcher, c.supervisor, c.store, c.editor, (lambda: c.clusters) if c.ports.has("remote_shell") else None,
            lambda: c.updater,
        ),
    ),
    "boot": ("boot:BootUnits", lambda make, c: make(c.ports.boot, c.supervisor, c.docker, c.clock)),
    "connector": (
        "connect:Connector",
        lambda make, c: make(c.ports.client_files, c.ports.state, c.secrets, c.api, c.host, c.clock),
    ),
    "new_gateway": ("gateway:Gateway", partial),  # made by the caller, with a policy
    "securing": ("secure:Securing", lambda make, c: make(c.presets, c.preflight, c.secrets)),
    # chat and bench
    "conversations": (
        "conversations:Conversations",
        lambda make, c: make(
            c.api, c.clock, c.presets, Path(c.paths.store),
            store=c.ports.get("conversations"),
            files=c.ports.get("user_files"),
            metrics=c.ports.get("metrics"), advise=c.chat_advice,
        ),
    ),
    "results": ("results:Results", lambda make, c: make(c.ports.results, c.clock)),
    "benchmark": (
        "bench:Benchmark",
        lambda make, c: make(
            c.ports.load, c.ports.metrics, c.docker, c.host, c.ports.gpu, c.supervisor, c.launcher, c.results, c.clock,
            c.guard_policy.serving_floor, c.ports.state, c.memory_gate, lambda: c.editor,
        ),
    ),
    "prover": ("prove:Prover", lambda make, c: make(c.api, c.benchmark, c.ports.proofs, c.store, c.clock)),
    "canary": (
        "canary:CanaryRunner",
        lambda make, c: make(
            c.benchmark, c.prover, c.supervisor, c.ports.history, c.ports.state, c.clock, c.in_flight
        ),
    ),
    "ab_planner": ("bench_ab:ABPlanner", lambda make, c: make(c.catalogue, c.preflight)),
    "tuner": (
        "tune:Tuner",
        lambda make, c: make(
            c.benchmark, c.ab_planner, c.launcher, c.supervisor, c.checks, c.memory_gate, c.checkpoints, c.history,
            c.catalogue, c.ports.get("recipes"), c.drafts, c.ports.state, c.clock,
            *([c.guarding.journal.entries] if c.ports.has("guarding") else []),
        ),
    ),
    # other machines
    "hosts": (
        "hosts:Hosts",
        lambda make, c: make(c.settings.hosts, c.ports.remote_shell, read_only=c.settings.read_only),
    ),
    "cluster_planner": (
        "cluster:ClusterPlanner",
        lambda make, c: make(
            c.settings.clusters, c.hosts, c.docker, c.preflight, c.checkpoints, c.nodes,
            auto=c.settings.memory_share == "auto",
        ),
    ),
    "clusters": (
        "cluster_launch:ClusterLauncher",
        lambda make, c: make(
            c.nodes, c.ports.state, c.archive, c.ports.get("watchers"), c.clock,
            f"{c.ports.dropper.user()[0]} on {c.host.identity().hostname}",
        ),
    ),
    "cluster_monitor": (
        "cluster_monitor:ClusterMonitor",
        lambda make, c: make(
            c.settings.clusters, c.clusters, c.nodes, c.store, c.clock,
            *((c.history.note,) if c.ports.has("history") else ()),
        ),
    ),
    "node": (
        "node:Node",
        lambda make, c: make(
            c.docker, c.api, c.ports.metrics, c.host, c.ports.get("fabric"), c.secrets, c.archive, c.ports.state,
            lambda: c.cache, lambda: c.guard_launcher, c.ports.gpu, c.ports.vitals, c.ports.get("routers"), c.clock,
            c.paths, lambda: c.ports.models,
        ),
    ),
    "nodes": ("nodes:Nodes", lambda make, c: make(c.settings.hosts, c.ports.remote_shell, c.host)),
    "cluster_copier": ("copying:ClusterCopier", lambda make, c: make(c.settings.clusters, c.nodes)),
    "node_copier": (
        "copying:NodeCopier",
        lambda make, c: make(c.docker, c.host, c.ports.models, c.ports.transfers, c.clock, Path(c.paths.store)),
    ),
    "examiner": (
        "cluster_doctor:NodeExaminer",
        lambda make, c: make(
            c.docker, c.host, c.ports.doctor_probe, c.ports.fabric, c.ports.models, c.clock, c.paths
        ),
    ),
    "cluster_doctor": ("cluster_doctor:ClusterDoctor", lambda make, c: make(c.nodes, c.ports.state, c.clock)),
    "installer": (
        "install:Installer",
        lambda make, c: make(c.settings.hosts, c.nodes, c.ports.remote_shell, c.ports.program),
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
    presets: AllowedPresets
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
    images: Images
    hub: Hub
    drafts: Drafts
    downloads: Downloads
    fetching: LaunchDownloads | None
    preflight: Preflight
    checks: LaunchChecks
    finder: PresetFinder
    memory_gate: MemoryGate
    launcher: Launcher
    editor: Editor
    pins: Pins
    updater: Updater
    last_launches: LastLaunches
    jobs: JobRunner
    boot: BootUnits
    connector: Connector
    new_gateway: Callable[[GatewayPolicy], Gateway]
    securing: Securing
    conversations: Conversations
    registries: RegistryManager
    results: Results
    benchmark: Benchmark
    prover: Prover
    canary: CanaryRunner
    ab_planner: ABPlanner
    tuner: Tuner
    hosts: Hosts
    cluster_planner: ClusterPlanner
    nodes: Nodes
    installer: Installer
    node: Node
    examiner: NodeExaminer
    cluster_doctor: ClusterDoctor
    clusters: ClusterLauncher
    cluster_copier: ClusterCopier
    node_copier: NodeCopier
    cluster_monitor: ClusterMonitor
    next_step: NextStep

    def __init__(self, settings: Settings, ports: Ports, paths: HostPaths, *, demo: bool = False) -> None:
        self.settings = settings
        self.demo = demo
        self.ports = ports
        self.paths = paths
        self._presets_read = asyncio.Event()

    if not TYPE_CHECKING:  # a name that is no part stays an error of the type checker

        def __getattr__(self, name: str) -> Any:
            if name in PORTS:
                return getattr(self.ports, name)
            if name not in PARTS:
                raise AttributeError(f"Context has no part {name!r}")
            place, make = PARTS[name]
            part = make(class_at(f"spark_tui.core.{place}"), self)
            return vars(self).setdefault(name, part)

    # --- what parts are given -------------------------------------------------------------------------

    @cached_property
    def store(self) -> Store:
        """The World."""
        return Store(self.clock)

    def reviewed(self, preset: Preset) -> None:
        """Raises NotReviewed for a recipe of a registry that the person has not approved, NotAllowed for one that
        takes rights over the machine which the person has not allowed it."""
        from spark_tui.domain.presets.rights import require_allowed

        if preset.origin is Origin.REGISTRY:
            self.registries.check(preset)
        require_allowed(preset)

    def drifts(self, presets: Iterable[Preset]) -> Mapping[str, Finding]:
        """Copies of registries' recipes that are outdated, by the preset's name."""
        copies = tuple(each for each in presets if each.facts.copy_of is not None)
        return self.registries.drifts(copies) if copies and self.ports.has("registries") else {}

    def endpoint_of(self, name: str) -> Endpoint | None:
        """Where that engine's server is."""
        watch = self.supervisor.find(name)
        return watch.endpoint if watch else None

    async def in_flight(self, name: str) -> int | None:
        """How many requests that engine answers now, by its last metrics, else by asking it; None where it does not
        say."""
        from spark_tui.domain.metrics.page import Family

        latest = value_of(self.metrics.current(name)) if "metrics" in vars(self) else None
        running = value_of(latest.running) if latest is not None else None
        endpoint = self.endpoint_of(name)
        if running is None and endpoint is not None:
            try:
                running = (await self.ports.metrics.read(endpoint)).total(Family.RUNNING)
            except SparkError:
                return None
        return None if running is None else int(running)

    def gpu_read(self, reading: Reading[GpuReading]) -> None:
        """Watched for a stuck power state once the program stays."""
        if "health" in vars(self):
            self.health.gpu_read(reading)

    def chat_advice(self, error: SparkError, target: ChatTarget) -> SparkError:
        """The error of an answer, with what this program knows of the engine."""
        from spark_tui.core.chat import advised

        views: tuple[EngineView, ...] = value_of(self.store.world.engines) or ()
        return advised(error, target, self.secrets.path(target.engine), views)

    @property
    def config(self) -> Config | None:
        """The settings, to change them; None in a demo."""
        folders = self.ports.get("folders")
        return None if self.demo or folders is None else open_config(folders, self.ports.get("environ") or {})

    def user_themes(self) -> UserThemes:
        """The user's own themes, read now: call it in a thread."""
        from spark_tui.services.settings import UserThemes, read_themes

        folders = self.ports.get("folders")
        return UserThemes() if folders is None else read_themes(folders.themes)

    def catalogue(self) -> PresetCatalogue:
        """The presets as they were read last."""
        known = self.store.world.presets
        return known if known.presets else self.presets.load()

    # --- running --------------------------------------------------------------------------------------

    async def remember(self) -> None:
        """From here on earlier starts are known, and those that end are kept."""
        await self.history.load()
        self.supervisor.on_views = self.history.observe
        self.supervisor.baseline = lambda container: self.results.baseline(container)  # noqa: PLW0108 - made when asked

    def start_early(self) -> None:
        """Starts the GPU's helper process, which reads while this one imports the screen."""
        if not self.demo:
            self.ports.gpu.start()

    async def first_figures(self) -> None:
        """This machine's name and memory, from a few small files, and the GPU if its helper has answered: for the first
        frame. A simulated machine is made after it."""
        if not self.demo:
            self.collectors.sample_identity()
            self.collectors.sample_host()
            await self.collectors.sample_gpu(FIRST_GPU_SECONDS)

    def preload(self, names: Iterable[str]) -> None:
        """Imports those parts of the core, and makes nothing: may be called in a thread."""
        for name in names:
            class_at(f"spark_tui.core.{PARTS[name][0]}")

    async def run(self) -> None:
        """Collects and watches until cancelled; the TUI runs this beside its own loop. A part that fails is begun
        again, and ends no other."""
        await self._keep("Start", self._run_parts)

    async def _run_parts(self) -> None:
        """Memory and GPU come first, then the engines: nothing else is imported before they are listed."""
        async with asyncio.TaskGroup() as group:
            await self.in_thread(self.ports.preload, ("host", "gpu"))
            group.create_task(self._keep("Collectors", self.collectors.run))
            await self.in_thread(self.preload, ("supervisor",))
            group.create_task(self._keep("Engines", self.supervisor.run))
            await self.supervisor.listed(ENGINES_SECONDS)
            group.create_task(self._keep("Presets", self._read_presets))
            await pause(self.clock, ENGINES_SECONDS, self._presets_read)
            await self.in_thread(self.preload, OTHER_PARTS)  # keys are answered meanwhile
            group.create_task(self._keep("History", self._remember_on))
            group.create_task(self._keep("Metrics", self._collect_metrics))
            group.create_task(self._keep("Health checks", self.health.run))
            group.create_task(self._keep("Restart loops", self.restart_breaker.run))
            if self.guard_launcher is not None:
                group.create_task(self._keep("Memory guard", self.guard_launcher.run))
            group.create_task(self._keep("Downloads", self._follow_downloads))
            if not self.settings.read_only:  # the last step of a launch is a request to the engine
                group.create_task(self._keep("Launches", self.jobs.resume_starting))
            if self.settings.clusters and self.ports.has("remote_shell"):
                await self.in_thread(self.preload, ("cluster_monitor",))
                group.create_task(self._keep("Clusters", self.cluster_monitor.run))
            if self.ports.has("state"):
                group.create_task(self._keep("Gateway", self._watch_gateway))
            if self.ports.has("boot"):
                await self.in_thread(self.preload, ("boot",))
                group.create_task(self._keep("Boot units", self._look_at_boot))

    async def _keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        await keep(name, work, self.clock, self.store.fail)

    async def _watch_gateway(self) -> None:
        """What a gateway of this machine says of itself."""
        from spark_tui.core.gateway import read_status

        while True:
            with suppress(SparkError):  # a file that cannot be read: as if there were none
                self.store.update(gateway=await self.in_thread(read_status, self.ports.state))
            await self.clock.sleep(GATEWAY_SECONDS)

    async def _look_at_boot(self) -> None:
        """Which engines start with the machine or at set times: once, and after each change here."""
        try:
            self.store.update(boot=await self.boot.look(), schedules=await self.boot.look_at_schedules())
        except SparkError as error:
            self.store.fail(error)

    async def _read_presets(self) -> None:
        self.store.update(presets=await self.in_thread(lambda: self.presets.load()))  # noqa: PLW0108 - made there
        self._presets_read.set()

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
        await self.remember()
        self.metrics.subscribe(self.history.note)
        self.history.observe(self.supervisor.views())
        await asyncio.gather(self._keep("History", self.history.run), self._keep("Canary", self._watch_canary))

    async def _watch_canary(self) -> None:
        """What the nights show, once an hour; where none was measured, nothing is imported for it."""
        while True:
            if value_of(await self.ports.history.records("canary", limit=1)):
                from spark_tui.core.canary import show_changes

                await show_changes(self.ports.history, self.clock, self.alarms)
            await self.clock.sleep(CANARY_SECONDS)

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
    settings: Settings | None = None, folders: Folders | None = None, *, clock: Clock | None = None
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Of `settings` only the looks count, and read-only. Uses no
    Docker; a saved log is a real file."""
    simulated, given = folders_of({}, DEMO_HOME), settings or Settings()
    shown = replace(
        defaults(simulated), read_only=given.read_only, refresh_seconds=given.refresh_seconds,
        theme=given.theme, glyphs=given.glyphs, keymap=given.keymap, notify=given.notify,
    )  # fmt: skip
    return Context(shown, demo_ports(folders, clock), _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
