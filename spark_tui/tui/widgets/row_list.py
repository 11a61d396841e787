"""A list of rows with a cursor: declarative columns, keyed rows, groups, one repaint per changed row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, Final

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

from spark_tui.base.page import Cell, Table, column_widths
from spark_tui.base.text import cells_left, clean_line
from spark_tui.tui.format import MAX_CELL, TONE_STYLES, UNICODE, Glyphs, column_titles, pressable, safe
from spark_tui.tui.widgets.line import strip_of

GAP = 2
RIGHT_BUTTON: Final = 3
MARK = 2
"""Cells on the left for the cursor's sign: a background alone is not seen on every terminal."""
HEADINGS_FROM = 12
"""Headings of groups cost lines: lists that are less high do without them, unless all of it fits."""


NO_ROWS: Final = Table((), ())


def _whole(table: Table) -> Iterator[tuple[Cell, ...]]:
    """Each row with its second line."""
    return (row + (table.below[at] if table.below else ()) for at, row in enumerate(table.rows))


class RowList(ScrollView, can_focus=True):
    """Shows a table; the cursor stays on its row's id when rows come and go. `titles` names the columns in the first
    line, `gap` is the room between them in cells."""

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

    class TitlePressed(Message):
        """A column's title was clicked; `column` is its place in the table."""

        def __init__(self, row_list: RowList, column: int) -> None:
            super().__init__()
            self.row_list = row_list
            self.column = column

    def __init__(
        self,
        empty: Content = Content(""),  # noqa: B008 - immutable
        *,
        titles: bool = False,
        gap: int = GAP,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self.set_reactive(RowList.auto_links, False)
        self._table = NO_ROWS
        self._empty = empty
        self._titles = titles
        self._gap = gap
        self._lines: list[int | str] = []
        self._line_of: list[int] = []
        self._measured: tuple[int, dict[int, int]] | None = None

    # --- data -----------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The id under the cursor; empty when there are no rows."""
        return self._table.ids[self.cursor] if self._table.ids else ""

    @property
    def ids(self) -> tuple[str, ...]:
        """The rows, in order."""
        return self._table.ids

    @property
    def lines_wanted(self) -> int:
        """The height at which all rows and their headings are seen."""
        groups = self._table.groups
        headings = sum(bool(own) and own != before for before, own in pairwise(("", *groups)))
        return len(self._table.rows) + len(self._table.below) + headings + self._titles

    def show_table(self, table: Table, empty: Content | None = None) -> None:
        """Replaces the rows; only lines that differ are repainted. `empty` is shown in place of the table's own text
        where there are no rows."""
        old, before, lines, widths = self._table, self.key, self._lines, self._widths()
        self._table, self._measured = table, None
        text, was_empty = safe(table.empty) if empty is None else empty, self._empty
        self._empty = text
        self._arrange()
        ids = table.ids
        index = ids.index(before) if before in ids else min(self.cursor, max(0, len(ids) - 1))
        moved = index != self.cursor
        self.set_reactive(RowList.cursor, index)
        if moved or self._lines != lines or self._widths() != widths or (not ids and not text.is_same(was_empty)):
            self.refresh()
            self._reveal()
        else:
            pairs = zip(_whole(old), _whole(table), strict=True)
            for row in (row for row, (was, now) in enumerate(pairs) if was != now):
                self._refresh_row(row)
        if self.key != before:
            self.post_message(self.Moved(self, self.key))

    def _widths(self) -> dict[int, int]:
        """Cells of each column that is shown."""
        width = cells_left(self.scrollable_content_region.width, MARK)
        if self._measured is None or self._measured[0] != width:
            self._measured = (width, column_widths(self._table, width, self._gap))
        return self._measured[1]

    def _arrange(self) -> None:
        """Lines on screen: a row's number, for its second line `~number`, or the text of a heading."""
        headings = self._room() >= HEADINGS_FROM or self.size.height >= self.lines_wanted
        self._lines, self._line_of, group = [], [], ""
        for number, own in enumerate(self._table.groups or ("",) * len(self._table.rows)):
            if headings and own and own != group:
                self._lines.append(own)
            group = own
            self._line_of.append(len(self._lines))
            self._lines += [number, ~number] if self._table.below else [number]
        self.virtual_size = Size(self.size.width, len(self._lines) + self._titles)

    def _room(self) -> int:
        """Lines of rows that are seen at a time."""
        return cells_left(self.size.height, self._titles)

    def on_resize(self) -> None:
        """Another height may have other headings, and the cursor stays in view."""
        self._arrange()
        self.refresh()
        self._reveal()

    def select(self, key: str) -> None:
        """Puts the cursor on the row of that key, if it is there."""
        if key in self._table.ids:
            self.cursor = self._table.ids.index(key)

    # --- cursor ---------------------------------------------------------------------------------------

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, len(self._table.ids) - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        """Repaints the two rows and keeps the cursor in view."""
        self._refresh_row(old)
        self._refresh_row(new)
        self._reveal()
        if self._table.ids:
            self.post_message(self.Moved(self, self.key))

    def _reveal(self) -> None:
        """Scrolls as little as shows the cursor; a group's first row comes with its heading."""
        top, room = self.scroll_offset.y, self._room()
        if not self._table.ids or not room:
            return
        line = self._line_of[self.cursor]
        first = line - 1 if line and isinstance(self._lines[line - 1], str) and room > 1 else line
        if first < top:
            self.scroll_to(y=first, animate=False, force=True)
        elif (last := line + bool(self._table.below)) >= top + room:
            self.scroll_to(y=last - room + 1, animate=False, force=True)

    def action_move(self, step: int) -> None:
        """Moves up or down; at the list's end the key is for what is around it."""
        before = self.cursor
        self.cursor += step
        if self.cursor == before:
            raise SkipAction

    def action_page(self, step: int) -> None:
        """One page up or down; at the list's end as `action_move`."""
        self.action_move(step * max(1, self._room() // (2 if self._table.below else 1) - 1))

    def action_edge(self, step: int) -> None:
        self.cursor = 0 if step < 0 else len(self._table.ids) - 1

    async def on_click(self, event: Click) -> None:
        """Moves the cursor there; a second click does what Enter does, the right button shows what can be done."""
        line = self._line_at(event.y)
        if isinstance(line, int):
            self.cursor = max(line, ~line)
            if event.button == RIGHT_BUTTON:
                await self.app.run_action("help")
            elif event.chain == 2:
                self.app.simulate_key("enter")

    def action_press_title(self, column: int) -> None:
        self.post_message(self.TitlePressed(self, column))

    def _line_at(self, y: int) -> int | str | None:
        """What stands at a height of the widget, as in `_arrange`; None for nothing."""
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
        first = self._line_of[row] - self.scroll_offset.y + self._titles
        for y in range(first, first + 1 + bool(self._table.below)):
            if self._titles <= y < self.size.height:
                self.refresh_line(y)

    def render_line(self, y: int) -> Strip:
        """One row, or the text that says what to do when there is none."""
        width, table = self.scrollable_content_region.width, self._table
        line = self._line_at(y)
        content, style = Content(""), self.visual_style
        if not table.ids:
            lines = self._empty.wrap(width) if width else []
            content = lines[y] if y < len(lines) else content
        elif self._titles and y == 0:
            titles = enumerate(column_titles(table))
            heads = (pressable(Content.styled(title, "$dim"), f"press_title({at})") for at, title in titles)
            content = self._line([*heads], width)
        elif isinstance(line, int):
            widths, row = self._widths(), max(line, ~line)
            if line < 0:
                cells = [safe(each.text[:MAX_CELL], TONE_STYLES[each.tone]) for each in table.below[row] if each.text]
            else:
                cells = [
                    safe(each.within(widths.get(at, 0))[:MAX_CELL], TONE_STYLES[each.tone])
                    for at, each in enumerate(table.rows[line])
                ]
            mark = Content("")
            if row == self.cursor:
                look = self.get_visual_style(f"row-list--cursor{'' if self.has_focus else '-blurred'}")
                glyphs: Glyphs = getattr(self.app, "glyphs", UNICODE)
                mark = Content.styled(glyphs.cursor, "$primary" if self.has_focus else "$dim")
                if look.foreground != style.foreground:  # a colour for all of the row
                    mark, cells = Content(mark.plain), [Content(each.plain) for each in cells]
                style += Style(background=look.background, foreground=look.foreground)
            content = self._line(cells, width, mark) if line >= 0 else self._second(cells, width, mark)
        elif line:
            content = Content.styled(clean_line(line), "bold $dim").truncate(width, ellipsis=True)
        return strip_of(self, content, width, style)

    def _second(self, cells: Sequence[Content], width: int, mark: Content) -> Content:
        """A row's second line: its parts beside each other, indented under its name."""
        line = Content.assemble(mark, " " * cells_left(MARK + GAP, mark.cell_length), Content("  ").join(cells))
        line = line.truncate(width, ellipsis=True)
        return Content.assemble(line, " " * cells_left(width, line.cell_length))

    def _line(self, cells: Sequence[Content], width: int, mark: Content = Content("")) -> Content:  # noqa: B008
        parts: list[Content] = []
        for at, size in self._widths().items():
            cut = cells[at].truncate(size, ellipsis=True)
            filler = Content(" " * cells_left(size, cut.cell_length))
            parts += [Content(" " * self._gap)] if parts else []
            parts += (filler, cut) if self._table.columns[at].right else (cut, filler)
        line = Content.assemble(mark, " " * cells_left(MARK, mark.cell_length), *parts)
        return Content.assemble(line, " " * cells_left(width, line.cell_length))  # the cursor's row goes to the edge
