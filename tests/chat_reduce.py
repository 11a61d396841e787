"""An answer as a reduction over its events: the plain way, which the builder's fast one is held against."""

from __future__ import annotations

from spark_tui.domain.chat.message import Answer, AnswerBuilder, ChatEvent


def advance(answer: Answer, event: ChatEvent, at: float) -> Answer:
    """The answer after one more event that arrived at `at`."""
    builder = AnswerBuilder.of(answer)
    builder.add(event, at)
    return builder.snapshot()
