"""A log over a bounded buffer, painted line by line: only what is on screen is ever taken apart."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import tzinfo
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Hide, MouseDown, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp, Resize, Show
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from spark_tui.core.logs import LineFilter, LogBuffer, LogState, Query
from spark_tui.services.ports import LogLine
from spark_tui.tui.format import Glyphs, choose
from spark_tui.tui.widgets.line import is_seen
from spark_tui.tui.widgets.log_paint import LogStyles, PaintedLog
from spark_tui.tui.widgets.log_reader import LogReader, Row

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


LOCAL_SECONDS, SSH_SECONDS = 0.1, 0.25
WORK_SECONDS = 0.03
"""Between two steps of a search or filter; a step takes 5 to 8 ms."""

SIDEWAYS_CELLS = 16
WHEEL_ROWS = 3


class LogView(LogCanvas, can_focus=True):
    """Shows a LogBuffer. What the screen says about it comes from its properties. Signs have room with a `gutter`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("shift+up", "mark(-1)", "Mark up", show=False),
        Binding("shift+down", "mark(1)", "Mark down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "top", "First line", show=False),
        Binding("end,G", "follow", "Last line", show=False),
        Binding("left", "sideways(-1)", "Left", show=False),
        Binding("right", "sideways(1)", "Right", show=False),
    ]

    class FollowChanged(Message):
        """The end is followed now, or no longer."""

    class SearchChanged(Message):
        """`match_text` says something else now."""

    def __init__(
        self,
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
        flush_seconds: float | None = None,
        glyphs: Glyphs | None = None,
        zone: tzinfo | None = None,
        gutter: bool = False,
    ) -> None:
        super().__init__(glyphs or choose(), zone, gutter=gutter, id=id)
        self._flush = flush_seconds or (SSH_SECONDS if "SSH_CONNECTION" in os.environ else LOCAL_SECONDS)
        self._seen = -1
        self._dragging = ""
        self._flusher: Timer | None = None
        self._worker: Timer | None = None

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """New lines come into view a few times a second, whatever their number, and only while somebody looks."""
        self._flusher = self.set_interval(self._flush, self._tick)
        self._worker = self.set_interval(WORK_SECONDS, self._work, pause=True)
        self.app.screen_change_signal.subscribe(self, lambda _: self._look())

    def on_show(self, _: Show) -> None:
        """It is on screen."""
        self._look()

    def on_hide(self, _: Hide) -> None:
        """It is not."""
        self._look()

    def _look(self) -> None:
        """No timer runs while the screen is hidden."""
        if self._flusher is None or self._worker is None:
            return
        if is_seen(self):
            self._flusher.resume()
            self._worker.resume()
            self._tick()
        else:
            self._flusher.pause()
            self._worker.pause()

    def _tick(self) -> None:
        """Looks whether the buffer has changed."""
        if self._reader.buffer.revision != self._seen:
            self._seen = self._reader.buffer.revision
            self._step()
            self._repaint()

    def _work(self) -> None:
        """Goes on with a search or filter."""
        with self._reading():
            if self._step() and self._worker is not None:
                self._worker.pause()

    def _step(self) -> bool:
        searching = self._reader.match_text
        complete = self._reader.step()
        if not complete and self._worker is not None:
            self._worker.resume()
        if self._reader.match_text != searching:
            self.post_message(self.SearchChanged())
        return complete

    @contextmanager
    def _reading(self) -> Iterator[LogReader]:
        """Something about the reading changes: what differs is repainted, and the screen hears of it."""
        following, searching = self.following, self.match_text
        yield self._reader
        if self.following != following:
            self.post_message(self.FollowChanged())
        if self.match_text != searching:
            self.post_message(self.SearchChanged())
        self._repaint()

    # --- what is shown --------------------------------------------------------------------------------

    def show(self, buffer: LogBuffer, nothing: str = NO_LINES) -> None:
        """Another log, or the same one again; `nothing` stands there while it has no line."""
        self.nothing = nothing
        if buffer is self._reader.buffer:
            return
        with self._reading() as reader:
            reader.show(buffer)
            self._seen, self._left = -1, 0
            self._paint.begin()
            self._forget()
            self._step()

    def filter(self, wanted: LineFilter | None) -> None:
        """Shows only the lines that pass, from their beginning; None shows all."""
        with self._reading() as reader:
            self._left = 0
            reader.filter(wanted)
            self._step()

    def search(self, query: Query | None) -> None:
        """Marks every match, and goes to the nearest one above, else below; None ends the search."""
        with self._reading() as reader:
            if query is None:
                self._left = 0
            reader.search(query)
            self._forget()
            self._step()

    def next_match(self) -> None:
        """Downwards."""
        with self._reading() as reader:
            reader.jump(1)

    def previous_match(self) -> None:
        """Upwards."""
        with self._reading() as reader:
            reader.jump(-1)

    def point_out(self, signs: Mapping[int, str]) -> None:
        """Lines that get a sign in the gutter, with its style: `error`, `warning`, `good` or `dim`."""
        if dict(signs) == self._signs:
            return
        with self._reading() as reader:
            self._signs = dict(signs)
            reader.places = tuple(sorted(signs))

    def visit(self, step: int) -> bool:
        """To the next line with a sign, or the previous one; whether there is any."""
        with self._reading() as reader:
            return reader.visit(step)

    @property
    def cursor(self) -> int | None:
        """The line under the cursor; None while the end is followed, and where no line is shown."""
        return self._reader.cursor if self._reader.numbers else None

    def follow(self) -> None:
        """To the end, and stay there."""
        with self._reading() as reader:
            reader.follow()

    def toggle_wrap(self) -> None:
        """Long lines over several rows, or cut."""
        with self._reading():
            self._paint.wrap = not self._paint.wrap
            self._left = 0
            self._forget()

    @property
    def total_count(self) -> int:
        """Lines in the buffer."""
        return len(self._reader.buffer)

    @property
    def shown_count(self) -> int:
        """Lines that pass the filter."""
        return len(self._reader.numbers)

    @property
    def following(self) -> bool:
        """Whether the end is followed."""
        return self._reader.following

    @property
    def open(self) -> bool:
        """Whether more lines can come."""
        return self._reader.buffer.state is LogState.OPEN

    @property
    def new_lines(self) -> int:
        """Shown lines that came since the end was left."""
        return self._reader.new_lines

    @property
    def wrapped(self) -> bool:
        """Whether long lines are wrapped."""
        return self._paint.wrap

    @property
    def match_text(self) -> str:
        """`match 3 of 12`, `no match`, or empty without a search."""
        return self._reader.match_text

    def selected_text(self) -> str:
        """The marked lines, else the one under the cursor, else the last one; cleaned, secrets masked."""
        return self._reader.selected_text()

    def traceback_text(self) -> str:
        """The whole traceback under the cursor; empty where none is."""
        return self._reader.traceback_text()

    # --- keys and mouse -------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """One line up or down."""
        with self._reading() as reader:
            reader.move(step)

    def action_mark(self, step: int) -> None:
        """Extends what is copied."""
        with self._reading() as reader:
            reader.mark_by(step)

    def action_page(self, step: int) -> None:
        """One page up or down."""
        with self._reading() as reader:
            reader.page(step)

    def action_top(self) -> None:
        """The oldest line."""
        with self._reading() as reader:
            reader.go_to(0)

    def action_follow(self) -> None:
        """The newest line, and follow."""
        self.follow()

    def action_sideways(self, step: int) -> None:
        """Scrolls long lines."""
        if not self._paint.wrap:
            with self._reading() as reader:
                longest = max((self._paint.line(row.number).strip.cell_length for row in reader.rows), default=0)
                limit = max(0, longest - self._text_width // 2)
                self._left = max(0, min(self._left + step * SIDEWAYS_CELLS, limit))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Three rows up; ends following."""
        event.stop()
        with self._reading() as reader:
            reader.scroll(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Three rows down; at the end it follows again."""
        event.stop()
        with self._reading() as reader:
            if not reader.following and not reader.scroll(WHEEL_ROWS):
                reader.follow()

    def on_mouse_down(self, event: MouseDown) -> None:
        """The line under the pointer, or a place in the scroll bar."""
        event.stop()
        self.capture_mouse()
        self._dragging = "bar" if event.x >= self._text_width else "lines"
        self._drag(event.y, begin=True)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Dragging marks lines, or moves the scroll bar."""
        if self._dragging:
            self._drag(event.y)

    def on_mouse_up(self, _: MouseUp) -> None:
        """Ends the dragging; what was marked stays marked."""
        self._dragging = ""
        self.release_mouse()

    def _drag(self, y: int, *, begin: bool = False) -> None:
        with self._reading() as reader:
            if self._dragging == "bar":
                reader.drag_to(y / max(1, reader.window.height - 1))
            elif reader.rows:
                inside = max(0, min(y, len(reader.rows) - 1))
                number = reader.rows[inside].number
                if begin:
                    reader.go_to_line(number)
                else:
                    reader.mark_to_line(number, (y > inside) - (y < inside))
