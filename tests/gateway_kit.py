"""For tests of the gateway: an engine over real HTTP that fails on request, a scripted router, and both in front of a
client."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2

from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import ApiKeyRejected, ModelNotServed, SparkError
from spark_tui.base.secret import Secret
from spark_tui.manage.gateway.adapter.door import DoorLimits
from spark_tui.manage.gateway.adapter.server import HttpGateway
from spark_tui.manage.gateway.model import GatewayModel, NotServing, Upstream
from spark_tui.observe.metrics.model.agents import AgentTurn

EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ENGINE_KEY = "key-of-the-engine"


class Upstreamer:
    """An engine. A request's body says what it does: `n` events, `gap` seconds between them, `plan` how it fails,
    `answer` events or a JSON body to send as they are, in pieces of `size` bytes."""

    def __init__(self) -> None:
        self.port = 0
        self.open = 0
        self.left = 0
        self.sent = 0
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.hold = asyncio.Event()
        self.hold.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Upstreamer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                headers = {
                    k.lower(): v for k, _, v in (line.partition(": ") for line in head.split("\r\n")[1:] if line)
                }
                if head.startswith("GET /v1/models"):  # as another gateway's engine
                    await self._list(writer)
                    continue
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.headers.append(headers)
                self.bodies.append(body)
                asked = json.loads(body)
                gone = asyncio.ensure_future(reader.read(1))
                work = asyncio.ensure_future(self._answer(asked, writer))
                await asyncio.wait((gone, work), return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    self.left += 1
                    work.cancel()
                    return
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                if work.result():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self.open -= 1
            writer.close()

    async def _list(self, writer: asyncio.StreamWriter) -> None:
        data = json.dumps({"object": "list", "data": [{"id": "m", "object": "model", "serving": True}]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data))
        writer.write(data)
        await writer.drain()

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is cut off."""
        plan = asked.get("plan", "")
        if plan == "refuse":
            writer.write(
                b"HTTP/1.1 422 Nope\r\nx-own: 1\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n"
                b'{"odd": true}'
            )
            await writer.drain()
            return False
        if plan == "silent":
            return True
        kind = "text/event-stream" if asked.get("stream") else "application/json"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        if plan == "big":
            await self._flood(writer)
        if "answer" in asked:
            data, size = asked["answer"].encode(), asked.get("size", 1000)
            for at in range(0, len(data), size):
                await self._chunk(writer, data[at : at + size])
        for _ in range(0 if "answer" in asked else asked.get("n", 3)):
            await self.hold.wait()
            await self._chunk(writer, EVENT)
            await asyncio.sleep(asked.get("gap", 0))
        if plan == "die":
            await self._chunk(writer, b'data: {"choices": [{"ind')
            return True
        await self._chunk(writer, b"" if "answer" in asked else DONE)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return False

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        piece = b"data: " + b"x" * 65_000 + b"\n\n"
        for _ in range(2000):  # 130 MB
            await self._chunk(writer, piece)
            self.sent += len(piece)

    async def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not data:
            return  # an empty chunk is the end
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()


class ScriptedRouter:
    """A GatewayRouter of one engine. While `launching` it does not serve; `cause` is why its launch fails."""

    def __init__(self, port: int) -> None:
        self.keyed = False
        self.known = {"good"}
        self.problem: SparkError | None = None
        self.endpoint = Endpoint(f"http://127.0.0.1:{port}", Secret(ENGINE_KEY))
        self.launching = False
        self.launched = asyncio.Event()
        self.cause: SparkError | None = None
        self.seconds: float | None = 90.0
        self.leases = 0
        self.in_flight = 0
        self.waiting = 0
        self.broken_engines: list[str] = []
        self.turns: list[AgentTurn] = []

    def authorize(self, key: str) -> str:
        if self.problem is not None:
            raise self.problem
        if self.keyed and key not in self.known:
            raise ApiKeyRejected("Unknown key.", "Get one.")
        return f"client of {key}" if self.keyed else ""

    def models(self) -> tuple[GatewayModel, ...]:
        return (GatewayModel("m", "engine", True, 4096), GatewayModel("other", "other", False))

    @contextmanager
    def lease(self, model: str) -> Iterator[Upstream]:
        if model not in ("m", "alias"):
            raise ModelNotServed("Unknown.", "See the list.")
        if self.launching:
            raise NotServing(model, self.seconds)
        self.leases += 1
        self.in_flight += 1
        try:
            yield Upstream("engine", self.endpoint, "m")
        finally:
            self.in_flight -= 1

    async def ready(self, model: str) -> None:
        self.waiting += 1
        try:
            await self.launched.wait()
        finally:
            self.waiting -= 1
        if self.cause is not None:
            raise self.cause

    def eta(self, model: str) -> float | None:
        return self.seconds

    def broken(self, engine: str) -> None:
        self.broken_engines.append(engine)

    def answered(self, turn: AgentTurn) -> None:
        self.turns.append(turn)

    def launch(self) -> None:
        self.launching = False
        self.launched.set()


@asynccontextmanager
async def gateway(router: Any, limits: DoorLimits | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a gateway with that router."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(HttpGateway(limits).serve(router, "127.0.0.1", 0, port.set_result))
    try:
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{await port}", trust_env=False, timeout=30,
            limits=httpx2.Limits(max_connections=None),
        ) as client:  # fmt: skip
            yield client
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # uvicorn puts back that of a loop that may be closed
