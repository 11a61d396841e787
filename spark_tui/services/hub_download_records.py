"""What is kept of a download on the disk: what was asked for, and how far its process has come.

One folder holds for each download `ID.request.json` (written by whoever starts it), `ID.state.json` (written by its
process alone), `ID.lock` (held by that process for as long as it lives) and `ID.log`. Nothing secret is in any of them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.models.download import (
    Download,
    DownloadPhase,
    DownloadRequest,
    Failure,
    FileProgress,
    FileState,
    Limits,
)
from spark_tui.domain.models.json_keys import BadJson, Keys, read_object

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
MOST_BYTES: Final = 8 * 1024 * 1024
_REQUEST: Final = ".request.json"
_LIMITS: Final = "limits.json"
_AT_ONCE: Final = (1, 8)

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
    """What a download's process tells. `pid` and `born` (clock ticks since the machine's start) name it for good."""

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
    """The records of all downloads of one user."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- names --------------------------------------------------------------------------------------------

    def lock(self, id_: str) -> Path:
        """Held by the download's process."""
        return self.path / f"{id_}.lock"

    def log(self, id_: str) -> Path:
        """What its process wrote to standard error."""
        return self.path / f"{id_}.log"

    def ids(self) -> list[str]:
        """Every download that is known, in no order. Raises OSError."""
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except FileNotFoundError:
            return []
        found = (name.removesuffix(_REQUEST) for name in names if name.endswith(_REQUEST))
        return [id_ for id_ in found if ID.fullmatch(id_)]

    def forget(self, id_: str) -> None:
        """Removes all records of a download. The lock stays where a process still holds it."""
        for suffix in (_REQUEST, ".state.json", ".log", ".lock"):
            with contextlib.suppress(FileNotFoundError):
                (self.path / f"{id_}{suffix}").unlink()

    # --- what was asked for -------------------------------------------------------------------------------

    def order(self, id_: str) -> Order | None:
        """None when there is none, or none that can be understood."""
        found = self._read(f"{id_}{_REQUEST}")
        if found is None:
            return None
        keys = Keys(found, [])
        inner = keys.inner("request")
        created = keys.number("created")
        if inner is None or created is None:
            return None
        store, endpoint = found.get("store"), found.get("endpoint")
        if not isinstance(store, str) or not isinstance(endpoint, str):
            return None
        return Order(_request(found["request"]), store, endpoint, created, keys.flag("stopped") or False)

    def put_order(self, id_: str, order: Order) -> None:
        """Raises OSError."""
        self._write(f"{id_}{_REQUEST}", asdict(order))

    # --- how far it is ------------------------------------------------------------------------------------

    def state(self, id_: str) -> WorkerState | None:
        """None when its process has written nothing yet."""
        found = self._read(f"{id_}.state.json")
        return None if found is None else _state(found)

    def put_state(self, id_: str, state: WorkerState) -> None:
        """Raises OSError."""
        self._write(f"{id_}.state.json", asdict(state))

    # --- limits -------------------------------------------------------------------------------------------

    def limits(self) -> Limits:
        """What all downloads share; the defaults where nothing was set."""
        keys = Keys(self._read(_LIMITS) or {}, [])
        rate = keys.number("bytes_per_second")
        low, high = _AT_ONCE
        return Limits(rate if rate and rate > 0 else None, max(low, min(high, keys.integer("at_once") or 2)))

    def put_limits(self, limits: Limits) -> None:
        """Raises OSError."""
        self._write(_LIMITS, asdict(limits))

    # --- files --------------------------------------------------------------------------------------------

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            with (self.path / name).open("rb") as file:
                return read_object(file.read(MOST_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, BadJson) as error:
            _log.warning("%s cannot be read: %s", self.path / name, error)
            return None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        """In one step. Not flushed to the disk: after a crash of the machine the files themselves tell what is here."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.path / f".{name}.{os.getpid()}.new"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(value).encode())
        beside.replace(self.path / name)


def _request(found: Any) -> DownloadRequest:
    """What has the wrong shape is left at its default."""
    if not isinstance(found, dict):
        return DownloadRequest()
    given: dict[str, Any] = {}
    defaults = DownloadRequest()
    for each in fields(DownloadRequest):
        value, default = found.get(each.name), getattr(defaults, each.name)
        if isinstance(default, tuple):
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                given[each.name] = tuple(value)
        elif type(value) is type(default):
            given[each.name] = value
    return DownloadRequest(**given)


def _state(found: Mapping[str, Any]) -> WorkerState:
    keys = Keys(found, [])
    entries = found.get("files")
    files = [_file(entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    failure = keys.inner("failure")
    return WorkerState(
        phase=_one_of(DownloadPhase, found.get("phase"), DownloadPhase.INTERRUPTED),
        pid=keys.integer("pid") or 0,
        born=keys.integer("born") or 0,
        commit=keys.text("commit"),
        files=tuple(files),
        waiting=keys.text("waiting"),
        speed=keys.number("speed"),
        limit=keys.number("limit"),
        failure=None if failure is None else _failure(found["failure"]),
        ended=keys.number("ended"),
        left_out=keys.integer("left_out") or 0,
    )


def _file(entry: Mapping[str, Any]) -> FileProgress:
    keys = Keys(entry, [])
    path = entry.get("path")
    state = _one_of(FileState, entry.get("state"), FileState.WAITING)
    return FileProgress(path if isinstance(path, str) else "?", keys.integer("size"), keys.integer("done") or 0, state)


def _failure(entry: Mapping[str, Any]) -> Failure:
    told = [entry.get(name) for name in ("id", "summary", "remedy", "detail")]
    return Failure(*(text if isinstance(text, str) else "" for text in told))


def _one_of(kind: Any, value: Any, default: Any) -> Any:
    return kind(value) if value in tuple(kind) else default


# --- the process ----------------------------------------------------------------------------------------------


def born(pid: int) -> int | None:
    """When a process was started, in clock ticks since the machine's start; None when there is none (a zombie is
    none). Pid and birth together are never used twice."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    parts = text.rpartition(")")[2].split()
    if len(parts) < 20 or parts[0] in ("Z", "X"):
        return None
    return int(parts[19])


def alive(state: WorkerState | None) -> bool:
    """Whether the process that wrote this still runs."""
    return state is not None and state.pid > 0 and born(state.pid) == state.born


def _rested(file: FileProgress) -> FileProgress:
    """Nobody works on it."""
    return file if file.state is FileState.DONE else replace(file, state=FileState.WAITING)


def download_of(id_: str, order: Order, state: WorkerState | None, log: Path) -> Download:
    """A download as a screen shows it: a state whose process is gone is what is left of it."""
    state = state or WorkerState()
    living = alive(state)
    phase = state.phase
    if phase.active and not living:
        phase = DownloadPhase.PAUSED if order.stopped else DownloadPhase.INTERRUPTED
        state = replace(state, files=tuple(map(_rested, state.files)), waiting="", speed=None, limit=None)
    elif not phase.active:
        state = replace(state, files=tuple(map(_rested, state.files)))
    return Download(
        id=id_, request=order.request, phase=phase, files=state.files, commit=state.commit, waiting=state.waiting,
        speed=state.speed, limit=state.limit, failure=state.failure, created=order.created, ended=state.ended,
        left_out=state.left_out, log=str(log),
    )  # fmt: skip
