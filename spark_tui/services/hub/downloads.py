"""The Downloader port: one detached process for each download, and records that anybody may read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.models.download import Download, DownloadPhase, DownloadRequest, Failure, Here, Limits
from spark_tui.domain.models.hub import RepoFile
from spark_tui.domain.models.hub_errors import DownloadFailed, shown
from spark_tui.domain.secret import Secret
from spark_tui.domain.text import clean_line
from spark_tui.services.executors import CallPool, command
from spark_tui.services.files import is_locked
from spark_tui.services.hub.records import (
    ID,
    PART,
    DownloadFolder,
    Order,
    Places,
    WorkerState,
    alive,
    born,
    download_of,
    io_error,
)
from spark_tui.services.hub.session import endpoint_of

WORKERS: Final = 2
START_SECONDS: Final = 20.0
END_SECONDS: Final = 2.0
"""A process that is told to end does so within one of its ticks; after this time it is killed."""
_MODULE: Final = "spark_tui.services.hub.worker"
_SECRET: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_OURS: Final = re.compile(r"[0-9a-f]{40,64}\.incomplete")
_SETTINGS: Final = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
}


class DetachedDownloads:
    """Downloads into one store, with their records in `folder`."""

    def __init__(self, folder: Path, store: Path, environ: Mapping[str, str], *, now: Callable[[], float] = time.time):
        self._folder = DownloadFolder(folder)
        self._store = store
        self._environ = environ
        self._now = now
        self._pool = CallPool("downloads", WORKERS)

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> Here:
        """What of these files is in the store already."""
        return await self._pool.run(self._here, request, commit, files)

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        """Begins a download, or goes on with it, and returns its id. One that runs is left alone."""
        return await self._pool.run(self._start, request, token)

    async def all(self) -> tuple[Download, ...]:
        """Every download that is known, oldest first: running, waiting, stopped, done."""
        return await self._pool.run(self._all)

    async def pause(self, id_: str) -> None:
        """Ends its process at once; what has arrived stays."""
        await self._pool.run(self._pause, id_)

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        """Ends its process at once and forgets the download; returns the bytes that this freed."""
        return await self._pool.run(self._cancel, id_, discard)

    async def limits(self) -> Limits:
        """What holds now."""
        return await self._pool.run(self._folder.limits)

    async def set_limits(self, limits: Limits) -> None:
        """Takes effect within a second, for what runs too."""
        await self._pool.run(self._set_limits, limits)

    async def close(self) -> None:
        """Ends this program's own threads; downloads go on."""
        self._pool.close()

    # --- on a thread: looking -----------------------------------------------------------------------------

    def _here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> Here:
        places = Places(self._store, request, commit)
        found = [(file, places.of(file)) for file in files]
        sizes = {file.path: place.here(file.size) for file, place in found}
        linked = all(place.link is None or place.link.exists() for _, place in found)
        return Here(sizes, linked and places.is_named())

    def _all(self) -> tuple[Download, ...]:
        try:
            ids = self._folder.ids()
        except OSError as error:
            raise io_error(error, self._folder.path) from error
        return tuple(sorted(map(self._one, ids), key=lambda each: (each.created, each.id)))

    def _one(self, id_: str) -> Download:
        order = self._folder.order(id_)
        if order is not None:
            return download_of(id_, order, self._folder.state(id_), self._folder.log(id_))
        failure = Failure(
            "download_failed",
            "What was asked for cannot be read any more.",
            f"Remove it: spark-tui models cancel {id_}",
        )
        return Download(id_, DownloadRequest(target=id_), DownloadPhase.FAILED, failure=failure)

    # --- on a thread: starting ----------------------------------------------------------------------------

    def _start(self, request: DownloadRequest, token: Secret | None) -> str:
        id_ = request.id
        state = self._folder.state(id_)
        if alive(state):
            return id_
        if state is not None and state.phase is DownloadPhase.DONE:
            self._folder.forget(id_)  # a branch may mean another commit by now
        before = self._folder.order(id_)
        created = before.created if before is not None else self._now()
        order = Order(request, str(self._store), endpoint_of(self._environ), created)
        try:
            self._folder.put_order(id_, order)
        except OSError as error:
            raise io_error(error, self._folder.path) from error
        self._spawn(id_, token)
        return id_

    def _spawn(self, id_: str, token: Secret | None) -> None:
        """The process leaves us as soon as it is set up; we wait for that, and for nothing else."""
        told = json.dumps({"token": token.reveal()} if token else {}).encode()
        environ = {name: value for name, value in self._environ.items() if name not in _SECRET} | _SETTINGS
        environ["HF_HOME"] = str(self._store)
        argv = [*command(_MODULE), str(self._folder.path), id_]
        try:
            done = subprocess.run(
                argv, input=told, capture_output=True, timeout=START_SECONDS, env=environ, cwd="/", check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._not_started(id_, str(error)) from error
        if done.returncode != 0:
            raise self._not_started(id_, done.stderr.decode("utf-8", "replace"))

    def _not_started(self, id_: str, why: str) -> SparkError:
        last = next((line for line in reversed(why.splitlines()) if line.strip()), "")
        return DownloadFailed(
            "The download's process could not be started.",
            f"Try again; {self._folder.log(id_)} may tell more.",
            detail=clean_line(last),
        )

    # --- on a thread: ending ------------------------------------------------------------------------------

    def _pause(self, id_: str) -> None:
        order = self._known(id_)
        if order is not None:
            self._folder.put_order(id_, replace(order, stopped=True))
        self._end(id_)

    def _cancel(self, id_: str, discard: bool) -> int:
        order = self._known(id_)
        self._end(id_)
        freed = self._discard(order, self._folder.state(id_)) if discard and order is not None else 0
        self._folder.forget(id_)
        return freed

    def _known(self, id_: str) -> Order | None:
        if not ID.fullmatch(id_) or id_ not in self._folder.ids():
            raise UsageError(f"There is no download {shown(id_)}.", "See which there are: spark-tui models downloads")
        return self._folder.order(id_)

    def _end(self, id_: str) -> None:
        """SIGTERM, and SIGKILL for a process that does not listen. By a descriptor: a pid may be given away again."""
        state = self._folder.state(id_)
        if state is None or not alive(state):
            return
        with _process(state) as descriptor:
            if descriptor is None:
                return
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            if not _gone(descriptor, END_SECONDS):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                _gone(descriptor, END_SECONDS)

    def _discard(self, order: Order, state: WorkerState | None) -> int:
        """Deletes the parts that this download was filling: of files in its list that are not whole."""
        if state is None:
            return 0
        places = Places(Path(order.store), order.request, state.commit)
        freed = 0
        for part in _parts(order, places):
            try:
                size = part.stat().st_blocks * 512
                part.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise io_error(error, part) from error
            freed += size
        return freed

    def _set_limits(self, limits: Limits) -> None:
        try:
            self._folder.put_limits(limits)
        except OSError as error:
            raise io_error(error, self._folder.path) from error


@contextlib.contextmanager
def _process(state: WorkerState) -> Iterator[int | None]:
    """A descriptor of the process, None when it is gone."""
    try:
        descriptor = os.pidfd_open(state.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if born(state.pid) == state.born else None
    finally:
        os.close(descriptor)


def _gone(process: int, seconds: float) -> bool:
    """Waits for the end of all its threads: the last one holds the locks of its files."""
    return bool(select.select([process], [], [], seconds)[0])


def _parts(order: Order, places: Places) -> list[Path]:
    """Parts of files as we write them. What another program is writing at this moment is not ours."""
    if order.request.single:
        return [places.single().part]
    if not places.in_cache:
        return list((places.folder / ".cache/huggingface/download").glob(f"*{PART}"))
    found = (places.folder / "blobs").glob(f"*{PART}")
    locks = places.hub / ".locks" / places.folder.name
    return [part for part in found if _OURS.fullmatch(part.name) and not is_locked(locks / f"{part.stem}.lock")]
