"""The process of one download: `python -m spark_tui.catalog.models.adapter.worker FOLDER ID`.

It detaches itself at once and outlives the program that started it. The token comes on standard input and nowhere
else; progress goes to the state file, unexpected errors to the log. SIGTERM ends it at once: what has arrived is on
the disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final, TypeVar

import filelock
from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.executors import born
from spark_tui.base.secret import Secret
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.models.adapter.downloads import DownloadFolder, Order, WorkerState, alive
from spark_tui.catalog.models.adapter.hub_client import (
    CutOff,
    HubCall,
    commit_of,
    describe,
    files_of,
    limit_time,
    prepare,
    token_of,
    translate,
)
from spark_tui.catalog.models.adapter.transfer import (
    MOST_CUT_OFF,
    FileFetch,
    Places,
    Stopped,
    TransferState,
    free_bytes,
    io_error,
    made,
)
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import DownloadFailure, DownloadPhase, FileProgress, FileState, SpeedMeter
from spark_tui.catalog.models.model.hub import RepoFile, select

COMM: Final = "spark-tui-pull"
"""Its name in the process list. Rules for the out-of-memory killer on these machines look for `python` and `vllm`."""
TICK_SECONDS: Final = 0.25
_OOM_SCORE: Final = 600
"""It loses nothing when it is killed: rather this than an engine."""
_NICE: Final = 5
_LOCK_SECONDS: Final = 1.0
_LOCK_TRIES: Final = 15
"""An older process of the same download may need a moment to end after it has reported its end."""
_MOST_TOKEN: Final = 65_536
STREAMS: Final = 4
"""Files at once: enough to fill ten gigabits, few enough for a part of each to be kept."""
_HTTP_BYTES: Final = 50 * 1000**3
"""The Hub hands out larger files by Xet alone (huggingface_hub 2.4: MAX_HTTP_DOWNLOAD_SIZE)."""
_NETWORK_SECONDS: Final = (2.0, 60.0)

R = TypeVar("R")
_log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Starts the worker and returns at once. 0: it runs, or another one does; 1: it could not be started."""
    folder, id_ = DownloadFolder(Path(argv[1])), argv[2]
    given = load_json(sys.stdin.buffer.read(_MOST_TOKEN) or b"{}")
    token = Secret(given["token"]) if given.get("token") else None
    ready, write = os.pipe()
    if os.fork():
        os.close(write)
        return 0 if os.read(ready, 1) == b"+" else 1
    os.close(ready)
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(folder.log(id_), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        for source, target in ((null, 0), (null, 1), (log, 2)):
            os.dup2(source, target)
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
        for path, text in (("/proc/self/comm", COMM), ("/proc/self/oom_score_adj", str(_OOM_SCORE))):
            with contextlib.suppress(OSError):  # another kernel, or a sandbox, may refuse them
                Path(path).write_text(text, "ascii")
        with contextlib.suppress(OSError):
            os.nice(_NICE)
        lock = filelock.UnixFileLock(folder.lock(id_), mode=0o600)
        order = folder.order(id_)
        if not acquired(lock, folder, id_):
            os.write(write, b"+")
        elif order is not None:
            worker = Worker(folder, id_, order, token)
            worker.begin()
            os.write(write, b"+")
            os.close(write)
            code = worker.run()
    except BaseException:  # noqa: BLE001 - the process ends with it
        _log.exception("the download ended unexpectedly")
    os._exit(code)  # a thread that hangs in a read would hold the process


def acquired(lock: filelock.BaseFileLock, folder: DownloadFolder, id_: str) -> bool:
    """True with the lock; False while another process works on this download. Raises filelock.Timeout after 15 s of
    neither."""
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=_LOCK_SECONDS)
            return True
        state = folder.state(id_)
        if state is not None and state.phase.active and alive(state):
            return False
    raise filelock.Timeout(lock.lock_file)


class Worker:
    """Waits for its turn, runs the download on threads, and reports four times a second."""

    def __init__(self, folder: DownloadFolder, id_: str, order: Order, token: Secret | None) -> None:
        self._folder = folder
        self._id = id_
        self._order = order
        before, own = folder.state(id_) or WorkerState(), os.getpid()
        self._state = WorkerState(commit=before.commit, files=before.files, pid=own, born=born(own) or 0)
        self._job = DownloadJob(order, token, before.commit)
        self._stop = threading.Event()
        self._meter = SpeedMeter()
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Takes signals and writes the first state."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._put()

    def run(self) -> int:
        """Until the download has ended, one way or another."""
        while not self._is_my_turn():
            if self._stop.wait(TICK_SECONDS * 2):
                return self._end(DownloadPhase.PAUSED)

        def work() -> None:
            try:
                self._job.run()
            except BaseException as error:  # noqa: BLE001 - reported below
                self._error = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive() and not self._stop.is_set():
            self._report()
            thread.join(TICK_SECONDS)
        self._report()
        if self._stop.is_set():
            self._job.shared.stop.set()
            return self._end(DownloadPhase.PAUSED)
        error = self._error
        if error is None:
            return self._end(DownloadPhase.DONE)
        if isinstance(error, SparkError):
            return self._end(DownloadPhase.FAILED, DownloadFailure(error.id, error.summary, error.remedy, error.detail))
        _log.error("the download failed", exc_info=error)
        remedy = f"Try again. Details: {self._folder.log(self._id)}"
        failure = DownloadFailure("download_failed", "The download failed unexpectedly.", remedy, describe(error))
        return self._end(DownloadPhase.FAILED, failure)

    def _end(self, phase: DownloadPhase, failure: DownloadFailure | None = None) -> int:
        ended = time.time()
        self._state = replace(
            self._state, phase=phase, failure=failure, waiting="", speed=None, limit=None, ended=ended
        )
        self._put()
        return 0

    def _report(self) -> None:
        job, now = self._job, time.monotonic()
        files, waits = job.shared.files(), job.shared.waiting()
        self._meter.feed(now, sum(file.done for file in files))
        files = files or self._state.files
        all_wait = len(waits) >= max(1, sum(file.state is FileState.RUNNING for file in files))
        phase = DownloadPhase.WAITING if waits and all_wait else job.phase
        rate = self._folder.limits().bytes_per_second
        if rate:  # shared by all downloads that run
            busy = (DownloadPhase.DOWNLOADING, DownloadPhase.PREPARING)
            rate /= 1 + sum(each in busy for *_, each in self._others())
        self._state = replace(
            self._state,
            phase=phase,
            commit=job.commit,
            files=files,
            waiting=waits[0] if waits else "",
            speed=self._meter.speed(now) if phase is not DownloadPhase.FINISHING else None,
            left_out=job.left_out,
            limit=rate or None,
        )
        job.shared.limit(self._state.limit)
        self._put()

    def _put(self) -> None:
        try:
            self._folder.put_state(self._id, self._state)
        except OSError as error:  # a full disk: the download itself meets it too, and reports it
            _log.warning("the state cannot be written: %s", error)

    def _others(self) -> list[tuple[float, str, DownloadPhase]]:
        """Other downloads of this user that are alive, as (created, id, phase)."""
        found = []
        for id_ in self._folder.ids():
            order, state = self._folder.order(id_), self._folder.state(id_)
            if id_ != self._id and order is not None and state is not None and state.phase.active and alive(state):
                found.append((order.created, id_, state.phase))
        return found

    def _is_my_turn(self) -> bool:
        """When fewer run than may, counting those that wait since before this one."""
        me = (self._order.created, self._id)
        ahead = [each for each in self._others() if each[2] is not DownloadPhase.QUEUED or each[:2] < me]
        return len(ahead) < self._folder.limits().at_once


class DownloadJob:
    """One download from its first request to its last link. Blocks; `shared.stop` ends it."""

    def __init__(self, order: Order, token: Secret | None, commit: str = "") -> None:
        self._request = order.request
        self._endpoint = order.endpoint
        self._store = Path(order.store)
        self._token = token_of(token)
        self.shared = TransferState(self._store, token)
        self.phase = DownloadPhase.PREPARING
        self.commit = commit
        self.left_out = 0

    def run(self) -> None:
        """To the end. Raises Stopped, or a SparkError."""
        prepare("")
        request = self._request
        self._places = Places(self._store, request, self.commit)
        if request.url and self._places.single is not None:  # a file that is not on the Hub
            name = request.target
            self.shared.begin([FileProgress(name, None)])
            self.phase = DownloadPhase.DOWNLOADING
            file, asked = RepoFile(name, None), self._call(name)
            FileFetch(self.shared, file, self._places.single, request.url, asked, hub=False).run()
            return
        files = self._files_to_fetch()
        self.phase = DownloadPhase.DOWNLOADING
        self._fetch_all(files)
        self.phase = DownloadPhase.FINISHING
        if request.single:
            return
        try:
            # The library itself finds the model whole, without a request; then its name leads to it.
            literal = ["".join(f"[{char}]" if char in "*?[" else char for char in file.path) for file in files]
            self._snapshot(literal, local=True)
            if self._places.in_cache:
                self._places.write_ref()
        except OSError as error:
            raise io_error(error, self._places.folder) from error

    def _files_to_fetch(self) -> tuple[RepoFile, ...]:
        """The files of the commit that is meant: a resumed download stays with the one that it began with, unless that
        was removed from the Hub meanwhile."""
        request, begun, entries = self._request, bool(self.commit), None
        if self.commit:
            try:
                self.commit, entries = self._patiently(lambda: self._ask(self.commit))
            except hub_errors.HubRevisionMissing:
                self.commit = ""
        if entries is None:
            self.commit, entries = self._patiently(lambda: self._ask(request.revision))
        places = self._places = Places(self._store, request, self.commit)
        found = select(entries, only=request.files, everything=request.everything, load_format=request.load_format)
        if (problem := hub_errors.selection_problem(request.repo, found)) is not None:
            raise problem
        self.left_out = len(found.left_out)
        try:
            if request.again and not begun:  # they are damaged; an earlier run has deleted them already
                for place in map(places.of, found.files):
                    for path in filter(None, (place.link, place.whole, place.part)):
                        path.unlink(missing_ok=True)
            here = {file.path: places.of(file).here(file.size) for file in found.files}
            self.shared.begin(FileProgress(file.path, file.size, here[file.path]) for file in found.files)
            left = sum(max(0, (file.size or 0) - here[file.path]) for file in found.files)
            free = free_bytes(self._store)
        except OSError as error:
            raise io_error(error, self._store) from error
        if left and left + hub_errors.KEEP_FREE > free:
            raise hub_errors.no_room(str(self._store), left, free)
        if not request.single:
            # The library writes its listing of the commit, with sizes and hashes for when the Hub is away: it is
            # asked for no file that exists.
            made(places.folder)
            self._patiently(lambda: self._snapshot(["\0"]))
        return found.files

    def _ask(self, revision: str) -> tuple[str, tuple[RepoFile, ...]]:
        """The commit, and its files. Both become names of files here: what is no digest is refused."""
        from huggingface_hub import HfApi

        limit_time()  # files are fetched on threads of their own, which have no such limit
        api = HfApi(endpoint=self._endpoint, token=self._token, library_name="spark-tui")
        commit = commit_of(api.model_info(self._request.repo, revision=revision))
        files = files_of(api.list_repo_tree(self._request.repo, recursive=True, revision=commit or revision))
        if not commit or not all(file.digest for file in files):
            raise hub_errors.strange_answer(self._endpoint, "a commit or a file without a digest")
        return commit, files

    def _fetch_all(self, files: Sequence[RepoFile]) -> None:
        """Some at once, small ones first: with its config a model can be understood before its weights are here."""
        pool = ThreadPoolExecutor(STREAMS)
        small_first = sorted(files, key=lambda file: ((file.size or 0) > 1 << 20, file.path))
        ended, _ = wait([pool.submit(self._fetch, file) for file in small_first], return_when=FIRST_EXCEPTION)
        pool.shutdown(wait=False, cancel_futures=True)  # what still arrives is not waited for
        failures = [error for each in ended if (error := each.exception()) is not None]
        if failures:  # the error rather than the stop that it caused
            raise next((error for error in failures if not isinstance(error, Stopped)), failures[0])

    def _fetch(self, file: RepoFile) -> None:
        """One file, and the name by which the library finds it."""
        from huggingface_hub import constants, hf_hub_download, hf_hub_url

        place, request = self._places.of(file), self._request
        whole = place.whole_size(file.size) is not None

        def by_library() -> Any:
            return hf_hub_download(
                request.repo,
                file.path,
                revision=self.commit,
                endpoint=self._endpoint,
                token=self._token,
                **self._where(),
            )

        if not whole and (file.size or 0) > _HTTP_BYTES:
            if constants.HF_HUB_DISABLE_XET or request.single:
                raise hub_errors.too_large(file.path, file.size or 0)
            self.shared.report(file.path, 0, FileState.RUNNING)
            self._patiently(by_library)  # Xet, without a part to resume
        else:
            if not whole:
                url = hf_hub_url(request.repo, file.path, revision=self.commit, endpoint=self._endpoint)
                FileFetch(self.shared, file, place, url, self._call(file.path)).run()
            try:
                if place.link is not None:
                    if not place.link.exists():
                        self._patiently(by_library)
                elif not request.single:
                    self._places.write_metadata(file)
            except OSError as error:
                raise io_error(error, place.link or place.whole) from error
        self.shared.report(file.path, file.size or place.here(None), FileState.DONE)

    def _call(self, file: str = "") -> HubCall:
        revision = self.commit or self._request.revision
        return HubCall(self._endpoint, self._request.repo, revision, file, known=bool(self._token))

    def _snapshot(self, patterns: list[str], *, local: bool = False) -> None:
        from huggingface_hub import snapshot_download

        limit_time()
        snapshot_download(
            self._request.repo,
            revision=self.commit,
            endpoint=self._endpoint,
            allow_patterns=patterns,
            token=self._token,
            local_files_only=local,
            **self._where(),
        )

    def _where(self) -> dict[str, Any]:
        own = {} if self._places.in_cache else {"local_dir": self._places.folder}
        return {"cache_dir": self._places.hub, **own}

    def _patiently(self, call: Callable[[], R]) -> R:
        """A call that is repeated for as long as the Hub does not answer, or asks for a pause; answers that break off
        are not waited for without end."""
        (seconds, most), cut_off = _NETWORK_SECONDS, 0
        while True:
            self.shared.check()
            try:
                return call()
            except (SparkError, Stopped):
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise io_error(error, self._store) from error
                found = translate(error, self._call())
                cut_off += isinstance(error, CutOff)
                passing = isinstance(found, (hub_errors.HubOffline, hub_errors.HubBusy)) and cut_off < MOST_CUT_OFF
                if not passing or isinstance(found, hub_errors.HubSwitchedOff):
                    raise found from error
                wait = found.wait if isinstance(found, hub_errors.HubBusy) else None
                _log.warning("%s", describe(error))
                self.shared.pause(found.summary.rstrip("."), wait or seconds)
                seconds = min(most, seconds * 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
