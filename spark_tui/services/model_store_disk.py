"""What the file system says of a store: entries of folders, the data behind names, small files. Nothing is followed
out of the store, nothing that is not a plain file is opened."""

# A store has tens of thousands of names, and Path objects take several times as long as strings.
# ruff: noqa: PTH116

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from spark_tui.domain.models.store import Payload, StoreFinding, Trouble
from spark_tui.domain.text import clean_line

MOST_ENTRIES: Final = 200_000
"""Of one model: a folder with more is not looked into any further, and the finding says so."""
MOST_DEPTH: Final = 24
BIG: Final = 1 << 20
"""Files from here on are looked at one by one when a kept result is checked: weights, which may be cut short."""
_BLOCK: Final = 512

Mark = tuple[str, int, int]
"""A path below the model's own, its ctime in nanoseconds, its size (-1 for a folder)."""


@dataclass(slots=True)
class Survey:
    """What is collected while one model is looked at. `marks` tell later whether anything has changed; `settled` is
    false when the result must not be kept.

    `root` is the store and `base` the model's own place, both without links; `now` in seconds since the epoch."""

    root: str
    base: str
    uid: int
    now: float = 0.0
    marks: list[Mark] = field(default_factory=list)
    findings: list[StoreFinding] = field(default_factory=list)
    foreign: int = 0
    owner: int = 0
    entries: int = 0
    settled: bool = True
    newest: int = 0

    def mark(self, path: str, status: os.stat_result) -> None:
        """Remembers a path as it is now."""
        size = -1 if stat.S_ISDIR(status.st_mode) else status.st_size
        self.marks.append((path[len(self.base) + 1 :], status.st_ctime_ns, size))
        self.newest = max(self.newest, status.st_ctime_ns)

    def owned(self, status: os.stat_result) -> None:
        """Counts what belongs to somebody else."""
        if status.st_uid != self.uid and self.uid != 0:
            self.foreign += 1
            self.owner = status.st_uid

    def finding(self, what: str, remedy: str = "", path: str = "") -> None:
        """Adds one, which is said once."""
        found = StoreFinding(what, remedy, path)
        if found not in self.findings:
            self.findings.append(found)

    def list(self, folder: str) -> list[os.DirEntry[str]]:
        """A folder's entries in name order, the folder remembered; none where there is no such folder, and a finding
        where it cannot be read. A link to a folder is not one."""
        try:
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode):
                return []
            self.mark(folder, status)
            self.owned(status)
            with os.scandir(folder) as found:
                entries = list(found)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.settled = False
            self.finding(f"{self.words(folder)} cannot be read: {reason(error)}", remedy_for(error, folder), folder)
            return []
        self.entries += len(entries)
        if self.entries > MOST_ENTRIES:
            self.settled = False
            self.finding(f"more than {MOST_ENTRIES:,} entries: not all of them are counted", path=self.base)
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def words(self, path: str) -> str:
        """A path for the screen: below the model's own."""
        return clean_line(path[len(self.base) + 1 :] or path)


def payload_of(status: os.stat_result, *, shared: bool = False) -> Payload:
    """The data that a stat is of."""
    return Payload(
        key=f"{status.st_dev}:{status.st_ino}",
        size=status.st_size,
        disk=status.st_blocks * _BLOCK,
        links=status.st_nlink,
        modified=status.st_mtime,
        used=status.st_atime,
        owner=status.st_uid,
        shared=shared,
    )


def walk(survey: Survey, folder: str, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder that is no folder itself, with its path relative to it. Links are not followed."""
    for entry in survey.list(folder):
        if entry.is_dir(follow_symlinks=False):
            if depth < MOST_DEPTH:
                yield from walk(survey, entry.path, f"{prefix}{entry.name}/", depth + 1)
            else:
                survey.finding("folders within folders beyond any sense are not looked into", path=entry.path)
        else:
            yield prefix + entry.name, entry


def data_behind(survey: Survey, path: str, *, is_link: bool) -> tuple[Payload | None, Trouble]:
    """The data that a name leads to, and what is wrong with it. A big file is remembered.

    Only a name that is still there can have lost its data: one that has gone since it was listed is absent.
    """
    try:
        status = os.stat(path) if is_link else os.lstat(path)
        if is_link and not inside(os.path.realpath(path), survey.root):
            return None, Trouble.OUTSIDE
    except OSError as error:
        trouble = trouble_of(error)
        return None, Trouble.ABSENT if trouble is Trouble.LOST and not os.path.lexists(path) else trouble
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            survey.finding(f"{survey.words(path)} is a link to a folder, which is not followed", path=path)
        else:
            survey.finding(f"{survey.words(path)} is no file", path=path)
        return None, Trouble.UNREADABLE
    survey.owned(status)
    if status.st_size >= BIG:
        survey.mark(path, status)
    return payload_of(status), Trouble.NONE


def trouble_of(error: OSError) -> Trouble:
    """What an error of `stat` says of a name."""
    if error.errno == errno.ELOOP:
        return Trouble.LOOP
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Trouble.LOST
    return Trouble.UNREADABLE


def unchanged(base: str, marks: list[Mark]) -> float | None:
    """When the big files among the marks were last read, if everything is as it was; None when something is not."""
    used = 0.0
    try:
        for path, changed, size in marks:
            status = os.stat(f"{base}/{path}" if path else base)
            if status.st_ctime_ns != changed or (size >= 0 and status.st_size != size):
                return None
            if size >= BIG and status.st_atime > used:
                used = status.st_atime
    except OSError:
        return None
    return used


def open_quietly(path: str) -> int:
    """A descriptor for reading that leaves the time of the last use as it is, where that is allowed: looking at a
    model is no use of it. Raises OSError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # somebody else's file
        return os.open(path, flags)


def read_small(path: str, most: int) -> bytes | None:
    """A plain file's beginning; None where there is none, or it is no file, or it may not be read."""
    try:
        descriptor = open_quietly(path)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        parts: list[bytes] = []
        left = most
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def inside(path: str, root: str) -> bool:
    """Whether a path without links is the root or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def reason(error: OSError) -> str:
    """Why, in the system's words."""
    return clean_line(error.strerror or str(error)).lower()


def remedy_for(error: OSError, path: str) -> str:
    """What to type where permission lacks."""
    return chown_command(path) if error.errno in (errno.EACCES, errno.EPERM) else ""


def chown_command(path: str) -> str:
    """The command that gives a folder back to the person."""
    if not path.isprintable():
        return "Its name holds control codes: rename it as root, then give it to yourself with chown."
    return f'sudo chown -R "$(id -u):$(id -g)" {shlex.quote(path)}'


@cache
def user_name(uid: int) -> str:
    """A user's name, or `user 1234` where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
