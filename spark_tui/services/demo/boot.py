"""Start at boot on the simulated Spark: units in memory."""

from __future__ import annotations

from collections.abc import Sequence

from spark_tui.domain.engine.boot import BootState, BootStatus, unit_name
from spark_tui.services.demo.world import SERVING_NAME


class DemoBoot:
    """The BootPort port: units in memory. What serves when the demo opens starts with the machine."""

    def __init__(self) -> None:
        self._on = [SERVING_NAME]
        self._timers: set[str] = set()

    def all(self) -> tuple[BootStatus, ...]:
        return tuple(BootStatus(name, BootState.ENABLED, unit_name(name)) for name in sorted(self._on))

    def enable(self, engine: str, words: Sequence[str], *, system: bool = False) -> None:
        self._on = [*(name for name in self._on if name != engine), engine]

    def install_timer(self, name: str, title: str, words: Sequence[str], at: str) -> None:
        self._timers.add(name)

    def remove_timer(self, name: str) -> bool:
        had = name in self._timers
        self._timers.discard(name)
        return had

    def has_timer(self, name: str) -> bool:
        return name in self._timers

    def disable(self, engine: str) -> bool:
        had = engine in self._on
        self._on = [name for name in self._on if name != engine]
        return had
