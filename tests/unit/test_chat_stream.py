"""Recorded streams become answers, whatever the chunk boundaries; errors keep what came before them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.domain.api_errors import api_error, message_of
from spark_tui.domain.chat import (
    Answer,
    ChatParameters,
    ChatRequest,
    ContentDelta,
    Finished,
    Message,
    ReasoningDelta,
    Role,
    ToolCall,
    ToolCallDelta,
    Usage,
    advance,
)
from spark_tui.domain.chat_stream import StreamReader, request_body
from spark_tui.domain.errors import (
    ApiKeyRejected,
    BadRequest,
    ContextOverflow,
    EngineDead,
    EngineFailed,
    ModelNotServed,
    ReplyCutOff,
    SparkError,
)
from spark_tui.domain.sse import SseDecoder
from tests import api_fixtures


def replay(raw: bytes, cuts: tuple[int, ...] = ()) -> tuple[Answer, SparkError | None]:
    places = sorted({0, *(cut % (len(raw) + 1) for cut in cuts), len(raw)})
    decoder, reader, answer = SseDecoder(), StreamReader(), Answer(0.0)
    try:
        for a, b in zip(places, places[1:], strict=False):
            for data in decoder.feed(raw[a:b]):
                for event in reader.read(data):
                    answer = advance(answer, event, 1.0)
        reader.close()
    except SparkError as error:
        return answer, error
    return answer, None


@pytest.mark.parametrize("name", api_fixtures.STREAMS)
@given(cuts=st.lists(st.integers(0, 10**6), max_size=20))
def test_a_transcript_replays_to_the_same_answer_whatever_the_chunks(name: str, cuts: list[int]) -> None:
    raw = api_fixtures.stream(name)
    (whole, problem), (cut, cut_problem) = replay(raw), replay(raw, tuple(cuts))
    assert cut == whole
    assert type(problem) is type(cut_problem)


def test_reasoning_and_content_are_told_apart() -> None:
    answer, error = replay(api_fixtures.stream("chat-stream-think-then-content"))
    assert error is None
    assert answer.reasoning
    assert answer.content
    assert answer.usage is not None


def test_a_tool_call_is_put_together() -> None:
    answer, error = replay(api_fixtures.stream("chat-stream-toolcall"))
    assert error is None
    [call] = answer.tool_calls
    assert call.name == "get_weather"
    assert call.id.startswith("chatcmpl-tool-")
    assert call.arguments


def test_an_answer_without_usage_says_that_it_is_unknown() -> None:
    answer, error = replay(api_fixtures.stream("chat-stream-nousage"))
    assert error is None
    assert answer.usage is None
    assert answer.decode_tokens_per_second is None


def test_an_engine_killed_in_mid_answer_keeps_the_part_that_came() -> None:
    answer, error = replay(api_fixtures.stream("crash-engine-sigkill-client1"))
    assert isinstance(error, EngineFailed)
    assert "EngineCore encountered an issue" in error.detail or "EngineCore" in error.summary
    assert len(answer.content) > 20


def test_a_stream_that_ends_without_its_end_is_cut_off() -> None:
    answer, error = replay(api_fixtures.stream("sigterm-inflight-client2"))
    assert isinstance(error, ReplyCutOff)
    assert answer.content == ""


def chunk(delta: object, **more: object) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, **more}]})


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (chunk({"role": "assistant", "content": ""}), []),
        (chunk({"reasoning": "a", "reasoning_content": "a"}), [ReasoningDelta("a")]),
        (chunk({"reasoning_content": "a"}), [ReasoningDelta("a")]),
        (chunk({"content": "a"}, finish_reason="stop"), [ContentDelta("a"), Finished("stop")]),
        (chunk({"tool_calls": [{"function": {"name": "f", "arguments": None}}]}), [ToolCallDelta(0, "", "f", "")]),
        (chunk({"tool_calls": [None, 3]}), []),
        (chunk(None), []),
        ('{"choices": null}', []),
        ('{"choices": [{"index": 1, "delta": {"content": "other"}}]}', []),
        ('{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}', [Usage(3, 4)]),
        ('{"usage": {"prompt_tokens": "3"}}', []),
        ("[1, 2]", []),
        ("[DONE]", []),
    ],
)
def test_each_chunk_gives_its_events(data: str, events: list) -> None:
    assert list(StreamReader().read(data)) == events


def test_what_is_not_json_is_an_error_with_its_text() -> None:
    with pytest.raises(EngineFailed) as caught:
        list(StreamReader().read("<html>busy</html>"))
    assert "busy" in caught.value.detail


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("bad-model", ModelNotServed, "`nope` does not exist"),
        ("too-long-prompt", ContextOverflow, "512 tokens"),
        ("prompt-plus-max-tokens", ContextOverflow, "512 tokens"),
        ("no-api-key", ApiKeyRejected, "key"),
        ("wrong-api-key", ApiKeyRejected, "key"),
        ("not-found", ModelNotServed, "no such"),
        ("tools-auto-without-parser", BadRequest, "--enable-auto-tool-choice"),
        ("bad-temperature", BadRequest, "temperature"),
        ("missing-messages", BadRequest, "messages"),
        ("bad-json", BadRequest, "JSON"),
        ("during-drain", EngineFailed, "shutdown"),
    ],
)
def test_a_real_error_answer_has_its_meaning(name: str, kind: type[SparkError], words: str) -> None:
    error = api_error(*api_fixtures.error(name))
    assert type(error) is kind
    assert words.lower() in (error.summary + error.detail).lower()
    assert error.remedy


def test_an_error_from_a_proxy_is_text_and_bounded() -> None:
    error = api_error(502, "<html><h1>Bad \x1b]0;x\x07Gateway</h1>" + "x" * 10_000)
    assert isinstance(error, EngineFailed)
    assert "Bad Gateway" in error.summary
    assert len(error.summary) < 1000
    assert isinstance(api_error(503, ""), EngineDead)


@given(st.text())
def test_any_error_body_has_some_message(body: str) -> None:
    assert "\x1b" not in message_of(body)


@given(st.text(max_size=200))
def test_any_data_gives_events_or_an_error_of_ours(data: str) -> None:
    try:
        list(StreamReader().read(data))
    except SparkError as error:
        assert error.remedy


def test_only_what_was_set_is_sent() -> None:
    request = ChatRequest("m", (Message(Role.USER, "hi"),))
    assert set(request_body(request)) == {"model", "messages", "stream", "stream_options"}
    full = ChatRequest("m", request.messages, ChatParameters(0.0, 0.9, 7, 1, thinking=False, reasoning_effort="low"))
    body = request_body(full)
    assert body["temperature"] == 0.0
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["max_tokens"] == 7


def test_a_tool_conversation_goes_back_as_the_api_wants_it() -> None:
    messages = (
        Message(Role.ASSISTANT, "", tool_calls=(ToolCall("c1", "f", "{}"),)),
        Message(Role.TOOL, "42", tool_call_id="c1"),
    )
    called, result = request_body(ChatRequest("m", messages))["messages"]
    assert called["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert result["tool_call_id"] == "c1"
