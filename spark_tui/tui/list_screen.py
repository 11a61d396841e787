"""A screen with a list on the left and pages of the selected row on the right; the list has a filter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, VerticalScroll
from textual.events import Key
from textual.widgets import Input, TabbedContent, TabPane

from spark_tui.base.actions import of_scope
from spark_tui.base.page import Page as Sections
from spark_tui.base.text import clean_line, truncate
from spark_tui.tui.frame import FrameApp, FrameScreen
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList

LIST_CSS = Path(__file__).with_name("list_screen.tcss")
"""For the CSS_PATH of each such screen."""
MAX_TITLE = 200
TALL_ENOUGH = 34
"""Rows of a terminal on which the list may have a page below it."""
MORE_LEAST = 8
"""Rows that the list must leave for it."""
PAINT_SECONDS = 1.0
"""Progress arrives many times a second; a person over SSH needs it once."""


class ListScreen(FrameScreen):
    """Subclasses declare the list and its pages, and implement `show_rows` and `show_selected`.

    Their action registry names the keys; `action_filter`, `action_next_tab` and `action_previous_tab` do the work:
    a subclass gives them the names that its actions have (`action_filter_presets = ListScreen.action_filter`).
    """

    LIST: ClassVar[str]
    """Id of the list."""
    LIST_TITLE: ClassVar[str]
    FILTER: ClassVar[str] = ""
    """What stands in the empty filter; without it there is none."""
    PAGES: ClassVar[tuple[tuple[str, str], ...]]
    """Id and title of each page: its `Page` widget has that id, its tab `ID-page`, what scrolls it `ID-scroll`."""
    MORE: ClassVar[str] = ""
    """Title of a page below a short list; without it there is none."""
    _top_of: str | None = None
    _count: str | None = None
    _painted_at = float("-inf")
    _paint_waits = False

    # --- compose --------------------------------------------------------------------------------------

    def compose_body(self) -> ComposeResult:
        """List on the left, pages on the right; one above the other when it is narrow."""
        with Horizontal(id="columns"):
            with Container(id="list-pane", classes="pane") as pane:
                pane.border_title = self.LIST_TITLE
                if self.FILTER:
                    field = Input(placeholder=self.FILTER, id="filter", compact=True)
                    field.display = False
                    yield field
                yield from self.compose_list()
                if self.MORE:
                    with VerticalScroll(id="more", can_focus=False) as more:
                        more.border_title = self.MORE
                        more.display = False
                        yield Page(id="more-page")
            with Container(id="detail-pane", classes="pane"):
                yield from self.compose_detail()
            yield from self.compose_rail()

    def compose_rail(self) -> ComposeResult:
        """A third pane, where a screen has one."""
        return ()

    def compose_list(self) -> ComposeResult:
        yield RowList(titles=True, gap=1, id=self.LIST)

    def compose_detail(self) -> ComposeResult:
        """The pages behind tabs; a single page has none."""
        if len(self.PAGES) == 1:
            name = self.PAGES[0][0]
            with VerticalScroll(id=f"{name}-scroll"):
                yield from self.compose_page(name)
            return
        with TabbedContent(id="pages"):
            for name, title in self.PAGES:
                with TabPane(title, id=f"{name}-page"), VerticalScroll(id=f"{name}-scroll"):
                    yield from self.compose_page(name)

    def compose_page(self, name: str) -> ComposeResult:
        yield Page(id=name)

    # --- what there is --------------------------------------------------------------------------------

    @property
    def rows(self) -> RowList:
        return self.query_one(f"#{self.LIST}", RowList)

    @property
    def filter_words(self) -> list[str]:
        """What the filter asks for, in lower case; empty without a filter."""
        return self.query_one("#filter", Input).value.lower().split() if self.FILTER else []

    def page(self, name: str) -> Page:
        return self.query_one(f"#{name}", Page)

    # --- show -----------------------------------------------------------------------------------------

    def show_rows(self) -> None:
        """Fills the list, then calls `show_selected`."""
        raise NotImplementedError

    def show_selected(self) -> None:
        """Fills the pages with what is known of the row under the cursor."""
        raise NotImplementedError

    def show_count(self, shown: int, total: int, more: str = "") -> None:
        """How many rows there are, at the foot of the list's frame."""
        count = f"{shown} of {total}" if self.filter_words or shown != total else str(total)
        self._count = f"{count}{more}"
        self._show_foot()

    def name_keys(self) -> None:
        super().name_keys()
        self._show_foot()

    def _show_foot(self) -> None:
        """While the filter is typed, the footer's letters are text: its own keys stand beside the count."""
        if self._count is not None:
            typing = self.FILTER and self.query_one("#filter", Input).has_focus
            keys = "Enter list  Esc clear   " if typing else ""
            entitle(self.query_one("#list-pane"), f"{keys}{self._count}", below=True)

    def show_title(self, title: str) -> None:
        """What the pages are about, on their frame. Another row's pages start at their top."""
        entitle(self.query_one("#detail-pane"), truncate(clean_line(title), MAX_TITLE))
        key = self.rows.key
        if key != self._top_of:
            self._top_of = key
            for scroll in self.query("#detail-pane VerticalScroll"):
                scroll.scroll_home(animate=False)

    def show_more(self, page: Sections) -> bool:
        """Fills the page below the list. Whether it is shown: it has something to say, and the list leaves room."""
        more = self.query_one("#more")
        room = self.query_one("#list-pane").size.height - self.rows.lines_wanted
        more.display = bool(page) and self.app.size.height >= TALL_ENOUGH and room >= MORE_LEAST
        if more.display:
            more.styles.height = room
            self.page("more-page").show(page)
        return more.display

    def repaint_soon(self) -> None:
        """Calls `show_rows` now, or when a second has passed since the last time."""
        if self._paint_waits:
            return
        left = self._painted_at + PAINT_SECONDS - self.context.clock.monotonic()
        if left > 0:
            self._paint_waits = True
            self._show_later(left)
        else:
            self._painted_at = self.context.clock.monotonic()
            self.show_rows()

    @work(exit_on_error=False, group="paint")
    async def _show_later(self, seconds: float) -> None:
        await self.context.clock.sleep(seconds)
        self._paint_waits = False
        if self.is_current:
            self.repaint_soon()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        if message.row_list.id == self.LIST:
            self.show_selected()

    # --- tabs -----------------------------------------------------------------------------------------

    def turn_page(self, step: int) -> None:
        tabs = self.query_one("#pages", TabbedContent)
        names = [f"{name}-page" for name, _ in self.PAGES]
        tabs.active = names[(names.index(tabs.active) + step) % len(names)]

    def action_next_tab(self) -> None:
        self.turn_page(1)

    def action_previous_tab(self) -> None:
        self.turn_page(-1)

    # --- filter ---------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def set_filter(self, text: str) -> None:
        """Filters the list by that text; an empty one closes the filter."""
        field = self.query_one("#filter", Input)
        field.value = text
        field.display = bool(text)

    def look_for(self, text: str, names: Sequence[str]) -> None:
        """Shows these rows, asked for by another screen: those that `text` finds."""
        self.set_filter(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.show_rows()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the list; an empty filter is closed."""
        if event.input.id == "filter":
            self.set_filter(event.value)
            self.rows.focus()

    def key_escape(self, event: Key) -> None:
        """One step back: from a page to the list, then the filter is cleared, then Home, unless the
        screen has an action for the last step."""
        field = self.query_one("#filter", Input) if self.FILTER else None
        if field is not None and field.display and (field.has_focus or self.rows.has_focus):
            self.set_filter("")
            self.rows.focus()
        elif not self.rows.has_focus:
            self.rows.focus()
        elif not any("escape" in each.keys for each in of_scope(self.SCOPE)):
            self.spark.switch_mode("home")
        else:
            return
        event.stop()

    def key_down(self) -> None:
        """From the filter into what it found."""
        if self.FILTER and self.query_one("#filter", Input).has_focus:
            self.rows.focus()


async def go(app: FrameApp, mode: str, id_: str = "", *, engine: str = "", row: str = "") -> None:
    """Shows a screen, with that engine selected or the cursor on that row, and runs an action there."""
    if engine:
        app.selected = engine
    if app.current_mode != mode:
        await app.turn_to(mode)
    screen = app.screen
    if row and isinstance(screen, ListScreen):
        if screen.FILTER:
            screen.set_filter("")
        screen.show_rows()
        screen.rows.select(row)
        screen.rows.focus()
    if id_:
        await screen.run_action(id_)
