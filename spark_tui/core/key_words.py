"""Keys as a text names them: the one that is in force, the person's own where there is one."""

from __future__ import annotations

from typing import Final

from spark_tui.core.actions import action

_SHOWN: Final = {
    "question_mark": "?",
    "slash": "/",
    "ampersand": "&",
    "escape": "Esc",
    "enter": "Enter",
    "delete": "Del",
    "right_square_bracket": "]",
    "end": "End",
    "right": "Right",
    "equals_sign": "=",
    "up": "Up",
    "down": "Down",
    "shift+left": "S-Left",
    "shift+right": "S-Right",
    "left": "Left",
    "space": "Space",
    "minus": "-",
    "plus": "+",
    "pagedown": "PgDn",
    "pageup": "PgUp",
}
_SCREENS: Final = ("home", "models", "presets", "logs", "metrics", "chat", "bench", "doctor")


def shown(key: str) -> str:
    """How a key is written on screen: `ctrl+p` -> `^p`, `question_mark` -> `?`, `f2` -> `F2`."""
    if key.startswith("ctrl+"):
        rest = key.removeprefix("ctrl+")
        return "^" + _SHOWN.get(rest, rest)
    if key[:1] == "f" and key[1:].isdigit():
        return key.upper()
    return _SHOWN.get(key, key)


def key_of(id_: str) -> str:
    """The key that an action has now, as it is written: `^p`. KeyError for what is no action."""
    return shown(action(id_).keys[0])


def screen_keys() -> str:
    """The keys that change the screen: `1-8`, or each of them where a person has other ones."""
    keys = [key_of(f"show_{screen}") for screen in _SCREENS]
    return "1-8" if keys == list("12345678") else " ".join(keys)
