"""HTTP/1.1 on one connection, with the time of every piece: only what is needed to know where an answer ends.

A full HTTP library spends as long on a piece as a fast model on a token, and on a small machine that time is taken
from the engine that is measured. Here a piece costs some microseconds: it gets its time first, its framing is looked
at, and everything else waits until the load is over.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
_HEAD_END: Final = b"\r\n\r\n"


class NotHttp(ValueError):
    """What came is no HTTP/1.1 answer."""


class Framing:
    """Where one answer's body begins and ends. Feed it what comes; it returns the body bytes in it."""

    def __init__(self) -> None:
        self.status = 0
        self.ended = False
        self.keep = True
        """The connection can take a further request."""
        self.left_over = False
        self._head = bytearray()
        self._in_body = False
        self._length: int | None = None
        self._chunked = False
        self._line = bytearray()
        self._left = 0
        """Bytes of the current chunk, its line end included."""
        self._trailers = False

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`. Raises NotHttp."""
        if not self._in_body:
            self._head += data
            end = self._head.find(_HEAD_END)
            if end < 0:
                if len(self._head) > MAX_HEAD_BYTES:
                    raise NotHttp("an answer without an end of its head")
                return b""
            data = bytes(self._head[end + len(_HEAD_END) :])
            self._read_head(bytes(self._head[:end]))
            self._head.clear()
            if not self._in_body:  # 100 Continue and the like: the real head follows
                return self.feed(data) if data else b""
        return self._body(data)

    def closed(self) -> bool:
        """The connection ended here; whether the answer may end so."""
        whole = self.ended or (self._in_body and not self._chunked and self._length is None)
        self.ended = self.ended or whole
        return whole

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
            raise NotHttp("an answer that does not begin as HTTP does")
        self.status = int(words[1])
        if self.status < 200:
            return
        told = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._chunked = told.get("transfer-encoding", "").lower().endswith("chunked")
        length = told.get("content-length", "")
        self._length = int(length) if length.isdigit() and len(length) < 16 and not self._chunked else None
        framed = self._chunked or self._length is not None
        self.keep = framed and words[0] == "HTTP/1.1" and told.get("connection", "").lower() != "close"
        self._in_body = True
        self.ended = self._length == 0 or self.status in (204, 304)

    def _body(self, data: bytes) -> bytes:
        if self.ended:
            self.left_over = self.left_over or bool(data)
            return b""
        if self._chunked:
            return self._chunks(data)
        if self._length is None:
            return data
        part = data[: self._length]
        self._length -= len(part)
        self.ended = self._length == 0
        self.left_over = len(data) > len(part)
        return part

    def _chunks(self, data: bytes) -> bytes:
        body: list[bytes] = []
        at = 0
        while at < len(data) and not self.ended:
            if self._left:
                part = data[at : at + self._left]
                body.append(part[: max(0, self._left - 2)])  # the last two are the chunk's own line end
                self._left -= len(part)
                at += len(part)
                continue
            newline = data.find(b"\n", at)
            stop = len(data) if newline < 0 else newline + 1
            self._line += data[at:stop]
            at = stop
            if len(self._line) > MAX_HEAD_BYTES:
                raise NotHttp("a chunk without a size")
            if newline >= 0:
                self._size_line()
        self.left_over = self.ended and at < len(data)
        return b"".join(body)

    def _size_line(self) -> None:
        line = bytes(self._line).strip()
        self._line.clear()
        if self._trailers:
            self.ended = not line
            return
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise NotHttp("a chunk without a size") from None
        if size < 0 or size > MAX_ANSWER_BYTES:
            raise NotHttp("a chunk of no sensible size")
        if size:
            self._left = size + 2
        else:
            self._trailers = True


class Wire(asyncio.Protocol):
    """One connection, one request at a time. `pieces` are the answer's body bytes with their times."""

    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.broken = ""
        self.received = 0.0
        """When something last came."""
        self.framing = Framing()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[None] | None = None
        self._size = 0

    @property
    def usable(self) -> bool:
        """A request can be sent on it."""
        return self._transport is not None and not self._transport.is_closing() and not self.broken

    def send(self, request: bytes) -> tuple[float, asyncio.Future[None]]:
        """Sends a request; returns when, and what is done when the answer has ended or broken off. Raises OSError."""
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self.pieces, self.framing, self._size = [], Framing(), 0
        self._answer = asyncio.get_running_loop().create_future()
        sent = self.received = time.monotonic()
        self._transport.write(request)
        return sent, self._answer

    def close(self) -> None:
        """Closes the connection, which frees the server's slot."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """The hot path."""
        now = time.monotonic()
        self.received = now
        try:
            body = self.framing.feed(data)
        except NotHttp as error:
            self._break(f"the server sent {error}")
            return
        if body:
            self.pieces.append((now, body))
            self._size += len(body)
            if self._size > MAX_ANSWER_BYTES:
                self._break("the server sent an answer that is far too long")
                return
        if self.framing.ended:
            self._finish()

    def eof_received(self) -> bool:
        """The server has said all."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed: the end of an answer that has no other end, or a break."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            if error is not None or not self.framing.closed():
                self.broken = self.broken or "the connection broke before the answer's end"
            self._finish()

    def _break(self, why: str) -> None:
        self.broken = why
        self.close()
        self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
