"""Conversations as JSON: records that are only ever appended, and a whole conversation as one object.

A record is one line. `asked` opens an exchange, `part` brings text while it comes, `answered` closes it; `cut` takes
exchanges back, `trim` leaves some out of what is sent, `settings` and `title` hold from there on. What a reader does
not know it passes over: a newer program may have written it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from spark_tui.domain.chat import Attachment, Usage
from spark_tui.domain.chat_settings import NO_SETTINGS, ChatSettings, settings_json
from spark_tui.domain.conversation import ChatThread, EngineSide, Exchange
from spark_tui.domain.errors import SparkError

Record: TypeAlias = dict[str, Any]

FORMAT: Final = "spark-tui-conversation"
VERSION: Final = 1
TIMES: Final = ("first_token_at", "last_token_at", "answer_at")


def header(thread: ChatThread) -> Record:
    """The first line of a file."""
    told: Record = {"type": "conversation", "version": VERSION, "id": thread.id, "created_at": thread.created_at}
    return told | ({"parent": thread.parent} if thread.parent else {})


def title(text: str) -> Record:
    """From here on it is called so."""
    return {"type": "title", "title": text}


def settings(chosen: ChatSettings) -> Record:
    """From here on these hold."""
    return {"type": "settings", "settings": settings_json(chosen)}


def cut(number: int) -> Record:
    """The exchanges from that number on are taken back."""
    return {"type": "cut", "number": number}


def trim(number: int) -> Record:
    """The exchanges before that number are no longer sent."""
    return {"type": "trim", "number": number}


def part(number: int, content: str, reasoning: str) -> Record:
    """Text that came while an answer was coming."""
    told: Record = {"type": "part", "number": number}
    return told | ({"content": content} if content else {}) | ({"reasoning": reasoning} if reasoning else {})


def asked(exchange: Exchange, files: Iterable[str]) -> Record:
    """A question on its way; `files` are the names under which its attachments are kept. What an earlier request
    brought of the answer stands here too."""
    told: Record = {
        "type": "asked",
        "number": exchange.number,
        "question": exchange.question,
        "engine": exchange.engine,
        "model": exchange.model,
        "asked_at": exchange.asked_at,
    }
    kept = [
        {"file": file, "kind": each.kind.value, "media_type": each.media_type, "name": each.name}
        for file, each in zip(files, exchange.attachments, strict=True)
    ]
    answers = [{"call_id": a.call_id, "name": a.name, "content": a.content} for a in exchange.tool_answers]
    more: Record = {"attachments": kept, "tool_answers": answers, "limit": exchange.limit}
    if exchange.sent_from:
        more["sent_from"] = exchange.sent_from
    if exchange.answer.carried:
        more |= {"content": exchange.answer.content[: exchange.answer.carried], "carried": exchange.answer.carried}
    return told | {key: value for key, value in more.items() if value not in ([], None)}


def answered(exchange: Exchange, content_from: int = 0, reasoning_from: int = 0) -> Record:
    """How an answer ended, with its text from those places on: what stands before is in earlier records."""
    answer = exchange.answer
    told: Record = {
        "type": "answered",
        "number": exchange.number,
        "outcome": exchange.outcome.value,
        "content": answer.content[content_from:],
        "reasoning": answer.reasoning[reasoning_from:],
        "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in answer.tool_calls],
        "finish_reason": answer.finish_reason,
        "usage": _usage_json(answer.usage),
        "first_tokens": answer.first_tokens,
        "chances": [[c.token, c.logprob, [list(each) for each in c.likeliest]] for c in answer.chances],
        "error": _error_json(exchange.error),
        "engine_side": _side_json(exchange.engine_side),
    }
    for name in TIMES:
        at = getattr(answer, name)
        told[f"{name.removesuffix('_at')}_seconds"] = None if at is None else round(at - answer.started_at, 6)
    return {key: value for key, value in told.items() if value not in ("", [], None)}


def _usage_json(usage: Usage | None) -> Record | None:
    if usage is None:
        return None
    told = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cached_tokens": usage.cached_tokens,
    }
    return {key: value for key, value in told.items() if value is not None}


def _error_json(error: SparkError | None) -> Record | None:
    if error is None:
        return None
    return {"id": error.id, "summary": error.summary, "remedy": error.remedy, "detail": error.detail}


def _side_json(side: EngineSide | None) -> Record | None:
    if side is None:
        return None
    told = {
        "queue_seconds": side.queue_seconds,
        "drafted_tokens": side.drafted_tokens,
        "accepted_tokens": side.accepted_tokens,
        "shared": side.shared or None,
    }
    return {key: value for key, value in told.items() if value is not None} or None


def records_of(thread: ChatThread, files: Callable[[Attachment], str]) -> list[Record]:
    """A whole conversation as the lines of a new file."""
    told = [header(thread), title(thread.title)]
    current = NO_SETTINGS
    for exchange in thread.exchanges:
        if exchange.settings != current:
            told.append(settings(exchange.settings))
            current = exchange.settings
        told.append(asked(exchange, [files(each) for each in exchange.attachments]))
        if not exchange.live:
            told.append(answered(exchange, exchange.answer.carried))
    if thread.settings != current:
        told.append(settings(thread.settings))
    if thread.sent_from:
        told.append(trim(thread.sent_from))
    return told


# --- one object ---------------------------------------------------------------------------------------------


def thread_json(thread: ChatThread) -> Record:
    """A whole conversation as one object, its pictures and sounds within; `chat_reader.thread_of_json` reads it."""
    exchanges = []
    for exchange in thread.exchanges:
        told = asked(exchange, ["" for _ in exchange.attachments]) | answered(exchange, exchange.answer.carried)
        for kept, attachment in zip(told.get("attachments", []), exchange.attachments, strict=True):
            kept.pop("file")
            kept["data"] = base64.b64encode(attachment.data).decode("ascii")
        if exchange.answer.carried:
            told["content"] = exchange.answer.content
        told.pop("type")
        exchanges.append(told | {"settings": settings_json(exchange.settings)})
    return {
        "format": FORMAT,
        "version": VERSION,
        "id": thread.id,
        "title": thread.title,
        "created_at": thread.created_at,
        "settings": settings_json(thread.settings),
        "sent_from": thread.sent_from,
        "exchanges": exchanges,
    }
