"""Where a log stream goes on after its connection broke: behind the last line that was handed over."""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.services.docker_frames import STAMP_CHARS, utc_stamp
from spark_tui.services.ports import LogLine

_SECOND_NS: Final = 1_000_000_000
_OVERLAP_NS: Final = 100_000_000
"""Lines of stdout and stderr can stand in the log a little out of order: so much is read again, and told apart."""


def canonical_stamp(text: str) -> str:
    """RFC 3339 as the daemon writes it, in UTC with nine decimals. Raises UsageError for what is no such time."""
    stamp = utc_stamp(text.encode("ascii", "replace"))
    if len(stamp) != STAMP_CHARS or stamp[-1] != "Z":
        raise UsageError(f"{text!r} is no time of a log line.", "Write it as 2026-11-21T06:30:35Z.")
    return stamp


def nanoseconds(stamp: str) -> int:
    """A canonical stamp as nanoseconds since the epoch."""
    seconds = datetime.fromisoformat(stamp[:19]).replace(tzinfo=UTC).timestamp()
    return int(seconds) * _SECOND_NS + int(stamp[20:29])


def stamp_of(ns: int) -> str:
    """The reverse of `nanoseconds`."""
    seconds, rest = divmod(ns, _SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def since_query(stamp: str) -> str:
    """A canonical stamp as the API's `since`: seconds and nanoseconds, without the rounding of a float."""
    seconds, rest = divmod(nanoseconds(stamp), _SECOND_NS)
    return f"{seconds}.{rest:09d}"


class Resume:
    """Remembers the lines of the last moments, and drops them when they come again.

    `floor` is the caller's own `since`: only later lines are wanted, while the daemon sends that moment's as well.
    `tail`: the first line handed over is the oldest that is wanted.
    """

    def __init__(self, floor: str = "", *, tail: bool = False) -> None:
        self._floor = floor
        self._oldest = ""
        self._tail = tail
        self._recent: deque[list[LogLine]] = deque()
        self._again: Counter[LogLine] = Counter()
        self._check_until = _later(floor) if floor else ""

    @property
    def begun(self) -> bool:
        """Whether any line has been handed over."""
        return bool(self._recent)

    @property
    def since(self) -> str:
        """The stamp to ask the daemon for; empty for everything. The daemon's answer includes that moment."""
        if not self._recent:
            return self._floor
        return max(_earlier(self._recent[-1][-1].stamp), self._oldest)

    def reconnect(self) -> None:
        """A new connection begins at `since`: what was handed over from there on will come again."""
        if self._recent:
            since = self.since
            self._again = Counter(line for batch in self._recent for line in batch if line.stamp >= since)
            self._check_until = _later(max((line.stamp for line in self._again), default=since))

    def fresh(self, lines: list[LogLine]) -> list[LogLine]:
        """Those of these lines that have not been handed over, which they then count as."""
        if self._check_until and lines:
            passed = lines[-1].stamp > self._check_until
            lines = [line for line in lines if self._is_new(line)]
            if passed:
                self._check_until = ""
                self._again.clear()
        if lines:
            if self._tail and not self._recent:
                self._oldest = lines[0].stamp
            self._recent.append(lines)
            horizon = _earlier(_earlier(lines[-1].stamp))  # twice: the next line may be a little older than this one
            while len(self._recent) > 1 and self._recent[0][-1].stamp < horizon:
                self._recent.popleft()
        return lines

    def _is_new(self, line: LogLine) -> bool:
        if line.stamp <= self._floor:
            return False
        if self._again[line] > 0:
            self._again[line] -= 1
            return False
        return line.stamp >= self._oldest


def _earlier(stamp: str) -> str:
    return stamp_of(max(nanoseconds(stamp) - _OVERLAP_NS, 0))


def _later(stamp: str) -> str:
    return stamp_of(nanoseconds(stamp) + _OVERLAP_NS)
