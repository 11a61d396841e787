"""What a room says of itself, in its `feature.py`: names alone, whose modules are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

Adapter: TypeAlias = tuple[str, Callable[[Any, Any], Any] | None]
"""Where the adapter's class is, and how it is made of that and the other ports (None: of nothing)."""
T_co = TypeVar("T_co", covariant=True)

NOTHING: Final[Mapping[str, Any]] = {}


class Feature(Struct, frozen=True):
    """What a room brings. A place is `package.module:Class`."""

    commands: Mapping[str, tuple[str, str]] = NOTHING
    """Module and first sentence by the command's name."""
    unlisted: Mapping[str, str] = NOTHING
    """Modules of commands that the program itself uses."""
    modes: Mapping[str, str] = NOTHING
    """Places of its screens by name: the action `show_NAME` goes there."""
    asides: Mapping[str, str] = NOTHING
    """Places of screens over whatever is shown: `open_NAME` goes there, and back."""
    dialogs: Mapping[str, str] = NOTHING
    real: Mapping[str, Adapter] = NOTHING
    """Adapters for this machine by their ports' names."""
    demo: Mapping[str, Adapter] = NOTHING
    actions: tuple[tuple[str, str, str, str, str, str, str], ...] = ()
    """Rows as in the table of `base/actions.py`."""


class Slice(Struct, Generic[T_co], frozen=True, eq=False):
    """A part of the World that a room declares: `world[PRESETS]`. `default`: before it was read."""

    default: T_co


def named(place: str) -> Any:
    """What stands at that place, imported; the module, where no name is given."""
    module, _, name = place.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found
