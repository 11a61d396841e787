"""Lines that belong together, one group each: a traceback with what raised it, a message of several lines, a bar.

A log mixes the lines of several processes: two workers that fail at once write their tracebacks into one another. A
group holds the lines of one process only, so each traceback can be read, folded and copied by itself.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from spark_tui.domain.logs.line import LineKind, LogRecord, parse_line

MAX_LINES: Final = 2_000
"""Lines of a group; a traceback through a recursion has more."""
MAX_APART: Final = 400
"""So many lines of others may stand between two lines of a group."""
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


@dataclass(frozen=True, slots=True)
class LineGroup:
    """`lines` are numbers, ascending; lines of others may stand between them. `title` is the one line to show for all:
    the exception of a traceback, a bar's last state, else the first message."""

    kind: GroupKind
    process: str
    pid: int | None
    lines: tuple[int, ...]
    title: str


@dataclass(slots=True)
class _Open:
    first: LogRecord
    last: LogRecord
    lines: list[int]
    bare: bool
    kind: GroupKind = GroupKind.LINE
    title: str = ""
    raised: bool = False
    tail: int = 0
    carried_on: bool = False
    """Its last line ended in a carriage return: vLLM's way to say that the message goes on."""
    blanks: list[int] = field(default_factory=list)
    open: bool = True

    def add(self, number: int, record: LogRecord, goes_on: bool) -> None:
        self.lines += [*self.blanks, number]
        self.blanks.clear()
        self.last, self.carried_on = record, goes_on

    def done(self) -> list[LineGroup]:
        process, pid = self.first.process, self.first.pid
        own = LineGroup(self.kind, process, pid, tuple(self.lines), self.title or self.first.message.strip())
        return [own, *(LineGroup(GroupKind.LINE, process, pid, (blank,), "") for blank in self.blanks)]


def group_lines(lines: Iterable[str], first: int = 0) -> Iterator[LineGroup]:
    """The lines of a log in groups, in the order of their first lines; every line is in exactly one group.

    `first` is the number of the first line. Works on a stream: a group is given as soon as nothing can be added to it
    and to those before it. Never raises.
    """
    grouper = _Grouper()
    for number, text in enumerate(lines, first):
        grouper.feed(number, text)
        yield from grouper.ready(number)
    yield from grouper.rest()


def traceback_at(number: int, lines: Sequence[str], first: int = 0) -> tuple[int, ...]:
    """The numbers of the lines of the traceback that line `number` is part of, ascending; empty where it is of none.

    `lines` are those around it, the first of them has the number `first`; `REACH` of them on each side are enough.
    """
    for group in group_lines(lines, first):
        if number in group.lines:
            return group.lines if group.kind is GroupKind.TRACEBACK else ()
        if group.lines[0] > number:
            return ()
    return ()


class _Grouper:
    def __init__(self) -> None:
        self._waiting: deque[_Open] = deque()
        # By process and pid, with a form of its own and without one: bare tracebacks come by another stream than the
        # records between which they stand.
        self._open: dict[tuple[str, int | None, bool], _Open] = {}
        self._latest: dict[tuple[str, int | None], _Open] = {}

    def feed(self, number: int, text: str) -> None:
        record = parse_line(text)
        bare = not (record.level or record.source) and record.kind is not LineKind.PROGRESS
        goes_on = text.endswith("\r")
        who = (record.process, record.pid)
        for group in (self._open.get((*who, bare)), self._latest.get(who)):
            if group is not None and group.open and _joins(group, record, bare, number):
                if record.kind is LineKind.BLANK and bare:
                    group.blanks.append(number)
                else:
                    _grow(group, number, record, goes_on)
                self._latest[who] = group
                return
        self._begin(number, record, bare, goes_on)

    def _begin(self, number: int, record: LogRecord, bare: bool, goes_on: bool) -> None:
        who = (record.process, record.pid)
        group = _Open(record, record, [number], bare, carried_on=goes_on)
        if record.kind is LineKind.TRACEBACK:
            group.kind = GroupKind.TRACEBACK
        elif record.kind is LineKind.PROGRESS:
            group.kind, group.title = GroupKind.PROGRESS, record.message
        elif record.kind is LineKind.EXCEPTION:
            group.raised = True
        elif record.kind in (LineKind.BLANK, LineKind.ACCESS):
            group.open = False
        self._waiting.append(group)
        if group.open:
            before = self._open.get((*who, bare))
            if before is not None:
                before.open = False
            self._open[(*who, bare)] = self._latest[who] = group

    def ready(self, number: int) -> Iterator[LineGroup]:
        while self._waiting:
            group = self._waiting[0]
            if group.open and number - group.lines[-1] < MAX_APART and len(group.lines) < MAX_LINES:
                return
            group.open = False
            self._waiting.popleft()
            self._forget(group)
            yield from group.done()

    def rest(self) -> Iterator[LineGroup]:
        while self._waiting:
            yield from self._waiting.popleft().done()

    def _forget(self, group: _Open) -> None:
        """A given group takes no more lines; who wrote it may never write again."""
        who = (group.first.process, group.first.pid)
        for bare in (False, True):
            if self._open.get((*who, bare)) is group:
                del self._open[(*who, bare)]
        if self._latest.get(who) is group:
            del self._latest[who]


def _joins(group: _Open, record: LogRecord, bare: bool, number: int) -> bool:
    """Whether a line of the same process goes on with a group."""
    if group.bare != bare or not bare:
        return _same_record(group, record) if not bare else _below_record(group, record, number)
    if record.kind is LineKind.BLANK:
        return group.kind is GroupKind.TRACEBACK
    if record.message.startswith(_CHAINED):
        return group.kind is GroupKind.TRACEBACK
    if group.raised:
        return _tail(group, record)
    if group.kind is GroupKind.TRACEBACK:
        return True  # frames, code, notes: all up to the line that names the exception
    return record.kind is LineKind.CONTINUATION and group.lines[-1] == number - 1


def _same_record(group: _Open, record: LogRecord) -> bool:
    """A line with its form repeated: vLLM gives every line of a message the head of the first."""
    last = group.last
    if record.kind is LineKind.PROGRESS:
        return group.kind is GroupKind.PROGRESS and _goes_on(last.message, record.message)
    if group.kind is GroupKind.PROGRESS or group.bare:
        return False
    if (record.level, record.time, record.source) != (last.level, last.time, last.source):
        return False
    return group.carried_on or group.kind is GroupKind.TRACEBACK or record.kind in _WITHIN


_WITHIN = (LineKind.TRACEBACK, LineKind.CONTINUATION)


def _below_record(group: _Open, record: LogRecord, number: int) -> bool:
    """A bare line right below a record: Python's warnings have a second line, uvicorn's errors a traceback."""
    if group.kind is GroupKind.PROGRESS or group.lines[-1] != number - 1:
        return False
    if record.kind is LineKind.TRACEBACK:
        return group.first.severity >= 40
    return record.kind is LineKind.CONTINUATION


def _tail(group: _Open, record: LogRecord) -> bool:
    """Below an exception: the rest of its text, up to a blank line."""
    if group.blanks or group.tail >= MAX_TAIL:
        return False
    return record.kind in (LineKind.PLAIN, LineKind.CONTINUATION)


def _grow(group: _Open, number: int, record: LogRecord, goes_on: bool) -> None:
    group.add(number, record, goes_on)
    if record.kind is LineKind.TRACEBACK:
        group.kind, group.raised, group.tail = GroupKind.TRACEBACK, False, 0
        group.bare = group.bare or not record.level
    elif group.kind is GroupKind.PROGRESS:
        group.title = record.message
    elif record.kind is LineKind.EXCEPTION and group.kind is GroupKind.TRACEBACK:
        group.raised, group.title = True, record.message.strip()
    else:
        group.tail += group.raised
        group.kind = GroupKind.MESSAGE if group.kind is GroupKind.LINE else group.kind


_PERCENT = re.compile(r"(\d{1,3})%")


def _goes_on(before: str, now: str) -> bool:
    """Whether two states are one bar's: the same words before the figure, and no step back (a drafter's shards)."""
    old, new = _PERCENT.search(before, 0, 400), _PERCENT.search(now, 0, 400)
    if old is None or new is None:
        return old is new and before[:20] == now[:20]
    return before[: old.start()].rstrip() == now[: new.start()].rstrip() and int(old[1]) <= int(new[1])
