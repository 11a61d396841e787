"""What an engine's API answers: errors, and streams piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from spark_tui.base.engine import message
from spark_tui.base.engine.runtimes import CHAT_PATH
from spark_tui.base.errors import (
    ApiKeyRejected,
    BadRequest,
    ContextOverflow,
    EngineBusy,
    EngineDead,
    EngineFailed,
    EngineUnreachable,
    ModelNotServed,
    NoSuchPath,
    ReplyCutOff,
    SparkError,
)
from spark_tui.base.quantities import human_bytes, human_count
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json

_OVERFLOW = re.compile(
    r"(?:maximum|model's|available) context (?:length|size)|max_model_len|maximum model length"
    r"|context (?:window|length).{0,40}exceed|exceed.{0,40}context (?:window|length|size)|prompt is too long",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:context (?:length|size|window)|model length|max_model_len)(?: is only| is| of)?[ =:(]{1,3}(\d[\d,]*)",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    r"(?:contains|passed|has)(?P<least> at least)? (?P<a>\d[\d,]*) (?:input )?tokens"
    r"|\((?P<b>\d[\d,]*) in the messages"
    r"|(?P<c>\d[\d,]*) tokens from the input"
    r"|prompt \(length (?P<d>\d[\d,]*)\)"
    r"|input length \((?P<e>\d[\d,]*)\)"
    r"|request \((?P<f>\d[\d,]*) tokens\)",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"max_tokens=(?P<a>\d[\d,]*)"
    r"|is too large: (?P<b>\d[\d,]*)"
    r"|requested (?P<c>\d[\d,]*) output tokens"
    r"|(?P<d>\d[\d,]*) (?:in|tokens for) the completion",
    re.IGNORECASE,
)
_LONGER = "or launch the model with a longer context (--max-model-len)."


MAX_MESSAGE = 600
MAX_SUMMARY = 160

_TITLE = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]{0,200}>")
# `{'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', ...}`: a Python repr, loc a tuple before 0.20.
_VALIDATION = re.compile(
    r"""'loc': ('[^']*'|\([^)]*\)), 'msg': (?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""", re.DOTALL
)
_ALIASES = re.compile(r"Valid aliases: (.+?)\.?$")
_ASKED = re.compile(r"model `([^`]*)`")
_LOADING = re.compile(r"\bloading model\b", re.IGNORECASE)
_BUSY = re.compile(r"overload|too many|busy|queue|rate limit|no slot|capacity", re.IGNORECASE)
_GONE = re.compile(r"EngineCore encountered an issue|EngineDeadError|engine.{0,20}\bdead\b", re.IGNORECASE)
_MEDIA = re.compile(r"is not a multimodal model|At most (?P<count>\d+) \w+\(s\) may be provided", re.IGNORECASE)
_LEAVING = re.compile(r"after shutdown|shutting down", re.IGNORECASE)


class Problem(Struct, frozen=True):
    """An error body, read. `message` is cleaned and bounded; `body` is the error's own object, for its other keys."""

    message: str
    kind: str = ""
    code: int | None = None
    body: Mapping[str, Any] | None = None


def message_of(body: str) -> str:
    """The sentence in an error body of any shape, cleaned and bounded."""
    return _of_text(body).message


def is_loading(body: str) -> bool:
    """llama.cpp says `Loading model` with a 503 until it is ready."""
    return bool(_LOADING.search(message_of(body)))


def api_error(status: int, body: str, *, path: str = CHAT_PATH) -> SparkError:
    """The error for an HTTP answer of that status and body to a request for `path`."""
    return _error(status, _of_text(body), path)


def stream_error(body: object) -> SparkError:
    """The error for an error object inside a stream that began with HTTP 200, already parsed from JSON."""
    problem = _problem(body)
    status = problem.code if problem.code is not None else 400 if "BadRequest" in problem.kind else 500
    return _error(status, problem, CHAT_PATH)


def model_not_served(asked: str, served: tuple[str, ...], *, detail: str = "") -> ModelNotServed:
    """The error for a name that the engine does not serve; `served` is empty when that is not known."""
    names = ", ".join(_short(name) for name in served)
    return ModelNotServed(
        f"The engine does not serve {_short(asked)}." if asked else "The engine does not serve this model.",
        f"It serves {names}." if names else "List served names with: spark-tui ps",
        detail=detail,
        served=served,
    )


# --- reading ----------------------------------------------------------------------------------------------


def _of_text(body: str) -> Problem:
    try:
        return _problem(load_json(body))
    except ValueError:
        title = _TITLE.search(body)
        return Problem(_short(title[1] if title else _TAG.sub(" ", body)))


def _problem(body: object) -> Problem:
    """An error of any shape, already parsed from JSON."""
    if not isinstance(body, Mapping):
        return Problem(_short(str(body)))
    error = body.get("error") or body.get("detail") or body
    if not isinstance(error, Mapping):
        return Problem(_sentence(error), "", _status(body.get("code")), body)
    message = error.get("message") or error.get("detail") or error.get("type") or ""
    return Problem(_sentence(message), str(error.get("type") or ""), _status(error.get("code")), error)


def _sentence(message: object) -> str:
    text, faults = str(message), []
    if isinstance(message, list):  # FastAPI's own validation errors
        for part in message:
            place = part.get("loc") if isinstance(part, Mapping) else None
            fault = str(part.get("msg") or part) if isinstance(part, Mapping) else str(part)
            faults.append(f"{_place('.'.join(map(str, place)))}: {fault}" if isinstance(place, list) else fault)
    else:
        faults = [f"{_place(at)}: {one or other}" for at, one, other in _VALIDATION.findall(text[:20_000])]
        faults = faults or [text]
    return _short("; ".join(faults))


def _place(location: str) -> str:
    words = re.findall(r"[^\s'\"(),.]+", location)
    return ".".join(words[1:] if words[:1] == ["body"] and len(words) > 1 else words)


def _status(code: object) -> int | None:
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:4])
    return code if isinstance(code, int) and 400 <= code <= 599 else None


def _short(text: str) -> str:
    return truncate(" ".join(clean_line(text).split()), MAX_MESSAGE)


# --- meaning ------------------------------------------------------------------------------------------


def _error(status: int, problem: Problem, path: str) -> SparkError:
    if status in (401, 403):
        return ApiKeyRejected(
            "The engine rejected the API key.",
            "Set the key it was started with. spark-tui keeps the keys that it created.",
            detail=problem.message,
        )
    if problem.kind == "exceed_context_size_error" or _OVERFLOW.search(problem.message):
        return _overflow(problem)
    if status == 404 and "model" in problem.message.lower():
        asked, aliases = _ASKED.search(problem.message), _ALIASES.search(problem.message)
        served = tuple(name.strip() for name in aliases[1].split(",") if name.strip()) if aliases else ()
        return model_not_served(asked[1] if asked else "", served, detail=problem.message)
    if status in (404, 405):
        return NoSuchPath(
            f"The server has no {path}.",
            "The model has no chat (embedding, reranking), or the server is not OpenAI-compatible.",
            detail=problem.message,
        )
    if status == 429 or (status == 503 and _BUSY.search(problem.message)):
        return EngineBusy("The engine is busy.", "Wait a moment, then retry.", detail=problem.message)
    return _server_error(status, problem) if status >= 500 else _refusal(status, problem)


def _refusal(status: int, problem: Problem) -> SparkError:
    if status < 400:
        return BadRequest(
            f"The server redirects (HTTP {status}).",
            "A proxy or login page answered instead of the engine: check the address.",
            detail=problem.message,
        )
    if found := _MEDIA.search(problem.message):
        return BadRequest(
            "The model does not support images or audio."
            if not found["count"] or found["count"] == "0"
            else f"The model accepts at most {found['count']} attachments per message.",
            "Remove them, or use a multimodal model. vLLM limits the number with --limit-mm-per-prompt.",
            detail=problem.message,
        )
    summary, detail = _summary("The engine refused the request", status, problem.message)
    return BadRequest(summary, "Correct the named value, then retry.", detail=detail)


def _server_error(status: int, problem: Problem) -> SparkError:
    message = problem.message
    if status in (502, 504):
        return EngineUnreachable(
            f"The proxy cannot reach the engine (HTTP {status}).",
            "Check that the engine is running, and the proxy's target.",
            detail=message,
        )
    if _LOADING.search(message):
        return EngineUnreachable("The engine is still loading its model.", "Wait until it is ready, then retry.")
    if _LEAVING.search(message):
        return EngineFailed("The engine is shutting down.", "Start it again, then retry.", detail=message)
    if _GONE.search(message):
        return EngineFailed(
            "The engine core died.", "See the engine's log for the reason, restart it, then retry.", detail=message
        )
    if status == 503:
        return EngineDead(
            "The engine is unavailable.", "Check its log, and restart it if it does not recover.", detail=message
        )
    summary, detail = _summary("The engine failed", status, message)
    return EngineFailed(summary, "Check its log. Retry, or restart it if it does not recover.", detail=detail)


def _summary(what: str, status: int, message: str) -> tuple[str, str]:
    """A summary that fits a toast, and the whole message when the summary does not hold it."""
    short = truncate(message, MAX_SUMMARY) or f"HTTP {status}, no reason given"
    return f"{what}: {short}", "" if short == message else message


def _overflow(problem: Problem) -> ContextOverflow:
    """The error with its numbers, as far as the message or the keys of the error object give them."""

    def number(key: str, pattern: re.Pattern[str]) -> int | None:
        value = (problem.body or {}).get(key)
        if isinstance(value, int) and value > 0:
            return value
        found = pattern.search(problem.message)
        digits = next((group for group in found.groups() if group and group[0].isdigit()), "") if found else ""
        return int(digits.replace(",", "")[:12] or 0) or None

    limit, prompt, answer = number("n_ctx", _LIMIT), number("n_prompt_tokens", _PROMPT), number("", _ANSWER)
    found = _PROMPT.search(problem.message)
    least = "at least " if found is not None and found["least"] else ""
    room = f"the engine's context of {human_count(limit)} tokens" if limit else "the engine's context"
    remedy = f"Lower max tokens, {_LONGER}"
    if prompt and answer:
        summary = (
            f"The conversation ({least}{human_count(prompt)} tokens) and an answer of up to {human_count(answer)} "
            f"do not fit into {room}."
        )
        remedy = f"Lower max tokens, start a new conversation, {_LONGER}"
    elif answer:
        summary = f"An answer of up to {human_count(answer)} tokens does not fit into {room}."
    else:
        size = f" has {least}{human_count(prompt)} tokens: it" if prompt else ""
        summary = f"The conversation{size} does not fit into {room}."
        remedy = f"Start a new conversation, {_LONGER}"
    return ContextOverflow(
        summary, remedy, detail=problem.message, limit=limit, prompt_tokens=prompt, answer_tokens=answer
    )


# --- stream ----------------------------------------------------------------------------------------------


MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = (b"\n", b"\r")


class EventTooLong(ValueError):
    """An event that no server of ours would send: reading on would only fill the memory."""


class SseDecoder:
    """Feed it chunks as they come; what it yields does not depend on where they were cut."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of every event that `chunk` completes; to be read to its end. Raises EventTooLong."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF
            self._after_cr = False
        for piece in chunk.splitlines(keepends=True):
            ended = piece.endswith(_LINE_ENDS)
            piece = piece.rstrip(b"\r\n") if ended else piece  # noqa: PLW2901
            if len(self._line) + len(piece) > self._max:
                raise self._too_long()
            self._line += piece
            if ended and (event := self._end_of_line()) is not None:
                yield event
        if chunk:
            self._after_cr = chunk.endswith(b"\r")

    def _end_of_line(self) -> str | None:
        """The event that the line ends, or None."""
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line and self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            self._data, self._data_size = [], 0
            return data
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._keep(value)
        elif name == b"error":
            self._keep(b'{"error":%b}' % value)
        return None

    def _keep(self, value: bytes) -> None:
        self._data_size += len(value) + 1
        if self._data_size > self._max:
            raise self._too_long()
        self._data.append(value)

    def _too_long(self) -> EventTooLong:
        return EventTooLong(f"an event of more than {human_bytes(self._max)}")


# --- stream ----------------------------------------------------------------------------------------------


DONE = "[DONE]"
SHOWN_CHARS = 500


class StreamReader:
    """Turns the data of one stream into events, and checks that the answer came to its end."""

    def __init__(self) -> None:
        self.finish_reason = ""
        self.done = False
        self._call_count = 0
        self._calls: dict[int | None, tuple[int, str, str]] = {}
        """The latest call of each index: its number, id and name."""

    @property
    def finished(self) -> bool:
        """The answer is complete; a usage chunk and `[DONE]` may follow."""
        return bool(self.finish_reason)

    def read(self, data: str) -> Iterator[message.ChatEvent]:
        """The events of one chunk. Raises the API part of the error tree for an error inside the stream."""
        if data.strip() == DONE:
            self.done = True
            return
        try:
            chunk = load_json(data)
        except ValueError:
            raise EngineFailed(
                "The engine sent something that is not JSON.",
                "Ask again; if it stays so, look at its log.",
                detail=truncate(clean_line(data), SHOWN_CHARS),
            ) from None
        if not isinstance(chunk, dict):
            return
        # `{"error": ...}`; `{"object": "error", "message": ...}` of SGLang and of vLLM before 0.10
        if chunk.get("error") or chunk.get("object") == "error":
            raise stream_error(chunk)
        choice = next((each for each in objects_of(chunk.get("choices")) if each.get("index", 0) in (0, None)), None)
        if choice is not None:
            # A server that does not stream answers with one whole `message`.
            yield from self._delta(choice.get("delta") or choice.get("message"))
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self.finish_reason = reason
                yield message.AnswerFinished(reason)
        usage = object_of(chunk.get("usage"))
        prompt, completion = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens")
        if prompt is not None and completion is not None:
            yield message.Usage(
                prompt,
                completion,
                count_of(object_of(usage.get("completion_tokens_details")), "reasoning_tokens"),
                count_of(object_of(usage.get("prompt_tokens_details")), "cached_tokens"),
            )

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

    def _delta(self, given: Any) -> Iterator[message.ChatEvent]:
        delta = object_of(given)
        reasoning = delta.get("reasoning") or delta.get("reasoning_content")
        if isinstance(reasoning, str):
            yield message.ReasoningDelta(reasoning)
        if content := text_of(delta.get("content")):
            yield message.ContentDelta(content)
        for call in objects_of(delta.get("tool_calls")):
            function = object_of(call.get("function"))
            arguments = function.get("arguments")
            if isinstance(arguments, dict):  # Ollama and early llama.cpp send the object itself
                arguments = json.dumps(arguments, ensure_ascii=False)
            id_, name = text_of(call.get("id")), text_of(function.get("name"))
            number = self._call_number(call.get("index"), id_, name, text_of(arguments))
            yield message.ToolCallDelta(number, id_, name, text_of(arguments))

    def _call_number(self, index: Any, id_: str, name: str, arguments: str) -> int:
        """Numbers the calls of one answer in the order in which they began, whatever a server writes as their index.

        Seen: no index at all; parallel calls that all have index 0 and begin with a new id and no arguments (lmdeploy,
        early SGLang and vLLM); one call whose id is new with each piece (vLLM before 0.9, a named tool).
        """
        place = index if isinstance(index, int) else None
        known = self._calls.get(place)
        if known is not None:
            number, known_id, known_name = known
            new_id = bool(id_ and known_id and id_ != known_id)
            if not new_id or (place is not None and not (name and (name != known_name or not arguments))):
                self._calls[place] = number, known_id or id_, known_name or name
                return number
        self._calls[place] = self._call_count, id_, name
        self._call_count += 1
        return self._call_count - 1


def object_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count_of(usage: dict[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
