"""The ports of a test: what it gives, and for all others adapters that have nothing.

ports = Ports(clock, docker, api, host, gpu, presets, secrets, archive, models=models)
others = ports.changed(hub=hub)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from spark_tui.core import wiring
from spark_tui.domain.errors import MetricsUnavailable, RefusedError, UsageError
from spark_tui.domain.history import HistoryOff, HistoryState
from spark_tui.domain.host.vitals import Vitals
from spark_tui.domain.models.download import Limits, LocalFiles
from spark_tui.domain.models.store import StoreContents
from spark_tui.domain.reading import Missing
from spark_tui.services.bench.results import MemoryResults
from tests.fakes_host import FakeDropper

NAMES: Final = ("clock", "docker", "api", "host", "gpu", "presets", "secrets", "archive")
_NOTHING: Final = Missing("nothing here")


class Ports(wiring.Ports):
    """The first eight by position, others by name; None is as good as left out."""

    def __init__(self, *ports: Any, **more: Any) -> None:
        given = dict(zip(NAMES, ports, strict=False)) | {name: port for name, port in more.items() if port is not None}
        super().__init__({}, **given)

    def changed(self, **given: Any) -> Ports:
        """The same with other adapters."""
        same = Ports(*(getattr(self, name) for name in NAMES))
        vars(same).update({name: vars(self)[name] for name in self.made() if name in _known()} | given)
        return same

    def __getattr__(self, name: str) -> Any:
        if name in _ABSENT:
            return _ABSENT[name]()
        return super().__getattr__(name)  # type: ignore[misc]


def _known() -> set[str]:
    return set(wiring.Ports.__annotations__)


class Absent:
    """A port whose every call refuses, but for those named below."""

    async def close(self) -> None:
        return None


class NoCheckpoints(Absent):
    def read(self, model: str, revision: str = "") -> Any:
        return _NOTHING


class NoModels(Absent):
    async def scan(self, *, others: bool = True) -> StoreContents:
        return StoreContents("")

    async def files(self, model: str, revision: str = "") -> Any:
        raise UsageError(f"There is no model {model}.", "")

    def verify(self, model: str, revision: str = "") -> AsyncGenerator[Any, None]:
        raise UsageError(f"There is no model {model}.", "")

    async def plan_delete(self, model: str, extent: Any, revision: str = "") -> Any:
        raise UsageError(f"There is no model {model}.", "")


class NoHub(Absent):
    async def search(self, query: Any, token: Any = None) -> Any:
        raise RefusedError("There is no Hub here.", "")

    async def repo(self, repo: str, revision: str = "main", token: Any = None) -> Any:
        raise RefusedError("There is no Hub here.", "")


class NoDownloads(Absent):
    async def here(self, request: Any, commit: str, files: object) -> LocalFiles:
        return LocalFiles({}, False)

    async def all(self) -> tuple[Any, ...]:
        return ()

    async def limits(self) -> Limits:
        return Limits()


class NoMetrics(Absent):
    async def read(self, endpoint: Any) -> Any:
        raise MetricsUnavailable("No metrics.", "")


class NoVitals(Absent):
    def look(self) -> Vitals:
        return Vitals(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)

    def processes(self, gpu: Sequence[Any], limit: int) -> Any:
        return _NOTHING

    def container_memory(self, pid: int) -> Any:
        return _NOTHING


class NoHistory(Absent):
    state = HistoryState(reason="no history is kept here")

    def add_sample(self, sample: Any) -> None:
        return None

    def add_start(self, start: Any) -> None:
        return None

    async def add_record(self, record: Any) -> None:
        raise HistoryOff("No history is kept here.", "")

    async def series(self, keys: Any, since: float, until: float, buckets: int) -> Any:
        return Missing("no history is kept here")

    async def keys(self) -> Any:
        return Missing("no history is kept here")

    async def starts(self, **_: Any) -> Any:
        return Missing("no history is kept here")

    async def records(self, kind: str, **_: Any) -> Any:
        return Missing("no history is kept here")

    async def flush(self) -> None:
        return None


_ABSENT: Final[dict[str, Any]] = {
    "checkpoints": NoCheckpoints, "models": NoModels, "hub": NoHub, "downloader": NoDownloads, "metrics": NoMetrics,
    "vitals": NoVitals, "history": NoHistory, "dropper": FakeDropper, "results": MemoryResults,
}  # fmt: skip
