"""The chat API's stream, chunk by chunk: JSON -> events. Unknown keys are ignored; what is malformed is an error.

vLLM sends `reasoning`, up to 0.15 `reasoning_content` beside it with the same text; other servers only the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_tui.domain.chat.message import (
    ChatEvent,
    ContentDelta,
    Finished,
    Logprobs,
    ReasoningDelta,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
)
from spark_tui.domain.engine.api_errors import stream_error
from spark_tui.domain.errors import EngineFailed, ReplyCutOff
from spark_tui.domain.text import clean_line, truncate

DONE = "[DONE]"
SHOWN_CHARS = 500


class StreamReader:
    """Turns the data of one stream into events, and knows whether the answer came to its end."""

    def __init__(self) -> None:
        self.finish_reason = ""
        self.done = False
        self._calls = _ToolCalls()

    @property
    def finished(self) -> bool:
        """The answer is complete; a usage chunk and `[DONE]` may follow."""
        return bool(self.finish_reason)

    def read(self, data: str) -> Iterator[ChatEvent]:
        """The events of one chunk. Raises the API part of the error tree for an error inside the stream."""
        if data.strip() == DONE:
            self.done = True
            return
        chunk = _parse(data)
        if not isinstance(chunk, dict):
            return
        if _is_error(chunk):
            raise stream_error(chunk)
        choice = _first(chunk.get("choices"))
        if choice is not None:
            # A server that does not stream answers with one whole `message`.
            yield from self._delta(choice.get("delta") or choice.get("message"))
            if logprobs := _logprobs(choice.get("logprobs")):
                yield Logprobs(logprobs)
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self.finish_reason = reason
                yield Finished(reason)
        usage = _usage(chunk.get("usage"))
        if usage is not None:
            yield usage

    def close(self) -> None:
        """To be called at the end of the stream; raises ReplyCutOff when the answer had not ended."""
        if not self.finished:
            raise ReplyCutOff(
                "The answer broke off.", "What had come is kept. The engine's log says why; then ask again."
            )
        if self.finish_reason == "abort":  # vLLM, for the answers that a shutdown interrupts
            raise ReplyCutOff(
                "The engine aborted the answer: it is being stopped, or somebody aborted its requests.",
                "What had come is kept. Start the engine again, then ask again.",
            )

    def _delta(self, delta: Any) -> Iterator[ChatEvent]:
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
                yield self._calls.delta(call)


class _ToolCalls:
    """Numbers the calls of one answer in the order in which they began, whatever a server writes as their index.

    Seen: no index at all; parallel calls that all have index 0 and begin with a new id and no arguments (lmdeploy,
    early SGLang and vLLM); one call whose id is new with each piece (vLLM before 0.9, a named tool).
    """

    def __init__(self) -> None:
        self._count = 0
        self._current: dict[int | None, tuple[int, str, str]] = {}

    def delta(self, call: dict[str, Any]) -> ToolCallDelta:
        told = call.get("function")
        function: dict[str, Any] = told if isinstance(told, dict) else {}
        id_, name = _text(call.get("id")), _text(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        index = call.get("index")
        place = index if isinstance(index, int) else None
        known = self._current.get(place)
        if known is None or self._begins(known, id_, name, arguments, numbered=place is not None):
            known = (self._count, id_, name)
            self._count += 1
        number = known[0]
        self._current[place] = (number, known[1] or id_, known[2] or name)
        return ToolCallDelta(number, id_, name, arguments)

    @staticmethod
    def _begins(known: tuple[int, str, str], id_: str, name: str, arguments: str, *, numbered: bool) -> bool:
        _, known_id, known_name = known
        if not id_ or not known_id or id_ == known_id:
            return False
        return not numbered or bool(name and (name != known_name or not arguments))


def _parse(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise EngineFailed(
            "The engine sent something that is not JSON.",
            "Ask again; if it stays so, look at its log.",
            detail=truncate(clean_line(data), SHOWN_CHARS),
        ) from None


def _is_error(chunk: dict[str, Any]) -> bool:
    """`{"error": ...}`; `{"object": "error", "message": ...}` of SGLang and of vLLM before 0.10."""
    return bool(chunk.get("error")) or chunk.get("object") == "error"


def _first(choices: Any) -> dict[str, Any] | None:
    if not isinstance(choices, list):
        return None
    return next((c for c in choices if isinstance(c, dict) and c.get("index", 0) in (0, None)), None)


def _logprobs(told: Any) -> tuple[TokenLogprobs, ...]:
    """`logprobs.content` of a choice; a token without a number is passed over."""
    content = told.get("content") if isinstance(told, dict) else None
    found = (_token_logprobs(entry) for entry in content) if isinstance(content, list) else ()
    return tuple(each for each in found if each is not None)


def _token_logprobs(told: Any) -> TokenLogprobs | None:
    logprob = told.get("logprob") if isinstance(told, dict) else None
    if not isinstance(logprob, int | float) or isinstance(logprob, bool):
        return None
    others = told.get("top_logprobs")
    likeliest = tuple(
        (_text(other.get("token")), float(other["logprob"]))
        for other in (others if isinstance(others, list) else ())
        if isinstance(other, dict) and isinstance(other.get("logprob"), int | float)
    )
    return TokenLogprobs(_text(told.get("token")), float(logprob), likeliest)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    """JSON text; Ollama and early llama.cpp send the object itself."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return _text(value)


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None or completion is None:
        return None
    return Usage(
        prompt,
        completion,
        _count(usage.get("completion_tokens_details"), "reasoning_tokens"),
        _count(usage.get("prompt_tokens_details"), "cached_tokens"),
    )


def _count(told: Any, name: str) -> int | None:
    value = told.get(name) if isinstance(told, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
