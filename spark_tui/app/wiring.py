"""The program put together: adapters of this machine and of the simulated one, those of the rooms, and the context."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from msgspec.structs import replace

from spark_tui.app.rooms import ROOMS, Rooms
from spark_tui.base.context import Context, Ports
from spark_tui.base.feature import Adapter
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import Clock
from spark_tui.base.settings import DEMO_HOME, Folders, Settings, defaults, folders_of, gguf_folders, hub_caches

_SHARED: Final[Mapping[str, Adapter]] = {
    "clock": ("spark_tui.base.executors:SystemClock", None),
    "archive": ("spark_tui.base.files:FileLogArchive", lambda make, p: make(p.folders.logs)),
    "screen_files": ("spark_tui.base.files:ScreenFolder", lambda make, p: make(p.folders.state)),
}

MACHINE: Final[Mapping[str, Adapter]] = {
    **_SHARED,
    "docker": (
        "spark_tui.machine.docker.engine:DockerEngine",
        lambda make, p: make(p.docker_environ, port_owner=p.host.port_owner),
    ),
    "api": ("spark_tui.machine.engine_api:VllmApi", None),
    "metrics": ("spark_tui.machine.engine_api:HttpMetrics", None),
    "host": ("spark_tui.machine.procfs:ProcfsHost", None),
    "vitals": ("spark_tui.machine.vitals:HostVitals", None),
    "gpu": ("spark_tui.machine.nvml:NvmlGpu", lambda make, p: make(p.clock)),
    "boot": (
        "spark_tui.machine.systemd:SystemdUnits",
        lambda make, p: make(p.folders.home, p.environ, p.dropper, str(p.folders.config)),
    ),
    "user_files": ("spark_tui.base.files:SystemUserFiles", lambda make, p: make(p.folders.home)),
    "secrets": ("spark_tui.machine.secrets:own_secrets", lambda make, p: make(p)),
    "state": ("spark_tui.base.files:StateFolder", lambda make, p: make(p.folders.state / "launches")),
    "remote_shell": ("spark_tui.machine.ssh:SshHosts", lambda make, p: make(p.environ)),
    "watchers": (
        "spark_tui.machine.detached:DetachedWatchers",
        lambda make, p: make(p.folders.state / "clusters", p.environ),
    ),
    "routers": (
        "spark_tui.machine.detached:DetachedRouters",
        lambda make, p: make(p.folders.state / "clusters", p.environ),
    ),
}

SIMULATED: Final[Mapping[str, Adapter]] = {
    **_SHARED,
    "world": ("spark_tui.simulator.world:DemoWorld", lambda make, p: make(p.clock)),
    "simulator": (
        "spark_tui.simulator.spark:SimulatedSpark",
        lambda make, p: make(p.world, p.demo_folder.path / "wire"),
    ),
    "docker": (
        "spark_tui.machine.docker.engine:DockerEngine",
        lambda make, p: p.simulator.reached_by(
            make(p.simulator.docker_environ, port_owner=p.host.port_owner, read_env_file=p.key_folder.content)
        ),
    ),
    "api": (
        "spark_tui.machine.engine_api:VllmApi",
        lambda make, p: p.simulator.reached_by(make(uds=p.simulator.socket), ask=p.simulator.ask),
    ),
    "metrics": (
        "spark_tui.machine.engine_api:HttpMetrics",
        lambda make, p: p.simulator.reached_by(make(uds=p.simulator.socket)),
    ),
    "machine": (
        "spark_tui.simulator.machine:Machine",
        lambda make, p: make(p.world, p.demo_folder, lambda: p.downloader.rate if "downloader" in p.made() else 0.0),
    ),
    "host": (
        "spark_tui.simulator.machine:SimulatedHost",
        lambda make, p: p.machine.fresh(make(p.machine.root, now=p.clock.now)),
    ),
    "vitals": (
        "spark_tui.machine.vitals:HostVitals",
        lambda make, p: p.machine.fresh(make(p.machine.root, monotonic=p.clock.monotonic, now=p.clock.now)),
    ),
    "gpu": ("spark_tui.simulator.machine:SimulatedGpu", lambda make, p: make(p.world)),
    "dropper": ("spark_tui.simulator.machine:SimulatedDropper", lambda make, p: make(p.machine)),
    "boot": ("spark_tui.simulator.machine:SimulatedUnits", None),
    "doctor_probe": (
        "spark_tui.simulator.machine:SimulatedDoctor",
        lambda make, p: p.machine.fresh(make({"HOME": str(p.machine.root)}, p.machine.root)),
    ),
    "demo_folder": ("spark_tui.simulator.folder:DemoFolder", None),  # what is kept there lasts as long as the program
    "folders": (
        "spark_tui.simulator.folder:own_folders",
        lambda make, p: make(p.demo_folder),
    ),  # without those of a user
    "recipes": (
        "spark_tui.simulator.folders:DemoRecipes",
        lambda make, p: make(p.folder_recipes, p.demo_folder.path),
    ),
    "checkpoints": ("spark_tui.simulator.models:DemoModels", lambda _, p: p.models),
    "models": ("spark_tui.simulator.models:DemoModels", lambda make, p: make(p.clock)),
    "simulated_hub": (
        "spark_tui.simulator.hub:SimulatedHub",
        lambda make, p: make(p.clock, p.demo_folder.path / "hub.sock"),
    ),
    "hub": (
        "spark_tui.catalog.models.adapter.hub_client:HuggingFaceHub",
        lambda make, p: p.simulated_hub.reached_by(
            make({"HF_ENDPOINT": p.simulated_hub.endpoint}, uds=p.simulated_hub.socket)
        ),
    ),
    "downloader": ("spark_tui.simulator.downloads:DemoDownloads", lambda make, p: make(p.clock, p.models)),
    "history": (
        "spark_tui.simulator.history:SimulatedHistory",
        lambda make, p: make(p.demo_folder.path / "history", p.world),
    ),
    "load": ("spark_tui.simulator.load:DemoLoad", lambda make, p: make(p.world)),
    "key_folder": (
        "spark_tui.simulator.folder:SimulatedFolder",
        lambda make, p: make(DEMO_HOME / ".config/spark-tui/secrets", p.demo_folder.path / "secrets"),
    ),
    "secrets": ("spark_tui.machine.secrets:FileSecrets", lambda make, p: make(p.key_folder, {}, p.demo_folder.path)),
    "state": ("spark_tui.base.files:StateFolder", lambda make, p: make(p.demo_folder.path / "launches")),
}


class Adapters(Mapping[str, Adapter]):
    """Adapters by their ports' names. What a room has is read when no one before it has that name."""

    def __init__(self, rooms: Rooms = ROOMS, *, demo: bool = False) -> None:
        self._rooms = rooms
        self._demo = demo

    def _tables(self) -> Iterator[Mapping[str, Adapter]]:
        yield SIMULATED if self._demo else MACHINE
        for each in self._rooms.features():
            yield each.demo if self._demo else each.real

    def __getitem__(self, name: str) -> Adapter:
        for table in self._tables():
            if name in table:
                return table[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._tables())

    def __len__(self) -> int:
        return sum(map(len, self._tables()))


def real_ports(
    settings: Settings, folders: Folders, environ: Mapping[str, str], rooms: Rooms = ROOMS, **given: Any
) -> Ports:
    """This machine. Docker is the settings' own, else that of DOCKER_HOST or of the current context. `given` are ports
    that are made already."""
    host = settings.docker_host
    docker_environ = {**environ, "DOCKER_HOST": host} if host else environ
    given = {"folders": folders, "environ": environ, "docker_environ": docker_environ, **given}
    return Ports(Adapters(rooms), settings=settings, **given)


def demo_ports(rooms: Rooms = ROOMS, **given: Any) -> Ports:
    """One simulated Spark behind all ports. Logs that the person saves are real files in `folders.logs`; without
    `folders` they last as long as the program. `given` are ports that are made already."""
    known = {name: value for name, value in given.items() if value is not None}
    return Ports(Adapters(rooms, demo=True), **known)


def build(settings: Settings, folders: Folders, environ: Mapping[str, str], rooms: Rooms = ROOMS) -> Context:
    """This machine."""
    return Context(
        settings,
        real_ports(settings, folders, environ, rooms),
        replace(
            _host_paths(settings, folders),
            hubs=hub_caches(settings, environ, folders.home),
            tools=tuple(gguf_folders(environ, folders.home)),
        ),
    )


def build_demo(
    settings: Settings | None = None,
    folders: Folders | None = None,
    *,
    clock: Clock | None = None,
    rooms: Rooms = ROOMS,
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Of `settings` only the looks count, and read-only. Uses no
    Docker; a saved log is a real file."""
    simulated, given = folders_of({}, DEMO_HOME), settings or Settings()
    shown = replace(
        defaults(simulated),
        read_only=given.read_only,
        refresh_seconds=given.refresh_seconds,
        theme=given.theme,
        glyphs=given.glyphs,
        keymap=given.keymap,
        notify=given.notify,
    )
    ports = demo_ports(rooms, folders=folders, clock=clock)
    return Context(shown, ports, _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    return HostPaths(str(settings.store), str(settings.caches), str(folders.home), owner=(os.getuid(), os.getgid()))
