"""A reading of the outside world: present, stale, or missing for a stated reason. Unknown is never zero."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

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
