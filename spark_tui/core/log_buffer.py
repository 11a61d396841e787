"""The lines of one log: bounded, and numbered from the first one ever seen.

Nobody is called per line. A reader polls `revision` at its own pace and asks for the lines that it shows. Secrets are
masked in every line that leaves the buffer; doing it on the way in would cost more than everything else in a flood.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from sys import getsizeof
from typing import TYPE_CHECKING

from spark_tui.domain.engine.secrets import mask_secrets

if TYPE_CHECKING:
    from spark_tui.services.ports import LogLine

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

    Line numbers are absolute: line `n` is the n-th that was ever added, whatever has gone since, so a position never
    shifts. All calls belong on one thread.
    """

    def __init__(self, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: list[LogLine] = []
        self._first = 0
        self._bytes = 0
        self._revision = 0
        self._state = LogState.OPEN
        self._reason = ""

    # --- reading --------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """Number of the oldest line that is still here."""
        return self._first

    @property
    def end(self) -> int:
        """One more than the number of the newest line: how many were ever added."""
        return self._first + len(self._lines)

    @property
    def revision(self) -> int:
        """Changes whenever anything does."""
        return self._revision

    @property
    def bytes(self) -> int:
        """Memory that the lines take, about."""
        return self._bytes

    @property
    def state(self) -> LogState:
        """Whether more lines can come."""
        return self._state

    @property
    def reason(self) -> str:
        """Why no more lines come; empty while it is open."""
        return self._reason

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> LogLine:
        """The line of that number; IndexError when it has gone or is yet to come."""
        index = number - self._first
        if index < 0:
            raise IndexError(f"line {number} has gone; the first one is {self._first}")
        return _masked(self._lines[index])

    def slice(self, start: int, end: int) -> list[LogLine]:
        """Lines `start` to `end` (exclusive), as far as they are here."""
        return [_masked(line) for line in self._lines[max(0, start - self._first) : max(0, end - self._first)]]

    # --- writing --------------------------------------------------------------------------------------

    def extend(self, batch: Sequence[LogLine]) -> None:
        """Adds lines at the end and lets the oldest go. A log that had ended is open again."""
        if not batch:
            return
        self._lines.extend(batch)
        self._bytes += sum(map(_size, batch))
        self._trim()
        self._state, self._reason = LogState.OPEN, ""
        self._revision += 1

    def _trim(self) -> None:
        gone = max(0, len(self._lines) - self._max_lines)
        self._bytes -= sum(map(_size, self._lines[:gone]))
        while self._bytes > self._max_bytes and gone < len(self._lines) - 1:
            self._bytes -= _size(self._lines[gone])
            gone += 1
        if gone:
            del self._lines[:gone]
            self._first += gone

    def clear(self) -> None:
        """Lets all lines go; numbers continue."""
        self._first = self.end
        self._lines.clear()
        self._bytes = 0
        self._revision += 1

    def end_of_log(self, reason: str = "") -> None:
        """No more lines come, as it should be."""
        self._finish(LogState.ENDED, reason)

    def fail(self, reason: str) -> None:
        """No more lines come because the stream broke."""
        self._finish(LogState.FAILED, reason)

    def _finish(self, state: LogState, reason: str) -> None:
        self._state, self._reason = state, reason
        self._revision += 1


def _masked(line: LogLine) -> LogLine:
    text = mask_secrets(line.text)
    return line if text is line.text else line._replace(text=text)


def _size(line: LogLine) -> int:
    return getsizeof(line.text) + _LINE_OVERHEAD
