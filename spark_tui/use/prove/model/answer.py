"""What a server answered, read as strictly as agents' clients read it: text, calls, counts, and breaches of the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from spark_tui.base.engine.answer import DONE, count_of, object_of, objects_of, stream_error, text_of
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json
from spark_tui.observe.results.model.proof import Api, Call, Question

Event: TypeAlias = dict[str, Any]


class ProveAnswer(Struct, frozen=True):
    """A whole answer. `finish` is `stop`, `length` or `tool_calls` for each API alike, empty where it never ended.
    `logprobs` counts the tokens with probabilities. `vectors` are in the order of the texts, a score is a vector of one
    number. `faults` are breaches of the API's own rules, in words."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    logprobs: int = 0
    faults: tuple[str, ...] = ()
    vectors: tuple[tuple[float, ...], ...] = ()


class _Draft(Struct):
    """An answer while it is read; `calls` holds id, name and arguments by the index in the stream."""

    text: str = ""
    reasoning: str = ""
    calls: dict[Any, list[str]] = field(default_factory=dict)
    finish: str = ""
    usage: tuple[int | None, int | None] = (None, None)
    logprobs: int = 0
    faults: list[str] = field(default_factory=list)

    def answer(self) -> ProveAnswer:
        calls = tuple(Call(*each) for each in self.calls.values())
        if any(not call.id for call in calls):
            self.faults.append("a call has no id")
        elif len({call.id for call in calls}) < len(calls):
            self.faults.append("two calls have the same id")
        if not self.finish:
            self.faults.append("no finish reason")
        faults = tuple(dict.fromkeys(self.faults))
        return ProveAnswer(
            self.text, self.reasoning, calls, self.finish, *self.usage, logprobs=self.logprobs, faults=faults
        )


def read_answer(question: Question, payloads: Sequence[str]) -> ProveAnswer:
    """The answer in the data of a stream, or in one JSON text. Raises SparkError for an error that the server sent
    inside its answer; `faults` are all others."""
    draft = _Draft()
    events = list(_events(payloads, draft))
    for event in events:
        if event.get("error") or event.get("object") == "error" or event.get("type") == "error":
            raise stream_error(event)
    if question.api is Api.TRANSCRIPTIONS:
        text = next(iter(events), {}).get("text")
        return ProveAnswer(text_of(text), faults=() if isinstance(text, str) else ("no text",))
    if question.api in (Api.EMBEDDINGS, Api.RERANK):
        return _vectors(next(iter(events), {}), len(question.texts))
    whole, parts = _READERS[question.api]
    if not events:
        draft.faults.append("the answer has no content")
    elif not question.stream:
        whole(events[0], draft)
    elif len(events) == 1 and _is_whole(events[0]):
        draft.faults.append("the answer came in one piece, not as a stream")
        whole(events[0], draft)
    else:
        parts(events, draft)
        if question.api is Api.CHAT and DONE not in (payload.strip() for payload in payloads[-1:]):
            draft.faults.append("the stream does not end with [DONE]")
    return draft.answer()


def _events(payloads: Sequence[str], draft: _Draft) -> Iterator[Event]:
    for payload in payloads:
        if payload.strip() == DONE:
            continue
        try:
            event = load_json(payload)
        except ValueError:
            draft.faults.append(f"not JSON: {truncate(clean_line(payload), 60)}")
            continue
        if isinstance(event, dict):
            yield event


def _is_whole(event: Event) -> bool:
    choice = next(iter(objects_of(event.get("choices"))), {})
    return "message" in choice or event.get("object") == "response" or event.get("type") == "message"


def _vectors(body: Event, count: int) -> ProveAnswer:
    """Of `count` texts: `data` with an `embedding` each, or `results` with a `relevance_score` each, by index."""
    found: dict[int, tuple[float, ...]] = {}
    for entry in (*objects_of(body.get("data")), *objects_of(body.get("results"))):
        index, numbers = entry.get("index"), entry.get("embedding", [entry.get("relevance_score")])
        if isinstance(index, int) and isinstance(numbers, list):
            found[index] = tuple(float(each) for each in numbers if isinstance(each, int | float))
    vectors = tuple(found.get(at, ()) for at in range(count))
    return ProveAnswer(vectors=vectors, faults=() if all(vectors) else ("a text has no vector or score",))


def _usage(body: Event, prompt: str, completion: str) -> tuple[int | None, int | None]:
    usage = object_of(body.get("usage"))
    return count_of(usage, prompt), count_of(usage, completion)


# --- chat ---------------------------------------------------------------------------------------------------


def _chat_whole(body: Event, draft: _Draft) -> None:
    choice = next(iter(objects_of(body.get("choices"))), {})
    message = object_of(choice.get("message"))
    draft.text = text_of(message.get("content"))
    draft.reasoning = text_of(message.get("reasoning")) or text_of(message.get("reasoning_content"))
    for index, call in enumerate(objects_of(message.get("tool_calls"))):
        function = object_of(call.get("function"))
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            draft.faults.append("arguments are not a string of JSON")
            arguments = json.dumps(arguments)
        draft.calls[index] = [text_of(call.get("id")), text_of(function.get("name")), arguments]
    draft.finish = text_of(choice.get("finish_reason"))
    draft.logprobs = _logprobs(choice)
    draft.usage = _usage(body, "prompt_tokens", "completion_tokens")


def _logprobs(choice: Event) -> int:
    tokens = objects_of(object_of(choice.get("logprobs")).get("content"))
    return sum(isinstance(token.get("logprob"), int | float) for token in tokens)


def _chat_stream(events: Sequence[Event], draft: _Draft) -> None:
    for event in events:
        if event.get("usage"):
            draft.usage = _usage(event, "prompt_tokens", "completion_tokens")
        choice = next(iter(objects_of(event.get("choices"))), {})
        delta = object_of(choice.get("delta"))
        text, calls = text_of(delta.get("content")), objects_of(delta.get("tool_calls"))
        if draft.finish and (text or calls):
            draft.faults.append("content comes after the finish reason")
        draft.text += text
        draft.reasoning += text_of(delta.get("reasoning")) or text_of(delta.get("reasoning_content"))
        draft.logprobs += _logprobs(choice)
        for call in calls:
            _call_piece(call, draft)
        draft.finish = text_of(choice.get("finish_reason")) or draft.finish


def _call_piece(piece: Event, draft: _Draft) -> None:
    """A client joins the pieces of an index: its first one has id and name, and no later one has them again."""
    index, function = piece.get("index"), object_of(piece.get("function"))
    id_, name, arguments = text_of(piece.get("id")), text_of(function.get("name")), function.get("arguments")
    if not isinstance(index, int):
        draft.faults.append("a piece of a call has no index")
        index = len(draft.calls) if id_ else max(len(draft.calls) - 1, 0)
    if arguments is not None and not isinstance(arguments, str):
        draft.faults.append("arguments are not a string of JSON")
        arguments = json.dumps(arguments)
    if index not in draft.calls:
        draft.calls[index] = [id_, name, arguments or ""]
        if not name:
            draft.faults.append("the first piece of a call has no name")
        return
    known = draft.calls[index]
    if name:
        draft.faults.append("the name of a call comes twice")
    if id_ and id_ != known[0]:
        draft.faults.append("the id of a call changes in the stream")
    known[2] += arguments or ""


# --- responses ----------------------------------------------------------------------------------------------


def _items(items: Sequence[Event], draft: _Draft) -> None:
    for item in items:
        parts = objects_of(item.get("content"))
        match item.get("type"):
            case "message":
                draft.text += "".join(text_of(part.get("text")) for part in parts)
            case "reasoning":
                draft.reasoning += "".join(
                    text_of(part.get("text")) for part in (*parts, *objects_of(item.get("summary")))
                )
            case "function_call":
                call = [text_of(item.get("call_id")), text_of(item.get("name")), text_of(item.get("arguments"))]
                draft.calls[len(draft.calls)] = call


def _responses_end(body: Event, draft: _Draft) -> None:
    """Status and usage of the whole response, once its items are read."""
    status = body.get("status")
    if status == "completed":
        draft.finish = "tool_calls" if draft.calls else "stop"
    elif status == "incomplete":
        reason = text_of(object_of(body.get("incomplete_details")).get("reason"))
        draft.finish = "length" if reason in ("max_output_tokens", "max_tokens", "") else reason
    draft.usage = _usage(body, "input_tokens", "output_tokens")


def _responses_whole(body: Event, draft: _Draft) -> None:
    _items(objects_of(body.get("output")), draft)
    _responses_end(body, draft)


_ENDS: Final = ("response.completed", "response.incomplete")


def _responses_stream(events: Sequence[Event], draft: _Draft) -> None:
    """Clients show the deltas and keep the items: both must say the same."""
    text, items = "", []
    arguments: dict[Any, str] = {}
    for event in events:
        kind, delta = event.get("type"), text_of(event.get("delta"))
        if kind == "response.output_text.delta":
            text += delta
        elif kind == "response.function_call_arguments.delta":
            place = event.get("output_index")
            arguments[place] = arguments.get(place, "") + delta
        elif kind == "response.output_item.done":
            items.append(object_of(event.get("item")))
            streamed = arguments.get(event.get("output_index"))
            if items[-1].get("type") == "function_call" and streamed != items[-1].get("arguments"):
                draft.faults.append("the arguments in the deltas differ from those of the item")
        elif kind == "response.failed":
            raise stream_error(object_of(event.get("response")))
    _items(items, draft)
    if text != draft.text:
        draft.faults.append("the text in the deltas differs from that of the item")
    ended = [object_of(event.get("response")) for event in events if event.get("type") in _ENDS]
    if ended:
        _responses_end(ended[-1], draft)
    else:
        draft.faults.append("the stream has no response.completed")


# --- messages -----------------------------------------------------------------------------------------------

_FINISH: Final = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


def _block(block: Event, draft: _Draft) -> None:
    match block.get("type"):
        case "text":
            draft.text += text_of(block.get("text"))
        case "thinking":
            draft.reasoning += text_of(block.get("thinking"))
        case "tool_use":
            given = block.get("input")
            arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            if not isinstance(given, dict):
                draft.faults.append("the input of a call is not an object")
            draft.calls[len(draft.calls)] = [text_of(block.get("id")), text_of(block.get("name")), arguments]


def _messages_whole(body: Event, draft: _Draft) -> None:
    for block in objects_of(body.get("content")):
        _block(block, draft)
    reason = text_of(body.get("stop_reason"))
    draft.finish = _FINISH.get(reason, reason)
    draft.usage = _usage(body, "input_tokens", "output_tokens")


_DELTAS: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_BLOCKS: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "tool_use"}


def _messages_stream(events: Sequence[Event], draft: _Draft) -> None:
    """Blocks are opened, filled and closed by their index."""
    open_blocks: dict[Any, Event] = {}
    prompt = completion = None
    for event in events:
        index = event.get("index")
        match event.get("type"):
            case "message_start":
                prompt, _ = _usage(object_of(event.get("message")), "input_tokens", "output_tokens")
            case "content_block_start":
                open_blocks[index] = {**object_of(event.get("content_block")), "pieces": ""}
            case "content_block_delta":
                delta = object_of(event.get("delta"))
                kind = text_of(delta.get("type"))
                if kind in _DELTAS and open_blocks.get(index, {}).get("type") != _BLOCKS[kind]:
                    draft.faults.append(f"a {kind} comes for a block that is not open, or of another type")
                elif kind in _DELTAS:
                    open_blocks[index]["pieces"] += text_of(delta.get(_DELTAS[kind]))
            case "content_block_stop" if index in open_blocks:
                _close_block(open_blocks.pop(index), draft)
            case "message_delta":
                reason = text_of(object_of(event.get("delta")).get("stop_reason"))
                draft.finish = _FINISH.get(reason, reason)
                later, completion = _usage(event, "input_tokens", "output_tokens")
                prompt = later if later else prompt
    draft.usage = (prompt, completion)
    if open_blocks:
        draft.faults.append("a content block is never closed")
    if not any(event.get("type") == "message_stop" for event in events):
        draft.faults.append("the stream has no message_stop")


def _close_block(block: Event, draft: _Draft) -> None:
    pieces = block.pop("pieces")
    if block.get("type") != "tool_use":
        key = text_of(block.get("type"))
        _block({**block, key: text_of(block.get(key)) + pieces}, draft)
        return
    given: Any = block.get("input")
    if pieces:
        try:
            given = load_json(pieces)
        except ValueError:
            given = pieces
    _block({**block, "input": given}, draft)


_READERS: Final[dict[Api, tuple[Callable[[Event, _Draft], None], Callable[[Sequence[Event], _Draft], None]]]] = {
    Api.CHAT: (_chat_whole, _chat_stream),
    Api.RESPONSES: (_responses_whole, _responses_stream),
    Api.MESSAGES: (_messages_whole, _messages_stream),
}
