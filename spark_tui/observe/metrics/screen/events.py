"""Events: what happened on this machine, the newest first, each with its whole text."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content

from spark_tui.base.actions import Scope
from spark_tui.base.finding import Event
from spark_tui.base.page import Page
from spark_tui.observe.metrics.show import events as present
from spark_tui.tui.frame import bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen
from spark_tui.tui.yank import Yank


class EventsScreen(ListScreen):
    """Over whatever was shown; Esc goes back there."""

    SCOPE = Scope.EVENTS
    TAB = ""
    CSS_PATH: ClassVar = [LIST_CSS]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.EVENTS)
    AUTO_FOCUS = "#event-list"
    LIST = "event-list"
    LIST_TITLE = "Events"
    FILTER = "filter: text, engine, kind, severity"
    PAGES = (("event", "Event"),)

    action_filter_events = ListScreen.action_filter

    def on_mount(self) -> None:
        self.bind_slices(("events",), self.show_rows)

    @property
    def event(self) -> Event | None:
        """The one under the cursor."""
        key = self.rows.key
        return next((event for event in self.world.events if present.event_id(event) == key), None)

    def show_rows(self) -> None:
        events, words, now = self.world.events, self.filter_words, self.context.clock.now()
        chosen = [event for event in events if present.matches(event, words)]
        empty = Content.styled("No matching events. Esc clears the filter." if words else "No events yet.", "$dim")
        self.rows.show_table(present.events_table(chosen, now), empty)
        self.show_count(len(chosen), len(events))
        self.show_selected()

    def show_selected(self) -> None:
        event = self.event
        page: Page = ()
        if event is not None:
            others = present.subject_page(event, self.world.events, self.context.clock.now())
            page = (*present.event_page(event), *others)
        self.page("event").show(page)
        self.show_title(event.subject or event.kind.value if event is not None else "Event")

    def yanks(self) -> tuple[Yank, ...]:
        event = self.event
        if event is None:
            return ()
        return (Yank("event", "e", "\n".join(filter(None, (event.text, event.remedy, event.detail)))),)

    def action_leave_events(self) -> None:
        self.spark.show_aside("events")
