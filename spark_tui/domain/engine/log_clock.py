"""When a line was written: by Docker's stamp, or else by the log's own time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

# vLLM's `05-21 21:02:50`, with a year, without its hyphen (torch), with slashes (Go), TensorRT-LLM's `05/21/2026-...`.
_LOG_TIME = re.compile(r"(?:\d{4}[-/])?(\d\d)[-/]?(\d\d)(?:[ T]|/\d{4}-| - )(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_SINCE_START = re.compile(r"(\d{1,5})\.(\d\d)\.(\d{3})\.(\d{3})$")
"""llama.cpp's own: minutes, seconds, milli- and microseconds since it began."""
_YEAR = 2000  # vLLM writes no year; a leap year has every date
_YEAR_SECONDS = timedelta(days=366).total_seconds()


class LogClock:
    """The first line with a time decides which clock it is; the two are never mixed."""

    def __init__(self) -> None:
        self.real: bool | None = None
        """Times are seconds since the epoch; otherwise they are good for durations only."""
        self._latest: float | None = None
        self._read: tuple[str, float | None] = ("", None)

    def read(self, stamp: str | float | None, log_time: str) -> float | None:
        """Seconds, None for a line without a time. `stamp` is RFC 3339, or already in seconds."""
        at = stamp if isinstance(stamp, (float, int)) else _from_rfc3339(stamp)
        if self.real is None and (at is not None or log_time):
            self.real = at is not None
        if not self.real:
            at = self._from_log(log_time)
        if at is not None:
            self._latest = at
        return at

    def _from_log(self, text: str) -> float | None:
        """Most lines have the second of the line before them."""
        if self._read[0] != text:
            self._read = (text, self._calculated(text))
        return self._read[1]

    def _calculated(self, text: str) -> float | None:
        match = _LOG_TIME.search(text)
        if match is None:
            since = _SINCE_START.match(text)
            return None if since is None else int(since[1]) * 60 + int(since[2]) + int(since[3] + since[4]) / 1e6
        month, day, hour, minute, second = (int(part) for part in match.groups()[:5])
        try:
            at = datetime(_YEAR, month, day, hour, minute, second) - datetime(_YEAR, 1, 1)
        except ValueError:
            return None
        seconds = at.total_seconds() + float(f"0.{match[6] or 0}")
        while self._latest is not None and self._latest - seconds > _YEAR_SECONDS / 2:
            seconds += _YEAR_SECONDS
        return seconds


def _from_rfc3339(stamp: str | None) -> float | None:
    if not stamp:
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
