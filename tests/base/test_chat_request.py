"""What is sent to a server: only what was set, and always bytes that it can read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.message import (
    Attachment,
    ChatParameters,
    ChatRequest,
    MediaKind,
    Message,
    Role,
    ToolSpec,
)
from spark_tui.base.engine.request import request_body, request_bytes
from spark_tui.base.errors import UsageError

HI = (Message(Role.USER, "hi"),)


def test_every_setting_reaches_the_api_by_its_own_name_and_nothing_else_is_sent() -> None:
    bare = request_body(ChatRequest("m", HI))
    assert set(bare) == {"model", "messages", "stream", "stream_options"}
    assert bare["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    plain: dict[str, Any] = {
        "temperature": 0.0, "top_p": 0.9, "max_tokens": 7, "seed": 1, "top_k": 20, "min_p": 0.05,
        "presence_penalty": 1.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1, "reasoning_effort": "low",
    }  # fmt: skip
    parameters = ChatParameters(
        **plain, stop=("END", "\n\n"), thinking=True, preserve_thinking=True, thinking_budget=512,
        schema='{"type":"object"}',
    )  # fmt: skip
    body = request_body(ChatRequest("m", HI, parameters))
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    assert {key: value for key, value in body.items() if key not in bare} == plain | {
        "stop": ["END", "\n\n"], "thinking_token_budget": 512, "response_format": form,
        "chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": True},
    }  # fmt: skip


def test_pictures_and_sounds_are_parts_before_the_text() -> None:
    picture = Attachment(MediaKind.IMAGE, "image/png", "a.png", b"\x89PNG")
    sound = Attachment(MediaKind.AUDIO, "audio/wav", "a.wav", b"RIFF")
    [message] = request_body(ChatRequest("m", (Message(Role.USER, "What?", attachments=(picture, sound)),)))["messages"]
    image, audio, text = message["content"]
    assert image == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    assert audio == {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    assert text == {"type": "text", "text": "What?"}
    assert "iVBOR" not in repr(picture)


def test_an_answer_goes_on_where_the_last_message_ends() -> None:
    body = request_body(ChatRequest("m", (*HI, Message(Role.ASSISTANT, "Half an")), go_on=True))
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_know_is_refused_here(number: float) -> None:
    with pytest.raises(UsageError, match="temperature"):
        request_bytes(ChatRequest("m", HI, ChatParameters(temperature=number)))


def test_tools_are_offered_with_their_schema() -> None:
    tool = ToolSpec("weather", "of a city", '{"type": "object", "properties": {"city": {"type": "string"}}}')
    body = request_body(ChatRequest("m", HI, tools=(tool,), tool_choice="auto"))
    [offered] = body["tools"]
    assert offered["type"] == "function"
    assert offered["function"]["parameters"]["properties"] == {"city": {"type": "string"}}
    assert body["tool_choice"] == "auto"
    named = request_body(ChatRequest("m", HI, tools=(tool,), tool_choice="weather"))["tool_choice"]
    assert named == {"type": "function", "function": {"name": "weather"}}
    with pytest.raises(UsageError, match="weather"):
        request_body(ChatRequest("m", HI, tools=(ToolSpec("weather", "", "{"),)))


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_sent_as_utf_8_and_half_characters_do_not_break_it(text: str) -> None:
    sent = json.loads(request_bytes(ChatRequest("m", (Message(Role.USER, text),))))["messages"][0]["content"]
    assert sent == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert not any("\ud800" <= char <= "\udfff" for char in sent)
    assert "😀" in request_bytes(ChatRequest("m", (Message(Role.USER, "\ud83d" + "\ude00"),))).decode()
