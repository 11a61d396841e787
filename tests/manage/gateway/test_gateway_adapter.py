"""The gateway over real HTTP: what passes unchanged, what it refuses, and what a client sees when something fails."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from spark_tui.base.engine.answer import SseDecoder
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import EngineExited
from spark_tui.base.gateway import KeysUnreadable
from spark_tui.base.secret import Secret
from spark_tui.machine.engine_api import VllmApi
from spark_tui.manage.gateway.adapter.server import MAX_BODY_BYTES, GatewayLog, GatewayProxy
from tests.gateway_kit import DONE, ENGINE_KEY, EVENT, ScriptedRouter, Upstreamer, gateway

CHAT = "/v1/chat/completions"


@pytest.fixture
async def engine() -> AsyncIterator[Upstreamer]:
    async with Upstreamer().running() as engine:
        yield engine


@pytest.fixture
def router(engine: Upstreamer) -> ScriptedRouter:
    return ScriptedRouter(engine.port)


@pytest.fixture
async def client(router: ScriptedRouter) -> AsyncIterator[httpx2.AsyncClient]:
    async with gateway(router) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def events(data: bytes) -> list[str]:
    return list(SseDecoder().feed(data))


async def test_a_stream_passes_byte_by_byte(client: httpx2.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m", "stream": True, "n": 5})
    assert answer.content == EVENT * 5 + DONE
    assert answer.headers["content-type"] == "text/event-stream"


async def test_another_gateway_reads_what_serves_here_and_passes_requests_with_its_own_key(
    client: httpx2.AsyncClient, router: ScriptedRouter, engine: Upstreamer
) -> None:
    """Two gateways in a row: the second one's client and its key are not known to the first one."""
    router.keyed = True
    api, near = VllmApi(), Endpoint(str(client.base_url), Secret("good"))
    listed = await api.models(near)
    await api.close()
    assert [(each.id, each.serving, each.max_model_len) for each in listed] == [
        ("m", True, 4096),
        ("other", False, None),
    ]
    behind = ScriptedRouter(0)
    behind.endpoint = near
    async with gateway(behind) as far:
        answer = await far.post(
            CHAT, json={"model": "m", "stream": True, "n": 5}, headers={"authorization": "Bearer x"}
        )
    assert answer.content == EVENT * 5 + DONE
    assert engine.headers[-1]["authorization"] == f"Bearer {ENGINE_KEY}"


async def test_each_event_arrives_when_the_engine_sends_it(client: httpx2.AsyncClient, engine: Upstreamer) -> None:
    async with client.stream("POST", CHAT, json={"model": "m", "stream": True, "n": 2, "gap": 0.01}) as answer:
        pieces = answer.aiter_raw()
        assert await anext(pieces) == EVENT
        engine.hold.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                while True:
                    await anext(pieces)
    engine.hold.set()


async def test_the_body_is_the_client_s_own_and_keys_stay_on_their_side(
    client: httpx2.AsyncClient, engine: Upstreamer, router: ScriptedRouter
) -> None:
    router.keyed = True
    body = b'{ "model":"m",\n  "n": 1, "x": 1.50, "y": "\\u00e9" }'
    headers = {"Authorization": "Bearer good", "Content-Type": "application/json", "x-trace": "7"}
    answer = await client.post(f"{CHAT}?a=b%20c", content=body, headers=headers)
    assert answer.status_code == 200
    assert engine.bodies == [body]
    [sent] = engine.headers
    assert sent["authorization"] == f"Bearer {ENGINE_KEY}"
    assert sent["x-trace"] == "7"
    assert ENGINE_KEY not in str(answer.headers) + answer.text
    assert "good" not in sent.values()


async def test_only_the_name_is_rewritten_for_an_alias(client: httpx2.AsyncClient, engine: Upstreamer) -> None:
    await client.post(
        CHAT, content=b'{"model": "alias", "n": 1, "x": 1.50}', headers={"Content-Type": "application/json"}
    )
    [sent] = engine.bodies
    assert json.loads(sent)["model"] == "m"
    assert b"1.50" in sent


async def test_an_engine_s_error_passes_unchanged(client: httpx2.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m", "plan": "refuse"})
    assert (answer.status_code, answer.content, answer.headers["x-own"]) == (422, b'{"odd": true}', "1")


@pytest.mark.parametrize("given", ["good", "bad", "Good"])
@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_a_key_is_taken_from_either_header(
    client: httpx2.AsyncClient, router: ScriptedRouter, header: str, given: str
) -> None:
    router.keyed = True
    value = f"Bearer {given}" if header == "authorization" else given
    answer = await client.post(CHAT, json={"model": "m", "n": 1}, headers={header: value})
    assert answer.status_code == (200 if given == "good" else 401)
    assert (await client.get("/v1/models", headers={header: value})).status_code == answer.status_code


async def test_a_page_of_another_name_is_refused_without_keys(client: httpx2.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m"}, headers={"Host": "evil.example:8080"})
    assert answer.status_code == 401


async def test_the_list_says_what_serves_and_what_could(client: httpx2.AsyncClient) -> None:
    rows = (await client.get("/v1/models")).json()["data"]
    assert [(row["id"], row["serving"], row["max_model_len"]) for row in rows] == [
        ("m", True, 4096), ("other", False, None),
    ]  # fmt: skip
    assert (await client.get("/v1/models/m")).json()["id"] == "m"
    assert (await client.get("/v1/models/nothing")).status_code == 404


@pytest.mark.parametrize("path", ["/sleep", "/metrics", "/v1/load_lora_adapter", "/collective_rpc", "/"])
async def test_an_engine_s_administration_is_not_reached(
    client: httpx2.AsyncClient, engine: Upstreamer, path: str
) -> None:
    assert (await client.post(path, json={"model": "m"})).status_code == 404
    assert not engine.bodies


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"", "application/json", 400),
        (b'{"model": 7}', "application/json", 400),
        (b'{"model": "m"', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"model": "\xed\xa0\x80"}', "application/json", 400),
        (b'{"model": "m"}', "text/plain", 400),
        (b'{"model": "\\u001b[2Jnope"}', "application/json", 404),
    ],
)
async def test_a_body_that_names_no_model_is_refused_well_formed(
    client: httpx2.AsyncClient, engine: Upstreamer, body: bytes, kind: str, status: int
) -> None:
    answer = await client.post(CHAT, content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert "\x1b" not in answer.text
    assert not engine.bodies


async def test_the_anthropic_api_has_errors_of_its_own_shape(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/messages", json={})
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_hundred_megabytes_are_refused_without_being_held(
    client: httpx2.AsyncClient, engine: Upstreamer, chunked: bool
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1024 * 1024

    headers = {"Content-Type": "application/json"} | ({} if chunked else {"Content-Length": str(100 * 1024 * 1024)})
    tracemalloc.start()
    answer = await client.post(CHAT, content=pieces(), headers=headers)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status_code == 413
    assert most < 2 * MAX_BODY_BYTES
    assert not engine.bodies


async def test_a_chunked_body_passes(client: httpx2.AsyncClient, engine: Upstreamer) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in b'{"model": "m", "n": 1}':
            yield bytes((byte,))

    answer = await client.post(CHAT, content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert engine.bodies == [b'{"model": "m", "n": 1}']


async def test_what_is_held_of_all_requests_is_bounded_and_given_back(router: ScriptedRouter) -> None:
    proxy = GatewayProxy(router, GatewayLog())
    with proxy._holding() as first, proxy._holding() as second:
        assert first(200 * 1024 * 1024)
        assert not second(100 * 1024 * 1024)
        assert second(10)
    assert proxy.held_bytes == 0


# --- who leaves, and what dies ----------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_request_at_the_engine(
    client: httpx2.AsyncClient, engine: Upstreamer, router: ScriptedRouter, stream: bool
) -> None:
    engine.hold.clear()
    asking = asyncio.ensure_future(client.post(CHAT, json={"model": "m", "stream": stream}))
    await until(lambda: bool(engine.bodies))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: engine.left == 1 and router.in_flight == 0)


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_an_engine_that_dies_in_mid_stream_leaves_a_whole_error_event(
    client: httpx2.AsyncClient, router: ScriptedRouter, path: str
) -> None:
    answer = await client.post(path, json={"model": "m", "stream": True, "plan": "die"})
    found = events(answer.content)
    assert answer.content.startswith(EVENT * 3)
    objects = [json.loads(each) for each in found if each != "[DONE]"]
    assert "error" in objects[-1] or objects[-1]["type"] == "error"
    assert answer.content.endswith(b"\n\n")
    assert router.broken_engines == ["engine"]


async def test_an_engine_that_dies_in_a_plain_answer_cuts_the_connection(client: httpx2.AsyncClient) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post(CHAT, json={"model": "m", "plan": "die"})


async def test_an_engine_that_says_nothing_is_a_bad_gateway(client: httpx2.AsyncClient, router: ScriptedRouter) -> None:
    answer = await client.post(CHAT, json={"model": "m", "plan": "silent"})
    assert answer.status_code == 502
    assert router.broken_engines == ["engine"]


async def test_a_slow_reader_holds_the_engine_back(
    client: httpx2.AsyncClient, engine: Upstreamer, router: ScriptedRouter
) -> None:
    async with client.stream("POST", CHAT, json={"model": "m", "stream": True, "plan": "big"}) as answer:
        pieces = answer.aiter_raw()
        await anext(pieces)
        sent = -1
        while sent != engine.sent:  # until nothing moves: every buffer on the way is full
            sent = engine.sent
            await asyncio.sleep(0.5)
        assert sent < 40_000_000
    await until(lambda: router.in_flight == 0)


# --- a key that is revoked, and keys that cannot be read ------------------------------------------------------

KEYED = {"Authorization": "Bearer good"}


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("launching", [False, True])
async def test_a_revoked_key_ends_its_open_streams_with_a_whole_error_event(
    client: httpx2.AsyncClient, router: ScriptedRouter, engine: Upstreamer, path: str, launching: bool
) -> None:
    """Also of one that waits for its engine. Others go on."""
    router.keyed, router.launching = True, launching
    router.known.add("other")
    body = {"model": "m", "stream": True, "n": 10_000, "gap": 0.01}
    other = {"Authorization": "Bearer other"}
    async with client.stream("POST", path, json=body, headers=other) as kept:
        async with client.stream("POST", path, json=body, headers=KEYED) as answer:
            pieces = answer.aiter_raw()
            got = await anext(pieces)
            router.known.discard("good")
            async with asyncio.timeout(20):
                got += b"".join([piece async for piece in pieces])
        found = [json.loads(each) for each in events(got) if each != "[DONE]"]
        assert "error" in found[-1] or found[-1]["type"] == "error"
        assert got.endswith(b"\n\n")
        await until(lambda: (router.in_flight, router.waiting, engine.left) == ((0, 1, 0) if launching else (1, 0, 1)))
        assert await anext(kept.aiter_raw())


async def test_a_revoked_key_ends_a_plain_answer(
    client: httpx2.AsyncClient, router: ScriptedRouter, engine: Upstreamer
) -> None:
    """Before its first byte by an error, later by the end of the connection."""
    router.keyed = True
    engine.hold.clear()
    asking = asyncio.ensure_future(client.post(CHAT, json={"model": "m"}, headers=KEYED))
    await until(lambda: bool(engine.bodies))
    router.known.clear()
    with pytest.raises(httpx2.RemoteProtocolError):
        await asking
    await until(lambda: router.in_flight == 0 and engine.left == 1)


async def test_where_the_keys_are_is_for_the_owner_alone_and_open_answers_go_on(
    client: httpx2.AsyncClient, router: ScriptedRouter, caplog: pytest.LogCaptureFixture
) -> None:
    router.keyed = True
    body = {"model": "m", "stream": True, "n": 200, "gap": 0.01}
    async with client.stream("POST", CHAT, json=body, headers=KEYED) as answer:
        pieces = answer.aiter_raw()
        await anext(pieces)
        router.problem = KeysUnreadable("No keys now.", "Ask.", detail="/home/somebody/keys.json is damaged")
        for _ in range(3):
            for refused in (await client.get("/v1/models"), await client.post(CHAT, json={"model": "m"})):
                assert refused.status_code == 503
                assert "somebody" not in refused.text + str(refused.headers)
        assert DONE in b"".join([piece async for piece in pieces])
    assert [record.getMessage() for record in caplog.records] == ["/home/somebody/keys.json is damaged"]


# --- while an engine is launched --------------------------------------------------------------------------


async def test_a_streaming_client_is_kept_alive_and_then_served(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    router.launching = True
    async with client.stream("POST", CHAT, json={"model": "m", "stream": True}) as answer:
        pieces = answer.aiter_raw()
        first = await anext(pieces)
        assert first.startswith(b": ")
        assert b"90 s" in first
        assert events(first) == []
        router.launch()
        rest = b"".join([piece async for piece in pieces])
    assert rest.endswith(EVENT * 3 + DONE)


@pytest.mark.parametrize(("seconds", "header"), [(90.0, "90"), (0.2, "1"), (None, "30"), (1e9, "600")])
async def test_another_client_learns_when_to_come_back(
    client: httpx2.AsyncClient, router: ScriptedRouter, seconds: float | None, header: str
) -> None:
    router.launching, router.seconds = True, seconds
    answer = await client.post(CHAT, json={"model": "m"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, header)
    assert answer.json()["error"]["code"] == "engine_starting"


async def test_those_who_wait_get_the_cause_of_a_failed_launch(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    router.launching, router.cause = True, EngineExited("It ended before it was ready.", "Read its log.")
    asking = asyncio.ensure_future(client.post(CHAT, json={"model": "m", "stream": True}))
    await until(lambda: router.waiting == 1)
    router.launch()
    found = events((await asking).content)
    assert json.loads(found[0])["error"]["code"] == "engine_exited"
    assert found[1] == "[DONE]"


async def test_an_error_after_the_wait_is_an_event(client: httpx2.AsyncClient, router: ScriptedRouter) -> None:
    router.launching = True
    asking = asyncio.ensure_future(client.post(CHAT, json={"model": "m", "stream": True, "plan": "refuse"}))
    await until(lambda: router.waiting == 1)
    router.launch()
    found = events((await asking).content)
    assert "odd" in json.loads(found[0])["error"]["message"]


async def test_a_client_that_leaves_while_it_waits_is_forgotten(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    router.launching = True
    asking = asyncio.ensure_future(client.post(CHAT, json={"model": "m", "stream": True}))
    await until(lambda: router.waiting == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: router.waiting == 0)
    assert router.leases == 0


# --- what is counted by client ----------------------------------------------------------------------------

USAGE = '"usage":{"prompt_tokens":90,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":64}}'
CHUNK = 'data: {"choices":[{"index":0,"delta":{"content":"a \\"usage\\":{\\"prompt_tokens\\":1}"}}],"usage":null}\n\n'
STREAMS = {
    CHAT: f'{CHUNK}data: {{"choices":[],{USAGE}}}\n\ndata: [DONE]\n\n',
    "/v1/responses": 'event: response.completed\ndata: {"type":"response.completed","response":{"output":[],"usage":'
    '{"input_tokens":90,"input_tokens_details":{"cached_tokens":64},"output_tokens":4,'
    '"output_tokens_details":{"reasoning_tokens":0},"total_tokens":94}}}\n\n',
    "/v1/messages": 'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":90,'
    '"output_tokens":0}}}\n\nevent: message_delta\ndata: {"type":"message_delta","delta":{},"usage":'
    '{"input_tokens":26,"output_tokens":4,"cache_read_input_tokens":64,"cache_creation_input_tokens":0}}\n\n',
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_s_usage_is_read_while_its_bytes_pass_unchanged(
    client: httpx2.AsyncClient, router: ScriptedRouter, path: str, size: int
) -> None:
    body = {"model": "m", "stream": True, "answer": STREAMS[path], "size": size}
    answer = await client.post(path, json=body, headers={"User-Agent": "claude-cli/2.0 (external)"})
    assert answer.text == STREAMS[path]
    await until(lambda: bool(router.turns))
    (turn,) = router.turns
    assert (turn.client, turn.engine, turn.path) == ("claude-cli", "engine", path)
    assert (turn.prompt_tokens, turn.cached_tokens) == (90, 64)
    assert turn.first_seconds is not None and turn.first_seconds > 0


async def test_a_plain_answer_s_usage_is_read_at_its_end(client: httpx2.AsyncClient, router: ScriptedRouter) -> None:
    text = '{"choices":[{"message":{"content":"' + "long " * 50_000 + f'"}}}}],{USAGE}}}'
    answer = await client.post(CHAT, json={"model": "m", "answer": text, "size": 5000})
    assert answer.text == text
    await until(lambda: bool(router.turns))
    assert (router.turns[0].prompt_tokens, router.turns[0].cached_tokens) == (90, 64)
    assert router.turns[0].first_seconds is None


async def test_an_answer_without_usage_leaves_its_tokens_unknown(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    await client.post(CHAT, json={"model": "m", "stream": True})
    await until(lambda: bool(router.turns))
    assert (router.turns[0].prompt_tokens, router.turns[0].cached_tokens) == (None, None)


async def test_a_client_is_named_by_its_key_before_its_program(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    router.keyed = True
    headers = {"Authorization": "Bearer good", "User-Agent": "aider/1"}
    await client.post(CHAT, json={"model": "m"}, headers=headers)
    await until(lambda: bool(router.turns))
    assert router.turns[0].client == "client of good"


async def test_prompts_are_compared_from_their_system_prompt_on(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    """A body's fields may come in any order; the sampling is no part of the prompt."""
    system, said = "You are an agent. " * 100, [{"role": "user", "content": "hello"}]
    await client.post("/v1/messages", json={"model": "m", "system": system, "messages": said, "temperature": 0})
    more = [*said, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "go on"}]
    await client.post("/v1/messages", json={"temperature": 1, "messages": more, "system": system, "model": "m"})
    await until(lambda: len(router.turns) == 2)
    first, second = (turn.prompt for turn in router.turns)
    assert second.alike(first) == 1024
    assert first.kin == second.kin


@pytest.mark.parametrize(
    "body",
    [
        {}, {"messages": "x"}, {"messages": []}, {"messages": 7}, {"messages": None}, {"input": "text"},
        {"prompt": ["a", "b"]}, {"messages": [None], "tools": 5, "system": {}},
    ],
)  # fmt: skip
async def test_a_strange_prompt_is_passed_and_counted(
    client: httpx2.AsyncClient, router: ScriptedRouter, body: dict[str, object]
) -> None:
    assert (await client.post(CHAT, json={"model": "m", **body})).status_code == 200
    await until(lambda: len(router.turns) == 1)


async def test_refused_requests_and_those_without_an_answer_s_text_are_not_counted(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    await client.post(CHAT, json={"model": "m", "plan": "refuse"})
    await client.post("/v1/embeddings", json={"model": "m"})
    await client.post(CHAT, json={"model": "nothing"})
    assert router.turns == []


async def test_a_client_that_leaves_in_mid_stream_is_counted(
    client: httpx2.AsyncClient, router: ScriptedRouter
) -> None:
    async with client.stream("POST", CHAT, json={"model": "m", "stream": True, "n": 1000, "gap": 0.01}) as answer:
        await anext(answer.aiter_raw())
    await until(lambda: len(router.turns) == 1)
    assert router.turns[0].first_seconds is not None
