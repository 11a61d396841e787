"""The Downloader port: one detached process for each download, and records that any process may read."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.models.download import (
    Download,
    DownloadPhase,
    DownloadRequest,
    Limits,
    LocalFiles,
)
from spark_tui.domain.models.hub import RepoFile
from spark_tui.domain.models.hub_errors import DownloadFailed, shown
from spark_tui.domain.secret import Secret
from spark_tui.domain.text import clean_line
from spark_tui.services.executors import CallPool, command
from spark_tui.services.files import is_locked
from spark_tui.services.hub.places import PART, Places, io_error
from spark_tui.services.hub.records import ID, DownloadFolder, Order, WorkerState, alive, born
from spark_tui.services.hub.session import endpoint_of

START_SECONDS: Final = 20.0
END_SECONDS: Final = 2.0
"""A process that gets SIGTERM ends within one of its ticks; after this time it is killed."""
_MODULE: Final = "spark_tui.services.hub.worker"
_SECRET: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_PART_NAME: Final = re.compile(r"[0-9a-f]{40,64}\.incomplete")
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
        self._pool = CallPool("downloads", 2)

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> LocalFiles:
        """See the port."""

        def look() -> LocalFiles:
            places = Places(self._store, request, commit)
            found = [(file, places.of(file)) for file in files]
            linked = all(place.link is None or place.link.exists() for _, place in found)
            return LocalFiles({file.path: place.here(file.size) for file, place in found}, linked and places.is_named())

        return await self._pool.run(look)

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        """See the port."""
        return await self._pool.run(self._start, request, token)

    async def all(self) -> tuple[Download, ...]:
        """See the port."""

        def look() -> tuple[Download, ...]:
            try:
                found = [self._folder.download(id_) for id_ in self._folder.ids()]
            except OSError as error:
                raise io_error(error, self._folder.path) from error
            return tuple(sorted(found, key=lambda each: (each.created, each.id)))

        return await self._pool.run(look)

    async def pause(self, id_: str) -> None:
        """See the port."""

        def pause() -> None:
            order = self._known(id_)
            if order is not None:
                self._folder.put_order(id_, replace(order, stopped=True))
            self._end(id_)

        await self._pool.run(pause)

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        """See the port."""

        def cancel() -> int:
            order = self._known(id_)
            self._end(id_)
            freed = self._discard(order, self._folder.state(id_)) if discard and order is not None else 0
            self._folder.forget(id_)
            return freed

        return await self._pool.run(cancel)

    async def limits(self) -> Limits:
        """See the port."""
        return await self._pool.run(self._folder.limits)

    async def set_limits(self, limits: Limits) -> None:
        """See the port."""

        def put() -> None:
            try:
                self._folder.put_limits(limits)
            except OSError as error:
                raise io_error(error, self._folder.path) from error

        await self._pool.run(put)

    async def close(self) -> None:
        """See the port."""
        self._pool.close()

    # --- on a thread --------------------------------------------------------------------------------------

    def _start(self, request: DownloadRequest, token: Secret | None) -> str:
        id_ = request.id
        state, before = self._folder.state(id_), self._folder.order(id_)
        if alive(state):
            return id_
        if state is not None and state.phase is DownloadPhase.DONE:
            self._folder.forget(id_)  # a branch may mean another commit by now
        created = before.created if before is not None else self._now()
        try:
            self._folder.put_order(id_, Order(request, str(self._store), endpoint_of(self._environ), created))
        except OSError as error:
            raise io_error(error, self._folder.path) from error
        environ = {name: value for name, value in self._environ.items() if name not in _SECRET} | _SETTINGS
        environ["HF_HOME"] = str(self._store)
        try:
            # It returns as soon as the worker has detached itself and is set up.
            done = subprocess.run(
                [*command(_MODULE), str(self._folder.path), id_],
                input=json.dumps({"token": token.reveal()} if token else {}).encode(),
                capture_output=True, timeout=START_SECONDS, env=environ, cwd="/", check=False,
            )  # fmt: skip
            why = "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace") or "no message"
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        if why:
            last = next((line for line in reversed(why.splitlines()) if line.strip()), "")
            raise DownloadFailed(
                "The download process could not be started.",
                f"Try again. Details: {self._folder.log(id_)}",
                detail=clean_line(last),
            )
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
        if order.request.single:
            parts = [places.single().part]
        elif not places.in_cache:
            parts = list((places.folder / ".cache/huggingface/download").glob(f"*{PART}"))
        else:
            locks = places.hub / ".locks" / places.folder.name
            found = (places.folder / "blobs").glob(f"*{PART}")
            parts = [
                each for each in found if _PART_NAME.fullmatch(each.name) and not is_locked(locks / f"{each.stem}.lock")
            ]
        freed = 0
        for part in parts:
            try:
                size = part.stat().st_blocks * 512
                part.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise io_error(error, part) from error
            freed += size
        return freed
