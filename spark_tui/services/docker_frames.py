"""The bytes of `GET /containers/ID/logs?timestamps=1` as lines.

Without a terminal, stdout and stderr come as frames: one byte for the stream, three of zero, four of length, then
`2026-11-21T06:30:35.434044596Z text\\n`. With one there is a single bare stream of such lines, ended by `\\r\\n`.
The daemon stores a line in parts of 16 KiB, each with the stamp of the first (seen on Engine 20.10 and 24.0,
docker/cli#4941): parts are joined here, and their repeated stamps removed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from struct import Struct
from typing import Final, Protocol

from spark_tui.services.ports import MAX_LINE_CHARS, LogLine

STAMP_CHARS: Final = 30
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d) ")
_HEADER: Final = Struct(">BxxxL")
_PART: Final = 16 * 1024
_SYSTEM_ERROR: Final = 3
_NEWLINE, _Z = b"\nZ"
_STAMP_ROOM: Final = 40
"""Longer than any stamp."""
_KEPT_BYTES: Final = 4 * MAX_LINE_CHARS
"""A character takes at most four bytes in UTF-8: more of a line is counted, not kept."""


class Damaged(Exception):
    """The stream is not what the daemon sends: it has to be read anew."""


class DaemonSaid(Exception):
    """The daemon reports in the middle of the stream that it cannot go on."""


class Decoder(Protocol):
    """Takes bytes as they come, cut anywhere, and gives the lines that are complete."""

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that these bytes complete. Raises Damaged or DaemonSaid."""

    def finish(self) -> list[LogLine]:
        """What stands at the end without a newline."""


class _Pending:
    """A line that has begun: its stamp, as much of it as will be shown, and how long it is by now."""

    __slots__ = ("kept", "length", "parts", "raw_stamp")

    def __init__(self, raw_stamp: bytes, first: bytes) -> None:
        self.raw_stamp = raw_stamp
        self.parts: list[bytes] = []
        self.kept = self.length = 0
        self.add(first)

    def add(self, part: bytes) -> None:
        self.length += len(part)
        if self.kept < _KEPT_BYTES:
            part = part[: _KEPT_BYTES - self.kept]
            self.parts.append(part)
            self.kept += len(part)

    def line(self) -> LogLine:
        return LogLine(utc_stamp(self.raw_stamp), cut(b"".join(self.parts), self.length))


def cut(kept: bytes, length: int) -> str:
    """At most MAX_LINE_CHARS characters, the last of them saying how long the line is when something is missing."""
    text = kept.decode("utf-8", "replace")
    if len(kept) == length and len(text) <= MAX_LINE_CHARS:
        return text
    mark = f" … [cut: {length:,} bytes]"
    return text[: MAX_LINE_CHARS - len(mark)] + mark


def utc_stamp(raw: bytes) -> str:
    """RFC 3339 in UTC with nine decimals: texts compare as times do. Some log drivers give the daemon's local time."""
    text = raw.decode("ascii", "replace")
    if len(text) == STAMP_CHARS and text[-1] == "Z":
        return text
    match = _STAMP.match(raw + b" ")
    if match is None:
        return text
    seconds, fraction, zone = (group.decode() if group else "" for group in match.groups())
    moment = datetime.fromisoformat(seconds + zone).astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction[1:]:0<9}Z"


class FrameDecoder:
    """For containers without a terminal."""

    def __init__(self) -> None:
        self._rest = b""
        self._pending: dict[int, _Pending] = {}

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that end within these bytes. Raises Damaged, and DaemonSaid for an error of the daemon's."""
        if self._rest:
            data = self._rest + data
        lines: list[LogLine] = []
        append, unpack, pending = lines.append, _HEADER.unpack_from, self._pending
        at, size = 0, len(data)
        while at + 8 <= size:
            stream, length = unpack(data, at)
            end = at + 8 + length
            if end > size:
                if length > 2 * _PART:
                    raise Damaged(f"a frame of {length} bytes")
                break
            # What nearly every frame is: one whole line, with a stamp in UTC.
            if data[end - 1] == _NEWLINE and length > STAMP_CHARS and data[at + 37] == _Z and stream not in pending:
                text = data[at + 39 : end - 1].decode("utf-8", "replace")
                if "\n" not in text and stream < _SYSTEM_ERROR:
                    append(LogLine(data[at + 8 : at + 38].decode("ascii", "replace"), text))
                    at = end
                    continue
            self._frame(stream, data[at + 8 : end], lines)
            at = end
        self._rest = data[at:]
        return lines

    def finish(self) -> list[LogLine]:
        """The lines that have no end when the stream has one."""
        lines = [pending.line() for pending in self._pending.values()]
        self._pending.clear()
        return lines

    def _frame(self, stream: int, payload: bytes, lines: list[LogLine]) -> None:
        """A frame that is not exactly one line."""
        if stream == _SYSTEM_ERROR:
            raise DaemonSaid(payload.decode("utf-8", "replace").strip())
        if stream > _SYSTEM_ERROR:
            raise Damaged(f"a frame of stream {stream}")
        begun = self._pending.pop(stream, None)
        stamp = _STAMP.match(payload)
        if stamp is None and begun is None:
            raise Damaged("a line without a stamp")
        raw = stamp.group()[:-1] if stamp else b""
        if begun is not None and raw not in (b"", begun.raw_stamp):
            lines.append(begun.line())  # the process that wrote it ended without a newline
            begun = None
        raw = begun.raw_stamp if begun else raw
        *whole, last = payload[stamp.end() if stamp else 0 :].split(b"\n")
        for part in whole:
            lines.append(_extended(begun, raw, part).line())
            begun = None
        if last or not whole:
            self._pending[stream] = _extended(begun, raw, last)


def _extended(begun: _Pending | None, raw_stamp: bytes, part: bytes) -> _Pending:
    if begun is None:
        return _Pending(raw_stamp, part)
    begun.add(part)
    return begun


class TerminalDecoder:
    """For containers with a terminal: one bare stream, in which a newline separates lines.

    Parts are no frames here, and not quite of one size either (Docker's JSON log replaces bad bytes by longer ones):
    they are told by the line's own stamp, to the nanosecond, in the middle of it.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._line: _Pending | None = None

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that end within these bytes. Raises Damaged."""
        data = self._rest + data
        lines: list[LogLine] = []
        at = 0
        while True:
            if self._line is None:
                stamp = _STAMP.match(data, at)
                if stamp is None:
                    if len(data) - at > _STAMP_ROOM or b"\n" in data[at:]:
                        raise Damaged("a line without a stamp")
                    break
                self._line = _Pending(stamp.group()[:-1], b"")
                at = stamp.end()
            end = data.find(b"\n", at)
            if end < 0:
                data, at = self._without_stamps(self._line, data[at:]), 0
                self._line.add(data[:-_STAMP_ROOM])  # the rest may hold the beginning of a stamp
                data = data[-_STAMP_ROOM:]
                break
            lines.append(self._finished(self._line, data[at:end]))
            at = end + 1
        self._rest = data[at:]
        return lines

    def finish(self) -> list[LogLine]:
        """The line that has no end when the stream has one."""
        return [] if self._line is None else [self._finished(self._line, self._rest)]

    def _finished(self, line: _Pending, last: bytes) -> LogLine:
        line.add(self._without_stamps(line, last))
        self._line = None
        stamp, text = line.line()
        return LogLine(stamp, text.removesuffix("\r"))

    @staticmethod
    def _without_stamps(line: _Pending, text: bytes) -> bytes:
        return text.replace(line.raw_stamp + b" ", b"")
