"""The alarms that stand, kept in the World, and told in the event feed when they begin, worsen and end."""

from __future__ import annotations

from spark_tui.core.store import Store
from spark_tui.domain.host.alarm import Alarm, AlarmKind, ranked, worse


class AlarmBoard:
    """One for the program. All calls belong on the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._standing: dict[tuple[AlarmKind, str], Alarm] = {}

    def raise_(self, alarm: Alarm) -> None:
        """The alarm stands from now on, in these words."""
        before = self._standing.get(alarm.key)
        self._standing[alarm.key] = alarm
        if before is None or worse(alarm.severity, before.severity):
            whose = f"{alarm.engine}: " if alarm.engine else ""
            self._store.say(f"{whose}{alarm.text}", alarm.severity, alarm.remedy)
        self._publish()

    def clear(self, kind: AlarmKind, engine: str = "", over: str = "") -> None:
        """It is over; `over` says so in the feed. Nothing happens when it did not stand."""
        if self._standing.pop((kind, engine), None) is None:
            return
        if over:
            self._store.say(over)
        self._publish()

    def standing(self, kind: AlarmKind) -> tuple[Alarm, ...]:
        """The alarms of that kind."""
        return tuple(alarm for alarm in self._standing.values() if alarm.kind is kind)

    def _publish(self) -> None:
        self._store.update(alarms=ranked(tuple(self._standing.values())))
