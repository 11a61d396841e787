"""The unified-memory strip, drawn to scale, and never more than there is.

Two lines at any width, and a third one while an alarm lasts. Unavailable values say why; the parts differ in shape as
well as in colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.host.memory import ALL_WELL, memory_breakdown
from spark_tui.domain.quantities import GIB, gib
from spark_tui.domain.reading import NOT_READ_YET, Missing, Reading, Stale, reason_of, value_of
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, spread

if TYPE_CHECKING:
    from spark_tui.domain.host.memory import MemInfo
    from spark_tui.domain.host.vitals import GpuReading

LABEL = " MEM "
_LEVEL_STYLES = {Severity.OK: "bold", Severity.WARNING: "bold $warning", Severity.ERROR: "bold $error"}
_FITS = ((3, True, 4), (2, True, 4), (2, True, 2), (2, False, 4), (2, False, 2), (2, False, 0))
"""Of the numbers: the gap between them, details, and how many of the GPU's signs. Details go before signs do."""


class MemoryStrip(Line):
    """Engines, applications, cache with its droppable part, free; swap and pressure; the GPU's vital signs."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="memory-strip")
        self._glyphs = glyphs
        self.memory: Reading[MemInfo] = NOT_READ_YET
        self.pressure: Reading[float] = NOT_READ_YET
        self.gpu: Reading[GpuReading] = NOT_READ_YET
        self.memory_state = ALL_WELL
        self.alarms: tuple[Finding, ...] = ()

    def say(self, width: int) -> Content:
        """The bar, the numbers under it, and the worst alarm under both."""
        memory = value_of(self.memory)
        if memory is None:
            first = Content.assemble((LABEL, "bold"), fmt.safe(f"n/a: {reason_of(self.memory)}", "$warning"))
        else:
            first = self._bar(memory, width)
        for gap, details, signs in _FITS:
            left, right = self._memory_text(memory, gap, details=details), self._gpu_text(signs)
            if left.cell_length + right.cell_length + 2 <= width:
                second = spread(left, right, width)
                break
        else:
            second = left.truncate(width, ellipsis=True)
        lines = [first, second]
        if self.alarms:
            alarm, more = self.alarms[0], len(self.alarms) - 1
            style = f"bold {fmt.SEVERITY_STYLE[alarm.severity]}"
            summary = f"{alarm.subject}: {alarm.summary}" if alarm.subject else alarm.summary
            banner = Content.assemble(
                (f" {self._glyphs.warning}   ", style), fmt.safe(summary, style), "  ", fmt.safe(alarm.remedy, "$dim")
            )
            lines.append(spread(banner, Content.styled(f" +{more} more " if more else "", "$dim"), width))
        return Content("\n").join(lines)

    def _bar(self, memory: MemInfo, width: int) -> Content:
        available = Content.assemble(
            "  ",
            (gib(memory.available), _LEVEL_STYLES[self.memory_state.severity]),
            (f" GiB available of {gib(memory.total)} ", "$dim"),
        )
        engines, apps, driver, *others = memory_breakdown(memory, self.gpu).sizes
        glyphs = self._glyphs
        marks = (glyphs.engine, glyphs.apps, glyphs.kept, glyphs.cache, glyphs.free)
        styles = ("$mem-engine", "$mem-apps", "$mem-cache", "$mem-cache", "$mem-free")
        cells = max(10, width - len(LABEL) - available.cell_length)
        return Content.assemble(
            (LABEL, "bold"), *bar(marks, styles, (engines, apps + driver, *others), cells), available
        )

    def _memory_text(self, memory: MemInfo | None, gap: int, *, details: bool) -> Content:
        words: list[tuple[str, str, str]] = []
        if memory is not None:
            parts = memory_breakdown(memory, self.gpu)
            cache, known = gib(memory.cache), parts.engine_memory is not None
            if details and memory.droppable is not None:
                cache += f" ({gib(min(memory.droppable, memory.cache))} droppable)"
            words = [
                ("engines ", gib(parts.engine_memory or 0), "$mem-engine"),
                ("apps " if known else "in use ", gib(parts.apps + (parts.driver or 0)), "$mem-apps"),
                ("cache ", cache, "$mem-cache"),
                ("free ", gib(memory.free), ""),
                ("swap ", gib(memory.swap_used) if memory.swap_used >= GIB // 20 else "0", ""),
            ]
            if not known:
                del words[0]
        pressure = value_of(self.pressure)
        words.append(("PSI ", "n/a" if pressure is None else f"{pressure:.1f}", ""))
        if isinstance(self.memory, Stale):
            words.append(("", "stale", "$warning"))
        text: list[Content | str] = [" " * len(LABEL)]
        for label, value, style in words:
            text += [Content.styled(label, "$dim"), Content.styled(value, style), " " * gap]
        return Content.assemble(*text[:-1])

    def _gpu_text(self, signs: int) -> Content:
        gpu = value_of(self.gpu)
        if gpu is None:
            if not isinstance(self.gpu, Missing) or self.gpu == NOT_READ_YET or not signs:
                return Content("")
            return fmt.safe("GPU n/a" if signs < 4 else f"GPU n/a: {self.gpu.reason}", "$dim")
        held = f" ({gpu.held_by})" if gpu.held_by else ""
        words = (
            None if gpu.utilization_percent is None else f"{gpu.utilization_percent}%",
            None if gpu.power_watts is None else f"{gpu.power_watts:.0f} W",
            None if gpu.sm_clock_mhz is None else f"{gpu.sm_clock_mhz} MHz{held}",
            None if gpu.temperature_c is None else f"{gpu.temperature_c} C",
        )
        shown = [word for word in words if word][:signs]
        return Content.assemble(("GPU ", "$dim"), "  ".join(shown), " ") if shown else Content("")


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
