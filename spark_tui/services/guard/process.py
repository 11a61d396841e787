"""A memory guard in a process of its own, which outlives the program that started it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import SparkError
from spark_tui.domain.settings import Settings, variable_of
from spark_tui.domain.text import clean_line
from spark_tui.services.executors import command, python_path
from spark_tui.services.files import FILE_MODE, FOLDER_MODE
from spark_tui.services.ports import GuardJournal

START_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.05
_SETTINGS: Final = ("guard_serving_gib", "guard_loading_gib", "stop_crash_loops")
_VARIABLES: Final = ("HOME", "PATH", "LANG", "TMPDIR", "VIRTUAL_ENV", "XDG_", "LC_", "DOCKER_", "PYTHON")
"""What it is given of our environment, by the beginning of the name: no token that we were started with."""


class GuardProcess:
    """The GuardStarter port: `spark-tui guard` in a session of its own, with these settings. `environ` has the address
    of the Docker that is meant, where it is not the default."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        journal: GuardJournal,
        log: Path,
        local_docker: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._local_docker = local_docker
        self._environ = environ
        self._journal = journal
        self._log = log

    def start(self) -> None:
        """Starts it, and waits until it runs. Does nothing where one runs, or where Docker is on another machine.
        Raises SparkError."""
        if self._journal.running() or not self._local_docker():
            return
        argv = ["setsid", "--fork", *command("spark_tui"), "guard", "--while-engines-run"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._log.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            log = os.open(self._log, flags, FILE_MODE)
            try:
                subprocess.run(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._child_environ(), cwd="/",
                    timeout=START_SECONDS, check=True,
                )  # fmt: skip
            finally:
                os.close(log)
        except (OSError, subprocess.SubprocessError) as error:
            raise _failed(str(error)) from error
        deadline = time.monotonic() + START_SECONDS
        while not self._journal.running():
            if time.monotonic() > deadline:
                raise _failed(self._last_line())
            time.sleep(_LOOK_SECONDS)

    def _last_line(self) -> str:
        try:
            lines = self._log.read_text("utf-8", "replace").splitlines()
        except OSError as error:
            return str(error)
        return next((line for line in reversed(lines) if line.strip()), "")

    def _child_environ(self) -> dict[str, str]:
        own = {name: value for name, value in self._environ.items() if name.startswith(_VARIABLES)}
        values = {variable_of(key): str(getattr(self._settings, key)) for key in _SETTINGS}
        return own | values | {"PYTHONPATH": python_path()}


def _failed(why: str) -> SparkError:
    return SparkError(
        "The memory guard did not start.",
        "See why: spark-tui guard. Without it no engine is stopped before the machine freezes.",
        detail=clean_line(why),
    )
