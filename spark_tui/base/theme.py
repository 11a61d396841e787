"""A user's own theme: one of ours, with other colours for some roles."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct

from spark_tui.base.settings import AUTO, THEME, THEME_NAMES, suggestion

ROLES: Final = (
    "text", "background", "panel", "field", "dim", "rule", "cursor", "selection", "accent", "info", "warning", "error",
    "cache", "free",
)  # fmt: skip
"""Of every theme: text and its grounds, lines and marks, then what colours mean. `accent` is good, running and an
engine's memory, `info` the user's things and other programs' memory."""
BASES: Final = tuple(name for name in THEME_NAMES if name not in (AUTO, "spark-ansi"))
_KEYS: Final = ("name", "base", "colours")
_COLOUR: Final = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


class UserTheme(Struct, frozen=True):
    """`colours` are `#rrggbb` or `#rgb` by role; every other colour is that of `base`."""

    name: str
    base: str
    colours: tuple[tuple[str, str], ...] = ()


class ThemeError(ValueError):
    """What a theme's file must have instead. `key` is what it is about."""

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.key, self.remedy = key, remedy


def read_theme(values: Mapping[str, object], stem: str, taken: Container[str] = ()) -> UserTheme:
    """A theme from its TOML table. Without a `name` it has that of its file, without a `base` that of our first one;
    `taken` are the names that other files have.

    Raises ThemeError.
    """
    for key in values:
        if key not in _KEYS:
            raise ThemeError(key, f"there is no key `{key}`", f"The keys are: {', '.join(_KEYS)}.")
    name, base, colours = values.get("name", stem), values.get("base", BASES[0]), values.get("colours", {})
    if not isinstance(name, str) or not THEME.fullmatch(name):
        raise ThemeError("name", f"name {name!r} is invalid", "Use lower-case letters, digits and hyphens.")
    if name in THEME_NAMES or name.startswith("spark-"):
        raise ThemeError("name", f"name {name} is a built-in theme's", "Choose a name without spark- in front.")
    if name in taken:
        raise ThemeError("name", f"there is another theme {name}", "Give one of them another name.")
    if base not in BASES:
        raise ThemeError("base", f"base {base!r} is unknown", f"The bases are: {', '.join(BASES)}.")
    if not isinstance(colours, Mapping):
        raise ThemeError("colours", "colours is not a table", 'Write [colours], then lines such as accent = "#76b900".')
    for role, colour in colours.items():
        if role not in ROLES:
            near = suggestion(role, ROLES)
            raise ThemeError(
                role, f"there is no role `{role}`", f"Did you mean `{near}`?" if near else f"Roles: {', '.join(ROLES)}."
            )
        if not isinstance(colour, str) or not _COLOUR.fullmatch(colour):
            raise ThemeError(role, f"{role} = {colour!r} is no colour", 'Write it as "#rrggbb".')
    return UserTheme(name, str(base), tuple(colours.items()))
