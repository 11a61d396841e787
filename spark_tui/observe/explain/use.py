"""Search and filter over a log buffer, in bounded steps: a flood or a long log never holds up a frame.
Who judges what a log suggests."""

from __future__ import annotations

import re
import warnings
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from math import inf
from sys import getsizeof, maxsize
from typing import Protocol

from msgspec import Struct

from spark_tui.base.finding import Finding
from spark_tui.base.ports import LogLine, port_named
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line
from spark_tui.observe.explain.model.line import REQUESTS, STATISTICS, LineKind, Repeat, by_time, parse_line, repeat_of


@port_named("judge")
class Judge(Protocol):
    """Whether advice passes the check of the launch that it would make."""

    def __call__(self, image: str, model: str, argv: tuple[str, ...], env: tuple[str, ...], advice: Finding) -> Finding:
        """The advice for a vLLM with that command, or what a rule says in its place. `env` are variables,
        with their values where these are known."""


MAX_LINES = 20_000
MAX_BYTES = 16 * 1024 * 1024
_LINE_OVERHEAD = 170
"""Bytes of a line besides its text: the pair, the stamp, and the slot in the list (CPython 3.11, measured)."""


class LogState(StrEnum):
    """Whether more lines can come."""

    OPEN = "open"
    ENDED = "ended"
    FAILED = "failed"


class LogBuffer:
    """Keeps the last lines; older ones go when there are too many of them or they are too large.

    Line numbers are absolute: line `n` is the n-th ever added, also when older ones were dropped, so a position never
    shifts. All calls belong on one thread.
    """

    def __init__(self, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: list[LogLine] = []
        self.first = 0
        """Number of the oldest line that is kept."""
        self.bytes = 0
        """Memory that the lines take, about."""
        self.revision = 0
        """Changes whenever anything does."""
        self.state = LogState.OPEN
        self.reason = ""
        """Why no more lines come; empty while it is open."""

    @property
    def end(self) -> int:
        """One more than the number of the newest line: how many were ever added."""
        return self.first + len(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> LogLine:
        index = number - self.first
        if index < 0:
            raise IndexError(f"line {number} has gone; the first one is {self.first}")
        return _masked(self._lines[index])

    def unmasked(self, start: int, end: int) -> list[str]:
        """The texts of lines `start` to `end` (exclusive) as they came, for what is never shown: level, repeats."""
        return [text for _, text in self._lines[max(0, start - self.first) : max(0, end - self.first)]]

    def slice(self, start: int, end: int) -> list[LogLine]:
        """Lines `start` to `end` (exclusive), as far as they are kept."""
        return [_masked(line) for line in self._lines[max(0, start - self.first) : max(0, end - self.first)]]

    def owner(self, number: int) -> int:
        """Which of several logs the line is of, from 0."""
        return 0

    def pull(self) -> None:
        """Takes in what has come since, where lines come from elsewhere."""

    def extend(self, batch: Sequence[LogLine]) -> None:
        """Adds lines at the end and drops the oldest. A log that had ended is open again."""
        if not batch:
            return
        lines = self._lines
        lines.extend(batch)
        gone = max(0, len(lines) - self._max_lines)
        self.bytes += _size(batch) - _size(lines[:gone])
        while self.bytes > self._max_bytes and gone < len(lines) - 1:
            self.bytes -= _size(lines[gone : gone + 1])
            gone += 1
        if gone:
            del lines[:gone]
            self.first += gone
        self._set_state(LogState.OPEN, "")

    def end_of_log(self, reason: str = "") -> None:
        """No more lines come, as it should be."""
        self._set_state(LogState.ENDED, reason)

    def fail(self, reason: str) -> None:
        self._set_state(LogState.FAILED, reason)

    def _set_state(self, state: LogState, reason: str) -> None:
        self.state, self.reason = state, reason
        self.revision += 1


LATE_SECONDS = 2.0
"""A line that comes so much later than its time has the logs put together again: one was still being read."""


class MergedLog(LogBuffer):
    """Several logs by time, with the same bounds; `pull` keeps it up. `logs` are a name, the log and its first line
    that is wanted."""

    def __init__(self, logs: Sequence[tuple[str, LogBuffer, int]]) -> None:
        super().__init__()
        self.logs = tuple(logs)
        self.names = tuple(name for name, _, _ in logs)
        self._begin()
        self.pull()

    def _begin(self) -> None:
        self.first, self.bytes = self.end, 0
        self._lines.clear()
        self._next = [first for _, _, first in self.logs]
        self._owners: list[int] = []
        self._places = tuple(deque[tuple[int, int]](maxlen=self._max_lines) for _ in self.logs)
        self._latest = [""] * len(self.logs)

    def owner(self, number: int) -> int:
        return self._owners[number - self.first]

    def place(self, log: int, number: int) -> int | None:
        """Where line `number` of a log is; None for one that has gone or has not come."""
        places = self._places[log]
        at = bisect_left(places, (number, 0))
        found = at < len(places) and places[at][0] == number and places[at][1] >= self.first
        return places[at][1] if found else None

    def pull(self) -> None:
        begins = [max(at, log.first) for at, (_, log, _) in zip(self._next, self.logs, strict=True)]
        batches = [log._lines[at - log.first :] for at, (_, log, _) in zip(begins, self.logs, strict=True)]
        if order := by_time(batches):
            log, at = order[0]
            first, newest = batches[log][at].stamp, max(self._latest)
            if newest and first > self._latest[log] and _seconds(newest) - _seconds(first) > LATE_SECONDS:
                self._begin()
                self.pull()
                return
            for number, (log, at) in enumerate(order, self.end):
                self._places[log].append((begins[log] + at, number))
            self._next = [log.end for _, log, _ in self.logs]
            self._latest = [batch[-1].stamp if batch else old for batch, old in zip(batches, self._latest, strict=True)]
            self._owners += [log for log, _ in order]
            self.extend([batches[log][at] for log, at in order])
            del self._owners[: -len(self._lines)]
        if self.state is LogState.OPEN and all(log.state is not LogState.OPEN for _, log, _ in self.logs):
            self.end_of_log("the engines have ended")


def _seconds(stamp: str) -> float:
    """Since the epoch; infinity for what is no stamp."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return inf


def _masked(line: LogLine) -> LogLine:
    text = mask_secrets(line.text)
    return line if text is line.text else line._replace(text=text)


def _size(lines: Sequence[LogLine]) -> int:
    return sum([getsizeof(text) for _, text in lines]) + _LINE_OVERHEAD * len(lines)


MAX_PATTERN = 200
REGEX_LIMITS = (5_000, 1_000, 300)
"""Characters of a line that a regular expression sees, by how many repeats it has: its cost is a power of them."""

STEP_COST = 250_000
"""Work of one step, in characters: 5 to 8 ms on a slow core."""

_LINE_COST = 150
_PARSE_COST = 400


class BadPattern(ValueError):
    """The search text is no regular expression that can be used; the message is for the person."""


class Query(Struct, frozen=True, dict=True):
    """What is looked for: text as it stands (small letters match both cases), or a regular expression."""

    text: str
    regex: bool = False

    def __post_init__(self) -> None:
        _ = self.limit, self.pattern  # a bad one is refused here

    @cached_property
    def limit(self) -> int:
        """Characters of a line that are looked at."""
        return check_regex(self.text) if self.regex else maxsize

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        source = self.text if self.regex else re.escape(self.text)
        flags = re.IGNORECASE if self.text == self.text.lower() else 0
        try:
            with warnings.catch_warnings():  # of syntax that Python may change one day
                warnings.simplefilter("ignore", FutureWarning)
                return re.compile(source, flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise BadPattern(f"Not a regular expression: {error}.") from error

    def found_in(self, line: str) -> bool:
        if self.regex:
            return self.pattern.search(line, 0, self.limit) is not None
        if self.pattern.flags & re.IGNORECASE:
            return self.text in line.lower()
        return self.text in line

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in a shown text it matches; empty matches do not count."""
        return [match.span() for match in self.pattern.finditer(text, 0, self.limit) if match.end() > match.start()]


# Quantifiers and groups of a pattern whose escapes and classes have been replaced by single characters.
_TOKENS = re.compile(r"\(\?[a-zA-Z]*[:=!<>]*|\(|\)(?P<repeat>[*+{])?|(?P<loop>[*+]|\{\d*,\d*\})[?+]?|[?|]")
MAX_LOOPS = len(REGEX_LIMITS) - 1
MAX_CHOICES = 8


def check_regex(text: str) -> int:
    """How many characters of a line a pattern may look at; raises BadPattern when its cost can explode all the
    same, because Python's engine backtracks and cannot be stopped.

    Refused: longer than 200 characters, back-references, a repeat around something that repeats or branches, more
    than two repeats of no fixed length, more than eight optional parts and branches.
    """
    if len(text) > MAX_PATTERN:
        raise BadPattern(f"The pattern is too long: {len(text)} characters, at most {MAX_PATTERN}.")
    if re.search(r"\\[1-9]|\(\?P=|\(\?\(", text):
        raise BadPattern("Back-references are not supported: they can take forever.")
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "a", re.sub(r"\\.", "a", text))
    loops = choices = 0
    stack = [False]
    for match in _TOKENS.finditer(plain):
        token = match.group()
        if token.startswith("("):
            stack.append(False)
        elif token.startswith(")"):
            inner = stack.pop() if len(stack) > 1 else False
            if inner and match["repeat"]:
                raise BadPattern("A repeat around something that repeats or branches can take forever.")
            loops += bool(match["repeat"])
            stack[-1] = stack[-1] or inner or bool(match["repeat"])
        else:
            loops += bool(match["loop"])
            choices += not match["loop"]
            stack[-1] = True
    if loops > MAX_LOOPS:
        raise BadPattern(f"Too many repeats (* + {{m,n}}): at most {MAX_LOOPS}.")
    if choices > MAX_CHOICES:
        raise BadPattern(f"Too many optional parts and branches (? |): at most {MAX_CHOICES}.")
    return REGEX_LIMITS[min(MAX_LOOPS, loops + (choices > MAX_CHOICES // 2))]


class LineFilter(Struct, frozen=True):
    """Which lines are shown. `level` is a severity (30 WARNING, 40 ERROR; 0 all of them), `first` the number of the
    first line; all conditions must hold. `fold` shows the latest of lines that repeat each other only; not with a
    query, which looks at every line."""

    level: int = 0
    query: Query | None = None
    first: int = 0
    fold: bool = False

    @property
    def off(self) -> bool:
        return not (self.level or self.query or self.first or self.fold)


class MatchIndex:
    """Numbers of the lines that a filter lets through, kept up with the buffer step by step.

    A line without a level of its own (a traceback, code below it) is taken with the line before.
    """

    def __init__(self, buffer: LogBuffer, wanted: LineFilter) -> None:
        self.buffer = buffer
        self.wanted = wanted
        self._numbers: list[int] = []
        self._next = max(buffer.first, wanted.first)
        self._severity: dict[int, int] = {}
        self._fold = wanted.fold and wanted.query is None
        self._tail: list[tuple[int, Repeat, int]] = []
        self.folded: dict[int, int] = {}
        """How many lines are folded into a line that is shown."""
        self.hold = -1
        """Lines up to this one are on screen, and stay where they are."""

    @property
    def complete(self) -> bool:
        return self._next >= self.buffer.end

    @property
    def numbers(self) -> list[int]:
        """Absolute numbers in order, without lines that the buffer dropped. Not to be changed."""
        first = self.buffer.first
        if self._numbers and self._numbers[0] < first:
            del self._numbers[: bisect_left(self._numbers, first)]
            self.folded = {number: count for number, count in self.folded.items() if number >= first}
        return self._numbers

    def step(self, cost: int = STEP_COST) -> bool:
        """Searches some more lines; True when none is left."""
        buffer, wanted, number = self.buffer, self.wanted, max(self._next, self.buffer.first)
        fixed = _PARSE_COST if wanted.level else _LINE_COST
        for text in buffer.unmasked(number, number + cost // fixed + 1):
            if cost <= 0:
                break
            loud = not wanted.level or self._severity_of(text, buffer.owner(number)) >= wanted.level
            if loud and (wanted.query is None or wanted.query.found_in(clean_line(mask_secrets(text)))):
                if self._fold:
                    self._fold_in(number, text)
                else:
                    self._numbers.append(number)
            number += 1
            cost -= len(text) + fixed
        self._next = number
        return self.complete

    def _fold_in(self, number: int, text: str) -> None:
        """Shows a line in place of the one that it repeats, as far as only repeating lines stand between them.

        Statistics say more than the requests around them: those are folded into them.
        """
        repeat, owner = repeat_of(text), self.buffer.owner(number)
        if repeat is None:
            self._tail = [each for each in self._tail if each[2] != owner] if self._tail else []
            self._numbers.append(number)
            return
        serving = (STATISTICS, REQUESTS)
        for at in reversed(range(len(self._tail))):
            shown, before, of = self._tail[at]
            both = repeat.series in serving and before.series in serving
            if of != owner or (not both and repeat.series != before.series):
                continue
            if repeat.percent < before.percent or shown <= self.hold:
                break  # another bar, or a line on screen
            if before.series == STATISTICS and repeat.series == REQUESTS:
                self.folded[shown] = self.folded.get(shown, 0) + 1
                return
            del self._tail[at]
            index = bisect_left(self._numbers, shown)
            del self._numbers[index : index + 1]
            self.folded[number] = self.folded.pop(shown, 0) + 1
            break
        self._tail = [*self._tail[-(MAX_FOLDING - 1) :], (number, repeat, owner)]
        self._numbers.append(number)

    def _severity_of(self, text: str, owner: int) -> int:
        record = parse_line(text)
        if record.severity:
            self._severity[owner] = record.severity
        elif record.kind not in (LineKind.CONTINUATION, LineKind.TRACEBACK, LineKind.EXCEPTION, LineKind.BLANK):
            self._severity[owner] = 20
        return self._severity.get(owner, 0)


MAX_FOLDING = 8
"""Bars and series that may alternate: the ranks of an engine load their shards at once."""
_FOUND_BY = 120
"""Characters of a line that are enough to find it again."""


def last_line_with(buffer: LogBuffer, text: str, first: int = 0) -> int | None:
    """Number of the last line from `first` on that holds `text`, as a person could read it; None when it has gone."""
    wanted = text[:_FOUND_BY].strip()
    if not wanted:
        return None
    for number in range(buffer.end - 1, max(buffer.first, first) - 1, -1):
        line = buffer.line(number).text
        if wanted in line or ("\x1b" in line and wanted in clean_line(line)):
            return number
    return None


def first_line_at(buffer: LogBuffer, at: float, first: int = 0) -> int | None:
    """Number of the first line from `first` on whose stamp is at or after `at`, in seconds since the epoch; None where
    there is none, and for a log without stamps."""

    def stamp(number: int) -> float:
        return _seconds(buffer.line(number).stamp)

    number = bisect_left(range(buffer.end), at, max(buffer.first, first), key=stamp)
    return number if number < buffer.end and stamp(number) != inf else None


def nearest_line(buffer: LogBuffer, at: float) -> int | None:
    """Number of the line whose stamp is nearest to `at`, in seconds since the epoch; None for a log without stamps."""
    after = first_line_at(buffer, at)
    around = [number for number in ((buffer.end if after is None else after) - 1, after) if number is not None]
    gaps = {abs(_seconds(buffer.line(each).stamp) - at): each for each in around if each >= buffer.first}
    return gaps[min(gaps)] if gaps and min(gaps) != inf else None
