"""The ports of a test: what it gives, and for all others adapters that have nothing.

ports = Ports(clock, docker, api, host, gpu, presets, secrets, archive, models=models)
others = ports.changed(hub=hub)
"""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any, Final

from spark_tui.base import context as product
from spark_tui.base import ports as types
from spark_tui.base.errors import MetricsUnavailable, RefusedError, UsageError
from spark_tui.base.finding import Missing
from spark_tui.base.host.series import HistoryOff, HistoryState
from spark_tui.base.host.vitals import Vitals
from spark_tui.catalog.models.model.download import Limits, LocalFiles
from spark_tui.catalog.models.model.store import StoreContents
from spark_tui.catalog.models.use.ports import Downloader, HubClient, ModelStore
from spark_tui.catalog.presets.model.rules.check import judge
from spark_tui.observe.metrics.use.history import HistoryStore
from tests.fakes_files import MemoryProofs, MemoryResults, MemoryState
from tests.fakes_host import FakeDropper

NAMES: Final = ("clock", "docker", "api", "host", "gpu", "presets", "secrets", "archive")
_NOTHING: Final = Missing("nothing here")


class Ports(product.Ports):
    """The first eight by position, others by name; None is as good as left out."""

    def __init__(self, *ports: Any, **more: Any) -> None:
        given = dict(zip(NAMES, ports, strict=False)) | {name: port for name, port in more.items() if port is not None}
        super().__init__({}, **{"judge": judge} | given)

    def changed(self, **given: Any) -> Ports:
        """The same with other adapters."""
        same = Ports(*(getattr(self, name) for name in NAMES))
        vars(same).update({name: vars(self)[name] for name in self.made() if name[0] != "_"} | given)
        return same

    def __getattr__(self, name: str) -> Any:
        if name in _ABSENT:
            return _ABSENT[name]()
        return super().__getattr__(name)  # type: ignore[misc]


class Absent:
    """A port that has nothing. Each method gives its answer, or raises it; those without one return None."""

    def __init__(self, port: type, **answers: Any) -> None:
        self._port, self._answers = port, answers

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        answer = self._answers.get(name)
        if isinstance(method, property):
            return answer

        def call(*_: Any, **__: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        async def later(*_: Any, **__: Any) -> Any:
            return call()

        return later if iscoroutinefunction(method) else call


def no_metrics() -> Absent:
    """Metrics that no server publishes."""
    return Absent(types.MetricsSource, read=MetricsUnavailable("No metrics.", ""))


def _no_models() -> Absent:
    unknown = UsageError("There is no such model.", "")
    return Absent(ModelStore, scan=StoreContents(""), files=unknown, verify=unknown, plan_delete=unknown)


def _no_hub() -> Absent:
    refused = RefusedError("There is no Hub here.", "")
    return Absent(HubClient, search=refused, repo=refused)


def _no_history() -> Absent:
    nothing = Missing("no history is kept here")
    return Absent(
        HistoryStore,
        state=HistoryState(reason="no history is kept here"),
        add_record=HistoryOff("No history is kept here.", ""),
        series=nothing,
        starts=nothing,
        records=nothing,
    )


_ABSENT: Final[dict[str, Any]] = {
    "checkpoints": lambda: Absent(types.CheckpointSource, read=_NOTHING),
    "models": _no_models,
    "hub": _no_hub,
    "downloader": lambda: Absent(Downloader, here=LocalFiles({}, False), all=(), limits=Limits()),
    "metrics": no_metrics,
    "vitals": lambda: Absent(
        types.VitalsProbe, look=Vitals(*[_NOTHING] * 5), processes=_NOTHING, container_memory=_NOTHING
    ),
    "history": _no_history,
    "dropper": FakeDropper,
    "results": MemoryResults,
    "proofs": MemoryProofs,
    "state": MemoryState,
}
