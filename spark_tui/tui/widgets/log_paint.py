"""One log line as a strip: time and process quiet, level as a word only when it is not INFO, the message bright."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from spark_tui.core.log_search import Query
from spark_tui.domain.engine.log_line import LineKind, LogRecord, parse_line
from spark_tui.domain.text import clean_line
from spark_tui.services.ports import LogLine

MAX_CELLS = 2_000
"""What is painted of one line without wrapping; copying and saving take all of it."""

PROCESS_CELLS = 10
_INDENTED = (LineKind.TRACEBACK, LineKind.CONTINUATION)


@dataclass(frozen=True, slots=True)
class LogStyles:
    """The styles of the parts, from the theme."""

    text: Style
    dim: Style
    warning: Style
    error: Style
    match: Style


class LogPainter:
    """Paints lines in the current styles; the local time zone is the reader's."""

    def __init__(self, styles: LogStyles, *, times: bool = True) -> None:
        self._styles = styles
        self._times = times

    def paint(self, line: LogLine, query: Query | None = None) -> Strip:
        """The whole line, at most MAX_CELLS wide."""
        record = parse_line(line.text)
        styles = self._styles
        segments: list[Segment] = []
        if self._times:
            segments.append(Segment(f"{_clock(line.stamp)} ", styles.dim))
        segments.append(Segment(f"{record.process[:PROCESS_CELLS]:<{PROCESS_CELLS}} ", styles.dim))
        style = styles.text
        if record.severity >= 40:
            style = styles.error
            segments.append(Segment("ERROR " if record.level else "", styles.error))
        elif record.severity >= 30:
            style = styles.warning
            segments.append(Segment("WARNING ", styles.warning))
        elif record.level == "DEBUG" or record.kind in (LineKind.ACCESS, LineKind.PROGRESS):
            style = styles.dim
        segments += self._message(_message_text(record), style, query)
        return Strip([segment for segment in segments if segment.text]).crop(0, MAX_CELLS)

    def _message(self, text: str, style: Style, query: Query | None) -> Sequence[Segment]:
        spans = query.spans(text) if query is not None else []
        if not spans:
            return [Segment(text, style)]
        segments, at = [], 0
        for start, end in spans:
            segments += [Segment(text[at:start], style), Segment(text[start:end], self._styles.match)]
            at = end
        segments.append(Segment(text[at:], style))
        return segments


def _message_text(record: LogRecord) -> str:
    text = clean_line(record.message)[: MAX_CELLS * 2]
    return f"  {text}" if record.kind in _INDENTED and not text.startswith(" ") else text


def _clock(stamp: str) -> str:
    """`21:02:50` of an RFC 3339 stamp, local time; blanks without one."""
    if not stamp:
        return " " * 8
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return " " * 8
