"""The events for the feed on Home: one line each, newest last."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.finding import Severity

MAX_EVENTS = 200


class EventKind(StrEnum):
    """What an event is about; scripts read it."""

    NOTE = "note"
    LAUNCH = "launch"
    FETCH = "fetch"
    IMAGE = "image"
    CHECK = "check"
    STARTED = "started"
    READY = "ready"
    STALLED = "stalled"
    FAILED = "failed"
    STOPPED = "stopped"
    EDIT = "edit"
    DOWNLOAD = "download"
    VERIFY = "verify"
    BENCH = "bench"
    CACHE = "cache"
    GUARD = "guard"
    ALARM = "alarm"


WORTH_A_BELL: Final = (EventKind.READY, EventKind.FAILED, EventKind.DOWNLOAD, EventKind.BENCH)
"""Ends of what takes minutes: until then people look elsewhere."""


class Event(Struct, frozen=True):
    """`at` is wall-clock seconds. `remedy` says what to do, where something is to be done. `subject` is the engine or
    model, `detail` more lines of what was seen."""

    at: float
    severity: Severity
    text: str
    remedy: str = ""
    kind: EventKind = EventKind.NOTE
    subject: str = ""
    detail: str = ""

    @property
    def body(self) -> dict[str, str]:
        """What is kept of it on disk beside its time and text."""
        found = {
            "severity": self.severity.value, "remedy": self.remedy, "kind": self.kind.value, "subject": self.subject,
            "detail": self.detail,
        }  # fmt: skip
        return {key: value for key, value in found.items() if value}


def event_of(text: str, at: float, body: Any) -> Event:
    """An event that was kept, by any version of this program."""
    found: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    words = {key: str(found.get(key, "")) for key in ("remedy", "subject", "detail")}
    severity, kind = found.get("severity"), found.get("kind")
    return Event(
        at,
        Severity(severity) if severity in tuple(Severity) else Severity.INFO,
        text,
        kind=EventKind(kind) if kind in tuple(EventKind) else EventKind.NOTE,
        **words,
    )


def appended(events: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    """The feed with one more event, bounded."""
    return (*events, event)[-MAX_EVENTS:]
