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
}


def shown(key: str) -> str:
    """How a key is written on screen: `ctrl+p` -> `^p`, `question_mark` -> `?`."""
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    return _SHOWN.get(key, key)


def bindings(*scopes: Scope) -> list[BindingType]:
    """Textual bindings of these scopes; each runs the action method of the same id."""
    return [
        Binding(
            ",".join(action.keys),
            action.id,
            action.label,
            show=action.footer,
            key_display=shown(action.keys[0]),
            tooltip=action.help,
            id=action.id,
        )
        for action in of_scope(*scopes)
    ]
