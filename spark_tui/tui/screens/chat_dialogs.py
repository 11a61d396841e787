"""Small dialogs of the Chat screen: one line of text, and a choice of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from spark_tui.tui.widgets.page import told
from spark_tui.tui.widgets.row_list import Column, Row, RowList

FRAME_LINES = 8
"""What a dialog and the room around it take."""


class TextDialog(ModalScreen[str | None]):
    """Asks for one line; None when the person leaves."""

    CSS_PATH = "chat_dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, title: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._title = title
        self._hint = hint
        self._value = value
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        """The line, and what may stand there."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = told(self._title)
            dialog.border_subtitle = "Enter  Esc back"
            yield Static(told(self._hint, "$dim"), classes="chat-hint")
            yield Input(self._value, placeholder=self._placeholder, compact=True, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """What was written; nothing is nothing."""
        self.dismiss(event.value.strip() or None)

    def action_leave(self) -> None:
        """Nothing."""
        self.dismiss(None)


class ChoiceDialog(ModalScreen[str | None]):
    """One of some sentences; answers its key, None when the person leaves."""

    CSS_PATH = "chat_dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back"), Binding("enter", "choose", "Choose")]

    def __init__(self, title: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._choices = tuple(choices)

    def compose(self) -> ComposeResult:
        """The sentences."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = told(self._title)
            dialog.border_subtitle = "Enter chooses  Esc back"
            yield RowList((Column(""),), Content(""), id="choices")

    def on_mount(self) -> None:
        """As many lines as there are choices."""
        rows = self.query_one(RowList)
        rows.styles.height = min(len(self._choices), max(1, self.app.size.height - FRAME_LINES))
        rows.show([Row(key, (told(text),)) for key, text in self._choices])
        rows.focus()

    def action_choose(self) -> None:
        """The one under the cursor."""
        self.dismiss(self.query_one(RowList).key or None)

    def action_leave(self) -> None:
        """None of them."""
        self.dismiss(None)
