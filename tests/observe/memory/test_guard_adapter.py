"""The guard's outside: its journal, what it acts with on a machine in trouble, its own process, its systemd unit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.errors import SparkError
from spark_tui.base.host.guard import GuardedEngine, GuardEntry
from spark_tui.base.settings import Settings
from spark_tui.machine.docker.socket import DockerSocket
from spark_tui.observe.memory.adapter.guard import FileGuardJournal, GuardProcess, SystemGuardActuator, answers

IDENTITY = "ab" * 32
PLANTED = "hf_planted_for_the_test"
UNIT = "spark-tui-guard.service"


# --- the journal ----------------------------------------------------------------------------------------


def entry(number: int) -> GuardEntry:
    return GuardEntry(1000.0 + number, "stop the engine", f"engine{number}", "memory fell", "docker stop")


def test_the_journal_is_private_and_bounded(tmp_path: Path) -> None:
    journal = FileGuardJournal(tmp_path / "guard")
    assert journal.entries() == ()
    for number in range(105):
        journal.add(entry(number))
    assert journal.entries() == tuple(entry(number) for number in range(5, 105))
    assert stat.S_IMODE((tmp_path / "guard/journal.jsonl").stat().st_mode) == 0o600


def test_a_damaged_journal_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    journal = FileGuardJournal(tmp_path / "guard")
    journal.add(entry(1))
    with (tmp_path / "guard/journal.jsonl").open("ab") as file:
        file.write(b'\xff\x00 garbage\n[1]\n{"at": "yesterday"}\n{"at": 7, "act": 3}\n{"at"')
    assert journal.entries() == (entry(1), GuardEntry(7.0, "", "", "", ""))


def test_there_is_one_guard_at_a_time(tmp_path: Path) -> None:
    first, second = FileGuardJournal(tmp_path / "guard"), FileGuardJournal(tmp_path / "guard")
    assert not second.running()
    assert first.claim()
    assert second.running()
    assert not second.claim()
    first.release()
    assert not second.running()
    assert second.claim()
    second.release()


# --- the actuator ---------------------------------------------------------------------------------------


class Daemon:
    """A Docker socket that answers by a table, and notes what was asked. One engine runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[str] = []
        self.facts: dict[str, Any] = {
            "Id": IDENTITY,
            "Name": "/qwen",
            "Config": {
                "Image": "vllm/vllm-openai:nightly",
                "Labels": {"io.spark-tui.preset": "qwen", "io.spark-tui.port": "8000"},
            },
            "HostConfig": {"PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}},
            "State": {"Status": "running", "Pid": 4242, "StartedAt": "2026-11-21T09:00:00Z"},
        }
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(16)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                line = connection.recv(65536).decode().split("\r\n")[0].rsplit(" ", 1)[0]
                self.asked.append(line)
                path = line.split(" ")[1].partition("?")[0].partition("/containers")[2]
                answer = {"/json": [{"Id": IDENTITY}], f"/{IDENTITY}/json": self.facts}.get(path, {})
                body = json.dumps(answer).encode()
                head = f"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: {len(body)}\r\n\r\n"
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked waits for no answer
                    connection.sendall(head.encode() + body)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "docker.sock")
    yield daemon
    daemon.close()


def actuator(
    sock: Path, root: Path, ready: Callable[[int, str], bool] = lambda _port, _path: False
) -> SystemGuardActuator:
    docker = DockerSocket({"DOCKER_HOST": f"unix://{sock}", "HOME": str(root)})
    return SystemGuardActuator(docker, lambda: True, lambda: True, root=root, ready=ready)


def process(root: Path, pid: int, identity: str = IDENTITY) -> Path:
    """A process of that container, as /proc and /sys show it; returns its cgroup.kill."""
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"0::/system.slice/docker-{identity}.scope\n")
    kill = root / f"sys/fs/cgroup/system.slice/docker-{identity}.scope/cgroup.kill"
    kill.parent.mkdir(parents=True)
    kill.write_text("")
    return kill


def test_an_engine_is_found_with_what_a_stop_needs_and_asked_until_it_has_answered(
    daemon: Daemon, tmp_path: Path
) -> None:
    process(tmp_path, 4242)
    polls: list[int] = []

    def ready(port: int, _path: str) -> bool:
        polls.append(port)
        return len(polls) > 1

    adapter = actuator(daemon.path, tmp_path, ready)
    [engine] = adapter.engines()
    assert (engine.id, engine.name, engine.pid, engine.ours, engine.loading) == (IDENTITY, "qwen", 4242, True, True)
    assert [adapter.engines()[0].loading for _ in range(3)] == [False, False, False]
    assert polls == [8000, 8000]
    assert sum(line.endswith(f"{IDENTITY}/json") for line in daemon.asked) == 1, "facts are asked once"


def test_a_container_that_is_no_engine_is_none(daemon: Daemon, tmp_path: Path) -> None:
    daemon.facts["Config"] = {"Image": "postgres:17", "Labels": {}}
    assert actuator(daemon.path, tmp_path).engines() == ()


def test_one_between_two_starts_is_no_engine_to_stop_but_one_that_restarts(daemon: Daemon, tmp_path: Path) -> None:
    daemon.facts["State"] |= {"Pid": 0, "Status": "restarting"}
    daemon.facts |= {"RestartCount": 2, "HostConfig": {"RestartPolicy": {"Name": "unless-stopped"}}}
    adapter = actuator(daemon.path, tmp_path)
    assert adapter.engines() == ()
    assert [(facts.name, facts.restart_count) for facts in adapter.restarting()] == [("qwen", 2)]


def test_a_stop_is_sent_and_a_kill_goes_to_docker_and_to_the_kernel_at_once(daemon: Daemon, tmp_path: Path) -> None:
    kill = process(tmp_path, 4242)
    adapter = actuator(daemon.path, tmp_path)
    [engine] = adapter.engines()
    assert adapter.stop(engine, 10) == "docker stop, 10 s grace"
    adapter.engines()
    assert f"POST /v1.41/containers/{IDENTITY}/stop?t=10" in daemon.asked
    assert adapter.kill(engine) == "docker kill, cgroup.kill"
    assert kill.read_text() == "1"
    adapter.close()


@pytest.mark.parametrize(("identity", "ends"), [(IDENTITY, True), ("cd" * 32, False)], ids=["own", "pid-reused"])
def test_without_docker_the_first_process_is_signalled_if_it_is_still_that_container_s(
    tmp_path: Path, identity: str, ends: bool
) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        process(tmp_path, child.pid, identity)
        adapter = actuator(tmp_path / "gone.sock", tmp_path)
        with pytest.raises(SparkError):
            adapter.engines()
        how = adapter.stop(GuardedEngine(IDENTITY, "qwen", child.pid), 10)
        assert how == (f"SIGTERM to pid {child.pid}" if ends else "not reached by any way")
        assert (child.wait(10) if ends else child.poll()) == (-signal.SIGTERM if ends else None)
    finally:
        child.kill()
        child.wait()


def test_the_way_to_a_stop_imports_no_docker_sdk(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from spark_tui.observe.memory.adapter.guard import SystemGuardActuator\n"
        "from spark_tui.observe.memory.adapter.drop_caches import SystemCacheDropper\n"
        "import spark_tui.observe.memory.use.guard\n"
        "from spark_tui.base.host.guard import GuardedEngine\n"
        "from spark_tui.machine.docker.socket import DockerSocket\n"
        f"docker, dropper = DockerSocket({{'DOCKER_HOST': 'unix://{tmp_path}/no.sock'}}), SystemCacheDropper()\n"
        "actuator = SystemGuardActuator(docker, dropper.drop_silently, dropper.compact_silently)\n"
        "actuator.stop(GuardedEngine('a' * 64, 'x'), 1)\n"
        "actuator.kill(GuardedEngine('a' * 64, 'x'))\n"
        "heavy = {'docker', 'httpx2', 'requests', 'pynvml', 'psutil', 'yaml', 'textual', 'huggingface_hub'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_port_where_no_one_listens_is_not_ready() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert not answers(probe.getsockname()[1])


# --- its own process ------------------------------------------------------------------------------------


class Person:
    """A person's environment without a Docker, and the guards of that home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: os.environ[name] for name in ("PATH", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ}
        own = {"HOME": str(home), "XDG_STATE_HOME": f"{home}/state", "DOCKER_HOST": f"unix://{home}/no.sock"}
        self.environ = {**kept, **own, "HF_TOKEN": PLANTED}
        self.journal = FileGuardJournal(home / "state/spark-tui/guard")

    def start(self) -> None:
        log = self.home / "state/spark-tui/guard/guard.log"
        local = DockerSocket(self.environ).local
        GuardProcess(Settings(guard_serving_gib=2.5), self.environ, self.journal, log, local).start()

    def guards(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                ours = f"HOME={self.home}\0".encode() in path.read_bytes()
                if ours and b"--while-engines-run" in (path.parent / "cmdline").read_bytes():
                    found.append(int(path.parent.name))
        return found


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path)
    yield person
    for pid in person.guards():
        os.kill(pid, signal.SIGKILL)


def test_a_guard_runs_when_start_returns_and_one_is_enough(person: Person) -> None:
    person.start()
    assert person.journal.running()
    [pid] = person.guards()
    person.start()
    assert person.guards() == [pid]
    assert os.getsid(pid) != os.getsid(0), "a session of its own: a closed terminal does not end it"
    given = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"SPARK_TUI_GUARD_SERVING_GIB=2.5" in given
    assert PLANTED.encode() not in given
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while person.journal.running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not person.journal.running()


def test_for_a_docker_of_another_machine_none_is_started(person: Person) -> None:
    person.environ["DOCKER_HOST"] = "tcp://192.0.2.1:2375"
    person.start()
    assert not person.journal.running()
    assert person.guards() == []


def test_a_start_that_fails_gives_the_next_step(person: Person, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with pytest.raises(SparkError) as caught:
        person.start()
    assert "did not start" in caught.value.summary
    assert "spark-tui guard" in caught.value.remedy
