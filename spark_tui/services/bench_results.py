"""The ResultStore on disk: one JSON object a line, added at the end, in a private folder. Nothing is ever rewritten."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Final

from spark_tui.domain.bench.codec import Unreadable, result_from_json, result_to_json
from spark_tui.domain.bench.result import Result
from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import clean_line, truncate
from spark_tui.services.files import FILE_MODE, FOLDER_MODE

_MOST_BYTES: Final = 256 * 1024 * 1024
_NAME: Final = "results.jsonl"


class FileResults:
    """The ResultStore port. Several programs may add: each line is written in one piece under a lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / _NAME
        self._problems: tuple[str, ...] = ()

    def add(self, result: Result) -> None:
        """Adds a line, and makes sure that it is on the disk. After a line that was cut short by a crash, a new one
        begins."""
        line = json.dumps(result_to_json(result), separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._file, flags, FILE_MODE)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                os.fchmod(file.fileno(), FILE_MODE)
                size = file.seek(0, os.SEEK_END)
                torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
                file.write(b"\n" + line if torn else line)
                os.fsync(file.fileno())
        except OSError as error:
            raise SparkError(
                f"The result cannot be kept in {self._file}: {error.strerror or error}.",
                "Make room there, or see whom the folder belongs to. --json prints the result all the same.",
            ) from error

    def all(self) -> tuple[Result, ...]:
        """Every line that is a result, oldest first."""
        try:
            with self._file.open("rb") as file:
                content = file.read(_MOST_BYTES)
        except FileNotFoundError:
            self._problems = ()
            return ()
        except OSError as error:
            raise SparkError(
                f"The results in {self._file} cannot be read: {error.strerror or error}.",
                "See whom the file belongs to.",
            ) from error
        found, problems = [], []
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                found.append(result_from_json(json.loads(line)))
            except (ValueError, RecursionError) as error:
                why = str(error) if isinstance(error, Unreadable) else "it is no JSON"
                problems.append(f"{self._file}:{number}: {truncate(clean_line(why), 200)}. It is left as it is.")
        self._problems = tuple(problems)
        return tuple(found)

    def problems(self) -> tuple[str, ...]:
        """What the last reading left out, each with its file and line."""
        return self._problems


class MemoryResults:
    """A ResultStore that forgets: for the demo."""

    def __init__(self) -> None:
        self._kept: list[Result] = []

    def add(self, result: Result) -> None:
        """Until the program ends."""
        self._kept.append(result)

    def all(self) -> tuple[Result, ...]:
        """Oldest first."""
        return tuple(self._kept)

    def problems(self) -> tuple[str, ...]:
        """None."""
        return ()
