"""Readings, findings and events: what is known, how bad it is, what happened."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Ok(Struct, Generic[T], frozen=True):
    """A value read at `at` (seconds, wall clock). Two readings of one value are equal whenever they were taken."""

    value: T
    at: float = 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ok) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)


class Stale(Struct, Generic[T], frozen=True):
    """The last good value, and why there is no newer one."""

    value: T
    at: float
    error: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stale) and bool(self.value == other.value) and self.error == other.error

    def __hash__(self) -> int:
        return hash((self.value, self.error))


class Missing(Struct, frozen=True):
    """No value, and why: unsupported, not read yet, or failed, in words for the screen."""

    reason: str


Reading: TypeAlias = Ok[T] | Stale[T] | Missing

NOT_READ_YET = Missing("not read yet")


def value_of(reading: Reading[T]) -> T | None:
    """The value of a fresh or stale reading, else None."""
    return None if isinstance(reading, Missing) else reading.value


def reason_of(reading: Reading[T]) -> str:
    """Why there is no fresh value; empty when there is one."""
    if isinstance(reading, Missing):
        return reading.reason
    return reading.error if isinstance(reading, Stale) else ""


def aged(previous: Reading[T], error: str) -> Reading[T]:
    """What a failed poll leaves: the last value marked stale, or the reason alone."""
    if isinstance(previous, Missing):
        return Missing(error)
    return Stale(previous.value, previous.at, error)


# --- finding ---------------------------------------------------------------------------------------------


Change: TypeAlias = tuple[tuple[str, str], ...]
"""Settings as `(key, value)` pairs, as `--set` takes them; empty where no setting helps."""


def pairs_text(change: Change) -> str:
    """`max_model_len=90112 kv_cache_dtype=fp8`."""
    return " ".join(f"{key}={value}" for key, value in change)


def set_options(change: Change) -> str:
    """`--set port=8001 --set max_model_len=65536`, quoted for the shell; empty without a change."""
    return shlex.join(word for key, value in change for word in ("--set", f"{key}={value}"))


class Severity(StrEnum):
    """How much a finding matters, the worst first. OK: checked and fine. UNKNOWN: could not be checked."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int:
        """0 for the worst, so that findings sort by it."""
        return _RANKS[self]

    def worse_than(self, other: Severity) -> bool:
        """Whether this matters more than `other`."""
        return self.rank < other.rank


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Finding(Struct, frozen=True):
    """One piece of advice.

    `id` is stable: scripts may rely on it. `summary` is one sentence: what is the matter. `evidence` is what was seen:
    log lines (cleaned and masked), values, paths. `remedy` says what to do, `change` the settings that do it. `line`
    is the number, from 0, of the log line that proves it. `guess`: the evidence suggests it and does not prove it.
    `subject` names what it is about where that is not clear from the place: an engine, a file, a model.
    """

    id: str
    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    change: Change = ()
    line: int | None = None
    guess: bool = False
    subject: str = ""


class AlarmId(StrEnum):
    """Ids of alarms, the most urgent first."""

    MEMORY = "memory"
    STALL = "wedge"
    LOW_POWER = "low power"
    CRASH_LOOP = "crash loop"
    LEAK = "leaked shared memory"
    CANARY = "changed figures"


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity among findings; OK where there are none."""
    return min((finding.severity for finding in findings), key=lambda severity: severity.rank, default=Severity.OK)


VERDICTS: Final = {
    Severity.ERROR: "FAIL",
    Severity.WARNING: "WARN",
    Severity.INFO: "PASS",
    Severity.OK: "PASS",
    Severity.UNKNOWN: "SKIP",
}
"""The words on screen and in JSON."""


def counts(findings: Iterable[Finding]) -> str:
    """`2 failed, 1 warning, 18 passed, 3 skipped`."""
    words = [VERDICTS[each.severity] for each in findings]
    names = {"FAIL": "failed", "WARN": "warning", "PASS": "passed", "SKIP": "skipped"}
    found = ((name, words.count(word)) for word, name in names.items())
    return ", ".join(f"{count} {name}{'s' * (name == 'warning' and count > 1)}" for name, count in found if count)


# --- event -----------------------------------------------------------------------------------------------


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
            "severity": self.severity.value,
            "remedy": self.remedy,
            "kind": self.kind.value,
            "subject": self.subject,
            "detail": self.detail,
        }
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
