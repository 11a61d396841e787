"""Talking to a model: what was said so far, and the answer that is coming.

The answer is read in a task of its own, as fast as it comes; whoever shows it sees snapshots, at most FRAMES_PER_SECOND
of them. What had come is kept however an answer ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.core.pause import pause
from spark_tui.domain.chat import Answer, AnswerBuilder, ChatParameters, ChatRequest, Message, Role
from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.errors import EngineFailed, SparkError, UsageError
from spark_tui.services.ports import Clock, EngineApi

FRAMES_PER_SECOND = 12
MAX_ANSWER_CHARS = 32_000_000
"""Several times what a context of a million tokens holds: an engine that goes on and on must not fill the memory."""


class Outcome(StrEnum):
    """How an answer ended, or that it has not."""

    LIVE = "live"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """Whom a question goes to: the engine's name for people, its address, and the served name of the model."""

    engine: str
    endpoint: Endpoint
    model: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer so far. `number` counts from 1 and is never used twice; `asked_at` is epoch seconds.

    `error` is set when the outcome is FAILED.
    """

    number: int
    question: str
    engine: str
    model: str
    asked_at: float
    answer: Answer
    outcome: Outcome = Outcome.LIVE
    error: SparkError | None = None

    @property
    def live(self) -> bool:
        """More may come."""
        return self.outcome is Outcome.LIVE

    @property
    def stopped(self) -> bool:
        """The person ended it."""
        return self.outcome is Outcome.STOPPED


class Conversation:
    """Questions and answers, one at a time. `system` and `parameters` hold for the next question.

    To be used on one event loop; `close` it at the end.
    """

    def __init__(
        self,
        api: EngineApi,
        clock: Clock,
        *,
        system: str = "",
        parameters: ChatParameters | None = None,
        max_answer_chars: int = MAX_ANSWER_CHARS,
    ) -> None:
        self._api = api
        self._clock = clock
        self._max_answer_chars = max_answer_chars
        self._turns: list[_Turn] = []
        self._asked = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.system = system
        self.parameters = parameters or ChatParameters()

    # --- what was said --------------------------------------------------------------------------------

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All exchanges, oldest first; those that are over are the same objects each time."""
        return tuple(turn.exchange() for turn in self._turns)

    @property
    def last(self) -> Exchange | None:
        """The latest exchange."""
        return self._turns[-1].exchange() if self._turns else None

    @property
    def live(self) -> bool:
        """An answer is coming."""
        return bool(self._turns) and self._turns[-1].outcome is Outcome.LIVE

    def messages(self, question: str) -> tuple[Message, ...]:
        """What is sent to ask `question` now.

        A question without an answer is left out: many templates refuse two turns of one speaker in a row. So are
        reasoning, which templates drop, and tool calls, which nobody has answered. A partial answer is kept.
        """
        told = [Message(Role.SYSTEM, self.system)] if self.system.strip() else []
        for exchange in self.exchanges:
            if exchange.answer.content.strip():
                told += [Message(Role.USER, exchange.question), Message(Role.ASSISTANT, exchange.answer.content)]
        return (*told, Message(Role.USER, question))

    # --- ask ------------------------------------------------------------------------------------------

    def ask(self, question: str, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Sends the question at once; yields the answer as it grows, and last as it ended.

        After the last snapshot it raises the SparkError that ended the answer, if one did; an answer that is stopped
        ends without. Closing the generator once it is read, or cancelling whoever reads it, stops the answer. Raises
        UsageError while another answer is coming.
        """
        if self.live:
            raise UsageError("An answer is still coming.", "Stop it, or wait for its end.")
        request = ChatRequest(target.model, self.messages(question), self.parameters)
        self._asked += 1
        turn = _Turn(self._asked, question, target.engine, target.model, self._clock.now(), self._clock.monotonic())
        self._turns.append(turn)
        turn.task = asyncio.create_task(self._read(turn, target.endpoint, request))
        self._tasks.add(turn.task)
        turn.task.add_done_callback(self._tasks.discard)
        return self._snapshots(turn, turn.task)

    async def _read(self, turn: _Turn, endpoint: Endpoint, request: ChatRequest) -> None:
        """Collects one answer; notes how it ended."""
        try:
            async with aclosing(self._api.chat(endpoint, request)) as events:
                async for event in events:
                    turn.builder.add(event, self._clock.monotonic())
                    turn.changed.set()
                    self._check_length(turn.builder)
            turn.end(Outcome.COMPLETE)
        except SparkError as error:
            turn.end(Outcome.FAILED, error)
        except asyncio.CancelledError:
            turn.end(Outcome.STOPPED)
            raise
        except BaseException as error:
            what = "spark-tui failed to read the answer."
            turn.end(Outcome.FAILED, SparkError(what, "What had come is kept. Ask again.", detail=repr(error)))
            raise

    def _check_length(self, builder: AnswerBuilder) -> None:
        if builder.size > self._max_answer_chars:
            raise EngineFailed(
                f"The answer has more than {self._max_answer_chars:,} characters and no end.",
                "What had come is kept. Set a limit: max tokens.",
            )

    async def _snapshots(self, turn: _Turn, task: asyncio.Task[None]) -> AsyncGenerator[Answer, None]:
        try:
            while turn.outcome is Outcome.LIVE:
                await turn.changed.wait()
                turn.changed.clear()
                if turn.outcome is Outcome.LIVE:
                    yield turn.builder.snapshot()
                    await pause(self._clock, 1 / FRAMES_PER_SECOND, turn.over)
            yield turn.builder.snapshot()
        finally:
            turn.stop()
            await asyncio.wait((task,))
        if not task.cancelled():
            task.result()  # a fault of ours is not dressed up as the engine's
        if turn.error is not None:
            raise turn.error

    # --- end ------------------------------------------------------------------------------------------

    def stop(self) -> bool:
        """Ends the answer that is coming, at once; False when none is. Its connection closes, which frees the slot."""
        if not self.live:
            return False
        self._turns[-1].stop()
        return True

    def take_back(self) -> str:
        """Removes the last exchange and returns its question, to ask it again or to edit it; empty without one."""
        self.stop()
        return self._turns.pop().question if self._turns else ""

    async def close(self) -> None:
        """Stops the answer that is coming, and waits until all connections are closed."""
        self.stop()
        tasks = tuple(self._tasks)
        if tasks:
            await asyncio.wait(tasks)


class _Turn:
    """An exchange while it grows."""

    def __init__(self, number: int, question: str, engine: str, model: str, asked_at: float, started_at: float) -> None:
        self.question = question
        self.builder = AnswerBuilder(started_at)
        self.outcome = Outcome.LIVE
        self.error: SparkError | None = None
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.over = asyncio.Event()
        self._known = Exchange(number, question, engine, model, asked_at, self.builder.snapshot())

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

    def exchange(self) -> Exchange:
        """As it is now; the same object while nothing has changed."""
        answer, known = self.builder.snapshot(), self._known
        if answer is not known.answer or self.outcome is not known.outcome:
            self._known = Exchange(
                known.number,
                known.question,
                known.engine,
                known.model,
                known.asked_at,
                answer,
                self.outcome,
                self.error,
            )
        return self._known
