"""The process of one download: `python -m spark_tui.services.hub.worker FOLDER ID`.

It leaves its parent at once and goes on when the program that started it ends. The token comes on standard input, and
nowhere else; what it does is told in the state file alone, what surprises it in the log. SIGTERM ends it at once:
whatever has arrived is on the disk already.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models.download import DownloadPhase, Failure, SpeedMeter
from spark_tui.domain.secret import Secret
from spark_tui.services.hub.records import DownloadFolder, Order, WorkerState, alive, born

COMM: Final = "spark-tui-pull"
"""Its name in the process list. Rules for the out-of-memory killer on these machines look for `python` and `vllm`."""
TICK_SECONDS: Final = 0.25
_OOM_SCORE: Final = 600
"""It loses nothing when it is killed: rather this than an engine."""
_NICE: Final = 5
_LOCK_TRIES: Final = 20
_MOST_TOKEN: Final = 65_536


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
        _settle(folder, id_)
        code = _work(folder, id_, token, lambda: _ready(write))
    except BaseException:
        logging.getLogger(__name__).exception("the download ended unexpectedly")
    os._exit(code)  # a thread that hangs in a read would hold the process


def _ready(write: int) -> None:
    os.write(write, b"+")
    os.close(write)


def _settle(folder: DownloadFolder, id_: str) -> None:
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


def _work(folder: DownloadFolder, id_: str, token: Secret | None, ready: Callable[[], None]) -> int:
    lock = os.open(folder.lock(id_), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not _locked(lock):
        ready()
        return 0
    order = folder.order(id_)
    if order is None:
        return 1
    worker = Worker(folder, id_, order, token)
    worker.begin()
    ready()
    return worker.run()


def _locked(descriptor: int) -> bool:
    """An older process of the same download may need a moment to end."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


class Worker:
    """Waits for its turn, runs the download on threads, and tells of it four times a second."""

    def __init__(self, folder: DownloadFolder, id_: str, order: Order, token: Secret | None) -> None:
        self._folder = folder
        self._id = id_
        self._order = order
        self._token = token
        before = folder.state(id_)
        own = os.getpid()
        kept = () if before is None else before.files
        self._state = WorkerState(
            DownloadPhase.QUEUED, own, born(own) or 0, before.commit if before else "", files=kept
        )
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
            self._tell(job)
            thread.join(TICK_SECONDS)
            if self._stop.is_set():
                job.shared.stop.set()
                self._tell(job)
                return self._end(DownloadPhase.PAUSED)
        self._tell(job)
        return self._result()

    def _run(self, job: Any) -> None:
        try:
            job.run()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self._error = error

    def _result(self) -> int:
        error = self._error
        if error is None:
            return self._end(DownloadPhase.DONE)
        if isinstance(error, SparkError):
            failure = Failure(error.id, error.summary, error.remedy, error.detail)
        else:
            logging.getLogger(__name__).error("the download failed", exc_info=error)
            failure = Failure(
                "download_failed", "The download failed unexpectedly.",
                f"Try again; {self._folder.log(self._id)} tells more.", f"{type(error).__name__}: {error}",
            )  # fmt: skip
        return self._end(DownloadPhase.FAILED, failure)

    def _end(self, phase: DownloadPhase, failure: Failure | None = None) -> int:
        self._state = replace(
            self._state, phase=phase, failure=failure, waiting="", speed=None, limit=None, ended=time.time()
        )
        self._put()
        return 0

    # --- what is told -------------------------------------------------------------------------------------

    def _tell(self, job: Any) -> None:
        files = job.files() or self._state.files
        now = time.monotonic()
        self._meter.feed(now, sum(file.done for file in job.files()))
        waits = job.shared.waiting()
        running = any(file.state == "running" for file in files) and len(waits) < sum(
            file.state == "running" for file in files
        )
        phase = DownloadPhase.WAITING if waits and not running else job.phase
        self._state = replace(
            self._state, phase=phase, commit=job.commit, files=files, waiting=waits[0] if waits else "",
            speed=self._meter.speed(now) if phase is not DownloadPhase.FINISHING else None, left_out=job.left_out,
            limit=self._share(),
        )  # fmt: skip
        job.shared.limit(self._state.limit)
        self._put()

    def _put(self) -> None:
        try:
            self._folder.put_state(self._id, self._state)
        except OSError as error:  # a full disk: the download itself meets it too, and tells
            logging.getLogger(__name__).warning("the state cannot be written: %s", error)

    # --- others -------------------------------------------------------------------------------------------

    def _others(self) -> list[tuple[float, str, DownloadPhase]]:
        """Downloads of this user that live, as (created, id, phase)."""
        found = []
        for id_ in self._folder.ids():
            order, state = self._folder.order(id_), self._folder.state(id_)
            if id_ != self._id and order is not None and state is not None and state.phase.active and alive(state):
                found.append((order.created, id_, state.phase))
        return found

    def _is_my_turn(self) -> bool:
        """When fewer run than may, and nobody who came before waits."""
        others = self._others()
        running = [each for each in others if each[2] is not DownloadPhase.QUEUED]
        before = [each for each in others if each[2] is DownloadPhase.QUEUED and each[:2] < self._me]
        return len(running) + len(before) < self._folder.limits().at_once

    @property
    def _me(self) -> tuple[float, str]:
        return self._order.created, self._id

    def _share(self) -> float | None:
        """The cap, shared by all that run."""
        rate = self._folder.limits().bytes_per_second
        if rate is None:
            return None
        running = sum(phase in (DownloadPhase.DOWNLOADING, DownloadPhase.PREPARING) for *_, phase in self._others())
        return rate / (running + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
