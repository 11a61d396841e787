"""How much of the engine's context a conversation takes, and what to leave out before it is too much.

The engine counts exactly, and only what it was asked; what comes next is estimated from that. Nothing is ever left
out by itself: a person chooses among proposals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.chat_settings import ChatSettings
from spark_tui.domain.conversation import Exchange, Say
from spark_tui.domain.quantities import human_count

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
