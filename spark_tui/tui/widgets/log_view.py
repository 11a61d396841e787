"""A log over a bounded buffer, painted line by line: only what is on screen is ever taken apart.

Following is an explicit state: moving up ends it, `follow` brings it back. Positions are absolute line numbers, so
that lines which the buffer lets go never shift what is read.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from spark_tui.core.log_buffer import LogBuffer
from spark_tui.core.log_search import LineFilter, MatchIndex, Query
from spark_tui.domain.text import clean_line
from spark_tui.tui.widgets.log_paint import LogPainter, LogStyles

LOCAL_SECONDS, SSH_SECONDS = 0.1, 0.25
SIDEWAYS_CELLS = 16
CACHED_STRIPS = 400
WRAP_ROWS = 40


class LogView(Widget, can_focus=True):
    """Shows a LogBuffer. The screen asks `status` words from its properties."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log-view--dim",
        "log-view--warning",
        "log-view--error",
        "log-view--match",
        "log-view--cursor",
    }
    DEFAULT_CSS = """
    LogView > .log-view--dim { color: $dim; }
    LogView > .log-view--warning { color: $warning; }
    LogView > .log-view--error { color: $error; }
    LogView > .log-view--match { color: $background; background: $warning; text-style: bold; }
    LogView > .log-view--cursor { background: $cursor-row; }
    """
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

    def __init__(self, *, id: str | None = None, flush_seconds: float | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._flush = flush_seconds or (SSH_SECONDS if "SSH_CONNECTION" in os.environ else LOCAL_SECONDS)
        self._buffer = LogBuffer()
        self._filtered: MatchIndex | None = None
        self._found: MatchIndex | None = None
        self._wanted_jump = 0
        self._seen = -1
        self._following = True
        self._wrap = False
        self._cursor = 0
        self._mark: int | None = None
        self._top = 0
        self._left = 0
        self._end_when_left = 0
        self._rows: list[tuple[int, Strip]] = []
        self._strips: dict[tuple[int, bool], Strip] = {}
        self._painter: LogPainter | None = None
        self._timer: Timer | None = None

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """New lines come into view a few times a second, whatever their number."""
        self._timer = self.set_interval(self._flush, self._tick)

    def on_resize(self, _: Resize) -> None:
        """Another size, other rows."""
        self._repaint()

    def notify_style_update(self) -> None:
        """Strips carry colours."""
        self._painter = None
        self._strips.clear()
        super().notify_style_update()

    def _tick(self) -> None:
        if not self.screen.is_current:
            return
        busy = False
        for index in (self._filtered, self._found):
            if index is not None and not index.complete:
                index.step()
                busy = True
        if self._wanted_jump and self._found is not None and self._found.complete:
            step, self._wanted_jump = self._wanted_jump, 0
            self._jump(step)
        if busy or self._buffer.revision != self._seen:
            self._seen = self._buffer.revision
            if self._following or self._top < self._buffer.first or not self._full():
                self._repaint()

    def _full(self) -> bool:
        return len(self._rows) >= self.size.height

    # --- what is shown --------------------------------------------------------------------------------

    def show(self, buffer: LogBuffer) -> None:
        """Another log, or the same one again."""
        if buffer is self._buffer:
            return
        wanted = self._filtered.wanted if self._filtered is not None else None
        query = self._found.wanted.query if self._found is not None else None
        self._buffer = buffer
        self._strips.clear()
        self._seen, self._top, self._cursor, self._left, self._mark = -1, buffer.first, buffer.first, 0, None
        self.filter(wanted)
        self._found = MatchIndex(buffer, LineFilter(query=query)) if query is not None else None
        self.follow()

    def filter(self, wanted: LineFilter | None) -> None:
        """Shows only the lines that pass; None shows all."""
        self._filtered = None if wanted is None or wanted.off else MatchIndex(self._buffer, wanted)
        if self._filtered is not None:
            self._filtered.step()
        self._repaint()

    @property
    def total_count(self) -> int:
        """Lines in the buffer."""
        return len(self._buffer)

    @property
    def shown_count(self) -> int:
        """Lines that pass the filter."""
        return len(self._filtered.numbers) if self._filtered is not None else len(self._buffer)

    @property
    def following(self) -> bool:
        """Whether the end is followed."""
        return self._following

    @property
    def new_lines(self) -> int:
        """Lines that came since the end was left."""
        return 0 if self._following else max(0, self._buffer.end - self._end_when_left)

    @property
    def wrapped(self) -> bool:
        """Whether long lines are wrapped."""
        return self._wrap

    def _numbers(self) -> range | list[int]:
        if self._filtered is not None:
            return self._filtered.numbers
        return range(self._buffer.first, self._buffer.end)

    # --- moving ---------------------------------------------------------------------------------------

    def follow(self) -> None:
        """To the end, and stay there."""
        numbers = self._numbers()
        self._cursor = numbers[-1] if numbers else 0
        self._mark = None
        self._set_following(True)
        self._repaint()

    def _set_following(self, following: bool) -> None:
        if following != self._following:
            self._following = following
            self._end_when_left = self._buffer.end
            self.post_message(self.FollowChanged())

    def _go(self, number_index: int, *, keep_mark: bool = False) -> None:
        """Puts the cursor on the n-th shown line and scrolls it into view."""
        numbers = self._numbers()
        if not numbers:
            return
        last = len(numbers) - 1
        index = max(0, min(number_index, last))
        if not keep_mark:
            self._mark = None
        self._cursor = numbers[index]
        top, height = self._index_of(self._top), max(1, self.size.height)
        if index < top:
            self._top = numbers[index]
        else:
            while index - top >= height or (self._wrap and self._height(numbers, top, index) > height):
                top += 1
            self._top = numbers[min(top, last)]
        self._repaint()

    def _height(self, numbers: range | list[int], first: int, last: int) -> int:
        return sum(len(self._rows_of(numbers[index])) for index in range(first, last + 1))

    def _index_of(self, number: int) -> int:
        numbers = self._numbers()
        if isinstance(numbers, range):
            return max(0, min(number - numbers.start, len(numbers) - 1))
        return min(bisect_left(numbers, number), max(0, len(numbers) - 1))

    def _leave_end(self) -> None:
        if self._following:
            self._top = self._rows[0][0] if self._rows else self._buffer.first
            self._set_following(False)

    def action_move(self, step: int) -> None:
        """One line up or down."""
        at_end = self._index_of(self._cursor) >= self.shown_count - 1
        if step > 0 and (self._following or at_end):
            return
        self._leave_end()
        self._go(self._index_of(self._cursor) + step)

    def action_mark(self, step: int) -> None:
        """Extends what `y` copies."""
        self._leave_end()
        if self._mark is None:
            self._mark = self._cursor
        self._go(self._index_of(self._cursor) + step, keep_mark=True)

    def action_page(self, step: int) -> None:
        """One page up or down."""
        if step > 0 and self._following:
            return
        self._leave_end()
        self._go(self._index_of(self._cursor) + step * max(1, self.size.height - 1))

    def action_top(self) -> None:
        """The oldest line."""
        self._leave_end()
        self._go(0)

    def action_follow(self) -> None:
        """The newest line, and follow."""
        self.follow()

    def action_sideways(self, step: int) -> None:
        """Scrolls long lines."""
        if not self._wrap:
            self._left = max(0, self._left + step * SIDEWAYS_CELLS)
            self._repaint()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Three lines up; ends following."""
        event.stop()
        self._leave_end()
        self._go(self._index_of(self._top) - 3)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Three lines down; at the end it follows again."""
        event.stop()
        if self._following:
            return
        bottom = self._rows[-1][0] if self._rows else 0
        if self._index_of(bottom) >= self.shown_count - 1:
            self.follow()
        else:
            self._go(self._index_of(bottom) + 3)

    def on_click(self, event: Click) -> None:
        """The line under the pointer."""
        if event.y < len(self._rows):
            self._leave_end()
            self._go(self._index_of(self._rows[event.y][0]))

    def toggle_wrap(self) -> None:
        """Long lines over several rows, or cut."""
        self._wrap = not self._wrap
        self._left = 0
        self._repaint()

    # --- search ---------------------------------------------------------------------------------------

    def search(self, query: Query | None) -> None:
        """Marks every match, and goes to the nearest one above; None ends the search."""
        self._found = MatchIndex(self._buffer, LineFilter(query=query)) if query is not None else None
        self._strips.clear()
        self._wanted_jump = -1 if query is not None else 0
        self._repaint()

    def next_match(self) -> None:
        """Downwards."""
        self._jump(1)

    def previous_match(self) -> None:
        """Upwards."""
        self._jump(-1)

    def _jump(self, step: int) -> None:
        found = self._found
        if found is None:
            return
        if not found.complete:
            self._wanted_jump = step
            return
        here = self._cursor
        number = found.after(here) if step > 0 else found.before(here + (1 if self._following else 0))
        if number is None:
            return
        self._leave_end()
        self._go(self._index_of(number))

    @property
    def match_text(self) -> str:
        """`match 3 of 12`, `no match`, or empty without a search."""
        found = self._found
        if found is None:
            return ""
        numbers = found.numbers
        if not found.complete:
            return "searching ..."
        if not numbers:
            return "no match"
        return f"match {min(bisect_left(numbers, self._cursor) + 1, len(numbers))} of {len(numbers)}"

    # --- copy -----------------------------------------------------------------------------------------

    def selected_text(self) -> str:
        """The marked lines, else the one under the cursor; cleaned, secrets masked."""
        numbers = self._numbers()
        if not numbers:
            return ""
        ends = sorted(
            (self._index_of(self._cursor if self._mark is None else self._mark), self._index_of(self._cursor))
        )
        return "\n".join(clean_line(self._buffer.line(numbers[i]).text) for i in range(ends[0], ends[1] + 1))

    # --- paint ----------------------------------------------------------------------------------------

    def _repaint(self) -> None:
        self._rows = self._visible()
        self.refresh()

    def _visible(self) -> list[tuple[int, Strip]]:
        """The rows on screen, each with its line's number."""
        numbers, height = self._numbers(), self.size.height
        if not numbers or not height or not self.size.width:
            return []
        if self._following:
            self._cursor = numbers[-1]
            return self._upwards(numbers, height)
        rows: list[tuple[int, Strip]] = []
        index = self._index_of(max(self._top, self._buffer.first))
        self._top = numbers[index]
        while len(rows) < height and index < len(numbers):
            rows += [(numbers[index], strip) for strip in self._rows_of(numbers[index])]
            index += 1
        return rows[:height]

    def _upwards(self, numbers: range | list[int], height: int) -> list[tuple[int, Strip]]:
        rows: list[tuple[int, Strip]] = []
        index = len(numbers) - 1
        while len(rows) < height and index >= 0:
            rows[:0] = [(numbers[index], strip) for strip in self._rows_of(numbers[index])]
            index -= 1
        return rows[-height:]

    def _rows_of(self, number: int) -> list[Strip]:
        width, strip = self.size.width, self._strip_of(number)
        if not self._wrap:
            return [strip.crop(self._left, self._left + width)]
        if strip.cell_length <= width:
            return [strip]
        starts = range(0, min(strip.cell_length, width * WRAP_ROWS), width)
        return [strip.crop(start, start + width) for start in starts]

    def _strip_of(self, number: int) -> Strip:
        key = (number, self._found is not None)
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) >= CACHED_STRIPS:
                self._strips.clear()
            query = self._found.wanted.query if self._found is not None else None
            strip = self._strips[key] = self._paint().paint(self._buffer.line(number), query)
        return strip

    def _paint(self) -> LogPainter:
        if self._painter is None:
            style = self.get_component_rich_style
            base = self.rich_style
            self._painter = LogPainter(
                LogStyles(
                    text=base,
                    dim=base + style("log-view--dim", partial=True),
                    warning=base + style("log-view--warning", partial=True),
                    error=base + style("log-view--error", partial=True),
                    match=base + style("log-view--match", partial=True),
                )
            )
        return self._painter

    def render_line(self, y: int) -> Strip:
        """One row; the cursor's line is marked while the end is not followed."""
        base, width = self.rich_style, self.size.width
        if y >= len(self._rows):
            return Strip.blank(width, base)
        number, strip = self._rows[y]
        strip = strip.extend_cell_length(width, base)
        if self._is_marked(number):
            background = self.get_component_rich_style("log-view--cursor", partial=True).bgcolor
            strip = strip.apply_style(Style(bgcolor=background))
        return strip

    def _is_marked(self, number: int) -> bool:
        if self._following:
            return False
        low, high = sorted((self._cursor, self._cursor if self._mark is None else self._mark))
        return low <= number <= high
