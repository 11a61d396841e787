"""What the gateway bears from clients without a key: heads without an end, many connections, sizes, silence."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from spark_tui.manage.gateway.adapter.door import DoorLimits, _origin, limits_of_process
from spark_tui.manage.gateway.adapter.server import GatewayLog
from tests.gateway_kit import DONE, EVENT, ScriptedRouter, Upstreamer, gateway
from tests.manage.gateway.test_gateway_adapter import CHAT, until

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = 1000.0
LIMITS = DoorLimits(places=16, head_bytes=1024, headers=8, head_seconds=LONG, stall_seconds=LONG)
QUICK = DoorLimits(places=16, head_seconds=0.3, stall_seconds=0.3)


def post(body: bytes, *, length: int | None = None, path: str = CHAT, key: str = "good") -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n"
    return f"{head}Authorization: Bearer {key}\r\n\r\n".encode() + body


def ask(**fields: object) -> bytes:
    return post(json.dumps({"model": "m", **fields}).encode())


class Raw:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def line(self) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.readline()

    async def rest(self) -> bytes:
        """All until the gateway closes."""
        got = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(20):
                while piece := await self.reader.read(65_536):
                    got += piece
        return got

    @property
    def closed(self) -> bool:
        return self.reader.at_eof() or self.reader.exception() is not None


class Doorstep:
    """A gateway with given limits, and connections to it."""

    def __init__(self, port: int, router: ScriptedRouter, engine: Upstreamer) -> None:
        self.port = port
        self.router = router
        self.engine = engine
        self._all: list[Raw] = []

    async def knock(self, data: bytes = b"") -> Raw:
        raw = Raw(*await asyncio.open_connection("127.0.0.1", self.port))
        self._all.append(raw)
        raw.send(data)
        return raw

    async def told(self, data: bytes) -> bytes:
        """What a connection that sends that gets until it is closed."""
        return await (await self.knock(data)).rest()

    def leave(self) -> None:
        for raw in self._all:
            raw.writer.close()


@asynccontextmanager
async def at_door(limits: DoorLimits) -> AsyncIterator[Doorstep]:
    async with Upstreamer().running() as engine:
        router = ScriptedRouter(engine.port)
        async with gateway(router, limits) as client:
            doorstep = Doorstep(client.base_url.port or 0, router, engine)
            try:
                yield doorstep
            finally:
                doorstep.leave()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


# --- heads ------------------------------------------------------------------------------------------------


def head_of(size: int) -> bytes:
    start, end = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", b"\r\n\r\n"
    return start + b"a" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize("cut", [1, 100, 10_000])
async def test_a_head_is_taken_up_to_its_limit_and_refused_above_however_it_is_cut(cut: int) -> None:
    async with at_door(LIMITS) as door:
        for size, expected in ((1024, 200), (1025, 431)):
            raw, head = await door.knock(), head_of(size)
            for at in range(0, size, cut):
                raw.send(head[at : at + cut])
                await asyncio.sleep(0)
            assert status(await raw.line()) == expected


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\nX: ", b"GET /", b"GET / HTTP/1.1\r\n", b"X" * 10,
        HEALTH + b"GET / HTTP/1.1\r\nX: ",
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    ],
)  # fmt: skip
async def test_what_never_ends_is_refused_after_a_few_bytes(begin: bytes) -> None:
    """A line of the head, its first one, the next head, a trailer, a chunk's extension."""
    async with at_door(LIMITS) as door:
        raw, sent = await door.knock(begin), 0
        with suppress(ConnectionError):
            while not raw.closed and sent < 64 * 1024 * 1024:
                raw.send(b"a" * 4096)
                sent += 4096
                await raw.writer.drain()
                await asyncio.sleep(0)
        assert sent < 32 * 1024 * 1024
        assert status(await door.told(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))) == 200


async def test_many_headers_are_refused_though_they_are_short() -> None:
    async with at_door(LIMITS) as door:
        assert status(await door.told(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 20)) == 431


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 408),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-", 408),
        (HEALTH, 200),
        (HEALTH + b"GET / HTTP/1.1\r\nX-", 200),
        (post(b"", length=10), 408),
        (post(b"{", length=10, path="/health"), 405),
        (post(b"{", length=10, key="wrong"), 401),
    ],
)
async def test_a_client_that_does_not_go_on_is_cut_off(data: bytes, expected: int) -> None:
    """Before its head, in it, after an answer, in the next head, in a body, and in one that is refused already."""
    async with at_door(QUICK) as door:
        door.router.keyed = True
        assert status(await door.told(data)) == expected


async def test_a_body_that_is_refused_and_never_ends_is_cut_off() -> None:
    async with at_door(QUICK) as door:
        door.router.keyed = True
        raw = await door.knock(post(b"", length=1 << 40, key="wrong"))
        assert status(await raw.line()) == 401

        async def flood() -> None:
            with suppress(ConnectionError):
                while not raw.writer.is_closing():
                    raw.send(b" " * 100_000)
                    await raw.writer.drain()
                    await asyncio.sleep(0.01)

        flooding = asyncio.ensure_future(flood())
        await raw.rest()
        raw.writer.close()
        await flooding


async def test_a_body_that_comes_slowly_is_not_cut_off() -> None:
    async with at_door(DoorLimits(places=16, head_seconds=2, stall_seconds=2)) as door:
        body = b'{"model": "m", "n": 1}'
        raw = await door.knock(post(b"", length=len(body)))
        for at in range(0, len(body), 4):
            raw.send(body[at : at + 4])
            await asyncio.sleep(0.5)
        assert status(await raw.line()) == 200


# --- one after the other ------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [HEALTH, HEALTH * 1000, b"\x00garbage", b"GET / HTTP/1.1\r\nX: " + b"a" * 5000])
async def test_what_follows_before_the_answer_is_not_served_and_the_answer_is_whole(more: bytes) -> None:
    async with at_door(LIMITS) as door:
        door.engine.hold.clear()
        raw = await door.knock(ask(stream=True))
        await until(lambda: bool(door.engine.bodies))
        raw.send(more)
        await asyncio.sleep(0.2)
        door.engine.hold.set()
        got = await raw.rest()
        assert got.count(b"HTTP/1.1 ") == 1
        assert got.count(EVENT) == 3 and DONE in got


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with at_door(LIMITS) as door:
        raw = await door.knock()
        for _ in range(3):
            raw.send(ask(n=1) + b"\r\n")
            assert status(await raw.line()) == 200
            async with asyncio.timeout(20):
                await raw.reader.readuntil(b"0\r\n\r\n")


# --- places -------------------------------------------------------------------------------------------------


async def test_the_longest_waiting_connection_makes_room() -> None:
    async with at_door(DoorLimits(places=4, head_seconds=LONG, stall_seconds=LONG)) as door:
        first = await door.knock(b"GET / HTTP/1.1\r\nX-")
        others = []
        for _ in range(3):
            await asyncio.sleep(0.05)
            others.append(await door.knock(b"GET / HTTP/1.1\r\nX-"))
        asking = await door.knock(HEALTH)
        assert status(await asking.line()) == 200
        assert status(await first.rest()) == 408
        assert not any(other.closed for other in others[1:])


async def test_an_answer_under_way_keeps_its_place_and_a_new_connection_is_told() -> None:
    async with at_door(DoorLimits(places=4, head_seconds=LONG, stall_seconds=LONG)) as door:
        door.engine.hold.clear()
        streams = [await door.knock(ask(stream=True)) for _ in range(3)]
        await until(lambda: len(door.engine.bodies) == 3)
        for _ in range(20):
            await door.knock(b"GET / HTTP/1.1\r\nX-")
        streams.append(await door.knock(ask(stream=True)))
        await until(lambda: len(door.engine.bodies) == 4)
        assert status(await door.told(HEALTH)) in (503, 0)
        door.engine.hold.set()
        for stream in streams:
            async with asyncio.timeout(20):
                assert (await stream.reader.readuntil(DONE)).count(EVENT) == 3


async def test_no_address_has_all_places_and_a_network_of_ipv6_counts_as_one() -> None:
    limits = DoorLimits(places=256)
    assert [limits.share(_origin((each, 1))) for each in ("127.0.0.1", "::1", "10.0.0.9")] == [224, 224, 128]
    assert _origin(("2001:db8::1", 1)) == _origin(("2001:db8::ffff:2", 1)) != _origin(("2001:db8:0:1::1", 1))
    assert _origin(("10.0.0.9", 1)) != _origin(("10.0.0.8", 1))
    assert _origin(("fe80::1%eth0", 1)) == _origin(("fe80::2%eth0", 1))
    assert 8 <= limits_of_process().places <= 4096


# --- clients that never read --------------------------------------------------------------------------------


async def test_a_client_that_takes_nothing_is_cut_off() -> None:
    async with at_door(DoorLimits(places=16, stall_seconds=0.5)) as door:
        raw = await door.knock(ask(stream=True, plan="big"))
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: bool(door.engine.bodies))
        await until(lambda: door.router.in_flight == 0 and door.engine.open == 0)


async def test_small_answers_that_are_not_taken_do_not_pile_up() -> None:
    async with at_door(DoorLimits(places=16, head_seconds=0.5, stall_seconds=0.5)) as door:
        loop, deaf = asyncio.get_running_loop(), socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, ("127.0.0.1", door.port))
        with deaf, pytest.raises(ConnectionError):
            async with asyncio.timeout(60):
                while True:
                    await loop.sock_sendall(deaf, HEALTH)
                    await asyncio.sleep(0.0005)


# --- what is written to the log -----------------------------------------------------------------------------


async def test_errors_of_accept_are_written_once_and_others_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    loop, log = asyncio.get_running_loop(), GatewayLog()
    error = OSError(24, "Too many open files")
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            log.loop_failed(loop, {"message": "socket.accept() out of system resource", "exception": error})
        log.loop_failed(loop, {"message": "something else", "exception": ValueError("x")})
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert not caplog.records[0].exc_info
