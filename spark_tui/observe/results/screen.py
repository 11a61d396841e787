"""References: the models with published figures, and everything published of one."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content

from spark_tui.base.actions import Scope
from spark_tui.base.engine.runtimes import published_of, published_where
from spark_tui.observe.results import show as present
from spark_tui.tui.frame import bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen


class ReferencesScreen(ListScreen):
    """Over whatever was shown; Esc goes back there."""

    SCOPE = Scope.REFERENCES
    TAB = ""
    CSS_PATH: ClassVar = [LIST_CSS, "screen.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.REFERENCES)
    AUTO_FOCUS = "#reference-list"
    LIST = "reference-list"
    LIST_TITLE = "Models"
    FILTER = "filter: model"
    PAGES = (("reference", "Published"),)

    action_filter_references = ListScreen.action_filter

    def on_mount(self) -> None:
        """What is published does not change while the program runs."""
        self._total = len(present.models_table(published_where(lambda _: True)).rows)
        self.show_rows()

    def show_rows(self) -> None:
        words = self.filter_words
        table = present.models_table(published_where(lambda name: all(word in name.lower() for word in words)))
        self.rows.show_table(table, Content.styled("No matching models. Esc clears the filter.", "$dim"))
        self.show_count(len(table.rows), self._total)
        self.show_selected()

    def show_selected(self) -> None:
        key = self.rows.key
        self.page("reference").show(present.model_page(published_of(key)) if key else ())
        self.show_title(key)

    def action_leave_references(self) -> None:
        self.spark.show_aside("references")
