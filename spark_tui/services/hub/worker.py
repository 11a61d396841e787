"""The process of one download: `python -m spark_tui.services.hub.worker FOLDER ID`.

It detaches itself at once and outlives the program that started it. The token comes on standard input and nowhere
else; progress goes to the state file, surprises to the log. SIGTERM ends it at once: what has arrived is on the disk.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models.download import (
    DownloadPhase,
    Failure,
    FileState,
    SpeedMeter,
)
from spark_tui.domain.secret import Secret
from spark_tui.services.hub.records import DownloadFolder, Order, WorkerState, alive, born

if TYPE_CHECKING:  # the library is loaded once it is this download's turn
    from spark_tui.services.hub.job import DownloadJob

COMM: Final = "spark-tui-pull"
"""Its name in the process list. Rules for the out-of-memory killer on these machines look for `python` and `vllm`."""
TICK_SECONDS: Final = 0.25
_OOM_SCORE: Final = 600
"""It loses nothing when it is killed: rather this than an engine."""
_NICE: Final = 5
_LOCK_SECONDS: Final = 1.0
"""An older process of the same download may need a moment to end."""
_MOST_TOKEN: Final = 65_536

_log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Starts the worker and returns at once. 0: it runs, or another one does; 1: it could not be started."""
    folder, id_ = DownloadFolder(Path(argv[1])), argv[2]
    told = json.loads(sys.stdin.buffer.read(_MOST_TOKEN) or b"{}")
    token = Secret(told["token"]) if told.get("token") else None
    ready, write = os.pipe()
    if os.fork():
        os.close(write)
        return 0 if os.read(ready, 1) == b"+" else 1
    os.close(ready)
    code = 1
    try:
        _detach(folder, id_)
        lock = filelock.UnixFileLock(folder.lock(id_), mode=0o600)
        order = folder.order(id_)
        try:
            lock.acquire(timeout=_LOCK_SECONDS)
        except filelock.Timeout:
            os.write(write, b"+")
        else:
            if order is not None:
                worker = Worker(folder, id_, order, token)
                worker.begin()
                os.write(write, b"+")
                os.close(write)
                code = worker.run()
    except BaseException:  # noqa: BLE001 - there is nobody to raise it to
        _log.exception("the download ended unexpectedly")
    os._exit(code)  # a thread that hangs in a read would hold the process


def _detach(folder: DownloadFolder, id_: str) -> None:
    """A session, a log and a priority of its own."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder.log(id_), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    for source, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(source, target)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    for path, text in (("/proc/self/comm", COMM), ("/proc/self/oom_score_adj", str(_OOM_SCORE))):
        with contextlib.suppress(OSError):  # courtesies: another kernel, or a sandbox, may refuse them
            Path(path).write_text(text, "ascii")
    with contextlib.suppress(OSError):
        os.nice(_NICE)


class Worker:
    """Waits for its turn, runs the download on threads, and reports four times a second."""

    def __init__(self, folder: DownloadFolder, id_: str, order: Order, token: Secret | None) -> None:
        self._folder = folder
        self._id = id_
        self._order = order
        self._token = token
        before, own = folder.state(id_) or WorkerState(), os.getpid()
        self._state = WorkerState(DownloadPhase.QUEUED, own, born(own) or 0, before.commit, before.files)
        self._stop = threading.Event()
        self._meter = SpeedMeter()
        self._error: BaseException | None = None

    def begin(self) -> None:
        """From now on it can be seen, and told to stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._put()

    def run(self) -> int:
        """Until the download has ended, one way or another."""
        while not self._is_my_turn():
            if self._stop.wait(TICK_SECONDS * 2):
                return self._end(DownloadPhase.PAUSED)
        from spark_tui.services.hub.job import DownloadJob

        job = DownloadJob(self._order, self._token, self._state.commit)
        thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        thread.start()
        while thread.is_alive():
            self._report(job)
            thread.join(TICK_SECONDS)
            if self._stop.is_set():
                job.shared.stop.set()
                self._report(job)
                return self._end(DownloadPhase.PAUSED)
        self._report(job)
        error = self._error
        if error is None:
            return self._end(DownloadPhase.DONE)
        if isinstance(error, SparkError):
            return self._end(DownloadPhase.FAILED, Failure(error.id, error.summary, error.remedy, error.detail))
        _log.error("the download failed", exc_info=error)
        failure = Failure(
            "download_failed", "The download failed unexpectedly.",
            f"Try again. Details: {self._folder.log(self._id)}", f"{type(error).__name__}: {error}",
        )  # fmt: skip
        return self._end(DownloadPhase.FAILED, failure)

    def _run(self, job: DownloadJob) -> None:
        try:
            job.run()
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            self._error = error

    def _end(self, phase: DownloadPhase, failure: Failure | None = None) -> int:
        self._state = replace(
            self._state, phase=phase, failure=failure, waiting="", speed=None, limit=None, ended=time.time()
        )
        self._put()
        return 0

    def _report(self, job: DownloadJob) -> None:
        files, now = job.files(), time.monotonic()
        self._meter.feed(now, sum(file.done for file in files))
        files = files or self._state.files
        waits = job.shared.waiting()
        all_wait = len(waits) >= max(1, sum(file.state is FileState.RUNNING for file in files))
        phase = DownloadPhase.WAITING if waits and all_wait else job.phase
        # The rate limit is shared by all downloads that run.
        rate = self._folder.limits().bytes_per_second
        running = (
            1 + sum(each in (DownloadPhase.DOWNLOADING, DownloadPhase.PREPARING) for *_, each in self._others())
            if rate
            else 1
        )
        self._state = replace(
            self._state, phase=phase, commit=job.commit, files=files, waiting=waits[0] if waits else "",
            speed=self._meter.speed(now) if phase is not DownloadPhase.FINISHING else None, left_out=job.left_out,
            limit=rate / running if rate else None,
        )  # fmt: skip
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


if __name__ == "__main__":
    sys.exit(main(sys.argv))
