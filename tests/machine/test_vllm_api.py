"""The HTTP client against a real server on this machine that says what a real vLLM said, byte for byte."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_tui.base.engine.answer import SseDecoder, StreamReader
from spark_tui.base.engine.message import Answer, AnswerBuilder, ChatRequest, ContentDelta, Message, Role
from spark_tui.base.engine.state import Endpoint, Health, ServedModel
from spark_tui.base.errors import (
    ApiKeyRejected,
    ContextOverflow,
    EngineBusy,
    EngineFailed,
    EngineUnreachable,
    ModelNotServed,
    NoSuchPath,
    ReplyCutOff,
    SparkError,
    UsageError,
)
from spark_tui.base.secret import Secret
from spark_tui.machine.engine_api import HttpMetrics, VllmApi
from tests import api_fixtures
from tests.api_fixtures import STREAM_HEAD, Server, packed_blanks

REQUEST = ChatRequest("tiny", (Message(Role.USER, "hi"),))
TOKEN = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
CHUNKED = STREAM_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
UNKNOWN_MODEL = '{"error":{"message":"The model `tiny` does not exist."}}'
KEY = "planted-key"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().listening() as server:
        yield server


@pytest.fixture
async def api(request: pytest.FixtureRequest) -> AsyncIterator[VllmApi]:
    """Waits 5 seconds for the next piece, or as long as a test's parameter says."""
    api = VllmApi(read_seconds=getattr(request, "param", 5.0))
    yield api
    await api.close()


@pytest.fixture
def closed_port() -> Endpoint:
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
    assert (await answer(api, server.endpoint))[0] == replayed(raw)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(size=st.integers(1, 400))
async def test_an_answer_arrives_whole_in_dribbles_of_any_size(server: Server, api: VllmApi, size: int) -> None:
    raw = api_fixtures.stream("chat-stream-toolcall")
    server.streams(*(raw[i : i + size] for i in range(0, len(raw), size)))
    assert await answer(api, server.endpoint) == (replayed(raw), None)


async def test_what_is_asked_is_what_the_api_wants(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, END)
    half = ChatRequest("tiny", (Message(Role.USER, "a\ud83d"),))  # half a character does not break the next question
    _, error = await answer(api, server.endpoint, half)
    assert error is None
    [(request, headers, body)] = server.asked
    assert request == "POST /v1/chat/completions HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert "authorization" not in headers
    asked = json.loads(body)
    assert asked["stream"] is True
    assert asked["stream_options"]["include_usage"] is True
    assert asked["messages"] == [{"role": "user", "content": "a\ufffd"}]


async def test_an_answer_is_shown_while_it_comes_and_closing_it_closes_the_connection(
    server: Server, api: VllmApi
) -> None:
    server.streams(TOKEN, hold=True)
    async with aclosing(api.chat(server.endpoint, REQUEST)) as events:
        assert await asyncio.wait_for(anext(events), 2) == ContentDelta("a")
    await asyncio.wait_for(server.gone.wait(), 2)


MEGABYTE = b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * 1_000_000}}]}).encode()
WHOLE = b'{"choices":[{"message":{"content":"all"},"finish_reason":"stop"}],"usage":null}'
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(WHOLE)
SLOW = [part for _ in range(5) for part in (0.1, b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))]
GOOD: dict[str, tuple[Callable[[Server], None], str]] = {
    "a delta of a megabyte": (lambda it: it.streams(MEGABYTE + b"\n\n", END), "x" * 1_000_000),
    "no stream": (lambda it: it.writes(JSON_HEAD, WHOLE), "all"),
    "open after done": (lambda it: it.streams(TOKEN, END, hold=True), "a"),
    "complete, then cut": (lambda it: it.streams(TOKEN, END.partition(b"data: [DONE]")[0], cut=True), "a"),
    "slow": (lambda it: it.writes(CHUNKED, *SLOW, b"%x\r\n%b\r\n0\r\n\r\n" % (len(END), END)), "aaaaa"),
}


@pytest.mark.parametrize("api", [0.5], indirect=True, ids=[""])
@pytest.mark.parametrize(("script", "content"), GOOD.values(), ids=GOOD)
async def test_an_answer_in_any_manner_is_complete(
    server: Server, api: VllmApi, script: Callable[[Server], None], content: str
) -> None:
    script(server)
    found, error = await asyncio.wait_for(answer(api, server.endpoint), 2)
    assert (found.content, found.finish_reason, error) == (content, "stop", None)


async def test_an_answer_that_is_finished_needs_no_end_of_its_stream(server: Server, api: VllmApi) -> None:
    server.streams(TOKEN, END.partition(b"data: [DONE]")[0], hold=True)
    found, error = await answer(api, server.endpoint)  # an error after 5 seconds would be that of silence
    assert (found.content, found.finish_reason, error) == ("a", "stop", None)


# --- answers that end badly -----------------------------------------------------------------------------

CRASHED = api_fixtures.stream("crash-worker-sigkill-client1")
RECORDED = api_fixtures.stream("smollm2-stream")[:20_000]
BAD: dict[str, tuple[Callable[[Server], None], type[SparkError], str, int]] = {
    "cut": (lambda it: it.streams(RECORDED, cut=True), ReplyCutOff, "broke mid-answer", 50),
    "reset": (lambda it: it.writes(STREAM_HEAD + b"\r\n" + RECORDED, 0.1, reset=True), ReplyCutOff, "broke", 50),
    "no length": (lambda it: it.writes(STREAM_HEAD + b"\r\n" + TOKEN), ReplyCutOff, "", 1),
    "an error within": (lambda it: it.streams(CRASHED), EngineFailed, "", 20),
    "silent at first": (lambda it: it.writes(hold=True), EngineUnreachable, "has not answered", 0),
    "silent midway": (lambda it: it.streams(TOKEN, hold=True), EngineUnreachable, "stopped mid-answer", 1),
    "endless event": (lambda it: it.streams(*([b"data: " + b"x" * 1_000_000] * 9)), EngineFailed, "8.0 MiB", 0),
    "a web page": (
        lambda it: it.writes(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"),
        EngineFailed, "web page", 0,
    ),
    "mail": (lambda it: it.writes(b"220 mail ready\r\n\r\n"), EngineUnreachable, "does not speak HTTP", 0),
    "bytes": (lambda it: it.writes(b"\x00\x01\x02\x03\r\n\r\n"), EngineUnreachable, "does not speak HTTP", 0),
    "odd status": (lambda it: it.writes(b"HTTP/1.1 banana\r\n\r\n"), EngineUnreachable, "does not speak HTTP", 0),
    "half an error": (
        lambda it: it.writes(b'HTTP/1.1 401 X\r\nContent-Length: 500\r\n\r\n{"error":"Unaut'), ApiKeyRejected, "", 0,
    ),
    "no key": (lambda it: it.says(401, '{"error":"Unauthorized"}'), ApiKeyRejected, "", 0),
    "too long": (lambda it: it.says(*api_fixtures.error("too-long-prompt-stream")), ContextOverflow, "", 0),
    "no such page": (lambda it: it.says(*api_fixtures.error("not-found")), NoSuchPath, "", 0),
    "busy": (lambda it: it.says(429, ""), EngineBusy, "", 0),
    "loading": (lambda it: it.says(503, '{"error":{"message":"Loading model"}}'), EngineUnreachable, "", 0),
    "a huge error": (lambda it: it.says(500, "x" * 300_000), EngineFailed, "", 0),
}  # fmt: skip


@pytest.mark.parametrize("api", [0.4], indirect=True, ids=[""])
@pytest.mark.parametrize(("script", "kind", "summary", "length"), BAD.values(), ids=BAD)
async def test_an_answer_that_ends_badly_keeps_what_came_and_says_why(
    server: Server, api: VllmApi, script: Callable[[Server], None], kind: type[SparkError], summary: str, length: int
) -> None:
    script(server)
    found, error = await answer(api, server.endpoint)
    assert type(error) is kind
    assert summary in error.summary
    assert error.remedy
    assert len(found.content) >= length
    if not length:
        assert found == Answer(0.0)
    if "HTTP" in summary:
        assert await api.health(server.endpoint) is Health.UNKNOWN


@pytest.mark.parametrize(
    "url", ["", "not an address", "ftp://127.0.0.1:9", "http://[::1", "http://no-such-host.invalid:80"]
)
async def test_an_address_that_cannot_be_used_is_an_error_with_a_remedy(
    api: VllmApi, closed_port: Endpoint, url: str
) -> None:
    endpoint = Endpoint(url) if url else closed_port
    _, error = await answer(api, endpoint)
    assert isinstance(error, EngineUnreachable)
    assert endpoint.base_url in error.summary
    assert "spark-tui ps" in error.remedy if not url else error.remedy
    assert await api.health(endpoint) is (Health.UNKNOWN if url else Health.NOT_LISTENING)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not-listed"])
async def test_a_model_that_is_not_served_names_those_that_are(server: Server, api: VllmApi, listed: bool) -> None:
    server.says(404, UNKNOWN_MODEL)
    if listed:
        server.says(200, api_fixtures.answer("models")[1].replace('"id":"tiny"', '"id":"smol"'), path="/v1/models")
    _, error = await answer(api, server.endpoint)
    assert isinstance(error, ModelNotServed)
    assert error.served == (("smol",) if listed else ())
    assert ("smol" in error.remedy) is listed


async def test_a_request_that_json_cannot_carry_is_never_sent(server: Server, api: VllmApi) -> None:
    request = ChatRequest("tiny", REQUEST.messages, REQUEST.parameters.__class__(temperature=float("nan")))
    _, error = await answer(api, server.endpoint, request)
    assert isinstance(error, UsageError)
    assert server.asked == []


# --- stopping -------------------------------------------------------------------------------------------


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
        (500, "x" * 200_000, Health.FAILING),
    ],
)
async def test_health_has_a_word_for_each_answer(
    server: Server, api: VllmApi, status: int, body: str, health: Health
) -> None:
    server.says(status, body)
    assert await api.health(server.endpoint) is health


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
    assert await api.models(server.endpoint) == (ServedModel("tiny", "/srv/vllm/tiny", 512, owner="vllm"),)
    assert await api.version(server.endpoint) == "0.32.0"


async def test_a_list_of_models_is_read_whole_without_odd_entries(server: Server, api: VllmApi) -> None:
    odd: list[object] = [{"id": "a", "max_model_len": "4k"}, {"no": "id"}, 3, None]
    server.says(200, json.dumps({"data": odd + [{"id": f"lora-{n}", "root": "/" + "x" * 400} for n in range(500)]}))
    found = await api.models(server.endpoint)
    assert (len(found), found[0]) == (501, ServedModel("a", "", None))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, '{"error":"Unauthorized"}', ApiKeyRejected),
        (404, "", NoSuchPath),
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
async def test_a_server_without_a_version_has_none_and_one_that_is_away_is_an_error(
    server: Server, api: VllmApi, closed_port: Endpoint, status: int
) -> None:
    server.says(status, '{"detail":"Not Found"}')
    assert await api.version(server.endpoint) == ""
    with pytest.raises(EngineUnreachable):
        await api.version(closed_port)


@pytest.mark.parametrize("status", [200, 500])
async def test_a_compressed_answer_is_not_unpacked(server: Server, api: VllmApi, status: int) -> None:
    packed, metrics = packed_blanks(500), HttpMetrics()
    head = b"HTTP/1.1 %d X\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (status, len(packed))
    server.writes(head, packed)
    tracemalloc.start()
    try:
        for ask in (api.models(server.endpoint), api.version(server.endpoint), metrics.read(server.endpoint)):
            with pytest.raises(SparkError):
                await ask
        await api.health(server.endpoint)
        _, error = await answer(api, server.endpoint)
        assert error is not None
        assert tracemalloc.get_traced_memory()[1] < 48 * 1024 * 1024
    finally:
        tracemalloc.stop()
        await metrics.close()


async def test_a_list_of_models_without_an_end_is_an_error_that_says_how_much_came(
    server: Server, api: VllmApi
) -> None:
    server.writes(b"HTTP/1.1 200 X\r\n\r\n", *[b" " * (1 << 20)] * 8)
    with pytest.raises(EngineFailed) as caught:
        await api.models(server.endpoint)
    assert "4.0 MiB" in caught.value.summary


# --- keys and proxies -----------------------------------------------------------------------------------


async def test_the_key_goes_into_the_header_and_nowhere_else(server: Server, api: VllmApi) -> None:
    server.says(401, '{"error":"Unauthorized"}')
    endpoint = Endpoint(server.endpoint.base_url, Secret(KEY))
    _, error = await answer(api, endpoint)
    assert error is not None
    request, headers, body = server.asked[0]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in request + body.decode()
    shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert KEY not in shown + repr(error.__dict__)


async def test_a_key_is_in_no_traceback_of_a_connection_that_fails(api: VllmApi, closed_port: Endpoint) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        await api.models(Endpoint(closed_port.base_url, Secret(KEY)))
    chain: BaseException | None = caught.value
    while chain is not None:
        shown = traceback.TracebackException.from_exception(chain, capture_locals=True)
        assert KEY not in "".join(shown.format())
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
    server: Server, api: VllmApi, closed_port: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, closed_port.base_url)
    server.says(200, "")
    assert await api.health(server.endpoint) is Health.OK


async def test_a_closed_client_can_be_used_again(server: Server, api: VllmApi) -> None:
    server.says(200, "")
    await api.health(server.endpoint)
    await api.close()
    assert await api.health(server.endpoint) is Health.OK
