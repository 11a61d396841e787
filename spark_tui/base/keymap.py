"""A person's own keys: how they are written in the settings, and the names that they have in the control centre."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

Keymap = tuple[tuple[str, tuple[str, ...]], ...]
"""Action id -> keys by their names, the first of them shown."""

MOST_KEYS: Final = 4
FIXED: Final = ("tab", "shift+tab", "ctrl+c")
"""They move between panes, and copy or leave: no action can have them."""
_WORDS: Final = "enter escape space backspace delete insert home end pageup pagedown up down left right"
_NAMED: Final = frozenset((*_WORDS.split(" "), *(f"f{number}" for number in range(1, 13))))
_FRIENDLY: Final = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
_MODIFIERS: Final = ("ctrl", "alt", "shift")
_ACTION: Final = re.compile(r"[a-z][a-z_]{0,39}")


def key_name(text: str) -> str:
    """`?` -> `question_mark`, `Ctrl+X` -> `ctrl+x`, `G` stays `G`. Raises ValueError for what is no key."""
    given = text.strip()
    if len(given) == 1 and given.isprintable():
        return _of_character(given)
    *modifiers, base = given.lower().replace("page_", "page").split("+")
    name = "+".join([*(word for word in _MODIFIERS if word in modifiers), base])
    if name in FIXED:
        raise ValueError(f"must leave {name} alone, which always does the same")
    known = base in _NAMED or base in _CHARACTERS or (len(base) == 1 and base.isalnum() and bool(modifiers))
    if not known or set(modifiers) - set(_MODIFIERS):
        raise ValueError(f"must name keys such as x, ?, f5, ctrl+x or pageup; {text[:40]!r} is none")
    return name


def _of_character(character: str) -> str:
    """The name under which a terminal library reports a character."""
    if character.isalnum():
        return character
    if character == " ":
        return "space"
    name = unicodedata.name(character, character).lower().replace("-", "_").replace(" ", "_")
    return _FRIENDLY.get(name, name)


_CHARACTERS: Final = frozenset(_of_character(chr(code)) for code in range(33, 127) if not chr(code).isalnum())


def read_keymap(value: object) -> Keymap:
    """A keymap from a TOML table (`stop = "X"`, `stop = ["X", "ctrl+x"]`), from text (`stop=X,ctrl+x restart=R`), or
    from one that was read. Ids and clashes are for the registry of actions to judge. Raises ValueError."""
    if isinstance(value, str):
        pairs = []
        for word in value.split():
            action, equals, keys = word.partition("=")
            if not equals:
                raise ValueError(f"must be keys by action, such as stop=X restart=R; it is {value[:80]!r}")
            pairs.append((action, [","] if keys == "," else keys.split(",")))
        return _read(pairs)
    if isinstance(value, Mapping):
        return _read(value.items())
    if isinstance(value, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return _read(value)
    raise ValueError(f'must be a table of keys, such as stop = "X"; it is {value!r}')


def keymap_text(keymap: Keymap) -> str:
    """As text that reads back: `stop=X,ctrl+x restart=R`."""
    return " ".join(f"{action}={','.join(keys)}" for action, keys in keymap)


def _read(pairs: Iterable[tuple[object, object]]) -> Keymap:
    found: dict[str, tuple[str, ...]] = {}
    for action, keys in pairs:
        if not isinstance(action, str) or not _ACTION.fullmatch(action) or action in found:
            raise ValueError(f"must name each action once, by its id; it has {str(action)[:40]!r}")
        try:
            found[action] = _keys(keys)
        except ValueError as error:
            raise ValueError(f"{error} (for {action})") from None
    return tuple(sorted(found.items()))


def _keys(value: object) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f'must be a key such as "X", or a list of them; it is {value!r}')
    if not 1 <= len(words) <= MOST_KEYS:
        raise ValueError(f"must be 1 to {MOST_KEYS} keys; it is {len(words)}")
    return tuple(dict.fromkeys(key_name(word) for word in words))
