"""Server-sent events: bytes cut anywhere -> the `data` of each event.

WHATWG HTML, section 9.2: lines end in CR, LF or CRLF; an event ends at a blank line; a line that begins with a colon
is a comment. Only `data` matters to the chat API; llama.cpp before September 2025 wrote its failures as a field of
its own, `error: {json}`, which is read as `data: {"error": {json}}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_tui.base.quantities import human_bytes

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = (b"\n", b"\r")


class EventTooLong(ValueError):
    """An event that no server of ours would send: reading on would only fill the memory."""


class SseDecoder:
    """Feed it chunks as they come; what it yields does not depend on where they were cut."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of every event that `chunk` completes; to be read to its end. Raises EventTooLong."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF
            self._after_cr = False
        for piece in chunk.splitlines(keepends=True):
            ended = piece.endswith(_LINE_ENDS)
            piece = piece.rstrip(b"\r\n") if ended else piece  # noqa: PLW2901
            if len(self._line) + len(piece) > self._max:
                raise self._too_long()
            self._line += piece
            if ended and (event := self._end_of_line()) is not None:
                yield event
        if chunk:
            self._after_cr = chunk.endswith(b"\r")

    def _end_of_line(self) -> str | None:
        """The event that the line ends, or None."""
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line and self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            self._data, self._data_size = [], 0
            return data
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._keep(value)
        elif name == b"error":
            self._keep(b'{"error":%b}' % value)
        return None

    def _keep(self, value: bytes) -> None:
        self._data_size += len(value) + 1
        if self._data_size > self._max:
            raise self._too_long()
        self._data.append(value)

    def _too_long(self) -> EventTooLong:
        return EventTooLong(f"an event of more than {human_bytes(self._max)}")
