"""A conversation: exchanges in order, what of them is sent with the next question, and the room that it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.message import Answer, Attachment, Message, Role
from spark_tui.base.engine.request import NO_SETTINGS, ChatSettings
from spark_tui.base.errors import SparkError
from spark_tui.base.quantities import human_count
from spark_tui.base.text import clean_line, truncate

TITLE_CELLS = 60
EXCERPT = 60
QUEUED_SECONDS = 0.05


class AnswerOutcome(StrEnum):
    LIVE = "live"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class EngineSide(Struct, frozen=True):
    """The engine's own metrics during an answer; None: not reported. `shared`: other requests ran too, and the figures
    are of all of them. `queue_seconds` is the wait before the prompt was read."""

    queue_seconds: float | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    shared: bool = False

    @property
    def queued(self) -> float | None:
        """Seconds in the queue; None below QUEUED_SECONDS."""
        return self.queue_seconds if self.queue_seconds is not None and self.queue_seconds >= QUEUED_SECONDS else None

    @property
    def acceptance(self) -> float | None:
        """Share of the drafted tokens that were accepted."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens and self.accepted_tokens else None


class Exchange(Struct, frozen=True):
    """A question and its answer so far. `number` counts from 1 and is never used twice; `asked_at` is epoch seconds.

    `error` is set when the outcome is FAILED. `limit` is the engine's context in tokens, None where unknown;
    `sent_from` the number of the first exchange that was sent with it.
    """

    number: int
    question: str
    engine: str
    model: str
    asked_at: float
    answer: Answer
    outcome: AnswerOutcome = AnswerOutcome.LIVE
    error: SparkError | None = None
    attachments: tuple[Attachment, ...] = ()
    settings: ChatSettings = NO_SETTINGS
    limit: int | None = None
    sent_from: int = 0
    engine_side: EngineSide | None = None

    @property
    def live(self) -> bool:
        return self.outcome is AnswerOutcome.LIVE

    @property
    def stopped(self) -> bool:
        return self.outcome is AnswerOutcome.STOPPED

    @property
    def spoken(self) -> str:
        """The answer in later requests: its text, and its tool calls as text unless the answer broke off."""
        calls = self.answer.tool_calls if self.outcome is AnswerOutcome.COMPLETE else ()
        return "\n\n".join(filter(None, (self.answer.content, *(f"{each.name}({each.arguments})" for each in calls))))

    @property
    def answered(self) -> bool:
        """There is text that later questions can build on."""
        return bool(self.spoken.strip())

    @property
    def unfinished(self) -> bool:
        """Stopped, broken off or cut at the token limit, after its text had begun."""
        ended = self.outcome in (AnswerOutcome.STOPPED, AnswerOutcome.FAILED) or self.answer.finish_reason == "length"
        return ended and not self.live and self.answered and not self.answer.tool_calls


class ConversationSummary(Struct, frozen=True):
    """One conversation in a list. Times are epoch seconds; `models` in the order of their answers; `size` is bytes.

    `damaged` counts unreadable lines. `in_use`: a program writes in it now, this one included.
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


class ConversationHit(Struct, frozen=True):
    """A search result: the conversation, the exchange's number (0: the title), and the text around it, cleaned."""

    id: str
    title: str
    number: int
    excerpt: str


class ChatThread(Struct, frozen=True):
    """A conversation as it is saved. Times are epoch seconds. Exchanges below number `sent_from` are shown and no
    longer sent. `parent` is the id of the conversation that it is a copy of. `damaged` counts unreadable lines."""

    id: str = ""
    title: str = ""
    created_at: float = 0.0
    settings: ChatSettings = NO_SETTINGS
    exchanges: tuple[Exchange, ...] = ()
    sent_from: int = 0
    parent: str = ""
    last_number: int = 0
    damaged: int = 0

    def summary(self, changed_at: float, *, size: int = 0) -> ConversationSummary:
        models = tuple(dict.fromkeys(each.model for each in self.exchanges))
        engines = tuple(dict.fromkeys(each.engine for each in self.exchanges))
        return ConversationSummary(
            self.id,
            self.title,
            self.created_at,
            changed_at,
            len(self.exchanges),
            models,
            engines,
            size,
            self.damaged,
        )

    def hits(self, text: str) -> Iterator[ConversationHit]:
        """The title and the exchanges with `text`, whatever its case."""
        wanted = text.casefold()
        if wanted in self.title.casefold():
            yield ConversationHit(self.id, self.title, 0, clean_line(self.title))
        for exchange in self.exchanges:
            for said in (exchange.question, exchange.answer.content):
                at = said.casefold().find(wanted)
                if at >= 0:
                    start, end = max(0, at - EXCERPT // 2), at + len(wanted) + EXCERPT
                    piece = " ".join(clean_line(said[start:end]).split())
                    excerpt = f"{'... ' if start else ''}{piece}{' ...' if end < len(said) else ''}"
                    yield ConversationHit(self.id, self.title, exchange.number, excerpt)
                    break


def title_of(question: str, attachments: Sequence[Attachment] = ()) -> str:
    """The first line of the question that is not blank."""
    lines = (" ".join(clean_line(line).split()) for line in question.splitlines())
    first = next((line for line in lines if line), "")
    return truncate(first or next((each.name for each in attachments), "") or "(no title)", TITLE_CELLS)


# --- what is sent -------------------------------------------------------------------------------------------


class UserInput(Struct, frozen=True):
    """A question, with its images and audio."""

    question: str = ""
    attachments: tuple[Attachment, ...] = ()


def history(
    exchanges: Sequence[Exchange], settings: ChatSettings, say: UserInput | None, *, sent_from: int = 0
) -> tuple[Message, ...]:
    """The messages that send `say` now; None continues the last exchange's answer.

    A question without an answer is left out: many templates refuse two messages of one speaker in a row. So is
    reasoning, which templates drop by themselves; it is sent of the answer that is continued, and everywhere with
    `preserve_thinking`. A partial answer is kept. Tool calls are sent as text: without a result many templates refuse
    them.
    """
    messages = [Message(Role.SYSTEM, settings.system)] if settings.system.strip() else []
    for exchange in exchanges:
        if exchange.number >= sent_from and exchange.answered:
            keep = settings.parameters.preserve_thinking or (say is None and exchange is exchanges[-1])
            messages.append(_asked(exchange.question, exchange.attachments))
            messages.append(Message(Role.ASSISTANT, exchange.spoken, exchange.answer.reasoning if keep else ""))
    if say is not None:
        messages.append(_asked(say.question, say.attachments))
    return tuple(messages)


def _asked(question: str, attachments: Sequence[Attachment]) -> Message:
    gone = [f"({each.kind.value} {each.name} is no longer there)" for each in attachments if not each.data]
    there = tuple(each for each in attachments if each.data)
    return Message(Role.USER, "\n".join([*gone, question]), attachments=there)


# --- room in the context ------------------------------------------------------------------------------------

NEAR: Final = 0.85
"""Share of the context from which on a warning is shown."""
ROOMY: Final = 0.6
"""Share of the context that a proposal aims at, so that it is not needed again at once."""
FRAME_TOKENS: Final = 8
"""The marks of a template around a message."""
IMAGE_TOKENS: Final = 1_200
"""A picture, roughly: between 256 (Gemma 4) and some thousand tokens (Qwen3.6 at full size)."""
_ASCII_PER_TOKEN: Final = 3.6
_OTHER_PER_TOKEN: Final = 1.4


class ContextRoom(StrEnum):
    UNKNOWN = "unknown"
    ENOUGH = "enough"
    NEAR = "near"
    OVER = "over"


class ContextUse(Struct, frozen=True):
    """Tokens of the next request, counted or estimated, and the engine's limit (None: unknown)."""

    tokens: int
    limit: int | None
    reserved: int = 0
    """Tokens that `max_tokens` asks for the answer; an engine refuses a request whose sum does not fit."""
    counted: bool = False
    """The engine counted all of it; else a part is estimated."""

    @property
    def room(self) -> ContextRoom:
        if not self.limit:
            return ContextRoom.UNKNOWN
        if self.tokens + self.reserved > self.limit:
            return ContextRoom.OVER
        return ContextRoom.NEAR if self.tokens > NEAR * self.limit else ContextRoom.ENOUGH


class TrimPlan(Struct, frozen=True):
    """A way to make room: send nothing before exchange `sent_from`, which frees about `tokens`."""

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
    say: UserInput,
    *,
    limit: int | None,
    model: str,
    sent_from: int = 0,
) -> ContextUse:
    """Tokens of the request that sends `say`. The last count of that model is taken as it is; later text is estimated.

    Where other exchanges are sent than were counted, the estimate is scaled by that count.
    """
    sent = [exchange for exchange in exchanges if exchange.number >= sent_from]
    reserved = settings.parameters.max_tokens or 0
    counted = next(
        (
            each
            for each in reversed(exchanges)
            if each.model == model and not each.live and each.answer.usage and each.answered
        ),
        None,
    )
    count = 0
    if counted is not None and (usage := counted.answer.usage) is not None:
        dropped = 0 if counted.settings.parameters.preserve_thinking else usage.reasoning_tokens or 0
        count = usage.prompt_tokens + usage.completion_tokens - dropped
        if counted.sent_from == sent_from:
            more = sum(_size(each) for each in sent if each.number > counted.number) + _estimated(say)
            return ContextUse(count + more, limit, reserved, counted=not more)
    tools = "".join(tool.name + tool.description + tool.parameters for tool in settings.tools)
    fixed = estimated_tokens(settings.system + tools)
    scale = 1.0
    if counted is not None:
        then = [each for each in exchanges if counted.sent_from <= each.number <= counted.number]
        scale = count / max(1, fixed + sum(map(_size, then)))
    return ContextUse(int((fixed + sum(map(_size, sent))) * scale) + _estimated(say), limit, reserved)


def _estimated(say: UserInput) -> int:
    text = estimated_tokens(say.question) + FRAME_TOKENS if say.question else 0
    return text + IMAGE_TOKENS * len(say.attachments)


def _size(exchange: Exchange) -> int:
    """Tokens of an exchange in later requests: its text, without reasoning."""
    if not exchange.answered:
        return 0
    asked = _estimated(UserInput(exchange.question, exchange.attachments))
    return asked + estimated_tokens(exchange.spoken) + FRAME_TOKENS


def proposals(exchanges: Sequence[Exchange], use: ContextUse, *, sent_from: int = 0) -> tuple[TrimPlan, ...]:
    """The oldest exchanges to leave out so that the next question fits, fewest first; the last one always stays.

    An exchange's tokens are its share of what the engine counted.
    """
    sent = [exchange for exchange in exchanges if exchange.number >= sent_from]
    if use.limit is None or len(sent) < 2:
        return ()
    found: list[TrimPlan] = []
    estimated = 0
    per_estimate = use.tokens / max(1, sum(map(_size, sent)))
    for place, exchange in enumerate(sent[:-1], 1):
        estimated += _size(exchange)
        freed = int(estimated * per_estimate)
        left = use.tokens - freed + use.reserved
        if (left <= NEAR * use.limit and not found) or left <= ROOMY * use.limit:
            found.append(TrimPlan(sent[place].number, place, freed))
        if left <= ROOMY * use.limit:
            break
    return tuple(found)
