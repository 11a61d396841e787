"""What `--json` is made of: units in the key names, and beside every null a `<key>_reason`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

from spark_tui.base.reading import Reading, reason_of, value_of

T = TypeVar("T")
Object: TypeAlias = dict[str, Any]


def maybe(key: str, value: Any, why: str) -> Object:
    """`{key: value}`, or a null with its reason where there is none."""
    return {key: None, f"{key}_reason": why} if value is None or value == "" else {key: value}


def known(why: str, **values: Any) -> Object:
    """`maybe` for several keys whose nulls have the same reason."""
    shape: Object = {}
    for key, value in values.items():
        shape |= maybe(key, value, why)
    return shape


def read(key: str, reading: Reading[T], shape: Callable[[T], Any]) -> Object:
    """A reading: its value, and its reason where it is missing or out of date."""
    value, reason = value_of(reading), reason_of(reading)
    found = {key: None if value is None else shape(value)}
    return found | {f"{key}_reason": reason} if reason else found


def moment(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Rounded, where there is a value."""
    return None if value is None else round(value, digits)
