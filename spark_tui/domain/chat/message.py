"""Talking to a model: messages, stream events, and the reducer that turns events into an answer with its timings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from spark_tui.domain.chat.parameters import SERVER_DEFAULTS
from spark_tui.domain.chat.parameters import ChatParameters as ChatParameters  # asked for together with a request
from spark_tui.domain.text import clean


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


class MediaKind(StrEnum):
    """What can be sent beside text."""

    IMAGE = "image"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A picture or a sound that goes with a question. `media_type` is told by its bytes: `image/png`, `audio/wav`."""

    kind: MediaKind
    media_type: str
    name: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `reasoning` is sent as it stands: whoever writes the history decides whether it goes with it."""

    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function that the model may ask for. `parameters` is a JSON schema, as JSON text."""

    name: str
    description: str = ""
    parameters: str = '{"type": "object", "properties": {}}'


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is sent. `model` is a served name; `tool_choice` is `auto`, `none`, `required`, or a tool's name.

    `go_on`: the last message is the assistant's own, and the answer goes on where it ends.
    """

    model: str
    messages: tuple[Message, ...]
    parameters: ChatParameters = SERVER_DEFAULTS
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = ""
    go_on: bool = False


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
    """A piece of tool call number `index`, counted from 0 in the order in which they began; arguments grow."""

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
    """Token counts as the server reports them, so far or at the end; None where it does not."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token of the answer, its natural log probability, and the likeliest ones in its place, itself among them."""

    token: str
    logprob: float
    likeliest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The log probabilities of the tokens that came last, where they were asked for."""

    tokens: tuple[TokenLogprobs, ...]


ChatEvent: TypeAlias = ContentDelta | ReasoningDelta | ToolCallDelta | Finished | Usage | Logprobs


PREFILL_TOKENS = 256
"""A prompt of fewer tokens says nothing about how fast prompts are read."""

# --- the answer ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer so far. Times are seconds on one monotonic clock. The text is raw: whoever shows it cleans it."""

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
    first_tokens: int | None = None
    """Tokens made by `first_token_at`: parsers hold `<think>` and tool call marks back. None when the server counts
    only at the end."""
    carried: int = 0
    """Characters at the beginning of the content that an earlier request had brought: this one went on from there."""
    logprobs: tuple[TokenLogprobs, ...] = ()

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

        A lower bound: the time holds the way there, the queue and the first decoded token too. Where the server does
        not tell what it had in its prefix cache, all of the prompt counts.
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

    def message(self) -> Message:
        """The answer as a turn of the conversation."""
        return Message(Role.ASSISTANT, self.content, self.reasoning, self.tool_calls)


class AnswerBuilder:
    """Collects the pieces of one answer; joins them when it is looked at.

    Growing strings in a frozen value copies all of them with each token: 7.2 s for 100,000 tokens, here 0.1 s.
    """

    def __init__(self, started_at: float, *, content: str = "", reasoning: str = "") -> None:
        """`content` and `reasoning` are what an earlier request brought, where this one goes on from there."""
        self._started_at = started_at
        self._carried = len(content)
        self._content: list[str] = [content] if content else []
        self._reasoning: list[str] = [reasoning] if reasoning else []
        self._logprobs: list[TokenLogprobs] = []
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

    @classmethod
    def of(cls, answer: Answer) -> AnswerBuilder:
        """A builder that goes on from `answer`."""
        builder = cls(answer.started_at)
        builder._content, builder._reasoning = [answer.content], [answer.reasoning]
        builder._calls = [_GrowingCall(call.id, call.name, [call.arguments]) for call in answer.tool_calls]
        builder._finish_reason, builder._usage = answer.finish_reason, answer.usage
        builder._first_token_at, builder._last_token_at = answer.first_token_at, answer.last_token_at
        builder._answer_at, builder._first_tokens = answer.answer_at, answer.first_tokens
        builder._carried, builder._logprobs = answer.carried, list(answer.logprobs)
        builder.size = len(answer.content) + len(answer.reasoning)
        builder.size += sum(len(call.id) + len(call.name) + len(call.arguments) for call in answer.tool_calls)
        return builder

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
            case ToolCallDelta():
                self._token(event.name or event.arguments, at, answering=True)
                self._tool_call(event)
            case Finished(reason):
                self._finish_reason = reason
                if self._first_token_at is not None:
                    self._last_token_at = at  # the end-of-text token has no text, and is counted
            case Usage():
                self._count(event)
            case Logprobs(tokens):
                self._logprobs.extend(tokens)

    def _token(self, text: str, at: float, *, answering: bool) -> None:
        if not text:  # the opening delta carries a role and an empty content: no token yet
            return
        if self._first_token_at is None:
            self._first_token_at = at
        self._last_token_at = at
        if answering and self._answer_at is None:
            self._answer_at = at

    def _tool_call(self, delta: ToolCallDelta) -> None:
        index = max(0, min(delta.index, len(self._calls)))
        if index == len(self._calls):
            self._calls.append(_GrowingCall())
        self._calls[index].add(delta)
        self.size += len(delta.id) + len(delta.name) + len(delta.arguments)

    def _count(self, usage: Usage) -> None:
        self._usage = usage
        first, last = self._first_token_at, self._last_token_at
        if self._first_tokens is None and first is not None and first == last and not self._finish_reason:
            self._first_tokens = usage.completion_tokens

    def snapshot(self) -> Answer:
        """The answer so far."""
        if self._snapshot is None:
            self._snapshot = Answer(
                self._started_at,
                _joined(self._content),
                _joined(self._reasoning),
                tuple(call.so_far() for call in self._calls),
                self._finish_reason,
                self._usage,
                self._first_token_at,
                self._last_token_at,
                self._answer_at,
                self._first_tokens,
                self._carried,
                tuple(self._logprobs),
            )
        return self._snapshot


@dataclass(slots=True)
class _GrowingCall:
    """Some servers repeat id and name with every piece, and some make up a new id each time: the first ones stay."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, delta: ToolCallDelta) -> None:
        self.id = self.id or delta.id
        self.name = self.name or delta.name
        if delta.arguments:
            self.arguments.append(delta.arguments)

    def so_far(self) -> ToolCall:
        return ToolCall(self.id, self.name, _joined(self.arguments))


def _joined(parts: list[str]) -> str:
    """The parts as one string, which takes their place: the next look joins only what is new."""
    text = "".join(parts)
    parts[:] = [text] if text else []
    return text


SURE: Final = 0.9
EVEN: Final = 0.5
DOUBTFUL: Final = 0.1


class Band(StrEnum):
    """How probable a token was: 90 % and more, 50 %, 10 %, less."""

    SURE = "sure"
    LIKELY = "likely"
    DOUBTFUL = "doubtful"
    RARE = "rare"


def probability(logprob: float) -> float:
    """From 0 to 1; vLLM writes -9999 for a token that could not be."""
    return math.exp(min(0.0, logprob)) if not math.isnan(logprob) else 0.0


def band(logprob: float) -> Band:
    """Where a token's probability lies."""
    share = probability(logprob)
    if share >= SURE:
        return Band.SURE
    if share >= EVEN:
        return Band.LIKELY
    return Band.DOUBTFUL if share >= DOUBTFUL else Band.RARE


@dataclass(frozen=True, slots=True)
class LogprobsSummary:
    """`tokens` in all, those `below_even`, and the perplexity: e to the mean of the negative log probabilities."""

    tokens: int
    below_even: int
    perplexity: float


def summary_of(tokens: Sequence[TokenLogprobs]) -> LogprobsSummary:
    """Of at least one token."""
    below = sum(probability(token.logprob) < EVEN for token in tokens)
    mean = sum(min(0.0, token.logprob) for token in tokens if not math.isnan(token.logprob)) / max(1, len(tokens))
    return LogprobsSummary(len(tokens), below, math.exp(min(-mean, 700.0)))


def candidates(token: TokenLogprobs) -> tuple[tuple[str, float, bool], ...]:
    """The tokens in that place, the likeliest first: text, log probability, and whether it is the one that was taken.

    The one that was taken is always among them; servers tell it beside the likeliest ones or instead of the last.
    """
    told = {text: logprob for text, logprob in token.likeliest if text != token.token}
    rows = [(token.token, token.logprob, True), *((text, logprob, False) for text, logprob in told.items())]
    return tuple(sorted(rows, key=lambda row: (-row[1], not row[2])))


def next_doubt(tokens: Sequence[TokenLogprobs], place: int, step: int) -> int:
    """The next token below even odds from `place` in the direction of `step` (1 or -1); `place` when there is none."""
    here = place + step
    while 0 <= here < len(tokens):
        if probability(tokens[here].logprob) < EVEN:
            return here
        here += step
    return place


def written_token(text: str) -> str:
    """A token as it can be read on one line: line ends and tabs written out, control codes removed."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t") or "(nothing to see)"
