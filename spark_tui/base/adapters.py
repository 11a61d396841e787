"""The ports that a program has, each adapter imported and made when it is first used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from spark_tui.base import ports as types
from spark_tui.base.errors import RefusedError
from spark_tui.base.feature import Adapter, named

_ABSENT: Final = {
    "guarding": "The memory guard is",
    "user_files": "Files are",
    "fabric": "Checks of a cluster are",
    "remote_shell": "Remote hosts are",
    "watchers": "Clusters are",
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
