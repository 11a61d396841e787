"""Memory second by second: the ledger, how bad it is by floor, trend and pressure, and the alarm when it is."""

from __future__ import annotations

from collections import deque
from typing import Final

from spark_tui.core.alarms import AlarmBoard
from spark_tui.core.memory_ledger import LedgerReader
from spark_tui.core.store import Store
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.event import Severity
from spark_tui.domain.host.alarm import Alarm, AlarmKind
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.severity import Judgement, Level, fall_rate, severity
from spark_tui.domain.reading import Reading, value_of
from spark_tui.services.ports import Clock

TREND_SECONDS: Final = 6.0
CALM_SECONDS: Final = 15.0
"""An alarm that has been over for so long is over: memory near a floor goes up and down."""
_LOADING: Final = (EngineState.STARTING, EngineState.RESTARTING)
_SEVERITIES: Final = {Level.TIGHT: Severity.WARNING, Level.CRITICAL: Severity.ERROR}
_REMEDY: Final = "Stop an engine, or lower its memory share. The guard does it in time: spark-tui guard --install"


class MemoryWatch:
    """Called once a second with what was read."""

    def __init__(self, store: Store, clock: Clock, ledger: LedgerReader, alarms: AlarmBoard) -> None:
        self._store = store
        self._clock = clock
        self._ledger = ledger
        self._alarms = alarms
        self._points: deque[tuple[float, int]] = deque(maxlen=64)
        self._bad_at: float | None = None

    def sampled(self, memory: Reading[MemInfo], pressure: Reading[float]) -> None:
        """Judges a fresh reading, as it came, and cuts the ledger from what the World shows."""
        self._store.update(ledger=self._ledger.read(self._store.world))
        mem = value_of(memory)
        if mem is None:
            return
        now = self._clock.monotonic()
        self._points.append((now, mem.usable))
        while now - self._points[0][0] > TREND_SECONDS:
            self._points.popleft()
        found = severity(
            mem, falling=fall_rate(tuple(self._points)), pressure=value_of(pressure), loading=self._loading()
        )
        self._settle(found, now)

    def _loading(self) -> bool:
        return any(view.state in _LOADING for view in value_of(self._store.world.engines) or ())

    def _settle(self, found: Judgement, now: float) -> None:
        """Shows a worse level at once, and a better one when it has lasted."""
        if found.level is not Level.OK:
            self._bad_at = now
            self._store.update(judgement=found)
            self._alarms.raise_(Alarm(AlarmKind.MEMORY, _SEVERITIES[found.level], f"Memory: {found.reason}", _REMEDY))
        elif self._bad_at is not None and now - self._bad_at >= CALM_SECONDS:
            self._bad_at = None
            self._store.update(judgement=found)
            self._alarms.clear(AlarmKind.MEMORY, over="Memory is in order again.")
