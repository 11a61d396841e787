"""The HTTP client against a real server on this machine that says what a real vLLM said, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from spark_tui.domain.chat import ChatRequest, ContentDelta, Message, Role
from spark_tui.domain.engine.endpoint import Endpoint, Health, ServedModel
from spark_tui.domain.errors import (
    ApiKeyRejected,
    BadRequest,
    EngineFailed,
    EngineUnreachable,
    ReplyCutOff,
    SparkError,
)
from spark_tui.domain.secret import Secret
from spark_tui.services.vllm_api import VllmApi
from tests import api_fixtures

REQUEST = ChatRequest("tiny", (Message(Role.USER, "hi"),))
Handler = Callable[[str, dict[str, str], bytes, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """One handler for every request; remembers what was asked, and when a client went away."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.gone = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request, *lines = head.split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.asked.append((request, headers, body))
            assert self.handler is not None
            await self.handler(request, headers, body, writer)
            await writer.drain()
            if await reader.read(1) == b"":
                self.gone.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()

    def says(self, status: int, body: bytes | str) -> None:
        raw = body.encode() if isinstance(body, str) else body

        async def handler(request: str, headers: dict[str, str], sent: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(raw)) + raw)

        self.handler = handler

    def streams(self, *pieces: bytes, cut: bool = False, hold: bool = False) -> None:
        """Chunked; `cut` breaks the connection where the pieces end, `hold` leaves it open and silent."""

        async def handler(request: str, headers: dict[str, str], sent: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in pieces:
                writer.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
                await writer.drain()
            if cut:
                writer.close()
            elif not hold:
                writer.write(b"0\r\n\r\n")

        self.handler = handler


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server
    listening.close()


@pytest.fixture
async def api() -> AsyncIterator[VllmApi]:
    api = VllmApi()
    yield api
    await api.close()


async def answer(api: VllmApi, url: str) -> tuple[str, SparkError | None]:
    text = ""
    try:
        async with aclosing(api.chat(Endpoint(url), REQUEST)) as events:
            async for event in events:
                text += event.text if isinstance(event, ContentDelta) else ""
    except SparkError as error:
        return text, error
    return text, None


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
async def test_a_recorded_answer_arrives_whole_in_pieces_of_any_size(server: Server, api: VllmApi, size: int) -> None:
    raw = api_fixtures.stream("chat-stream-nothink")
    server.streams(*(raw[i : i + size] for i in range(0, len(raw), size)))
    text, error = await answer(api, server.url)
    assert error is None
    assert text
    asked = json.loads(server.asked[0][2])
    assert asked["stream_options"]["include_usage"] is True


async def test_a_connection_that_breaks_keeps_what_came(server: Server, api: VllmApi) -> None:
    raw = api_fixtures.stream("smollm2-stream")[:20_000]
    server.streams(raw, cut=True)
    text, error = await answer(api, server.url)
    assert isinstance(error, ReplyCutOff)
    assert len(text) > 50


async def test_an_error_inside_a_good_stream_is_an_error(server: Server, api: VllmApi) -> None:
    server.streams(api_fixtures.stream("crash-worker-sigkill-client1"))
    text, error = await answer(api, server.url)
    assert isinstance(error, EngineFailed)
    assert text


async def test_closing_the_answer_closes_the_connection_at_once(server: Server, api: VllmApi) -> None:
    server.streams(b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n', hold=True)
    async with aclosing(api.chat(Endpoint(server.url), REQUEST)) as events:
        assert await anext(events) == ContentDelta("a")
    await asyncio.wait_for(server.gone.wait(), 2)


async def test_a_silent_engine_is_noticed(server: Server) -> None:
    server.streams(hold=True)
    api = VllmApi(read_seconds=0.2)
    _, error = await answer(api, server.url)
    assert isinstance(error, EngineUnreachable)
    assert "silent" in error.summary
    await api.close()


async def test_nothing_listening_says_what_to_do(api: VllmApi) -> None:
    _, error = await answer(api, "http://127.0.0.1:9")
    assert isinstance(error, EngineUnreachable)
    assert "ps" in error.remedy


async def test_an_endless_event_does_not_fill_the_memory(server: Server, api: VllmApi) -> None:
    server.streams(*([b"data: " + b"x" * 1_000_000] * 9))
    _, error = await answer(api, server.url)
    assert isinstance(error, EngineFailed)


@pytest.mark.parametrize(
    ("status", "body", "health"),
    [
        (200, "", Health.OK),
        (503, "", Health.DEAD),
        (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', Health.LOADING),
        (404, "", Health.UNKNOWN),
        (500, "x" * 200_000, Health.UNKNOWN),
    ],
)
async def test_health_has_a_word_for_each_answer(
    server: Server, api: VllmApi, status: int, body: str, health: Health
) -> None:
    server.says(status, body)
    assert await api.health(Endpoint(server.url)) is health


async def test_health_of_nothing_is_not_listening(api: VllmApi) -> None:
    assert await api.health(Endpoint("http://127.0.0.1:9")) is Health.NOT_LISTENING


async def test_models_and_version(server: Server, api: VllmApi) -> None:
    server.says(200, '{"data": [{"id": "tiny", "root": "/srv/tiny", "max_model_len": 512}, {"no": "id"}, 3]}')
    assert await api.models(Endpoint(server.url)) == (ServedModel("tiny", "/srv/tiny", 512),)
    server.says(200, '{"version": "0.32.0"}')
    assert await api.version(Endpoint(server.url)) == "0.32.0"
    server.says(404, '{"detail": "Not Found"}')
    assert await api.version(Endpoint(server.url)) == ""


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [(401, '{"error":"Unauthorized"}', ApiKeyRejected), (200, "<html>", EngineFailed), (404, "", BadRequest)],
)
async def test_models_fail_with_the_reason(
    server: Server, api: VllmApi, status: int, body: str, kind: type[SparkError]
) -> None:
    server.says(status, body)
    with pytest.raises(kind):
        await api.models(Endpoint(server.url))


async def test_the_key_goes_into_the_header_and_nowhere_else(server: Server, api: VllmApi) -> None:
    server.says(401, '{"error":"Unauthorized"}')
    with pytest.raises(ApiKeyRejected) as caught:
        await api.models(Endpoint(server.url, Secret("planted-key")))
    request, headers, body = server.asked[0]
    assert headers["authorization"] == "Bearer planted-key"
    assert "planted-key" not in request + body.decode()
    assert "planted-key" not in str(caught.value) + caught.value.detail + repr(caught.value.__dict__)


async def test_a_proxy_in_the_environment_does_not_break_the_way_to_this_machine(
    server: Server, api: VllmApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    server.says(200, "")
    assert await api.health(Endpoint(server.url)) is Health.OK
