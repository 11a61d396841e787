"""One question to an engine, whatever the API (chat, responses or messages), what it is about, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.engine.runtimes import CHAT_PATH
from spark_tui.base.untrusted import load_json


class Area(StrEnum):
    TEXT = "text"
    TOOLS = "tools"
    ARGUMENTS = "arguments"
    REASONING = "reasoning"
    STRUCTURE = "structured output"
    LIMITS = "limits"
    QUALITY = "quality"
    DEPTH = "long context"


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    SKIP = "skip"


class Api(StrEnum):
    """The interfaces that agents use: OpenAI's two, and Anthropic's."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


PATHS: Final = {Api.CHAT: CHAT_PATH, Api.RESPONSES: "/v1/responses", Api.MESSAGES: "/v1/messages"}
CALL_ID: Final = "call00001"
"""Of the call in a history. Mistral's template takes nine letters and digits only."""


class Tool(Struct, frozen=True):
    """A function that the model may call. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Call(Struct, frozen=True):
    """A call as the server reports it. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class Question(Struct, frozen=True):
    """What is asked. `choice` is empty for the model's own, `required`, `none`, or a tool's name. `result` is what the
    call `called` returned. `filler_tokens` of text, or `filler_share` of the context, come before the prompt. Without a
    `temperature` the server's default is used. `thinking` is sent to chat only; None: the model's default."""

    prompt: str
    api: Api = Api.CHAT
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    choice: str = ""
    called: Call | None = None
    result: str = ""
    most_tokens: int = 768
    temperature: float | None = None
    thinking: bool | None = None
    schema: Mapping[str, Any] | None = None
    stop: str = ""
    logprobs: int = 0
    filler_tokens: int = 0
    filler_share: float = 0.0


def request_body(question: Question, model: str, filler: str = "") -> bytes:
    """The JSON body in the shape of the question's API; `filler` is the long text before the prompt."""
    shape = {Api.CHAT: _chat, Api.RESPONSES: _responses, Api.MESSAGES: _messages}[question.api]
    prompt = f"{filler}\n\n{question.prompt}" if filler else question.prompt
    body = {"model": model, "stream": question.stream, **shape(question, prompt)}
    if question.temperature is not None:
        body["temperature"] = question.temperature
    return json.dumps(body, ensure_ascii=False).encode()


def _chat(question: Question, prompt: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if call := question.called:
        function = {"name": call.name, "arguments": call.arguments}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call.id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call.id, "content": question.result},
        ]
    body: dict[str, Any] = {"messages": messages, "max_tokens": question.most_tokens}
    if question.stream:
        body["stream_options"] = {"include_usage": True}
    if question.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in question.tools
        ]
    if question.choice:
        named = {"type": "function", "function": {"name": question.choice}}
        body["tool_choice"] = question.choice if question.choice in ("required", "none") else named
    if question.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": question.thinking}
    if question.schema is not None:
        schema = {"name": "answer", "schema": question.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if question.stop:
        body["stop"] = [question.stop]
    if question.logprobs:
        body |= {"logprobs": True, "top_logprobs": question.logprobs}
    return body


def _responses(question: Question, prompt: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if call := question.called:
        items += [
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.id, "output": question.result},
        ]
    body: dict[str, Any] = {"input": items, "max_output_tokens": question.most_tokens, "store": False}
    if question.tools:
        body["tools"] = [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema}
            for tool in question.tools
        ]
    if question.choice:
        named = {"type": "function", "name": question.choice}
        body["tool_choice"] = question.choice if question.choice in ("required", "none") else named
    if question.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": question.schema, "strict": True}}
    return body


def _messages(question: Question, prompt: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if call := question.called:
        use = {"type": "tool_use", "id": call.id, "name": call.name, "input": load_json(call.arguments)}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": question.result}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body: dict[str, Any] = {"messages": messages, "max_tokens": question.most_tokens}
    if question.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in question.tools
        ]
    if question.choice:
        kinds = {"required": "any", "none": "none"}
        named = {"type": "tool", "name": question.choice}
        body["tool_choice"] = {"type": kinds[question.choice]} if question.choice in kinds else named
    if question.stop:
        body["stop_sequences"] = [question.stop]
    return body
