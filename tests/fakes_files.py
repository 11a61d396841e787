"""Stores in memory, in place of those in private folders."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from spark_tui.observe.results.model.proof import Proof
from spark_tui.observe.results.model.run import Result
from spark_tui.simulator.folder import DemoFolder
from spark_tui.use.chat.adapter import FileConversations

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


class OwnConversations(FileConversations):
    """Real conversations in a folder of the test's own, which goes with them."""

    def __init__(self) -> None:
        self._own = DemoFolder()
        self.place = self._own.path / "conversations"
        super().__init__(self.place)

    @property
    def ids(self) -> set[str]:
        """What is on disk."""
        return {path.stem for path in self.place.glob("*.jsonl")}

    @contextmanager
    def barred(self) -> Iterator[None]:
        """Nothing can be written within: a file is where the folder would be."""
        self.place.touch()
        yield
        self.place.unlink()
