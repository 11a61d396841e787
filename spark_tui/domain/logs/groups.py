"""Lines that belong together, one group each: a traceback with what raised it, a message of several lines, a bar.

A log mixes the lines of several processes: two workers that fail at once write their tracebacks into one another. A
group holds the lines of one process only, so each traceback can be read, folded and copied by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct, field

from spark_tui.domain.logs.line import LineKind, LogRecord, parse_line
from spark_tui.domain.text import lazy_pattern

MAX_LINES: Final = 2_000
"""Lines of a group; a traceback through a recursion has more."""
MAX_APART: Final = 400
"""Maximum number of other lines between two lines of a group."""
REACH: Final = MAX_LINES
MAX_TAIL: Final = 30
"""Lines without a form of their own that may follow the line that names an exception."""

_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


class GroupKind(StrEnum):
    """What holds the lines together."""

    TRACEBACK = "traceback"
    """From the record that reports it, where there is one, to the last exception of the chain."""
    MESSAGE = "message"
    """A record and its continuation lines."""
    PROGRESS = "progress"
    """A progress bar in all its states."""
    LINE = "line"


class LineGroup(Struct, frozen=True):
    """`lines` are numbers, ascending; lines of others may stand between them. `title` is the one line to show for all:
    the exception of a traceback, a bar's last state, else the first message."""

    kind: GroupKind
    process: str
    pid: int | None
    lines: tuple[int, ...]
    title: str


class _Open(Struct):
    first: LogRecord
    last: LogRecord
    lines: list[int]
    bare: bool
    carried_on: bool
    """Its last line ended in a carriage return: vLLM's way to say that the message continues."""
    kind: GroupKind = GroupKind.LINE
    title: str = ""
    raised: bool = False
    tail: int = 0
    blanks: list[int] = field(default_factory=list)
    open: bool = True

    def joined_by(self, record: LogRecord, bare: bool, number: int) -> bool:
        """Whether a line of the same process continues this group."""
        last, right_below = self.last, self.lines[-1] == number - 1
        if not bare:  # vLLM gives every line of a message the head of the first
            if record.kind is LineKind.PROGRESS:
                return self.kind is GroupKind.PROGRESS and _same_bar(last.message, record.message)
            if self.kind is GroupKind.PROGRESS or self.bare:
                return False
            if (record.level, record.time, record.source) != (last.level, last.time, last.source):
                return False
            return self.carried_on or self.kind is GroupKind.TRACEBACK or record.kind in _WITHIN
        if not self.bare:  # Python's warnings have a second line, uvicorn's errors a traceback
            if self.kind is GroupKind.PROGRESS or not right_below:
                return False
            traceback = record.kind is LineKind.TRACEBACK
            return self.first.severity >= 40 if traceback else record.kind is LineKind.CONTINUATION
        if record.kind is LineKind.BLANK or record.message.startswith(_CHAINED):
            return self.kind is GroupKind.TRACEBACK
        if self.raised:  # the rest of an exception's text, up to a blank line
            plain = record.kind in (LineKind.PLAIN, LineKind.CONTINUATION)
            return plain and not self.blanks and self.tail < MAX_TAIL
        # of a traceback frames, code and notes: all up to the line that names the exception
        return self.kind is GroupKind.TRACEBACK or (record.kind is LineKind.CONTINUATION and right_below)

    def add(self, number: int, record: LogRecord, carried_on: bool) -> None:
        self.lines += [*self.blanks, number]
        self.blanks.clear()
        self.last, self.carried_on = record, carried_on
        if record.kind is LineKind.TRACEBACK:
            self.kind, self.raised, self.tail = GroupKind.TRACEBACK, False, 0
            self.bare = self.bare or not record.level
        elif self.kind is GroupKind.PROGRESS:
            self.title = record.message
        elif record.kind is LineKind.EXCEPTION and self.kind is GroupKind.TRACEBACK:
            self.raised, self.title = True, record.message.strip()
        else:
            self.tail += self.raised
            self.kind = GroupKind.MESSAGE if self.kind is GroupKind.LINE else self.kind

    def done(self) -> list[LineGroup]:
        process, pid = self.first.process, self.first.pid
        own = LineGroup(self.kind, process, pid, tuple(self.lines), self.title or self.first.message.strip())
        return [own, *(LineGroup(GroupKind.LINE, process, pid, (blank,), "") for blank in self.blanks)]


def group_lines(lines: Iterable[str], first: int = 0) -> Iterator[LineGroup]:
    """The lines of a log in groups, in the order of their first lines; every line is in exactly one group.

    `first` is the number of the first line. Works on a stream: a group is given as soon as nothing can be added to it
    and to those before it. Never raises.
    """
    waiting: deque[_Open] = deque()
    # By process and pid, with a form of its own and without one: bare tracebacks come by another stream than the
    # records around them.
    opened: dict[tuple[str, int | None, bool], _Open] = {}
    latest: dict[tuple[str, int | None], _Open] = {}
    for number, text in enumerate(lines, first):
        record, carried_on = parse_line(text), text.endswith("\r")
        bare = not (record.level or record.source) and record.kind is not LineKind.PROGRESS
        who = (record.process, record.pid)
        for group in (opened.get((*who, bare)), latest.get(who)):
            if group is not None and group.open and group.joined_by(record, bare, number):
                if record.kind is LineKind.BLANK and bare:
                    group.blanks.append(number)
                else:
                    group.add(number, record, carried_on)
                latest[who] = group
                break
        else:
            group = _Open(record, record, [number], bare, carried_on)
            if record.kind is LineKind.TRACEBACK:
                group.kind = GroupKind.TRACEBACK
            elif record.kind is LineKind.PROGRESS:
                group.kind, group.title = GroupKind.PROGRESS, record.message
            group.raised = record.kind is LineKind.EXCEPTION
            group.open = record.kind not in (LineKind.BLANK, LineKind.ACCESS)
            waiting.append(group)
            if group.open:
                if (*who, bare) in opened:
                    opened[(*who, bare)].open = False
                opened[(*who, bare)] = latest[who] = group
        while waiting:
            group = waiting[0]
            if group.open and number - group.lines[-1] < MAX_APART and len(group.lines) < MAX_LINES:
                break
            group.open = False
            waiting.popleft()
            who = (group.first.process, group.first.pid)
            for key in ((*who, False), (*who, True)):
                if opened.get(key) is group:
                    del opened[key]
            if latest.get(who) is group:
                del latest[who]
            yield from group.done()
    for group in waiting:
        yield from group.done()


def traceback_at(number: int, lines: Sequence[str], first: int = 0) -> tuple[int, ...]:
    """The numbers of the lines of the traceback that line `number` is part of, ascending; empty where it is of none.

    `lines` are those around it, the first of them has the number `first`; `REACH` of them on each side are enough.
    """
    for group in group_lines(lines, first):
        if number in group.lines:
            return group.lines if group.kind is GroupKind.TRACEBACK else ()
        if group.lines[0] > number:
            break
    return ()


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


_WITHIN: Final = (LineKind.TRACEBACK, LineKind.CONTINUATION)
_PERCENT: Final = lazy_pattern(r"(\d{1,3})%")


def _same_bar(before: str, now: str) -> bool:
    """Whether two states are one bar's: the same words before the figure, and no step back (a drafter's shards)."""
    old, new = _PERCENT.search(before, 0, 400), _PERCENT.search(now, 0, 400)
    if old is None or new is None:
        return old is new and before[:20] == now[:20]
    return before[: old.start()].rstrip() == now[: new.start()].rstrip() and int(old[1]) <= int(new[1])
