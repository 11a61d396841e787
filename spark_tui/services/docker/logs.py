"""The bytes of `GET /containers/ID/logs?timestamps=1` as lines."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from struct import Struct
from typing import Final, Protocol

from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.errors import ContainerNotFound, DockerError, StreamBroken, UnreachableError, UsageError
from spark_tui.services.docker.calls import inspect
from spark_tui.services.docker.connection import Aborted, ByteStream, DockerHttp, Refused, segment
from spark_tui.services.docker.errors import TRANSPORT_ERRORS, Asked, broken, translate
from spark_tui.services.executors import Handover
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


AWAY_SECONDS: Final = 60.0
"""So long may the daemon be away before the stream is given up; a restart takes it a few seconds."""

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
_LINE_OVERHEAD: Final = 200
"""Bytes that a line takes in memory beside its text, about."""

# The daemon writes every line to the socket by itself. Reading at once would wake this thread for each; a short
# pause lets lines gather. A unix socket holds some 200 such writes, so in a flood the pause has to shrink.
_LONGEST_PAUSE, _SHORTEST_PAUSE = 0.01, 0.0003
_NEARLY_FULL, _NEARLY_EMPTY = 16 * 1024, 8 * 1024


@dataclass(slots=True)
class _Pass:
    """What one connection brought: whether there was anything new, and the error that it ended with."""

    new: bool = False
    error: Exception | None = None


class LogReader:
    """Producer of one container's lines."""

    def __init__(
        self,
        http: DockerHttp,
        container: str,
        *,
        tail: int | None = None,
        follow: bool = True,
        since: str = "",
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        self._http = http
        self._container = container
        self._tail = tail
        self._follow = follow
        self._away_seconds = away_seconds
        self._resume = Resume(canonical_stamp(since) if since else "", tail=tail is not None)
        self._cancelled = threading.Event()
        self._stream: ByteStream | None = None
        self._passes = 0
        self._asked = Asked(f"read the log of {container}", container=container)

    def cancel(self) -> None:
        """Ends `run` at once."""
        self._cancelled.set()
        stream = self._stream
        if stream is not None:
            stream.abort()

    def run(self, handover: Handover[LogLine]) -> None:
        """Reads until the container has ended, or without `follow` to the end of what is there now.

        Raises ContainerNotFound, DaemonNotRunning ... when it cannot begin, and StreamBroken when the daemon stays
        away for longer than a restart takes.
        """
        facts = inspect(self._http, self._container)
        fruitless, good = 0, time.monotonic()
        while not self._cancelled.is_set():
            decoder: Decoder = TerminalDecoder() if facts.tty else FrameDecoder()
            outcome = self._read(facts, decoder, handover)
            alive = self._follow and facts.running
            now = self._after(facts, outcome)
            if now is None or (outcome.error is None and not alive):
                self._hand_over(decoder.finish(), 0, handover)
                return
            # Alive as this pass began, or cut off: there may be more. What it said last as it ended, what it says
            # since it was started again, what was written while the daemon was away.
            if outcome.new or outcome.error is None:
                good = time.monotonic()
            elif time.monotonic() - good > self._away_seconds:
                raise self._given_up(outcome.error)
            fruitless = 0 if outcome.new else fruitless + 1
            if now.running or outcome.error is not None:
                self._cancelled.wait(min(_FIRST_WAIT * 2 ** min(fruitless, 10), _LONGEST_WAIT))
            facts = now

    def _given_up(self, cause: Exception) -> StreamBroken:
        found = translate(cause, self._http.host, self._asked)
        return broken(f"The log of {self._container}", self._away_seconds, found)

    # --- one connection -------------------------------------------------------------------------------

    def _read(self, facts: ContainerFacts, decoder: Decoder, handover: Handover[LogLine]) -> _Pass:
        """Hands over lines until the connection ends."""
        outcome = _Pass()
        self._passes += 1
        stream = self._stream = self._http.stream("GET", f"/containers/{segment(facts.id)}/logs", self._query(facts))
        self._resume.reconnect()
        try:
            if not self._cancelled.is_set():
                stream.open()
                self._pump(stream, decoder, handover, outcome)
        except Refused as error:
            if self._passes == 1 or error.status not in (404, 409):  # else it is removed: its log has ended
                raise translate(error, self._http.host, self._asked) from error
        except DaemonSaid as error:
            raise DockerError(
                f"Docker cannot read the log of {self._container}.",
                "Its log file is damaged: it ends with a container made anew.",
                detail=str(error),
            ) from error
        except (*TRANSPORT_ERRORS, Aborted, Damaged) as error:
            outcome.error = error
        finally:
            stream.close()
        return outcome

    def _pump(self, stream: ByteStream, decoder: Decoder, handover: Handover[LogLine], outcome: _Pass) -> None:
        pause = _LONGEST_PAUSE
        while data := stream.read():
            size = len(data)
            if self._hand_over(decoder.feed(data), size, handover):
                outcome.new = True
            if size >= _NEARLY_FULL:
                pause = max(pause / 2, _SHORTEST_PAUSE)
                continue
            time.sleep(pause)
            if size < _NEARLY_EMPTY:
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _hand_over(self, lines: list[LogLine], size: int, handover: Handover[LogLine]) -> bool:
        fresh = self._resume.fresh(lines)
        if fresh:
            handover.put(fresh, size + _LINE_OVERHEAD * len(fresh))
        return bool(fresh)

    def _query(self, facts: ContainerFacts) -> dict[str, str | int]:
        query: dict[str, str | int] = {"stdout": 1, "stderr": 1, "timestamps": 1}
        if self._follow and facts.running:
            query["follow"] = 1
        if self._resume.since:
            query["since"] = since_query(self._resume.since)
        if self._tail is not None and not self._resume.begun:
            query["tail"] = self._tail
        return query

    # --- between connections --------------------------------------------------------------------------

    def _after(self, facts: ContainerFacts, outcome: _Pass) -> ContainerFacts | None:
        """The container as it is now, once the daemon is there; None when it is gone. Raises StreamBroken.

        By its id: another one may have been made under its name.
        """
        deadline = time.monotonic() + self._away_seconds
        wait = _FIRST_WAIT
        while not self._cancelled.is_set():
            try:
                return inspect(self._http, facts.id)
            except ContainerNotFound:
                return None
            except UnreachableError as error:
                outcome.error = outcome.error or error
                if time.monotonic() > deadline:
                    raise self._given_up(error) from error
            self._cancelled.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        return None
