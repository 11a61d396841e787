"""The unified memory as it would be while a launch serves, to scale: in use now, what the engine takes, the rest."""

from __future__ import annotations

from typing import Final

from textual.content import Content

from spark_tui.domain.presets.fit import Fit, PartId, slices
from spark_tui.domain.quantities import gib
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, packed
from spark_tui.tui.widgets.memory_strip import apportion

LOOKS: Final = {
    "others": ("in use now", "apps", "$mem-apps"),
    PartId.WEIGHTS.value: ("weights", "engine", "$mem-engine"),
    PartId.DRAFTER.value: ("weights", "engine", "$mem-engine"),
    PartId.KV.value: ("KV cache", "cache", "$mem-cache"),
    "left": ("left", "free", "$mem-free"),
}
"""Words, glyph and colour of a slice."""
WORKING: Final = ("working memory", "kept", "$accent")
"""Those of all other slices: workspace, CUDA graphs, the engine's own processes."""


class FitBar(Line):
    """The memory strip with a forecast in it; nothing where too little is known."""

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
        fit = self._forecast
        found = slices(fit) if fit is not None else ()
        if fit is None or not found:
            return Content("")
        bar: list[Content] = []
        sizes: dict[tuple[str, str, str], int] = {}
        for (name, size), count in zip(found, apportion([size for _, size in found], width), strict=True):
            look = LOOKS.get(name, WORKING)
            sizes[look] = sizes.get(look, 0) + size
            bar.append(Content.styled(str(getattr(self._glyphs, look[1])) * count, look[2]))
        legend = [
            Content.assemble((f"{getattr(self._glyphs, glyph)} ", style), (f"{word} ", "$dim"), f"{gib(size)} GiB")
            for (word, glyph, style), size in sizes.items()
            if size or word != "left"
        ]
        if fit.left is not None and fit.left < 0:
            legend.append(Content.styled(f"{gib(-fit.left)} GiB too much", "bold $error"))
        return Content("\n").join([Content.assemble(*bar), *packed(legend, Content("   "), width)])
