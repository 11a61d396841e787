"""Chatting with a model: a conversation, the answer that is coming, and the file in which both are saved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.answer import model_not_served
from spark_tui.base.engine.message import Answer, AnswerBuilder, Attachment, ChatRequest
from spark_tui.base.engine.metrics_page import Change, Family, MetricPage, Snapshot, restarted
from spark_tui.base.engine.request import NO_SETTINGS, ChatSettings, check_taken, check_together
from spark_tui.base.engine.state import Endpoint, EngineState
from spark_tui.base.errors import (
    ApiKeyRejected,
    ContextOverflow,
    EngineFailed,
    EngineUnreachable,
    ModelNotServed,
    SparkError,
    UsageError,
)
from spark_tui.base.executors import pause
from spark_tui.base.ports import Clock, EngineApi, MetricsSource, port_named
from spark_tui.base.text import clean_line
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.use.chat.model import records
from spark_tui.use.chat.model.conversation import (
    AnswerOutcome,
    ChatThread,
    ContextUse,
    ConversationHit,
    ConversationSummary,
    EngineSide,
    Exchange,
    TrimPlan,
    UserInput,
    context_use,
    history,
    proposals,
    title_of,
)

# --- the engine's own counters ----------------------------------------------------------------------------


def engine_side(before: MetricPage, after: MetricPage) -> EngineSide | None:
    """What the engine counted between two of its pages; None when nothing grew, or when it was restarted in between."""
    change = Change(Snapshot(0.0, before), Snapshot(0.0, after), None)
    queue, drafted, accepted = (
        change.histogram(Family.QUEUE),
        change.grown(Family.DRAFT_TOKENS),
        change.grown(Family.ACCEPTED),
    )
    requests = queue.count if queue is not None else 0.0
    if not before.groups or restarted(before, after) or not (requests or drafted):
        return None
    return EngineSide(
        queue.sum / requests if queue is not None and queue.sum is not None and requests else None,
        int(drafted) if drafted else None,
        int(accepted) if drafted and accepted is not None else None,
        shared=requests > 1,
    )


class ChatTarget(Struct, frozen=True):
    """The addressee of a question: the engine's name, its address, and the served name of the model.

    `limit` is its context in tokens, `modalities` what it takes (`text`, `image`, `audio`); None and empty: unknown.
    """

    engine: str
    endpoint: Endpoint
    model: str
    limit: int | None = None
    modalities: tuple[str, ...] = ()


def target_of(view: EngineView, endpoint: Endpoint, *, model: str = "", modalities: tuple[str, ...] = ()) -> ChatTarget:
    """The engine as a target; `model` is one of its served names, empty for the first.

    Raises ModelNotServed for a name that it does not serve.
    """
    wanted = model or view.served_name
    served = next((each for each in view.models if each.id == wanted), None)
    if model and served is None and view.models:
        raise model_not_served(model, tuple(each.id for each in view.models))
    return ChatTarget(view.name, endpoint, wanted, served.max_model_len if served else None, modalities)


def advised(error: SparkError, target: ChatTarget, key_file: Path, views: Iterable[EngineView] = ()) -> SparkError:
    """The error of a chat with a remedy for this machine: where the key is set, what serves, how to make room."""
    match error:
        case ApiKeyRejected():
            remedy = (
                f"The key that was sent is the one in {key_file}. If {target.engine} was restarted with another one, "
                "write that key into the file."
                if target.endpoint.api_key
                else f"spark-tui has no key for {target.engine}: it was launched elsewhere. Outside Docker: write "
                f"VLLM_API_KEY=KEY into {key_file}, mode 600. A launch from a preset makes and keeps a key."
            )
            return ApiKeyRejected(error.summary, remedy, detail=error.detail)
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


# --- the file ---------------------------------------------------------------------------------------------

_Item: TypeAlias = records.Record | Exchange
"""A line; or an exchange that is asked, whose attachments are saved first."""


@port_named("conversations")
class ConversationStore(Protocol):
    """Conversations on disk. Every method raises SparkError with a remedy; what it does is done in order.

    `unreadable` are sentences on the files that the last `summaries` could not read.
    """

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        """All of them, the one that was changed last first."""

    @property
    def unreadable(self) -> tuple[str, ...]: ...

    async def read(self, conversation: str) -> ChatThread:
        """A whole conversation; raises UsageError when there is none of that id."""

    async def search(self, text: str) -> tuple[ConversationHit, ...]:
        """Exchanges whose question, answer or title holds `text`, whatever its case; newest conversations first,
        50 at most."""

    async def new_id(self, at: float) -> str:
        """An id that no conversation has; `at` is epoch seconds."""

    async def claim(self, conversation: str) -> bool:
        """Makes this process the only one that writes in it; false when another one does. A dead process holds none."""

    async def release(self, conversation: str) -> None: ...

    async def append(self, conversation: str, records: Sequence[Mapping[str, Any]], *, durable: bool = False) -> None:
        """Adds lines; on a failure none of them. `durable`: they are on the disk when this returns."""

    async def keep(self, conversation: str, data: bytes) -> str:
        """Keeps a picture or a sound beside it, and returns its name there."""

    async def delete(self, conversation: str) -> None:
        """Removes it with all its files; raises RefusedError while another program writes in it."""

    async def close(self) -> None:
        """Waits for what is on its way to the disk, and ends all claims."""


class Journal:
    """One conversation's file. `thread` is its content; `exists`: it is saved already, under `thread.id`.

    An existing file is claimed with its first new line. Where another process has it, a copy is begun instead, and
    `moved_from` is the id of the original. `error` is why the latest lines could not be written; they are kept.
    """

    def __init__(self, store: ConversationStore, clock: Clock, thread: ChatThread, *, exists: bool) -> None:
        self._store = store
        self._clock = clock
        self._thread = thread
        self._exists = exists
        self._ready = False
        self._waiting: list[_Item] = []
        self._task: asyncio.Task[None] | None = None
        self._durable = False
        self.id = thread.id if exists else ""
        self.moved_from = ""
        self.error: SparkError | None = None

    def write(self, *items: _Item, durable: bool = False) -> None:
        """Adds lines in the background. `durable`: they are synced to the disk."""
        self._waiting.extend(items)
        self._durable |= durable
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def flush(self) -> None:
        """Waits until all is written, or has failed."""
        if self._waiting and (self._task is None or self._task.done()):
            self.write()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Flushes, and releases the file for other processes."""
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
            while self._waiting:  # all in one append; lines that come meanwhile are for the next one
                count, durable = len(self._waiting), self._durable
                lines = [
                    records.asked(item, [await self._store.keep(self.id, each.data) for each in item.attachments])
                    if isinstance(item, Exchange)
                    else item
                    for item in self._waiting[:count]
                ]
                await self._store.append(self.id, lines, durable=durable)
                del self._waiting[:count]
                self._durable = False
            self.error = None
        except SparkError as error:
            self.error = error

    async def _open(self) -> None:
        """Claims the file, or begins one."""
        if self._exists:
            if await self._store.claim(self.id):
                self._ready = True
                return
            self.moved_from = self.id
            self._thread = replace(self._thread, title=f"{self._thread.title} (copy)", parent=self.id)
        now = self._clock.now()
        self.id = await self._store.new_id(now)
        self._thread = replace(self._thread, id=self.id, created_at=now)
        await self._store.claim(self.id)
        attachments = [each for exchange in self._thread.exchanges for each in exchange.attachments]
        names = {id(each): await self._store.keep(self.id, each.data) for each in attachments}
        lines = records.records_of(self._thread, lambda attachment: names[id(attachment)])
        await self._store.append(self.id, lines, durable=True)
        self._ready = self._exists = True


# --- the conversation -------------------------------------------------------------------------------------

PART_SECONDS = 2.0
"""The part of an answer that is lost when this process is killed."""
FRAMES_PER_SECOND = 12
MAX_ANSWER_CHARS = 32_000_000
"""Several times a context of a million tokens: an endless answer must not fill the memory."""

Advise: TypeAlias = Callable[[SparkError, ChatTarget], SparkError]
"""Adds the remedy on this machine to an error."""


class LiveExchange:
    """The exchange whose answer is coming. `exchange` is how it stands; the same object while nothing has changed."""

    def __init__(self, begun: Exchange, builder: AnswerBuilder) -> None:
        self.number = begun.number
        self.builder = builder
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.over = asyncio.Event()
        self.written = begun.answer.carried, 0
        """Characters of content and reasoning that are in the journal."""
        self._exchange = begun
        self._written_at = begun.answer.started_at

    @property
    def exchange(self) -> Exchange:
        answer = self.builder.snapshot()
        if answer is not self._exchange.answer:
            self._exchange = replace(self._exchange, answer=answer)
        return self._exchange

    def end(self, outcome: AnswerOutcome, error: SparkError | None = None) -> None:
        """The answer has ended; later calls change nothing."""
        if not self.over.is_set():
            self._exchange = replace(self.exchange, outcome=outcome, error=error)
            self.over.set()
            self.changed.set()

    def part(self, now: float) -> records.Record | None:
        """The text since the last part, at most once in PART_SECONDS."""
        if now - self._written_at < PART_SECONDS:
            return None
        self._written_at = now
        answer = self.builder.snapshot()
        content, reasoning = answer.content[self.written[0] :], answer.reasoning[self.written[1] :]
        self.written = len(answer.content), len(answer.reasoning)
        return records.part(self.number, content, reasoning) if content or reasoning else None


class Conversation:
    """Questions and answers, one at a time. `settings` hold for the next question.

    To be used on one event loop; `close` it at the end. With a `journal` everything is saved.
    """

    def __init__(
        self,
        api: EngineApi,
        clock: Clock,
        *,
        settings: ChatSettings = NO_SETTINGS,
        thread: ChatThread | None = None,
        journal: Journal | None = None,
        metrics: MetricsSource | None = None,
        advise: Advise | None = None,
        max_answer_chars: int = MAX_ANSWER_CHARS,
    ) -> None:
        thread = thread or ChatThread()
        self._api = api
        self._clock = clock
        self._max_answer_chars = max_answer_chars
        self._metrics = metrics
        self._advise = advise
        self._past = thread.exchanges
        self._live: LiveExchange | None = None
        self._last_number = thread.last_number
        self._tasks: set[asyncio.Task[None]] = set()
        self._measuring: set[asyncio.Task[None]] = set()
        self._written = thread.settings
        self._title = thread.title
        self.journal = journal
        self.settings = settings
        self.sent_from = thread.sent_from

    @property
    def id(self) -> str:
        """The id under which it is saved; empty before the first question, or when it is not saved."""
        return self.journal.id if self.journal is not None else ""

    @property
    def title(self) -> str:
        """Its title, else its first question."""
        if not self._title and self.exchanges:
            first = self.exchanges[0]
            return title_of(first.question, first.attachments)
        return self._title

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All exchanges, oldest first; a finished one is the same object each time."""
        return self._past if self._live is None else (*self._past, self._live.exchange)

    @property
    def last(self) -> Exchange | None:
        if self._live is not None:
            return self._live.exchange
        return self._past[-1] if self._past else None

    @property
    def live(self) -> bool:
        """An answer is coming."""
        return self._live is not None

    def thread(self) -> ChatThread:
        """As it stands, for an export."""
        return ChatThread(
            self.id, self.title, 0.0, self.settings, self.exchanges, self.sent_from, last_number=self._last_number
        )

    def use(self, target: ChatTarget, question: str = "", attachments: tuple[Attachment, ...] = ()) -> ContextUse:
        """The part of the engine's context that asking `question` takes."""
        return context_use(
            self.exchanges,
            self.settings,
            UserInput(question, attachments),
            limit=target.limit,
            model=target.model,
            sent_from=self.sent_from,
        )

    def trims(self, use: ContextUse) -> tuple[TrimPlan, ...]:
        """Ways to make room, mildest first."""
        return proposals(self.exchanges, use, sent_from=self.sent_from)

    def trim(self, number: int) -> None:
        """From now on nothing before exchange `number` is sent; 0 sends all of it again. It stays on screen."""
        self.sent_from = number
        self._write(records.trim(number))

    def rename(self, title: str) -> None:
        self._title = title_of(title)
        self._write(records.title(self._title))

    # --- ask ------------------------------------------------------------------------------------------

    def ask(
        self, question: str, target: ChatTarget, attachments: tuple[Attachment, ...] = ()
    ) -> AsyncGenerator[Answer, None]:
        """Sends the question at once; yields the answer as it grows, and last as it ended.

        After the last snapshot it raises the SparkError that ended the answer, if one did; a stopped answer ends
        without. Closing the generator once it is read, or cancelling its reader, stops the answer. Raises UsageError
        while another answer is coming, RefusedError for attachments that cannot be sent.
        """
        self._check_free()
        check_together(attachments)
        check_taken(attachments, target.modalities, target.model)
        return self._send(UserInput(question, attachments), target)

    def regenerate(self, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Sends the last question again; the answer replaces the old one.

        For a retry after a failure too: it never becomes a second exchange.
        """
        last = self._exchange()
        check_taken(last.attachments, target.modalities, target.model)
        self.cut(last.number)
        return self._send(UserInput(last.question, last.attachments), target)

    def edit(self, number: int, question: str, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Replaces the question of exchange `number`, keeps its attachments, and removes all later exchanges."""
        edited = self._exchange(number)
        check_taken(edited.attachments, target.modalities, target.model)
        self.cut(number)
        return self._send(UserInput(question, edited.attachments), target)

    def go_on(self, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        """Continues the last answer where it was stopped, broke off or was cut; its text stays.

        Raises UsageError for an answer that came to its end, or of which only reasoning had come. Where the answer had
        begun after reasoning, the model does not reason again.
        """
        last = self._exchange()
        if not last.unfinished:
            why = "came to its end" if last.answered else "has not begun: only reasoning had come"
            raise UsageError(f"The answer cannot continue: it {why}.", "Ask it again, or ask something else.")
        messages = history(self.exchanges, self.settings, None, sent_from=self.sent_from)
        settings = self.settings
        if last.answer.reasoning:
            settings = replace(settings, parameters=replace(settings.parameters, thinking=False, reasoning_effort=""))
        self.cut(last.number)
        request = ChatRequest(
            target.model, messages, settings.parameters, settings.tools, settings.tool_choice, go_on=True
        )
        return self._start(UserInput(last.question, last.attachments), target, request, last.answer)

    def _check_free(self) -> None:
        if self.live:
            raise UsageError("An answer is still coming.", "Stop it, or wait for its end.")

    def _exchange(self, number: int = 0) -> Exchange:
        """The exchange of that number, else the last one, while no answer is coming."""
        self._check_free()
        found = next((each for each in reversed(self._past) if each.number == number or not number), None)
        if found is None:
            what = f"There is no exchange {number}." if number else "Nothing was asked yet."
            raise UsageError(what, "Ask a question.")
        return found

    def _send(self, say: UserInput, target: ChatTarget) -> AsyncGenerator[Answer, None]:
        settings = self.settings
        messages = history(self.exchanges, settings, say, sent_from=self.sent_from)
        request = ChatRequest(target.model, messages, settings.parameters, settings.tools, settings.tool_choice)
        return self._start(say, target, request, Answer(0.0))

    def _start(
        self, say: UserInput, target: ChatTarget, request: ChatRequest, carried: Answer
    ) -> AsyncGenerator[Answer, None]:
        self._last_number += 1
        builder = AnswerBuilder(self._clock.monotonic(), content=carried.content, reasoning=carried.reasoning)
        begun = Exchange(
            self._last_number,
            say.question,
            target.engine,
            target.model,
            self._clock.now(),
            builder.snapshot(),
            attachments=say.attachments,
            settings=self.settings,
            limit=target.limit,
            sent_from=self.sent_from,
        )
        live = self._live = LiveExchange(begun, builder)
        lines: list[_Item] = []
        if not self._title:
            self._title = self.title
            lines.append(records.title(self._title))
        if self.settings != self._written:
            self._written = self.settings
            lines.append(records.settings(self.settings))
        self._write(*lines, begun, durable=True)
        live.task = asyncio.create_task(self._read(live, target, request))
        self._tasks.add(live.task)
        live.task.add_done_callback(self._tasks.discard)
        return self._snapshots(live, live.task)

    # --- read -----------------------------------------------------------------------------------------

    async def _read(self, live: LiveExchange, target: ChatTarget, request: ChatRequest) -> None:
        """Collects one answer, and how it ended."""
        before = asyncio.ensure_future(self._page(target)) if self._metrics is not None else None
        try:
            async with aclosing(self._api.chat(target.endpoint, request)) as events:
                async for event in events:
                    now = self._clock.monotonic()
                    live.builder.add(event, now)
                    live.changed.set()
                    if self.journal is not None and (part := live.part(now)) is not None:
                        self.journal.write(part)
                    self._check_size(live.builder)
            self._end(live, AnswerOutcome.COMPLETE)
        except SparkError as error:
            self._end(live, AnswerOutcome.FAILED, self._advise(error, target) if self._advise is not None else error)
        except asyncio.CancelledError:
            self._end(live, AnswerOutcome.STOPPED)
            raise
        except BaseException as error:
            what = "spark-tui failed to read the answer."
            self._end(
                live, AnswerOutcome.FAILED, SparkError(what, "What had come is kept. Ask again.", detail=repr(error))
            )
            raise
        finally:
            if before is None:
                self._write_end(live)
            else:
                measuring = asyncio.create_task(self._measure(live, target, before))
                self._measuring.add(measuring)
                measuring.add_done_callback(self._measuring.discard)

    def _check_size(self, builder: AnswerBuilder) -> None:
        if builder.size > self._max_answer_chars:
            raise EngineFailed(
                f"The answer has more than {self._max_answer_chars:,} characters and no end.",
                "What had come is kept. Set a limit: max tokens.",
            )

    async def _page(self, target: ChatTarget) -> MetricPage | None:
        try:
            return await self._metrics.read(target.endpoint) if self._metrics is not None else None
        except SparkError:
            return None  # an extra figure: the answer itself shows what is wrong with the engine

    async def _measure(self, live: LiveExchange, target: ChatTarget, before: Awaitable[MetricPage | None]) -> None:
        try:
            first, last = await before, await self._page(target)
            side = engine_side(first, last) if first is not None and last is not None else None
            if side is not None:
                self._past = tuple(
                    replace(each, engine_side=side) if each.number == live.number else each for each in self._past
                )
        finally:
            self._write_end(live)

    def _write_end(self, live: LiveExchange) -> None:
        exchange = next((each for each in self._past if each.number == live.number), None)
        if exchange is not None:  # one that was removed meanwhile is not written
            self._write(records.answered(exchange, *live.written), durable=True)

    def _write(self, *items: _Item, durable: bool = False) -> None:
        if self.journal is not None:
            self.journal.write(*items, durable=durable)

    async def _snapshots(self, live: LiveExchange, task: asyncio.Task[None]) -> AsyncGenerator[Answer, None]:
        try:
            while not live.over.is_set():
                await live.changed.wait()
                live.changed.clear()
                if not live.over.is_set():
                    yield live.exchange.answer
                    await pause(self._clock, 1 / FRAMES_PER_SECOND, live.over)
            yield live.exchange.answer
        finally:
            self._stop(live)
            await asyncio.wait((task,))
        if not task.cancelled():
            task.result()  # a fault of ours is not dressed up as the engine's
        if live.exchange.error is not None:
            raise live.exchange.error

    # --- end ------------------------------------------------------------------------------------------

    def _end(self, live: LiveExchange, outcome: AnswerOutcome, error: SparkError | None = None) -> None:
        live.end(outcome, error)
        if self._live is live:
            self._live = None
            self._past = (*self._past, live.exchange)

    def _stop(self, live: LiveExchange) -> None:
        """Ends it now, unless it has ended. Cancelled once only: a second time would disturb the closing."""
        if not live.over.is_set():
            self._end(live, AnswerOutcome.STOPPED)
            if live.task is not None:
                live.task.cancel()

    def stop(self) -> bool:
        """Ends the answer that is coming, at once; False when none is. Its connection closes, which frees the slot."""
        if self._live is None:
            return False
        self._stop(self._live)
        return True

    def cut(self, number: int) -> str:
        """Removes exchange `number` and all after it; returns its question, empty when there is none."""
        self.stop()
        question = next((each.question for each in self._past if each.number == number), "")
        self._past = tuple(each for each in self._past if each.number < number)
        self._write(records.cut(number))
        return question

    async def settle(self) -> None:
        """Waits until all ended answers are measured and saved."""
        if self._measuring:
            await asyncio.wait(tuple(self._measuring))
        if self.journal is not None:
            await self.journal.flush()

    async def close(self) -> None:
        """Stops the answer that is coming, and waits until all connections are closed and all is saved."""
        self.stop()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        if self._measuring:
            for task in self._measuring:
                task.cancel()
            await asyncio.wait(tuple(self._measuring))
        if self.journal is not None:
            await self.journal.close()


def advice(context: Context, error: SparkError, target: ChatTarget) -> SparkError:
    """The error of an answer, with what this program knows of the engine."""
    return advised(error, target, context.secrets.path(target.engine), context.store.world.known(ENGINES))
