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
    from spark_tui.core.budget import LaunchBudget
    from spark_tui.core.cache import CacheControl
    from spark_tui.core.collectors import Collectors
    from spark_tui.core.engines import EngineSupervisor
    from spark_tui.core.fitting import Fitting
    from spark_tui.core.guard import Guard, LoadGuard, OnEntry
    from spark_tui.core.job_runner import JobRunner
    from spark_tui.core.launch import Launcher
    from spark_tui.core.preflight import Preflight
    from spark_tui.core.preset_checks import PresetChecks
    from spark_tui.domain.host.guard import Policy
    from spark_tui.domain.host.paths import HostPaths
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
    def host(self) -> HostProbe:
        """/proc and /sys."""
        from spark_tui.services.procfs import ProcfsHost

        return ProcfsHost()

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

        return Fitting(self.checkpoints, self.preflight, self.host, self.store)

    @cached_property
    def checkpoints(self) -> CheckpointSource:
        """Checkpoints in the store; in a simulation there are none."""
        from spark_tui.core.fitting import NoCheckpoints

        return self._ports.checkpoints or NoCheckpoints()

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
            self.store, self.clock, ports.host, ports.gpu, ports.docker, ports.presets, self.settings.refresh_seconds
        )

    async def run(self) -> None:
        """Collects and watches until cancelled; the TUI runs this beside its own loop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.collectors.run())
            group.create_task(self.supervisor.run())
            if not self.settings.read_only:  # the last step of a launch is a request to the engine
                group.create_task(self.jobs.resume_starting())

    async def close(self) -> None:
        """Ends jobs, streams, connections and helper processes. Containers go on."""
        for part in ("jobs", "supervisor"):
            if part in vars(self):
                await getattr(self, part).close()
        for port in ("gpu", "api", "docker", "dropper"):
            if vars(self._ports).get(port) is not None:
                await getattr(self._ports, port).close()


def read_settings(folders: Folders, environ: Mapping[str, str]) -> Settings:
    """Defaults, the settings file, the environment. Raises SettingsError."""
    from spark_tui.services.settings import load_settings

    return load_settings(environ, folders)


def build(settings: Settings, folders: Folders, environ: Mapping[str, str]) -> Context:
    """The real world."""
    return Context(settings, RealPorts(settings, folders, environ), _host_paths(settings, folders))


def build_demo(
    settings: Settings | None = None, folders: Folders | None = None, *, seed: int = 0, clock: Clock | None = None
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Touches no Docker; a saved log is a real file."""
    from spark_tui.services.clock import SystemClock
    from spark_tui.services.demo.api import DemoApi
    from spark_tui.services.demo.caches import DemoDropper
    from spark_tui.services.demo.docker import DemoDocker
    from spark_tui.services.demo.host import DemoGpu, DemoHost
    from spark_tui.services.demo.secrets import DemoSecrets
    from spark_tui.services.demo.world import DemoWorld
    from spark_tui.services.files import FileLogArchive
    from spark_tui.services.preset_files import PresetFiles, builtin_directory
    from spark_tui.services.preset_imports import FolderRecipeShelf

    simulated = folders_of({}, Path("/home/spark"))
    clock = clock or SystemClock()
    world = DemoWorld(clock, seed)
    host = DemoHost(world)
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
        recipes=FolderRecipeShelf(None),
    )
    told = settings or Settings()
    shown = replace(defaults(simulated), read_only=told.read_only, refresh_seconds=told.refresh_seconds)
    return Context(shown, ports, _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    from spark_tui.domain.host.paths import HostPaths

    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
