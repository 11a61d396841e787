"""What the command palette offers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.screen import Screen

from spark_tui.core.actions import ACTIONS, Scope, action, allowed
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.themes import THEMES

if TYPE_CHECKING:
    from spark_tui.tui.app import SparkApp

LEFT_OUT = ("command_palette", "help")
"""The palette itself, and the help, which has a place of its own."""


def palette(app: SparkApp, screen: Screen[object]) -> Iterator[SystemCommand]:
    """Every action of this screen and of the whole app that can be done now, the help, and the themes."""
    scopes = {Scope.GLOBAL, getattr(screen, "SCOPE", Scope.GLOBAL)}
    named: set[str] = set()
    for entry in allowed(ACTIONS, read_only=app.context.settings.read_only):
        offered = not isinstance(screen, FrameScreen) or screen.offers(entry.id)
        if entry.scope in scopes and entry.id not in LEFT_OUT and entry.label not in named and offered:
            named.add(entry.label)  # of two that are called the same, the one of everywhere does it too
            name = entry.id if hasattr(screen, f"action_{entry.id}") else f"app.{entry.id}"
            yield SystemCommand(entry.label, entry.help, partial(screen.run_action, name))
    yield SystemCommand("Help", action("help").help, app.action_help)
    for theme in THEMES:
        yield SystemCommand(f"Theme {theme.name}", "Colours", partial(setattr, app, "theme", theme.name))
