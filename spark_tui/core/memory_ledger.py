"""The ledger of the unified memory, out of what the World knows."""

from __future__ import annotations

from collections.abc import Mapping

from spark_tui.core.store import World
from spark_tui.domain.host.ledger import Ledger, ledger
from spark_tui.domain.reading import Missing, Ok, Reading, Stale, value_of
from spark_tui.services.ports import HostProbe

_MOST_REMEMBERED = 256


class LedgerReader:
    """Cuts the pool by the World's readings, each CUDA process mapped to its container. One look into /proc per new
    process: a pid's container does not change while it lives."""

    def __init__(self, host: HostProbe) -> None:
        self._host = host
        self._containers: dict[int, str] = {}

    def read(self, world: World, names: Mapping[str, str] | None = None) -> Reading[Ledger]:
        """The ledger now; as fresh as the memory reading that it is cut from. `names` are of containers by their id,
        for who knows them from elsewhere than the World."""
        if isinstance(world.memory, Missing):
            return Missing(world.memory.reason)
        gpu = value_of(world.gpu)
        pids = [process.pid for process in (gpu.processes or ())] if gpu is not None else []
        known = {view.container.id: view.name for view in value_of(world.engines) or ()} | dict(names or {})
        found = ledger(world.memory.value, world.gpu, self._owners(pids), known)
        if isinstance(world.memory, Stale):
            return Stale(found, world.memory.at, world.memory.error)
        return Ok(found, world.memory.at)

    def _owners(self, pids: list[int]) -> dict[int, str]:
        known = {pid: self._containers[pid] for pid in pids if pid in self._containers}
        self._containers = known | {
            pid: self._host.container_of(pid) for pid in pids[:_MOST_REMEMBERED] if pid not in known
        }
        return self._containers
