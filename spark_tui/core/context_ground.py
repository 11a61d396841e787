"""The composition root's ground: the ports, the World, and the engines under watch."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from spark_tui.core.store import Store
from spark_tui.domain.errors import RefusedError
from spark_tui.domain.settings import Settings

if TYPE_CHECKING:
    from spark_tui.core.context_ports import Ports
    from spark_tui.core.demo_ports import DemoPorts
    from spark_tui.core.engines import EngineSupervisor
    from spark_tui.core.history import History
    from spark_tui.core.hosts import Hosts
    from spark_tui.core.metrics import EngineMetricsCollector
    from spark_tui.core.real_ports import RealPorts
    from spark_tui.domain.engine.endpoint import Endpoint
    from spark_tui.domain.host.paths import HostPaths
    from spark_tui.services.ports import (
        CheckpointSource,
        Clock,
        ContainerEngine,
        EngineApi,
        HostProbe,
        LogArchive,
        PresetSource,
        RecipeShelf,
        SecretStore,
    )
    from spark_tui.services.ports_chat import PersonFiles


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
        from spark_tui.core.fitting import NoCheckpoints

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
