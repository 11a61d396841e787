"""Values as JSON, by their types alone; without a type `domain.untrusted` reads."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def encode(value: object) -> str:
    """A Struct, or a value of JSON's own kinds, in one line."""
    return msgspec.json.encode(value).decode()


def decode(text: str | bytes, kind: type[T]) -> T:
    """Unknown keys are left out, absent ones have their default. Raises ValueError, which says what does not fit."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
