"""An answer token by token: the less probable a token was, the louder it is; a cursor walks over them."""

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
from textual.strip import Strip
from textual.visual import Visual

from spark_tui.domain.chat.message import Band, TokenLogprobs, band, next_doubt
from spark_tui.domain.text import cell_width, clean

STYLES = {Band.SURE: "", Band.LIKELY: "$secondary", Band.DOUBTFUL: "$warning", Band.RARE: "$error underline"}
CURSOR = "reverse"
LINE_END = "\\n"
"""How a line end is written: it is a token too, and the cursor must be seen on it."""
MINIMUM_WIDTH = 8
TAB = "    "


class Piece(NamedTuple):
    """A token's cells on one line: which token, where it begins, what stands there."""

    place: int
    x: int
    text: str


class TokenMap(ScrollView, can_focus=True):
    """Shows tokens as the text that they are; `place` is the token under the cursor."""

    DEFAULT_CSS = """
    TokenMap { background: transparent; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Token before", show=False),
        Binding("right,l", "step(1)", "Token after", show=False),
        Binding("up,k", "line(-1)", "Line above", show=False),
        Binding("down,j", "line(1)", "Line below", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(0)", "First", show=False),
        Binding("end,G", "edge(1)", "Last", show=False),
        Binding("n", "doubt(1)", "Next doubt", show=False),
        Binding("p,N", "doubt(-1)", "Doubt before", show=False),
    ]

    class Moved(Message):
        """The cursor is on another token."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.tokens: tuple[TokenLogprobs, ...] = ()
        self.place = 0
        self._lines: list[list[Piece]] = []
        self._line_of: list[int] = []
        """The line on which each token begins."""

    def show(self, tokens: Sequence[TokenLogprobs], place: int = 0) -> None:
        """Other tokens, with the cursor on one of them."""
        self.tokens = tuple(tokens)
        self._lay()
        self._go(place)

    # --- lay out --------------------------------------------------------------------------------------

    def _lay(self) -> None:
        width = max(MINIMUM_WIDTH, self.size.width - 1)
        self._lines, self._line_of = [[]], []
        x = 0
        for place, token in enumerate(self.tokens):
            text = clean(token.token).replace("\t", TAB)
            first, *rest = text.split("\n")
            if x and x + cell_width(first) > width:
                x = self._new_line()
            self._line_of.append(len(self._lines) - 1)
            x = self._put(place, x, first + LINE_END * bool(rest), width)
            for part in rest:
                x = self._put(place, self._new_line(), part, width)
        self.virtual_size = Size(self.size.width, len(self._lines))
        self.refresh()

    def _new_line(self) -> int:
        self._lines.append([])
        return 0

    def _put(self, place: int, x: int, text: str, width: int) -> int:
        """Puts text from column `x` on; what does not fit goes on in the next line. Returns the column after it."""
        while True:
            fits, used = _that_fits(text, width - x)
            self._lines[-1].append(Piece(place, x, fits))
            text = text[len(fits) :]
            if not text:
                return x + used
            x = self._new_line()

    def on_resize(self, event: Resize) -> None:
        self._lay()
        self._go(self.place)

    # --- move -----------------------------------------------------------------------------------------

    def _go(self, place: int) -> None:
        """The cursor to a token, which is scrolled into view."""
        if not self.tokens:
            return
        self.place = max(0, min(place, len(self.tokens) - 1))
        line = self._line_of[self.place]
        top, height = round(self.scroll_y), max(1, self.size.height)
        if not top <= line < top + height:
            self.scroll_to(y=max(0, line - height // 2), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved())

    def action_step(self, step: int) -> None:
        self._go(self.place + step)

    def action_line(self, step: int) -> None:
        if not self.tokens:
            return
        line = max(0, min(self._line_of[self.place] + step, len(self._lines) - 1))
        x = next((piece.x for piece in self._lines[self._line_of[self.place]] if piece.place == self.place), 0)
        while 0 <= line < len(self._lines) and not self._lines[line]:
            line += step
        if 0 <= line < len(self._lines):
            self._go(self._at(line, x))

    def _at(self, line: int, x: int) -> int:
        pieces = self._lines[line]
        return pieces[max(0, bisect_right(pieces, x, key=lambda piece: piece.x) - 1)].place

    def action_page(self, pages: int) -> None:
        self.action_line(pages * max(1, self.size.height - 1))

    def action_edge(self, end: int) -> None:
        self._go(end * len(self.tokens))

    def action_doubt(self, step: int) -> None:
        """The next token that was less probable than all others together."""
        self._go(next_doubt(self.tokens, self.place, step))

    def on_click(self, event: Click) -> None:
        """The token under the mouse."""
        line = event.y + round(self.scroll_y)
        if 0 <= line < len(self._lines) and self._lines[line]:
            self._go(self._at(line, event.x))

    # --- paint ----------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """A line of tokens."""
        width, line = self.size.width, y + round(self.scroll_y)
        pieces = self._lines[line] if line < len(self._lines) else []
        content = Content.assemble(*(self._piece(piece) for piece in pieces))
        strip = Visual.to_strips(self, content, width, 1, self.visual_style, apply_selection=False)[0]
        return strip.adjust_cell_length(width, self.rich_style)

    def _piece(self, piece: Piece) -> Content:
        ended = piece.text.endswith(LINE_END)
        text = Content(piece.text).stylize(STYLES[band(self.tokens[piece.place].logprob)])
        if ended:
            text = text.stylize("$dim", len(piece.text) - len(LINE_END))
        return text.stylize(CURSOR) if piece.place == self.place else text


def _that_fits(text: str, cells: int) -> tuple[str, int]:
    """The beginning of a text that has room in so many cells, at least one character of it, and its width."""
    whole = cell_width(text)
    if whole <= cells:
        return text, whole
    used = 0
    for index, char in enumerate(text):
        wide = cell_width(char)
        if used + wide > cells and index:
            return text[:index], used
        used += wide
    return text, used
