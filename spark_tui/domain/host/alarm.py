"""What is wrong with the box or an engine on it right now: shown until it is over, and told in the feed once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.event import Severity


class AlarmKind(StrEnum):
    """What it is about, the most urgent first."""

    MEMORY = "memory"
    WEDGE = "wedge"
    LOW_POWER = "low power"
    CRASH_LOOP = "crash loop"
    LEAK = "leaked shared memory"


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm. `engine` is the engine's name, empty for the box. `text` may change while it lasts."""

    kind: AlarmKind
    severity: Severity
    text: str
    remedy: str = ""
    engine: str = ""

    @property
    def key(self) -> tuple[AlarmKind, str]:
        """Two alarms of one key are one alarm at two times."""
        return self.kind, self.engine


_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def ranked(alarms: tuple[Alarm, ...]) -> tuple[Alarm, ...]:
    """The worst first; of two that are as bad the more urgent kind."""
    kinds = tuple(AlarmKind)
    return tuple(
        sorted(alarms, key=lambda alarm: (_SEVERITIES.index(alarm.severity), kinds.index(alarm.kind), alarm.engine))
    )


def worse(new: Severity, old: Severity) -> bool:
    """Whether `new` matters more than `old`."""
    return _SEVERITIES.index(new) < _SEVERITIES.index(old)
