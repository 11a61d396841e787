"""`@dataclass` for values, defined five times as fast: a command imports hundreds, and uses few of their methods.

Type checkers see the standard decorator. At run time `@dataclass(frozen=True, slots=True)` gives an ordinary dataclass
(`fields`, `replace`, `asdict`, `match` and pickle work) of which only `__init__` is compiled, for the first object. The
standard decorator compiles six methods per class, about 0.5 ms up to Python 3.12. All other options are left to it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """The decorator, with the options of the standard one."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if options == _VALUE and _is_plain(cls):
            return _value(cls)
        return dataclasses.dataclass(cls, **options)


_VALUE: Final = {"frozen": True, "slots": True}
_FROZEN: Final = vars(dataclasses.dataclass(frozen=True)(type("_", (), {})))["__dataclass_params__"]
_METHODS: Final = (
    "__init__",
    "__repr__",
    "__eq__",
    "__hash__",
    "__setattr__",
    "__delattr__",
    "__getstate__",
    "__setstate__",
)
_set: Final = object.__setattr__


def _is_plain(cls: type) -> bool:
    """Whether a class has none of the methods, no dataclass above it and positional fields only."""
    return not (
        any(name in vars(cls) for name in _METHODS)
        or hasattr(cls, "__dataclass_fields__")
        or not {"KW_ONLY", "InitVar"}.isdisjoint(str(kind).partition("[")[0] for kind in cls.__annotations__.values())
    )


def _value(cls: type) -> Any:
    cls.__doc__ = cls.__doc__ or cls.__name__  # the standard decorator would format a signature
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    own = dataclasses.fields(made)
    compared = [each.name for each in own if each.compare]
    key: Any = attrgetter(*compared) if len(compared) > 1 else lambda value: [getattr(value, name) for name in compared]

    def first(self: Any, *args: Any, **named: Any) -> None:
        made.__init__ = init = _init(made, own)
        init(self, *args, **named)

    def same(self: Any, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(tuple(key(self)))

    made.__init__, made.__eq__, made.__hash__ = first, same, hashed
    made.__repr__, made.__setattr__, made.__delattr__ = _repr, _refuse_set, _refuse_delete
    made.__getstate__, made.__setstate__ = _state, _restore
    made.__dataclass_params__ = _FROZEN
    return made


def _init(cls: type, own: tuple[dataclasses.Field[Any], ...]) -> Any:
    """The method that is compiled: a parameter per field, a default by reference, a factory for an absent value."""
    known: dict[str, Any] = {"_set": _set, "_absent": MISSING}
    parameters, body = ["self"], []
    for each in own:
        name = each.name
        default, factory = f"_default_{name}", f"_factory_{name}"
        known[default], known[factory] = each.default, each.default_factory
        value = name
        if each.default_factory is not MISSING:
            value = f"{factory}() if {name} is _absent else {name}" if each.init else f"{factory}()"
            default = "_absent"
        elif not each.init:
            if each.default is MISSING:
                continue
            value = default
        if each.init:
            optional = each.default is not MISSING or each.default_factory is not MISSING
            parameters.append(f"{name}={default}" if optional else name)
        body.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or [" pass"]), known)  # noqa: S102
    init = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in own if each.init} | {"return": None}
    return init


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_set(_self: Any, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, each.name, value)
