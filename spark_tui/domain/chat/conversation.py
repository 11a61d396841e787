"""A conversation as it stands: exchanges in order, and what of them is sent with the next question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from spark_tui.domain.chat.message import Answer, Attachment, Message, Role, ToolCall
from spark_tui.domain.chat.request import NO_SETTINGS, ChatSettings
from spark_tui.domain.errors import SparkError
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import clean_line, truncate

TITLE_CELLS = 60
QUEUED_SECONDS = 0.05


class Outcome(StrEnum):
    """How an answer ended, or that it has not."""

    LIVE = "live"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a person typed as the result of a tool call. `call_id` is the call's, `name` the tool's."""

    call_id: str
    name: str
    content: str


@dataclass(frozen=True, slots=True)
class EngineSide:
    """What the engine's own metrics say of the time of an answer. None: not told. `shared`: other requests ran too,
    and the figures are of all of them. `queue_seconds` waited before the prompt was read."""

    queue_seconds: float | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    shared: bool = False

    @property
    def queued(self) -> float | None:
        """Seconds in the queue, where there was one: less than QUEUED_SECONDS is none."""
        return self.queue_seconds if self.queue_seconds is not None and self.queue_seconds >= QUEUED_SECONDS else None

    @property
    def acceptance(self) -> float | None:
        """Share of the drafted tokens that were accepted."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens and self.accepted_tokens else None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer so far. `number` counts from 1 and is never used twice; `asked_at` is epoch seconds.

    `error` is set when the outcome is FAILED. With `tool_answers` there is no question: the model's tool calls of the
    exchange before were answered. `limit` is the engine's context in tokens, as far as it was known; `sent_from` the
    number of the first exchange that was sent with it.
    """

    number: int
    question: str
    engine: str
    model: str
    asked_at: float
    answer: Answer
    outcome: Outcome = Outcome.LIVE
    error: SparkError | None = None
    attachments: tuple[Attachment, ...] = ()
    tool_answers: tuple[ToolAnswer, ...] = ()
    settings: ChatSettings = NO_SETTINGS
    limit: int | None = None
    sent_from: int = 0
    engine_side: EngineSide | None = None

    @property
    def live(self) -> bool:
        """More may come."""
        return self.outcome is Outcome.LIVE

    @property
    def stopped(self) -> bool:
        """The person ended it."""
        return self.outcome is Outcome.STOPPED

    @property
    def answered(self) -> bool:
        """There is text that later questions can build on."""
        return bool(self.answer.content.strip())

    @property
    def unfinished(self) -> bool:
        """The answer was stopped, broke off or was cut at the token limit, after its text had begun."""
        ended = self.outcome in (Outcome.STOPPED, Outcome.FAILED) or self.answer.finish_reason == "length"
        return ended and not self.live and self.answered and not self.answer.tool_calls

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a person's answers, each with an id."""
        return () if self.live or self.outcome is Outcome.FAILED else called(self)


def called(exchange: Exchange) -> tuple[ToolCall, ...]:
    """An answer's tool calls; where a server gave none, with ids by which their answers can be told apart."""
    return tuple(
        call if call.id else ToolCall(f"call-{exchange.number}-{place}", call.name, call.arguments)
        for place, call in enumerate(exchange.answer.tool_calls, 1)
    )


@dataclass(frozen=True, slots=True)
class ChatThread:
    """A conversation as it is kept. Times are epoch seconds. `sent_from`: exchanges with a smaller number are shown
    and no longer sent. `parent` is the id of the conversation that it was forked from. `damaged` counts the lines of
    its file that could not be read."""

    id: str = ""
    title: str = ""
    created_at: float = 0.0
    settings: ChatSettings = NO_SETTINGS
    exchanges: tuple[Exchange, ...] = ()
    sent_from: int = 0
    parent: str = ""
    last_number: int = 0
    damaged: int = 0


def title_of(question: str, attachments: Sequence[Attachment] = ()) -> str:
    """A title from the first question: its first line that says something."""
    lines = (" ".join(clean_line(line).split()) for line in question.splitlines())
    first = next((line for line in lines if line), "")
    return truncate(first or next((each.name for each in attachments), "") or "(no title)", TITLE_CELLS)


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """One conversation in a list. Times are epoch seconds; `models` in the order in which they spoke; `size` bytes.

    `damaged` counts lines that could not be read. `in_use`: a program writes in it now, this one included.
    """

    id: str
    title: str
    created_at: float
    changed_at: float
    exchanges: int
    models: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    size: int = 0
    damaged: int = 0
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class ConversationHit:
    """Where a word was found: the conversation, the exchange's number, and the text around it, cleaned."""

    id: str
    title: str
    number: int
    excerpt: str


# --- what is sent -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """What is said next: a question, or the answers to the last exchange's tool calls."""

    question: str = ""
    attachments: tuple[Attachment, ...] = ()
    tool_answers: tuple[ToolAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class _Round:
    """A question and all that followed from it: an answer, or tool calls, their answers, and an answer."""

    exchanges: list[Exchange] = field(default_factory=list)


def history(
    exchanges: Sequence[Exchange], settings: ChatSettings, say: Say | None, *, sent_from: int = 0
) -> tuple[Message, ...]:
    """The messages that say `say` now; None: the last exchange's answer is to go on where it ended.

    A question without an answer is left out: many templates refuse two turns of one speaker in a row. So are tool
    calls that nobody answered, and reasoning, which templates drop by themselves; it is sent within one round of tool
    calls, where models build on it, and everywhere with `preserve_thinking`. A partial answer is kept.
    """
    told = [Message(Role.SYSTEM, settings.system)] if settings.system.strip() else []
    rounds = _rounds([exchange for exchange in exchanges if exchange.number >= sent_from])
    keep = bool(settings.parameters.preserve_thinking)
    now = rounds.pop() if rounds and (say is None or say.tool_answers) else None
    for past in rounds:
        told += _told(_whole(past), keep_reasoning=keep)
    if now is not None:
        told += _told(now.exchanges, keep_reasoning=True, answered=bool(say))
    if say is not None:
        told += _said(say)
    return tuple(told)


def _rounds(exchanges: Sequence[Exchange]) -> list[_Round]:
    rounds: list[_Round] = []
    for exchange in exchanges:
        if not exchange.tool_answers or not rounds:
            rounds.append(_Round())
        rounds[-1].exchanges.append(exchange)
    return rounds


def _whole(past: _Round) -> list[Exchange]:
    """A round up to its last answer; empty without one. One whose beginning is no longer sent has no question."""
    kept = list(past.exchanges)
    while kept and not kept[-1].answered:
        kept.pop()
    return kept if kept and not kept[0].tool_answers else []


def _told(exchanges: Sequence[Exchange], *, keep_reasoning: bool, answered: bool = False) -> Iterator[Message]:
    """Exchanges as messages; the last one's tool calls only where they are `answered`."""
    for place, exchange in enumerate(exchanges):
        last = place == len(exchanges) - 1
        yield from _said(Say(exchange.question, exchange.attachments, exchange.tool_answers))
        yield Message(
            Role.ASSISTANT,
            exchange.answer.content,
            exchange.answer.reasoning if keep_reasoning else "",
            called(exchange) if answered or not last else (),
        )


def _said(say: Say) -> Iterator[Message]:
    for answer in say.tool_answers:
        yield Message(Role.TOOL, answer.content, tool_call_id=answer.call_id)
    if not say.tool_answers:
        there = tuple(each for each in say.attachments if each.data)
        gone = [f"({each.kind.value} {each.name} is no longer there)" for each in say.attachments if not each.data]
        yield Message(Role.USER, "\n".join([*gone, say.question]), attachments=there)


NEAR: Final = 0.85
"""Of the context: from here on it is said."""
ROOMY: Final = 0.6
"""Of the context: what a proposal aims at, so that it is not needed again at once."""
FRAME_TOKENS: Final = 8
"""The marks of a template around a message."""
IMAGE_TOKENS: Final = 1_200
"""A picture, roughly: between 256 (Gemma 4) and some thousand tokens (Qwen3.6 at full size)."""
_ASCII_PER_TOKEN: Final = 3.6
_OTHER_PER_TOKEN: Final = 1.4


class Room(StrEnum):
    """How it stands."""

    UNKNOWN = "unknown"
    ENOUGH = "enough"
    NEAR = "near"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class ContextUse:
    """Tokens that the next request takes, as well as it can be known, and the engine's limit (None: not told)."""

    tokens: int
    limit: int | None
    reserved: int = 0
    """Tokens that `max_tokens` asks for the answer; an engine refuses a request whose sum does not fit."""
    counted: bool = False
    """The engine counted all of it; else a part is estimated."""

    @property
    def room(self) -> Room:
        """How it stands."""
        if not self.limit:
            return Room.UNKNOWN
        if self.tokens + self.reserved > self.limit:
            return Room.OVER
        return Room.NEAR if self.tokens > NEAR * self.limit else Room.ENOUGH

    @property
    def share(self) -> float | None:
        """Of the limit, from 0."""
        return self.tokens / self.limit if self.limit else None


@dataclass(frozen=True, slots=True)
class Trim:
    """A way to make room: send nothing before exchange `sent_from`. `tokens` is about what that frees."""

    sent_from: int
    left_out: int
    tokens: int

    @property
    def sentence(self) -> str:
        """`leave out the 4 oldest exchanges: about 12,400 tokens`."""
        what = "oldest exchange" if self.left_out == 1 else f"{self.left_out} oldest exchanges"
        return f"leave out the {what}: about {human_count(self.tokens)} tokens"


def estimated_tokens(text: str) -> int:
    """Tokens of a text, roughly: 3.6 letters of English, 1.4 of a script that needs more."""
    ascii_only = len(text) if text.isascii() else sum(char < "\x80" for char in text)
    return math.ceil(ascii_only / _ASCII_PER_TOKEN + (len(text) - ascii_only) / _OTHER_PER_TOKEN)


def context_use(
    exchanges: Sequence[Exchange],
    settings: ChatSettings,
    say: Say,
    *,
    limit: int | None,
    model: str,
    sent_from: int = 0,
) -> ContextUse:
    """What asking `say` takes. The last count of that model is taken as it is; what came after it is estimated.

    Where other exchanges are sent than were counted, the estimate has the measure of that count.
    """
    sent = [exchange for exchange in exchanges if exchange.number >= sent_from]
    reserved = settings.parameters.max_tokens or 0
    counted = _last_counted(exchanges, model)
    if counted is not None and counted.sent_from == sent_from:
        more = sum(_size(each) for each in sent if each.number > counted.number) + _estimated(say)
        return ContextUse(_count(counted) + more, limit, reserved, counted=not more)
    tools = "".join(tool.name + tool.description + tool.parameters for tool in settings.tools)
    fixed = estimated_tokens(settings.system + tools)
    measure = 1.0
    if counted is not None:
        then = [each for each in exchanges if counted.sent_from <= each.number <= counted.number]
        measure = _count(counted) / max(1, fixed + sum(map(_size, then)))
    return ContextUse(int((fixed + sum(map(_size, sent))) * measure) + _estimated(say), limit, reserved)


def _last_counted(exchanges: Sequence[Exchange], model: str) -> Exchange | None:
    """The last exchange whose tokens that model counted."""
    for exchange in reversed(exchanges):
        told = exchange.answered or exchange.answer.tool_calls
        if exchange.model == model and told and not exchange.live and exchange.answer.usage is not None:
            return exchange
    return None


def _count(counted: Exchange) -> int:
    """What an exchange leaves in the context of the next one."""
    usage = counted.answer.usage
    if usage is None:
        return 0
    dropped = 0 if counted.settings.parameters.preserve_thinking else usage.reasoning_tokens or 0
    return usage.prompt_tokens + usage.completion_tokens - dropped


def _estimated(say: Say) -> int:
    texts = [*([say.question] if say.question else []), *(answer.content for answer in say.tool_answers)]
    return sum(estimated_tokens(text) + FRAME_TOKENS for text in texts) + IMAGE_TOKENS * len(say.attachments)


def _size(exchange: Exchange) -> int:
    """Tokens that an exchange takes in later requests: its text, without reasoning."""
    if not exchange.answered and not exchange.answer.tool_calls:
        return 0
    calls = "".join(call.name + call.arguments for call in exchange.answer.tool_calls)
    asked = _estimated(Say(exchange.question, exchange.attachments, exchange.tool_answers))
    return asked + estimated_tokens(exchange.answer.content + calls) + FRAME_TOKENS


def proposals(exchanges: Sequence[Exchange], use: ContextUse, *, sent_from: int = 0) -> tuple[Trim, ...]:
    """What could be left out so that the next question fits, mildest first; the last exchange always stays.

    Cuts are only where a question begins: tool calls and their answers stay together. How much an exchange takes is
    its share of what the engine counted.
    """
    sent = [exchange for exchange in exchanges if exchange.number >= sent_from]
    if use.limit is None or len(sent) < 2:
        return ()
    found: list[Trim] = []
    estimated = 0
    per_estimate = use.tokens / max(1, sum(map(_size, sent)))
    for place, exchange in enumerate(sent[:-1], 1):
        estimated += _size(exchange)
        freed = int(estimated * per_estimate)
        if sent[place].tool_answers:
            continue
        left = use.tokens - freed + use.reserved
        if (left <= NEAR * use.limit and not found) or left <= ROOMY * use.limit:
            found.append(Trim(sent[place].number, place, freed))
        if left <= ROOMY * use.limit:
            break
    return tuple(found)
