"""What is kept of a download on the disk: what was asked for, and how far its process has come."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.models.config import BadJson, Keys, read_object
from spark_tui.domain.models.download import (
    Download,
    DownloadPhase,
    DownloadRequest,
    Failure,
    FileProgress,
    FileState,
    Limits,
)
from spark_tui.domain.models.hub import RepoFile

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


PART: Final = ".incomplete"


@dataclass(frozen=True, slots=True)
class Place:
    """One file. `link` is the name in the cache's snapshot, None elsewhere. `lock` is what the library locks too."""

    whole: Path
    part: Path
    link: Path | None = None
    lock: Path | None = None

    def here(self, size: int | None) -> int:
        """Bytes that are on the disk. A file of another size than the Hub's is none of it."""
        for path in (self.link, self.whole):
            found = _size(path)
            if found is not None and (size is None or found == size):
                return found
        part = _size(self.part) or 0
        return part if size is None else min(part, size)

    def is_whole(self, size: int | None) -> bool:
        """The file is there, with its size."""
        return any((found := _size(path)) is not None and (size is None or found == size)
                   for path in (self.link, self.whole))  # fmt: skip


class Places:
    """Where the files of one request lie, once its commit is known."""

    def __init__(self, store: Path, request: DownloadRequest, commit: str) -> None:
        self._store = store
        self._request = request
        self._commit = commit
        self.hub = store / "hub"

    @property
    def in_cache(self) -> bool:
        """It goes into the Hub's cache."""
        return not self._request.target

    @property
    def folder(self) -> Path:
        """The repository's folder of the cache, or the request's own. Raises UsageError for one outside the store."""
        if self.in_cache:
            return self.hub / f"models--{self._request.repo.replace('/', '--')}"
        target = _inside(self._store, self._request.target)
        return target.parent if self._request.single else target

    def of(self, file: RepoFile) -> Place:
        """The places of one file of the repository."""
        if self.in_cache:
            blob = self.folder / "blobs" / file.digest
            return Place(
                blob,
                blob.with_name(file.digest + PART),
                self.folder / "snapshots" / self._commit / file.path,
                self.hub / ".locks" / self.folder.name / f"{file.digest}.lock",
            )
        if self._request.single:
            return self.single()
        # The library's own folder, and a name that says what is in it, however long the path is.
        name = f"{file.path.replace('/', '--')[-120:]}.{file.digest[:64]}{PART}"
        return Place(_inside(self.folder, file.path), self.folder / ".cache/huggingface/download" / name)

    def single(self) -> Place:
        """The place of the one file that the target itself names."""
        whole = _inside(self._store, self._request.target)
        return Place(whole, whole.with_name(f".{whole.name}{PART}"))

    # --- what engines and the library read --------------------------------------------------------------

    def write_metadata(self, file: RepoFile) -> None:
        """Tells the library what a folder's file is, by commit, ETag and time: it hashes others. Raises OSError."""
        path = self.folder / ".cache/huggingface/download" / f"{file.path}.metadata"
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(path, f"{self._commit}\n{file.digest}\n{time.time()}\n")

    def is_named(self) -> bool:
        """Whether the branch or tag that was asked for leads to this commit; always, outside of the cache."""
        if not self.in_cache or self._request.revision == self._commit:
            return True
        try:
            return _inside(self.folder / "refs", self._request.revision).read_text("utf-8").strip() == self._commit
        except (OSError, ValueError):
            return False

    def write_ref(self) -> None:
        """Says which commit a branch or tag means: at the end, so that an engine never finds half a model by its name.

        Raises OSError.
        """
        revision = self._request.revision
        if revision != self._commit:
            path = _inside(self.folder / "refs", revision)
            path.parent.mkdir(parents=True, exist_ok=True)
            _put(path, self._commit)


def _put(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)


def _inside(root: Path, path: str) -> Path:
    """`root/path`, which must stay below `root`: names come from recipes and repositories of strangers."""
    parts = Path(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise UsageError(f"{path!r} is not a place within the model store.", "Name a folder or file below it.")
    return root.joinpath(*parts)


def _size(path: Path | None) -> int | None:
    try:
        return path.stat().st_size if path is not None and path.is_file() else None
    except OSError:
        return None


def free_bytes(path: Path) -> int:
    """Free on the file system that holds `path`, or its nearest parent. Raises OSError."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def made(path: Path) -> Path:
    """A folder, made where it is absent. Raises the store's errors."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise io_error(error, path) from error
    return path


def io_error(error: OSError, path: Path) -> SparkError:
    """What a failed write means."""
    import errno

    from spark_tui.domain.models import hub_errors

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return hub_errors.disk_full(str(path))
    where = error.filename if isinstance(error.filename, str) else str(path)
    return hub_errors.not_writable(where, error.strerror or str(error))
