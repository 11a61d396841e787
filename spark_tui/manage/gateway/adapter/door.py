"""What the gateway does with a connection before a request is parsed: httptools has no limit for a request's head, and
uvicorn none for connections. A client without a key gets no further than this.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from math import inf
from typing import Any, Final

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_LOOPBACK: Final = "loopback"


class DoorLimits(Struct, frozen=True):
    """`places` are connections in all. A head has `head_bytes`, `headers` and `head_seconds`, counted from the
    connection or the last answer. A client that for `stall_seconds` sends nothing of a body, or takes nothing of an
    answer, is cut off."""

    places: int
    head_bytes: int = 32 * 1024
    headers: int = 128
    head_seconds: float = 10.0
    stall_seconds: float = 60.0

    def share(self, origin: str) -> int:
        """The places of one address: half of them; 7 of 8 for loopback, where a tunnel or a proxy brings many."""
        return self.places - self.places // (8 if origin == _LOOPBACK else 2)


def limits_of_process() -> DoorLimits:
    """A quarter of the descriptors that this process may have are places: each connection may need a second one to its
    engine, and the rest is for connections that are just accepted and for the program itself."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DoorLimits(min(max(descriptors // 4, 8), 4096))


class Connection(HttpToolsProtocol):
    """One client. Where there is no place, the connection that has kept the gateway waiting longest goes; where none
    waits, the new one. What is sent before the answer to a request is complete is dropped, and the connection closed
    after it."""

    def __init__(self, limits: DoorLimits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._unparsed = 0  # bytes since the parser last got on: of a head, of a chunk's extension, of a trailer
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None
        self.origin = ""
        self.waiting_since = inf  # since when it is the client's turn, by the loop's clock

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    # --- whose turn it is -------------------------------------------------------------------------------

    def _await_head(self) -> None:
        """The client's turn: to take the last answer, and to send the next head."""
        taken = not self.transport.get_write_buffer_size()
        self._arm(self._limits.head_seconds if taken else self._limits.stall_seconds)
        self.waiting_since = self.loop.time()

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self.turn_away, 408)

    def _disarm(self) -> None:
        self.waiting_since = inf
        if self._timer is not None:
            self._timer.cancel()

    def turn_away(self, status: int) -> None:
        """Ends the connection; with that status unless an answer has begun, or the client was idle after one. What it
        does not take is dropped."""
        self._refused = True
        self._disarm()
        unanswered = not self.cycle.response_started if self._answering else self._unparsed or self.cycle is None
        if unanswered:
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # --- from the transport -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.origin = _origin(self.client)
        everyone = [each for each in self.connections if isinstance(each, Connection)]
        rivals = [each for each in everyone if each.origin == self.origin]
        if len(rivals) <= self._limits.share(self.origin):
            rivals = everyone if len(everyone) > self._limits.places else []
        waiting = (each for each in rivals if each.waiting_since < inf)
        oldest = min(waiting, key=lambda each: each.waiting_since, default=self)
        if rivals:
            oldest.turn_away(503 if oldest is self else 408)
        if not self._refused:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._refused:
            piece = data[at : at + self._limits.head_bytes - self._unparsed]
            at += len(piece)
            self._unparsed += len(piece)
            super().data_received(piece)
            if self._unparsed >= self._limits.head_bytes and not self._refused:
                self.send_400_response("")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm(self._limits.stall_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answering:
            self._disarm()
        else:
            self._await_head()

    # --- from the parser --------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self._limits.headers:
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        if self._answering:
            raise ValueError("a request before the answer to the last one")
        super().on_headers_complete()
        self._unparsed = 0
        if not self.flow.write_paused:
            self._arm(self._limits.stall_seconds)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)
        if self._answering and not self.flow.write_paused:
            self._arm(self._limits.stall_seconds)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._answering and not self.flow.write_paused:
            self._disarm()

    def send_400_response(self, msg: str) -> None:
        """Refuses what was sent. An answer that is under way to a whole request is finished first."""
        if self._answering and not self.cycle.more_body:
            self._refused = True
            self.cycle.keep_alive = False
        else:
            large = self._unparsed >= self._limits.head_bytes or len(self.headers or ()) > self._limits.headers
            self.turn_away(431 if large else 400)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()


def _origin(client: tuple[str, int] | None) -> str:
    """Whom a connection counts for: an IPv4 address, or the network of 64 bits of an IPv6 one."""
    address = ipaddress.ip_address(client[0] if client else "127.0.0.1")
    if address.is_loopback:
        return _LOOPBACK
    return str(address) if address.version == 4 else f"{int(address) >> 64:x}"
