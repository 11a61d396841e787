"""The events for the feed on Home: one line each, newest last."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.domain.finding import Severity

MAX_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Event:
    """`at` is wall-clock seconds. `remedy` says what to do, where something is to be done."""

    at: float
    severity: Severity
    text: str
    remedy: str = ""


def appended(events: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    """The feed with one more event, bounded."""
    return (*events, event)[-MAX_EVENTS:]
