"""A question as the chat API wants it: ChatRequest -> JSON. Only what was set is sent; the rest is the server's."""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Final

from spark_tui.domain.chat import Attachment, ChatParameters, ChatRequest, MediaKind, Message, Role, ToolSpec
from spark_tui.domain.errors import UsageError

_CHOICES: Final = ("auto", "none", "required")
_NUMBERS: Final = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed",
    "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip


def request_body(request: ChatRequest) -> dict[str, Any]:
    """The body for `/v1/chat/completions`. Raises UsageError for what JSON cannot carry.

    Usage is asked for on every chunk (vLLM, SGLang and TensorRT-LLM do so; others send it once, at the end): an
    answer that is stopped or breaks off still has its counts.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **_parameters(request.parameters),
    }
    if request.go_on:  # vLLM and SGLang; llama.cpp goes on from a last message of the assistant by itself
        body |= {"add_generation_prompt": False, "continue_final_message": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.tools and request.tool_choice:
        body["tool_choice"] = _choice(request.tool_choice)
    return body


def _parameters(parameters: ChatParameters) -> dict[str, Any]:
    """What was set, by the API's names."""
    body: dict[str, Any] = {}
    for name in _NUMBERS:
        value = getattr(parameters, name)
        if value is not None:
            body[name] = _number(name, value)
    if parameters.stop:
        body["stop"] = list(parameters.stop)
    template = {"enable_thinking": parameters.thinking, "preserve_thinking": parameters.preserve_thinking}
    if told := {name: value for name, value in template.items() if value is not None}:
        body["chat_template_kwargs"] = told
    if parameters.reasoning_effort:
        body["reasoning_effort"] = parameters.reasoning_effort
    if parameters.thinking_budget is not None:
        body["thinking_token_budget"] = parameters.thinking_budget
    if parameters.schema:
        schema = _read_json(parameters.schema, "The schema of the answer is not JSON.")
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    if parameters.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": parameters.logprobs}
    return body


def request_bytes(request: ChatRequest) -> bytes:
    """The body as UTF-8. Half surrogate pairs, which a model's escapes or a terminal can bring in, are mended:
    two halves become the character, a single one U+FFFD."""
    text = json.dumps(request_body(request), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if text.isascii():
        return text.encode()
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _number(name: str, value: float) -> float:
    if value != value or value in (math.inf, -math.inf):
        raise UsageError(f"{name} cannot be {value}.", "Give a number, or leave it out for the model's own default.")
    return value


def _message(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role.value, "content": _content(message)}
    if message.reasoning:  # every server reads this name: vLLM's own `reasoning` is younger
        told["reasoning_content"] = message.reasoning
    if message.tool_calls:
        told["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in message.tool_calls
        ]
    if message.role is Role.TOOL:
        told["tool_call_id"] = message.tool_call_id
    return told


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Text, or with attachments a list of parts: pictures and sounds first, as most templates want them."""
    if not message.attachments:
        return message.content
    text = [{"type": "text", "text": message.content}] if message.content else []
    return [*(_part(attachment) for attachment in message.attachments), *text]


def _part(attachment: Attachment) -> dict[str, Any]:
    data = base64.b64encode(attachment.data).decode("ascii")
    if attachment.kind is MediaKind.AUDIO:
        form = attachment.media_type.partition("/")[2]
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    return {"type": "image_url", "image_url": {"url": f"data:{attachment.media_type};base64,{data}"}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    parameters = _read_json(tool.parameters, f"The parameters of tool {tool.name} are not JSON.")
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _read_json(text: str, problem: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(problem, "Write it as a JSON schema.", detail=str(error)) from None


def _choice(choice: str) -> Any:
    return choice if choice in _CHOICES else {"type": "function", "function": {"name": choice}}
