"""Small graphs of one line each: a label, the value now, and its course in the last minutes.

decode    41.8 tok/s   ▁▁▅▇▇▇▆▇▇▇▇▇▇▇▇▇     TTFT p95  420 ms       ▁▂▂▁▁▇▂▁▁▁▁▁▁▁▁▁
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.engine.metric_series import MetricId, SeriesView
from spark_tui.domain.graph_buckets import buckets
from spark_tui.domain.graph_scale import nice_scale, value_text
from spark_tui.domain.graph_time import time_axis
from spark_tui.tui.widgets.graph_pen import Pen, Row

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
METRICS: Final = tuple(sorted({metric for item in ITEMS for metric in (item.drawn, *(m for m, _ in item.told))}))
"""The series of them all."""


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


def laid_out(
    items: Sequence[Item], series: Mapping[MetricId, SeriesView], now: float, levels: str, width: int
) -> list[Row]:
    """Those of which something is known, two beside each other where there is room."""
    known = [item for item in items if _known(series.get(item.drawn))]
    least = LABEL_CELLS + VALUE_CELLS + LEAST_CELLS
    if width < least:
        return []
    beside = 2 if width >= 2 * least + GAP_CELLS else 1
    room = (width - GAP_CELLS * (beside - 1)) // beside
    cells = [_row(item, series, now, levels, room) for item in known]
    gap = Row(" " * GAP_CELLS, Pen.NOTHING * GAP_CELLS)
    rows = []
    for start in range(0, len(cells), beside):
        parts = [part for cell in cells[start : start + beside] for part in (gap, cell)][1:]
        text, pens = "".join(part.text for part in parts), "".join(part.pens for part in parts)
        rows.append(Row(f"{text:<{width}}", f"{pens:<{width}}"))
    return rows


def _row(item: Item, series: Mapping[MetricId, SeriesView], now: float, levels: str, room: int) -> Row:
    value = _value(item, series)[:VALUE_CELLS]
    cells = min(MOST_CELLS, room - LABEL_CELLS - VALUE_CELLS)
    line = sparkline(series[item.drawn], now, cells, levels)
    text = f"{item.label[:LABEL_CELLS]:<{LABEL_CELLS}}{value:<{VALUE_CELLS}}{line}"
    pens = Pen.QUIET * LABEL_CELLS + Pen.NOTHING * VALUE_CELLS + Pen.FIRST * cells
    return Row(f"{text:<{room}}", f"{pens:<{room}}")


def _value(item: Item, series: Mapping[MetricId, SeriesView]) -> str:
    if not item.told:
        return _value_of(series[item.drawn])
    told = [(series[metric].last, word) for metric, word in item.told]
    return " ".join(f"{'-' if last is None else f'{last:.0f}'} {word}" for last, word in told)


def _known(series: SeriesView | None) -> bool:
    return series is not None and any(math.isfinite(value) for value in series.values)


def _value_of(series: SeriesView) -> str:
    metric = series.metric
    return "-" if series.last is None else value_text(series.last, metric.unit, metric.decimals)
