"""The conversation on screen: one widget that paints lines, whatever the number of turns.

What is finished is laid out once; a growing answer changes its last lines only, and only lines that differ are
repainted. The end is followed until one scrolls up; then the visible lines keep their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style

from spark_tui.base.text import cells_left
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import strip_of
from spark_tui.use.chat.model.conversation import Exchange
from spark_tui.use.chat.screen.turn import Turn, TurnStack, turns, turns_of

RULE_CELLS = 2
"""The rule at the left, and the space after it."""
RIGHT_MARGIN = 1
LINES_AHEAD = 8
MINIMUM_WIDTH = 8
PAINTED_LINES = 500
_BLANK = Content("")


class Transcript(ScrollView, can_focus=True):
    """Shows exchanges. `show` takes all of them each time; what is equal to what is shown costs nothing."""

    ALLOW_SELECT = True
    FOCUS_ON_CLICK = False  # a click marks text, or brings the window forward: the next letter is the prompt's
    DEFAULT_CSS = """
    Transcript {
        background: transparent; overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable;
        scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "lines(-1)", "Up", show=False),
        Binding("down,j", "lines(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "top", "First", show=False),
        Binding("end,G", "follow", "Last", show=False),
    ]

    class Moved(Message):
        """Whether the end is followed, or how much lies below, has changed."""

    class ReasoningClicked(Message):
        """The headline of a reasoning was clicked."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.following = True
        self.reasoning: bool | None = None
        """Reasoning in full (True), as one line (False), or in full only while the model reasons (None)."""
        self._glyphs = glyphs
        self._stack = TurnStack(MINIMUM_WIDTH, glyphs, self.is_open)
        self.turns: tuple[Turn, ...] = ()
        self._past: tuple[Exchange, ...] = ()
        self._past_turns: tuple[Turn, ...] = ()
        self._sent_from = 0
        self._empty = _BLANK
        self._moving = False
        self._painted: dict[int, tuple[Content, str, int, Strip]] = {}
        """Lines as they were painted last: content, rule, width and strip."""

    # --- content --------------------------------------------------------------------------------------

    @property
    def below(self) -> int:
        return max(0, self._stack.height - round(self.scroll_y) - self.size.height)

    def show(self, exchanges: Sequence[Exchange], empty: Content | None = None, *, sent_from: int = 0) -> None:
        """Shows these exchanges, `empty` where there are none. The turns of all but the last one are made once: this
        is called ten times a second while an answer comes."""
        if empty is not None and not empty.is_same(self._empty):
            self._empty = empty
            if not exchanges and not self.turns:
                self.refresh()
        shown: tuple[Turn, ...] = ()
        if exchanges:
            past = tuple(exchanges[:-1])
            if past != self._past or sent_from != self._sent_from:
                self._past, self._sent_from, self._past_turns = past, sent_from, turns(past, sent_from)
            before = past[-1].engine if past else ""
            shown = (*self._past_turns, *turns_of(exchanges[-1], before, sent_from))
        if shown != self.turns:
            same = _same(self.turns, shown)
            self.turns = shown
            self._lay(same)

    def set_reasoning(self, state: bool | None) -> None:
        if state is not self.reasoning:
            self.reasoning = state
            self._lay()

    def is_open(self, turn: Turn) -> bool:
        return turn.reasons_now if self.reasoning is None else self.reasoning

    def reveal_reasoning(self) -> None:
        """Scrolls to the last reasoning, and stops following."""
        stack = self._stack
        for index in range(len(stack.laid) - 1, -1, -1):
            if stack.laid[index].turn.reasoning:
                self._lay_exactly((index,))
                self.follow(False)
                self._go(stack.starts[index] + max(0, (stack.laid[index].fold_at or 0) - 1))
                self._lay_view()
                return

    def _lay(self, same: int = 0) -> None:
        """Lays out what follows the first `same` turns, and keeps the end, or the visible lines, in place."""
        stack = self._stack
        if not self.size.width:
            stack.clear()
            return
        before, anchor = self._visible(), stack.anchor(round(self.scroll_y))
        width = max(MINIMUM_WIDTH, self.size.width - RULE_CELLS - RIGHT_MARGIN)
        stack.show(self.turns, same, width, enough=self.size.height, keep=anchor.key)
        self._make_room()
        self._go(self._end() if self.following else stack.place(anchor))
        self._lay_view()
        self._repaint(before)
        self.post_message(self.Moved())

    def _lay_view(self, *, upwards: bool = False) -> None:
        """Lays out what is seen and was only guessed. The line at the upper edge stays, `upwards` the lowest one."""
        stack = self._stack
        while rough := stack.rough_in(round(self.scroll_y), self.size.height):
            top = round(self.scroll_y)
            edge = min(self.size.height, stack.height) - 1 if upwards and top else 0
            anchor = stack.anchor(top + edge)
            self._lay_exactly(rough)
            self._go(self._end() if self.following else stack.place(anchor) - edge)

    def _lay_exactly(self, places: Sequence[int]) -> None:
        height = self._stack.height
        self._stack.lay_exactly(places)
        if self._stack.height != height:
            self._give_room(max(self.size.height, self._stack.height + (self._ahead if self.turns[-1].live else 0)))

    def _make_room(self) -> None:
        """A growing answer gets room for some lines ahead, and keeps it. Every scroll repaints the whole transcript: so
        the view jumps once in some lines, and the text is still in between (a quarter of the bytes over SSH)."""
        height, room = self._stack.height, self.virtual_size.height
        if height <= self.size.height:
            room = self.size.height
        elif not height <= room <= height + self._ahead:
            room = height + (self._ahead if self.turns[-1].live else 0)
        self._give_room(room)

    def _give_room(self, room: int) -> None:
        if self.virtual_size != (self.size.width, room):
            self._moving = True
            self.virtual_size = Size(self.size.width, room)
            self._moving = False

    @property
    def _ahead(self) -> int:
        return max(1, min(LINES_AHEAD, self.size.height // 4))

    def _end(self) -> int:
        return max(0, self.virtual_size.height - self.size.height)

    # --- following ------------------------------------------------------------------------------------

    def _go(self, y: int) -> None:
        self._moving = True
        self.scroll_to(y=max(0, y), animate=False, force=True)  # forced: the first overflow comes before its scrollbar
        self._moving = False

    def follow(self, following: bool) -> None:
        if following is not self.following:
            self.following = following
            self.post_message(self.Moved())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up by hand ends the following; arriving at the end resumes it."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving or round(old_value) == round(new_value):
            return
        if new_value < old_value:
            if round(new_value) < self._stack.height - self.size.height:
                self.follow(False)
            self._lay_view(upwards=True)
        else:
            self._lay_view()
            if round(self.scroll_y) >= self._stack.height - self.size.height:
                self.follow(True)
        self.post_message(self.Moved())

    def action_follow(self) -> None:
        self.follow(True)
        self._go(self._end())

    def action_top(self) -> None:
        self.scroll_to(y=0, animate=False)

    def action_lines(self, count: int) -> None:
        if count > 0:  # as far as that the length must be known, or the end would come too early
            self._lay_exactly(self._stack.rough_in(round(self.scroll_y), self.size.height + count))
        self.scroll_to(y=self.scroll_y + count, animate=False)

    def action_page(self, pages: int) -> None:
        self.action_lines(pages * max(1, self.size.height - 1))

    def on_resize(self, event: Resize) -> None:
        self._lay()

    def on_click(self, event: Click) -> None:
        laid, line = self._stack.at(event.y + round(self.scroll_y))
        if laid is not None and line == laid.fold_at and self.text_selection is None:
            self.post_message(self.ReasoningClicked())

    # --- paint ----------------------------------------------------------------------------------------

    def _visible(self) -> list[Content | None]:
        top = round(self.scroll_y)
        return [self._stack.line(y) for y in range(top, top + self.size.height)] if self._stack.laid else []

    def _repaint(self, before: list[Content | None]) -> None:
        """Repaints the lines that differ from `before`; after a scroll everything is repainted anyway."""
        now = self._visible()
        if len(before) != len(now):
            self.refresh()
            return
        for y, (old, new) in enumerate(zip(before, now, strict=True)):
            if old is not new and (old is None or new is None or not old.is_same(new)):
                self.refresh_lines(y + round(self.scroll_y))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._painted.clear()

    def render_line(self, y: int) -> Strip:
        """The speaker's rule and a line of text; or the text of an empty transcript.

        A scroll asks for all lines again: unmoved ones are painted once.
        """
        width = self.size.width
        if not self.turns:
            lines = self._empty.wrap(max(width - 4, 1))
            row = y - max(0, (self.size.height - len(lines)) // 3)
            return self._paint(lines[row].pad_left(2) if 0 <= row < len(lines) else _BLANK, width)
        line = y + round(self.scroll_y)
        laid, index = self._stack.at(line)
        if laid is None:
            return Strip.blank(width, self.rich_style)
        content, rule = laid.lines[index], "$primary" if laid.turn.is_answer else "$secondary"
        if laid.error_at is not None and index >= laid.error_at:
            rule = "$error"
        marked = self.text_selection is not None
        painted = self._painted.get(line)
        if painted is not None and not marked and painted[0] is content and painted[1:3] == (rule, width):
            return painted[3]
        left = self._paint(Content.styled(f"{self._glyphs.separator} ", rule), RULE_CELLS)
        text = self._paint(self._selected(content, line), cells_left(width, RULE_CELLS)).apply_offsets(0, line)
        strip = Strip.join([left, text])
        if not marked:
            if len(self._painted) >= PAINTED_LINES:
                self._painted.clear()
            self._painted[line] = content, rule, width, strip
        return strip

    def _paint(self, content: Content, width: int) -> Strip:
        return strip_of(self, content, width).adjust_cell_length(width, self.rich_style)

    # --- selection ------------------------------------------------------------------------------------

    def _selected(self, content: Content, line: int) -> Content:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return content
        start, end = span
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        return content.stylize(style, start, len(content) if end == -1 else end)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The marked text, without the rules."""
        if selection.start is None or selection.end is None:
            self._lay_exactly(range(len(self._stack.laid)))
        lines = (self._stack.line(y) for y in range(self._stack.height))
        text = selection.extract("\n".join("" if line is None else line.plain for line in lines))
        return "\n".join(line.rstrip() for line in text.split("\n")), "\n"


def _same(before: tuple[Turn, ...], now: tuple[Turn, ...]) -> int:
    """How many turns at the beginning are the same; most of the time all but the last one."""
    last = min(len(before), len(now)) - 1
    if last >= 0 and before[:last] == now[:last]:
        return last + (before[last] == now[last])
    return next((i for i, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), 0)
