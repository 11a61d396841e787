"""The HTTP client against a real server on this machine that says what a real vLLM said, byte for byte."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_tui.domain.chat.message import Answer, AnswerBuilder, ChatRequest, ContentDelta, Message, Role
from spark_tui.domain.chat.stream import StreamReader
from spark_tui.domain.engine.state import Endpoint, Health, ServedModel
from spark_tui.domain.errors import (
    ApiKeyRejected,
    BadRequest,
    ContextOverflow,
    EngineBusy,
    EngineFailed,
    EngineUnreachable,
    ModelNotServed,
    ReplyCutOff,
    SparkError,
    UsageError,
)
from spark_tui.domain.secret import Secret
from spark_tui.domain.sse import SseDecoder
from spark_tui.services.engine_api import VllmApi
from tests import api_fixtures

REQUEST = ChatRequest("tiny", (Message(Role.USER, "hi"),))
TOKEN = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
KEY = "planted-key"

Handler = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each path as told; remembers what was asked, and when a client went away."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.gone = asyncio.Event()
        self.endpoint = Endpoint("")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request, *lines = head.split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.asked.append((request, headers, body))
            path = request.split()[1]
            await (self.handlers.get(path) or self.handlers[""])(request, writer)
            await writer.drain()
            if await reader.read(1) == b"":
                self.gone.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()

    def writes(self, *pieces: bytes | float, path: str = "", reset: bool = False, hold: bool = False) -> None:
        """Raw bytes; a number is a pause. Then the connection is closed, reset, or held open and silent."""

        async def handler(request: str, writer: asyncio.StreamWriter) -> None:
            for piece in pieces:
                if isinstance(piece, bytes):
                    writer.write(piece)
                    await writer.drain()
                else:
                    await asyncio.sleep(piece)
            if reset:
                link = writer.get_extra_info("socket")
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            elif not hold:
                writer.close()

        self.handlers[path] = handler

    def says(self, status: int, body: bytes | str, path: str = "") -> None:
        """A whole answer."""
        raw = body.encode() if isinstance(body, str) else body
        head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(raw))
        self.writes(head, raw, path=path)

    def streams(self, *pieces: bytes, cut: bool = False, reset: bool = False, hold: bool = False) -> None:
        """A chunked stream of these pieces; it ends well unless it is cut, reset or held."""
        head = STREAM_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        end = b"" if cut or reset or hold else b"0\r\n\r\n"
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        self.writes(head, *chunks, end, reset=reset, hold=hold)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.endpoint = Endpoint(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    yield server
    listening.close()


@pytest.fixture
async def api() -> AsyncIterator[VllmApi]:
    api = VllmApi(read_seconds=5.0)
    yield api
    await api.close()


@pytest.fixture
def nobody() -> Endpoint:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Endpoint(f"http://127.0.0.1:{free.getsockname()[1]}")


async def answer(api: VllmApi, endpoint: Endpoint, request: ChatRequest = REQUEST) -> tuple[Answer, SparkError | None]:
    builder = AnswerBuilder(0.0)
    try:
        async with aclosing(api.chat(endpoint, request)) as events:
            async for event in events:
                builder.add(event, 1.0)
    except SparkError as error:
        return builder.snapshot(), error
    return builder.snapshot(), None


def replayed(raw: bytes) -> Answer:
    decoder, reader, builder = SseDecoder(), StreamReader(), AnswerBuilder(0.0)
    try:
        for data in decoder.feed(raw):
            for event in reader.read(data):
                builder.add(event, 1.0)
    except SparkError:
        return builder.snapshot()
    return builder.snapshot()


# --- answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", api_fixtures.STREAMS)
async def test_a_recorded_stream_arrives_as_it_was(server: Server, api: VllmApi, name: str) -> None:
    raw = api_fixtures.stream(name)
    server.streams(*(raw[i : i + 1000] for i in range(0, len(raw), 1000)))
    told, _ = await answer(api, server.endpoint)
    assert told == replayed(raw)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(size=st.integers(1, 400))
async def test_an_answer_arrives_whole_in_dribbles_of_any_size(server: Server, api: VllmApi, size: int) -> None:
    raw = api_fixtures.stream("chat-stream-toolcall")
    server.streams(*(raw[i : i + size] for i in range(0, len(raw), size)))
    told, error = await answer(api, server.endpoint)
    assert error is None
    assert told == replayed(raw)


async def test_what_is_asked_is_what_the_api_wants(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, END)
    await answer(api, server.endpoint)
    [(request, headers, body)] = server.asked
    assert request == "POST /v1/chat/completions HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert "authorization" not in headers
    asked = json.loads(body)
    assert asked["stream"] is True
    assert asked["stream_options"]["include_usage"] is True
    assert asked["messages"] == [{"role": "user", "content": "hi"}]


async def test_a_delta_of_a_megabyte_arrives_whole(server: Server, api: VllmApi) -> None:
    big = json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * 1_000_000}}]}).encode()
    server.streams(b"data: " + big + b"\n\n", END)
    told, error = await answer(api, server.endpoint)
    assert error is None
    assert len(told.content) == 1_000_000


async def test_an_answer_is_shown_while_it_comes(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, hold=True)
    async with aclosing(api.chat(server.endpoint, REQUEST)) as events:
        assert await asyncio.wait_for(anext(events), 2) == ContentDelta("a")


async def test_a_server_that_does_not_stream_is_understood(server: Server, api: VllmApi) -> None:
    whole = b'{"choices":[{"message":{"content":"all"},"finish_reason":"stop"}],"usage":null}'
    server.writes(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(whole), whole
    )
    told, error = await answer(api, server.endpoint)
    assert error is None
    assert told.content == "all"


async def test_a_server_that_keeps_the_line_open_after_done_does_not_hold_the_answer(
    server: Server, api: VllmApi
) -> None:
    server.streams(TOKEN, END, hold=True)
    told, error = await asyncio.wait_for(answer(api, server.endpoint), 2)
    assert (told.content, told.finish_reason, error) == ("a", "stop", None)


async def test_half_a_character_in_the_history_does_not_break_the_next_question(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, END)
    _, error = await answer(api, server.endpoint, ChatRequest("tiny", (Message(Role.USER, "a\ud83d"),)))
    assert error is None
    assert json.loads(server.asked[0][2])["messages"][0]["content"] == "a\ufffd"


# --- answers that end badly -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_a_connection_that_breaks_keeps_what_came(server: Server, api: VllmApi, how: str) -> None:
    raw = api_fixtures.stream("smollm2-stream")[:20_000]
    if how == "cut":
        server.streams(raw, cut=True)
    else:
        server.writes(STREAM_HEAD + b"\r\n" + raw, 0.2, reset=True)
    told, error = await answer(api, server.endpoint)
    assert isinstance(error, ReplyCutOff)
    assert error.remedy
    assert len(told.content) > 50


async def test_a_stream_without_length_that_ends_too_early_is_cut_off(server: Server, api: VllmApi) -> None:
    server.writes(STREAM_HEAD + b"\r\n" + TOKEN)
    told, error = await answer(api, server.endpoint)
    assert told.content == "a"
    assert isinstance(error, ReplyCutOff)


async def test_an_answer_that_was_complete_when_the_connection_broke_is_complete(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, END.partition(b"data: [DONE]")[0], cut=True)
    told, error = await answer(api, server.endpoint)
    assert (told.content, error) == ("a", None)


async def test_an_error_inside_a_good_stream_comes_after_what_preceded_it(server: Server, api: VllmApi) -> None:
    server.streams(api_fixtures.stream("crash-worker-sigkill-client1"))
    told, error = await answer(api, server.endpoint)
    assert isinstance(error, EngineFailed)
    assert len(told.content) > 20


async def test_a_silent_engine_is_noticed_before_its_first_word(server: Server) -> None:
    server.writes(hold=True)
    api = VllmApi(read_seconds=0.2)
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, EngineUnreachable)
    assert "has not answered" in error.summary
    await api.close()


async def test_an_engine_that_falls_silent_is_noticed_and_what_came_is_kept(server: Server) -> None:
    server.streams(TOKEN, hold=True)
    api = VllmApi(read_seconds=0.2)
    told, error = await answer(api, server.endpoint)
    assert told.content == "a"
    assert isinstance(error, EngineUnreachable)
    assert "stopped mid-answer" in error.summary
    await api.close()


async def test_a_slow_engine_is_no_silent_engine(server: Server) -> None:
    chunk = b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN)
    slow = [part for _ in range(5) for part in (0.1, chunk)]
    server.writes(
        STREAM_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *slow, b"%x\r\n%b\r\n0\r\n\r\n" % (len(END), END)
    )
    api = VllmApi(read_seconds=0.3)
    told, error = await answer(api, server.endpoint)
    assert (told.content, error) == ("aaaaa", None)
    await api.close()


async def test_an_endless_event_does_not_fill_the_memory(server: Server, api: VllmApi) -> None:
    server.streams(*([b"data: " + b"x" * 1_000_000] * 9))
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, EngineFailed)
    assert "8.0 MiB" in error.summary


async def test_nothing_listening_says_what_to_do(api: VllmApi, nobody: Endpoint) -> None:
    _, error = await answer(api, nobody)
    assert isinstance(error, EngineUnreachable)
    assert nobody.base_url in error.summary
    assert "spark-tui ps" in error.remedy


@pytest.mark.parametrize(
    "url", ["not an address", "ftp://127.0.0.1:9", "http://[::1", "http://no-such-host.invalid:80"]
)
async def test_an_address_that_cannot_be_used_is_an_error_with_a_remedy(api: VllmApi, url: str) -> None:
    _, error = await answer(api, Endpoint(url))
    assert isinstance(error, EngineUnreachable)
    assert error.remedy
    assert await api.health(Endpoint(url)) is Health.UNKNOWN


@pytest.mark.parametrize("reply", [b"220 mail ready\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n", b"HTTP/1.1 banana\r\n\r\n"])
async def test_what_is_no_web_server_is_told_so(server: Server, api: VllmApi, reply: bytes) -> None:
    server.writes(reply)
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, EngineUnreachable)
    assert "does not speak HTTP" in error.summary
    assert await api.health(server.endpoint) is Health.UNKNOWN


async def test_a_web_page_is_no_answer(server: Server, api: VllmApi) -> None:
    server.writes(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, EngineFailed)
    assert "web page" in error.summary


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, '{"error":"Unauthorized"}', ApiKeyRejected),
        (*api_fixtures.error("too-long-prompt-stream"), ContextOverflow),
        (*api_fixtures.error("not-found"), BadRequest),
        (429, "", EngineBusy),
        (503, '{"error":{"code":503,"message":"Loading model"}}', EngineUnreachable),
        (500, "x" * 300_000, EngineFailed),
    ],
)
async def test_a_refusal_has_its_meaning(
    server: Server, api: VllmApi, status: int, body: str, kind: type[SparkError]
) -> None:
    server.says(status, body)
    told, error = await answer(api, server.endpoint)
    assert type(error) is kind
    assert told == Answer(0.0)


async def test_a_refusal_whose_body_breaks_off_is_known_by_its_status(server: Server, api: VllmApi) -> None:
    server.writes(b'HTTP/1.1 401 X\r\nContent-Length: 500\r\n\r\n{"error":"Unaut')
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, ApiKeyRejected)


async def test_a_model_that_is_not_served_names_those_that_are(server: Server, api: VllmApi) -> None:
    server.says(404, '{"error":{"message":"The model `tiny` does not exist."}}')
    server.says(200, api_fixtures.answer("models")[1].replace('"id":"tiny"', '"id":"smol"'), path="/v1/models")
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, ModelNotServed)
    assert error.served == ("smol",)
    assert "smol" in error.remedy


async def test_a_model_that_is_not_served_is_told_even_when_nobody_says_what_is(server: Server, api: VllmApi) -> None:
    server.says(404, '{"error":{"message":"The model `tiny` does not exist."}}')
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, ModelNotServed)
    assert error.served == ()


async def test_a_request_that_json_cannot_carry_is_never_sent(server: Server, api: VllmApi) -> None:
    request = ChatRequest("tiny", REQUEST.messages, REQUEST.parameters.__class__(temperature=float("nan")))
    _, error = await answer(api, server.endpoint, request)
    assert isinstance(error, UsageError)
    assert server.asked == []


# --- stopping -------------------------------------------------------------------------------------------


async def test_closing_the_answer_closes_the_connection_at_once(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, hold=True)
    async with aclosing(api.chat(server.endpoint, REQUEST)) as events:
        assert await anext(events) == ContentDelta("a")
    await asyncio.wait_for(server.gone.wait(), 2)


@pytest.mark.parametrize("sent", [(TOKEN,), ()], ids=["in the middle", "before the first token"])
async def test_cancelling_the_reader_closes_the_connection_at_once(
    server: Server, api: VllmApi, sent: tuple[bytes, ...]
) -> None:
    server.streams(*sent, hold=True)
    reading = asyncio.create_task(answer(api, server.endpoint))
    while not server.asked:
        await asyncio.sleep(0.001)
    reading.cancel()
    await asyncio.wait((reading,))
    assert reading.cancelled()
    await asyncio.wait_for(server.gone.wait(), 2)


async def test_many_answers_come_side_by_side(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, hold=True)
    async with asyncio.timeout(10):
        chats = [api.chat(server.endpoint, REQUEST) for _ in range(120)]
        assert await asyncio.gather(*(anext(chat) for chat in chats)) == [ContentDelta("a")] * 120
        await asyncio.gather(*(chat.aclose() for chat in chats))


# --- short questions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "health"),
    [
        (200, "", Health.OK),
        (503, "", Health.DEAD),
        (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', Health.LOADING),
        (503, "<h1>Reloading</h1>", Health.DEAD),
        (404, "", Health.UNKNOWN),
        (401, '{"error":"Unauthorized"}', Health.UNKNOWN),
        (500, "x" * 200_000, Health.UNKNOWN),
    ],
)
async def test_health_has_a_word_for_each_answer(
    server: Server, api: VllmApi, status: int, body: str, health: Health
) -> None:
    server.says(status, body)
    assert await api.health(server.endpoint) is health


async def test_health_of_nothing_is_not_listening(api: VllmApi, nobody: Endpoint) -> None:
    assert await api.health(nobody) is Health.NOT_LISTENING


@pytest.mark.parametrize("reset", [False, True])
async def test_dockers_port_proxy_without_a_server_behind_it_is_not_listening(
    server: Server, api: VllmApi, reset: bool
) -> None:
    server.writes(reset=reset)
    assert await api.health(server.endpoint) is Health.NOT_LISTENING
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, EngineUnreachable)
    assert "Nothing answers" in error.summary


@pytest.mark.parametrize(
    "pieces", [(), (b"HTTP/1.1 200 OK\r\n", *[part for _ in range(40) for part in (0.1, b"a: b\r\n")])]
)
async def test_health_takes_two_seconds_at_most(
    server: Server, api: VllmApi, pieces: tuple[bytes | float, ...]
) -> None:
    server.writes(*pieces, hold=True)
    began = time.monotonic()
    assert await api.health(server.endpoint) is Health.UNKNOWN
    assert 1.5 < time.monotonic() - began < 2.5


async def test_models_and_version(server: Server, api: VllmApi) -> None:
    server.says(*api_fixtures.answer("models"), path="/v1/models")
    server.says(*api_fixtures.answer("version"), path="/version")
    assert await api.models(server.endpoint) == (ServedModel("tiny", "/srv/vllm/tiny", 512),)
    assert await api.version(server.endpoint) == "0.32.0"


async def test_odd_entries_of_the_models_are_left_out(server: Server, api: VllmApi) -> None:
    server.says(200, '{"data": [{"id": "a", "max_model_len": "4k"}, {"no": "id"}, 3, null]}')
    assert await api.models(server.endpoint) == (ServedModel("a", "", None),)


async def test_a_long_list_of_models_is_read_whole(server: Server, api: VllmApi) -> None:
    server.says(200, json.dumps({"data": [{"id": f"lora-{n}", "root": "/" + "x" * 400} for n in range(500)]}))
    assert len(await api.models(server.endpoint)) == 500


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, '{"error":"Unauthorized"}', ApiKeyRejected),
        (404, "", BadRequest),
        (200, "<html>", EngineFailed),
        (200, '{"data": null}', EngineFailed),
        (200, "[]", EngineFailed),
        (200, "[" * 100_000, EngineFailed),
        (500, "", EngineFailed),
    ],
)
async def test_models_that_cannot_be_read_are_an_error_and_no_empty_list(
    server: Server, api: VllmApi, status: int, body: str, kind: type[SparkError]
) -> None:
    server.says(status, body)
    with pytest.raises(kind):
        await api.models(server.endpoint)


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_without_a_version_has_none(server: Server, api: VllmApi, status: int) -> None:
    server.says(status, '{"detail":"Not Found"}')
    assert await api.version(server.endpoint) == ""


async def test_a_version_that_cannot_be_asked_for_is_an_error(api: VllmApi, nobody: Endpoint) -> None:
    with pytest.raises(EngineUnreachable):
        await api.version(nobody)


# --- keys and proxies -----------------------------------------------------------------------------------


async def test_the_key_goes_into_the_header_and_nowhere_else(server: Server, api: VllmApi) -> None:
    server.says(401, '{"error":"Unauthorized"}')
    endpoint = Endpoint(server.endpoint.base_url, Secret(KEY))
    _, error = await answer(api, endpoint)
    assert error is not None
    request, headers, body = server.asked[0]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in request + body.decode()
    told = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert KEY not in told + repr(error.__dict__)


async def test_a_key_is_in_no_traceback_of_a_connection_that_fails(api: VllmApi, nobody: Endpoint) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        await api.models(Endpoint(nobody.base_url, Secret(KEY)))
    chain: BaseException | None = caught.value
    while chain is not None:
        told = traceback.TracebackException.from_exception(chain, capture_locals=True)
        assert KEY not in "".join(told.format())
        chain = chain.__context__


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\r\nX-Evil: 1", f"{KEY}ü", f"{KEY}\x00"])
async def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    server: Server, api: VllmApi, key: str
) -> None:
    server.streams(TOKEN, END)
    endpoint = Endpoint(server.endpoint.base_url, Secret(key))
    _, error = await answer(api, endpoint)
    assert isinstance(error, ApiKeyRejected)
    assert KEY not in str(error) + error.detail
    assert server.asked == []
    assert await api.health(endpoint) is Health.UNKNOWN


async def test_a_proxy_in_the_environment_does_not_break_the_way_to_this_machine(
    server: Server, api: VllmApi, nobody: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, nobody.base_url)
    server.says(200, "")
    assert await api.health(server.endpoint) is Health.OK


async def test_a_closed_client_can_be_used_again(server: Server, api: VllmApi) -> None:
    server.says(200, "")
    await api.health(server.endpoint)
    await api.close()
    assert await api.health(server.endpoint) is Health.OK
