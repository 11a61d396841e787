"""The input of the chat: several lines, a history, and no key of the screen that would fire while one types."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key, Paste
from textual.message import Message
from textual.widgets import TextArea

from spark_tui.base.text import clean

NEWLINE_KEYS = ("ctrl+j", "alt+enter", "shift+enter")
"""The first works in every terminal; without the Kitty protocol the others look like Enter."""
HISTORY = 200
_KEYS = {"redo": "ctrl+shift+z", "select_all": "alt+a", "delete_to_end_of_line_or_delete_line": "alt+k"}
"""Where the screen needs TextArea's own key: ctrl+y, F7, ctrl+k."""
_SCREENS = ("cursor_page_up", "cursor_page_down", "select_line")
"""TextArea's actions whose keys the screen uses otherwise."""


class Prompt(TextArea, inherit_bindings=False):
    """Enter sends; see `NEWLINE_KEYS`. Up and down leave the text at its edges for earlier questions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        replace(binding, key=_KEYS.get(binding.action, binding.key))
        for binding in TextArea.BINDINGS
        if isinstance(binding, Binding) and binding.action not in _SCREENS
    ]

    class Submitted(Message):
        """Enter was pressed on a text that is not empty. The text stays until `accept`."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Edge(Message):
        """Home or End in an empty prompt: meant for the transcript. `step` is -1 or 1."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, compact=True, highlight_cursor_line=False, show_line_numbers=False)
        self.cursor_blink = False
        self._sent: list[str] = []
        self._recalled = 0
        """Steps back in the history; 0 is the draft."""
        self._draft = ""

    def accept(self) -> None:
        """Moves the submitted text into the history."""
        text = self.text
        if not self._sent or self._sent[-1] != text:
            self._sent = [*self._sent, text][-HISTORY:]
        self._recalled, self._draft = 0, ""
        self.load_text("")

    def say(self, placeholder: Content) -> None:
        """Shows `placeholder` while the prompt is empty."""
        before = self.placeholder
        if not isinstance(before, Content) or not placeholder.is_same(before):
            self.placeholder = placeholder

    async def _on_key(self, event: Key) -> None:
        if event.key == "enter" and self.text.strip():
            self.post_message(self.Submitted(self.text))
        elif event.key in NEWLINE_KEYS:
            self.replace("\n", *self.selection)
        if event.key in ("enter", "tab", "shift+tab", *NEWLINE_KEYS):  # Tab stays: what comes next is text too
            event.stop()
            event.prevent_default()

    async def _on_paste(self, event: Paste) -> None:
        """Terminals end pasted lines with a carriage return; a paste may hold control codes."""
        event.stop()
        event.prevent_default()
        self.replace(clean(event.text.replace("\r\n", "\n").replace("\r", "\n")), *self.selection)

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self.navigator.is_first_wrapped_line(self.cursor_location) or not self._recall(1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location) or not self._recall(-1):
            super().action_cursor_down(select)

    def action_cursor_line_start(self, select: bool = False) -> None:
        if self.text:
            super().action_cursor_line_start(select)
        else:
            self.post_message(self.Edge(-1))

    def action_cursor_line_end(self, select: bool = False) -> None:
        if self.text:
            super().action_cursor_line_end(select)
        else:
            self.post_message(self.Edge(1))

    def _recall(self, step: int) -> bool:
        """Shows an older (1) or newer (-1) text; False where there is none."""
        wanted = self._recalled + step
        if not 0 <= wanted <= len(self._sent):
            return False
        if self._recalled == 0:
            self._draft = self.text
        self._recalled = wanted
        self.load_text(self._draft if wanted == 0 else self._sent[-wanted])
        first_line = (0, len(self.document[0]))
        self.move_cursor(first_line if step > 0 else self.document.end)
        return True
