"""The surface of a log view: rows, what stands below the last one, and the scroll bar."""

from __future__ import annotations

from datetime import tzinfo
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.events import Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from spark_tui.core.log_buffer import LogBuffer, LogState
from spark_tui.services.ports import LogLine
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.log_paint import LogStyles, PaintedLog
from spark_tui.tui.widgets.log_reader import LogReader
from spark_tui.tui.widgets.log_window import Row

GUTTER_CELLS = 2
"""Left of every line, for the signs."""
NO_LINES = "No lines yet."


class _Cell(NamedTuple):
    """All that decides how a row looks: equal ones need no repaint."""

    row: Row | tuple[str, str] | None
    marked: bool
    left: int
    wrap: bool
    bar: str
    sign: str


class LogCanvas(Widget):
    """Paints what a LogReader reads; a repaint touches only the rows that look different."""

    ALLOW_SELECT = False  # dragging marks whole lines
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log-view--dim",
        "log-view--warning",
        "log-view--error",
        "log-view--match",
        "log-view--good",
        "log-view--cursor",
        "log-view--bar",
    }
    DEFAULT_CSS = """
    LogCanvas { width: 1fr; height: 1fr; }
    LogCanvas > .log-view--dim { color: $dim; }
    LogCanvas > .log-view--warning { color: $warning; }
    LogCanvas > .log-view--error { color: $error; }
    LogCanvas > .log-view--match { color: $background; background: $warning; text-style: bold; }
    LogCanvas > .log-view--good { color: $success; }
    LogCanvas > .log-view--cursor { background: $cursor-row; }
    LogCanvas > .log-view--bar { color: $rule; }
    """

    def __init__(self, glyphs: Glyphs, zone: tzinfo | None, *, gutter: bool, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._has_gutter = gutter
        self._paint = PaintedLog(self._line, self._styles, glyphs.ellipsis, zone)
        self._reader = LogReader(LogBuffer(), lambda number: len(self._paint.rows(number)))
        self._left = 0
        self._cells: list[_Cell] = []
        self._signs: dict[int, str] = {}
        """Lines with a sign in the gutter, and the style of it."""
        self.nothing = NO_LINES
        """Stands there while there is no line."""

    def on_resize(self, _: Resize) -> None:
        """Another size, other rows."""
        self._forget()

    def notify_style_update(self) -> None:
        """Strips carry colours."""
        super().notify_style_update()
        self._forget()

    def _forget(self) -> None:
        """What was painted no longer holds."""
        self._paint.width = self._text_width
        self._paint.query = self._reader.query
        self._paint.forget()
        self._cells = []
        self._repaint()

    @property
    def _text_width(self) -> int:
        return max(1, self.size.width - 1 - self._gutter)

    @property
    def _gutter(self) -> int:
        return GUTTER_CELLS if self._has_gutter else 0

    def _notice(self) -> tuple[str, str]:
        """What stands below the last line, and its style: why no more lines come, or why there are none."""
        buffer = self._reader.buffer
        if buffer.state is LogState.FAILED:
            return f"The log cannot be read on: {buffer.reason}", "error"
        if self._reader.filtered_out:
            return "No line passes the filter.", "dim"
        if buffer.state is LogState.ENDED:
            return f"End of the log: {buffer.reason}" if buffer.reason else "End of the log.", "dim"
        return ("", "") if len(buffer) else (self.nothing, "dim")

    def _repaint(self) -> None:
        """Works out the rows, and repaints those that look different."""
        size, reader = self.size, self._reader
        if not size.width or not size.height:
            return
        notice = self._notice()
        height = size.height - (1 if notice[0] and reader.numbers else 0)
        reader.lay_out(height)
        if self._paint.learn_processes({row.number for row in reader.rows}):
            self._cells = []
            reader.lay_out(height)
        self._show_match()
        thumb = self._thumb()
        old, self._cells = self._cells, [self._cell(y, notice, thumb) for y in range(size.height)]
        changed = [y for y, cell in enumerate(self._cells) if y >= len(old) or old[y] != cell]
        if len(changed) > size.height // 2:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, size.width, 1) for y in changed))

    def _show_match(self) -> None:
        """Goes sideways to a match that would be beyond the edge."""
        number, self._reader.jumped_to = self._reader.jumped_to, None
        if number is None or self._paint.wrap or self._reader.query is None:
            return
        text, width = self._paint.line(number).strip.text, self._text_width - 2
        spans = [(cell_len(text[:start]), cell_len(text[:end])) for start, end in self._reader.query.spans(text)[:1]]
        for start, end in spans:
            if end <= width:
                self._left = 0
            elif start < self._left or end > self._left + width:
                self._left = max(0, start - width // 3)

    def _cell(self, y: int, notice: tuple[str, str], thumb: range) -> _Cell:
        rows = self._reader.rows
        row = rows[y] if y < len(rows) else notice if y == len(rows) and notice[0] else None
        marked = y < len(rows) and self._reader.is_marked(rows[y].number)
        bar = self._glyphs.engine if y in thumb else " "
        sign = self._signs.get(row.number, "") if isinstance(row, Row) and row.part == 0 else ""
        return _Cell(row, marked, self._left, self._paint.wrap, bar, sign)

    def _thumb(self) -> range:
        """Rows of the scroll bar's thumb; empty while everything is in view."""
        numbers, window = self._reader.numbers, self._reader.window
        last = window.last_index(numbers)
        if last <= 0 or window.height < 3:
            return range(0)
        size = max(1, round(window.height**2 / (last + window.height)))
        start = round(window.index(numbers) / last * (window.height - size))
        return range(start, start + size)

    def _line(self, number: int) -> LogLine:
        return self._reader.buffer.line(number)

    def _styles(self) -> LogStyles:
        return LogStyles(Style.null(), *(self._style(name) for name in ("dim", "warning", "error", "match")))

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"log-view--{name}", partial=True)

    def render_line(self, y: int) -> Strip:
        """One row and its piece of the scroll bar."""
        base, width = self.rich_style, self._text_width
        if y >= len(self._cells):
            return Strip.blank(self.size.width, base)
        cell = self._cells[y]
        bar = Strip([Segment(cell.bar, base + self._style("bar"))])
        if cell.marked:
            base += Style(bgcolor=self._style("cursor").bgcolor)
        if isinstance(cell.row, Row):
            strip, left = self._paint.rows(cell.row.number)[cell.row.part], cell.left
        else:
            text, name = cell.row or ("", "dim")
            strip, left = Strip([Segment(text, self._style(name or "dim"))]), 0
        strip = self._within(strip, left, width).extend_cell_length(width, base).apply_style(base)
        return Strip.join([self._sign(cell.sign, base), strip, bar])

    def _sign(self, name: str, base: Style) -> Strip | None:
        if not self._gutter:
            return None
        loud = name in ("error", "warning")
        sign = self._glyphs.warning if loud else self._glyphs.bullet if name else ""
        style = base + self._style(name) if name else base
        return Strip([Segment(sign.ljust(GUTTER_CELLS), style)])

    def _within(self, strip: Strip, left: int, width: int) -> Strip:
        """What is in view of a line; a mark stands where it goes on beyond the edge."""
        mark = Strip([Segment(self._glyphs.ellipsis, self._style("dim"))])
        before = left > 0 and strip.cell_length > 0
        after = strip.cell_length > left + width
        inside = strip.crop(left + before, left + width - after)
        return Strip.join([mark if before else None, inside, mark if after else None])
