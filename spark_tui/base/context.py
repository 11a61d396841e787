"""What one program is made of: settings, ports, and the use cases on them, each made when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from msgspec import Struct

from spark_tui.base import ports as types
from spark_tui.base.errors import RefusedError
from spark_tui.base.executors import in_thread
from spark_tui.base.feature import Adapter, named
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import (
    PORT_NAMES,
    CheckpointSource,
    Clock,
    ContainerEngine,
    EngineApi,
    HostProbe,
    LogArchive,
    SecretStore,
    UserFiles,
)
from spark_tui.base.settings import Settings
from spark_tui.base.store import AlarmBoard, Store

_ABSENT: Final = {
    "guarding": "The memory guard is",
    "user_files": "Files are",
    "fabric": "Checks of a cluster are",
    "remote_shell": "Remote hosts are",
    "watchers": "Clusters are",
    "node_plans": "Clusters are",
    "transfers": "Copies between machines are",
    "ollama": "Ollama's models are",
    "registries": "Registries are",
    "program": "Remote hosts are",
    "gateway_server": "The gateway is",
}


class Ports:
    """The ports by name, each adapter imported and made when it is first used. Those of a room have no attribute here:
    their adapter is `context[Protocol]`.

    `given` are ports that are made already, and what the adapters are made of. A port without an adapter raises
    RefusedError when it is used: the demo has no other machines, no files of the person's, and no guard.
    """

    clock: types.Clock
    docker: types.ContainerEngine
    api: types.EngineApi
    metrics: types.MetricsSource
    host: types.HostProbe
    vitals: types.VitalsProbe
    gpu: types.GpuProbe
    dropper: types.CacheDropper
    guarding: GuardPorts
    boot: types.Units
    doctor_probe: types.DoctorProbe
    checkpoints: types.CheckpointSource
    user_files: types.UserFiles
    secrets: types.SecretStore
    state: types.StateFiles
    archive: types.LogArchive
    screen_files: types.ScreenFiles
    remote_shell: types.RemoteShell
    launches: type[Any]  # made of the context: what keeps the launches on several nodes in the World

    def __init__(self, adapters: Mapping[str, Adapter], **given: Any) -> None:
        self._adapters = adapters
        vars(self).update(given)

    def has(self, name: str) -> bool:
        """Whether that port has an adapter."""
        return name in self._adapters or name in vars(self)

    def __getitem__(self, name: str) -> Any:
        """That port, for a module that must not know its Protocol. Raises RefusedError without an adapter."""
        return getattr(self, name)

    def get(self, name: str) -> Any:
        """That port, None without an adapter."""
        return self[name] if self.has(name) else None

    def preload(self, names: Iterable[str]) -> None:
        """Imports those adapters, and makes none: may be called in a thread."""
        for name in names:
            if name in self._adapters:
                named(self._adapters[name][0])

    def made(self) -> tuple[str, ...]:
        """The names of what was used so far."""
        return tuple(vars(self))

    if not TYPE_CHECKING:  # a name that is no port stays an error of the type checker

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            if name not in self._adapters:
                raise RefusedError(f"{_ABSENT.get(name, name)} not available in the demo.", "Start without --demo.")
            place, make = self._adapters[name]
            adapter = named(place)
            return vars(self).setdefault(name, make(adapter, self) if make else adapter())


class GuardPorts(Struct, frozen=True):
    """What the memory guard works with."""

    actuator: types.GuardActuator
    journal: types.GuardJournal
    units: types.Units
    starter: types.GuardStarter | None = None


# --- context ---------------------------------------------------------------------------------------------


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PORTS_TO_CLOSE = (
    "load", "metrics", "gpu", "api", "docker", "dropper",
    "models", "hub", "downloader", "conversations", "user_files", "history",
)  # fmt: skip
"""After the parts, which use them."""
PORTS = (
    "clock", "docker", "api", "host", "secrets", "archive", "checkpoints", "user_files",
    "guarding",
)  # fmt: skip
"""Ports that are attributes of the context too."""


class Context:
    """Everything that a front end needs. `context[Launcher]` is the one Launcher, made when
    it is first asked for."""

    clock: Clock
    docker: ContainerEngine
    api: EngineApi
    host: HostProbe
    secrets: SecretStore
    archive: LogArchive
    checkpoints: CheckpointSource
    user_files: UserFiles
    guarding: GuardPorts

    def __init__(self, settings: Settings, ports: Ports, paths: HostPaths, *, demo: bool = False) -> None:
        self.settings = settings
        self.demo = demo
        self.ports = ports
        self.paths = paths
        self.store = Store(ports.clock)
        self.alarms = AlarmBoard(self.store)
        self._made: dict[Callable[..., Any], Any] = {}

    if not TYPE_CHECKING:  # a name that is no port stays an error of the type checker

        def __getattr__(self, name: str) -> Any:
            if name not in PORTS:
                raise AttributeError(f"Context has no {name!r}")
            return getattr(self.ports, name)

    def __getitem__(self, kind: type[T]) -> T:
        """The one object of that class, which `from_context` makes; of a port its adapter. Raises RefusedError for a
        port without one."""
        if kind in PORT_NAMES:
            adapter: T = self.ports[PORT_NAMES[kind]]
            return adapter
        if kind not in self._made:
            self._made[kind] = kind.from_context(self)  # type: ignore[attr-defined]
        part: T = self._made[kind]
        return part

    def find(self, kind: type[T]) -> T | None:
        """The adapter of that port, None without one."""
        return self[kind] if self.ports.has(PORT_NAMES[kind]) else None

    def once(self, make: Callable[[Context], T]) -> T:
        """What that function makes of this context: the same each time."""
        if make not in self._made:
            self._made[make] = make(self)
        part: T = self._made[make]
        return part

    def made(self, kind: type[T]) -> T | None:
        """The object of that class, if it was asked for."""
        return self._made.get(kind)

    async def in_thread(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a short blocking call, on threads of a bounded pool."""
        return await in_thread(call, *args, **kwargs)

    async def close(self) -> None:
        """Ends jobs, streams, connections and helper processes, the last made first. Containers keep running."""
        for part in reversed(tuple(self._made.values())):
            if hasattr(part, "close"):
                await part.close()
        for port in PORTS_TO_CLOSE:
            if port in self.ports.made():
                await getattr(self.ports, port).close()
