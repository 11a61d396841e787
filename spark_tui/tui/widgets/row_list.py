"""A list of rows with a cursor: declarative columns, keyed rows, one repaint per changed row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column: fixed `width`, or flexible (`width` 0) with at least `minimum` cells. Columns with `hide_below`
    disappear in lists narrower than that."""

    title: str
    width: int = 0
    minimum: int = 8
    hide_below: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `key` identifies it over updates, `cells` has one Content per column."""

    key: str
    cells: tuple[Content, ...]

    def same(self, other: Row) -> bool:
        """Whether it looks the same: `==` of Content compares the text and not its styles."""
        return self.key == other.key and all(a.is_same(b) for a, b in zip(self.cells, other.cells, strict=True))


class RowList(ScrollView, can_focus=True):
    """Shows rows; the cursor stays on its key when rows come and go."""

    DEFAULT_CSS = """
    RowList { background: transparent; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"row-list--cursor", "row-list--cursor-blurred"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(-1)", "First", show=False),
        Binding("end,G", "edge(1)", "Last", show=False),
    ]

    cursor: var[int] = var(0)

    class Moved(Message):
        """The cursor is on another row now; `key` is empty when the list is."""

        def __init__(self, row_list: RowList, key: str) -> None:
            super().__init__()
            self.row_list = row_list
            self.key = key

        @property
        def control(self) -> RowList:
            """The list that it comes from."""
            return self.row_list

    def __init__(self, columns: Sequence[Column], empty: Content, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._columns = tuple(columns)
        self._rows: tuple[Row, ...] = ()
        self._empty = empty

    # --- data -----------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key under the cursor; empty when there are no rows."""
        return self._rows[self.cursor].key if self._rows else ""

    def show(self, rows: Sequence[Row], empty: Content | None = None) -> None:
        """Replaces the rows; only lines that differ are repainted."""
        new = tuple(rows)
        if empty is not None and not empty.is_same(self._empty):
            self._empty = empty
            if not new:
                self.refresh()
        old, before = self._rows, self.key
        self._rows = new
        self.virtual_size = Size(self.size.width, len(new))
        keys = [row.key for row in new]
        index = keys.index(before) if before in keys else min(self.cursor, max(0, len(new) - 1))
        if len(old) != len(new) or not old or not new:
            self.refresh()
        else:
            for y, (was, now) in enumerate(zip(old, new, strict=True)):
                if not was.same(now):
                    self._refresh_row(y)
        moved = index != self.cursor
        self.set_reactive(RowList.cursor, index)
        if moved:
            self.refresh()
        if self.key != before:
            self.post_message(self.Moved(self, self.key))

    def select(self, key: str) -> None:
        """Puts the cursor on the row of that key, if it is there."""
        for index, row in enumerate(self._rows):
            if row.key == key:
                self.cursor = index
                return

    # --- cursor ---------------------------------------------------------------------------------------

    def validate_cursor(self, cursor: int) -> int:
        """Inside the list."""
        return max(0, min(cursor, len(self._rows) - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        """Repaints the two rows and keeps the cursor in view."""
        self._refresh_row(old)
        self._refresh_row(new)
        top, height = self.scroll_offset.y, self.size.height
        if new < top:
            self.scroll_to(y=new, animate=False)
        elif height and new >= top + height:
            self.scroll_to(y=new - height + 1, animate=False)
        if self._rows:
            self.post_message(self.Moved(self, self.key))

    def action_move(self, step: int) -> None:
        """One row up or down."""
        self.cursor += step

    def action_page(self, step: int) -> None:
        """One page up or down."""
        self.cursor += step * max(1, self.size.height - 1)

    def action_edge(self, step: int) -> None:
        """The first or the last row."""
        self.cursor = 0 if step < 0 else len(self._rows) - 1

    def on_click(self, event: Click) -> None:
        """Selects the row under the pointer."""
        row = event.y + self.scroll_offset.y
        if row < len(self._rows):
            self.cursor = row

    def on_focus(self) -> None:
        """The cursor row looks different with focus."""
        self._refresh_row(self.cursor)

    def on_blur(self) -> None:
        """The cursor row looks different without focus."""
        self._refresh_row(self.cursor)

    # --- paint ----------------------------------------------------------------------------------------

    def _refresh_row(self, row: int) -> None:
        y = row - self.scroll_offset.y
        if 0 <= y < self.size.height:
            self.refresh_line(y)

    def render_line(self, y: int) -> Strip:
        """One row, or the text that says what to do when there is none."""
        width = self.size.width
        if not self._rows:
            return self._render_empty(y, width)
        index = y + self.scroll_offset.y
        if index >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        return self._paint(self._rows[index], width, index == self.cursor)

    def _render_empty(self, y: int, width: int) -> Strip:
        lines = self._empty.wrap(width) if width else []
        content = lines[y] if y < len(lines) else Content("")
        return Visual.to_strips(self, content, width, 1, self.visual_style)[0]

    def _paint(self, row: Row, width: int, on_cursor: bool) -> Strip:
        style = self.visual_style
        if on_cursor:
            name = "row-list--cursor" if self.has_focus else "row-list--cursor-blurred"
            style += Style(background=self.get_visual_style(name).background)
        return Visual.to_strips(self, self._line(row.cells, width), width, 1, style)[0]

    def _line(self, cells: Sequence[Content], width: int) -> Content:
        parts: list[Content] = []
        for cell, size, column in self._layout(cells, width):
            if parts:
                parts.append(Content(" " * GAP))
            cut = cell.truncate(size, ellipsis=True)
            filler = Content(" " * (size - cut.cell_length))
            parts.extend((filler, cut) if column.right else (cut, filler))
        return Content.assemble(*parts)

    def _layout(self, cells: Sequence[Content], width: int) -> list[tuple[Content, int, Column]]:
        shown = [
            (cell, column) for cell, column in zip(cells, self._columns, strict=True) if width >= column.hide_below
        ]
        fixed = sum(column.width for _, column in shown) + GAP * (len(shown) - 1)
        flexible = sum(1 for _, column in shown if not column.width)
        room = max(0, width - fixed)
        out: list[tuple[Content, int, Column]] = []
        for cell, column in shown:
            if column.width:
                out.append((cell, column.width, column))
            else:
                share = room // flexible
                room, flexible = room - share, flexible - 1
                out.append((cell, max(share, 0), column))
        return out
