"""What an engine's error answer means to the person, and what to do about it.

Three shapes are seen (vLLM 0.32): `{"error": {"message", "type", "param", "code"}}`, `{"error": "Unauthorized"}`
and `{"detail": "Not Found"}`; a proxy in between sends whatever it likes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from spark_tui.domain.errors import (
    ApiKeyRejected,
    BadRequest,
    ContextOverflow,
    EngineDead,
    EngineFailed,
    ModelNotServed,
    SparkError,
)
from spark_tui.domain.text import clean_line, truncate

MAX_MESSAGE = 600
_CONTEXT = re.compile(
    r"maximum context length|max_model_len|context length|input tokens|prompt is too long", re.IGNORECASE
)


def message_of(body: str) -> str:
    """The sentence in an error body of any shape, cleaned and bounded."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        return _short(re.sub(r"<[^>]{0,200}>", " ", body))
    if isinstance(told, dict):
        error = told.get("error", told.get("detail", told.get("message", "")))
        if isinstance(error, dict):
            error = error.get("message") or error.get("type") or ""
        if isinstance(error, list):
            error = "; ".join(str(part.get("msg", part)) if isinstance(part, dict) else str(part) for part in error)
        return _short(str(error))
    return _short(str(told))


def api_error(status: int, body: str) -> SparkError:
    """The error for an HTTP answer of that status and body, from a request that named a model."""
    message = message_of(body)
    if status == 401 or status == 403:
        return ApiKeyRejected(
            "The engine wants another API key.",
            "Set the key that it was started with: spark-tui keeps those that it made itself.",
            detail=message,
        )
    if status == 404:
        return ModelNotServed(
            message if "model" in message.lower() else "The engine has no such address, or no such model.",
            "Ask for a name that it serves: spark-tui ps shows them.",
            detail=message,
        )
    if status in (400, 413, 422) and _CONTEXT.search(message):
        return _overflow(message)
    if status == 429:
        return EngineFailed("The engine takes no more requests now.", "Wait a moment, then ask again.", detail=message)
    if status == 503:
        return EngineDead(
            "The engine cannot answer now.", "Look at its log, and restart it if it does not come back.", detail=message
        )
    if status >= 500:
        return stream_error(message)
    return BadRequest(
        f"The engine refused the request: {message or f'HTTP {status}'}",
        "Change what it names, then ask again.",
        detail=message,
    )


def stream_error(message: str) -> SparkError:
    """The error for `{"error": ...}` inside a stream that began with HTTP 200."""
    if _CONTEXT.search(message):
        return _overflow(message)
    return EngineFailed(
        f"The engine failed: {message or 'it did not say why'}",
        "Its log says why; restart it if it does not come back.",
        detail=message,
    )


def _overflow(message: str) -> ContextOverflow:
    return ContextOverflow(
        f"The conversation does not fit into the engine's context{_limit(message)}.",
        "Begin a new conversation, ask for fewer tokens, or launch the model with a longer context.",
        detail=message,
    )


def _limit(message: str) -> str:
    found = re.search(r"(?:context length is|max_model_len=)\s*(\d[\d,]*)", message)
    return f" of {int(found[1].replace(',', '')):,} tokens" if found else ""


def _short(text: str) -> str:
    return truncate(clean_line(text).strip(), MAX_MESSAGE)
