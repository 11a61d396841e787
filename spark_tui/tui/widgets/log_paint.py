"""One log line as a strip: time and process quiet, level as a word only when it is not INFO, the message bright."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.strip import Strip

from spark_tui.core.logs import Query
from spark_tui.domain.logs.line import LineKind, LogRecord, parse_line
from spark_tui.domain.text import clean_line
from spark_tui.services.ports import LogLine

MAX_CELLS = 2_000
"""What is painted of one line; copying and saving take all of it."""

CACHED_LINES = 1_000
TIME_CELLS = 8
MAX_PROCESS_CELLS = 14
NARROW, VERY_NARROW = 60, 44
"""Below these widths the time, and then the process, make room for the message."""

_TIME = re.compile(r"\d\d:\d\d:\d\d")
_INDENTED = (LineKind.TRACEBACK, LineKind.CONTINUATION)
_QUIET = (LineKind.ACCESS, LineKind.PROGRESS, LineKind.TRACEBACK)


@dataclass(frozen=True, slots=True)
class LogStyles:
    """The styles of the parts, from the theme."""

    text: Style
    dim: Style
    warning: Style
    error: Style
    match: Style


@dataclass(frozen=True, slots=True)
class PaintedLine:
    """A line in its colours, and how far its message is indented. `process` is what the line says of itself."""

    strip: Strip
    indent: int
    process: str


class LogPainter:
    """Paints lines for one width, one theme and one search."""

    def __init__(
        self,
        styles: LogStyles,
        *,
        width: int,
        process_cells: int,
        query: Query | None = None,
        ellipsis: str = "…",
        zone: tzinfo | None = None,
    ) -> None:
        self._styles = styles
        self._time_cells = TIME_CELLS if width >= NARROW else 0
        self._process_cells = process_cells if width >= VERY_NARROW else 0
        self._query = query
        self._ellipsis = ellipsis
        self._zone = zone

    def paint(self, line: LogLine) -> PaintedLine:
        """The whole line, at most MAX_CELLS of its message; how much more there is stands at its end."""
        record = parse_line(line.text)
        segments, indent = self._prefix(record, line.stamp)
        text = _message_text(record)
        shown, more = _cut(text, MAX_CELLS)
        word, style = self._loudness(record)
        if word:
            segments.append(Segment(f"{word} ", style if record.severity >= 30 else self._styles.dim))
        if record.severity == 30:
            style = self._styles.text
        segments += self._message(shown, style)
        if more:
            segments.append(Segment(f" {self._ellipsis} +{more:,} characters", self._styles.dim))
        return PaintedLine(Strip(segment for segment in segments if segment.text), indent, record.process)

    def _prefix(self, record: LogRecord, stamp: str) -> tuple[list[Segment], int]:
        parts: list[str] = []
        if self._time_cells:
            parts.append(f"{_clock(stamp, record.time, self._zone):<{self._time_cells}}")
        if self._process_cells:
            name = shorten(clean_line(record.process), self._process_cells, self._ellipsis)
            parts.append(name + " " * (self._process_cells - cell_len(name)))
        text = "".join(f"{part} " for part in parts)
        return ([Segment(text, self._styles.dim)] if text else []), cell_len(text)

    def _loudness(self, record: LogRecord) -> tuple[str, Style]:
        styles = self._styles
        word = record.level if record.level not in ("", "INFO") else ""
        if record.kind in _QUIET or (record.kind is LineKind.CONTINUATION and not record.level):
            return (word if record.kind is not LineKind.ACCESS else ""), styles.dim
        if record.severity >= 40:
            return word, styles.error
        if record.severity >= 30:
            return word, styles.warning
        return word, styles.dim if record.level == "DEBUG" else styles.text

    def _message(self, text: str, style: Style) -> Sequence[Segment]:
        spans = self._query.spans(text) if self._query is not None else []
        segments, at = [], 0
        for start, end in spans:
            segments += [Segment(text[at:start], style), Segment(text[start:end], self._styles.match)]
            at = end
        segments.append(Segment(text[at:], style))
        return segments


class PaintedLog:
    """Painted lines, kept as long as width, theme, search and wrapping stay the same.

    `source` gives a line by its number, `styles` the styles of the theme.
    """

    def __init__(
        self, source: Callable[[int], LogLine], styles: Callable[[], LogStyles], ellipsis: str, zone: tzinfo | None
    ) -> None:
        self.width = 1
        self.wrap = False
        self.query: Query | None = None
        self._source = source
        self._styles = styles
        self._ellipsis = ellipsis
        self._zone = zone
        self._process_cells = 0
        self._painter: LogPainter | None = None
        self._lines: LRUCache[int, PaintedLine] = LRUCache(CACHED_LINES)
        self._rows: LRUCache[int, list[Strip]] = LRUCache(CACHED_LINES)

    def forget(self) -> None:
        """What was painted no longer holds."""
        self._painter = None
        self._lines.clear()
        self._rows.clear()

    def begin(self) -> None:
        """Another log: its processes have other names."""
        self._process_cells = 0
        self.forget()

    def line(self, number: int) -> PaintedLine:
        """One line, painted once."""
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = self._paint().paint(self._source(number))
        return line

    def rows(self, number: int) -> list[Strip]:
        """The rows of a line: one, or more where long lines are wrapped."""
        if not self.wrap:
            return [self.line(number).strip]
        rows = self._rows.get(number)
        if rows is None:
            rows = self._rows[number] = wrapped(self.line(number), self.width)
        return rows

    def learn_processes(self, numbers: Iterable[int]) -> bool:
        """Widens the column of process names when a longer one comes by; True when it did."""
        longest = min(MAX_PROCESS_CELLS, max((cell_len(self.line(number).process) for number in numbers), default=0))
        if longest <= self._process_cells:
            return False
        self._process_cells = longest
        self.forget()
        return True

    def _paint(self) -> LogPainter:
        if self._painter is None:
            self._painter = LogPainter(
                self._styles(),
                width=self.width,
                process_cells=self._process_cells,
                query=self.query,
                ellipsis=self._ellipsis,
                zone=self._zone,
            )
        return self._painter


def wrapped(line: PaintedLine, width: int) -> list[Strip]:
    """A line over as many rows as it needs. Rows after the first begin below the message where there is room for
    that; a wide glyph goes to the next row whole."""
    strip = line.strip
    if strip.cell_length <= width:
        return [strip]
    indent = line.indent if line.indent * 3 <= width else min(2, width // 4)
    cuts = _cuts(strip.text, width, width - indent)
    rows = [strip.crop(start, end) for start, end in zip([0, *cuts], [*cuts, strip.cell_length], strict=True)]
    margin = Segment(" " * indent)
    return [rows[0], *(Strip([margin, *row]) for row in rows[1:])]


def _cuts(text: str, first: int, rest: int) -> list[int]:
    """Cells at which a text is cut: after the last space of a row's last quarter, else where the row is full."""
    cuts: list[int] = []
    at, width = 0, first
    while text:
        head = text[:width] if text.isascii() else chop_cells(text[:width], width)[0]
        if len(head) < len(text):
            space = head.rfind(" ", len(head) * 3 // 4)
            head = head[: space + 1] if space >= 0 else head
        at += cell_len(head)
        cuts.append(at)
        text, width = text[len(head) :], rest
    return cuts[:-1]


def shorten(name: str, cells: int, ellipsis: str) -> str:
    """A process name cut in its middle: what tells ranks apart stands at the end."""
    if len(name) <= cells:
        return name
    tail = min(cells // 2, 5)
    return name[: cells - tail - len(ellipsis)] + ellipsis + name[-tail:]


def _cut(text: str, cells: int) -> tuple[str, int]:
    """The first cells of a text, and how many characters there are besides."""
    if len(text) * 2 <= cells or cell_len(text) <= cells:
        return text, 0
    head = text[:cells] if text.isascii() else chop_cells(text[:cells], cells)[0]
    return head, len(text) - len(head)


def _message_text(record: LogRecord) -> str:
    text = clean_line(record.message)
    return f"  {text}" if record.kind in _INDENTED and not text.startswith(" ") else text


def _clock(stamp: str, log_time: str, zone: tzinfo | None) -> str:
    """`21:02:50` of Docker's stamp in local time, else of the log's own time as it stands; blank without both."""
    try:
        return datetime.fromisoformat(stamp).astimezone(zone).strftime("%H:%M:%S")
    except ValueError:
        time = _TIME.search(log_time)
        return time[0] if time else ""
