"""Talking to a model: what was said so far, and the answer that is coming."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from spark_tui.core.actions import key_of
from spark_tui.core.poller import pause
from spark_tui.domain.chat import records
from spark_tui.domain.chat.conversation import (
    ChatThread,
    ContextUse,
    EngineSide,
    Exchange,
    Outcome,
    Say,
    ToolAnswer,
    Trim,
    context_use,
    history,
    proposals,
    title_of,
)
from spark_tui.domain.chat.message import Answer, AnswerBuilder, Attachment, ChatRequest, Message
from spark_tui.domain.chat.request import NO_SETTINGS, ChatSettings, check_taken, check_together
from spark_tui.domain.engine.api_errors import model_not_served
from spark_tui.domain.engine.state import Endpoint, EngineState
from spark_tui.domain.errors import (
    ApiKeyRejected,
    ContextOverflow,
    EngineFailed,
    EngineUnreachable,
    ModelNotServed,
    SparkError,
    UsageError,
)
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.text import clean_line
from spark_tui.services.ports import Clock, ConversationStore, EngineApi

if TYPE_CHECKING:
    from spark_tui.domain.metrics.page import MetricPage
    from spark_tui.services.ports import MetricsSource


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Counters of an engine since its start; None: it has none such. Of vLLM: the sum and count of
    `request_queue_time_seconds`, `spec_decode_num_draft_tokens_total` and `spec_decode_num_accepted_tokens_total`."""

    queue_seconds: float | None = None
    requests: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None


ReadCounters: TypeAlias = "Callable[[ChatTarget], Awaitable[EngineCounters | None]]"
"""Reads them; None when the engine has none to read. Must not raise."""


def counters_of(page: MetricPage) -> EngineCounters:
    """What of a metrics page an answer is measured by."""
    from spark_tui.domain.metrics.page import Family, Part

    def sum_of(part: Part) -> float | None:
        values = [value for slot, value in page.groups.get(Family.QUEUE, {}).items() if slot.part is part]
        return sum(values) if values else None

    return EngineCounters(
        sum_of(Part.SUM), sum_of(Part.COUNT), page.total(Family.DRAFT_TOKENS), page.total(Family.ACCEPTED)
    )


def meter_on(source: MetricsSource) -> EngineMeter:
    """A meter that reads metrics pages; an engine without one is not measured."""

    async def read(target: ChatTarget) -> EngineCounters | None:
        try:
            return counters_of(await source.read(target.endpoint))
        except SparkError:
            return None  # a figure that nobody waits for: the answer itself tells what is wrong with the engine

    return EngineMeter(read)


def engine_side(before: EngineCounters, after: EngineCounters) -> EngineSide | None:
    """The difference; None when nothing can be told, or when the engine was restarted in between."""
    requests = _grown(before.requests, after.requests)
    queue = _grown(before.queue_seconds, after.queue_seconds)
    drafted = _grown(before.drafted_tokens, after.drafted_tokens)
    accepted = _grown(before.accepted_tokens, after.accepted_tokens)
    if not requests and not drafted:
        return None
    return EngineSide(
        queue / requests if queue is not None and requests else None,
        int(drafted) if drafted else None,
        int(accepted) if drafted and accepted is not None else None,
        shared=bool(requests and requests > 1),
    )


def _grown(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or after < before:
        return None
    return after - before


class EngineMeter:
    """Measures answers on engines whose counters can be read."""

    def __init__(self, read: ReadCounters) -> None:
        self._read = read
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, target: ChatTarget) -> Measure:
        """Starts reading at once, beside the question."""
        return Measure(self, target)

    async def read(self, target: ChatTarget) -> EngineCounters | None:
        """The counters now."""
        return await self._read(target)

    def keep(self, task: asyncio.Task[None]) -> None:
        """A task that goes on after its answer is over."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Waits until the answers that are over are measured."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def close(self) -> None:
        """Ends what is still being read."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


class Measure:
    """One answer's counters."""

    def __init__(self, meter: EngineMeter, target: ChatTarget) -> None:
        self._meter = meter
        self._target = target
        self._before = asyncio.ensure_future(meter.read(target))

    def end(self, measured: Callable[[EngineSide], None], written: Callable[[], None]) -> None:
        """The answer is over: tells what was measured, then that it can be written down; both in a moment."""
        self._meter.keep(asyncio.ensure_future(self._end(measured, written)))

    async def _end(self, measured: Callable[[EngineSide], None], written: Callable[[], None]) -> None:
        try:
            before, after = await self._before, await self._meter.read(self._target)
            side = engine_side(before, after) if before is not None and after is not None else None
            if side is not None:
                measured(side)
        finally:
            written()


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """Whom a question goes to: the engine's name for people, its address, and the served name of the model.

    `limit` is its context in tokens, `modalities` what it takes (`text`, `image`, `audio`); None and empty: not known.
    """

    engine: str
    endpoint: Endpoint
    model: str
    limit: int | None = None
    modalities: tuple[str, ...] = ()


def target_of(view: EngineView, endpoint: Endpoint, *, model: str = "", modalities: tuple[str, ...] = ()) -> ChatTarget:
    """The target that an engine is; `model` is one of the names that it serves, empty for its own.

    Raises ModelNotServed for a name that it does not serve.
    """
    wanted = model or view.served_name
    served = next((each for each in view.models if each.id == wanted), None)
    if model and served is None and view.models:
        raise model_not_served(model, tuple(each.id for each in view.models))
    return ChatTarget(view.name, endpoint, wanted, served.max_model_len if served else None, modalities)


def advised(error: SparkError, target: ChatTarget, key_file: Path, views: Iterable[EngineView] = ()) -> SparkError:
    """The error of a chat with what can be done about it here: where the key is set, what serves, how to make room."""
    match error:
        case ApiKeyRejected():
            return ApiKeyRejected(error.summary, _key_remedy(target, key_file), detail=error.detail)
        case ModelNotServed():
            others = [view for view in views if view.state is EngineState.SERVING and view.name != target.engine]
            if error.served or not others:
                return error
            names = ", ".join(f"{clean_line(view.served_name)} on {view.name}" for view in others)
            return ModelNotServed(error.summary, f"These serve: {names}.", detail=error.detail, served=error.served)
        case ContextOverflow():
            return ContextOverflow(
                error.summary,
                f"Leave out older exchanges (/trim at the prompt, {key_of('make_room')} on the screen). {error.remedy}",
                detail=error.detail,
                limit=error.limit,
                prompt_tokens=error.prompt_tokens,
                answer_tokens=error.answer_tokens,
            )
        case EngineUnreachable():
            return EngineUnreachable(
                error.summary, f"{error.remedy} What was asked is kept: ask it again then.", detail=error.detail
            )
    return error


def _key_remedy(target: ChatTarget, key_file: Path) -> str:
    if target.endpoint.api_key:
        return (
            f"The key that was sent is the one in {key_file}. If {target.engine} was restarted with another one, "
            "write that key into the file."
        )
    return (
        f"spark-tui has no key for {target.engine}: it was launched elsewhere. Launch it from a preset with "
        "--api-key, and the key is made and kept for you."
    )


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


_Item: TypeAlias = records.Record | Exchange
"""A line; or an exchange that is asked, whose pictures are kept first."""

COPY = " (copy)"
PART_SECONDS = 2.0
"""What is lost of an answer when this process is killed."""


class Journal:
    """One conversation's file. `thread` is what it holds already; `exists` says that it is there under `thread.id`.

    An existing one is claimed with its first new line. Where another process has it, a copy is begun instead, and
    `moved_from` is the id of the one that was left alone.
    """

    def __init__(self, store: ConversationStore, clock: Clock, thread: ChatThread, *, exists: bool) -> None:
        self._store = store
        self._clock = clock
        self._thread = thread
        self._exists = exists
        self._ready = False
        self._waiting: deque[_Item] = deque()
        self._task: asyncio.Task[None] | None = None
        self._durable = False
        self.id = thread.id if exists else ""
        self.moved_from = ""
        self.error: SparkError | None = None

    def write(self, *items: _Item, durable: bool = False) -> None:
        """Adds lines. `durable`: worth a wait of the disk, which only this journal notices."""
        self._waiting.extend(items)
        self._durable |= durable
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def flush(self) -> None:
        """Waits until all is written, or cannot be: `error` says why."""
        if self._waiting and (self._task is None or self._task.done()):
            self.write()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Flushes, and lets others write in it."""
        await self.flush()
        if self._ready:
            try:
                await self._store.release(self.id)
            except SparkError as error:
                self.error = error

    async def _run(self) -> None:
        try:
            if not self._ready:
                await self._open()
            while self._waiting:
                await self._write_some()
            self.error = None
        except SparkError as error:
            self.error = error

    async def _write_some(self) -> None:
        """Everything that waits, in one append; what comes meanwhile is for the next."""
        count, durable = len(self._waiting), self._durable
        lines = [await self._line(item) for item in list(self._waiting)[:count]]
        await self._store.append(self.id, lines, durable=durable)
        for _ in range(count):
            self._waiting.popleft()
        self._durable = False

    async def _line(self, item: _Item) -> records.Record:
        if isinstance(item, Exchange):
            return records.asked(item, [await self._store.keep(self.id, each.data) for each in item.attachments])
        return item

    async def _open(self) -> None:
        """Claims the file, or begins one."""
        if self._exists:
            if await self._store.claim(self.id):
                self._ready = True
                return
            self.moved_from = self.id
            self._thread = replace(self._thread, title=f"{self._thread.title}{COPY}", parent=self.id)
        now = self._clock.now()
        self.id = await self._store.new_id(now)
        self._thread = replace(self._thread, id=self.id, created_at=now)
        await self._store.claim(self.id)
        names = {id(each): await self._store.keep(self.id, each.data) for each in _attachments(self._thread)}
        lines = records.records_of(self._thread, lambda attachment: names[id(attachment)])
        await self._store.append(self.id, lines, durable=True)
        self._ready = self._exists = True


def _attachments(thread: ChatThread) -> list[Attachment]:
    return [attachment for exchange in thread.exchanges for attachment in exchange.attachments]


class AnswerKeeper:
    """Writes an answer down while it comes: a part in PART_SECONDS, and its end."""

    def __init__(self, journal: Journal | None, turn: Turn) -> None:
        self._journal = journal
        self._turn = turn
        answer = turn.builder.snapshot()
        self._content, self._reasoning = answer.carried, 0
        self._at = answer.started_at

    def look(self, now: float) -> None:
        """To be called as events come; cheap."""
        if self._journal is None or now - self._at < PART_SECONDS:
            return
        self._at = now
        answer = self._turn.builder.snapshot()
        content, reasoning = answer.content[self._content :], answer.reasoning[self._reasoning :]
        if content or reasoning:
            self._journal.write(records.part(self._turn.number, content, reasoning))
            self._content, self._reasoning = len(answer.content), len(answer.reasoning)

    def end(self) -> None:
        """The answer is over."""
        if self._journal is not None:
            self._journal.write(records.answered(self._turn.exchange(), self._content, self._reasoning), durable=True)


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
            raise UsageError(f"The answer cannot continue: it {why}.", "Ask it again, or ask something else.")
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
