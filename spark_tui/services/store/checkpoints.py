"""The CheckpointSource port: configs and headers of checkpoints in the model store. No tensor is ever read.

A checkpoint is a folder: `hub/models--ORG--NAME/snapshots/REVISION` of the Hugging Face cache, or one of the store's
own. What others put there may be hostile: reads are bounded, links are followed by the kernel (which ends a loop), and
nothing that is not a plain file is opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spark_tui.domain.models.checkpoint import CheckpointFacts, CheckpointProblem, licence_in
from spark_tui.domain.models.weights import (
    CONFIG,
    LENGTH_BYTES,
    SafetensorsHeader,
    header_length,
    parse_header,
    read_checkpoint,
)
from spark_tui.domain.reading import Missing, Reading
from spark_tui.domain.text import clean_line, truncate

MOST_FILES: Final = 4_000
_MOST_README_BYTES: Final = 256 * 1024
_REPO: Final = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_REVISION: Final = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_STORE_TARGET: Final = "/models"


class StoreCheckpoints:
    """Reads checkpoints of one store. Answers are kept until a file of theirs changes."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._kept: dict[Path, tuple[tuple[tuple[str, int, int], ...], Reading[CheckpointFacts]]] = {}

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """One checkpoint: by its Hub name, or by a path within the store (`/models/NAME` as containers see it).

        Missing says why: not in the store, without its config, unreadable. A checkpoint with some of its files is
        there, with `weights.complete` false and findings that name what lacks. Never raises.
        """
        try:
            folder = self._folder(model, revision)
            if isinstance(folder, Missing):
                return folder
            stamp = _stamp(folder)
            kept = self._kept.get(folder)
            if kept is None or kept[0] != stamp:
                licence = licence_in(_text(folder / "README.md", _MOST_README_BYTES) or "")
                kept = (stamp, read_checkpoint(FolderFiles(folder), str(folder), licence=licence))
                self._kept[folder] = kept
        except (OSError, RuntimeError) as error:  # pathlib tells of a loop of links by RuntimeError
            return Missing(f"the checkpoint cannot be read: {_words(error)}")
        return kept[1]

    def _folder(self, model: str, revision: str) -> Path | Missing:
        if "\0" in model:
            return Missing("the model's name is not one")
        if model.startswith(("/", "~")):
            return self._local(model)
        if _REPO.fullmatch(model) is None or ".." in model:
            return Missing("the model's name is not that of a repository")
        repo = self._store / "hub" / f"models--{model.replace('/', '--')}"
        own = self._store / model.rpartition("/")[2]
        if repo.is_dir():
            found = _snapshot(repo, revision)
            if not isinstance(found, Missing) or not (own / CONFIG).is_file():
                return found
        if (own / CONFIG).is_file():  # fetched with --local-dir
            return own
        return Missing("not in the model store")

    def _local(self, model: str) -> Path | Missing:
        inside = model.removeprefix(_STORE_TARGET).lstrip("/") if model.startswith(_STORE_TARGET + "/") else None
        root = self._store.resolve()
        folder = (root / inside if inside is not None else Path(model).expanduser()).resolve()
        if not folder.is_relative_to(root):
            return Missing("outside of the model store")
        return folder if folder.is_dir() else Missing("not in the model store")


def _snapshot(repo: Path, revision: str) -> Path | Missing:
    """The folder of a revision: a commit by itself, a branch by its ref. Without one, `main`, else the only one."""
    snapshots = repo / "snapshots"
    wanted = revision or "main"
    if _REVISION.fullmatch(wanted) is None or ".." in wanted:
        return Missing("the revision's name is not one")
    ref = _text(repo / "refs" / wanted)
    commit = ref.strip() if ref is not None and _REVISION.fullmatch(ref.strip()) else wanted
    folder = snapshots / commit
    if folder.is_dir() and ".." not in commit:
        return folder
    if not revision and snapshots.is_dir():
        found = [entry for entry in _entries(snapshots) if entry.is_dir()]
        if len(found) == 1:
            return found[0]
    return Missing("download not started" if not snapshots.is_dir() else f"revision {wanted} is not downloaded")


# --- one folder ---------------------------------------------------------------------------------------------


class FolderFiles:
    """The files of one folder, which others may have put there: a pipe or a device is refused, not waited for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> Iterator[str]:
        """See CheckpointFiles."""
        return (entry.name for entry in _entries(self._folder))

    def head(self, path: str, most: int) -> bytes | CheckpointProblem | None:
        """See CheckpointFiles."""
        try:
            with _opened(self._folder / path) as descriptor:
                return _read(descriptor, most)
        except FileNotFoundError:
            return None
        except OSError as error:
            return CheckpointProblem(path, f"cannot be read: {_words(error)}")

    def headers(self, paths: Sequence[str]) -> list[SafetensorsHeader | CheckpointProblem]:
        """See CheckpointFiles."""
        return [self._header(path) for path in paths]

    def _header(self, path: str) -> SafetensorsHeader | CheckpointProblem:
        shown = truncate(clean_line(path), 80)
        try:
            with _opened(self._folder / path) as descriptor:
                first = os.read(descriptor, LENGTH_BYTES)
                length = header_length(first, shown)
                if isinstance(length, CheckpointProblem):
                    return length
                size = os.fstat(descriptor).st_size
                return parse_header(first + _read(descriptor, length), file=shown, file_size=size)
        except FileNotFoundError:
            return CheckpointProblem(shown, "is not downloaded")
        except OSError as error:
            return CheckpointProblem(shown, f"cannot be read: {_words(error)}")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a plain file; its time of last use stays as it is where that is allowed."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # somebody else's file
        descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, most: int) -> bytes:
    """Up to so many bytes from here on."""
    parts: list[bytes] = []
    left = most
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _text(path: Path, most: int = 256) -> str | None:
    try:
        with _opened(path) as descriptor:
            return _read(descriptor, most).decode("utf-8", "replace")
    except OSError:
        return None


def _entries(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as found:
        for _, entry in zip(range(MOST_FILES), found, strict=False):
            yield folder / entry.name


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of its files, links followed: what tells that something has changed."""
    found = []
    for path in _entries(folder):
        try:
            status = path.stat()
        except OSError:
            found.append((path.name, -1, -1))
        else:
            found.append((path.name, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def _words(error: Exception) -> str:
    return clean_line(getattr(error, "strerror", None) or str(error)) or type(error).__name__
