"""A guard of its own: it runs when `start` returns, goes on without us, and has none of our secrets."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_tui.domain.errors import SparkError
from spark_tui.domain.settings import Settings
from spark_tui.services.docker.socket import DockerSocket
from spark_tui.services.guard.journal import FileGuardJournal
from spark_tui.services.guard.process import GuardProcess

PLANTED = "hf_planted_for_the_test"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A person's environment, without a Docker."""
    kept = {name: os.environ[name] for name in ("PATH", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "DOCKER_HOST": f"unix://{tmp_path}/no.sock",
        "HF_TOKEN": PLANTED,
    }


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileGuardJournal]:
    """The journal of that person; a guard that is left is ended."""
    folder = tmp_path / "state/spark-tui/guard"
    yield FileGuardJournal(folder)
    for pid in guards(tmp_path):
        os.kill(pid, signal.SIGKILL)


def guards(home: Path) -> list[int]:
    """The guards of that home, told by their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if f"HOME={home}\0".encode() in environment and b"--while-engines-run" in command:
            found.append(int(path.parent.name))
    return found


def starter(environ: dict[str, str], journal: FileGuardJournal, tmp_path: Path) -> GuardProcess:
    log = tmp_path / "state/spark-tui/guard/guard.log"
    return GuardProcess(Settings(guard_serving_gib=2.5), environ, journal, log, DockerSocket(environ).local)


def test_it_runs_when_start_returns_and_one_is_enough(
    environ: dict[str, str], journal: FileGuardJournal, tmp_path: Path
) -> None:
    process = starter(environ, journal, tmp_path)
    process.start()
    assert journal.running()
    [pid] = guards(tmp_path)
    process.start()
    assert guards(tmp_path) == [pid]
    assert os.getsid(pid) != os.getsid(0), "a session of its own: a closed terminal does not end it"
    given = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"SPARK_TUI_GUARD_SERVING_GIB=2.5" in given
    assert PLANTED.encode() not in given
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while journal.running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not journal.running()


def test_for_a_docker_of_another_machine_none_is_started(
    environ: dict[str, str], journal: FileGuardJournal, tmp_path: Path
) -> None:
    starter({**environ, "DOCKER_HOST": "tcp://192.0.2.1:2375"}, journal, tmp_path).start()
    assert not journal.running()
    assert guards(tmp_path) == []


def test_a_start_that_fails_says_what_to_do(environ: dict[str, str], journal: FileGuardJournal, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with pytest.raises(SparkError) as caught:
        starter(environ, journal, tmp_path).start()
    assert "did not start" in caught.value.summary
    assert "spark-tui guard" in caught.value.remedy
