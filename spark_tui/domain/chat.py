"""Talking to a model: messages, stream events, and the reducer that turns events into an answer with its timings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias


class Role(StrEnum):
    """Who speaks, in the API's words."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for. `arguments` is JSON text as it came, possibly incomplete."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn."""

    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class ChatParameters:
    """Sampling and template settings; None leaves the server's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    thinking: bool | None = None
    reasoning_effort: str = ""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is sent. `model` is a served name."""

    model: str
    messages: tuple[Message, ...]
    parameters: ChatParameters = ChatParameters()


# --- stream events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the reasoning (`reasoning`, or `reasoning_content` of older and other servers)."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of tool call number `index`; id and name come once, arguments grow."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """`stop`, `length`, `tool_calls`, `abort` ..."""

    reason: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the server reports them; None where it does not."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


ChatEvent: TypeAlias = ContentDelta | ReasoningDelta | ToolCallDelta | Finished | Usage


# --- the answer ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer so far. Times are seconds on one monotonic clock."""

    started_at: float
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    usage: Usage | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    answer_at: float | None = None
    """When the first token came that is not reasoning."""

    @property
    def ttft(self) -> float | None:
        """Seconds from sending the request to the first token; None before it came."""
        return None if self.first_token_at is None else self.first_token_at - self.started_at

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens after the first, over the time after the first; None until both are known from the server's usage."""
        if self.usage is None or self.first_token_at is None or self.last_token_at is None:
            return None
        seconds = self.last_token_at - self.first_token_at
        tokens = self.usage.completion_tokens - 1
        return tokens / seconds if tokens > 0 and seconds > 0 else None

    @property
    def reasoning_seconds(self) -> float | None:
        """Seconds from the first token to the answer proper, or to the last token so far; None without reasoning."""
        until = self.last_token_at if self.answer_at is None else self.answer_at
        if not self.reasoning or self.first_token_at is None or until is None:
            return None
        return max(0.0, until - self.first_token_at)

    def message(self) -> Message:
        """The answer as a turn of the conversation."""
        return Message(Role.ASSISTANT, self.content, self.reasoning, self.tool_calls)


def advance(answer: Answer, event: ChatEvent, at: float) -> Answer:
    """The answer after one more event that arrived at `at`."""
    match event:
        case ContentDelta(text):
            return replace(_answering(_token(answer, text, at), text, at), content=answer.content + text)
        case ReasoningDelta(text):
            return replace(_token(answer, text, at), reasoning=answer.reasoning + text)
        case ToolCallDelta():
            calls = _merge(answer.tool_calls, event)
            text = event.name or event.arguments
            return replace(_answering(_token(answer, text, at), text, at), tool_calls=calls)
        case Finished(reason):
            return replace(answer, finish_reason=reason)
        case Usage():
            return replace(answer, usage=event)


def _token(answer: Answer, text: str, at: float) -> Answer:
    if not text:  # the opening delta carries a role and an empty content: no token yet
        return answer
    first = at if answer.first_token_at is None else answer.first_token_at
    return replace(answer, first_token_at=first, last_token_at=at)


def _answering(answer: Answer, text: str, at: float) -> Answer:
    if not text or answer.answer_at is not None:
        return answer
    return replace(answer, answer_at=at)


def _merge(calls: tuple[ToolCall, ...], delta: ToolCallDelta) -> tuple[ToolCall, ...]:
    index = max(0, min(delta.index, len(calls)))
    old = calls[index] if index < len(calls) else ToolCall()
    new = ToolCall(delta.id or old.id, delta.name or old.name, old.arguments + delta.arguments)
    return (*calls[:index], new, *calls[index + 1 :])
