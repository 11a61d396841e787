"""Records and exported files back into conversations. What a crash left half written is passed over."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from spark_tui.domain.chat.conversation import ChatThread, EngineSide, Exchange, Outcome, ToolAnswer, title_of
from spark_tui.domain.chat.message import Answer, Attachment, MediaKind, TokenLogprobs, ToolCall, Usage
from spark_tui.domain.chat.request import NO_SETTINGS, ChatSettings, settings_from, settings_json
from spark_tui.domain.errors import SparkError, UsageError

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
        "chances": [[c.token, c.logprob, [list(each) for each in c.likeliest]] for c in answer.logprobs],
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


Load: TypeAlias = Callable[[str], bytes]
"""The bytes of a kept file by its name; empty when it is gone."""

INTERRUPTED: Final = SparkError(
    "spark-tui ended while this answer came.", "The partial answer is kept. Continue it, or ask again."
)


class ThreadReader:
    """Puts a conversation together from its records. Nothing makes it fail: what it cannot read, it counts."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._thread = ChatThread()
        self._exchanges: dict[int, Exchange] = {}
        self.damaged = 0

    def read(self, record: object) -> None:
        """One more record."""
        try:
            self._read(record)
        except (KeyError, TypeError, ValueError, AttributeError, UsageError):
            self.damaged += 1

    def _read(self, told: Any) -> None:
        match told["type"]:
            case "conversation":
                self._thread = replace(
                    self._thread, id=_text(told, "id"), created_at=_float(told, "created_at"),
                    parent=_text(told, "parent"),
                )  # fmt: skip
            case "title":
                self._thread = replace(self._thread, title=_text(told, "title"))
            case "settings":
                self._thread = replace(self._thread, settings=settings_from(told["settings"]))
            case "trim":
                self._thread = replace(self._thread, sent_from=_whole(told, "number"))
            case "cut":
                number = _whole(told, "number")
                self._exchanges = {n: e for n, e in self._exchanges.items() if n < number}
            case "asked":
                self._asked(told)
            case "part" | "answered":
                self._answer(told)

    def _asked(self, told: Mapping[str, Any]) -> None:
        exchange = _asked_exchange(told, self._thread.settings, self._load)
        self._exchanges[exchange.number] = exchange
        self._thread = replace(self._thread, last_number=max(self._thread.last_number, exchange.number))

    def _answer(self, told: Mapping[str, Any]) -> None:
        exchange = self._exchanges.get(_whole(told, "number"))
        if exchange is not None:  # one that was taken back while its answer was on its way to the disk
            self._exchanges[exchange.number] = _with_answer(exchange, told)

    def thread(self) -> ChatThread:
        """What was read. An answer without its end was interrupted."""
        exchanges = tuple(
            replace(each, outcome=Outcome.FAILED, error=INTERRUPTED) if each.live else each
            for _, each in sorted(self._exchanges.items())
        )
        title = self._thread.title
        if not title and exchanges:
            title = title_of(exchanges[0].question, exchanges[0].attachments)
        return replace(self._thread, title=title, exchanges=exchanges, damaged=self.damaged)


def _asked_exchange(told: Mapping[str, Any], chosen: ChatSettings, load: Load) -> Exchange:
    content = _text(told, "content")
    limit = told.get("limit")
    return Exchange(
        _whole(told, "number"), _text(told, "question"), _text(told, "engine"), _text(told, "model"),
        _float(told, "asked_at"), Answer(0.0, content, carried=len(content)),
        attachments=tuple(_attachment(each, load) for each in told.get("attachments", ())),
        tool_answers=tuple(
            ToolAnswer(_text(each, "call_id"), _text(each, "name"), _text(each, "content"))
            for each in told.get("tool_answers", ())
        ),
        settings=chosen,
        limit=limit if isinstance(limit, int) else None,
        sent_from=_whole(told, "sent_from") if "sent_from" in told else 0,
    )  # fmt: skip


def _attachment(told: Mapping[str, Any], load: Load) -> Attachment:
    data = base64.b64decode(told["data"], validate=True) if "data" in told else load(_text(told, "file"))
    return Attachment(MediaKind(told["kind"]), _text(told, "media_type"), _text(told, "name"), data)


def _with_answer(exchange: Exchange, told: Mapping[str, Any]) -> Exchange:
    before = exchange.answer
    answer = replace(
        before,
        content=before.content + _text(told, "content"),
        reasoning=before.reasoning + _text(told, "reasoning"),
    )
    if told["type"] == "part":
        return replace(exchange, answer=answer)
    times: dict[str, Any] = {name: _seconds(told, f"{name.removesuffix('_at')}_seconds") for name in TIMES}
    calls = (ToolCall(_text(c, "id"), _text(c, "name"), _text(c, "arguments")) for c in told.get("tool_calls", ()))
    answer = replace(
        answer,
        tool_calls=tuple(calls),
        finish_reason=_text(told, "finish_reason"),
        usage=_usage(told.get("usage")),
        first_tokens=_optional(told, "first_tokens"),
        logprobs=tuple(_chance(*each) for each in told.get("chances", ())),
        **times,
    )
    return replace(
        exchange,
        answer=answer,
        outcome=Outcome(told["outcome"]),
        error=_error(told.get("error")),
        engine_side=_side(told.get("engine_side")),
    )


def _chance(token: str, logprob: float, likeliest: Iterable[tuple[str, float]]) -> TokenLogprobs:
    return TokenLogprobs(str(token), float(logprob), tuple((str(other), float(at)) for other, at in likeliest))


def _usage(told: Any) -> Usage | None:
    if told is None:
        return None
    counts = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens")
    prompt, completion, reasoning, cached = (_optional(told, name) for name in counts)
    if prompt is None or completion is None:
        raise ValueError("a usage without counts")
    return Usage(prompt, completion, reasoning, cached)


def _side(told: Any) -> EngineSide | None:
    if told is None:
        return None
    return EngineSide(
        _seconds(told, "queue_seconds"),
        _optional(told, "drafted_tokens"),
        _optional(told, "accepted_tokens"),
        bool(told.get("shared")),
    )


def _error(told: Any) -> SparkError | None:
    if told is None:
        return None
    return SparkError(_text(told, "summary"), _text(told, "remedy"), detail=_text(told, "detail"))


def _text(told: Mapping[str, Any], key: str) -> str:
    value = told.get(key, "")
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def _float(told: Mapping[str, Any], key: str) -> float:
    value = told[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not -1e12 < value < 1e12:
        raise TypeError(key)
    return float(value)


def _seconds(told: Mapping[str, Any], key: str) -> float | None:
    return None if told.get(key) is None else _float(told, key)


def _whole(told: Mapping[str, Any], key: str) -> int:
    value = told[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(key)
    return value


def _optional(told: Mapping[str, Any], key: str) -> int | None:
    return None if told.get(key) is None else _whole(told, key)


# --- one object ---------------------------------------------------------------------------------------------


def thread_of_json(told: Mapping[str, Any]) -> ChatThread:
    """The conversation in an object of `thread_json`. Raises UsageError that names the exchange which is not sound."""
    exchanges: list[Exchange] = []
    entries = told.get("exchanges")
    if not isinstance(entries, list):
        raise UsageError("There are no exchanges in it.", "Import a file that spark-tui exported.")
    for place, entry in enumerate(entries, 1):
        try:
            exchanges.append(_whole_exchange(entry, place))
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise UsageError(
                f"Exchange {place} of it cannot be read.", "Import a file as it was exported.", detail=repr(error)
            ) from None
    numbers = [entry["number"] for entry in entries]
    chosen = settings_from(told.get("settings") or {})
    created = told.get("created_at")
    return ChatThread(
        title=str(told.get("title") or ""),
        created_at=float(created) if isinstance(created, int | float) else 0.0,
        settings=chosen,
        exchanges=tuple(replace(each, sent_from=_place_of(each.sent_from, numbers)) for each in exchanges),
        sent_from=_place_of(told.get("sent_from"), numbers),
        last_number=len(exchanges),
    )


def _place_of(number: Any, numbers: list[int]) -> int:
    """Exchanges are counted anew: where the one of that number is now; 0 for none."""
    return bisect_left(numbers, number) + 1 if isinstance(number, int) and number > 0 else 0


def _whole_exchange(told: Mapping[str, Any], place: int) -> Exchange:
    chosen = settings_from(told.get("settings") or {})
    _whole(told, "number")
    carried = _optional(told, "carried") or 0
    exchange = _asked_exchange({**told, "number": place, "content": ""}, chosen, lambda _: b"")
    exchange = _with_answer(exchange, {"type": "answered", "outcome": Outcome.COMPLETE.value, **told})
    if exchange.live:
        exchange = replace(exchange, outcome=Outcome.FAILED, error=INTERRUPTED)
    return replace(exchange, answer=replace(exchange.answer, carried=carried))
