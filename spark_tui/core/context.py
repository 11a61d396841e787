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
    from spark_tui.core.collectors import Collectors
    from spark_tui.core.engines import EngineSupervisor
    from spark_tui.core.job_runner import JobRunner
    from spark_tui.core.launch import Launcher
    from spark_tui.core.preflight import Preflight
    from spark_tui.domain.host.paths import HostPaths
    from spark_tui.services.ports import (
        Clock,
        ContainerEngine,
        EngineApi,
        GpuProbe,
        HostProbe,
        LogArchive,
        PresetSource,
        SecretStore,
    )

DEMO_IMAGES = ("vllm/vllm-openai:nightly",)
"""Here from the start in the demo; other images are pulled, which the demo shows too."""


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

        return EngineSupervisor(self.docker, self.api, self.secrets, self.store, self.clock)

    @cached_property
    def preflight(self) -> Preflight:
        """Checks before a launch."""
        from spark_tui.core.preflight import Preflight

        return Preflight(self.docker, self.host, self.secrets, self._paths)

    @cached_property
    def launcher(self) -> Launcher:
        """Launches."""
        from spark_tui.core.launch import Launcher

        return Launcher(self.docker, self.api, self.archive, self.supervisor, self.preflight, self.clock)

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
        for port in ("gpu", "api", "docker"):
            if port in vars(self._ports):
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
    from spark_tui.services.demo.docker import DemoDocker
    from spark_tui.services.demo.host import DemoGpu, DemoHost
    from spark_tui.services.demo.secrets import DemoSecrets
    from spark_tui.services.demo.world import DemoWorld
    from spark_tui.services.files import FileLogArchive
    from spark_tui.services.preset_files import PresetFiles, builtin_directory

    simulated = folders_of({}, Path("/home/spark"))
    clock = clock or SystemClock()
    world = DemoWorld(clock, seed)
    ports = Ports(
        clock=clock,
        docker=DemoDocker(world, images=DEMO_IMAGES),
        api=DemoApi(world),
        host=DemoHost(world),
        gpu=DemoGpu(world),
        presets=PresetFiles(builtin_directory()),
        secrets=DemoSecrets(world),
        archive=FileLogArchive((folders or simulated).logs),
    )
    told = settings or Settings()
    shown = replace(defaults(simulated), read_only=told.read_only, refresh_seconds=told.refresh_seconds)
    return Context(shown, ports, _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    from spark_tui.domain.host.paths import HostPaths

    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
