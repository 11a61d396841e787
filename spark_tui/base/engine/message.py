"""Messages, stream events, and the builder that turns events into an answer with its timings."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field

from spark_tui.base.engine.parameters import SERVER_DEFAULTS
from spark_tui.base.engine.parameters import ChatParameters as ChatParameters  # asked for together with a request


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class MediaKind(StrEnum):
    IMAGE = "image"
    AUDIO = "audio"


class ToolCall(Struct, frozen=True):
    """A call that the model asks for. `arguments` is JSON text as it came, possibly incomplete."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class Attachment(Struct, frozen=True):
    """An image or audio sent with a question. `media_type` is read from its bytes: `image/png`, `audio/wav`."""

    kind: MediaKind
    media_type: str
    name: str
    data: bytes

    def __repr__(self) -> str:
        return f"Attachment({self.name!r})"


class Message(Struct, frozen=True):
    """One message of a request. `reasoning` is sent where it is not empty."""

    role: Role
    content: str
    reasoning: str = ""
    attachments: tuple[Attachment, ...] = ()


class ToolSpec(Struct, frozen=True):
    """A function that the model may ask for. `parameters` is a JSON schema, as JSON text."""

    name: str
    description: str = ""
    parameters: str = '{"type": "object", "properties": {}}'


class ChatRequest(Struct, frozen=True):
    """`model` is a served name; `tool_choice` is `auto`, `none`, `required`, or a tool's name. With `go_on` the answer
    continues the last message, which is the assistant's."""

    model: str
    messages: tuple[Message, ...]
    parameters: ChatParameters = SERVER_DEFAULTS
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = ""
    go_on: bool = False


# --- stream events ------------------------------------------------------------------------------------


class ContentDelta(Struct, frozen=True):
    text: str


class ReasoningDelta(Struct, frozen=True):
    """`reasoning`, or `reasoning_content` of older and other servers."""

    text: str


class ToolCallDelta(Struct, frozen=True):
    """A piece of tool call number `index`, counted from 0 in the order in which they began; arguments grow."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class AnswerFinished(Struct, frozen=True):
    """`stop`, `length`, `tool_calls`, `abort` ..."""

    reason: str


class Usage(Struct, frozen=True):
    """Token counts as the server reports them, so far or at the end; None where it does not."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


ChatEvent: TypeAlias = ContentDelta | ReasoningDelta | ToolCallDelta | AnswerFinished | Usage


PREFILL_TOKENS = 256
"""A prompt of fewer tokens says nothing about how fast prompts are read."""

# --- the answer ---------------------------------------------------------------------------------------


class Answer(Struct, frozen=True):
    """An answer so far. Times are seconds on one monotonic clock. The text is raw: clean it before it is shown."""

    started_at: float
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    usage: Usage | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    answer_at: float | None = None
    """Time of the first token that is not reasoning."""
    first_tokens: int | None = None
    """Tokens made by `first_token_at`: parsers hold `<think>` and tool call marks back. None when the server counts
    only at the end."""
    carried: int = 0
    """Characters at the start of the content that came with an earlier request, which this one continues."""

    @property
    def ttft(self) -> float | None:
        """Seconds from sending the request to the first token; None before it came."""
        return None if self.first_token_at is None else self.first_token_at - self.started_at

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens after the first, over the time after the first; None until both are known from the server's usage.

        That is 1 / TPOT as `vllm bench serve` defines it: (output tokens - 1) / (latency - TTFT).
        """
        if self.usage is None or self.first_token_at is None or self.last_token_at is None:
            return None
        seconds = self.last_token_at - self.first_token_at
        tokens = self.usage.completion_tokens - (1 if self.first_tokens is None else self.first_tokens)
        return tokens / seconds if tokens > 0 and seconds > 0 else None

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Prompt tokens that were not cached, over the time to the first token; None until both are known, and for
        fewer than PREFILL_TOKENS, whose time is all latency.

        A lower bound: the time includes the network, the queue and the first decoded token. Where the server does not
        report its prefix cache, all of the prompt counts.
        """
        if self.usage is None or self.ttft is None or self.ttft <= 0:
            return None
        read = self.usage.prompt_tokens - (self.usage.cached_tokens or 0)
        return read / self.ttft if read >= PREFILL_TOKENS else None

    @property
    def reasoning_seconds(self) -> float | None:
        """Seconds from the first token to the answer proper, or to the last token so far; None without reasoning."""
        until = self.last_token_at if self.answer_at is None else self.answer_at
        if not self.reasoning or self.first_token_at is None or until is None:
            return None
        return max(0.0, until - self.first_token_at)


class _GrowingCall(Struct):
    """Some servers repeat id and name with every piece, and some make up a new id each time: the first ones stay."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class AnswerBuilder:
    """Collects the pieces of one answer; joins them when a snapshot is taken.

    Growing strings in a frozen value copies all of them with each token: 7.2 s for 100,000 tokens, here 0.1 s.
    """

    def __init__(self, started_at: float, *, content: str = "", reasoning: str = "") -> None:
        """`content` and `reasoning` came with an earlier request, which this one continues."""
        self._started_at = started_at
        self._carried = len(content)
        self._content = [content]
        self._reasoning = [reasoning]
        self._calls: list[_GrowingCall] = []
        self._finish_reason = ""
        self._usage: Usage | None = None
        self._first_token_at: float | None = None
        self._last_token_at: float | None = None
        self._answer_at: float | None = None
        self._first_tokens: int | None = None
        self._snapshot: Answer | None = None
        self.size = len(content) + len(reasoning)
        """Characters collected, of text, reasoning and tool calls together."""

    def add(self, event: ChatEvent, at: float) -> None:
        """One more event, which arrived at `at`."""
        self._snapshot = None
        match event:
            case ContentDelta(text):
                self._token(text, at, answering=True)
                self._content.append(text)
                self.size += len(text)
            case ReasoningDelta(text):
                self._token(text, at, answering=False)
                self._reasoning.append(text)
                self.size += len(text)
            case ToolCallDelta(index, id_, name, arguments):
                self._token(name or arguments, at, answering=True)
                index = max(0, min(index, len(self._calls)))
                if index == len(self._calls):
                    self._calls.append(_GrowingCall())
                call = self._calls[index]
                call.id, call.name = call.id or id_, call.name or name
                call.arguments.append(arguments)
                self.size += len(id_) + len(name) + len(arguments)
            case AnswerFinished(reason):
                self._finish_reason = reason
                if self._first_token_at is not None:
                    self._last_token_at = at  # the end-of-text token has no text, and is counted
            case Usage():
                self._usage = event
                first, last = self._first_token_at, self._last_token_at
                if self._first_tokens is None and first is not None and first == last and not self._finish_reason:
                    self._first_tokens = event.completion_tokens

    def _token(self, text: str, at: float, *, answering: bool) -> None:
        if not text:  # the opening delta has a role and an empty content: no token yet
            return
        if self._first_token_at is None:
            self._first_token_at = at
        self._last_token_at = at
        if answering and self._answer_at is None:
            self._answer_at = at

    def snapshot(self) -> Answer:
        """The answer so far; the same object until the next event."""
        if self._snapshot is None:
            self._snapshot = Answer(
                self._started_at,
                _joined(self._content),
                _joined(self._reasoning),
                tuple(ToolCall(call.id, call.name, _joined(call.arguments)) for call in self._calls),
                self._finish_reason,
                self._usage,
                self._first_token_at,
                self._last_token_at,
                self._answer_at,
                self._first_tokens,
                self._carried,
            )
        return self._snapshot


def _joined(parts: list[str]) -> str:
    """The parts as one string, which replaces them: the next snapshot joins only what is new."""
    parts[:] = ["".join(parts)]
    return parts[0]
