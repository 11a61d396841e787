"""The unified memory as it would be while a launch serves, to scale: others, what the engine takes, what is free."""

from __future__ import annotations

from typing import Final

from textual.content import Content

from spark_tui.base.quantities import gib, short_tokens
from spark_tui.base.text import cells_left
from spark_tui.catalog.fit.model.fit import Fit
from spark_tui.catalog.fit.model.verdict import pieces, slices
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, packed
from spark_tui.tui.widgets.memory_strip import apportion

LOOKS: Final = {
    "others": ("in use", "apps", "$mem-apps"),
    "weights": ("weights", "engine", "$mem-engine"),
    "kv": ("KV", "cache", "$mem-cache"),
    "overhead": ("overhead", "kept", "$accent"),
    "free": ("free", "free", "$mem-free"),
}
"""Words, glyph and colour of a slice."""


class FitBar(Line):
    """The memory strip with a forecast in it; nothing where too little is known. The tick is the end of the engine's
    memory share. `sequences`: below it the KV cache, divided into sequences of full length."""

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        sequences: bool = False,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._sequences = sequences
        self._forecast: Fit | None = None

    def show(self, fit: Fit | None) -> None:
        """Draws another forecast."""
        self._forecast = fit
        self.display = fit is not None and bool(slices(fit))
        self.renew()

    def say(self, width: int) -> Content:
        """The bar, and under it what its parts are, in GiB."""
        fit = self._forecast
        found = slices(fit) if fit is not None else ()
        if fit is None or not found:
            return Content("")
        bar, legend, whole = Content(""), [], dict(pieces(fit))
        for (name, size), count in zip(found, apportion([size for _, size in found], width), strict=True):
            word, glyph, style = LOOKS[name]
            mark = str(getattr(self._glyphs, glyph))
            bar += Content.styled(mark * count, style)
            unit = " GiB" if name == "free" else ""
            legend.append(
                Content.assemble((f"{mark} ", style), (f"{word} ", "$dim"), f"{gib(whole.get(name, size))}{unit}")
            )
        if fit.left is not None and fit.left < 0:
            legend[-1] = Content.styled(f"{gib(-fit.left)} GiB too much", "bold $error")
        if fit.utilization is not None and fit.total and fit.available is not None and fit.claim is not None:
            tick = round(width * (fit.total - fit.available + fit.claim) / fit.total)
            if 0 < tick < width:
                bar = Content.assemble(bar[:tick], (self._glyphs.tick, "bold $warning"), bar[tick + 1 :])
                legend.append(
                    Content.assemble(
                        (f"{self._glyphs.tick} ", "bold $warning"), ("share ", "$dim"), f"{fit.utilization:.2f}"
                    )
                )
        lines = [bar, *packed(legend, Content("  "), width)]
        return Content("\n").join([*lines, *self._kv_lines(fit, width)] if self._sequences else lines)

    def _kv_lines(self, fit: Fit, width: int) -> list[Content]:
        """`KV ░░░░░░1░░░░░░2░░░  2.4 x 262k`: a number ends each sequence that has room; nothing if unknown."""
        kv = fit.kv
        if kv is None or fit.context is None or kv.concurrency <= 0:
            return []
        head = Content.styled("KV ", "$dim")
        tail = Content.assemble(f"  {kv.concurrency:,.1f}", (" x ", "$dim"), short_tokens(fit.context))
        cells = cells_left(width, head.cell_length, tail.cell_length)
        bar, taken = [self._glyphs.cache] * cells, 0
        for number in range(1, int(min(kv.concurrency, cells)) + 1):
            end, text = round(number / max(1.0, kv.concurrency) * cells), str(number)
            if end - len(text) > taken:
                bar[end - len(text) : end], taken = text, end
        short = kv.concurrency < 1
        tone = "$error" if short else LOOKS["kv"][2]
        full = round(cells * min(1.0, kv.concurrency))
        rest = (self._glyphs.free * cells_left(cells, full), "$dim")
        return [Content.assemble(head, ("".join(bar[:full]), tone), rest, tail)]
