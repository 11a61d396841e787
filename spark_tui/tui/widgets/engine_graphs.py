"""An engine's small graphs, four lines at most. How they are drawn is loaded once there is something to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from textual.events import Resize
from textual.geometry import Size

from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.graph_paint import PennedRows, changed_regions
from spark_tui.tui.widgets.graph_pen import Row

if TYPE_CHECKING:
    from spark_tui.domain.engine.metric_series import MetricId, SeriesView

LEVELS: Final[Mapping[str, str]] = {"unicode": "▁▂▃▄▅▆▇█", "console": ".░▒█", "ascii": "_.:=#"}


class EngineGraphs(PennedRows):
    """Four small graphs of one engine, two beside each other where there is room; no height while nothing is known."""

    DEFAULT_CSS = """
    EngineGraphs { width: 100%; height: auto; }
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._levels = LEVELS.get(glyphs.name, LEVELS["ascii"])
        self._series: dict[MetricId, SeriesView] = {}
        self._now = 0.0
        self._rows: list[Row] = []

    def show(self, read: Callable[[MetricId], SeriesView] | None, now: float) -> None:
        """`read` gives the last minutes (WINDOW_SECONDS) of a series; None: there is no engine to speak of.

        Call it once a second while the screen is shown: it repaints only what differs.
        """
        self._series = {} if read is None else _read(read)
        self._now = now
        self._renew()

    def on_resize(self, _: Resize) -> None:
        """Another width, other lines."""
        self._renew()

    @property
    def rows(self) -> Sequence[Row]:
        """One or two graphs in each."""
        return self._rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there is something to say."""
        return len(self._lay_out(width)) if width else len(self._rows)

    def _renew(self) -> None:
        old, self._rows = self._rows, self._lay_out(self.size.width)
        if len(old) != len(self._rows):
            self.refresh(layout=True)
        elif regions := changed_regions(old, self._rows):
            self.refresh(*regions)

    def _lay_out(self, width: int) -> list[Row]:
        if not self._series:
            return []
        from spark_tui.tui.widgets.graph_spark import ITEMS, laid_out

        return laid_out(ITEMS, self._series, self._now, self._levels, width)


def _read(read: Callable[[MetricId], SeriesView]) -> dict[MetricId, SeriesView]:
    from spark_tui.tui.widgets.graph_spark import METRICS

    return {metric: read(metric) for metric in METRICS}
