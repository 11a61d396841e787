"""The chat API's stream, chunk by chunk: JSON -> events. Unknown keys are ignored; what is malformed is an error.

vLLM sends `reasoning`, up to 0.15 `reasoning_content` beside it with the same text; other servers only the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_tui.domain.api_errors import message_of, stream_error
from spark_tui.domain.chat import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Finished,
    Message,
    ReasoningDelta,
    Role,
    ToolCallDelta,
    Usage,
)
from spark_tui.domain.errors import EngineFailed, ReplyCutOff

DONE = "[DONE]"


class StreamReader:
    """Turns the data of one stream into events, and knows whether the stream came to its end."""

    def __init__(self) -> None:
        self.finished = False
        self.done = False

    def read(self, data: str) -> Iterator[ChatEvent]:
        """The events of one chunk. Raises EngineFailed or ContextOverflow for an error inside the stream."""
        if data.strip() == DONE:
            self.done = True
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            raise EngineFailed(
                "The engine sent something that is not JSON.",
                "Ask again; if it stays so, look at its log.",
                detail=data[:500],
            ) from None
        if not isinstance(chunk, dict):
            return
        if chunk.get("error"):
            raise stream_error(message_of(data))
        choice = _first(chunk.get("choices"))
        if choice is not None:
            yield from _delta(choice.get("delta"))
            reason = choice.get("finish_reason")
            if reason:
                self.finished = True
                yield Finished(str(reason))
        usage = _usage(chunk.get("usage"))
        if usage is not None:
            yield usage

    def close(self) -> None:
        """To be called at the end of the stream; raises ReplyCutOff when the answer had not ended."""
        if not self.finished:
            raise ReplyCutOff("The answer broke off.", "What had come is kept. Ask again, or look at the engine's log.")


def _first(choices: Any) -> dict[str, Any] | None:
    if not isinstance(choices, list):
        return None
    return next((c for c in choices if isinstance(c, dict) and c.get("index", 0) == 0), None)


def _delta(delta: Any) -> Iterator[ChatEvent]:
    if not isinstance(delta, dict):
        return
    reasoning = delta.get("reasoning") or delta.get("reasoning_content")
    if isinstance(reasoning, str):
        yield ReasoningDelta(reasoning)
    content = delta.get("content")
    if isinstance(content, str) and content:
        yield ContentDelta(content)
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield _tool_call(call)


def _tool_call(call: dict[str, Any]) -> ToolCallDelta:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    index = call.get("index")
    return ToolCallDelta(
        index if isinstance(index, int) else 0,
        str(call.get("id") or ""),
        str(function.get("name") or ""),
        str(function.get("arguments") or ""),
    )


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return None
    return Usage(
        prompt,
        completion,
        _detail(usage.get("completion_tokens_details"), "reasoning_tokens"),
        _detail(usage.get("prompt_tokens_details"), "cached_tokens"),
    )


def _detail(details: Any, name: str) -> int | None:
    value = details.get(name) if isinstance(details, dict) else None
    return value if isinstance(value, int) else None


# --- the request --------------------------------------------------------------------------------------


def request_body(request: ChatRequest) -> dict[str, Any]:
    """The JSON body for `/v1/chat/completions`; only what was set is sent, so that the server's defaults apply."""
    parameters = request.parameters
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    for name in ("temperature", "top_p", "max_tokens", "seed"):
        value = getattr(parameters, name)
        if value is not None:
            body[name] = value
    if parameters.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": parameters.thinking}
    if parameters.reasoning_effort:
        body["reasoning_effort"] = parameters.reasoning_effort
    return body


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
