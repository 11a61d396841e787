"""How sure the model was of each token of its answers, and what else it could have written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from spark_tui.domain.chat.conversation import Exchange
from spark_tui.domain.chat.message import (
    Band,
    TokenLogprobs,
    band,
    candidates,
    probability,
    summary_of,
    written_token,
)
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import cell_width, truncate
from spark_tui.present.chat import brief
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, packed
from spark_tui.tui.widgets.token_map import STYLES, TokenMap

MOST_ROWS = 8
TEXT_CELLS = 24
BAR_CELLS = 30
LEGEND = Content.assemble(
    "at least 90 %", ("  50 %", STYLES[Band.LIKELY]), ("  10 %", STYLES[Band.DOUBTFUL]), "  ",
    ("less", STYLES[Band.RARE]),
)  # fmt: skip


class TokensSummary(Line):
    """`156 tokens   perplexity 1.28   below 50 %: 15`, and what the colours mean."""

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
    """The candidates for one token, the likeliest first; the one that was taken is marked."""

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
        room = max(0, min(BAR_CELLS, width - TEXT_CELLS - 20))
        return Content.assemble(
            (f"{self._glyphs.running} " if taken else "  ", "$primary"), (f"{rank:>2}  ", "$dim"),
            fmt.safe(quoted, "bold" if taken else ""), " " * (TEXT_CELLS - cell_width(quoted)),
            f"{percent:>9}  ", (self._glyphs.engine * round(share * room), STYLES[band(logprob)] or "$primary"),
        )  # fmt: skip


class TokensScreen(ModalScreen[None]):
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
        dialog.border_subtitle = Content(f"arrows move  n p uncertain tokens{more}  Esc back")
        summary = self.query_one(TokensSummary)
        summary.tokens = exchange.answer.logprobs
        summary.renew()
        self.query_one(TokenMap).show(exchange.answer.logprobs)

    def on_token_map_moved(self) -> None:
        """The candidates for the token under the cursor."""
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
