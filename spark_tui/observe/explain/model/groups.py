"""Lines that belong together: a traceback with what raised it, and lines that repeat with other figures.

A log mixes the lines of several processes: two workers that fail at once write their tracebacks into one another. A
traceback holds the lines of one process only, so it can be copied by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.line import LineKind, LogRecord, parse_line

MAX_APART: Final = 400
"""Maximum number of other lines between two lines of a traceback."""
REACH: Final = 2_000
"""Lines of a traceback; one through a recursion has more."""
MAX_TAIL: Final = 30
"""Lines without a form of their own that may follow the line that names an exception."""
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct cause")
_PLAIN: Final = (LineKind.PLAIN, LineKind.CONTINUATION)
_WITHIN: Final = (LineKind.TRACEBACK, LineKind.CONTINUATION)


def traceback_at(number: int, lines: Sequence[str], first: int = 0) -> tuple[int, ...]:
    """The numbers of the lines of the traceback that line `number` is part of, ascending; empty where it is of none.
    The record that reports it is one of them.

    `lines` are those around it, the first of them has the number `first`; `REACH` of them on each side are enough.
    """
    records = {at: parse_line(text) for at, text in enumerate(lines, first)}
    own = records[number]
    records = {at: each for at, each in records.items() if (each.process, each.pid) == (own.process, own.pid)}
    bare = _is_bare(own)
    if not bare and _reports(number, records):
        return traceback_at(number + 1, lines, first)
    group: list[int] = []
    blanks: list[int] = []
    traced, raised, tail, last = False, False, 0, own
    for at, record in records.items():
        if _is_bare(record) is not bare:  # bare tracebacks come by another stream than the records around them
            continue
        if not group or at - group[-1] >= MAX_APART:
            joins = False
        elif not bare:  # vLLM gives every line of a message the head of the first
            alike = (record.level, record.time, record.source) == (last.level, last.time, last.source)
            joins = alike and (traced or record.kind in _WITHIN)
        elif raised and record.kind is not LineKind.BLANK and not record.message.startswith(_CHAINED):
            joins = record.kind in _PLAIN and not blanks and tail < MAX_TAIL  # the rest of an exception's text
        else:
            joins = traced
        if joins and bare and record.kind is LineKind.BLANK:
            blanks.append(at)
            continue
        if not joins:
            if number in group:
                break
            group, blanks, traced, raised = [], [], False, False
        group += [*blanks, at]
        blanks, last = [], record
        tail = tail + 1 if raised else 0
        traced = traced or record.kind is LineKind.TRACEBACK
        raised = (raised or record.kind is LineKind.EXCEPTION) and record.kind is not LineKind.TRACEBACK
    if not traced or number not in group:
        return ()
    return (group[0] - 1, *group) if bare and _reports(group[0] - 1, records) else tuple(group)


def _is_bare(record: LogRecord) -> bool:
    return not (record.level or record.source) and record.kind is not LineKind.PROGRESS


def _reports(number: int, records: dict[int, LogRecord]) -> bool:
    """Whether a record stands right above a traceback without heads: uvicorn's, of an error."""
    above, below = records.get(number), records.get(number + 1)
    if above is None or below is None or _is_bare(above) or not _is_bare(below):
        return False
    return above.severity >= 40 and above.kind is LineKind.RECORD and below.kind is LineKind.TRACEBACK


_STATISTICS: Final = (
    "Avg prompt throughput",  # vLLM, every ten seconds
    "SpecDecoding metrics",
    "Decode batch",  # SGLang
    "Prefill batch",
    "iter = ",  # TensorRT-LLM, with its iteration log on
    "slot print_timing",  # llama.cpp
    "slot launch_slot_",
    "slot update_slots",
    "srv  update_slots",
)
_REQUEST: Final = lazy_pattern(r'"[A-Z]{3,7} [^"]{1,500} HTTP/[\d.]+" [1-3]\d\d\b|\[GIN\] .{1,60}\| [1-3]\d\d \|')
_BAR: Final = lazy_pattern(r"\d{1,3}%\|")


STATISTICS: Final = "statistics"
REQUESTS: Final = "requests"


class Repeat(NamedTuple):
    """What a line repeats with other figures. Lines of one `series` may be folded into the latest one; a bar whose
    `percent` falls is another bar."""

    series: str
    percent: int = 0


def repeat_of(text: str) -> Repeat | None:
    """The series of a line of which only the latest one matters: a progress bar, answered requests, statistics. None
    for every other line, among them requests that failed."""
    if "%|" in text and (bar := _BAR.search(text, 0, 400)):
        record = parse_line(text)
        label = record.message.partition("%")[0].rstrip("0123456789").rstrip()
        return Repeat(f"bar {record.process} {label[:60]}", int(bar[0].rstrip("%|")))
    head = text[:400]
    for word in _STATISTICS:  # plain searches: an alternation is tried at every character
        if word in head:
            return Repeat(STATISTICS)
    return Repeat(REQUESTS) if ("HTTP/" in text or "[GIN]" in head) and _REQUEST.search(text, 0, 700) else None
