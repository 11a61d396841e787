"""The levels of a benchmark as bars: what each keeps of one stream's speed, and its latencies.

throughput, of linear      TTFT ms  █ p50  ▓ p95
1 ████████████████ 100%    1 ████·········· 464   467
2 ██████████████░░  89%    2 ████▓▓········ 471   680
8 █████████░░░░░░░  54%    8 ████▓▓▓▓▓▓▓▓▓▓ 470 1,785
"""

from __future__ import annotations

from typing import Final

from textual.content import Content

from spark_tui.base.text import cells_left
from spark_tui.observe.results.model.run import BenchRun
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line
from spark_tui.use.bench.show.bench import LevelPanel, level_panels

GAP: Final = 2
"""Cells between two panels."""
LEAST: Final = 26
"""Cells of a panel beside another one; with fewer they stand one under the other."""


class LevelBars(Line):
    """The panels of a run, two beside each other; `stacked`, each on the whole width. Nothing with fewer than two
    levels."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._glyphs = glyphs
        self._panels: tuple[LevelPanel, ...] = ()
        self._stacked = False
        self.display = False

    def show(self, run: BenchRun | None, *, stacked: bool) -> None:
        self._panels = level_panels(run) if run is not None else ()
        self._stacked = stacked
        self.display = bool(self._panels)
        self.renew()

    def say(self, width: int) -> Content:
        beside = 1 if self._stacked or width < 2 * LEAST + GAP else 2
        room = cells_left(width, GAP * (beside - 1)) // beside
        lines: list[Content] = []
        for first in range(0, len(self._panels), beside):
            drawn = [self._lines(panel, room) for panel in self._panels[first : first + beside]]
            lines += [Content(" " * GAP).join(row) for row in zip(*drawn, strict=True)]
        return Content("\n").join(lines)

    def _lines(self, panel: LevelPanel, width: int) -> list[Content]:
        """The title and a bar for each level, each line `width` cells wide."""
        filled = ((self._glyphs.engine, "$primary"), (self._glyphs.apps, "$accent"))
        head = Content.styled(panel.title, "$dim")
        for name, (glyph, style) in zip(panel.parts, filled, strict=False):
            head = Content.assemble(head, (f"  {glyph} ", style), (name, "$dim"))
        head = head.truncate(width, ellipsis=True)
        lines = [Content.assemble(head, " " * cells_left(width, head.cell_length))]
        label = max(len(str(bar.streams)) for bar in panel.bars)
        text = max(len(bar.text) for bar in panel.bars)
        cells = max(4, width - label - text - 2)
        for bar in panel.bars:
            ends = [round(min(1.0, end) * cells) for end in bar.ends]
            parts, before = [], 0
            for end, (glyph, style) in zip(ends, filled, strict=False):
                parts.append((glyph * (end - before), "$warning" if bar.low else style))
                before = end
            lost = panel.of_whole and bar.ends
            glyph, style = (self._glyphs.cache, "$dim") if lost else (self._glyphs.free, "$rule")
            rest = (glyph * cells_left(cells, before), style)
            lines.append(
                Content.assemble(f"{bar.streams:>{label}} ", *parts, rest, f" {bar.text:>{text}}").truncate(width)
            )
        return lines
