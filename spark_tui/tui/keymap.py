"""Key bindings, made from the registry of actions."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from spark_tui.core.actions import Scope, of_scope, shown


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
