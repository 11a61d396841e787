"""The records of downloads on the disk, which any process may read: what was asked for, and how far it is.

A download has `ID.request.json` (written by whoever starts it), `ID.state.json` (written by its own process alone),
`ID.lock` (held by that process for as long as it lives) and `ID.log`. None of them holds a secret.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from spark_tui.domain.models.download import (
    Download,
    DownloadPhase,
    DownloadRequest,
    Failure,
    FileProgress,
    FileState,
    Limits,
)

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_MOST_BYTES: Final = 8 * 1024 * 1024
_REQUEST: Final = ".request.json"
_STATE: Final = ".state.json"
_LIMITS: Final = "limits.json"
_MOST_AT_ONCE: Final = 8

R = TypeVar("R")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """A download as it was asked for. `stopped`: a person paused it."""

    request: DownloadRequest
    store: str
    endpoint: str
    created: float
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a download's process reports. `pid` and `born` (clock ticks since boot) identify it for good."""

    phase: DownloadPhase = DownloadPhase.QUEUED
    pid: int = 0
    born: int = 0
    commit: str = ""
    files: tuple[FileProgress, ...] = ()
    waiting: str = ""
    speed: float | None = None
    limit: float | None = None
    failure: Failure | None = None
    ended: float | None = None
    left_out: int = 0


class DownloadFolder:
    """The records of all downloads of one user. What cannot be read counts as absent; writing raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lock(self, id_: str) -> Path:
        """Held by the download's process."""
        return self.path / f"{id_}.lock"

    def log(self, id_: str) -> Path:
        """What its process wrote to standard error."""
        return self.path / f"{id_}.log"

    def ids(self) -> list[str]:
        """Every known download, in no order. Raises OSError."""
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except FileNotFoundError:
            return []
        found = (name.removesuffix(_REQUEST) for name in names if name.endswith(_REQUEST))
        return [id_ for id_ in found if ID.fullmatch(id_)]

    def forget(self, id_: str) -> None:
        """Removes all records of a download."""
        for suffix in (_REQUEST, _STATE, ".log", ".lock"):
            with contextlib.suppress(FileNotFoundError):
                (self.path / f"{id_}{suffix}").unlink()

    def order(self, id_: str) -> Order | None:
        """What was asked for."""
        return self._read(f"{id_}{_REQUEST}", Order)

    def put_order(self, id_: str, order: Order) -> None:
        """Writes what was asked for."""
        self._write(f"{id_}{_REQUEST}", order)

    def state(self, id_: str) -> WorkerState | None:
        """None when its process has written nothing yet."""
        return self._read(f"{id_}{_STATE}", WorkerState)

    def put_state(self, id_: str, state: WorkerState) -> None:
        """Writes how far it is."""
        self._write(f"{id_}{_STATE}", state)

    def limits(self) -> Limits:
        """What all downloads share; the defaults where nothing was set."""
        found = self._read(_LIMITS, Limits) or Limits()
        rate = found.bytes_per_second
        return Limits(rate if rate and rate > 0 else None, max(1, min(_MOST_AT_ONCE, found.at_once)))

    def put_limits(self, limits: Limits) -> None:
        """Writes what all downloads share."""
        self._write(_LIMITS, limits)

    def download(self, id_: str) -> Download:
        """A download as a screen shows it. A state whose process is gone is what is left of it."""
        order, state = self.order(id_), self.state(id_) or WorkerState()
        if order is None:
            failure = Failure(
                "download_failed", "The record of this download is unreadable.", f"spark-tui models cancel {id_}"
            )
            return Download(id_, DownloadRequest(target=id_), DownloadPhase.FAILED, failure=failure)
        phase = state.phase
        if phase.active and not alive(state):
            phase = DownloadPhase.PAUSED if order.stopped else DownloadPhase.INTERRUPTED
            state = replace(state, waiting="", speed=None, limit=None)
        if not phase.active:
            resting = (
                each if each.state is FileState.DONE else replace(each, state=FileState.WAITING) for each in state.files
            )
            state = replace(state, files=tuple(resting))
        return Download(
            id=id_, request=order.request, phase=phase, files=state.files, commit=state.commit, waiting=state.waiting,
            speed=state.speed, limit=state.limit, failure=state.failure, created=order.created, ended=state.ended,
            left_out=state.left_out, log=str(self.log(id_)),
        )  # fmt: skip

    def _read(self, name: str, kind: type[R]) -> R | None:
        try:
            with (self.path / name).open("rb") as file:
                return msgspec.json.decode(file.read(_MOST_BYTES), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            _log.warning("%s is unreadable: %s", self.path / name, error)
            return None

    def _write(self, name: str, value: Any) -> None:
        """In one step. Not flushed to the disk: after a crash of the machine the files themselves are the record."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.path / f".{name}.{os.getpid()}.new"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(value))
        beside.replace(self.path / name)


def alive(state: WorkerState | None) -> bool:
    """Whether the process that wrote this still runs."""
    return state is not None and state.pid > 0 and born(state.pid) == state.born


def born(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None when there is none (a zombie is none). Pid and
    birth together are never used twice. Not psutil: its create_time moves with the wall clock."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    parts = text.rpartition(")")[2].split()
    if len(parts) < 20 or parts[0] in ("Z", "X"):
        return None
    return int(parts[19])
