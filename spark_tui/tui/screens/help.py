"""The keys of a screen, from the registry of actions."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from spark_tui.core.actions import Action, Scope, allowed, of_scope
from spark_tui.tui.keymap import shown

KEYS_WIDTH = 14
LABEL_WIDTH = 14


class HelpScreen(ModalScreen[None]):
    """What can be done here, and everywhere."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "close", "Close")]

    def __init__(self, scope: Scope, *, read_only: bool) -> None:
        super().__init__()
        self._scope = scope
        self._read_only = read_only

    def compose(self) -> ComposeResult:
        """Two tables, one under the other."""
        with VerticalScroll(classes="dialog", id="help") as dialog:
            dialog.border_title = f"Keys on {self._scope.value}"
            dialog.border_subtitle = "Esc closes"
            yield Static(self._table(self._scope))
            yield Static(Content.styled("\nEverywhere", "bold"))
            yield Static(self._table(Scope.GLOBAL))
            yield Static(
                Content.styled("\nIn lists: arrows or j k, PgUp PgDn, Home End.  Tab moves between panes.", "$dim")
            )

    def _table(self, scope: Scope) -> Content:
        actions = allowed(of_scope(scope), read_only=self._read_only)
        return Content("\n").join(_line(action) for action in actions)

    def action_close(self) -> None:
        """Back."""
        self.dismiss(None)


def _line(action: Action) -> Content:
    keys = " ".join(shown(key) for key in action.keys)
    cli = f"   spark-tui {action.cli}" if action.cli else ""
    return Content.assemble(
        (f"{keys:<{KEYS_WIDTH}}", "bold $footer-key-foreground"),
        f"{action.label:<{LABEL_WIDTH}}",
        (action.help, "$dim"),
        (cli, "$secondary"),
    )
