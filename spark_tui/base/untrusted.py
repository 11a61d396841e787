"""JSON and TOML from outside: files, answers, labels, logs. Values of ours as JSON, by their types alone."""

from __future__ import annotations

import json
import tomllib
from typing import Any, Final, TypeVar

import msgspec

MAX_DEPTH: Final = 100
"""Lists and mappings within one another; far below Python's own limit for what walks through them later."""
_TOO_DEEP: Final = "nested too deeply"


def load_json(text: str | bytes | bytearray, **options: Any) -> Any:
    """The value, with options of `json.loads`. Raises ValueError, and nothing else."""
    try:
        found = json.loads(text, **options)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(found)
    return found


def load_toml(text: str) -> dict[str, Any]:
    """The file's values. Raises ValueError, and nothing else."""
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(found)
    return found


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


# --- wire ------------------------------------------------------------------------------------------------


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
