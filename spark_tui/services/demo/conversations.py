"""Conversations of a simulated Spark: kept in memory, gone with the program."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from spark_tui.domain.chat.conversation import ChatThread, ConversationHit, ConversationSummary
from spark_tui.domain.chat.records import ThreadReader
from spark_tui.domain.engine.runtimes import KEY_VARIABLES
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.secret import Secret
from spark_tui.services.demo.world import DemoWorld


class MemoryConversations(Struct):
    """The ConversationStore port. `elsewhere` are ids that another process has claimed; `failure` is raised by the
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


_FOLDER: Final = Path("/home/demo/.config/spark-tui/secrets")


class DemoSecrets:
    """The SecretStore port. Keys are the same for the same seed: they guard nothing."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._files: dict[Path, dict[str, Secret]] = {}
        self._made = 0

    def hf_token(self) -> Secret | None:
        """None: a demo must not look for the user's own."""
        return None

    def api_key(self, path: str) -> Secret | None:
        kept = self._files.get(Path(path), {})
        return next((kept[name] for name in KEY_VARIABLES if name in kept), None)

    def path(self, name: str) -> Path:
        return _FOLDER / f"{name.replace('/', '-')}.env"

    def env_file(self, name: str, values: dict[str, Secret]) -> Path:
        self._files[self.path(name)] = dict(values)
        return self.path(name)

    def new_key(self) -> Secret:
        self._made += 1
        return Secret(f"demo-{self._world.fingerprint('key', self._made)[:40]}")
