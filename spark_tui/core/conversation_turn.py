"""An exchange while it grows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from spark_tui.domain.chat import AnswerBuilder
from spark_tui.domain.conversation import EngineSide, Exchange, Outcome
from spark_tui.domain.errors import SparkError


class Turn:
    """One exchange, live or over. `begun` is the exchange as it is asked; its answer holds what is carried over."""

    def __init__(self, begun: Exchange) -> None:
        self.builder = AnswerBuilder.of(begun.answer)
        self.error = begun.error
        self.outcome = begun.outcome
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.over = asyncio.Event()
        self._known = begun

    @property
    def number(self) -> int:
        """The exchange's number."""
        return self._known.number

    def end(self, outcome: Outcome, error: SparkError | None = None) -> None:
        """The answer is over, and how; the first word counts."""
        if self.outcome is Outcome.LIVE:
            self.outcome, self.error = outcome, error
            self.over.set()
            self.changed.set()

    def stop(self) -> None:
        """Ends it now, unless it has ended. Cancelled once only: a second time would disturb the closing."""
        if self.outcome is Outcome.LIVE:
            self.end(Outcome.STOPPED)
            if self.task is not None:
                self.task.cancel()

    def measured(self, side: EngineSide) -> None:
        """What the engine's metrics say of it."""
        self._known = replace(self.exchange(), engine_side=side)

    def exchange(self) -> Exchange:
        """As it is now; the same object while nothing has changed."""
        answer, known = self.builder.snapshot(), self._known
        if answer is not known.answer or self.outcome is not known.outcome:
            self._known = replace(known, answer=answer, outcome=self.outcome, error=self.error)
        return self._known
