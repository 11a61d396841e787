"""The tour as a dialog, over any screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from spark_tui.tui.tour import tour
from spark_tui.tui.widgets.line import Line


class TourText(Line):
    """The text, wrapped for the dialog's width."""

    def say(self, width: int) -> Content:
        """What each part of the screen is for."""
        return tour(width)


class TourScreen(ModalScreen[None]):
    """One look, one key to go on."""

    CSS_PATH = "tour.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,space,q,f1,question_mark", "close", "Close")]

    def compose(self) -> ComposeResult:
        """The text in a dialog."""
        with VerticalScroll(classes="dialog", id="tour") as dialog:
            dialog.border_title = "The screen in one look"
            dialog.border_subtitle = "Esc goes on"
            yield TourText()

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss(None)
