"""Log lines as strips: time and process quiet, level as a word only when it is not INFO, the message bright."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.strip import Strip

from spark_tui.base.ports import LogLine
from spark_tui.base.text import cells_left, clean_line
from spark_tui.observe.explain.model.line import LineKind, LogRecord, parse_line
from spark_tui.observe.explain.use import Query

MAX_CELLS = 2_000
"""What is painted of one line; copying and saving take all of it."""
CACHED_LINES = 1_000
TIME_CELLS = 8
MAX_PROCESS_CELLS, MAX_NAME_CELLS = 14, 12
NAME_STYLES = 4
HEADER_CELLS = 60
NARROW, VERY_NARROW = 60, 44
"""Below these widths the time, and then the process, make room for the message."""

_TIME = re.compile(r"\d\d:\d\d:\d\d")
_INDENTED = (LineKind.TRACEBACK, LineKind.CONTINUATION)
_QUIET = (LineKind.ACCESS, LineKind.PROGRESS, LineKind.TRACEBACK)


class PaintedLine(NamedTuple):
    """A line in its colours, and how far its message is indented. `process` is as the line names it."""

    strip: Strip
    indent: int
    process: str


class LogPainter:
    """Paints each line once, as long as width, theme, search and wrapping stay the same.

    `source` gives a line by its number; `style` the theme's style `dim`, `warning`, `error` or `match`.
    """

    def __init__(
        self,
        source: Callable[[int], LogLine],
        style: Callable[[str], Style],
        ellipsis: str,
        zone: tzinfo | None,
        rule: str = "-",
    ) -> None:
        self.width = 1
        self.wrap = False
        self.query: Query | None = None
        self.process_cells = 0
        self.headers: Mapping[int, str] = {}
        """What stands above a line, in a row of its own: the phase that begins there."""
        self.names: Sequence[str] = ()
        """Of several engines in one log: they stand before each line, by `owner`."""
        self.owner: Callable[[int], int] = lambda _: 0
        self._source, self._style, self._ellipsis, self._zone, self._rule = source, style, ellipsis, zone, rule
        self._styles: dict[str, Style] = {}
        self._lines: LRUCache[int, PaintedLine] = LRUCache(CACHED_LINES)
        self._rows: LRUCache[int, list[Strip]] = LRUCache(CACHED_LINES)

    def forget(self) -> None:
        self._styles.clear()
        self._lines.clear()
        self._rows.clear()

    def head(self, headers: Mapping[int, str]) -> None:
        self.headers = headers
        self._rows.clear()

    def line(self, number: int) -> PaintedLine:
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = self._painted(self._source(number), self.owner(number))
        return line

    def height(self, number: int) -> int:
        """How many rows a line takes; where lines are cut, it need not be painted for that."""
        return len(self.rows(number)) if self.wrap else 1 + (number in self.headers)

    def rows(self, number: int) -> list[Strip]:
        """The rows of a line: one, or more where long lines are wrapped."""
        header = self.headers.get(number, "")
        if not self.wrap and not header:
            return [self.line(number).strip]
        rows = self._rows.get(number)
        if rows is None:
            line = self.line(number)
            rows = wrapped(line, self.width) if self.wrap else [line.strip]
            if header:
                rule = self._rule * cells_left(min(self.width, HEADER_CELLS), cell_len(header), 4)
                text = f"{self._rule}{self._rule} {header} {rule}"
                rows = [Strip([Segment(text, self._style("dim"))]), *rows]
            self._rows[number] = rows
        return rows

    def learn_processes(self, numbers: Iterable[int]) -> bool:
        """Widens the column of process names for a longer name among these lines; True when it did."""
        longest = min(MAX_PROCESS_CELLS, max((cell_len(self.line(number).process) for number in numbers), default=0))
        if longest <= self.process_cells:
            return False
        self.process_cells = longest
        self.forget()
        return True

    def _painted(self, line: LogLine, owner: int) -> PaintedLine:
        """At most MAX_CELLS of the message, and how much more there is."""
        if not self._styles:
            self._styles = {name: self._style(name) for name in ("dim", "warning", "error", "match")}
            self._styles["text"] = Style.null()
        record, styles = parse_line(line.text), self._styles
        segments, width = [], self.width
        if self.names:
            cells = min(MAX_NAME_CELLS, max(map(cell_len, self.names)))
            own = self._column(self.names[owner], cells)
            segments.append(Segment(own, self._style(f"name{owner % NAME_STYLES}")))
            width -= 2 * len(own)  # the message needs its room more than the process
        prefix = f"{_clock(line.stamp, record.time, self._zone):<{TIME_CELLS}} " if self.width >= NARROW else ""
        if self.process_cells and width >= VERY_NARROW + 18 * bool(self.names):
            prefix += self._column(clean_line(record.process), self.process_cells)
        segments.append(Segment(prefix, styles["dim"]))
        indent = sum(cell_len(each.text) for each in segments)
        word, loudness = _loudness(record)
        if word:
            segments.append(Segment(f"{word} ", styles[loudness if record.severity >= 30 else "dim"]))
        text, more = _message(record)
        style, at = styles["text" if record.severity == 30 else loudness], 0
        for start, end in self.query.spans(text) if self.query is not None else ():
            segments += [Segment(text[at:start], style), Segment(text[start:end], styles["match"])]
            at = end
        segments.append(Segment(text[at:], style))
        if more:
            segments.append(Segment(f" {self._ellipsis} +{more:,} characters", styles["dim"]))
        return PaintedLine(Strip(each for each in segments if each.text), indent, record.process)

    def _column(self, name: str, cells: int) -> str:
        name = shorten(name, cells, self._ellipsis)
        return name + " " * cells_left(cells + 1, cell_len(name))


def _loudness(record: LogRecord) -> tuple[str, str]:
    """The level as a word, empty for INFO, and the name of its style."""
    word = record.level if record.level not in ("", "INFO") else ""
    if record.kind in _QUIET or (record.kind is LineKind.CONTINUATION and not record.level):
        return (word if record.kind is not LineKind.ACCESS else ""), "dim"
    if record.severity >= 30:
        return word, "error" if record.severity >= 40 else "warning"
    return word, "dim" if record.level == "DEBUG" else "text"


def _message(record: LogRecord) -> tuple[str, int]:
    """What is painted of a message, and how many characters there are besides."""
    text = clean_line(record.message)
    if record.kind in _INDENTED and not text.startswith(" "):
        text = f"  {text}"
    if len(text) * 2 <= MAX_CELLS or cell_len(text) <= MAX_CELLS:
        return text, 0
    head = text[:MAX_CELLS] if text.isascii() else chop_cells(text[:MAX_CELLS], MAX_CELLS)[0]
    return head, len(text) - len(head)


def _clock(stamp: str, log_time: str, zone: tzinfo | None) -> str:
    """`21:02:50` of Docker's stamp in local time, else of the log's own time; blank without both."""
    try:
        return datetime.fromisoformat(stamp).astimezone(zone).strftime("%H:%M:%S")
    except ValueError:
        time = _TIME.search(log_time)
        return time[0] if time else ""


def shorten(name: str, cells: int, ellipsis: str) -> str:
    """A process name cut in its middle: ranks differ at the end."""
    if len(name) <= cells:
        return name
    tail = min(cells // 2, 5)
    return name[: cells - tail - len(ellipsis)] + ellipsis + name[-tail:]


def wrapped(line: PaintedLine, width: int) -> list[Strip]:
    """A line over as many rows as it needs, broken after the last space of a row's last quarter, else where it is full.

    Rows after the first begin below the message where there is room; a wide glyph goes to the next row whole.
    """
    strip = line.strip
    if strip.cell_length <= width or width < 1:
        return [strip]
    indent = line.indent if line.indent * 3 <= width else min(2, width // 4)
    margin = Segment(" " * indent)
    rows: list[Strip] = []
    text, at = strip.text, 0
    while text:
        room = width - indent if rows else width
        head = text[:room] if text.isascii() else chop_cells(text[:room], room)[0]
        head = head or text[:1]  # a wide glyph in one cell: it is cut, and the line has an end
        if len(head) < len(text):
            space = head.rfind(" ", len(head) * 3 // 4)
            head = head[: space + 1] if space >= 0 else head
        row = strip.crop(at, at + cell_len(head))
        rows.append(Strip([margin, *row]) if rows else row)
        text, at = text[len(head) :], at + cell_len(head)
    return rows
