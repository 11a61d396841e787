"""The composition root: the only place that names concrete adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spark_tui.core.collectors import Collectors
from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.job_runner import JobRunner
from spark_tui.core.launch import Launcher
from spark_tui.core.preflight import Preflight
from spark_tui.core.store import Store
from spark_tui.domain.presets.plan import HostPaths
from spark_tui.domain.settings import Folders, Settings, defaults, folders_of
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


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside world, real or simulated."""

    clock: Clock
    docker: ContainerEngine
    api: EngineApi
    host: HostProbe
    gpu: GpuProbe
    presets: PresetSource
    secrets: SecretStore
    archive: LogArchive


class Context:
    """Everything that a front end needs, put together once."""

    def __init__(self, settings: Settings, ports: Ports, paths: HostPaths, *, demo: bool = False) -> None:
        self.settings = settings
        self.demo = demo
        self.clock = ports.clock
        self.docker = ports.docker
        self.api = ports.api
        self.host = ports.host
        self.presets = ports.presets
        self.secrets = ports.secrets
        self.archive = ports.archive
        self._gpu = ports.gpu
        self.store = Store(ports.clock)
        self.supervisor = EngineSupervisor(ports.docker, ports.api, ports.secrets, self.store, ports.clock)
        self.preflight = Preflight(ports.docker, ports.host, ports.secrets, paths)
        self.launcher = Launcher(ports.docker, ports.api, ports.archive, self.supervisor, self.preflight, ports.clock)
        self.jobs = JobRunner(self.launcher, self.supervisor, self.store)
        self.collectors = Collectors(
            self.store, ports.clock, ports.host, ports.gpu, ports.docker, ports.presets, settings.refresh_seconds
        )

    async def run(self) -> None:
        """Collects and watches until cancelled; the TUI runs this beside its own loop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.collectors.run())
            group.create_task(self.supervisor.run())

    async def close(self) -> None:
        """Ends jobs, streams, connections and helper processes. Containers go on."""
        await self.jobs.close()
        await self.supervisor.close()
        await self._gpu.close()
        await self.api.close()
        await self.docker.close()


def read_settings(folders: Folders, environ: Mapping[str, str]) -> Settings:
    """Defaults, the settings file, the environment. Raises SettingsError."""
    from spark_tui.services.settings import load_settings

    return load_settings(environ, folders)


def build(settings: Settings, folders: Folders, environ: Mapping[str, str]) -> Context:
    """The real world. Adapters are imported here, and their SDKs only when they are first used."""
    from spark_tui.services.clock import SystemClock
    from spark_tui.services.docker_engine import DockerEngine
    from spark_tui.services.files import FileLogArchive, PrivateFolder
    from spark_tui.services.nvml import NvmlGpu
    from spark_tui.services.preset_files import PresetFiles, builtin_directory
    from spark_tui.services.procfs import ProcfsHost
    from spark_tui.services.secrets import FileSecrets
    from spark_tui.services.vllm_api import VllmApi

    clock, host = SystemClock(), ProcfsHost()
    docker_environ = {**environ, "DOCKER_HOST": settings.docker_host} if settings.docker_host else environ
    ports = Ports(
        clock=clock,
        docker=DockerEngine(docker_environ, port_owner=host.port_owner),
        api=VllmApi(),
        host=host,
        gpu=NvmlGpu(clock),
        presets=PresetFiles(builtin_directory(), settings.presets),
        secrets=FileSecrets(PrivateFolder(folders.secrets), environ, folders.home),
        archive=FileLogArchive(folders.logs),
    )
    return Context(settings, ports, _host_paths(settings, folders))


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
    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
