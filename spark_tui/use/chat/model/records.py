"""Conversations as JSON: the lines of a saved file, and one object for an export. Reading skips damaged lines."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict, replace

from spark_tui.base.engine.message import Answer, Attachment, MediaKind, ToolCall, Usage
from spark_tui.base.engine.request import NO_SETTINGS, ChatSettings, settings_from, settings_json
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.use.chat.model.conversation import AnswerOutcome, ChatThread, EngineSide, Exchange, title_of

Record: TypeAlias = dict[str, Any]

FORMAT: Final = "spark-tui-conversation"
VERSION: Final = 1
TIMES: Final = ("first_token", "last_token", "answer")
INTERRUPTED: Final = SparkError(
    "spark-tui ended while this answer came.", "The partial answer is kept. Continue it, or ask again."
)

# --- write --------------------------------------------------------------------------------------------------


def header(thread: ChatThread) -> Record:
    """The first line of a file."""
    record: Record = {"type": "conversation", "version": VERSION, "id": thread.id, "created_at": thread.created_at}
    return record | ({"parent": thread.parent} if thread.parent else {})


def title(text: str) -> Record:
    return {"type": "title", "title": text}


def settings(chosen: ChatSettings) -> Record:
    """The settings of the next exchanges."""
    return {"type": "settings", "settings": settings_json(chosen)}


def cut(number: int) -> Record:
    """Removes the exchanges from that number on."""
    return {"type": "cut", "number": number}


def trim(number: int) -> Record:
    """The exchanges before that number are no longer sent."""
    return {"type": "trim", "number": number}


def part(number: int, content: str, reasoning: str) -> Record:
    """More text of an answer that is coming."""
    record: Record = {"type": "part", "number": number}
    return record | ({"content": content} if content else {}) | ({"reasoning": reasoning} if reasoning else {})


def asked(exchange: Exchange, files: Iterable[str]) -> Record:
    """A question, and the text that an earlier request brought of its answer; `files` are the names of its saved
    attachments."""
    attachments = [
        {"file": file, "kind": each.kind.value, "media_type": each.media_type, "name": each.name}
        for file, each in zip(files, exchange.attachments, strict=True)
    ]
    carried = exchange.answer.carried
    record = {
        "type": "asked",
        "number": exchange.number,
        "question": exchange.question,
        "engine": exchange.engine,
        "model": exchange.model,
        "asked_at": exchange.asked_at,
        "attachments": attachments,
        "limit": exchange.limit,
        "sent_from": exchange.sent_from or None,
        "content": exchange.answer.content[:carried] if carried else None,
        "carried": carried or None,
    }
    return {key: value for key, value in record.items() if value not in ([], None)}


def answered(exchange: Exchange, content_from: int = 0, reasoning_from: int = 0) -> Record:
    """How an answer ended, with its text from those places on: earlier text is in earlier records."""
    answer, error, side = exchange.answer, exchange.error, exchange.engine_side
    record: Record = {
        "type": "answered",
        "number": exchange.number,
        "outcome": exchange.outcome.value,
        "content": answer.content[content_from:],
        "reasoning": answer.reasoning[reasoning_from:],
        "tool_calls": [asdict(each) for each in answer.tool_calls],
        "finish_reason": answer.finish_reason,
        "usage": _known(answer.usage) if answer.usage is not None else None,
        "first_tokens": answer.first_tokens,
        "error": {key: getattr(error, key) for key in ("id", "summary", "remedy", "detail")} if error else None,
        "engine_side": _known(side) or None if side is not None else None,
    }
    for name in TIMES:
        at = getattr(answer, f"{name}_at")
        record[f"{name}_seconds"] = None if at is None else round(at - answer.started_at, 6)
    return {key: value for key, value in record.items() if value not in ("", [], None)}


def _known(value: Usage | EngineSide) -> Record:
    return {key: each for key, each in asdict(value).items() if each is not None and each is not False}


def records_of(thread: ChatThread, files: Callable[[Attachment], str]) -> list[Record]:
    """A whole conversation as the lines of a new file."""
    lines = [header(thread), title(thread.title)]
    current = NO_SETTINGS
    for exchange in thread.exchanges:
        if exchange.settings != current:
            lines.append(settings(exchange.settings))
            current = exchange.settings
        lines.append(asked(exchange, [files(each) for each in exchange.attachments]))
        if not exchange.live:
            lines.append(answered(exchange, exchange.answer.carried))
    if thread.settings != current:
        lines.append(settings(thread.settings))
    if thread.sent_from:
        lines.append(trim(thread.sent_from))
    return lines


def thread_json(thread: ChatThread) -> Record:
    """A whole conversation as one object, attachments included; `thread_of_json` reads it."""
    exchanges = []
    for exchange in thread.exchanges:
        record = asked(exchange, ["" for _ in exchange.attachments]) | answered(exchange, exchange.answer.carried)
        for kept, attachment in zip(record.get("attachments", []), exchange.attachments, strict=True):
            kept.pop("file")
            kept["data"] = base64.b64encode(attachment.data).decode("ascii")
        if exchange.answer.carried:
            record["content"] = exchange.answer.content
        record.pop("type")
        exchanges.append(record | {"settings": settings_json(exchange.settings)})
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


# --- read ---------------------------------------------------------------------------------------------------

_Number: TypeAlias = Annotated[float, Meta(gt=-1e10, lt=1e11)]
_Whole: TypeAlias = Annotated[int, Meta(ge=0)]
_DAMAGE: Final = (KeyError, TypeError, ValueError, AttributeError, ValidationError)


class ThreadReader(Struct, eq=False):
    """Puts a conversation together from its records. Never fails: unreadable records are counted in `damaged`.

    `load` gives the bytes of a saved attachment by its name; empty when it is gone.
    """

    _load: Callable[[str], bytes]
    _thread: ChatThread = ChatThread()
    _exchanges: dict[int, Exchange] = {}
    damaged: int = 0

    def read(self, record: Any) -> None:
        try:
            self._read(record)
        except (*_DAMAGE, UsageError):
            self.damaged += 1

    def _read(self, record: Any) -> None:
        thread = self._thread
        match record["type"]:
            case "conversation":
                self._thread = replace(
                    thread,
                    id=_text(record, "id"),
                    created_at=_float(record, "created_at"),
                    parent=_text(record, "parent"),
                )
            case "title":
                self._thread = replace(thread, title=_text(record, "title"))
            case "settings":
                self._thread = replace(thread, settings=settings_from(record["settings"]))
            case "trim":
                self._thread = replace(thread, sent_from=_whole(record, "number"))
            case "cut":
                number = _whole(record, "number")
                self._exchanges = {n: e for n, e in self._exchanges.items() if n < number}
            case "asked":
                exchange = _asked(record, thread.settings, self._load)
                self._exchanges[exchange.number] = exchange
                self._thread = replace(thread, last_number=max(thread.last_number, exchange.number))
            case "part" | "answered":
                found = self._exchanges.get(_whole(record, "number"))
                if found is not None:  # removed while its answer was on its way to the disk
                    self._exchanges[found.number] = _with_answer(found, record)

    def thread(self) -> ChatThread:
        """What was read. An answer without its end was interrupted."""
        exchanges = tuple(_ended(each) for _, each in sorted(self._exchanges.items()))
        title = self._thread.title
        if not title and exchanges:
            title = title_of(exchanges[0].question, exchanges[0].attachments)
        return replace(self._thread, title=title, exchanges=exchanges, damaged=self.damaged)


def thread_of_json(given: Mapping[str, Any]) -> ChatThread:
    """The conversation in an object of `thread_json`. Raises UsageError that names the unreadable exchange."""
    exchanges: list[Exchange] = []
    entries = given.get("exchanges")
    if not isinstance(entries, list):
        raise UsageError("There are no exchanges in it.", "Import a file that spark-tui exported.")
    for place, entry in enumerate(entries, 1):
        try:
            _whole(entry, "number")
            chosen, carried = settings_from(entry.get("settings") or {}), _optional(entry, "carried") or 0
            exchange = _asked({**entry, "number": place, "content": ""}, chosen, lambda _: b"")
            exchange = _with_answer(exchange, {"type": "answered", "outcome": AnswerOutcome.COMPLETE.value, **entry})
            exchanges.append(_ended(replace(exchange, answer=replace(exchange.answer, carried=carried))))
        except (*_DAMAGE, binascii.Error) as error:
            raise UsageError(
                f"Exchange {place} of it cannot be read.", "Import a file as it was exported.", detail=repr(error)
            ) from None
    numbers = [entry["number"] for entry in entries]

    def renumbered(number: Any) -> int:
        """The new number of an exchange: they are counted from 1 again; 0 for none."""
        return bisect_left(numbers, number) + 1 if isinstance(number, int) and number > 0 else 0

    created = given.get("created_at")
    return ChatThread(
        title=str(given.get("title") or ""),
        created_at=float(created) if isinstance(created, int | float) else 0.0,
        settings=settings_from(given.get("settings") or {}),
        exchanges=tuple(replace(each, sent_from=renumbered(each.sent_from)) for each in exchanges),
        sent_from=renumbered(given.get("sent_from")),
        last_number=len(exchanges),
    )


def _ended(exchange: Exchange) -> Exchange:
    return replace(exchange, outcome=AnswerOutcome.FAILED, error=INTERRUPTED) if exchange.live else exchange


def _asked(record: Mapping[str, Any], chosen: ChatSettings, load: Callable[[str], bytes]) -> Exchange:
    content, limit = _text(record, "content"), record.get("limit")
    # In place of a question, earlier versions had results of tool calls.
    typed = [f"Result of {_text(each, 'name')}:\n{_text(each, 'content')}" for each in record.get("tool_answers", ())]
    question = "\n\n".join(typed) or _text(record, "question")
    attachments = tuple(
        Attachment(
            MediaKind(each["kind"]),
            _text(each, "media_type"),
            _text(each, "name"),
            base64.b64decode(each["data"], validate=True) if "data" in each else load(_text(each, "file")),
        )
        for each in record.get("attachments", ())
    )
    return Exchange(
        _whole(record, "number"),
        question,
        _text(record, "engine"),
        _text(record, "model"),
        _float(record, "asked_at"),
        Answer(0.0, content, carried=len(content)),
        attachments=attachments,
        settings=chosen,
        limit=limit if isinstance(limit, int) else None,
        sent_from=_optional(record, "sent_from") or 0,
    )


def _with_answer(exchange: Exchange, record: Mapping[str, Any]) -> Exchange:
    before = exchange.answer
    content, reasoning = before.content + _text(record, "content"), before.reasoning + _text(record, "reasoning")
    answer = replace(before, content=content, reasoning=reasoning)
    if record["type"] == "part":
        return replace(exchange, answer=answer)
    usage, side, error = record.get("usage"), record.get("engine_side"), record.get("error")
    times: dict[str, Any] = {f"{name}_at": convert(record.get(f"{name}_seconds"), _Number | None) for name in TIMES}
    answer = replace(
        answer,
        tool_calls=convert(record.get("tool_calls", ()), tuple[ToolCall, ...]),
        finish_reason=_text(record, "finish_reason"),
        usage=convert(usage, Usage | None),
        first_tokens=_optional(record, "first_tokens"),
        **times,
    )
    return replace(
        exchange,
        answer=answer,
        outcome=AnswerOutcome(record["outcome"]),
        error=None
        if error is None
        else SparkError(_text(error, "summary"), _text(error, "remedy"), detail=_text(error, "detail")),
        engine_side=convert(side, EngineSide | None),
    )


def _text(data: Mapping[str, Any], key: str) -> str:
    return convert(data.get(key, ""), str)


def _float(data: Mapping[str, Any], key: str) -> float:
    return convert(data[key], _Number)


def _whole(data: Mapping[str, Any], key: str) -> int:
    return convert(data[key], _Whole)


def _optional(data: Mapping[str, Any], key: str) -> int | None:
    return convert(data.get(key), _Whole | None)
