"""A person's own keys, held against the registry of actions."""

from __future__ import annotations

from spark_tui.core.actions import ACTIONS, Action, Scope
from spark_tui.domain.keymap import Keymap
from spark_tui.domain.settings import suggestion


def check_keymap(keymap: Keymap) -> None:
    """Raises ValueError for an action that does not exist, and for a new key that another action of the place has."""
    own = dict(keymap)
    known = {action.id for action in ACTIONS}
    for id_ in own:
        if id_ not in known:
            near = suggestion(id_, known)
            hint = f"did you mean {near}?" if near else "see the ids with: spark-tui config keys"
            raise ValueError(f"must name actions; there is no action {id_}: {hint}")
    for action in ACTIONS:
        for other in ACTIONS:
            if action.id in own and other is not action and _meet(action, other):
                _check_clash(action, own[action.id], other, own.get(other.id, other.default_keys))


def _meet(action: Action, other: Action) -> bool:
    return action.scope is other.scope or Scope.GLOBAL in (action.scope, other.scope)


def _check_clash(action: Action, keys: tuple[str, ...], other: Action, others: tuple[str, ...]) -> None:
    for key in keys:
        if key in others and key not in action.default_keys:
            raise ValueError(
                f"must give each key one meaning; {key} would be {action.id} and {other.id} "
                f"({other.scope.value}): give {other.id} another key too"
            )
