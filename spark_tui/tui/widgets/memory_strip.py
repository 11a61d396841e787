"""The unified-memory strip: one pool, drawn to scale, and never more than the pool.

Two lines at any width, and a third one while an alarm stands. What cannot be read says why; the four parts differ in
shape as well as in colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.host.memory import ALL_WELL
from spark_tui.domain.quantities import GIB, gib
from spark_tui.domain.reading import NOT_READ_YET, Missing, Reading, Stale, reason_of, value_of
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, spread

if TYPE_CHECKING:
    from spark_tui.domain.host.breakdown import MemoryBreakdown
    from spark_tui.domain.host.memory import MemInfo
    from spark_tui.domain.host.vitals import GpuReading

LABEL = " MEM "
_LEVEL_STYLES = {Severity.OK: "bold", Severity.WARNING: "bold $warning", Severity.ERROR: "bold $error"}


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
        lines = [first, self._numbers(memory, width)]
        if self.alarms:
            lines.append(self._banner(self.alarms[0], len(self.alarms) - 1, width))
        return Content("\n").join(lines)

    def _banner(self, alarm: Finding, more: int, width: int) -> Content:
        """` ! qwen: no token for 2m while requests run  restart it ...  (+1)`."""
        style = fmt.SEVERITY_STYLE[alarm.severity]
        whose = f"{alarm.subject}: " if alarm.subject else ""
        right = Content.styled(f" +{more} more " if more else "", "$dim")
        left = Content.assemble(
            (f" {self._glyphs.warning}   ", f"bold {style}"),
            fmt.safe(f"{whose}{alarm.summary}", f"bold {style}"),
            "  ",
            fmt.safe(alarm.remedy, "$dim"),
        )
        return spread(left, right, width)

    def _bar(self, memory: MemInfo, width: int) -> Content:
        available = Content.assemble(
            "  ",
            (gib(memory.available), _LEVEL_STYLES[self.memory_state.severity]),
            (" GiB available of ", "$dim"),
            (f"{gib(memory.total)} ", "$dim"),
        )
        cells = max(10, width - len(LABEL) - available.cell_length)
        engines, apps, driver, *others = self._parts(memory).sizes
        sizes = (engines, apps + driver, *others)
        glyphs = self._glyphs
        drawn = zip(
            (glyphs.engine, glyphs.apps, glyphs.kept, glyphs.cache, glyphs.free),
            ("$mem-engine", "$mem-apps", "$mem-cache", "$mem-cache", "$mem-free"),
            apportion(sizes, cells),
            strict=True,
        )
        return Content.assemble(
            (LABEL, "bold"), *(Content.styled(g * n, style) for g, style, n in drawn if n), available
        )

    def _parts(self, memory: MemInfo) -> MemoryBreakdown:
        from spark_tui.domain.host.breakdown import memory_breakdown

        return memory_breakdown(memory, self.gpu)

    def _numbers(self, memory: MemInfo | None, width: int) -> Content:
        """The numbers with as many of the GPU's signs as fit beside them; details go before signs do."""
        for gap, details, signs in (
            (3, True, 4),
            (2, True, 4),
            (2, True, 2),
            (2, False, 4),
            (2, False, 2),
            (2, False, 0),
        ):
            left, right = self._memory_text(memory, gap, details=details), self._gpu_text(signs)
            if left.cell_length + right.cell_length + 2 <= width:
                return spread(left, right, width)
        return left.truncate(width, ellipsis=True)

    def _memory_text(self, memory: MemInfo | None, gap: int, *, details: bool) -> Content:
        words: list[tuple[str, str, str]] = []
        if memory is not None:
            parts = self._parts(memory)
            apps = parts.apps + (parts.driver or 0)
            if parts.engine_memory is not None:
                words.append(("engines ", gib(parts.engine_memory), "$mem-engine"))
            words.append(("apps " if parts.engine_memory is not None else "in use ", gib(apps), "$mem-apps"))
            words.append(("cache ", _cache_text(memory, details=details), "$mem-cache"))
            words.append(("free ", gib(memory.free), ""))
            words.append(("swap ", gib(memory.swap_used) if memory.swap_used >= GIB // 20 else "0", ""))
        words.append(("PSI ", _pressure_text(self.pressure), ""))
        if isinstance(self.memory, Stale):
            words.append(("", "stale", "$warning"))
        text: list[Content | str] = [" " * len(LABEL)]
        for label, value, style in words:
            text += [Content.styled(label, "$dim"), Content.styled(value, style), " " * gap]
        return Content.assemble(*text[:-1])

    def _gpu_text(self, signs: int) -> Content:
        gpu = value_of(self.gpu)
        if gpu is None:
            told = isinstance(self.gpu, Missing) and self.gpu != NOT_READ_YET and signs
            return (
                fmt.safe("GPU n/a" if signs < 4 else f"GPU n/a: {reason_of(self.gpu)}", "$dim") if told else Content("")
            )
        held = f" ({gpu.held_by})" if gpu.held_by else ""
        words = (
            None if gpu.utilization_percent is None else f"{gpu.utilization_percent}%",
            None if gpu.power_watts is None else f"{gpu.power_watts:.0f} W",
            None if gpu.sm_clock_mhz is None else f"{gpu.sm_clock_mhz} MHz{held}",
            None if gpu.temperature_c is None else f"{gpu.temperature_c} C",
        )
        shown = [word for word in words if word][:signs]
        return Content.assemble(("GPU ", "$dim"), "  ".join(shown), " ") if shown else Content("")


def _cache_text(memory: MemInfo, *, details: bool) -> str:
    if memory.droppable is None or not details:
        return gib(memory.cache)
    return f"{gib(memory.cache)} ({gib(min(memory.droppable, memory.cache))} droppable)"


def _pressure_text(pressure: Reading[float]) -> str:
    value = value_of(pressure)
    return "n/a" if value is None else f"{value:.1f}"


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
