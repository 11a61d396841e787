"""Server-sent events: bytes cut anywhere -> the `data` of each event.

WHATWG HTML, section 9.2: lines end in CR, LF or CRLF; an event ends at a blank line; a line that begins with a colon
is a comment. Only `data` matters to the chat API.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """An event that no server of ours would send: reading on would only fill the memory."""


class SseDecoder:
    """Feed it chunks as they come; what it yields does not depend on where they were cut."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._rest = bytearray()
        self._searched = 0
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of every event that `chunk` completes. Raises EventTooLong."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        self._rest += chunk
        for line in self._lines():
            event = self._line(line)
            if event is not None:
                yield event
        if len(self._rest) + self._size > self._max:
            raise EventTooLong(f"an event of more than {self._max} bytes")

    def _lines(self) -> Iterator[bytes]:
        start = 0
        while True:
            at = _line_end(self._rest, max(start, self._searched))
            if at < 0:
                break
            line = bytes(self._rest[start:at])
            end = at + 1
            if self._rest[at] == 13:
                if end == len(self._rest):
                    self._after_cr = True  # its newline may come with the next chunk
                elif self._rest[end] == 10:
                    end += 1
            start = self._searched = end
            yield line
        del self._rest[:start]
        self._searched = len(self._rest)

    def _line(self, line: bytes) -> str | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_of_event()
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._size += len(value)
        return None

    def _end_of_event(self) -> str | None:
        if not self._data:
            return None
        data = b"\n".join(self._data).decode("utf-8", "replace")
        self._data, self._size = [], 0
        return data


def _line_end(text: bytearray, start: int) -> int:
    newline, carriage = text.find(b"\n", start), text.find(b"\r", start)
    if newline < 0 or carriage < 0:
        return max(newline, carriage)
    return min(newline, carriage)
