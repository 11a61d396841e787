"""Results and proofs on disk: one JSON object a line, in a private folder. Lines are appended; a deletion writes a new
file that replaces the old one. A line that cannot be read stays as it is."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from spark_tui.base.errors import SparkError
from spark_tui.base.files import APPEND_FLAGS, FILE_MODE, FOLDER_MODE, append_lines, open_plain, write_whole
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json
from spark_tui.observe.results.model.proof import Proof
from spark_tui.observe.results.model.run import HOST_KEY, RESULT_VERSION, Result, result_to_json

MOST_BYTES: Final = 64 * 1024 * 1024
"""Some thousand runs. A file that has grown beyond it loses its oldest results, a quarter of it at once."""
_MOST_READ: Final = 4 * MOST_BYTES


class UnreadableResult(ValueError):
    """Not a result, damaged, or of a newer version."""


def result_from_json(value: object) -> Result:
    """The result that `result_to_json` wrote. Raises UnreadableResult. Unknown keys are ignored, absent ones have their
    default."""
    if not isinstance(value, dict):
        raise UnreadableResult("not a JSON object")
    version = value.get("version")
    if not isinstance(version, int) or version < 1:
        raise UnreadableResult("no version")
    if version > RESULT_VERSION:
        raise UnreadableResult(f"version {version} is newer than this program's ({RESULT_VERSION})")
    restored = _restored(value)
    run = restored.get("run")
    if isinstance(run, dict):
        if HOST_KEY in run:
            run["host"] = run.pop(HOST_KEY)
        if isinstance(run.get("plan"), dict):
            run["plan"].setdefault("temperature", None)  # None is left out of files, and is not this field's default
    try:
        return msgspec.convert(restored, Result)
    except msgspec.ValidationError as error:
        raise UnreadableResult(str(error)) from None


def _restored(value: Any) -> Any:
    """A copy of a JSON value, with the infinite ends of intervals."""
    if isinstance(value, dict):
        return {key: math.inf if key == "high" and item == "inf" else _restored(item) for key, item in value.items()}
    return [_restored(item) for item in value] if isinstance(value, list) else value


def proof_to_json(proof: Proof) -> dict[str, Any]:
    return {"version": RESULT_VERSION, **msgspec.to_builtins(proof)}


def proof_from_json(value: object) -> Proof:
    """The proof that `proof_to_json` wrote. Raises UnreadableResult."""
    if not isinstance(value, dict) or value.get("version") != RESULT_VERSION:
        raise UnreadableResult("not a proof of this version")
    try:
        return msgspec.convert(value, Proof)
    except msgspec.ValidationError as error:
        raise UnreadableResult(str(error)) from None


class _Entry(Protocol):
    @property
    def id(self) -> str: ...


E = TypeVar("E", bound=_Entry)


class JsonLines(Generic[E]):
    """Entries of one kind in a file. Several programs may add: each line is written in one piece under a lock."""

    NAME = ""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._file = folder / self.NAME
        self._most = most_bytes
        self._problems: tuple[str, ...] = ()

    to_json: Callable[[E], dict[str, Any]]
    from_json: Callable[[object], E]
    """Raises UnreadableResult."""

    def add(self, result: E) -> None:
        """Appends a line, flushed to the disk; after a line that a crash cut short, on a new one."""
        line = json.dumps(self.to_json(result), separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            with self._locked() as file:
                if (size := append_lines(file.fileno(), line)) > self._most:
                    write_whole(self._file, self._without_oldest(_lines(file), size - self._most * 3 // 4))
        except OSError as error:
            raise SparkError(
                f"The result cannot be kept in {self._file}: {error.strerror or error}.",
                "Free disk space, or check the owner of the folder. --json still prints the result.",
            ) from error

    def remove(self, ids: Collection[str]) -> int:
        if not self._file.exists():
            return 0
        try:
            with self._locked() as file:
                lines = _lines(file)
                kept = [line for line in lines if self._id_of(line) not in ids]
                if len(kept) < len(lines):
                    write_whole(self._file, kept)
        except OSError as error:
            raise SparkError(
                f"The results in {self._file} cannot be changed: {error.strerror or error}.",
                "Free disk space, or check the owner of the folder.",
            ) from error
        return len(lines) - len(kept)

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """The file, for one process at a time; opened again where another one replaced it meanwhile."""
        while True:
            with os.fdopen(os.open(self._file, APPEND_FLAGS, FILE_MODE), "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                mine = os.fstat(file.fileno())
                if not mine.st_nlink or not os.path.samestat(mine, self._file.lstat()):
                    continue
                os.fchmod(file.fileno(), FILE_MODE)
                yield file
                return

    def all(self) -> tuple[E, ...]:
        """Every line that is an entry, oldest first."""
        try:
            with open_plain(self._file) as file:
                content = file.read(_MOST_READ)
        except FileNotFoundError:
            self._problems = ()
            return ()
        except OSError as error:
            raise SparkError(
                f"The results in {self._file} cannot be read: {error.strerror or error}.",
                "Check the owner of the file.",
            ) from error
        found, problems = [], []
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                found.append(self.from_json(load_json(line)))
            except ValueError as error:
                why = str(error) if isinstance(error, UnreadableResult) else "not JSON"
                problems.append(f"{self._file}:{number}: {truncate(clean_line(why), 200)}. Kept as it is.")
        self._problems = tuple(problems)
        return tuple(found)

    def problems(self) -> tuple[str, ...]:
        """What the last reading left out, each with its file and line."""
        return self._problems

    def _id_of(self, line: bytes) -> str | None:
        """The id of the entry in a line; None for one that cannot be read, and so must not be deleted."""
        try:
            return self.from_json(load_json(line)).id
        except ValueError:
            return None

    def _without_oldest(self, lines: list[bytes], excess: int) -> list[bytes]:
        """The lines without the first entries, `excess` bytes of them; the newest one stays."""
        kept = []
        for line in lines[:-1]:
            if excess > 0 and self._id_of(line) is not None:
                excess -= len(line)
            else:
                kept.append(line)
        return [*kept, *lines[-1:]]


class FileResults(JsonLines[Result]):
    """The ResultStore port."""

    NAME = "results.jsonl"
    to_json, from_json = staticmethod(result_to_json), staticmethod(result_from_json)


class FileProofs(JsonLines[Proof]):
    """The ProofStore port."""

    NAME = "proofs.jsonl"
    to_json, from_json = staticmethod(proof_to_json), staticmethod(proof_from_json)


def _lines(file: FileIO) -> list[bytes]:
    file.seek(0)
    return file.readall().splitlines(keepends=True)
