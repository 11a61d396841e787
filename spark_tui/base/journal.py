"""What is about to be done with a thing of this machine, written down before it is done: one file for each thing.

One program at a time works on a thing. It claims it, writes each step before it takes it, and drops the record at the
end. The claim of a program that is killed ends with it, its record stays: the next program finishes or undoes that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar

from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.ports import StateFiles
from spark_tui.base.text import clean_line, quoted
from spark_tui.base.untrusted import decode, encode

T = TypeVar("T")

WAIT: Final = "Wait for it, or cancel it there."


class Journal(Generic[T]):
    """Records of one kind, in the state's files that begin with `prefix`. `key` says what a record is of: the rest of
    its file's name.

    `damaged` are the summary and the remedy for a file that holds no record, with `{name}` and `{path}`; `busy` those
    while another program works on the thing, with `{name}` and with `{who}`, which the record may have."""

    def __init__(
        self,
        state: StateFiles,
        kind: type[T],
        prefix: str,
        key: Callable[[T], str],
        *,
        damaged: tuple[str, str],
        busy: tuple[str, str],
    ) -> None:
        self._state = state
        self._kind = kind
        self._prefix = prefix
        self._key = key
        self._damaged = damaged
        self._busy = busy

    def read(self, name: str) -> T | None:
        """None where nothing is written down. Raises RefusedError for a damaged file, SparkError for one that cannot
        be read."""
        data = self._state.read(self._prefix + name)
        with suppress(ValueError, SparkError):
            record = None if data is None else decode(data, self._kind)
            if record is None or self._key(record) == name:
                return record
        path, (summary, remedy) = self._state.path(self._prefix + name), self._damaged
        raise RefusedError(
            summary.format(name=name, path=clean_line(path)), remedy.format(name=name, path=quoted(path))
        )

    def write(self, record: T) -> T:
        """On the disk when this returns. Raises SparkError."""
        self._state.write(self._prefix + self._key(record), encode(record).encode())
        return record

    def drop(self, name: str) -> None:
        self._state.remove(self._prefix + name)

    def names(self) -> tuple[str, ...]:
        """What records there are of. Raises SparkError where they cannot be listed."""
        return tuple(name.removeprefix(self._prefix) for name in self._state.names(self._prefix))

    def left(self) -> Iterator[T | SparkError]:
        """What no program works on; in its place, why a record or all of them cannot be read."""
        try:
            names = self.names()
        except SparkError as error:
            yield error
            return
        for name in names:
            try:
                record = self.read(name)
            except SparkError as error:
                yield error
            else:
                if record is not None and not self.is_claimed(name):
                    yield record

    def is_claimed(self, name: str) -> bool:
        """Whether a program works on it, this one included. Raises SparkError."""
        return is_claimed(self._state, self._prefix + name)

    @contextmanager
    def claimed(self, name: str) -> Iterator[None]:
        """While this caller alone works on it. Raises RefusedError while another one does."""
        if not self._state.claim(self._prefix + name):
            who = "another spark-tui"
            with suppress(SparkError):
                who = getattr(self.read(name), "who", who)
            raise RefusedError(*(text.format(name=name, who=who) for text in self._busy))
        try:
            yield
        finally:
            self._state.release(self._prefix + name)


def is_claimed(state: StateFiles, name: str) -> bool:
    """Whether a program has that claim, this one included. Raises SparkError."""
    if free := state.claim(name):
        state.release(name)
    return not free
