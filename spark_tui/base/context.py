"""What one program is made of: settings, ports, and the use cases on them, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from spark_tui.base.adapters import GuardPorts, Ports
from spark_tui.base.executors import in_thread
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
