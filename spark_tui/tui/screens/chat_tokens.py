"""An answer token by token, with the probabilities of each and of its alternatives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from spark_tui.domain.chat.conversation import Exchange
from spark_tui.domain.chat.message import (
    ProbabilityBand,
    TokenLogprobs,
    band,
    candidates,
    next_doubt,
    probability,
    summary_of,
    written_token,
)
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import cell_width, cells_left, clean, truncate
from spark_tui.present.chat import brief
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.line import Line, packed, strip_of

STYLES = {
    ProbabilityBand.SURE: "",
    ProbabilityBand.LIKELY: "$secondary",
    ProbabilityBand.DOUBTFUL: "$warning",
    ProbabilityBand.RARE: "$error underline",
}
CURSOR = "reverse"
LINE_END = "\\n"
"""A line end is a token too, and the cursor must be visible on it."""
MINIMUM_WIDTH = 8
TAB = "    "


class TokenCells(NamedTuple):
    """A token's cells on one line: the number of the token, its column, its text."""

    place: int
    x: int
    text: str


class TokenMap(ScrollView, can_focus=True):
    """Shows tokens as their text, the less probable the louder; `place` is the token under the cursor."""

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
        Binding("N", "doubt(-1)", "Doubt before", show=False),
    ]

    class Moved(Message):
        """The cursor is on another token."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.tokens: tuple[TokenLogprobs, ...] = ()
        self.place = 0
        self._lines: list[list[TokenCells]] = []
        self._line_of: list[int] = []
        """The line on which each token begins."""

    def show(self, tokens: Sequence[TokenLogprobs], place: int = 0) -> None:
        """Replaces the tokens; the cursor is on token `place`."""
        self.tokens = tuple(tokens)
        self._lay()
        self._go(place)

    def on_resize(self, event: Resize) -> None:
        self._lay()
        self._go(self.place)

    def _lay(self) -> None:
        width = max(MINIMUM_WIDTH, self.size.width - 1)
        self._lines, self._line_of = [[]], []
        x = 0
        for place, token in enumerate(self.tokens):
            first, *rest = clean(token.token).replace("\t", TAB).split("\n")
            if x and x + cell_width(first) > width:
                self._lines.append([])
                x = 0
            self._line_of.append(len(self._lines) - 1)
            for number, part in enumerate((first + LINE_END * bool(rest), *rest)):
                text = part
                if number:
                    self._lines.append([])
                    x = 0
                while True:
                    fits, used = _that_fits(text, width - x)
                    self._lines[-1].append(TokenCells(place, x, fits))
                    text, x = text[len(fits) :], x + used
                    if not text:
                        break
                    self._lines.append([])
                    x = 0
        self.virtual_size = Size(self.size.width, len(self._lines))
        self.refresh()

    def _go(self, place: int) -> None:
        if not self.tokens:
            return
        self.place = max(0, min(place, len(self.tokens) - 1))
        line = self._line_of[self.place]
        top, height = round(self.scroll_y), max(1, self.size.height)
        if not top <= line < top + height:
            self.scroll_to(y=max(0, line - height // 2), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved())

    def _at(self, line: int, x: int) -> int:
        pieces = self._lines[line]
        return pieces[max(0, bisect_right(pieces, x, key=lambda piece: piece.x) - 1)].place

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

    def action_page(self, pages: int) -> None:
        self.action_line(pages * max(1, self.size.height - 1))

    def action_edge(self, end: int) -> None:
        self._go(end * len(self.tokens))

    def action_doubt(self, step: int) -> None:
        self._go(next_doubt(self.tokens, self.place, step))

    def on_click(self, event: Click) -> None:
        line = event.y + round(self.scroll_y)
        if 0 <= line < len(self._lines) and self._lines[line]:
            self._go(self._at(line, event.x))

    def render_line(self, y: int) -> Strip:
        width, line = self.size.width, y + round(self.scroll_y)
        parts = []
        for piece in self._lines[line] if line < len(self._lines) else []:
            text = Content(piece.text).stylize(STYLES[band(self.tokens[piece.place].logprob)])
            if piece.text.endswith(LINE_END):
                text = text.stylize("$dim", len(piece.text) - len(LINE_END))
            parts.append(text.stylize(CURSOR) if piece.place == self.place else text)
        return strip_of(self, Content.assemble(*parts), width).adjust_cell_length(width, self.rich_style)


def _that_fits(text: str, cells: int) -> tuple[str, int]:
    """The beginning of a text that fits into `cells`, at least one character of it, and its width."""
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


MOST_ROWS = 8
TEXT_CELLS = 24
BAR_CELLS = 30
LEGEND = Content.assemble(
    "at least 90 %", ("  50 %", STYLES[ProbabilityBand.LIKELY]), ("  10 %", STYLES[ProbabilityBand.DOUBTFUL]), "  ",
    ("less", STYLES[ProbabilityBand.RARE]),
)  # fmt: skip


class TokensSummary(Line):
    """`156 tokens   perplexity 1.28   below 50 %: 15`, and the legend of the colours."""

    tokens: Sequence[TokenLogprobs] = ()

    def say(self, width: int) -> Content:
        if not self.tokens:
            return Content("")
        summary = summary_of(self.tokens)
        text = (
            f"{human_count(summary.tokens)} tokens   perplexity {summary.perplexity:.2f}   "
            f"below 50 %: {human_count(summary.below_even)}"
        )
        return Content("\n").join(packed((Content(text), LEGEND), Content("   "), width))


class TokenChoices(Line):
    """The candidates for one token, the likeliest first; the sampled one is marked."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="token-choices")
        self._glyphs = glyphs
        self.token: TokenLogprobs | None = None

    def say(self, width: int) -> Content:
        if self.token is None:
            return Content("")
        rows = candidates(self.token)
        taken = next(number for number, row in enumerate(rows) if row[2])
        shown = [*rows[:MOST_ROWS]] if taken < MOST_ROWS else [*rows[: MOST_ROWS - 1], rows[taken]]
        return Content("\n").join(self._row(*row, rank=rows.index(row) + 1, width=width) for row in shown)

    def _row(self, text: str, logprob: float, taken: bool, *, rank: int, width: int) -> Content:
        """`> 1  " Paris"            92.1 %  ####`."""
        quoted = truncate(f'"{written_token(text)}"', TEXT_CELLS, self._glyphs.ellipsis)
        share = probability(logprob)
        percent = f"{100 * share:.1f} %" if share >= 0.001 else "< 0.1 %"
        room = min(BAR_CELLS, cells_left(width, TEXT_CELLS, 20))
        return Content.assemble(
            (f"{self._glyphs.running} " if taken else "  ", "$primary"), (f"{rank:>2}  ", "$dim"),
            fmt.safe(quoted, "bold" if taken else ""), " " * cells_left(TEXT_CELLS, cell_width(quoted)),
            f"{percent:>9}  ", (self._glyphs.engine * round(share * room), STYLES[band(logprob)] or "$primary"),
        )  # fmt: skip


class TokensScreen(QuietModal[None]):
    """The answers that came with log probabilities; `[` and `]` go from one to the other."""

    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back"),
        Binding("left_square_bracket", "answer(-1)", "Previous answer"),
        Binding("right_square_bracket", "answer(1)", "Next answer"),
    ]

    def __init__(self, exchanges: Sequence[Exchange], glyphs: Glyphs) -> None:
        super().__init__()
        self._exchanges = [exchange for exchange in exchanges if exchange.answer.logprobs]
        self._shown = len(self._exchanges) - 1
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="tokens"):
            yield TokensSummary(id="tokens-summary")
            yield TokenMap(id="token-map")
            yield Static("", id="token-here")
            yield TokenChoices(self._glyphs)

    def on_mount(self) -> None:
        self.query_one(TokenMap).focus()
        self._show()

    def _show(self) -> None:
        exchange, count = self._exchanges[self._shown], len(self._exchanges)
        dialog = self.query_one("#tokens")
        which = f"  {self._shown + 1} of {count}" if count > 1 else ""
        dialog.border_title = fmt.safe(f"Tokens of the answer to: {brief(exchange)}{which}")
        more = "  [ ] other answer" if count > 1 else ""
        dialog.border_subtitle = Content(f"arrows move  n N uncertain tokens{more}  Esc back")
        summary = self.query_one(TokensSummary)
        summary.tokens = exchange.answer.logprobs
        summary.renew()
        self.query_one(TokenMap).show(exchange.answer.logprobs)

    def on_token_map_moved(self) -> None:
        tokens = self.query_one(TokenMap)
        here = tokens.tokens[tokens.place]
        alone = "" if len(candidates(here)) > 1 else "   no alternatives: set logprobs above 0"
        self.query_one("#token-here", Static).update(
            Content.assemble(
                f"token {human_count(tokens.place + 1)} of {human_count(len(tokens.tokens))}   ",
                (f"logprob {here.logprob:.3f}{alone}", "$dim"),
            )
        )
        choices = self.query_one(TokenChoices)
        choices.token = here
        choices.renew()

    def action_answer(self, step: int) -> None:
        if 0 <= self._shown + step < len(self._exchanges):
            self._shown += step
            self._show()

    def action_close(self) -> None:
        self.dismiss(None)
