"""Every private name of Textual that this program uses, each with the reason why no public one will do.

`tests/tui/test_textual_private.py` proves that each of them still does what it is used for.
"""

from __future__ import annotations

from typing import Any, TypeVar

from rich.console import RenderableType
from textual.app import App
from textual.events import Paste, ScreenResume
from textual.notifications import Notification
from textual.screen import Screen
from textual.widgets import Input

Answer = TypeVar("Answer")


class QuietScreen(Screen[Answer]):
    """A screen that is styled once and painted once when it is first shown."""

    _was_shown = False

    def __init__(self) -> None:
        super().__init__()
        # Textual parses all style sheets again for a screen whose count is not the app's.
        self._css_update_count = self.app._css_update_count
        # Breakpoint classes that are set on the first Resize have the whole screen styled a second time.
        width, height = self.app.size
        across = self._get_breakpoint_classes(width, self.HORIZONTAL_BREAKPOINTS or [])
        down = self._get_breakpoint_classes(height, self.VERTICAL_BREAKPOINTS or [])
        self.add_class(*across, *down, update=False)

    def _compositor_refresh(self) -> None:
        """Nothing while the app batches changes: Textual would draw the picture, discard it, and take its widgets for
        painted. The first picture comes whole once the screen is mounted."""
        if not self.app._batch_count:
            super()._compositor_refresh()

    def _on_screen_resume(self, event: ScreenResume) -> None:
        """A screen that is shown for the first time was styled just now: Textual would do it again."""
        event.refresh_styles = event.refresh_styles and self._was_shown
        self._was_shown = True
        self.resumed()

    def resumed(self) -> None:
        """The screen is shown again, or for the first time."""


class PlainCrashApp(App[Answer]):
    """An app whose crash report is its own."""

    def crash_report(self, error: BaseException) -> RenderableType:
        """What is left on the terminal when the app crashes."""
        raise NotImplementedError

    def _fatal_error(self) -> None:
        """In place of Textual's traceback, which shows the values of variables: keys, prompts, answers among them."""
        self.bell()
        if self._exception is not None:
            self._exit_renderables.append(self.crash_report(self._exception))
        self._close_messages_no_wait()


class PasteInput(Input):
    """An input that decides itself what becomes of a paste: Textual's keeps the first line and drops the rest."""

    def pasted(self, text: str) -> str | None:
        """What is inserted instead; None where the paste has been dealt with."""
        raise NotImplementedError

    def _on_paste(self, event: Paste) -> None:
        text = self.pasted(event.text)
        if text is not None:
            super()._on_paste(Paste(text))
        event.prevent_default()
        event.stop()


def end_same_notices(app: App[Any], notice: Notification) -> None:
    """Ends notices that say the same as a new one. There is no public list of those that are shown."""
    for shown in [each for each in app._notifications if (each.message, each.title) == (notice.message, notice.title)]:
        app._unnotify(shown, refresh=False)
