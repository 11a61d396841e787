"""A turn of the conversation, and its lines: speaker, reasoning, text, tool calls, error, figures."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace
from textual.content import Content

from spark_tui.base.actions import key_of
from spark_tui.base.engine.message import Answer
from spark_tui.base.errors import SparkError
from spark_tui.base.text import clean, clean_line
from spark_tui.base.untrusted import load_json
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets import markdown
from spark_tui.tui.widgets.line import packed
from spark_tui.use.chat.model.conversation import AnswerOutcome, Exchange
from spark_tui.use.chat.model.formats import ending, reasoned
from spark_tui.use.chat.model.formats import figures as answer_figures

FULL_CHARS = 32_000
"""Up to here a finished answer is laid out as one document (90 ms); a longer one in the pieces in which it came."""
DETAIL_LINES = 4
FRAME_LINES = 3
_BLANK = Content("")
_NO_ANSWER = Answer(0.0)


def answers(answer: Answer) -> bool:
    """Text or tool calls have begun."""
    return bool(answer.tool_calls) or (bool(answer.content) and not answer.content.isspace())


class Turn(Struct, frozen=True):
    """One side of an exchange: question or answer. `note`: the engine has changed. `unsent`: it is no longer
    sent."""

    exchange: Exchange
    is_answer: bool
    note: str = ""
    unsent: bool = False

    @property
    def key(self) -> int:
        return 2 * self.exchange.number + self.is_answer

    @property
    def live(self) -> bool:
        return self.is_answer and self.exchange.live

    @property
    def reasoning(self) -> str:
        return self.exchange.answer.reasoning if self.is_answer else ""

    @property
    def reasons_now(self) -> bool:
        return self.live and bool(self.reasoning) and not answers(self.exchange.answer)


def turns_of(exchange: Exchange, engine_before: str, sent_from: int) -> tuple[Turn, Turn]:
    """A question and its answer; `engine_before` answered the question before."""
    unsent, moved = exchange.number < sent_from, engine_before and engine_before != exchange.engine
    note = f"on {exchange.engine}, before on {engine_before}" if moved else ""
    # Without the answer, so that a question is the same turn while its answer grows.
    asked = replace(exchange, answer=_NO_ANSWER, outcome=AnswerOutcome.COMPLETE, error=None, engine_side=None)
    return Turn(asked, False, unsent=unsent), Turn(exchange, True, note, unsent)


def turns(exchanges: Sequence[Exchange], sent_from: int = 0) -> tuple[Turn, ...]:
    """Two turns for each exchange."""
    shown: list[Turn] = []
    before = ""
    for exchange in exchanges:
        shown += turns_of(exchange, before, sent_from)
        before = exchange.engine
    return tuple(shown)


class TurnLayout(Struct):
    """A turn as lines for one width. Lines from `error_at` are the error's; `fold_at` is the reasoning's headline.
    A `rough` one has about as many lines, all of them empty: it was not laid out yet."""

    turn: Turn
    open: bool
    lines: list[Content] = field(default_factory=list)
    fold_at: int | None = None
    error_at: int | None = None
    rough: bool = False


class TurnLines:
    """Lays turns out for one width. A turn that does not change is laid out once."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self.width = width
        self._glyphs = glyphs
        self._laid: dict[int, TurnLayout] = {}
        self._live: dict[int, tuple[markdown.LivePlain, markdown.LiveMarkdown]] = {}

    def forget(self, keys: set[int]) -> None:
        for key in keys:
            self._laid.pop(key, None)
            self._live.pop(key, None)

    def lay(self, turn: Turn, *, open_: bool) -> TurnLayout:
        """The turn's lines; `open_` shows its reasoning in full."""
        laid = self._laid.get(turn.key)
        if laid is None or laid.turn != turn or laid.open != open_:
            laid = self._laid[turn.key] = TurnLayout(turn, open_)
            (self._answer if turn.is_answer else self._question)(laid)
        return laid

    def guess(self, turn: Turn, *, open_: bool) -> TurnLayout:
        """The turn's lines if they are known; else about as many: a long conversation takes seconds to lay out."""
        laid = self._laid.get(turn.key)
        if laid is not None and laid.turn == turn and laid.open == open_:
            return laid
        exchange = turn.exchange
        texts = [exchange.question]
        if turn.is_answer:
            texts = [exchange.answer.content, exchange.answer.reasoning if open_ else ""]
        width = min(self.width, markdown.PROSE_CELLS)
        count = FRAME_LINES + sum(text.count("\n") + len(text) // width for text in texts)
        return TurnLayout(turn, open_, [_BLANK] * count, rough=True)

    def _question(self, laid: TurnLayout) -> None:
        exchange, lines = laid.turn.exchange, laid.lines
        lines.append(self._cut(_label("you", laid.turn, "bold $secondary")))
        for file in exchange.attachments:
            lines.append(self._cut(Content.assemble(("with ", "$dim"), fmt.safe(f"{file.kind.value} {file.name}"))))
        lines += markdown.plain_lines(exchange.question, self.width)

    def _answer(self, laid: TurnLayout) -> None:
        turn, lines = laid.turn, laid.lines
        exchange, answer = turn.exchange, turn.exchange.answer
        lines.append(self._cut(_label(exchange.model, turn, "bold $primary")))
        if answer.reasoning and not answer.reasoning.isspace():
            laid.fold_at = len(lines)
            lines.append(self._cut(reasoning_headline(turn, open_=laid.open)))
            text = turn.reasoning.strip("\n")
            if laid.open and turn.live:
                lines += self._pieces(turn)[0].lines(text)
            elif laid.open:
                lines += [_quiet(line) for line in markdown.plain_lines(text, self.width - 2)]
            if answers(answer):
                lines.append(_BLANK)
        lines += self._content(turn)
        for call in answer.tool_calls:
            if lines[-1]:
                lines.append(_BLANK)
            name = fmt.safe(call.name or "(no name yet)", "bold $secondary")
            lines.append(self._cut(Content.assemble(("asks for tool ", "$dim"), name, ("   not run", "$dim"))))
            # Cleaned last: JSON escapes (`\\u202e`) become characters when read. While it grows, its end is enough.
            lines += self._code(call.arguments[-markdown.OPEN_CHARS :] if turn.live else pretty_json(call.arguments))
        if turn.live:  # a mark where the text grows
            mark = Content.styled(self._glyphs.cursor, "$primary")
            last = lines[-1].rstrip() if len(lines) > 1 else None
            if last is None or last.cell_length >= self.width:
                lines.append(mark)
            else:
                lines[-1] = Content.assemble(last, mark)
            return
        if not answers(answer) and exchange.error is None and not exchange.stopped:
            lines.append(Content.styled("The answer is empty.", "$dim"))
        if len(lines) > 1:
            lines.append(_BLANK)
        if exchange.error is not None:
            laid.error_at = len(lines)
            lines += error_lines(exchange.error, self.width)
        lines += packed(figures(exchange), Content("   "), self.width)

    def _content(self, turn: Turn) -> list[Content]:
        text = turn.exchange.answer.content.lstrip("\n")
        if turn.live:
            return self._pieces(turn)[1].lines(text)
        if len(text) > FULL_CHARS:
            pieces = self._pieces(turn)[1]
            for end in range(markdown.OPEN_CHARS, len(text), markdown.OPEN_CHARS):
                pieces.lines(text[:end])
            return pieces.lines(text)
        self._live.pop(turn.key, None)
        return markdown.lay_out(markdown.parse(markdown.normal(text)), self.width, self._glyphs)

    def _pieces(self, turn: Turn) -> tuple[markdown.LivePlain, markdown.LiveMarkdown]:
        if turn.key not in self._live:
            self._live[turn.key] = (
                markdown.LivePlain(self.width - 2, _quiet),
                markdown.LiveMarkdown(self.width, self._glyphs),
            )
        return self._live[turn.key]

    def _code(self, text: str) -> list[Content]:
        return markdown.lay_out([markdown.Code("", Content(clean(text).expandtabs(4)))], self.width, self._glyphs)

    def _cut(self, line: Content) -> Content:
        return line.truncate(self.width, ellipsis=True)


def _quiet(line: Content) -> Content:
    return line.stylize_before("$dim").pad_left(2)


# --- single lines -----------------------------------------------------------------------------------------


def _label(name: str, turn: Turn, style: str) -> Content:
    label = fmt.safe(name, style)
    if turn.unsent:
        label = Content.assemble(label, ("   no longer sent", "$dim"))
    return Content.assemble(label, "   ", fmt.safe(turn.note, "$warning")) if turn.note else label


def reasoning_headline(turn: Turn, *, open_: bool) -> Content:
    """`+ reasoned for 9.8 s, 412 tokens  ^t show`; tokens only where the server counts them."""
    text = "reasoning" if turn.reasons_now else reasoned(turn.exchange.answer).lower()
    verb = "hide" if open_ else "show"
    return Content.styled(f"{'-' if open_ else '+'} {text}  {key_of('toggle_reasoning')} {verb}", "$dim")


def figures(exchange: Exchange) -> list[Content]:
    """How the answer ended, its figures, and the keys to retry or continue it."""
    words = [Content.styled(word, "$dim") for word in answer_figures(exchange)]
    if exchange.error is None and (end := ending(exchange)):
        words.insert(0, fmt.safe(end, "$warning"))
    if exchange.stopped or exchange.error is not None:
        words.append(Content.styled(f"{key_of('regenerate')} retry", "$dim"))
    if exchange.unfinished:
        words.append(Content.styled(f"{key_of('go_on')} continue", "$dim"))
    return words


def error_lines(error: SparkError, width: int) -> list[Content]:
    """Summary, remedy, and the first lines of the detail."""
    width = min(width, markdown.PROSE_CELLS)
    lines = Content.assemble(("error  ", "bold $error"), fmt.safe(error.summary, "bold $error")).wrap(width)
    lines += fmt.safe(error.remedy).wrap(width) if error.remedy else []
    detail = clean(error.detail).strip()
    if detail:
        lines += Content.styled(clean_line(detail), "$dim").wrap(width)[:DETAIL_LINES]
    return lines


def pretty_json(text: str) -> str:
    """JSON text indented when it is valid and long; else as it is."""
    try:
        value = load_json(text)
    except ValueError:
        return text
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= 60 else json.dumps(value, ensure_ascii=False, indent=2)


class Anchor(NamedTuple):
    """A visible line: its turn, its number in it, the turn's line count at that width, its content. `rough`: the turn
    was only guessed."""

    key: int = -1
    line: int = 0
    lines: int = 1
    width: int = 0
    content: Content = _BLANK
    rough: bool = False


class TurnStack:
    """The lines of turns at one width, a blank one between two turns. `is_open` says whether reasoning is in full."""

    def __init__(self, width: int, glyphs: Glyphs, is_open: Callable[[Turn], bool]) -> None:
        self.height = 0
        self.laid: list[TurnLayout] = []
        self.starts: list[int] = []
        self._is_open = is_open
        self._glyphs = glyphs
        self._layout = TurnLines(width, glyphs)

    def clear(self) -> None:
        self.laid, self.starts, self.height = [], [], 0

    # --- lay out --------------------------------------------------------------------------------------

    def show(self, turns: Sequence[Turn], same: int, width: int, *, enough: int, keep: int) -> None:
        """Lays out `turns` (the first `same` are as before) from the end on until `enough` lines are known, and also
        the one whose key is `keep`. The length of the others is guessed."""
        if width != self._layout.width:
            self.clear()
            self._layout = TurnLines(width, self._glyphs)
        same = min(same, len(self.laid))
        self._layout.forget({laid.turn.key for laid in self.laid[same:]} - {turn.key for turn in turns[same:]})
        found: list[TurnLayout] = []
        lines = 0
        for turn in reversed(turns[same:]):
            lay = self._layout.lay if lines <= enough or turn.key == keep else self._layout.guess
            found.append(lay(turn, open_=self._is_open(turn)))
            lines += len(found[-1].lines)
        self.laid[same:] = found[::-1]
        self._pile(same)

    def lay_exactly(self, places: Iterable[int]) -> None:
        """Lays out those of the turns at these places that were guessed."""
        rough = [place for place in places if self.laid[place].rough]
        for place in rough:
            turn = self.laid[place].turn
            self.laid[place] = self._layout.lay(turn, open_=self._is_open(turn))
        if rough:
            self._pile(rough[0])

    def _pile(self, first: int) -> None:
        del self.starts[first:]
        height = self.starts[-1] + len(self.laid[first - 1].lines) + 1 if first else 0
        for laid in self.laid[first:]:
            self.starts.append(height)
            height += len(laid.lines) + 1
        self.height = max(0, height - 1)

    # --- look -----------------------------------------------------------------------------------------

    def at(self, y: int) -> tuple[TurnLayout | None, int]:
        """The turn at line `y`, and the line in it; None between turns and below the last one."""
        index = bisect_right(self.starts, y) - 1
        if index < 0 or y - self.starts[index] >= len(self.laid[index].lines):
            return None, 0
        return self.laid[index], y - self.starts[index]

    def line(self, y: int) -> Content | None:
        laid, line = self.at(y)
        return None if laid is None else laid.lines[line]

    def rough_in(self, top: int, height: int) -> list[int]:
        """The places of visible turns that were only guessed."""
        first = max(0, bisect_right(self.starts, top) - 1)
        return [place for place in range(first, bisect_left(self.starts, top + height)) if self.laid[place].rough]

    # --- keep a place ---------------------------------------------------------------------------------

    def anchor(self, y: int) -> Anchor:
        """Line `y`, to find it again."""
        index = bisect_right(self.starts, y) - 1
        if index < 0:
            return Anchor()
        laid, line = self.laid[index], y - self.starts[index]
        return Anchor(laid.turn.key, line, len(laid.lines), self._layout.width, self.line(y) or _BLANK, laid.rough)

    def place(self, anchor: Anchor) -> int:
        """Where the line of the anchor is now; if it is no more, about the same place in its turn."""
        index = bisect_left(self.laid, anchor.key, key=lambda laid: laid.turn.key)
        if index == len(self.laid) or self.laid[index].turn.key != anchor.key:
            return 0
        start, lines = self.starts[index], self.laid[index].lines
        if anchor.line >= anchor.lines:  # the blank line after the turn
            return start + len(lines)
        if not anchor.rough and (anchor.content or anchor.width == self._layout.width):
            if anchor.line < len(lines) and lines[anchor.line] == anchor.content:
                return start + anchor.line
            same = [i for i, line in enumerate(lines) if line == anchor.content]
            if same:
                return start + min(same, key=lambda i: abs(i - anchor.line))
        line = anchor.line
        if anchor.rough or anchor.width != self._layout.width:
            line = line * len(lines) // anchor.lines
        return start + min(line, max(0, len(lines) - 1))
