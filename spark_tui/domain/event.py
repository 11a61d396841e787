"""What happened, for the feed at the foot of Home: one line, newest last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much it matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """`at` is wall-clock seconds. `remedy` is what to do about it, where there is something to do."""

    at: float
    severity: Severity
    text: str
    remedy: str = ""


MAX_EVENTS = 200


def appended(events: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    """The feed with one more event, bounded."""
    return (*events, event)[-MAX_EVENTS:]
