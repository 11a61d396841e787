"""Growing text, laid out in pieces: what is closed is laid out once, only the open end again.

An answer of 16,000 characters takes 50 ms to lay out; at ten frames a second that would be half a core for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from textual.content import Content

from spark_tui.domain.text import clean
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.markdown import PROSE_CELLS, Block, Code, block_tokens, lay_out, parse

OPEN_CHARS = 4_000
"""An open end longer than this is closed by force: a frame costs 5 ms at most."""

_BLANK = Content("")


class Cut(NamedTuple):
    """Where to close: after `chars`; `gap` puts a blank line there; `opener` begins what is left of a code block."""

    chars: int = 0
    gap: bool = False
    opener: str = ""


def normal(text: str) -> str:
    """Text with `\\n` line ends only. Half of a `\\r\\n` at the end waits for its other half."""
    return text.removesuffix("\r").replace("\r\n", "\n") if "\r" in text else text


def plain_lines(text: str, width: int) -> list[Content]:
    """Text from outside as it is: cleaned, wrapped, its line breaks kept."""
    return Content(clean(text).expandtabs(4)).wrap(min(width, PROSE_CELLS))


class LivePlain:
    """Text as it is. Call `lines` with ever longer versions of one text; `dress` is done to each line, once."""

    def __init__(self, width: int, dress: Callable[[Content], Content] | None = None) -> None:
        self._width = width
        self._dress = dress
        self._closed: list[Content] = []
        self._done = 0
        self._opener = ""

    def lines(self, text: str) -> list[Content]:
        """All of the text so far."""
        text = normal(text)
        while (cut := self._cut(text[self._done :])).chars:
            piece = text[self._done : self._done + cut.chars]
            self._closed.extend(self._lay(piece, closed=True))
            if cut.gap:
                self._closed.append(_BLANK)
            self._done += cut.chars
            self._opener = cut.opener
        tail = text[self._done :]
        return [*self._closed, *self._lay(tail, closed=False)] if tail else list(self._closed)

    def _cut(self, tail: str) -> Cut:
        return Cut(tail.rfind("\n") + 1) if "\n" in tail else _forced(tail)

    def _lay(self, piece: str, *, closed: bool) -> list[Content]:
        lines = plain_lines(piece.removesuffix("\n") if closed else piece, self._width)
        return lines if self._dress is None else [self._dress(line) for line in lines]


class LiveMarkdown(LivePlain):
    """Markdown: a top-level block is closed when the next one has a complete line."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        super().__init__(width)
        self._glyphs = glyphs
        self._looked = 0

    def _cut(self, tail: str) -> Cut:
        ready = tail[: tail.rfind("\n") + 1]
        if self._done + len(ready) <= self._looked:  # no new complete line
            return _forced(tail)
        self._looked = self._done + len(ready)
        if clean(ready) != ready:  # the parser counts lines of the cleaned text, which may have fewer
            return _forced(tail)
        found = [token for token in block_tokens(self._opener + ready) if token.map and token.nesting >= 0]
        starts = [token.map[0] for token in found if token.level == 0 and token.map]
        if len(starts) > 1:
            return Cut(self._chars(ready, starts[-1]), gap=True)
        if len(tail) <= OPEN_CHARS:
            return Cut()
        if found and found[0].type == "fence":
            return Cut(len(ready), opener=self._opener or f"{found[0].markup}{found[0].info}\n")
        items = [token.map[0] for token in found if token.type == "list_item_open" and token.level == 1 and token.map]
        return Cut(self._chars(ready, items[-1])) if len(items) > 1 else _forced(tail)

    def _chars(self, text: str, line: int) -> int:
        """Characters before a line of `opener + text`."""
        lines = text.split("\n")[: line - bool(self._opener)]
        return sum(len(line) + 1 for line in lines)

    def _lay(self, piece: str, *, closed: bool) -> list[Content]:
        blocks = parse(self._opener + clean(piece), highlighted=closed)
        if self._opener and blocks:
            blocks = (_continued(blocks[0]), *blocks[1:])
        return lay_out(blocks, self._width, self._glyphs)


def _continued(block: Block) -> Block:
    return replace(block, continued=True) if isinstance(block, Code) else block


def _forced(tail: str) -> Cut:
    """A long open end is cut at a space, or anywhere."""
    if len(tail) <= OPEN_CHARS:
        return Cut()
    return Cut(tail.rfind(" ", OPEN_CHARS // 2, OPEN_CHARS) + 1 or OPEN_CHARS)
