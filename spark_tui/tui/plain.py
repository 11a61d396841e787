"""Characters of a terminal with a small font: box corners, bars and ellipses that it has not become ones that it has.

Borders, scrollbars, tabs and buttons are drawn by the toolkit, and answers come from outside: neither asks which
characters there are. Each becomes one of the same width, so that nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from spark_tui.tui.glyphs import ASCII, CONSOLE, Glyphs


def _table(*pairs: tuple[str, str]) -> dict[int, str]:
    return {ord(char): plain for chars, plain in pairs for char in chars}


_BOTH: Final = (("✓✔", "+"), ("✗✘", "x"), ("‘’", "'"), ("“”„", '"'), ("–—‑", "-"), ("\u00a0\u202f", " "), ("🔎", "/ "))
_TO_CONSOLE: Final = _table(
    *_BOTH, ("╭", "┌"), ("╮", "┐"), ("╰", "└"), ("╯", "┘"), ("━╸╺", "═"), ("▔▁┄┅╌", "─"), ("▊▎▏┃╎┊", "│"),
    ("▂▃", " "), ("▅▆▇", "▄"), ("▶", "►"),
)  # fmt: skip
_TO_ASCII: Final = _table(
    *_BOTH, ("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛╔╗╚╝", "+"), ("━╸╺═", "="), ("─▔▁┄┅╌", "-"), ("│┃║╎┊▏▎▊▌▐", "|"),
    ("▂▃▄▅▆▇▀", " "), ("█▓", "#"), ("▒", "%"), ("░", ":"), ("…≈±", "~"), ("•", "*"), ("·", "."), ("▶►→", ">"),
    ("←", "<"), ("×", "x"),
)  # fmt: skip
_TABLES: Final[Mapping[str, Mapping[int, str]]] = {CONSOLE.name: _TO_CONSOLE, ASCII.name: _TO_ASCII}


def plain(text: str, glyphs: Glyphs) -> str:
    """The text in as many cells, without what those glyphs' terminal lacks; letters stay as they are."""
    table = _TABLES.get(glyphs.name)
    return text if table is None or text.isascii() else text.translate(table)


class PlainCharacters(LineFilter):
    """Does it to every line that is drawn."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(enabled=glyphs.name in _TABLES)
        self._glyphs = glyphs

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same line; styles as they were."""
        return [Segment(plain(text, self._glyphs), style, control) for text, style, control in segments]
