"""Server-sent events, and the pieces of an answer that they carry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_tui.base.engine import message
from spark_tui.base.engine.api_errors import stream_error
from spark_tui.base.errors import EngineFailed, ReplyCutOff
from spark_tui.base.quantities import human_bytes
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json

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
