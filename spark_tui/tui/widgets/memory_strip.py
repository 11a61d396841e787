"""The unified memory on one line, drawn to scale: each engine's part by name, apps, cache, free, the guard's floor.

Unavailable values say why; the parts differ in shape as well as in colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from textual.content import Content

from spark_tui.base.finding import NOT_READ_YET, Reading, Severity, Stale, reason_of, value_of
from spark_tui.base.host.memory import ALL_WELL, SERVING_FLOOR, MemInfo, MemoryBreakdown
from spark_tui.base.quantities import GIB, gib
from spark_tui.base.text import cells_left, clean_line, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line

LABEL = " MEM "
_LEVEL_STYLES = {Severity.OK: "bold", Severity.WARNING: "bold $warning", Severity.ERROR: "bold $error"}
LEAST_NAME = 5
"""Fewer letters of an engine's name say nothing."""
LEAST_BAR = 30


class StripSegment(NamedTuple):
    """A part of the bar: its words from the longest to the shortest, its colour, and the glyphs that fill it, each for
    a number of bytes."""

    words: tuple[str, ...]
    style: str
    fills: tuple[tuple[str, int], ...]


class MemoryStrip(Line):
    """The bar, and beside it what is available, swap in use and pressure."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="memory-strip")
        self._glyphs = glyphs
        self.memory: Reading[MemInfo] = NOT_READ_YET
        self.breakdown: Reading[MemoryBreakdown] = NOT_READ_YET
        self.pressure: Reading[float] = NOT_READ_YET
        self.memory_state = ALL_WELL
        self.floor = SERVING_FLOOR

    def say(self, width: int) -> Content:
        memory, parts = value_of(self.memory), value_of(self.breakdown)
        label = Content.styled(LABEL, "bold")
        if memory is None or parts is None:
            return Content.assemble(label, fmt.safe(f"n/a: {reason_of(self.memory)}", "$warning"))
        for details in (2, 1, 0):
            figures = self._figures(memory, details)
            cells = cells_left(width, len(LABEL), figures.cell_length)
            if cells >= LEAST_BAR * (1 + details):
                break
        line = Content.assemble(label, self._bar(parts, max(10, cells)), figures)
        return fmt.pressable(line, "app.open_memory")

    def _figures(self, memory: MemInfo, details: int) -> Content:
        """`56.2 GiB available of 121.7  PSI 0.0`; fewer words where it is narrow, but trouble always shows."""
        pressure, level = value_of(self.pressure), _LEVEL_STYLES[self.memory_state.severity]
        words: list[tuple[str, str]] = [("  ", ""), (gib(memory.available), level)]
        words.append((" GiB available of " if details else " of ", "$dim"))
        words.append((gib(memory.total, 0) + ("" if details else " GiB"), "$dim"))
        if memory.swap_used >= GIB // 2:
            words += [("  swap ", "$dim"), (gib(memory.swap_used), "$warning")]
        if pressure is None or details or pressure >= 1:
            value = "n/a" if pressure is None else f"{pressure:.1f}"
            words += [("  PSI ", "$dim"), (value, "$warning" if pressure else "")]
        if isinstance(self.memory, Stale):
            words.append(("  stale", "$warning"))
        return Content.assemble(*words, " ")

    def _segments(self, parts: MemoryBreakdown) -> list[StripSegment]:
        glyphs, found = self._glyphs, []
        for share in parts.engines or ():
            name, size = clean_line(share.name) or f"pid {share.pids[0] if share.pids else '?'}", gib(share.memory)
            names = [truncate(name, most) for most in range(LEAST_NAME, len(name))][::-1]
            words = (f"{name} {size}", *(f"{each} {size}" for each in names), size)
            found.append(StripSegment(words, "$mem-engine", ((glyphs.engine, share.memory),)))
        apps = parts.apps + (parts.driver or 0)
        known = "apps" if parts.engines is not None else "in use"
        both, drop = parts.cache + (parts.droppable or 0), parts.droppable or 0
        cache = _words("cache", both)
        cached = (f"{cache[0]}, {gib(drop)} droppable", *cache)
        return [
            *found,
            StripSegment(_words(known, apps), "$mem-apps", ((glyphs.apps, apps),)),
            StripSegment(cached, "$mem-cache", ((glyphs.kept, parts.cache), (glyphs.cache, drop))),
            StripSegment(_words("free", parts.free), "$mem-free", ((glyphs.free, parts.free),)),
        ]

    def _bar(self, parts: MemoryBreakdown, cells: int) -> Content:
        """Words stand on a filled part as on a label, on others in their colour. The tick is where the guard acts."""
        glyphs, drawn = self._glyphs, list[Content]()
        segments = self._segments(parts)
        sizes = [sum(size for _, size in each.fills) for each in segments]
        for (words, style, fills), count in zip(segments, apportion(sizes, cells), strict=True):
            filled = fills[0][0] == glyphs.engine
            text = next((each for each in words if len(each) <= count - 2 - filled), "")
            text = f" {text} " if text and filled else f"{text} " if text else ""
            on = f"bold $background on {style}" if filled else "$dim" if fills[0][0] == glyphs.free else style
            counts = apportion([size for _, size in fills], cells_left(count, len(text)))
            fill = "".join(mark * many for (mark, _), many in zip(fills, counts, strict=True))
            drawn += [fmt.safe(text, on), Content.styled(fill[:-1] + glyphs.edge if filled and fill else fill, style)]
        bar = Content.assemble(*drawn)
        tick = min(cells - 1, round(cells * (1 - self.floor / parts.total)))
        return Content.assemble(bar[:tick], (self._glyphs.tick, "bold $warning"), bar[tick + 1 :])


def _words(name: str, size: int) -> tuple[str, ...]:
    return (f"{name} {gib(size)}", f"{name} {gib(size, 0)}", name)


def bar(marks: Iterable[str], styles: Iterable[str], sizes: Sequence[int], cells: int) -> list[Content]:
    """A piece for each size that has a cell, to scale."""
    parts = zip(marks, styles, apportion(sizes, cells), strict=True)
    return [Content.styled(mark * count, style) for mark, style, count in parts if count]


def apportion(sizes: Sequence[int], cells: int) -> list[int]:
    """Shares `cells` among `sizes` by largest remainder: the sum is exact, and what is not zero gets a cell first.

    Returns one count per size; all zero when all sizes are.
    """
    total = sum(sizes)
    if total <= 0 or cells <= 0:
        return [0] * len(sizes)
    exact = [size * cells / total for size in sizes]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: counts[i] - exact[i])
    for index in by_remainder[: cells - sum(counts)]:
        counts[index] += 1
    for index, size in enumerate(sizes):
        largest = counts.index(max(counts))
        if size > 0 and counts[index] == 0 and counts[largest] > 1:
            counts[largest] -= 1
            counts[index] = 1
    return counts
