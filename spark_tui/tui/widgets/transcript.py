"""The conversation on screen: one widget that paints lines, whatever the number of turns.

What is finished is laid out once; a growing answer changes its last lines only, and only lines that differ are
repainted. The end is followed until the person scrolls up; then what they read stays where it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.turn import Laid, Turn, TurnLines

RULE_CELLS = 2
"""The rule at the left, and the space after it."""
RIGHT_MARGIN = 1
LINES_AHEAD = 8
MINIMUM_WIDTH = 8
_BLANK = Content("")


class Anchor(NamedTuple):
    """The line at the top edge: its turn, its number in it, how many lines the turn has at what width, what it says."""

    key: int = -1
    line: int = 0
    lines: int = 1
    width: int = 0
    content: Content = _BLANK


class Transcript(ScrollView, can_focus=True):
    """Shows turns. `show` takes all of them each time; those that are equal to what is shown cost nothing."""

    ALLOW_SELECT = True
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
        self._layout = TurnLines(MINIMUM_WIDTH, glyphs)
        self._turns: tuple[Turn, ...] = ()
        self._laid: list[Laid] = []
        self._starts: list[int] = []
        self._height = 0
        self._empty = _BLANK
        self._moving = False

    # --- content --------------------------------------------------------------------------------------

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What is shown."""
        return self._turns

    @property
    def below(self) -> int:
        """Lines that lie below what is seen."""
        return max(0, self._height - round(self.scroll_y) - self.size.height)

    def show(self, turns: Sequence[Turn], empty: Content | None = None) -> None:
        """Shows these turns; `empty` is said when there are none."""
        if empty is not None and not empty.is_same(self._empty):
            self._empty = empty
            if not turns and not self._turns:
                self.refresh()
        if tuple(turns) != self._turns:
            self._turns = tuple(turns)
            self._layout.forget({turn.key for turn in turns})
            self._lay()

    def set_reasoning(self, state: bool | None) -> None:
        """Shows reasoning in full, folded, or as it comes."""
        if state is not self.reasoning:
            self.reasoning = state
            self._lay()

    def is_open(self, turn: Turn) -> bool:
        """Whether this turn's reasoning is shown in full."""
        return turn.reasons_now if self.reasoning is None else self.reasoning

    def reveal_reasoning(self) -> None:
        """Scrolls to the last reasoning, and stops following."""
        for start, laid in reversed(list(zip(self._starts, self._laid, strict=True))):
            if laid.fold_at is not None:
                self.stay()
                self._go(start + max(0, laid.fold_at - 1))
                return

    def _lay(self) -> None:
        """Lays out anew what has changed, and keeps the end, or what the person reads, where it is."""
        if not self.size.width:
            return
        before, anchor = self._visible(), self._anchor()
        if self._layout.width != self._text_width:
            self._layout = TurnLines(self._text_width, self._glyphs)
        self._laid = [self._layout.lay(turn, open_=self.is_open(turn)) for turn in self._turns]
        self._starts, height = [], 0
        for laid in self._laid:
            self._starts.append(height)
            height += len(laid.lines) + 1
        self._height = max(0, height - 1)
        self._make_room()
        self._go(self._end() if self.following else self._place(anchor))
        self._repaint(before)
        self.post_message(self.Moved())

    def _make_room(self) -> None:
        """A growing answer gets room for some lines ahead, and keeps it. Every scroll repaints the whole transcript: so
        the view jumps once in some lines, and the text stands still in between (a quarter of the bytes over SSH)."""
        height, room = self._height, self.virtual_size.height
        if height <= self.size.height:
            room = height
        elif not height <= room <= height + self._ahead:
            room = height + (self._ahead if self._turns[-1].live else 0)
        if self.virtual_size != (self.size.width, room):
            self._moving = True
            self.virtual_size = Size(self.size.width, room)
            self._moving = False

    @property
    def _ahead(self) -> int:
        return max(1, min(LINES_AHEAD, self.size.height // 4))

    @property
    def _text_width(self) -> int:
        return max(MINIMUM_WIDTH, self.size.width - RULE_CELLS - RIGHT_MARGIN)

    def _end(self) -> int:
        return max(0, self.virtual_size.height - self.size.height)

    def _anchor(self) -> Anchor:
        top = round(self.scroll_y)
        index = bisect_right(self._starts, top) - 1
        if index < 0:
            return Anchor()
        laid, line = self._laid[index], top - self._starts[index]
        return Anchor(laid.turn.key, line, len(laid.lines), self._layout.width, self._line(top) or _BLANK)

    def _place(self, anchor: Anchor) -> int:
        """Where the line of the anchor is now; if it is no more, about the same place in its turn."""
        for start, laid in zip(self._starts, self._laid, strict=True):
            if laid.turn.key == anchor.key:
                same = [i for i, line in enumerate(laid.lines) if line == anchor.content]
                if same and (anchor.content or anchor.width == self._layout.width):
                    return start + min(same, key=lambda i: abs(i - anchor.line))
                line = anchor.line
                if anchor.width != self._layout.width:
                    line = line * len(laid.lines) // anchor.lines
                return start + min(line, max(0, len(laid.lines) - 1))
        return 0

    # --- following ------------------------------------------------------------------------------------

    def _go(self, y: int) -> None:
        self._moving = True
        self.scroll_to(y=y, animate=False, force=True)  # forced: the first overflow comes before its scrollbar
        self._moving = False

    def _follow(self, following: bool) -> None:
        if following is not self.following:
            self.following = following
            self.post_message(self.Moved())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up by hand ends the following; arriving at the end resumes it."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving or round(old_value) == round(new_value):
            return
        at_end = round(new_value) >= self._height - self.size.height
        if new_value < old_value and not at_end:
            self._follow(False)
        elif at_end and new_value > old_value:
            self._follow(True)
        self.post_message(self.Moved())

    def stay(self) -> None:
        """Follows the end no longer."""
        self._follow(False)

    def action_follow(self) -> None:
        """To the end, and stay there."""
        self._follow(True)
        self._go(self._end())

    def action_top(self) -> None:
        """To the beginning."""
        self.scroll_to(y=0, animate=False)

    def action_lines(self, count: int) -> None:
        """Some lines up or down."""
        self.scroll_to(y=self.scroll_y + count, animate=False)

    def action_page(self, pages: int) -> None:
        """Pages up or down, with a line of overlap."""
        self.action_lines(pages * max(1, self.size.height - 1))

    def on_resize(self, event: Resize) -> None:
        """Another width needs other lines."""
        self._lay()

    def on_click(self, event: Click) -> None:
        """A click on a reasoning's headline folds or shows it."""
        laid, line = self._at(event.y + round(self.scroll_y))
        if laid is not None and line == laid.fold_at and self.text_selection is None:
            self.post_message(self.ReasoningClicked())

    # --- paint ----------------------------------------------------------------------------------------

    def _at(self, y: int) -> tuple[Laid | None, int]:
        """The turn at line `y`, and the line in it; None between turns and below the last one."""
        index = bisect_right(self._starts, y) - 1
        if index < 0 or y - self._starts[index] >= len(self._laid[index].lines):
            return None, 0
        return self._laid[index], y - self._starts[index]

    def _line(self, y: int) -> Content | None:
        laid, line = self._at(y)
        return None if laid is None else laid.lines[line]

    def _visible(self) -> list[Content | None]:
        top = round(self.scroll_y)
        return [self._line(y) for y in range(top, top + self.size.height)] if self._turns else []

    def _repaint(self, before: list[Content | None]) -> None:
        """Repaints the lines that differ from `before`; after a scroll everything is repainted anyway."""
        now = self._visible()
        if len(before) != len(now):
            self.refresh()
            return
        for y, (old, new) in enumerate(zip(before, now, strict=True)):
            if old is not new and (old is None or new is None or not old.is_same(new)):
                self.refresh_lines(y + round(self.scroll_y))

    def render_line(self, y: int) -> Strip:
        """The speaker's rule and a line of text; or what to do when nothing was said yet."""
        width = self.size.width
        if not self._turns:
            return self._paint(self._empty_line(y), width)
        line = y + round(self.scroll_y)
        laid, index = self._at(line)
        if laid is None:
            return Strip.blank(width, self.rich_style)
        rule = self._paint(Content.styled(f"{self._glyphs.separator} ", _rule_style(laid, index)), RULE_CELLS)
        text = self._paint(self._selected(laid.lines[index], line), width - RULE_CELLS).apply_offsets(0, line)
        return Strip.join([rule, text])

    def _paint(self, content: Content, width: int) -> Strip:
        strip = Visual.to_strips(self, content, width, 1, self.visual_style, apply_selection=False)[0]
        return strip.adjust_cell_length(width, self.rich_style)

    def _empty_line(self, y: int) -> Content:
        lines = self._empty.wrap(max(self.size.width - 4, 1))
        top = max(0, (self.size.height - len(lines)) // 3)
        return lines[y - top].pad_left(2) if top <= y < top + len(lines) else _BLANK

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
        lines = (self._line(y) for y in range(self._height))
        text = selection.extract("\n".join("" if line is None else line.plain for line in lines))
        return "\n".join(line.rstrip() for line in text.split("\n")), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Repaints the mark."""
        self.refresh()


def _rule_style(laid: Laid, line: int) -> str:
    if laid.error_at is not None and line >= laid.error_at:
        return "$error"
    return "$secondary" if laid.turn.answer is None else "$primary"
