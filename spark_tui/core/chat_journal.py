"""Writes a conversation down while it goes on, in order, and beside the answers: nobody waits for the disk.

What cannot be written stays and is tried again with the next line; the conversation goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TypeAlias

from spark_tui.core.conversation_turn import Turn
from spark_tui.domain import chat_records as records
from spark_tui.domain.chat import Attachment
from spark_tui.domain.conversation import ChatThread, Exchange
from spark_tui.domain.errors import SparkError
from spark_tui.services.ports import Clock
from spark_tui.services.ports_chat import ConversationStore

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
