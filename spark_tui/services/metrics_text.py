"""Prometheus text to a MetricPage, cheaply: only wanted lines are parsed, and each of them once.

A page of vLLM has 60 kB in 700 lines. A third of them is wanted, and their names and labels are the same every time:
prometheus_client's parser reads them when they first appear, afterwards only the figure behind them is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_tui.domain.engine.metric_names import WANTED_NAMES, Slot, Source, source_of
from spark_tui.domain.engine.metric_page import MetricPage, page_of

MAX_SERIES: Final = 5_000
"""Wanted series of one page. Eight data-parallel engines have 1,500."""
MAX_KNOWN: Final = 4 * MAX_SERIES
MAX_LINE_BYTES: Final = 8 * 1024
"""The longest that is wanted, `cache_config_info`, has about 1.5 kB."""

_WANTED: Final = frozenset(name.encode() for name in WANTED_NAMES)


class NotMetrics(ValueError):
    """Not a metrics page that can be used, and why."""


class PageReader:
    """Reads pages of any servers. What it keeps is bounded."""

    def __init__(self) -> None:
        self._known: dict[bytes, Source | None] = {}

    def read(self, text: bytes) -> MetricPage:
        """A page; lines that are not wanted, or not in the format, are passed over.

        Raises NotMetrics when there is no wanted series at all, or far too many.
        """
        page = page_of(self._samples(text))
        if not page.groups:
            raise NotMetrics("it has none of the metrics of an engine")
        return page

    def _samples(self, text: bytes) -> Iterator[tuple[Slot, float]]:
        known, count = self._known, 0
        for line in text.split(b"\n"):
            if line[:1] == b"#":
                continue
            series, _, figure = line.rpartition(b" ")
            source = known.get(series)
            if source is None:
                if series in known or not _is_wanted(line):
                    continue
                found = self._parse(line)
            else:
                value = _figure(figure)
                found = None if value is None else (source, value)
            if found is None:
                continue
            count += 1
            if count > MAX_SERIES:
                raise NotMetrics(f"it has more than {MAX_SERIES:,} series of an engine")
            source, value = found
            yield source.slot, value if source.constant is None else source.constant

    def _parse(self, line: bytes) -> tuple[Source, float] | None:
        """A series that is met for the first time; None for what is not in the format or not wanted."""
        from prometheus_client.parser import text_string_to_metric_families

        if len(line) > MAX_LINE_BYTES:
            return None
        try:
            families = list(text_string_to_metric_families(line.decode("utf-8", "replace") + "\n"))
        except (ValueError, IndexError, KeyError):  # what the parser raises at garbage
            return None
        samples = [sample for family in families for sample in family.samples]
        if len(samples) != 1:
            return None
        sample = samples[0]
        source = source_of(sample.name, sample.labels)
        if sample.timestamp is None:  # with a time behind the figure, the line's last word is not the figure
            self._remember(line.rpartition(b" ")[0], source)
        return None if source is None else (source, float(sample.value))

    def _remember(self, series: bytes, source: Source | None) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[series] = source


def _is_wanted(line: bytes) -> bool:
    return line.partition(b"{")[0].partition(b" ")[0] in _WANTED


def _figure(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
