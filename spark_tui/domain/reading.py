"""A reading of the outside world: present, stale, or missing for a stated reason. Unknown is never zero."""

from __future__ import annotations

from dataclasses import field
from typing import Generic, TypeAlias, TypeVar

from spark_tui.domain.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    """A value read at `at` (seconds, wall clock). Two readings of one value are equal whenever they were taken."""

    value: T
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Stale(Generic[T]):
    """The last good value, and why there is no newer one."""

    value: T
    at: float = field(compare=False)
    error: str


@dataclass(frozen=True, slots=True)
class Missing:
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
