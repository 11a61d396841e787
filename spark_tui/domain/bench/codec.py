"""Results to JSON and back, by the fields' own names. A file of a newer version is refused rather than half read."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from spark_tui.domain.bench.record import RequestRecord
from spark_tui.domain.bench.result import Result

VERSION: Final = 1
T = TypeVar("T")


class Unreadable(ValueError):
    """It is none of ours, damaged, or of a newer version."""


def result_to_json(result: Result) -> dict[str, Any]:
    """A JSON object."""
    return {"version": VERSION, **cast("dict[str, Any]", plain(result))}


def result_from_json(told: object) -> Result:
    """The result in a JSON object. Raises Unreadable. Unknown keys are left out; absent ones have their default."""
    if not isinstance(told, Mapping):
        raise Unreadable("it is no JSON object")
    version = told.get("version")
    if not isinstance(version, int) or version < 1:
        raise Unreadable("it has no version")
    if version > VERSION:
        raise Unreadable(f"it is of version {version}, and this program knows {VERSION}: it is newer")
    return cast("Result", _typed(Result, told, "result"))


def record_to_json(record: RequestRecord) -> list[Any]:
    """A compact form for a pipe: the values in the fields' order."""
    return [getattr(record, each.name) for each in fields(RequestRecord)]


def record_from_json(told: list[Any]) -> RequestRecord:
    """The other way round."""
    values = dict(zip((each.name for each in fields(RequestRecord)), told, strict=True))
    return RequestRecord(**{**values, "chunks": tuple(values["chunks"])})


def plain(value: object) -> object:
    """Dataclasses as objects, tuples as arrays, enumerations as their values; None is left out of objects."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    return value


def _typed(kind: Any, told: Any, where: str) -> Any:
    """`told` as the annotation `kind` wants it. Raises Unreadable."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        return None if told is None else _typed(inner[0], told, where)
    if origin is tuple:
        return _tuple(get_args(kind), told, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(told)
        except ValueError:
            raise Unreadable(f"{where} is {told!r}") from None
    if is_dataclass(kind):
        return _object(kind, told, where)
    if kind is float and told == "inf":
        return float("inf")
    wanted = (int, float) if kind is float else kind
    if not isinstance(told, wanted) or (isinstance(told, bool) and kind is not bool):
        raise Unreadable(f"{where} is {told!r}")
    return float(told) if kind is float else told


def _tuple(inner: tuple[Any, ...], told: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(told, list | tuple):
        raise Unreadable(f"{where} is no list")
    kinds = [inner[0]] * len(told) if inner[-1] is Ellipsis else list(inner)
    if len(kinds) != len(told):
        raise Unreadable(f"{where} has {len(told)} parts")
    return tuple(_typed(kind, item, where) for kind, item in zip(kinds, told, strict=True))


def _object(kind: Any, told: Any, where: str) -> Any:
    if not isinstance(told, Mapping):
        raise Unreadable(f"{where} is no object")
    hints = _hints(kind)
    values = {name: _typed(hint, told[name], f"{where}.{name}") for name, hint in hints.items() if name in told}
    try:
        return kind(**_with_none(hints, values))
    except TypeError:
        raise Unreadable(f"{where} is incomplete") from None


def _with_none(hints: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """What may be None and was left out is None."""
    optional = [name for name, hint in hints.items() if type(None) in get_args(hint)]
    return {**dict.fromkeys(optional), **values}


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
