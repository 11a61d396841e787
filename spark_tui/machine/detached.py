"""Programs of ours that outlive the one that starts them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spark_tui.base.engine.container import ALL_INTERFACES, LOOPBACK
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import born, command, python_path
from spark_tui.base.files import FILE_MODE, FOLDER_MODE, end_of, file_name
from spark_tui.base.protocol import Router, RouteRequest

START_SECONDS: Final = 20.0
END_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
LOG_BYTES: Final = 2000
"""Of a log, from its end: what the detail of an error quotes."""
_ROUTER: Final = "vllm-router"
_INSTALL: Final = "Install it beside spark-tui there: pip install vllm-router"
_ROUTER_MODULE: Final = "vllm_router"
# With two workers, power_of_two always compares both. A dead one is the least busy until its breaker is open.
_ROUTER_OPTIONS: Final = (
    "--policy", "power_of_two", "--health-check-interval-secs", "5", "--worker-startup-check-interval", "1",
    "--cb-failure-threshold", "2", "--cb-success-threshold", "1", "--cb-timeout-duration-secs", "10",
    "--prometheus-host", "127.0.0.1",
)  # fmt: skip
_ROUTER_LOG: Final = {"RUST_LOG": "warn"}
"""Else a line for each request; its own --log-level does not end that."""


def start_detached(arguments: Sequence[str], log: Path, environ: Mapping[str, str]) -> None:
    """Starts spark-tui with these arguments in a session of its own; what it prints goes to `log`. Raises OSError and
    subprocess.SubprocessError."""
    with _opened(log) as written:
        subprocess.run(
            ["setsid", "--fork", *command("spark_tui"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            env={**environ, "PYTHONPATH": python_path()},
            cwd="/",
            timeout=START_SECONDS,
            check=True,
        )


@contextmanager
def _opened(log: Path) -> Iterator[int]:
    """A new private file; raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    log.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    written = os.open(log, flags, FILE_MODE)
    try:
        yield written
    finally:
        os.close(written)


class DetachedWatchers:
    """The Watchers port: `spark-tui cluster watch NAME`, its output in a file of `folder`."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    def start(self, name: str) -> Path:
        log = self._folder / f"{file_name(name)}.log"
        try:
            start_detached(("cluster", "watch", name), log, self._environ)
        except (OSError, subprocess.SubprocessError) as error:
            raise SparkError(
                f"{name} is not watched: {error}.", f"Watch it in a shell: spark-tui cluster watch {name}"
            ) from error
        return log


class DetachedRouters:
    """The Routers port: the package beside this program's own Python, else the program on the path."""

    def __init__(self, folder: Path, environ: Mapping[str, str], start_seconds: float = START_SECONDS) -> None:
        self._folder = folder
        self._environ = environ
        self._start_seconds = start_seconds

    def available(self) -> bool:
        return bool(self._program())

    def _program(self) -> tuple[str, ...]:
        if find_spec(_ROUTER_MODULE) is not None:
            return (sys.executable, "-m", f"{_ROUTER_MODULE}.launch_router")
        found = shutil.which(_ROUTER, path=self._environ.get("PATH"))
        return (found,) if found else ()

    def start(self, request: RouteRequest) -> Router:
        log = self._folder / f"router-{file_name(request.launch)}.log"
        if _listens(request):
            raise SparkError(f"Port {request.port} of {request.address} is taken.", "Stop what listens there.")
        where = ("--host", request.address, "--port", str(request.port), "--prometheus-port", str(_free_port()))
        words = (*self._program(), *where, *_ROUTER_OPTIONS, "--worker-urls", *request.workers)
        try:
            with _opened(log) as written:
                streams = [(os.POSIX_SPAWN_DUP2, written, to) for to in (1, 2)]
                environ = {**self._environ, **_ROUTER_LOG}
                pid = os.posix_spawnp(words[0], words, environ, file_actions=streams, setsid=True)
        except OSError as error:
            raise SparkError(f"{_ROUTER} did not start: {error}.", _INSTALL) from error
        router = Router(request.launch, pid, born(pid) or 0)
        deadline = time.monotonic() + self._start_seconds
        while not _listens(request):
            if not self.runs(router) or time.monotonic() > deadline:
                self.end(router)
                raise SparkError(f"{_ROUTER} did not start.", f"See its log: {log}", detail=_end_of(log))
            time.sleep(_LOOK_SECONDS)
        return router

    def runs(self, router: Router) -> bool:
        return router.born == born(router.pid)

    def end(self, router: Router) -> bool:
        for each in (signal.SIGTERM, signal.SIGKILL):
            if self.runs(router):
                with suppress(ProcessLookupError):
                    os.kill(router.pid, each)
            deadline = time.monotonic() + END_SECONDS
            while self.runs(router) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        return not self.runs(router)


def _free_port() -> int:
    """A port for the router's own metrics, which it cannot do without."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _end_of(log: Path) -> str:
    try:
        return end_of(log, LOG_BYTES)
    except OSError as error:
        return str(error)


def _listens(request: RouteRequest) -> bool:
    address = LOOPBACK if request.address == ALL_INTERFACES else request.address
    try:
        socket.create_connection((address, request.port), timeout=1.0).close()
    except OSError:
        return False
    return True
