"""The Downloader port: one detached process for each download, and records that any process may read.

A download has `ID.request.json` (written by the program that starts it), `ID.state.json` (written by its own process
alone), `ID.lock` (held by that process for as long as it lives) and `ID.log`. None of them holds a secret.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from spark_tui.base.errors import UsageError
from spark_tui.base.executors import CallPool, born, command
from spark_tui.base.files import is_locked, read_plain
from spark_tui.base.remote import last_line
from spark_tui.base.secret import Secret
from spark_tui.base.untrusted import decode
from spark_tui.catalog.models.adapter.hub_client import endpoint_of
from spark_tui.catalog.models.adapter.transfer import PART, Places, io_error
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadFailure,
    DownloadPhase,
    DownloadRequest,
    DownloadState,
    FileState,
    Limits,
    LocalFiles,
)
from spark_tui.catalog.models.model.hub import DownloadFailed, RepoFile, shown

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_MOST_BYTES: Final = 8 * 1024 * 1024
_REQUEST: Final = ".request.json"
_STATE: Final = ".state.json"
_LIMITS: Final = "limits.json"
_MOST_AT_ONCE: Final = 8
START_SECONDS: Final = 20.0
END_SECONDS: Final = 2.0
"""A process that gets SIGTERM ends within one of its ticks; after this time it is killed."""
_MODULE: Final = "spark_tui.catalog.models.adapter.worker"
_SECRET: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_PART_NAME: Final = re.compile(r"[0-9a-f]{40,64}\.incomplete")
_SETTINGS: Final = dict.fromkeys(
    (
        "HF_HUB_DISABLE_PROGRESS_BARS",
        "HF_HUB_DISABLE_TELEMETRY",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
        "HF_HUB_DISABLE_SYMLINKS_WARNING",
    ),
    "1",
)

R = TypeVar("R")
_log = logging.getLogger(__name__)


class Order(Struct, frozen=True):
    """A download as it was asked for. `stopped`: a person paused it."""

    request: DownloadRequest
    store: str
    endpoint: str
    created: float
    stopped: bool = False


class WorkerState(DownloadState, frozen=True, kw_only=True):
    """What a download's process reports. `pid` and `born` (clock ticks since boot) identify it for good."""

    pid: int = 0
    born: int = 0


class DownloadFolder:
    """The records of all downloads of one user. What cannot be read counts as absent; writing raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lock(self, id_: str) -> Path:
        return self.path / f"{id_}.lock"

    def log(self, id_: str) -> Path:
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
        for suffix in (_REQUEST, _STATE, ".log", ".lock"):
            with contextlib.suppress(FileNotFoundError):
                (self.path / f"{id_}{suffix}").unlink()

    def order(self, id_: str) -> Order | None:
        return self._read(f"{id_}{_REQUEST}", Order)

    def put_order(self, id_: str, order: Order) -> None:
        self._write(f"{id_}{_REQUEST}", order)

    def state(self, id_: str) -> WorkerState | None:
        """None when its process has written nothing yet."""
        return self._read(f"{id_}{_STATE}", WorkerState)

    def put_state(self, id_: str, state: WorkerState) -> None:
        self._write(f"{id_}{_STATE}", state)

    def limits(self) -> Limits:
        """What all downloads share; the defaults where nothing was set."""
        found = self._read(_LIMITS, Limits) or Limits()
        rate = found.bytes_per_second
        return Limits(rate if rate and rate > 0 else None, max(1, min(_MOST_AT_ONCE, found.at_once)))

    def put_limits(self, limits: Limits) -> None:
        self._write(_LIMITS, limits)

    def download(self, id_: str) -> Download:
        """A download as a screen shows it. A state whose process is gone counts as paused or
        interrupted."""
        order, state = self.order(id_), self.state(id_) or WorkerState()
        if order is None:
            words, remedy = "The record of this download is unreadable.", f"spark-tui models cancel {id_}"
            failure = DownloadFailure("download_failed", words, remedy)
            return Download(DownloadPhase.FAILED, failure=failure, id=id_, request=DownloadRequest(target=id_))
        # One look at the process for each state that was read: it may write its last one, and end, between two.
        while (gone := state.phase.active and not alive(state)) and (latest := self.state(id_) or state) != state:
            state = latest
        phase = state.phase
        if gone:
            phase = DownloadPhase.PAUSED if order.stopped else DownloadPhase.INTERRUPTED
            state = replace(state, waiting="", speed=None, limit=None)
        if not phase.active:
            idle = FileState.WAITING
            files = (each if each.state is FileState.DONE else replace(each, state=idle) for each in state.files)
            state = replace(state, files=tuple(files))
        known = asdict(replace(state, phase=phase))
        del known["pid"], known["born"]
        return Download(**known, id=id_, request=order.request, created=order.created, log=str(self.log(id_)))

    def _read(self, name: str, kind: type[R]) -> R | None:
        try:
            return decode(read_plain(self.path / name, _MOST_BYTES), kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
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


class DetachedDownloads:
    """Downloads into one store, with their records in `folder`."""

    def __init__(self, folder: Path, store: Path, environ: Mapping[str, str], *, now: Callable[[], float] = time.time):
        self._folder = DownloadFolder(folder)
        self._store = store
        self._environ = environ
        self._now = now
        self._pool = CallPool("downloads", 2)

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> LocalFiles:
        def look() -> LocalFiles:
            places = Places(self._store, request, commit)
            found = [(file, places.of(file)) for file in files]
            linked = all(place.link is None or place.link.exists() for _, place in found)
            return LocalFiles({file.path: place.here(file.size) for file, place in found}, linked and places.is_named())

        return await self._pool.run(look)

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        return await self._pool.run(self._start, request, token)

    async def all(self) -> tuple[Download, ...]:
        def look() -> tuple[Download, ...]:
            with self._store_errors():
                found = [self._folder.download(id_) for id_ in self._folder.ids()]
            return tuple(sorted(found, key=lambda each: (each.created, each.id)))

        return await self._pool.run(look)

    async def pause(self, id_: str) -> None:
        def pause() -> None:
            order = self._known(id_)
            if order is not None:
                self._folder.put_order(id_, replace(order, stopped=True))
            self._end(id_)

        await self._pool.run(pause)

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        def cancel() -> int:
            order = self._known(id_)
            self._end(id_)
            freed = self._discard(order, self._folder.state(id_)) if discard and order is not None else 0
            self._folder.forget(id_)
            return freed

        return await self._pool.run(cancel)

    async def limits(self) -> Limits:
        return await self._pool.run(self._folder.limits)

    async def set_limits(self, limits: Limits) -> None:
        def put() -> None:
            with self._store_errors():
                self._folder.put_limits(limits)

        await self._pool.run(put)

    async def close(self) -> None:
        self._pool.close()

    # --- on a thread --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Raises the store's errors in place of OSError."""
        try:
            yield
        except OSError as error:
            raise io_error(error, self._folder.path) from error

    def _start(self, request: DownloadRequest, token: Secret | None) -> str:
        id_ = request.id
        state, before = self._folder.state(id_), self._folder.order(id_)
        if state is not None and state.phase.active and alive(state):
            return id_
        if state is not None and state.phase is DownloadPhase.DONE:
            self._folder.forget(id_)  # a branch may mean another commit by now
        created = before.created if before is not None else self._now()
        with self._store_errors():
            self._folder.put_order(id_, Order(request, str(self._store), endpoint_of(self._environ), created))
        environ = {name: value for name, value in self._environ.items() if name not in _SECRET} | _SETTINGS
        environ["HF_HOME"] = str(self._store)
        try:
            # It returns as soon as the worker has detached itself and is set up.
            done = subprocess.run(
                [*command(_MODULE), str(self._folder.path), id_],
                input=json.dumps({"token": token.reveal()} if token else {}).encode(),
                capture_output=True,
                timeout=START_SECONDS,
                env=environ,
                cwd="/",
                check=False,
            )
            why = "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace") or "no message"
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        if why:
            remedy = f"Try again. Details: {self._folder.log(id_)}"
            raise DownloadFailed("The download process could not be started.", remedy, detail=last_line(why))
        return id_

    def _known(self, id_: str) -> Order | None:
        if not ID.fullmatch(id_) or id_ not in self._folder.ids():
            raise UsageError(f"No download named {shown(id_)}.", "List them: spark-tui models downloads")
        return self._folder.order(id_)

    def _end(self, id_: str) -> None:
        """SIGTERM, then SIGKILL, through a descriptor: a pid may be used again. Waits until all threads have ended:
        the last one holds the locks of the files."""
        state = self._folder.state(id_)
        if state is None or not alive(state):
            return
        try:
            process = os.pidfd_open(state.pid)
        except ProcessLookupError:
            return
        try:
            if born(state.pid) != state.born:
                return
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(process, number)
                if select.select([process], [], [], END_SECONDS)[0]:
                    return
        finally:
            os.close(process)

    def _discard(self, order: Order, state: WorkerState | None) -> int:
        """Deletes the unfinished parts of this download, but none that another program is writing; returns bytes."""
        if state is None:
            return 0
        places = Places(Path(order.store), order.request, state.commit)
        if places.single is not None:
            parts = [places.single.part]
        elif not places.in_cache:
            parts = list((places.folder / ".cache/huggingface/download").glob(f"*{PART}"))
        else:
            locks = places.hub / ".locks" / places.folder.name
            found = (places.folder / "blobs").glob(f"*{PART}")
            parts = [
                each for each in found if _PART_NAME.fullmatch(each.name) and not is_locked(locks / f"{each.stem}.lock")
            ]
        with self._store_errors():
            freed = sum(part.stat().st_blocks * 512 for part in parts)
            for part in parts:
                part.unlink()
        return freed
