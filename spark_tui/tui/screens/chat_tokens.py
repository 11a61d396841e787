"""How sure the model was: an answer token by token, and at each of them what else could have stood there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from spark_tui.domain.chat import TokenChances
from spark_tui.domain.chat_chances import (
    Band,
    ChancesSummary,
    band,
    candidates,
    probability,
    summary_of,
    written_token,
)
from spark_tui.domain.conversation import Exchange
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import cell_width, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.screens import chat_words as words
from spark_tui.tui.widgets.line import Line, packed
from spark_tui.tui.widgets.token_map import STYLES, TokenMap

MOST_ROWS = 8
TEXT_CELLS = 24
BAR_CELLS = 30
LEGEND = Content.assemble(
    "at least 90 %",
    ("  50 %", STYLES[Band.LIKELY]),
    ("  10 %", STYLES[Band.DOUBTFUL]),
    "  ",
    ("less", STYLES[Band.RARE]),
)


class TokensSummary(Line):
    """How sure it was on the whole, and what the colours mean; on two lines where one is too narrow."""

    summary: ChancesSummary | None = None

    def say(self, width: int) -> Content:
        """`156 tokens   perplexity 1.28   below 50 %: 15   at least 90 %  50 %  10 %  less`."""
        if self.summary is None:
            return Content("")
        said = (
            f"{human_count(self.summary.tokens)} tokens   perplexity {self.summary.perplexity:.2f}   "
            f"below 50 %: {human_count(self.summary.below_even)}"
        )
        return Content("\n").join(packed((Content(said), LEGEND), Content("   "), width))


class TokenChoices(Line):
    """The candidates for one token, the likeliest first; the one that was taken is marked."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="token-choices")
        self._glyphs = glyphs
        self.token: TokenChances | None = None

    def say(self, width: int) -> Content:
        """A line for each."""
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
        room = max(0, min(BAR_CELLS, width - TEXT_CELLS - 20))
        mark = f"{self._glyphs.running} " if taken else "  "
        return Content.assemble(
            (mark, "$primary"), (f"{rank:>2}  ", "$dim"),
            fmt.safe(quoted, "bold" if taken else ""), " " * (TEXT_CELLS - cell_width(quoted)),
            f"{percent(share):>9}  ", (self._glyphs.engine * round(share * room), STYLES[band(logprob)] or "$primary"),
        )  # fmt: skip


class TokensScreen(ModalScreen[None]):
    """The answers whose log probabilities were asked for; `[` and `]` go from one to the other."""

    CSS_PATH = "chat_tokens.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Back"),
        Binding("left_square_bracket", "answer(-1)", "Answer before"),
        Binding("right_square_bracket", "answer(1)", "Answer after"),
    ]

    def __init__(self, exchanges: Sequence[Exchange], glyphs: Glyphs) -> None:
        super().__init__()
        self._told = [exchange for exchange in exchanges if exchange.answer.chances]
        self._shown = len(self._told) - 1
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """The tokens, and the candidates for the one under the cursor."""
        with Vertical(classes="dialog", id="tokens"):
            yield TokensSummary(id="tokens-summary")
            yield TokenMap(id="token-map")
            yield Static("", id="token-here")
            yield TokenChoices(self._glyphs)

    def on_mount(self) -> None:
        """The last answer."""
        self.query_one(TokenMap).focus()
        self._show()

    def _show(self) -> None:
        exchange = self._told[self._shown]
        dialog = self.query_one("#tokens")
        which = f"  {self._shown + 1} of {len(self._told)}" if len(self._told) > 1 else ""
        dialog.border_title = fmt.safe(f"Tokens of the answer to: {words.brief(exchange.question)}{which}")
        more = "  [ ] other answer" if len(self._told) > 1 else ""
        dialog.border_subtitle = Content(f"arrows walk  n p doubtful ones{more}  Esc back")
        said = self.query_one(TokensSummary)
        said.summary = summary_of(exchange.answer.chances)
        said.renew()
        self.query_one(TokenMap).show(exchange.answer.chances)

    def on_token_map_moved(self) -> None:
        """The candidates for the token under the cursor."""
        tokens = self.query_one(TokenMap)
        here = tokens.tokens[tokens.place]
        told = len(candidates(here)) - 1
        others = "" if told else "   only the token itself was told: ask for more with logprobs above 0"
        self.query_one("#token-here", Static).update(
            Content.assemble(
                f"token {human_count(tokens.place + 1)} of {human_count(len(tokens.tokens))}   ",
                (f"logprob {here.logprob:.3f}", "$dim"), (others, "$dim"),
            )
        )  # fmt: skip
        choices = self.query_one(TokenChoices)
        choices.token = here
        choices.renew()

    def action_answer(self, step: int) -> None:
        """Another answer."""
        if 0 <= self._shown + step < len(self._told):
            self._shown += step
            self._show()

    def action_leave(self) -> None:
        """Back to the conversation."""
        self.dismiss(None)


def percent(share: float) -> str:
    """`92.1 %`; `< 0.1 %` for what is less."""
    return f"{share:.1%}".replace("%", " %") if share >= 0.001 else "< 0.1 %"
