"""Small graphs of one line each: a label, the value now, and its course in the last minutes.

decode    41.8 tok/s   ▁▁▅▇▇▇▆▇▇▇▇▇▇▇▇▇     TTFT p95  420 ms       ▁▂▂▁▁▇▂▁▁▁▁▁▁▁▁▁
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from textual.events import Resize
from textual.geometry import Size

from spark_tui.domain.engine.metric_series import MetricId, SeriesView
from spark_tui.domain.graph_buckets import buckets
from spark_tui.domain.graph_scale import nice_scale, value_text
from spark_tui.domain.graph_time import time_axis
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.graph_paint import PennedRows, changed_regions
from spark_tui.tui.widgets.graph_raster import Pen, Row

LEVELS: Final[Mapping[str, str]] = {"unicode": "▁▂▃▄▅▆▇█", "console": ".░▒█", "ascii": "_.:=#"}
LABEL_CELLS: Final = 10
VALUE_CELLS: Final = 14
LEAST_CELLS: Final = 8
MOST_CELLS: Final = 30
GAP_CELLS: Final = 3
WINDOW_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Item:
    """One small graph: the series that is drawn, and those whose values are told."""

    label: str
    drawn: MetricId
    told: tuple[tuple[MetricId, str], ...] = ()


ITEMS: Final = (
    Item("decode", MetricId.DECODE_RATE),
    Item("TTFT p95", MetricId.TTFT_P95),
    Item("KV cache", MetricId.KV_USAGE),
    Item("requests", MetricId.RUNNING, ((MetricId.RUNNING, "run"), (MetricId.WAITING, "wait"))),
)
"""What Home shows of an engine that serves."""


def sparkline(series: SeriesView, now: float, cells: int, levels: str, window: float = WINDOW_SECONDS) -> str:
    """One character per stretch of time, by the greatest value in it; blank where nothing is known.

    Cells stand on multiples of wall-clock time, so the line moves once per cell and not once per sample.
    """
    axis = time_axis(window, cells, now, parts=1)
    found = buckets(series.times, series.values, axis.first_bucket, axis.buckets, axis.bucket_seconds, series.step)
    known = [part for part in found if part is not None]
    if not known:
        return " " * cells
    low, high = min(part.low for part in known), max(part.high for part in known)
    metric = series.metric
    scale = nice_scale(low, high, domain=metric.domain, unit=metric.unit)
    top = len(levels) - 1
    return "".join(" " if part is None else levels[round(scale.share(part.high) * top)] for part in found)


class EngineGraphs(PennedRows):
    """Four small graphs of one engine, two beside each other where there is room; no height while nothing is known."""

    DEFAULT_CSS = """
    EngineGraphs { width: 100%; height: auto; }
    """

    def __init__(self, glyphs: Glyphs, *, items: Sequence[Item] = ITEMS, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._levels = LEVELS.get(glyphs.name, LEVELS["ascii"])
        self._items = tuple(items)
        self._series: dict[MetricId, SeriesView] = {}
        self._now = 0.0
        self._rows: list[Row] = []

    def show(self, read: Callable[[MetricId], SeriesView] | None, now: float) -> None:
        """`read` gives the last minutes (WINDOW_SECONDS) of a series; None: there is no engine to speak of.

        Call it once a second while the screen is shown: it repaints only what differs.
        """
        wanted = {metric for item in self._items for metric in (item.drawn, *(m for m, _ in item.told))}
        self._series = {} if read is None else {metric: read(metric) for metric in sorted(wanted)}
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
        items = [item for item in self._items if _known(self._series.get(item.drawn))]
        least = LABEL_CELLS + VALUE_CELLS + LEAST_CELLS
        if width < least:
            return []
        beside = 2 if width >= 2 * least + GAP_CELLS else 1
        room = (width - GAP_CELLS * (beside - 1)) // beside
        cells = [self._item(item, room) for item in items]
        gap = Row(" " * GAP_CELLS, Pen.NOTHING * GAP_CELLS)
        rows = []
        for start in range(0, len(cells), beside):
            parts = [part for cell in cells[start : start + beside] for part in (gap, cell)][1:]
            text, pens = "".join(part.text for part in parts), "".join(part.pens for part in parts)
            rows.append(Row(f"{text:<{width}}", f"{pens:<{width}}"))
        return rows

    def _item(self, item: Item, room: int) -> Row:
        value = self._value(item)[:VALUE_CELLS]
        cells = min(MOST_CELLS, room - LABEL_CELLS - VALUE_CELLS)
        line = sparkline(self._series[item.drawn], self._now, cells, self._levels)
        text = f"{item.label[:LABEL_CELLS]:<{LABEL_CELLS}}{value:<{VALUE_CELLS}}{line}"
        pens = Pen.QUIET * LABEL_CELLS + Pen.NOTHING * VALUE_CELLS + Pen.FIRST * cells
        return Row(f"{text:<{room}}", f"{pens:<{room}}")

    def _value(self, item: Item) -> str:
        if not item.told:
            return _value_of(self._series[item.drawn])
        told = [(self._series[metric].last, word) for metric, word in item.told]
        return " ".join(f"{'-' if last is None else f'{last:.0f}'} {word}" for last, word in told)


def _known(series: SeriesView | None) -> bool:
    return series is not None and any(math.isfinite(value) for value in series.values)


def _value_of(series: SeriesView) -> str:
    metric = series.metric
    return "-" if series.last is None else value_text(series.last, metric.unit, metric.decimals)
