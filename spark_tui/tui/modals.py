"""Small dialogs: a question before something is done, one line of text, a choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from spark_tui.base.page import Cell, Column, Table, Tone, cells
from spark_tui.tui.dialog import Dialog
from spark_tui.tui.format import key_hints
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.page import one_line
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.tui.yank import Yank

_CSS = Path(__file__).with_name("modals.tcss")  # absolute: a room may derive a dialog

LOSSES = ("Delete", "Remove")
"""Red is for what cannot be undone, and for what is not ours; the rest is amber."""


class ConfirmScreen(Dialog[bool]):
    """Asks once. `type_to_confirm`: the answer is yes only when that name is typed, and `because` says why it must."""

    CSS_PATH = _CSS
    CONFIRMS: ClassVar[tuple[str, ...]] = ("y", "enter")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "No"),
        Binding("y", "answer(True)", "Yes"),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
        Binding("pagedown", "turn(1)", "Text down", show=False),
        Binding("pageup", "turn(-1)", "Text up", show=False),
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
        super().__init__(classes="-typed" if type_to_confirm else None)
        self._question = question
        self._what = what
        self._verb = verb
        self._typed = type_to_confirm
        self._because = because

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            with VerticalScroll(classes="dialog-body", can_focus=False):
                yield Static(one_line(self._question, "bold"), classes="dialog-title")
                if self._what:
                    yield Static(one_line(self._what), classes="dialog-text")
                yield from self.extra()
            if self._typed:
                yield Static(one_line(f"{self._because} Type {self._typed} to confirm:"), id="why-typed")
                yield Input(id="typed", select_on_focus=False)
            with Horizontal(classes="dialog-buttons"):
                lost = bool(self._typed) or self._verb in LOSSES
                label = self._verb if self._typed else f"{self._verb} (y)"
                yield Button(label, id="yes", variant="error" if lost else "warning")
                yield Button("Cancel (Esc)" if self._typed else "Cancel (n)", id="no")

    def extra(self) -> Iterable[Widget]:
        """What a subclass shows below the text."""
        return ()

    def on_mount(self) -> None:
        """Enter alone never confirms: the safe answer has the focus."""
        if self._typed:
            self.query_one("#yes", Button).disabled = True
        else:
            self.query_one("#no", Button).focus()

    def on_key(self, event: Key) -> None:
        """Letters in a row are a text that is meant for another place: a `y` in it is no answer."""
        if event.is_printable and not self._typed:
            self.hold()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """With a name to type, `y` and `n` are letters of it."""
        if action == "answer" and parameters == (True,):
            return not self._typed
        return super().check_action(action, parameters)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#yes", Button).disabled = event.value.strip() != self._typed

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() == self._typed:
            self.dismiss(True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_turn(self, step: int) -> None:
        """A page of a text that is longer than its room."""
        body = self.query_one(".dialog-body", VerticalScroll)
        body.scroll_relative(y=step * max(1, body.size.height - 1), animate=False)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


FRAME_LINES = 8
"""Lines that a dialog's frame and the margin around it take."""


class TextDialog(Dialog[str | None]):
    """Asks for one line; None when the person cancels or leaves it empty."""

    CSS_PATH = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Back")]

    def __init__(self, title: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._title = title
        self._hint = hint
        self._value = value
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = one_line(self._title)
            dialog.border_subtitle = key_hints("Enter OK  Esc cancel")
            yield Static(one_line(self._hint, "$dim"), classes="dialog-text")
            yield Input(self._value, placeholder=self._placeholder, compact=True, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class ChoiceDialog(Dialog[str | None]):
    """A choice of `(key, text)`; answers the key, None when the person cancels."""

    CSS_PATH = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Back"), Binding("enter", "choose", "Choose")]

    def __init__(self, title: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._choices = tuple(choices)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = one_line(self._title)
            dialog.border_subtitle = key_hints("Enter choose  Esc cancel")
            yield RowList(id="choices")

    def on_mount(self) -> None:
        rows = self.query_one(RowList)
        rows.styles.height = min(len(self._choices), max(1, self.app.size.height - FRAME_LINES))
        texts = tuple(cells(text) for _, text in self._choices)
        rows.show_table(Table((Column("", least=1),), texts, tuple(key for key, _ in self._choices)))
        rows.focus()

    def action_choose(self) -> None:
        self.dismiss(self.query_one(RowList).key or None)


class MenuList(RowList, inherit_bindings=False):
    """A list without letter keys of its own: the menu's entries have them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
    ]


class YankMenu(QuietModal[Yank | None]):
    """What can be copied here; a letter or Enter copies it."""

    CSS_PATH = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Back"), Binding("enter", "choose", "Copy")]

    def __init__(self, entries: Sequence[Yank]) -> None:
        super().__init__()
        self._entries = {entry.letter: entry for entry in entries}

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Copy"
            dialog.border_subtitle = key_hints("letter or Enter copy  Esc cancel")
            yield MenuList()

    def on_mount(self) -> None:
        rows = self.query_one(MenuList)
        rows.styles.height = min(len(self._entries), max(1, self.app.size.height - FRAME_LINES))
        columns = (Column(""), Column(""), Column("", least=1))
        lines = (
            (Cell(letter, Tone.GOOD), Cell(entry.label, Tone.STRONG), Cell(entry.preview, Tone.QUIET))
            for letter, entry in self._entries.items()
        )
        rows.show_table(Table(columns, tuple(lines), tuple(self._entries)))
        rows.focus()

    def on_key(self, event: Key) -> None:
        if event.character in self._entries:
            event.stop()
            self.dismiss(self._entries[event.character])

    def action_choose(self) -> None:
        self.dismiss(self._entries[self.query_one(MenuList).key])
