"""Talking to a model: what was said so far, and the answer that is coming.

The answer is read in a task of its own, as fast as it comes; whoever shows it sees snapshots, at most FRAMES_PER_SECOND
of them. What had come is kept however an answer ends, and written down while it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from spark_tui.core.chat_journal import AnswerKeeper, Journal
from spark_tui.core.chat_meter import EngineMeter
from spark_tui.core.chat_target import ChatTarget
from spark_tui.core.conversation_turn import Turn
from spark_tui.core.pause import pause
from spark_tui.domain import chat_records as records
from spark_tui.domain.chat import Answer, AnswerBuilder, Attachment, ChatRequest, Message
from spark_tui.domain.chat_context import ContextUse, Trim, context_use, proposals
from spark_tui.domain.chat_media import check_taken, check_together
from spark_tui.domain.chat_settings import NO_SETTINGS, ChatSettings
from spark_tui.domain.conversation import ChatThread, EngineSide, Exchange, Outcome, Say, ToolAnswer, history, title_of
from spark_tui.domain.errors import EngineFailed, SparkError, UsageError
from spark_tui.services.ports import Clock, EngineApi

Advise: TypeAlias = Callable[[SparkError, ChatTarget], SparkError]
"""Puts into an error what can be done about it on this machine."""

FRAMES_PER_SECOND = 12
MAX_ANSWER_CHARS = 32_000_000
"""Several times what a context of a million tokens holds: an engine that goes on and on must not fill the memory."""


class Conversation:
    """Questions and answers, one at a time. `settings` hold for the next question.

    To be used on one event loop; `close` it at the end. With a `journal` everything is written down.
    """

    def __init__(
        self,
        api: EngineApi,
        clock: Clock,
        *,
        settings: ChatSettings = NO_SETTINGS,
        thread: ChatThread | None = None,
        journal: Journal | None = None,
        meter: EngineMeter | None = None,
        advise: Advise | None = None,
        max_answer_chars: int = MAX_ANSWER_CHARS,
    ) -> None:
        self._api = api
        self._clock = clock
        self._max_answer_chars = max_answer_chars
        self._meter = meter
        self._advise = advise
        self._turns = [Turn(exchange) for exchange in thread.exchanges] if thread else []
        self._past: tuple[Exchange, ...] | None = None
        self._asked = thread.last_number if thread else 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._written = thread.settings if thread else NO_SETTINGS
        self._title = thread.title if thread else ""
        self.journal = journal
        self.settings = settings
        self.sent_from = thread.sent_from if thread else 0

    # --- what was said --------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The name under which it is kept; empty until something was written, or when it is not kept."""
        return self.journal.id if self.journal is not None else ""

    @property
    def title(self) -> str:
        """What it is called; its first question until somebody names it."""
        if not self._title and self._turns:
            first = self._turns[0].exchange()
            return title_of(first.question, first.attachments)
        return self._title

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All exchanges, oldest first; those that are over are the same objects each time."""
        if not self._turns:
            return ()
        if self._past is None:  # ten times a second somebody looks: all but the last one are over
            self._past = tuple(turn.exchange() for turn in self._turns[:-1])
        return (*self._past, self._turns[-1].exchange())

    @property
    def last(self) -> Exchange | None:
        """The latest exchange."""
        return self._turns[-1].exchange() if self._turns else None

    @property
    def live(self) -> bool:
        """An answer is coming."""
        return bool(self._turns) and self._turns[-1].outcome is Outcome.LIVE

    def messages(self, question: str) -> tuple[Message, ...]:
        """What is sent to ask `question` now; the rules are those of `history`."""
        return history(self.exchanges, self.settings, Say(question), sent_from=self.sent_from)

    def thread(self) -> ChatThread:
        """As it stands, for a fork or an export."""
        return ChatThread(
            self.id, self.title, 0.0, self.settings, self.exchanges, self.sent_from, last_number=self._asked
        )

    # --- room -----------------------------------------------------------------------------------------

    def use(self, target: ChatTarget, question: str = "", attachments: tuple[Attachment, ...] = ()) -> ContextUse:
        """How much of the engine's context asking that takes."""
        return context_use(
            self.exchanges, self.settings, Say(question, attachments),
            limit=target.limit, model=target.model, sent_from=self.sent_from,
        )  # fmt: skip

    def trims(self, use: ContextUse) -> tuple[Trim, ...]:
        """What could be left out to make room, mildest first."""
        return proposals(self.exchanges, use, sent_from=self.sent_from)

    def trim(self, number: int) -> None:
        """From now on nothing before exchange `number` is sent; 0 sends all of it again. It stays on screen."""
        self.sent_from = number
        self._write(records.trim(number))

    # --- ask ------------------------------------------------------------------------------------------

    def ask(
        self, question: str, target: ChatTarget, attachments: tuple[Attachment, ...] = ()
    ) -> AsyncGenerator[Answer, None]:
        """Sends the question at once; yields the answer as it grows, and last as it ended.

        After the last snapshot it raises the SparkError that ended the answer, if one did; an answer that is stopped
        ends without. Closing the generator once it is read, or cancelling whoever reads it, stops the answer. Raises
        UsageError while another answer is coming, RefusedError for pictures or sounds that cannot be sent.
        """
        self._check_free()
        check_together(attachments)
        check_taken(attachments, target.modalities, target.model)
        return self._say(Say(question, attachments), target)

    def answer_tools(self, results: Sequence[str], target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Sends what the person typed as the results of the last answer's tool calls, in their order. As `ask`."""
        self._check_free()
        calls = self.last.open_calls if self.last is not None else ()
        if not calls or len(results) != len(calls):
            raise UsageError(
                f"The last answer has {len(calls)} tool calls; {len(results)} results were given.",
                "Give one for each, in order." if calls else "Ask a question.",
            )
        answers = tuple(ToolAnswer(call.id, call.name, text) for call, text in zip(calls, results, strict=True))
        return self._say(Say(tool_answers=answers), target)

    def regenerate(self, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Asks the last question again, or sends the last tool results again; the answer takes the old one's place.

        For a retry after a failure too: it never becomes a second turn.
        """
        self._check_free()
        last = self._needed()
        check_taken(last.attachments, target.modalities, target.model)
        self.cut(last.number)
        return self._say(Say(last.question, last.attachments, last.tool_answers), target)

    def edit(self, number: int, question: str, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Asks another question in the place of exchange `number`, with its pictures; what followed is taken back."""
        self._check_free()
        edited = self._needed(number)
        if edited.tool_answers:
            raise UsageError("These are answers to tool calls, not a question.", "Edit the question before them.")
        check_taken(edited.attachments, target.modalities, target.model)
        self.cut(number)
        return self._say(Say(question, edited.attachments), target)

    def go_on(self, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Lets the last answer go on where it was stopped, broke off or was cut; the text that is there stays.

        Raises UsageError for an answer that came to its end, or of which only reasoning had come. Where the answer had
        begun after reasoning, it does not reason again.
        """
        self._check_free()
        last = self._needed()
        if not last.unfinished:
            why = "came to its end" if last.answered else "has not begun: only reasoning had come"
            raise UsageError(f"The answer cannot go on: it {why}.", "Ask it again, or ask something else.")
        messages = history(self.exchanges, self.settings, None, sent_from=self.sent_from)
        settings = self.settings
        if last.answer.reasoning:
            settings = replace(settings, parameters=replace(settings.parameters, thinking=False, reasoning_effort=""))
        self.cut(last.number)
        say = Say(last.question, last.attachments, last.tool_answers)
        return self._send(say, target, messages, settings, carried=last.answer)

    def _say(self, say: Say, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        messages = history(self.exchanges, self.settings, say, sent_from=self.sent_from)
        return self._send(say, target, messages, self.settings)

    def _send(
        self,
        say: Say,
        target: ChatTarget,
        messages: tuple[Message, ...],
        settings: ChatSettings,
        carried: Answer | None = None,
    ) -> AsyncGenerator[Answer, None]:
        request = ChatRequest(
            target.model, messages, settings.parameters, settings.tools, settings.tool_choice, go_on=bool(carried)
        )
        self._asked += 1
        begun = AnswerBuilder(
            self._clock.monotonic(),
            content=carried.content if carried else "",
            reasoning=carried.reasoning if carried else "",
        )
        turn = Turn(
            Exchange(
                self._asked, say.question, target.engine, target.model, self._clock.now(), begun.snapshot(),
                attachments=say.attachments, tool_answers=say.tool_answers, settings=self.settings,
                limit=target.limit, sent_from=self.sent_from,
            )
        )  # fmt: skip
        self._turns.append(turn)
        self._past = None
        self._write_asked(turn)
        turn.task = asyncio.create_task(self._read(turn, target, request))
        self._tasks.add(turn.task)
        turn.task.add_done_callback(self._tasks.discard)
        return self._snapshots(turn, turn.task)

    def _check_free(self) -> None:
        if self.live:
            raise UsageError("An answer is still coming.", "Stop it, or wait for its end.")

    def _needed(self, number: int = 0) -> Exchange:
        found = next((turn for turn in reversed(self._turns) if turn.number == number or not number), None)
        if found is None:
            raise UsageError(
                f"There is no exchange {number}." if number else "Nothing was asked yet.", "Ask a question."
            )
        return found.exchange()

    # --- read -----------------------------------------------------------------------------------------

    async def _read(self, turn: Turn, target: ChatTarget, request: ChatRequest) -> None:
        """Collects one answer; notes how it ended."""
        keeper = AnswerKeeper(self.journal, turn)
        measure = self._meter.begin(target) if self._meter is not None else None
        try:
            async with aclosing(self._api.chat(target.endpoint, request)) as events:
                async for event in events:
                    now = self._clock.monotonic()
                    turn.builder.add(event, now)
                    turn.changed.set()
                    keeper.look(now)
                    self._check_length(turn.builder)
            turn.end(Outcome.COMPLETE)
        except SparkError as error:
            turn.end(Outcome.FAILED, self._advise(error, target) if self._advise is not None else error)
        except asyncio.CancelledError:
            turn.end(Outcome.STOPPED)
            raise
        except BaseException as error:
            what = "spark-tui failed to read the answer."
            turn.end(Outcome.FAILED, SparkError(what, "What had come is kept. Ask again.", detail=repr(error)))
            raise
        finally:
            if measure is not None:
                measure.end(lambda side: self._measured(turn, side), lambda: self._ended(keeper, turn))
            else:
                self._ended(keeper, turn)

    def _measured(self, turn: Turn, side: EngineSide) -> None:
        turn.measured(side)
        self._past = None

    def _ended(self, keeper: AnswerKeeper, turn: Turn) -> None:
        if turn in self._turns:  # one that was taken back meanwhile is not written
            keeper.end()

    def _check_length(self, builder: AnswerBuilder) -> None:
        if builder.size > self._max_answer_chars:
            raise EngineFailed(
                f"The answer has more than {self._max_answer_chars:,} characters and no end.",
                "What had come is kept. Set a limit: max tokens.",
            )

    async def _snapshots(self, turn: Turn, task: asyncio.Task[None]) -> AsyncGenerator[Answer, None]:
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

    def cut(self, number: int) -> str:
        """Takes back exchange `number` and all after it; returns its question, empty when there is none."""
        self.stop()
        question = next((turn.exchange().question for turn in self._turns if turn.number == number), "")
        self._turns = [turn for turn in self._turns if turn.number < number]
        self._past = None
        self._write(records.cut(number))
        return question

    def rename(self, title: str) -> None:
        """Calls it so from now on."""
        self._title = title_of(title)
        self._write(records.title(self._title))

    async def settle(self) -> None:
        """Waits until what is over is measured and written down; a moment."""
        if self._meter is not None:
            await self._meter.settle()
        if self.journal is not None:
            await self.journal.flush()

    async def close(self) -> None:
        """Stops the answer that is coming, and waits until all connections are closed and all is written."""
        self.stop()
        tasks = tuple(self._tasks)
        if tasks:
            await asyncio.wait(tasks)
        if self._meter is not None:
            await self._meter.close()
        if self.journal is not None:
            await self.journal.close()

    # --- write down -----------------------------------------------------------------------------------

    def _write(self, *items: records.Record | Exchange, durable: bool = False) -> None:
        if self.journal is not None:
            self.journal.write(*items, durable=durable)

    def _write_asked(self, turn: Turn) -> None:
        lines: list[records.Record | Exchange] = []
        if not self._title:
            self._title = self.title
            lines.append(records.title(self._title))
        if self.settings != self._written:
            self._written = self.settings
            lines.append(records.settings(self.settings))
        self._write(*lines, turn.exchange(), durable=True)
