"""The lines of words and the table of the Metrics screen."""

from __future__ import annotations

from textual.content import Content

from spark_tui.tui.screens.metrics_words import LABEL, TABLE_WIDTH
from spark_tui.tui.widgets.line import Line, hanging, packed, spread

BETWEEN = 4
"""Cells between two tables beside each other."""


class Words(Line):
    """One line: words at its two ends."""

    def __init__(self, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.left = Content("")
        self.right = Content("")

    def say(self, width: int) -> Content:
        """One line."""
        return spread(self.left, self.right, width)


class Latencies(Line):
    """Quantiles of the last minute; beside them those since the server's start, where there is room."""

    def __init__(self) -> None:
        super().__init__(id="latencies")
        self.tables: list[list[Content]] = []
        self.totals: list[Content] = []
        self.more: list[tuple[Content, Content]] = []

    def say(self, width: int) -> Content:
        """The tables, what was counted since the start, and what is not drawn."""
        beside = len(self.tables) > 1 and width >= 2 * TABLE_WIDTH + BETWEEN
        if beside:
            rows = zip(*self.tables, strict=True)
            lines = [
                Content.assemble(left, " " * max(2, TABLE_WIDTH + BETWEEN - left.cell_length), right)
                for left, right in rows
            ]
        else:
            lines = [line for table in self.tables for line in (*table, Content(""))][:-1]
        lines += packed(self.totals, Content(" " * BETWEEN), width)
        lines = [line.truncate(width, ellipsis=True) for line in lines]
        if self.more:
            lines += [Content(""), *(line for label, text in self.more for line in hanging(label, text, LABEL, width))]
        return Content("\n").join(lines)
