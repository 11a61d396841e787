"""An engine's error answer becomes an error that says what to do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.answer import api_error, is_loading, message_of, model_not_served, stream_error
from spark_tui.base.errors import (
    ApiKeyRejected,
    BadRequest,
    ContextOverflow,
    EngineBusy,
    EngineDead,
    EngineFailed,
    EngineUnreachable,
    ModelNotServed,
    NoSuchPath,
    SparkError,
)
from tests import api_fixtures
from tests.cases import all_cases


@all_cases(
    ("name", "kind", "words"),
    [
        ("bad-model", ModelNotServed, "does not serve nope. It serves tiny"),
        ("too-long-prompt", ContextOverflow, "at least 513 tokens"),
        ("too-long-prompt-stream", ContextOverflow, "context of 512 tokens"),
        ("prompt-plus-max-tokens", ContextOverflow, "up to 4,000 tokens"),
        ("no-api-key", ApiKeyRejected, "key"),
        ("wrong-api-key", ApiKeyRejected, "key"),
        ("not-found", NoSuchPath, "has no /v1/chat/completions"),
        ("method-not-allowed", NoSuchPath, "has no /v1/chat/completions"),
        ("tools-auto-without-parser", BadRequest, "--enable-auto-tool-choice"),
        ("bad-temperature", BadRequest, "temperature must be non-negative"),
        ("max-tokens-zero", BadRequest, "max_tokens must be at least 1"),
        ("missing-messages", BadRequest, "messages: Field required"),
        ("bad-json", BadRequest, "JSON decode error"),
        ("during-drain", EngineFailed, "shutting down"),
    ],
)
def test_a_real_error_answer_has_its_meaning(name: str, kind: type[SparkError], words: str) -> None:
    error = api_error(*api_fixtures.error(name))
    assert type(error) is kind
    assert words in str(error)
    assert error.remedy


# Wordings: vLLM 0.14-0.33, then OpenAI's that SGLang shares, then llama.cpp.
OVERFLOWS = [
    ("This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens, "
     "which exceeds this limit even without any output tokens.", 512, 513, None),
    ("This model's maximum context length is 512 tokens. However, you requested 100 output tokens and your prompt "
     "contains at least 413 input tokens, for a total of at least 513 tokens.", 512, 413, 100),
    ("This model's maximum context length is 512 tokens. However, your prompt contains 900000 characters (more than "
     "65536 characters, which is the upper bound for 512 input tokens).", 512, None, None),
    ("max_tokens=4000 cannot be greater than max_model_len=512. Please request fewer output tokens.", 512, None, 4000),
    ("You passed 513 input tokens and requested 10 output tokens. However, the model's context length is only 512 "
     "tokens, resulting in a maximum input length of 502 tokens.", 512, 513, 10),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure", 4096, 5000, None),
    ("Input length (5000) exceeds model's maximum context length (4096).", 4096, 5000, None),
    ("'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 512 tokens "
     "and your request has 30 input tokens (4000 > 512 - 30).", 512, 30, 4000),
    ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, "
     "1000 in the completion).", 4096, 4000, 1000),
    ("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 "
     "tokens: 4000 tokens from the input messages and 1000 tokens for the completion.", 4096, 4000, 1000),
    ("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", 4096, 5000, None),
]  # fmt: skip


@all_cases(("message", "limit", "prompt", "answer"), OVERFLOWS)
def test_an_overflow_has_its_numbers(message: str, limit: int, prompt: int | None, answer: int | None) -> None:
    error = api_error(400, json.dumps({"error": {"message": message, "type": "BadRequestError", "code": 400}}))
    assert isinstance(error, ContextOverflow)
    assert (error.limit, error.prompt_tokens, error.answer_tokens) == (limit, prompt, answer)
    assert f"{limit:,}" in error.summary
    assert ("max tokens" in error.remedy) == (answer is not None)


def test_llama_cpp_gives_the_numbers_as_keys() -> None:
    told = {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 7, "n_ctx": 5}
    error = api_error(400, json.dumps({"error": told}))
    assert isinstance(error, ContextOverflow)
    assert (error.limit, error.prompt_tokens) == (5, 7)


@all_cases(
    ("status", "body", "kind"),
    [
        (401, '{"error":"Unauthorized"}', ApiKeyRejected),
        (403, "Forbidden", ApiKeyRejected),
        (429, '{"error":{"message":"slow down"}}', EngineBusy),
        (503, '{"error":{"message":"too many requests in the queue"}}', EngineBusy),
        (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', EngineUnreachable),
        (503, "", EngineDead),
        (502, "<html><title>502 Bad Gateway</title>", EngineUnreachable),
        (504, "", EngineUnreachable),
        (500, '{"error":{"message":"EngineCore encountered an issue. See stack trace"}}', EngineFailed),
        (500, '{"error":{"message":"CUDA out of memory"}}', EngineFailed),
        (500, "", EngineFailed),
        (302, "", BadRequest),
        (422, '{"detail":[{"loc":["body","messages"],"msg":"Field required","type":"missing"}]}', BadRequest),
        (418, "[]", BadRequest),
    ],
)
def test_a_status_has_its_meaning(status: int, body: str, kind: type[SparkError]) -> None:
    error = api_error(status, body)
    assert type(error) is kind
    assert error.summary
    assert error.remedy


@all_cases(
    ("body", "message"),
    [
        ('{"error":{"message":"a  b","code":404}}', "a b"),
        ('{"error":"Unauthorized"}', "Unauthorized"),
        ('{"detail":"Not Found"}', "Not Found"),
        ('{"object":"error","message":"sglang","code":400}', "sglang"),
        ('{"error":{"type":"only_a_type"}}', "only_a_type"),
        ('{"detail":[{"loc":["body","top_p"],"msg":"big"},{"loc":["body"],"msg":"odd"}]}', "top_p: big; body: odd"),
        ("{'loc': ('body', 'messages'), 'msg': 'Field required', 'input': 3}", "{'loc': ('body', 'messages'), 'msg': "),
        ("""{"error":{"message":"1 error: {'loc': ('body', 'n'), 'msg': 'big', 'input': 3}"}}""", "n: big"),
        ("plain text", "plain text"),
        ("<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>", "502 Bad Gateway"),
        ("<html><h1>Bad \x1b]0;x\x07Gateway</h1>", "Bad Gateway"),
        ("", ""),
        ("3", "3"),
        ("[" * 100_000, "[[["),
    ],
)  # fmt: skip
def test_the_sentence_is_found_in_a_body_of_any_shape(body: str, message: str) -> None:
    told = message_of(body)
    assert told.startswith(message)
    assert bool(told) == bool(message)


def test_a_long_message_fits_a_toast_and_stands_whole_in_the_detail() -> None:
    error = api_error(500, json.dumps({"error": {"message": "word " * 100}}))
    assert len(error.summary) < 200
    assert len(error.detail) > 400
    assert len(api_error(500, "x" * 10**6).detail) <= 600


def test_a_short_message_is_said_once() -> None:
    error = api_error(400, '{"error":{"message":"no such voice"}}')
    assert "no such voice" in error.summary
    assert error.detail == ""


def test_a_model_that_is_not_served_names_those_that_are() -> None:
    error = api_error(*api_fixtures.error("bad-model"))
    assert isinstance(error, ModelNotServed)
    assert error.served == ("tiny",)
    assert "It serves a, b" in model_not_served("x", ("a", "b")).remedy
    assert model_not_served("x", ()).remedy


def test_loading_is_told_from_dead() -> None:
    assert is_loading('{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}')
    assert not is_loading("Reloading the proxy's configuration")
    assert not is_loading("")


@given(st.text())
def test_any_error_body_has_some_message(body: str) -> None:
    assert "\x1b" not in message_of(body)
    assert len(message_of(body)) <= 600


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "detail", "code", "type", "loc", "msg"]), inner)
    ),
)


@given(st.integers(300, 599), VALUES)
def test_any_error_object_is_an_error_with_a_remedy(status: int, told: object) -> None:
    for error in (api_error(status, json.dumps(told)), stream_error(told)):
        assert error.summary
        assert error.remedy


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        ("smol is not a multimodal model", "The model does not support images or audio."),
        ("At most 0 image(s) may be provided in one prompt.", "The model does not support images or audio."),
        ("At most 2 image(s) may be provided in one prompt.", "The model accepts at most 2 attachments per message."),
    ],
)
def test_pictures_for_a_model_that_takes_none_are_refused_in_plain_words(message: str, summary: str) -> None:
    error = api_error(400, json.dumps({"error": {"message": message, "type": "BadRequestError", "code": 400}}))
    assert error.summary == summary
    assert "--limit-mm-per-prompt" in error.remedy
