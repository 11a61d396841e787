"""A log over a bounded buffer, painted line by line: only what is on screen is ever parsed."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import tzinfo
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import MouseDown, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp, Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer

from spark_tui.base.ports import LogLine
from spark_tui.base.text import cells_left, clean_line
from spark_tui.observe.engines.screen.pager import LogPager, LogRow
from spark_tui.observe.engines.screen.paint import LogPainter
from spark_tui.observe.explain.use import LineFilter, LogBuffer, LogState, MergedLog, Query
from spark_tui.tui.format import Glyphs, choose
from spark_tui.tui.widgets.line import VisibilityWidget

GUTTER_CELLS = 2
"""Left of every line, for the signs."""
LOUD = ("error", "warning")
NO_LINES = "No lines yet."
LOCAL_SECONDS, SSH_SECONDS = 0.1, 0.25
WORK_SECONDS = 0.03
"""Between two steps of a search or filter; a step takes 5 to 8 ms."""
SIDEWAYS_CELLS = 16
WHEEL_ROWS = 3


class _ShownRow(NamedTuple):
    """All that decides how a row looks: equal ones need no repaint. `row` may be a notice with its style."""

    row: LogRow | tuple[str, str] | None
    marked: bool
    left: int
    wrap: bool
    bar: tuple[str, str]
    sign: str
    folded: int


class LogView(VisibilityWidget, can_focus=True):
    """Shows a LogBuffer; a repaint touches only the rows that look different. Signs have room with a `gutter`.

    Read `pager` for what is shown; change it inside `with view.paging() as pager`.
    """

    ALLOW_SELECT = False  # dragging marks whole lines
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"log-view--{name}"
        for name in ("dim", "warning", "error", "match", "good", "cursor", "bar", "name0", "name1", "name2", "name3")
    }
    DEFAULT_CSS = """
    LogView { width: 1fr; height: 1fr; }
    LogView > .log-view--dim { color: $dim; }
    LogView > .log-view--warning { color: $warning; }
    LogView > .log-view--error { color: $error; }
    LogView > .log-view--match { color: $background; background: $warning; text-style: bold; }
    LogView > .log-view--good { color: $success; }
    LogView > .log-view--cursor { background: $cursor-row; }
    LogView > .log-view--bar { color: $rule; }
    LogView > .log-view--name0 { color: $secondary; }
    LogView > .log-view--name1 { color: $accent; }
    LogView > .log-view--name2 { color: $foreground; }
    LogView > .log-view--name3 { color: $mem-cache; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "pager('move', -1)", "Up", show=False),
        Binding("down,j", "pager('move', 1)", "Down", show=False),
        Binding("shift+up", "pager('mark', -1)", "Mark up", show=False),
        Binding("shift+down", "pager('mark', 1)", "Mark down", show=False),
        Binding("pageup,ctrl+b", "pager('page', -1)", "Page up", show=False),
        Binding("pagedown,space", "pager('page', 1)", "Page down", show=False),
        Binding("home,g", "pager('go_to', 0)", "First line", show=False),
        Binding("end,G", "pager('follow')", "Last line", show=False),
        Binding("left", "sideways(-1)", "Left", show=False),
        Binding("right", "sideways(1)", "Right", show=False),
    ]

    class FollowChanged(Message):
        """The end is followed now, or no longer."""

    class SearchChanged(Message):
        """The pager's `match_text` has changed."""

    def __init__(
        self,
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
        flush_seconds: float | None = None,
        glyphs: Glyphs | None = None,
        zone: tzinfo | None = None,
        gutter: bool = False,
    ) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs or choose()
        self._gutter = GUTTER_CELLS if gutter else 0
        self._flush = flush_seconds or (SSH_SECONDS if "SSH_CONNECTION" in os.environ else LOCAL_SECONDS)
        self._painter = LogPainter(self._line, self._style, self._glyphs.ellipsis, zone, self._glyphs.rule)
        self.pager = LogPager(LogBuffer(), self._painter.height)
        self._nothing = NO_LINES
        self._left = 0
        self._shown: list[_ShownRow] = []
        self._signs: dict[int, str] = {}
        self._seen_revision = -1
        self._dragging = ""
        self._base = Style.null()
        self._flusher: Timer | None = None
        self._worker: Timer | None = None

    # --- new lines, search and filter -----------------------------------------------------------------

    def on_mount(self) -> None:
        """New lines come into view a few times a second, whatever their number."""
        self._flusher = self.set_interval(self._flush, self._tick)
        self._worker = self.set_interval(WORK_SECONDS, self._work, pause=True)

    def visibility_changed(self, seen: bool) -> None:
        """No timer runs while the screen is hidden."""
        for timer in (self._flusher, self._worker):
            if timer is not None:
                timer.resume() if seen else timer.pause()
        if seen and self._flusher is not None:
            self._tick()

    def _tick(self) -> None:
        self.pager.buffer.pull()
        if self.pager.buffer.revision != self._seen_revision:
            self._seen_revision = self.pager.buffer.revision
            self._step()
            self._repaint()

    def _work(self) -> None:
        """A step of a search or filter: its end is painted at once, what it has found by then with the next tick."""
        following, self._seen_revision = self.pager.following, -1
        if self._step() and self._worker is not None:
            self._worker.pause()
            self._repaint()
        if self.pager.following != following:
            self.post_message(self.FollowChanged())

    def _step(self) -> bool:
        searching = self.pager.match_text
        complete = self.pager.step()
        if not complete and self._worker is not None:
            self._worker.resume()
        if self.pager.match_text != searching:
            self.post_message(self.SearchChanged())
        return complete

    @contextmanager
    def paging(self) -> Iterator[LogPager]:
        """Changes the pager: rows that look different afterwards are repainted, and messages go to the screen."""
        following, searching = self.pager.following, self.pager.match_text
        yield self.pager
        if self.pager.following != following:
            self.post_message(self.FollowChanged())
        if self.pager.match_text != searching:
            self.post_message(self.SearchChanged())
        self._repaint()

    def show(self, buffer: LogBuffer, nothing: str = NO_LINES) -> None:
        """Another log, or the same one again; `nothing` is shown while it has no line."""
        self._nothing = nothing
        if buffer is self.pager.buffer:
            return
        with self.paging() as pager:
            pager.show(buffer)
            self._painter.names = tuple(map(clean_line, buffer.names)) if isinstance(buffer, MergedLog) else ()
            self._painter.owner = buffer.owner
            self._seen_revision, self._left, self._painter.process_cells = -1, 0, 0
            self._forget()
            self._step()

    def filter(self, wanted: LineFilter | None) -> None:
        """Shows only the lines that pass, from their beginning; None shows all."""
        with self.paging() as pager:
            self._left = 0
            pager.filter(wanted)
            self._step()

    def search(self, query: Query | None) -> None:
        """Marks every match, and goes to the nearest one above, else below; None ends the search."""
        with self.paging() as pager:
            self._left = 0 if query is None else self._left
            pager.search(query)
            self._forget()
            self._step()

    def point_out(self, signs: Mapping[int, str]) -> None:
        """Lines that get a sign in the gutter, with its style: `error`, `warning`, `good` or `dim`."""
        if dict(signs) != self._signs:
            with self.paging() as pager:
                self._signs = dict(signs)
                pager.places = tuple(sorted(signs))

    def head(self, headers: Mapping[int, str]) -> None:
        """What stands above a line in a row of its own."""
        shown = {at: text for line, text in headers.items() if (at := self.pager.shown_for(line)) is not None}
        if shown != self._painter.headers:
            with self.paging():
                self._painter.head(shown)
                self._shown = []

    @property
    def wrapped(self) -> bool:
        return self._painter.wrap

    def toggle_wrap(self) -> None:
        """Long lines over several rows, or cut."""
        with self.paging():
            self._painter.wrap, self._left = not self._painter.wrap, 0
            self._forget()

    # --- painting -------------------------------------------------------------------------------------

    def on_resize(self, _: Resize) -> None:
        self._forget()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._forget()

    def _forget(self) -> None:
        self._painter.width, self._painter.query = self._text_width, self.pager.query
        self._painter.forget()
        self._shown = []
        self._repaint()

    @property
    def _text_width(self) -> int:
        return max(1, self.size.width - 1 - self._gutter)

    def _notice(self) -> tuple[str, str]:
        """The row below the last line, and its style: why no more lines come, or why there are none."""
        buffer = self.pager.buffer
        if buffer.state is LogState.FAILED:
            return f"The log cannot be read on: {buffer.reason}", "error"
        if self.pager.filtered_out:
            return "No line passes the filter.", "dim"
        if buffer.state is LogState.ENDED:
            return f"End of the log: {buffer.reason}" if buffer.reason else "End of the log.", "dim"
        return ("", "") if len(buffer) else (self._nothing, "dim")

    def _repaint(self) -> None:
        size, pager, wrap = self.size, self.pager, self._painter.wrap
        if not size.width or not size.height:
            return
        notice = self._notice()
        height = size.height - (1 if notice[0] and pager.numbers else 0)
        pager.lay_out(height)
        if self._painter.learn_processes({row.number for row in pager.rows}):
            self._shown = []
            pager.lay_out(height)
        self._scroll_to_match()
        thumb, rows, shown = self._thumb(), pager.rows, list[_ShownRow]()
        signs = {at: sign for line, sign in self._signs.items() if (at := pager.shown_for(line)) is not None}
        places = self._places(signs)
        for y in range(size.height):
            mark = self._glyphs.warning if places.get(y) in LOUD else self._glyphs.bullet
            bar = (mark, places[y]) if y in places else (self._glyphs.engine if y in thumb else " ", "bar")
            if y < len(rows):
                number, part = rows[y]
                first = part == int(number in self._painter.headers)
                sign, folded = (signs.get(number, ""), pager.folded.get(number, 0)) if first else ("", 0)
                shown.append(_ShownRow(rows[y], pager.is_marked(number), self._left, wrap, bar, sign, folded))
            else:
                below = notice if y == len(rows) and notice[0] else None
                shown.append(_ShownRow(below, False, self._left, wrap, bar, "", 0))
        old, self._shown = self._shown, shown
        changed = [y for y, row in enumerate(shown) if y >= len(old) or old[y] != row]
        if len(changed) > size.height // 2:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, size.width, 1) for y in changed))

    def _scroll_to_match(self) -> None:
        """Scrolls sideways to a match that was jumped to and is beyond the edge."""
        number, self.pager.jumped_to = self.pager.jumped_to, None
        if number is None or self._painter.wrap or self.pager.query is None:
            return
        text, width = self._painter.line(number).strip.text, self._text_width - 2
        for start, end in self.pager.query.spans(text)[:1]:
            first, last = cell_len(text[:start]), cell_len(text[:end])
            if last <= width:
                self._left = 0
            elif first < self._left or last > self._left + width:
                self._left = max(0, first - width // 3)

    def _thumb(self) -> range:
        """Rows of the scroll bar's thumb; empty while everything is in view."""
        height, (index, last) = self.pager.height, self.pager.place()
        if last <= 0 or height < 3:
            return range(0)
        size = max(1, round(height**2 / (last + height)))
        start = round(index / last * (height - size))
        return range(start, start + size)

    def _places(self, signs: Mapping[int, str]) -> dict[int, str]:
        """Rows of the scroll bar at which a sign lies in the whole log; the gravest of those on one row."""
        numbers, height = self.pager.numbers, self.pager.height
        if not self._gutter or len(numbers) <= height or height < 3:
            return {}
        found: dict[int, str] = {}
        for style in ("dim", "good", "warning", "error"):
            for line, sign in signs.items():
                if sign == style:
                    found[bisect_left(numbers, line) * height // len(numbers)] = sign
        return found

    def _line(self, number: int) -> LogLine:
        return self.pager.buffer.line(number)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"log-view--{name}", partial=True)

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # of all ancestors: once for all lines
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """A sign, what is in view of the line with a mark where it is cut, and a piece of the scroll bar."""
        base, width = self._base, self._text_width
        if y >= len(self._shown):
            return Strip.blank(self.size.width, base)
        shown = self._shown[y]
        bar = Segment(shown.bar[0], base + self._style(shown.bar[1]))
        if shown.marked:
            base += self._style("cursor")
        if isinstance(shown.row, LogRow):
            strip, left = self._painter.rows(shown.row.number)[shown.row.part], shown.left
        else:
            text, name = shown.row or ("", "dim")
            strip, left = Strip([Segment(text, self._style(name))]), 0
        tag = f" x{shown.folded + 1:,}"[:width] if shown.folded else ""
        room, dim = cells_left(width, len(tag)), self._style("dim")
        before, after = left > 0 and strip.cell_length > 0, strip.cell_length > left + room
        inside = strip.crop(left + before, left + room - after) if left or after else strip
        cut, blank = Segment(self._glyphs.ellipsis, dim), cells_left(room, before, after, inside.cell_length)
        parts = [*[cut] * before, *inside, *[cut] * after, Segment(" " * blank), Segment(tag, dim)]
        if self._gutter:
            sign = self._glyphs.warning if shown.sign in LOUD else self._glyphs.bullet if shown.sign else ""
            parts.insert(0, Segment(sign.ljust(GUTTER_CELLS), self._style(shown.sign) if shown.sign else None))
        if shown.marked and self._style("cursor").color:  # one colour for all of the line
            parts = [Segment(part.text) for part in parts]
        return Strip([*Segment.apply_style((part for part in parts if part.text), base), bar])

    # --- keys and mouse -------------------------------------------------------------------------------

    def action_pager(self, method: str, *steps: int) -> None:
        with self.paging() as pager:
            getattr(pager, method)(*steps)

    def action_sideways(self, step: int) -> None:
        if not self._painter.wrap:
            with self.paging() as pager:
                longest = max((self._painter.line(row.number).strip.cell_length for row in pager.visible()), default=0)
                limit = max(0, longest - self._text_width // 2)
                self._left = max(0, min(self._left + step * SIDEWAYS_CELLS, limit))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Three rows up; ends following."""
        event.stop()
        with self.paging() as pager:
            pager.scroll(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Three rows down; at the end it follows again."""
        event.stop()
        with self.paging() as pager:
            if not pager.following and not pager.scroll(WHEEL_ROWS):
                pager.follow()

    def on_mouse_down(self, event: MouseDown) -> None:
        event.stop()
        self.capture_mouse()
        self._dragging = "bar" if event.x >= self._text_width else "lines"
        self._drag(event.y, begin=True)

    def on_mouse_move(self, event: MouseMove) -> None:
        if self._dragging:
            self._drag(event.y)

    def on_mouse_up(self, _: MouseUp) -> None:
        self._dragging = ""
        self.release_mouse()

    def _drag(self, y: int, *, begin: bool = False) -> None:
        with self.paging() as pager:
            if self._dragging == "bar":
                pager.drag_to(y / max(1, pager.height - 1))
            elif pager.rows:
                inside = max(0, min(y, len(pager.rows) - 1))
                number = pager.rows[inside].number
                if begin:
                    pager.go_to_line(number)
                else:
                    pager.mark((y > inside) - (y < inside), number)
