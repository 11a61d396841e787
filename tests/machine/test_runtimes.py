"""The HTTP client against a small server per runtime, each answering in the words of that server.

The answers follow the servers' sources: vLLM 0.32, SGLang 0.5.23, TensorRT-LLM 1.2, llama.cpp b10689, Ollama 0.12.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from spark_tui.base.engine.message import AnswerBuilder, ChatParameters, ChatRequest, Message, Role
from spark_tui.base.engine.state import Endpoint, Health, ServedModel
from spark_tui.base.errors import ApiKeyRejected, EngineFailed, ModelNotServed
from spark_tui.base.secret import Secret
from spark_tui.machine.engine_api import VllmApi
from tests.api_fixtures import Server

KEY = "planted-key"
CHAT = "/v1/chat/completions"


def card(name: str, owner: str, **more: object) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 1795228008, "owned_by": owner, **more}


def listing(*cards: dict[str, object]) -> str:
    return json.dumps({"object": "list", "data": list(cards)})


def stream(*deltas: dict[str, str]) -> bytes:
    """A stream in the shape that all five share."""
    chunks: list[dict[str, object]] = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in ({"role": "assistant", "content": ""}, *deltas)
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Voice:
    """What a server says: by path, while it loads and once it is ready."""

    runtime: str
    ready: dict[str, tuple[int, str]]
    loading: dict[str, tuple[int, str]]
    open_paths: tuple[str, ...]
    refusal: str
    missing: str
    deltas: tuple[dict[str, str], ...]
    models: tuple[ServedModel, ...]
    version: str
    while_loading: Health
    reasoning: str = "Hm."
    takes_keys: bool = True


THOUGHT = ({"reasoning_content": "Hm."}, {"content": "Hi."})
LOADING_LLAMA = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'

VOICES = {
    "vllm": Voice(
        "vllm",
        ready={
            "/health": (200, ""),
            "/v1/models": (
                200,
                listing(card("tiny", "vllm", root="tiny/tiny-qwen3", parent=None, max_model_len=2048, permission=[])),
            ),
            "/version": (200, '{"version":"0.32.0"}'),
        },
        loading={"/health": (503, "")},
        open_paths=("/health", "/version", "/metrics"),
        refusal='{"error":"Unauthorized"}',
        missing='{"error":{"message":"The model `other` does not exist.","type":"NotFoundError","param":"model",'
        '"code":404}}',
        deltas=({"reasoning": "Hm."}, {"content": "Hi."}),
        models=(ServedModel("tiny", "tiny/tiny-qwen3", 2048, owner="vllm"),),
        version="0.32.0",
        while_loading=Health.DEAD,  # it does not listen before it is ready: a 503 is a dead engine core
    ),
    "sglang": Voice(
        "sglang",
        ready={
            "/health": (200, ""),
            "/v1/models": (
                200,
                listing(
                    card(
                        "nvidia/Qwen3-8B-NVFP4",
                        "sglang",
                        root="nvidia/Qwen3-8B-NVFP4",
                        parent=None,
                        max_model_len=40960,
                    )
                ),
            ),
            "/server_info": (200, '{"model_path":"nvidia/Qwen3-8B-NVFP4","internal_states":[{}],"version":"0.5.23"}'),
        },
        loading={"/health": (503, "")},
        open_paths=("/health", "/metrics"),
        refusal='{"error":"Unauthorized"}',
        missing='{"object":"error","message":"Model not found: the model \'other\' does not exist",'
        '"type":"NotFoundError","param":null,"code":404}',
        deltas=THOUGHT,
        models=(ServedModel("nvidia/Qwen3-8B-NVFP4", "nvidia/Qwen3-8B-NVFP4", 40960, owner="sglang"),),
        version="0.5.23",
        while_loading=Health.LOADING,
    ),
    "trtllm": Voice(
        "trtllm",
        ready={
            "/health": (200, ""),
            "/v1/models": (200, listing(card("nvidia/Qwen3-30B-A3B-NVFP4", "tensorrt_llm"))),
            "/version": (200, '{"version":"1.2.0rc6"}'),
        },
        loading={"/health": (503, "LLM is unavailable. Please check the server logs for more details.")},
        open_paths=(),
        refusal="",
        missing='{"object":"error","message":"The model other does not exist","type":"NotFoundError","param":null,'
        '"code":404}',
        deltas=THOUGHT,
        models=(ServedModel("nvidia/Qwen3-30B-A3B-NVFP4", owner="tensorrt_llm"),),
        version="1.2.0rc6",
        while_loading=Health.DEAD,
        takes_keys=False,
    ),
    "llama-cpp": Voice(
        "llama-cpp",
        ready={
            "/health": (200, '{"status":"ok"}'),
            "/v1/models": (
                200,
                json.dumps(
                    {
                        "models": [{"name": "qwen3-30b-a3b", "model": "qwen3-30b-a3b", "capabilities": ["completion"]}],
                        "object": "list",
                        "data": [
                            card(
                                "qwen3-30b-a3b",
                                "llamacpp",
                                meta={"vocab_type": 2, "n_vocab": 151936, "n_ctx_train": 40960, "size": 18550000000},
                            )
                        ],
                    }
                ),
            ),
            "/props": (
                200,
                '{"default_generation_settings":{"n_ctx":32768},"total_slots":1,"model_path":"/models/x.gguf",'
                '"build_info":"b10689-9f09598"}',
            ),
        },
        loading=dict.fromkeys(("/health", "/v1/models", "/props", CHAT), (503, LOADING_LLAMA)),
        open_paths=("/health",),
        refusal='{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}',
        missing='{"error":{"message":"model not found: other","type":"not_found_error","code":404}}',
        deltas=THOUGHT,
        models=(ServedModel("qwen3-30b-a3b", owner="llamacpp"),),
        version="b10689-9f09598",
        while_loading=Health.LOADING,
    ),
    "ollama": Voice(
        "ollama",
        ready={
            "/": (200, "Ollama is running"),
            "/api/version": (200, '{"version":"0.12.6"}'),
            "/v1/models": (200, listing(card("llama3.2:latest", "library"), card("qwen3:32b", "library"))),
        },
        loading={
            "/api/version": (200, '{"version":"0.12.6"}'),
            "/v1/models": (200, '{"object":"list","data":null}'),
        },
        open_paths=(),
        refusal="",
        missing='{"error":{"message":"model \\"other\\" not found, try pulling it first","type":"api_error",'
        '"param":null,"code":null}}',
        deltas=({"reasoning": "Hm."}, {"content": "Hi."}),
        models=(ServedModel("qwen3:32b", owner="library"),),
        version="0.12.6",
        while_loading=Health.OK,  # the server runs, and has no model yet
        takes_keys=False,
    ),
}
MODEL = {"ollama": "qwen3:32b"}


class VoiceServer(Server):
    """A server on this machine with one of the voices."""

    def __init__(self, voice: Voice) -> None:
        super().__init__()
        self.voice = voice
        self.is_ready = True
        self.key = ""

    async def handle(self, writer: asyncio.StreamWriter) -> None:
        """The answer to what was asked last."""
        request, headers, body = self.asked[-1]
        path = request.split()[1]
        status, kind, raw = self.answer(path, headers.get("authorization", ""), body)
        head = b"HTTP/1.1 %d X\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % (status, kind, len(raw)) + raw)

    def answer(self, path: str, authorization: str, body: bytes) -> tuple[int, bytes, bytes]:
        pages = self.voice.ready if self.is_ready else self.voice.loading
        if self.key and path not in self.voice.open_paths and authorization != f"Bearer {self.key}":
            return 401, b"application/json", self.voice.refusal.encode()
        if path == CHAT and self.is_ready:
            if json.loads(body)["model"] != self.voice.models[0].id:
                return 404, b"application/json", self.voice.missing.encode()
            return 200, b"text/event-stream", stream(*self.voice.deltas)
        status, text = pages.get(path, (404, '{"detail":"Not Found"}'))
        return status, b"application/json", text.encode()


@pytest.fixture(params=list(VOICES))
async def server(request: pytest.FixtureRequest) -> AsyncIterator[VoiceServer]:
    server = VoiceServer(VOICES[request.param])
    server.handlers[""] = server.handle
    async with server.listening():
        server.endpoint = structs.replace(server.endpoint, runtime=request.param, model=MODEL.get(request.param, ""))
        yield server


@pytest.fixture
async def api() -> AsyncIterator[VllmApi]:
    api = VllmApi(read_seconds=5.0)
    yield api
    await api.close()


def question(model: str) -> ChatRequest:
    return ChatRequest(model, (Message(Role.USER, "ping"),), ChatParameters(max_tokens=3))


async def test_a_ready_server_is_healthy_lists_its_model_and_tells_its_version(
    server: VoiceServer, api: VllmApi
) -> None:
    assert await api.health(server.endpoint) is Health.OK
    assert await api.models(server.endpoint) == server.voice.models
    assert await api.version(server.endpoint) == server.voice.version


async def test_a_server_that_loads_is_never_taken_for_a_ready_one(server: VoiceServer, api: VllmApi) -> None:
    server.is_ready = False
    health = await api.health(server.endpoint)
    assert health is server.voice.while_loading
    assert health is not Health.OK or await api.models(server.endpoint) == ()


async def test_the_warm_up_is_answered_by_every_server(server: VoiceServer, api: VllmApi) -> None:
    builder = AnswerBuilder(0.0)
    async with aclosing(api.chat(server.endpoint, question(server.voice.models[0].id))) as events:
        async for event in events:
            builder.add(event, 1.0)
    answer = builder.snapshot()
    assert (answer.content, answer.reasoning) == ("Hi.", server.voice.reasoning)
    assert answer.usage is not None and answer.usage.completion_tokens == 3
    request, _, body = server.asked[-1]
    assert request.split()[:2] == ["POST", CHAT]
    assert json.loads(body)["max_tokens"] == 3


async def test_a_model_that_is_not_there_is_named_with_those_that_are(server: VoiceServer, api: VllmApi) -> None:
    with pytest.raises(ModelNotServed) as raised:
        async with aclosing(api.chat(server.endpoint, question("other"))) as events:
            async for _ in events:
                pass
    assert raised.value.served == tuple(model.id for model in server.voice.models)


@pytest.mark.parametrize("server", [name for name, voice in VOICES.items() if voice.takes_keys], indirect=True)
async def test_the_key_opens_what_is_closed_and_health_needs_none(server: VoiceServer, api: VllmApi) -> None:
    server.key = KEY
    assert await api.health(server.endpoint) is Health.OK
    with pytest.raises(ApiKeyRejected):
        await api.models(server.endpoint)
    opened = Endpoint(server.endpoint.base_url, Secret(KEY), server.endpoint.runtime, server.endpoint.model)
    assert await api.models(opened) == server.voice.models
    assert await api.version(opened) == server.voice.version


# --- peculiarities ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["ollama"], indirect=True)
async def test_ollama_lists_all_that_it_has_where_no_model_is_named(server: VoiceServer, api: VllmApi) -> None:
    everything = Endpoint(server.endpoint.base_url, None, "ollama")
    assert [model.id for model in await api.models(everything)] == ["llama3.2:latest", "qwen3:32b"]
    untagged = Endpoint(server.endpoint.base_url, None, "ollama", "llama3.2")
    assert [model.id for model in await api.models(untagged)] == ["llama3.2:latest"]
    other = Endpoint(server.endpoint.base_url, None, "ollama", "qwen3:8b")
    assert await api.models(other) == (), "still being pulled, whatever else is there"


@pytest.mark.parametrize("server", ["sglang"], indirect=True)
async def test_an_older_sglang_tells_its_version_elsewhere(server: VoiceServer, api: VllmApi) -> None:
    page = server.voice.ready["/server_info"]
    ready = {path: told for path, told in server.voice.ready.items() if path != "/server_info"}
    server.voice = replace(server.voice, ready=ready | {"/get_server_info": page})
    assert await api.version(server.endpoint) == "0.5.23"


@pytest.mark.parametrize("server", ["vllm", "sglang", "llama-cpp", "trtllm"], indirect=True)
async def test_no_list_is_an_error_where_the_server_always_lists(server: VoiceServer, api: VllmApi) -> None:
    ready = server.voice.ready | {"/v1/models": (200, '{"object":"list","data":null}')}
    server.voice = replace(server.voice, ready=ready)
    with pytest.raises(EngineFailed):
        await api.models(server.endpoint)


async def test_a_server_without_a_version_page_is_no_error(server: VoiceServer, api: VllmApi) -> None:
    kept = {path: told for path, told in server.voice.ready.items() if path in ("/health", "/v1/models")}
    server.voice = replace(server.voice, ready=kept)
    assert await api.version(server.endpoint) == ""
