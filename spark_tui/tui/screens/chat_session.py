"""What was said so far, and to whom: the state behind the Chat screen."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_tui.domain.chat import Answer, Message, Role
from spark_tui.domain.errors import SparkError
from spark_tui.tui.widgets.turn import Turn


@dataclass(slots=True)
class Exchange:
    """A question and its answer so far. `engine` is the container's name, `model` the served name."""

    number: int
    question: str
    engine: str
    model: str
    answer: Answer
    live: bool = True
    stopped: bool = False
    error: SparkError | None = None


@dataclass(slots=True)
class Session:
    """One conversation."""

    exchanges: list[Exchange] = field(default_factory=list)
    _count: int = 0

    @property
    def last(self) -> Exchange | None:
        """The latest exchange."""
        return self.exchanges[-1] if self.exchanges else None

    def begin(self, question: str, engine: str, model: str, now: float) -> Exchange:
        """A new question; `now` is monotonic seconds."""
        self._count += 1
        exchange = Exchange(self._count, question, engine, model, Answer(now))
        self.exchanges.append(exchange)
        return exchange

    def take_back(self) -> str:
        """Drops the last exchange and returns its question."""
        return self.exchanges.pop().question

    def messages(self) -> tuple[Message, ...]:
        """What to send, up to the last question. A question without an answer is left out: many templates refuse two
        turns of one speaker in a row. Reasoning is not sent back: templates drop it."""
        told: list[Message] = []
        for exchange in self.exchanges[:-1]:
            if exchange.answer.content.strip():
                told += [Message(Role.USER, exchange.question), Message(Role.ASSISTANT, exchange.answer.content)]
        return (*told, Message(Role.USER, self.exchanges[-1].question))

    def turns(self) -> tuple[Turn, ...]:
        """The transcript; a change of the engine is noted where it happened."""
        turns: list[Turn] = []
        before = ""
        for exchange in self.exchanges:
            turns.append(Turn(2 * exchange.number, "you", exchange.question))
            note = f"on {exchange.engine}, before on {before}" if before and before != exchange.engine else ""
            before = exchange.engine
            turns.append(
                Turn(
                    2 * exchange.number + 1,
                    exchange.model,
                    note=note,
                    answer=exchange.answer,
                    live=exchange.live,
                    stopped=exchange.stopped,
                    error=exchange.error,
                )
            )
        return tuple(turns)
