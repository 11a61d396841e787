"""A question as the chat API wants it: ChatRequest -> JSON. Only what was set is sent; the rest is the server's."""

from __future__ import annotations

import json
import math
from typing import Any

from spark_tui.domain.chat import ChatRequest, Message, Role, ToolSpec
from spark_tui.domain.errors import UsageError

_CHOICES = ("auto", "none", "required")


def request_body(request: ChatRequest) -> dict[str, Any]:
    """The body for `/v1/chat/completions`. Raises UsageError for what JSON cannot carry.

    Usage is asked for on every chunk (vLLM, SGLang and TensorRT-LLM do so; others send it once, at the end): an
    answer that is stopped or breaks off still has its counts.
    """
    parameters = request.parameters
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    for name in ("temperature", "top_p", "max_tokens", "seed"):
        value = getattr(parameters, name)
        if value is not None:
            body[name] = _number(name, value)
    if parameters.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": parameters.thinking}
    if parameters.reasoning_effort:
        body["reasoning_effort"] = parameters.reasoning_effort
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.tools and request.tool_choice:
        body["tool_choice"] = _choice(request.tool_choice)
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
    told: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.tool_calls:
        told["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role is Role.TOOL:
        told["tool_call_id"] = message.tool_call_id
    return told


def _tool(tool: ToolSpec) -> dict[str, Any]:
    try:
        parameters = json.loads(tool.parameters)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"The parameters of tool {tool.name} are not JSON.", "Write them as a JSON schema.", detail=str(error)
        ) from None
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _choice(choice: str) -> Any:
    return choice if choice in _CHOICES else {"type": "function", "function": {"name": choice}}
