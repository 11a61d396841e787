"""The process that sends a benchmark's load: `python -m spark_tui.use.bench.adapter.load`.

A closed loop: streams that each send their next request when the last one has ended. A process of its own, so that
nothing else that this program does (painting a screen, reading a log) delays the clock when a token arrives. It reads
one JSON object per line on standard input, and writes the same:

    LoadOrder     send this load, or cut short what is under way
    Tick          four times a second
    LoadResult    everything that was measured, and how late the clock was at a steady pulse

It ends with its standard input, and so with its parent. Keys come in by that pipe and are in no argument.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast
from urllib.parse import urlsplit

from msgspec import Struct

from spark_tui.base.untrusted import decode, encode
from spark_tui.observe.results.model.record import COMPLETIONS_PATH, WireExchange, record_of
from spark_tui.use.bench.model.load import Load, LoadEvent, LoadOrder, LoadResult, RequestSpec, Tick

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
_HEAD_END: Final = b"\r\n\r\n"


class NotHttp(ValueError):
    """What came is no HTTP/1.1 answer."""


class Framing(Struct, eq=False):
    """Where one answer's body begins and ends. Feed it what comes; it returns the body bytes in it."""

    status: int = 0
    ended: bool = False
    keep: bool = True
    """The connection can take a further request."""
    left_over: bool = False
    _head: bytearray = bytearray()
    _in_body: bool = False
    _length: int | None = None
    _chunked: bool = False
    _line: bytearray = bytearray()
    _left: int = 0
    """Bytes of the current chunk, its line end included."""
    _trailers: bool = False

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
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._chunked = fields.get("transfer-encoding", "").lower().endswith("chunked")
        length = fields.get("content-length", "")
        self._length = int(length) if length.isdigit() and len(length) < 16 and not self._chunked else None
        framed = self._chunked or self._length is not None
        self.keep = framed and words[0] == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
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


class HttpConnection(asyncio.Protocol):
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
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
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


CONNECT_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 1.0
_PULSE_SECONDS: Final = 0.02
_PRIORITY: Final = 1
"""The lowest of the real-time ones: above everything ordinary, below what the kernel needs."""


class ClosedLoop:
    """One load on its way. `tick` can be asked at any time."""

    def __init__(self, base_url: str, authorization: str, load: Load) -> None:
        parts = urlsplit(base_url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/") + COMPLETIONS_PATH
        self._authorization = authorization
        self._load = load
        self._requests = [(spec, self._request(spec)) for spec in load.requests]
        self._wires: list[HttpConnection | None] = [None] * load.streams
        self._exchanges: list[WireExchange] = []
        self._next = 0
        self._stopping = False
        self._running = 0
        self.lateness: list[float] = []
        """By how many seconds each beat of a steady pulse came late."""

    def tick(self) -> Tick:
        under_way = sum(len(wire.pieces) for wire in self._wires if wire is not None)
        ended = sum(len(exchange.pieces) for exchange in self._exchanges)
        return Tick(len(self._exchanges), self._running, under_way + ended)

    def stop(self) -> None:
        """No further request; those under way are cut off."""
        self._stopping = True
        for wire in self._wires:
            if wire is not None:
                wire.close()

    async def run(self) -> list[WireExchange]:
        """All exchanges in the order of their numbers. Never raises for what a server does."""
        with _without_collector(), _prompt_scheduling():
            beside = [asyncio.create_task(self._watch_silence()), asyncio.create_task(self._pulse())]
            try:
                await asyncio.gather(*(self._stream(index) for index in range(self._load.streams)))
            finally:
                for task in beside:
                    task.cancel()
                for wire in self._wires:
                    if wire is not None:
                        wire.close()
                await asyncio.gather(*beside, return_exceptions=True)
        return sorted(self._exchanges, key=lambda exchange: exchange.number)

    # --- one stream -----------------------------------------------------------------------------------

    async def _stream(self, index: int) -> None:
        while self._next < len(self._requests) and not self._stopping:
            spec, request = self._requests[self._next]
            self._next += 1
            self._running += 1
            try:
                self._exchanges.append(await self._exchange(index, spec, request))
            finally:
                self._running -= 1
                wire = self._wires[index]
                if wire is not None:
                    wire.pieces = []

    async def _exchange(self, index: int, spec: RequestSpec, request: bytes) -> WireExchange:
        """One request and its answer. The connection is open before the clock starts."""
        wire = self._wires[index]
        begun = time.monotonic()
        if wire is None or not wire.usable or not wire.framing.keep or wire.framing.left_over:
            if wire is not None:
                wire.close()
            try:
                wire = self._wires[index] = await self._connect()
            except (OSError, TimeoutError) as error:
                return self._exchanged(index, spec, begun, None, _connect_words(error))
        sent, answer = wire.send(request)
        await answer
        return self._exchanged(index, spec, sent, wire, "" if self._stopping else wire.broken)

    def _exchanged(
        self, index: int, spec: RequestSpec, sent: float, wire: HttpConnection | None, broken: str
    ) -> WireExchange:
        whole = wire is not None and wire.framing.ended
        return WireExchange(
            number=spec.number,
            stream=index,
            sent=sent,
            ended=time.monotonic(),
            asked_input=spec.input_tokens,
            asked_output=spec.output_tokens,
            status=wire.framing.status if wire is not None else 0,
            pieces=tuple(wire.pieces) if wire is not None else (),
            broken=broken,
            cancelled=self._stopping and not whole,
        )

    async def _connect(self) -> HttpConnection:
        context = ssl.create_default_context() if self._secure else None
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, wire = await loop.create_connection(HttpConnection, self._host, self._port, ssl=context)
        return wire

    async def _watch_silence(self) -> None:
        """Cuts a stream off from which nothing has come for too long."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            for wire in self._wires:
                if wire is not None and wire.usable and now - wire.received > self._load.silence_seconds:
                    wire.broken = f"nothing came for {self._load.silence_seconds:.0f} s"
                    wire.close()

    async def _pulse(self) -> None:
        """How late this process comes when it wants to run now."""
        while True:
            due = time.monotonic() + _PULSE_SECONDS
            await asyncio.sleep(_PULSE_SECONDS)
            self.lateness.append(time.monotonic() - due)

    # --- the request ----------------------------------------------------------------------------------

    def _request(self, spec: RequestSpec) -> bytes:
        body: dict[str, object] = {
            "model": self._load.model,
            "prompt": spec.prompt if isinstance(spec.prompt, str) else list(spec.prompt),
            "max_tokens": spec.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._load.temperature is not None:
            body["temperature"] = self._load.temperature
        content = json.dumps(body, separators=(",", ":")).encode()
        host = f"[{self._host}]" if ":" in self._host else self._host
        head = [
            f"POST {self._path} HTTP/1.1",
            f"Host: {host}:{self._port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "Accept-Encoding: identity",
            f"Content-Length: {len(content)}",
        ]
        if self._authorization:
            head.append(f"Authorization: {self._authorization}")
        return "\r\n".join((*head, "", "")).encode("latin-1") + content


def _connect_words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_SECONDS:.0f} s"
    return f"cannot connect: {getattr(error, 'strerror', None) or type(error).__name__}"


@contextmanager
def _without_collector() -> Iterator[None]:
    """Python's garbage collector stops everything for as long as it takes: not while time is measured."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def _prompt_scheduling() -> Iterator[None]:
    """Real-time priority for as long as time is taken. Root and CAP_SYS_NICE may; for all others nothing changes."""
    try:
        before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, parameters)


# --- the process ------------------------------------------------------------------------------------------

TICK_SECONDS: Final = 0.25


async def serve() -> None:
    """Sends what it is asked to until standard input ends."""
    orders: asyncio.Queue[LoadOrder | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:  # in a thread, which waits in the kernel: lines can be many megabytes long
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(orders.put_nowait, decode(line, LoadOrder))
        loop.call_soon_threadsafe(orders.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (order := await orders.get()) is not None:
        if order.load is not None and not await _send(order, order.load, orders):
            return


async def _send(order: LoadOrder, load: Load, orders: asyncio.Queue[LoadOrder | None]) -> bool:
    """One load, until it has ended; false when standard input has."""
    closed = ClosedLoop(order.base_url, order.authorization, load)
    running = asyncio.create_task(closed.run())
    listening = asyncio.create_task(orders.get())
    connected = True
    while not running.done():
        await asyncio.wait((running, listening), timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            connected = listening.result() is not None
            closed.stop()
            if not connected:
                break
            listening = asyncio.create_task(orders.get())
        _write(closed.tick())
    listening.cancel()
    records = tuple(record_of(exchange) for exchange in await running)
    _write(LoadResult(records, tuple(round(late, 6) for late in closed.lateness)))
    return connected


def _write(event: LoadEvent) -> None:
    sys.stdout.write(encode(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve())
