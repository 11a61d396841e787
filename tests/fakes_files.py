"""Stores in memory, in place of those in private folders."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from spark_tui.domain.bench.run import Result
from spark_tui.domain.chat.conversation import ChatThread, ConversationHit, ConversationSummary
from spark_tui.domain.chat.records import ThreadReader
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.prove.run import Proof

E = TypeVar("E", Result, Proof)


class MemoryState:
    """A StateFiles."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._claimed: set[str] = set()

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def path(self, name: str) -> str:
        return name

    def write(self, name: str, data: bytes) -> None:
        self._files[name] = data

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def names(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._files if name.startswith(prefix)))

    def claim(self, name: str) -> bool:
        if name in self._claimed:
            return False
        self._claimed.add(name)
        return True

    def release(self, name: str) -> None:
        self._claimed.discard(name)

    def claimed(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._claimed if name.startswith(prefix)))


class _Memory(Generic[E]):
    """Entries that nothing outlives."""

    def __init__(self) -> None:
        self._kept: tuple[E, ...] = ()

    def add(self, result: E) -> None:
        self._kept += (result,)

    def remove(self, ids: Collection[str]) -> int:
        before = len(self._kept)
        self._kept = tuple(result for result in self._kept if result.id not in ids)
        return before - len(self._kept)

    def all(self) -> tuple[E, ...]:
        return self._kept

    def problems(self) -> tuple[str, ...]:
        return ()


class MemoryResults(_Memory[Result]):
    """A ResultStore."""


class MemoryProofs(_Memory[Proof]):
    """A ProofStore."""


@dataclass
class MemoryConversations:
    """A ConversationStore. `elsewhere` are ids that another process has claimed; `failure` is raised by the
    next writes while it is set."""

    lines: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    failure: SparkError | None = None
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _order: dict[str, int] = field(default_factory=dict)

    unreadable: tuple[str, ...] = ()

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        found = []
        for id_ in sorted(self.lines, key=lambda id_: -self._order[id_]):
            thread = self._thread(id_)
            in_use = id_ in self.claimed | self.elsewhere
            found.append(thread.summary(thread.created_at + self._order[id_], in_use=in_use))
        return tuple(found)

    async def read(self, conversation: str) -> ChatThread:
        return self._thread(conversation)

    def _thread(self, conversation: str) -> ChatThread:
        if conversation not in self.lines:
            raise UsageError(f"There is no conversation {conversation}.", "Choose another.")
        reader = ThreadReader(lambda name: self.files.get(name, b""))
        for record in self.lines[conversation]:
            reader.read(record)
        return reader.thread()

    async def search(self, text: str) -> tuple[ConversationHit, ...]:
        found = (hit for each in await self.summaries() for hit in self._thread(each.id).hits(text))
        return tuple(itertools.islice(found, 50))

    async def new_id(self, at: float) -> str:
        return f"demo-{next(self._numbers)}"

    async def claim(self, conversation: str) -> bool:
        if conversation in self.elsewhere:
            return False
        self.claimed.add(conversation)
        return True

    async def release(self, conversation: str) -> None:
        self.claimed.discard(conversation)

    async def append(self, conversation: str, records: Sequence[Mapping[str, Any]], *, durable: bool = False) -> None:
        if self.failure is not None:
            raise self.failure
        self.lines.setdefault(conversation, []).extend(records)
        self._order[conversation] = next(self._numbers)

    async def keep(self, conversation: str, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()[:40]
        self.files[name] = data
        return name

    async def delete(self, conversation: str) -> None:
        self._thread(conversation)
        del self.lines[conversation]

    async def close(self) -> None:
        return
