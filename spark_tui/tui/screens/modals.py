"""Small dialogs: a question before something is done, and an error in full."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import clean
from spark_tui.tui.widgets.page import MAX_VALUE, told

MAX_DETAIL = 20_000
"""Characters of an error's evidence that are shown; all of it is copied."""


class ConfirmScreen(ModalScreen[bool]):
    """Asks once. `type_to_confirm`: the answer is yes only when that name is typed, and `because` says why it must."""

    CSS_PATH = "modals.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "No"),
        Binding("y", "answer(True)", "Yes"),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    def __init__(
        self,
        question: str,
        what: str,
        *,
        verb: str,
        type_to_confirm: str = "",
        because: str = "spark-tui did not start it.",
    ) -> None:
        super().__init__()
        self._question = question
        self._what = what
        self._verb = verb
        self._typed = type_to_confirm
        self._because = because

    def compose(self) -> ComposeResult:
        """The question, what will happen, and the two answers."""
        with Vertical(classes="dialog"):
            with VerticalScroll(classes="dialog-body", can_focus=False):
                yield Static(told(self._question, "bold"), classes="dialog-title")
                yield Static(told(self._what), classes="dialog-text")
                if self._typed:
                    yield Static(told(f"{self._because} Type {self._typed} to confirm:"), classes="dialog-text")
            if self._typed:
                yield Input(id="typed", select_on_focus=False, compact=True)
            with Horizontal(classes="dialog-buttons"):
                yield Button(self._verb if self._typed else f"{self._verb} (y)", id="yes", variant="error")
                yield Button("Leave it (Esc)" if self._typed else "Leave it (n)", id="no")

    def on_mount(self) -> None:
        """Enter alone never confirms: the safe answer has the focus."""
        if self._typed:
            self.query_one("#yes", Button).disabled = True
        else:
            self.query_one("#no", Button).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """With a name to type, `y` and `n` are letters of it."""
        if action == "answer" and parameters == (True,):
            return not self._typed
        return super().check_action(action, parameters)

    def on_input_changed(self, event: Input.Changed) -> None:
        """The button wakes when the name is right."""
        self.query_one("#yes", Button).disabled = event.value.strip() != self._typed

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter after the right name."""
        if event.value.strip() == self._typed:
            self.dismiss(True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """One of the two answers."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """A key for each answer."""
        self.dismiss(yes)


class ErrorScreen(ModalScreen[None]):
    """An error in full: what happened, what to do, and the evidence."""

    CSS_PATH = "modals.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "close", "Close"),
        Binding("y", "copy", "Copy"),
    ]

    def __init__(self, error: SparkError) -> None:
        super().__init__()
        self._error = error

    def compose(self) -> ComposeResult:
        """Summary, remedy, detail."""
        error = self._error
        with Vertical(classes="dialog"):
            with VerticalScroll(classes="dialog-body"):
                yield Static(told(error.summary, "bold $error"), classes="dialog-title")
                yield Static(told(error.remedy), classes="dialog-text")
                if error.detail:
                    yield Static(Content.styled(_bounded(error.detail), "$dim"), classes="dialog-detail")
            yield Static(Content.styled("Esc closes   y copies   arrows scroll", "$dim"), classes="dialog-keys")

    def action_close(self) -> None:
        """Back."""
        self.dismiss(None)

    def action_copy(self) -> None:
        """Everything to the clipboard."""
        error = self._error
        self.app.copy_to_clipboard("\n".join(part for part in (error.summary, error.remedy, error.detail) if part))
        self.notify("Copied.", markup=False)


def _bounded(text: str) -> str:
    """Evidence of many lines: its end is what tells, so the beginning is what goes."""
    shown = clean(text)
    lines = [line if len(line) <= MAX_VALUE else f"{line[:MAX_VALUE]} ..." for line in shown.split("\n")]
    shown = "\n".join(lines)
    return shown if len(shown) <= MAX_DETAIL else f"... {shown[-MAX_DETAIL:]}"
