"""The pool as it would be while a launch serves, to scale: what is in use now, what the engine takes, the rest."""

from __future__ import annotations

from typing import Final

from textual.content import Content

from spark_tui.domain.presets.fit import Fit, PartId
from spark_tui.domain.presets.fit_figures import Slice, slices
from spark_tui.domain.quantities import gib
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, packed
from spark_tui.tui.widgets.memory_strip import apportion

OTHERS, LEFT = "others", "left"
LOOKS: Final = {
    OTHERS: ("in use now", "apps", "$mem-apps"),
    PartId.WEIGHTS.value: ("weights", "engine", "$mem-engine"),
    PartId.DRAFTER.value: ("weights", "engine", "$mem-engine"),
    PartId.KV.value: ("KV cache", "cache", "$mem-cache"),
    LEFT: ("left", "free", "$mem-free"),
}
"""Words, glyph and colour of a slice."""
WORKING: Final = ("working memory", "kept", "$accent")
"""Those of all other slices: workspace, CUDA graphs, the engine's own processes."""


class FitBar(Line):
    """The memory strip again, with the forecast in it; nothing where too little is known."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._glyphs = glyphs
        self._forecast: Fit | None = None

    def show(self, fit: Fit | None) -> None:
        """Draws another forecast."""
        self._forecast = fit
        self.display = fit is not None and bool(slices(fit))
        self.renew()

    def say(self, width: int) -> Content:
        """The bar, and under it what its parts are, in GiB."""
        found = slices(self._forecast) if self._forecast is not None else ()
        if self._forecast is None or not found:
            return Content("")
        cells = zip(found, apportion([each.size for each in found], width), strict=True)
        bar = Content.assemble(*(self._mark(each, count) for each, count in cells))
        return Content("\n").join([bar, *packed(self._legend(self._forecast, found), Content("   "), width)])

    def _mark(self, part: Slice, count: int) -> Content:
        _, glyph, style = look(part)
        return Content.styled(str(getattr(self._glyphs, glyph)) * count, style)

    def _legend(self, fit: Fit, found: tuple[Slice, ...]) -> list[Content]:
        sizes: dict[tuple[str, str, str], int] = {}
        for each in found:
            sizes[look(each)] = sizes.get(look(each), 0) + each.size
        words = [
            Content.assemble((f"{getattr(self._glyphs, glyph)} ", style), (f"{name} ", "$dim"), f"{gib(size)} GiB")
            for (name, glyph, style), size in sizes.items()
            if size or name != LOOKS[LEFT][0]
        ]
        if fit.left is not None and fit.left < 0:
            words.append(Content.styled(f"{gib(-fit.left)} GiB too much", "bold $error"))
        return words


def look(part: Slice) -> tuple[str, str, str]:
    """The words, the glyph's name and the colour of a slice."""
    return LOOKS.get(part.id, WORKING)
