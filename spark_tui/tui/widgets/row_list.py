"""A list of rows with a cursor: declarative columns, keyed rows, groups, one repaint per changed row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.actions import SkipAction
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

from spark_tui.domain.text import clean_line
from spark_tui.present import page
from spark_tui.present.page import Table, column_widths
from spark_tui.tui.format import MAX_CELL, TONE_STYLES, UNICODE, Glyphs, safe

GAP = 2
MARK = 2
"""Cells on the left for the cursor's sign: a background alone is not seen on every terminal."""
HEADINGS_FROM = 12
"""Headings of groups cost lines: lists that are less high do without them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: fixed `width`, or flexible (`width` 0) with at least `minimum` cells and `maximum`, if there is one:
    what is read together stays together. Columns with `hide_below` disappear in lists narrower than that."""

    title: str
    width: int = 0
    minimum: int = 8
    maximum: int = 0
    hide_below: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `key` identifies it over updates, `cells` has one Content per column. A row with `group` gets that
    text as a heading above it, where it differs from the group of the row before."""

    key: str
    cells: tuple[Content, ...]
    group: str = ""

    def same(self, other: Row) -> bool:
        """Whether it looks the same: `==` of Content compares the text and not its styles."""
        return (self.key, self.group) == (other.key, other.group) and all(
            a.is_same(b) for a, b in zip(self.cells, other.cells, strict=True)
        )


class RowList(ScrollView, can_focus=True):
    """Shows rows; the cursor stays on its key when rows come and go. `titles` names the columns in the first line,
    `gap` is the room between them in cells."""

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
            return self.row_list

    def __init__(
        self,
        columns: Sequence[Column] = (),
        empty: Content = Content(""),  # noqa: B008 - immutable
        *,
        titles: bool = False,
        gap: int = GAP,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self._columns = tuple(columns)
        self._rows: tuple[Row, ...] = ()
        self._empty = empty
        self._titles = titles
        self._gap = gap
        self._lines: list[int | str] = []
        self._line_of: list[int] = []
        self._table: Table | None = None
        self._measured: tuple[int, dict[int, int]] | None = None

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
        old, before, lines = self._rows, self.key, self._lines
        self._rows = new
        self._arrange()
        keys = [row.key for row in new]
        index = keys.index(before) if before in keys else min(self.cursor, max(0, len(new) - 1))
        moved = index != self.cursor
        self.set_reactive(RowList.cursor, index)
        if moved or self._lines != lines or bool(old) != bool(new):
            self.refresh()
            self._reveal()
        else:
            for row, (was, now) in enumerate(zip(old, new, strict=True)):
                if not was.same(now):
                    self._refresh_row(row)
        if self.key != before:
            self.post_message(self.Moved(self, self.key))

    def show_table(self, table: Table, empty: Content | None = None) -> None:
        """Replaces columns and rows by those of a table, whose ids are the keys. `empty` is shown in place of the
        table's own text where there are no rows."""
        before, self._table = self._widths(), table
        self._measured = None
        groups = table.groups or ("",) * len(table.rows)
        rows = [
            Row(id_, tuple(safe(cell.text[:MAX_CELL], TONE_STYLES[cell.tone]) for cell in cells), group)
            for id_, cells, group in zip(table.ids, table.rows, groups, strict=True)
        ]
        if self._widths() != before:
            self.refresh()
        self.show(rows, safe(table.empty) if empty is None else empty)

    def _widths(self) -> dict[int, int]:
        """Cells of each column that is shown."""
        width = self.scrollable_content_region.width - MARK
        if self._table is None:
            return {}
        if self._measured is None or self._measured[0] != width:
            self._measured = (width, column_widths(self._table, width, self._gap))
        return self._measured[1]

    def _arrange(self) -> None:
        """Lines on screen: a row's number, or the text of a heading."""
        headings = self._room() >= HEADINGS_FROM
        self._lines, self._line_of, group = [], [], ""
        for number, row in enumerate(self._rows):
            if headings and row.group and row.group != group:
                self._lines.append(row.group)
            group = row.group
            self._line_of.append(len(self._lines))
            self._lines.append(number)
        self.virtual_size = Size(self.size.width, len(self._lines) + self._titles)

    def _room(self) -> int:
        """Lines of rows that are seen at a time."""
        return max(0, self.size.height - self._titles)

    def on_resize(self) -> None:
        """Another height may have other headings, and the cursor stays in view."""
        self._arrange()
        self.refresh()
        self._reveal()

    def select(self, key: str) -> None:
        """Puts the cursor on the row of that key, if it is there."""
        for index, row in enumerate(self._rows):
            if row.key == key:
                self.cursor = index
                return

    # --- cursor ---------------------------------------------------------------------------------------

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, len(self._rows) - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        """Repaints the two rows and keeps the cursor in view."""
        self._refresh_row(old)
        self._refresh_row(new)
        self._reveal()
        if self._rows:
            self.post_message(self.Moved(self, self.key))

    def _reveal(self) -> None:
        """Scrolls as little as shows the cursor; a group's first row comes with its heading."""
        top, room = self.scroll_offset.y, self._room()
        if not self._rows or not room:
            return
        line = self._line_of[self.cursor]
        first = line - 1 if line and isinstance(self._lines[line - 1], str) and room > 1 else line
        if first < top:
            self.scroll_to(y=first, animate=False, force=True)
        elif line >= top + room:
            self.scroll_to(y=line - room + 1, animate=False, force=True)

    def action_move(self, step: int) -> None:
        """So many rows up or down; at the list's end the key is for what is around it."""
        before = self.cursor
        self.cursor += step
        if self.cursor == before:
            raise SkipAction

    def action_page(self, step: int) -> None:
        """One page up or down; at the list's end as `action_move`."""
        self.action_move(step * max(1, self._room() - 1))

    def action_edge(self, step: int) -> None:
        self.cursor = 0 if step < 0 else len(self._rows) - 1

    def on_click(self, event: Click) -> None:
        line = self._line_at(event.y)
        if isinstance(line, int):
            self.cursor = line

    def _line_at(self, y: int) -> int | str | None:
        """What stands at a height of the widget: a row's number, a heading, or None."""
        index = y - self._titles + self.scroll_offset.y
        return self._lines[index] if y >= self._titles and 0 <= index < len(self._lines) else None

    def on_focus(self) -> None:
        self._refresh_row(self.cursor)

    def on_blur(self) -> None:
        self._refresh_row(self.cursor)

    # --- paint ----------------------------------------------------------------------------------------

    def _refresh_row(self, row: int) -> None:
        if row >= len(self._line_of):
            return
        y = self._line_of[row] - self.scroll_offset.y + self._titles
        if self._titles <= y < self.size.height:
            self.refresh_line(y)

    def render_line(self, y: int) -> Strip:
        """One row, or the text that says what to do when there is none."""
        width = self.scrollable_content_region.width
        if not self._rows:
            return self._render_empty(y, width)
        if self._titles and y == 0:
            return self._strip(
                self._line([Content.styled(each.title, "$dim") for each in self._headings()], width), width
            )
        line = self._line_at(y)
        if isinstance(line, int):
            return self._paint(self._rows[line], width, line == self.cursor)
        heading = Content.styled(clean_line(line), "bold $dim").truncate(width, ellipsis=True) if line else Content("")
        return self._strip(heading, width)

    def _headings(self) -> Sequence[Column | page.Column]:
        return self._columns if self._table is None else self._table.columns

    def _strip(self, content: Content, width: int) -> Strip:
        return Visual.to_strips(self, content, width, 1, self.visual_style)[0]

    def _render_empty(self, y: int, width: int) -> Strip:
        lines = self._empty.wrap(width) if width else []
        content = lines[y] if y < len(lines) else Content("")
        return self._strip(content, width)

    def _paint(self, row: Row, width: int, on_cursor: bool) -> Strip:
        style = self.visual_style
        if on_cursor:
            name = "row-list--cursor" if self.has_focus else "row-list--cursor-blurred"
            style += Style(background=self.get_visual_style(name).background)
        mark = Content.styled(self._glyphs.cursor, "$primary" if self.has_focus else "$dim") if on_cursor else None
        line = self._line(row.cells, width, mark)
        return Visual.to_strips(self, line, width, 1, style)[0]

    @property
    def _glyphs(self) -> Glyphs:
        return getattr(self.app, "glyphs", UNICODE)

    def _line(self, cells: Sequence[Content], width: int, mark: Content | None = None) -> Content:
        parts: list[Content] = []
        for cell, size, column in self._layout(cells, width - MARK):
            if parts:
                parts.append(Content(" " * self._gap))
            cut = cell.truncate(size, ellipsis=True)
            filler = Content(" " * (size - cut.cell_length))
            parts.extend((filler, cut) if column.right else (cut, filler))
        lead = Content("") if mark is None else mark
        line = Content.assemble(lead, " " * (MARK - lead.cell_length), *parts)
        return Content.assemble(line, " " * max(0, width - line.cell_length))  # the cursor's row goes to the edge

    def _layout(self, cells: Sequence[Content], width: int) -> list[tuple[Content, int, Column | page.Column]]:
        if self._table is not None:
            columns = self._table.columns
            return [(cells[at], size, columns[at]) for at, size in self._widths().items()]
        shown = [
            (cell, column) for cell, column in zip(cells, self._columns, strict=True) if width >= column.hide_below
        ]
        fixed = sum(column.width for _, column in shown) + self._gap * (len(shown) - 1)
        flexible = sum(1 for _, column in shown if not column.width)
        room = max(0, width - fixed)
        out: list[tuple[Content, int, Column | page.Column]] = []
        for cell, column in shown:
            if column.width:
                out.append((cell, column.width, column))
            else:
                share = room // flexible
                room, flexible = room - share, flexible - 1
                out.append((cell, min(share, column.maximum) if column.maximum else share, column))
        return out
