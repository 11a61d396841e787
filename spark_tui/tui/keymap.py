"""Key bindings, made from the registry of actions."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from spark_tui.core.actions import Scope, of_scope

_SHOWN = {
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


def shown(key: str) -> str:
    """How a key is written on screen: `ctrl+p` -> `^p`, `question_mark` -> `?`, `f2` -> `F2`."""
    if key.startswith("ctrl+"):
        rest = key.removeprefix("ctrl+")
        return "^" + _SHOWN.get(rest, rest)
    if key[:1] == "f" and key[1:].isdigit():
        return key.upper()
    return _SHOWN.get(key, key)


def bindings(*scopes: Scope) -> list[BindingType]:
    """Textual bindings of these scopes; each runs the action method of the same id."""
    return [
        Binding(
            ",".join(action.default_keys),  # a class is made once: the app lays a person's own keys over these
            action.id,
            action.label,
            show=action.footer,
            key_display=shown(action.default_keys[0]),
            tooltip=action.help,
            id=action.id,
        )
        for action in of_scope(*scopes)
    ]
