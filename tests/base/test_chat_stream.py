"""Recorded streams become answers, whatever the chunk boundaries; errors keep what came before them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.engine.answer import SseDecoder, StreamReader
from spark_tui.base.engine.message import (
    Answer,
    AnswerBuilder,
    AnswerFinished,
    ContentDelta,
    ReasoningDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from spark_tui.base.errors import BadRequest, ContextOverflow, EngineFailed, ReplyCutOff, SparkError
from tests import api_fixtures
from tests.cases import all_cases


def replay(raw: bytes, cuts: tuple[int, ...] = ()) -> tuple[Answer, SparkError | None]:
    places = sorted({0, *(cut % (len(raw) + 1) for cut in cuts), len(raw)})
    decoder, reader, builder = SseDecoder(), StreamReader(), AnswerBuilder(0.0)
    try:
        for a, b in pairwise(places):
            for data in decoder.feed(raw[a:b]):
                for event in reader.read(data):
                    builder.add(event, 1.0)
        reader.close()
    except SparkError as error:
        return builder.snapshot(), error
    return builder.snapshot(), None


# --- recorded -------------------------------------------------------------------------------------------


@all_cases("name", api_fixtures.STREAMS)
def test_a_transcript_replays_to_the_same_answer_whatever_the_chunks(name: str) -> None:
    raw = api_fixtures.stream(name)
    whole, problem = replay(raw)

    @settings(max_examples=15)
    @given(st.lists(st.integers(0, 10**6), max_size=20))
    def cut_anywhere(cuts: list[int]) -> None:
        cut, cut_problem = replay(raw, tuple(cuts))
        assert cut == whole
        assert type(problem) is type(cut_problem)

    cut_anywhere()


CUT_SHORT: dict[str, type[SparkError]] = {
    **{f"crash-{part}-sigkill-client{n}": EngineFailed for part in ("engine", "worker") for n in (1, 2)},
    **{f"sigterm-inflight-client{n}": ReplyCutOff for n in range(1, 7)},
}


@all_cases("name", api_fixtures.STREAMS)
def test_only_the_answers_that_were_cut_short_are_errors_and_keep_their_text(name: str) -> None:
    answer, error = replay(api_fixtures.stream(name))
    assert type(error) is CUT_SHORT.get(name, type(None))
    assert error is None or error.remedy
    match name:
        case "crash-engine-sigkill-client1":
            assert error is not None and error.summary == "The engine core died."
            assert "EngineCore encountered an issue" in error.detail
            assert len(answer.content) > 20
        case "sigterm-inflight-client1":
            assert error is not None and "aborted" in error.summary
            assert (answer.finish_reason, len(answer.content) > 20) == ("abort", True)
        case "sigterm-inflight-client2":  # `[DONE]` without an end
            assert answer.content == ""
        case "chat-stream-think-then-content":
            assert answer.reasoning.strip() and answer.content.strip()
            assert answer.usage is not None
            assert 0 < (answer.usage.reasoning_tokens or 0) < answer.usage.completion_tokens
        case "chat-stream-toolcall":
            [call] = answer.tool_calls
            assert (call.name, call.id[:14]) == ("get_weather", "chatcmpl-tool-")
            assert call.arguments
        case "chat-stream-nousage":
            assert answer.content or answer.reasoning
            assert (answer.usage, answer.decode_tokens_per_second) == (None, None)
        case "chat-stream-continuous-usage":
            assert answer.usage is not None and answer.usage.completion_tokens > 0


def test_every_recorded_stream_is_replayed() -> None:
    assert len(api_fixtures.STREAMS) == 38
    kinds = {name.partition("-")[0] for name in api_fixtures.STREAMS}
    assert kinds >= {"chat", "crash", "drain", "kvpressure", "think"}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_stream_that_just_ends_is_cut_off_and_keeps_what_came(share: float) -> None:
    raw = api_fixtures.stream("smollm2-stream")
    answer, error = replay(raw[: int(len(raw) * share)])
    assert isinstance(error, ReplyCutOff)
    assert answer.content


# --- single chunks --------------------------------------------------------------------------------------


def chunk(delta: object, **more: object) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, **more}]})


@all_cases(
    ("data", "events"),
    [
        (chunk({"role": "assistant", "content": ""}), []),
        (chunk({"reasoning": "a", "reasoning_content": "a"}), [ReasoningDelta("a")]),
        (chunk({"reasoning_content": "a"}), [ReasoningDelta("a")]),
        (chunk({"reasoning": "a", "content": "b"}), [ReasoningDelta("a"), ContentDelta("b")]),
        (chunk({"content": "a"}, finish_reason="stop"), [ContentDelta("a"), AnswerFinished("stop")]),
        (
            chunk(
                {"content": "a"},
                logprobs={"content": [{"token": "a", "logprob": -0.1, "top_logprobs": []}, {"token": "c"}, None]},
            ),
            [ContentDelta("a")],
        ),
        (chunk({"content": None, "reasoning_content": None, "tool_calls": None}, finish_reason=None), []),
        (chunk({"content": "a", "unheard_of": {"x": 1}}, logprobs=None, token_ids=[1]), [ContentDelta("a")]),
        (chunk({"tool_calls": [{"function": {"name": "f", "arguments": None}}]}), [ToolCallDelta(0, "", "f", "")]),
        (chunk({"tool_calls": [{"index": 3, "function": None}]}), [ToolCallDelta(0)]),
        (chunk({"tool_calls": [None, 3]}), []),
        (chunk({"tool_calls": [{"function": {"arguments": {"a": 1}}}]}), [ToolCallDelta(0, arguments='{"a": 1}')]),
        (chunk(None), []),
        ('{"choices": null}', []),
        ('{"choices": {}}', []),
        ('{"choices": [{"index": 1, "delta": {"content": "other"}}]}', []),
        (
            '{"choices": [{"index": 1, "delta": {"content": "x"}}, {"index": 0, "delta": {"content": "y"}}]}',
            [ContentDelta("y")],
        ),
        (
            '{"choices": [{"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}]}',
            [ContentDelta("whole"), AnswerFinished("stop")],
        ),
        ('{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}', [Usage(3, 4)]),
        (
            '{"usage": {"prompt_tokens": 3, "completion_tokens": 4, "completion_tokens_details": '
            '{"reasoning_tokens": 2}, "prompt_tokens_details": {"cached_tokens": 0}}}',
            [Usage(3, 4, 2, 0)],
        ),
        (
            '{"usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": null}}',
            [Usage(3, 4, None, None)],
        ),
        ('{"usage": {"prompt_tokens": "3", "completion_tokens": 4}}', []),
        ('{"usage": {"prompt_tokens": 3, "completion_tokens": true}}', []),
        ('{"usage": null}', []),
        ("[1, 2]", []),
        (" [DONE] ", []),
    ],
)
def test_each_chunk_gives_its_events(data: str, events: list[object]) -> None:
    assert list(StreamReader().read(data)) == events


def calls_of(*deltas: dict[str, object]) -> tuple[ToolCall, ...]:
    reader, builder = StreamReader(), AnswerBuilder(0.0)
    for delta in deltas:
        for event in reader.read(chunk({"tool_calls": [delta]})):
            builder.add(event, 1.0)
    return builder.snapshot().tool_calls


def call(index: int | None, id_: str | None, name: str | None, arguments: str | None) -> dict[str, object]:
    told: dict[str, object] = {"id": id_, "function": {"name": name, "arguments": arguments}}
    return told if index is None else {"index": index, **told}


TWO = (ToolCall("a", "f", '{"x":1}'), ToolCall("b", "f", "{}"))


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        ([call(0, "a", "f", '{"x"'), call(0, None, None, ":1}"), call(1, "b", "f", "{}")], TWO),
        ([call(0, "a", "f", '{"x"'), call(0, "a", "f", ":1}"), call(1, "b", "f", "{}")], TWO),
        ([call(1, "a", "f", '{"x":1}'), call(2, "b", "f", None), call(2, None, None, "{}")], TWO),
        ([call(0, "a", "f", ""), call(0, None, None, '{"x":1}'), call(0, "b", "f", ""), call(0, "", None, "{}")], TWO),
        ([call(None, "a", "f", '{"x":1}'), call(None, "b", "f", "{}")], TWO),
        ([call(None, "a", "f", '{"x"'), call(None, None, None, ":1}"), call(None, "b", "f", "{}")], TWO),
        ([call(0, "a", "f", "{"), call(0, "a2", "f", '"x"'), call(0, "a3", "f", ":1}")], TWO[:1]),
        ([call(0, None, "f", "{"), call(0, None, None, "}")], (ToolCall("", "f", "{}"),)),
        ([call(0, "a", "f", "{}"), call(0, "b", "g", "{}")], (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}"))),
    ],
    ids=[
        "vLLM and SGLang",
        "id and name repeated",
        "counted from one",
        "all with index 0",
        "no index",
        "no index, in pieces",
        "a new id with each piece",
        "no id",
        "another name",
    ],
)
def test_tool_calls_are_told_apart_as_servers_mean_them(
    deltas: list[dict[str, object]], calls: tuple[ToolCall, ...]
) -> None:
    assert calls_of(*deltas) == calls


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["<html>busy</html>", '{"choices": [', "[" * 100_000, "busy" + "x" * 10**6])
def test_what_is_not_json_is_an_error_with_the_beginning_of_its_text(data: str) -> None:
    with pytest.raises(EngineFailed) as caught:
        list(StreamReader().read(data))
    assert caught.value.detail[:4] in data
    assert len(caught.value.detail) <= 500


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ('{"error": {"message": "boom", "type": "InternalServerError", "param": null, "code": 500}}', EngineFailed),
        ('{"error": "boom"}', EngineFailed),
        ('{"error": {"message": "bad", "type": "BadRequestError", "code": 400}}', BadRequest),
        ('{"error": {"message": "bad", "type": "BadRequestError"}}', BadRequest),
        ('{"object": "error", "message": "boom", "type": "InternalServerError", "code": 500}', EngineFailed),
        (
            '{"error": {"message": "This model\'s maximum context length is 512 tokens. However, your prompt contains '
            '600 input tokens", "code": 400}}',
            ContextOverflow,
        ),
        (
            '{"error": {"code": 400, "message": "too big", "type": "exceed_context_size_error", '
            '"n_prompt_tokens": 600, "n_ctx": 512}}',
            ContextOverflow,
        ),
    ],
)
def test_an_error_inside_the_stream_is_raised_by_its_meaning(data: str, kind: type[SparkError]) -> None:
    reader = StreamReader()
    assert list(reader.read(chunk({"content": "before"}))) == [ContentDelta("before")]
    with pytest.raises(kind) as caught:
        list(reader.read(data))
    assert caught.value.remedy


@given(st.text(max_size=200))
def test_any_data_gives_events_or_an_error_of_ours(data: str) -> None:
    try:
        list(StreamReader().read(data))
    except SparkError as error:
        assert error.remedy


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYS = ["choices", "usage", "index", "delta", "message", "content", "reasoning", "tool_calls", "function", "name", "id"]


@given(
    st.recursive(
        JSON,
        lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=4) | st.lists(inner, max_size=2),
        max_leaves=12,
    )
)
def test_any_json_gives_events_or_an_error_of_ours(value: object) -> None:
    reader, builder = StreamReader(), AnswerBuilder(0.0)
    try:
        for event in reader.read(json.dumps({"choices": [{"delta": value}], "usage": value, "error": None})):
            builder.add(event, 1.0)
    except SparkError as error:
        assert error.remedy
    assert isinstance(builder.snapshot().content, str)
