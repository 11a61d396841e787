"""The adapters of memory care: what they run, what they refuse, and that nothing they start can hang them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.drop_caches import Access, Route, RouteKind, SystemFile, routes, sudoers_grant
from spark_tui.domain.host.guard import GuardedEngine, GuardEntry
from spark_tui.domain.reading import Missing, Ok
from spark_tui.services.docker.socket import DockerSocket
from spark_tui.services.guard.actuator import SystemGuardActuator, answers
from spark_tui.services.guard.journal import FileGuardJournal
from spark_tui.services.guard.units import SystemdUserUnits
from spark_tui.services.host.drop_caches import SystemCacheDropper
from spark_tui.services.host.procfs import ProcfsHost

IDENTITY = "ab" * 32


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that stand before the system's; each writes what it was asked to `asked`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> {folder}/asked\n{body}\n')
    path.chmod(0o755)


def asked(folder: Path) -> list[str]:
    path = folder / "asked"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
async def dropper(tmp_path: Path) -> AsyncIterator[SystemCacheDropper]:
    adapter = SystemCacheDropper(tmp_path, sync_seconds=0.3)
    yield adapter
    await adapter.close()


def by(*argv: str, stdin: str = "") -> Route:
    """A silent route that runs a program of the test's own."""
    return Route(RouteKind.SUDO, argv, stdin)


# --- dropping -------------------------------------------------------------------------------------------


async def test_dirty_pages_are_written_before_the_drop_and_the_value_comes_by_a_pipe(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path
) -> None:
    program(programs, "sync", "exit 0")
    program(programs, "writer", f"cat > {tmp_path}/value")
    assert await dropper.drop(by("writer", "/proc/sys/vm/drop_caches", stdin="3"))
    assert asked(programs) == ["sync ", "writer /proc/sys/vm/drop_caches"]
    assert (tmp_path / "value").read_text() == "3"


async def test_a_disk_that_takes_too_long_does_not_hold_up_the_drop(
    dropper: SystemCacheDropper, programs: Path
) -> None:
    program(programs, "sync", "exec sleep 30")
    program(programs, "writer", "exit 0")
    assert await dropper.drop(by("writer")) is False
    assert asked(programs)[-1] == "writer "


async def test_a_refusal_carries_the_program_s_own_words_without_control_codes(
    dropper: SystemCacheDropper, programs: Path
) -> None:
    program(programs, "sync", "exit 0")
    program(programs, "sudo", "printf 'one\\nsudo: a \\033[31mpassword is required\\n' >&2; exit 1")
    with pytest.raises(SparkError) as caught:
        await dropper.drop(by("sudo", "-n", "x"))
    assert caught.value.detail == "sudo: a password is required"
    assert "sudo sh -c" in caught.value.remedy


async def test_a_program_that_is_not_there_is_a_refusal_too(dropper: SystemCacheDropper, programs: Path) -> None:
    program(programs, "sync", "exit 0")
    with pytest.raises(SparkError) as caught:
        await dropper.drop(by("no-such-program"))
    assert "no-such-program" in caught.value.detail


@pytest.mark.parametrize("kind", [RouteKind.CONTAINER, RouteKind.PRIVILEGED, RouteKind.TERMINAL])
async def test_what_needs_a_person_is_never_run_silently(dropper: SystemCacheDropper, kind: RouteKind) -> None:
    with pytest.raises(ValueError, match="not a route"):
        await dropper.drop(Route(kind, ("true",)))


async def test_no_child_has_a_terminal_to_prompt_on(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path
) -> None:
    program(programs, "sync", "exit 0")
    program(programs, "sudo", f"(: < /dev/tty) 2>/dev/null && echo yes > {tmp_path}/tty; exit 0")
    await dropper.drop(by("sudo"))
    assert not (tmp_path / "tty").exists()


# --- what is allowed --------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="root has its own way, which only root can see")
async def test_root_needs_no_sudo(dropper: SystemCacheDropper) -> None:
    access = await dropper.access()
    assert access.root
    assert routes(access)[0].kind is RouteKind.ROOT


async def test_sudo_is_asked_for_exact_commands_and_never_prompts(
    dropper: SystemCacheDropper, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(programs, "sudo", '[ "$*" = "-n -l /usr/sbin/sysctl -w vm.drop_caches=3" ]')
    program(programs, "systemctl", "exit 0")
    access = await dropper.access()
    assert access == Access(sudo=("/usr/sbin/sysctl", "-w", "vm.drop_caches=3"), has_sudo=True)
    assert all(line.startswith("sudo -n -l ") for line in asked(programs))


async def test_the_unit_counts_once_it_is_installed(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path
) -> None:
    program(programs, "systemctl", "exit 0")
    assert not (await dropper.access()).unit
    unit = tmp_path / "etc/systemd/system/spark-tui-drop-caches.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n")
    assert (await dropper.access()).unit


# --- the grant --------------------------------------------------------------------------------------------


async def test_visudo_s_objection_is_told(dropper: SystemCacheDropper, programs: Path) -> None:
    program(programs, "visudo", "echo 'x:1:1: syntax error' >&2; exit 1")
    assert await dropper.check_grant("nonsense") == "x:1:1: syntax error"
    [line] = asked(programs)
    assert line.startswith("visudo -cf ")
    draft = Path(line.removeprefix("visudo -cf "))
    assert not draft.exists(), "the draft is gone"


async def test_a_sound_grant_has_no_objection(dropper: SystemCacheDropper, programs: Path) -> None:
    program(programs, "visudo", 'cat "$2" > /dev/null')
    assert await dropper.check_grant(sudoers_grant("spark", 1000)) == ""


# --- the journal ------------------------------------------------------------------------------------------


def entry(number: int) -> GuardEntry:
    return GuardEntry(1000.0 + number, "stop the engine", f"engine{number}", "memory fell", "docker stop")


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root's")
def test_system_files_are_written_whole_and_root_s_and_taken_away_again(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path
) -> None:
    program(programs, "systemctl", "exit 0")
    files = tuple(SystemFile(str(tmp_path / "etc" / name), f"text of {name}\n") for name in ("a.service", "b.rules"))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/a.service").write_text("older")
    assert dropper.write_files(files) == 0
    for file in files:
        status = Path(file.path).stat()
        assert (status.st_uid, status.st_mode & 0o777) == (0, 0o644)
        assert Path(file.path).read_text() == file.text
    assert sorted(path.name for path in (tmp_path / "etc").iterdir()) == ["a.service", "b.rules"], "no draft is left"
    assert dropper.remove_files([file.path for file in files]) == 0
    assert list((tmp_path / "etc").iterdir()) == []
    assert asked(programs) == ["systemctl daemon-reload"] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root's")
def test_what_cannot_be_written_stops_there(dropper: SystemCacheDropper, programs: Path, tmp_path: Path) -> None:
    program(programs, "systemctl", "exit 0")
    (tmp_path / "file").write_text("")
    assert dropper.write_files([SystemFile(str(tmp_path / "file/x.service"), "x")]) != 0
    assert asked(programs) == []


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


# --- the hands --------------------------------------------------------------------------------------------


class Daemon:
    """A Docker socket that answers what is asked of it by a table, and notes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {}
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
                request = connection.recv(65536).decode()
                line = request.split("\r\n")[0].rsplit(" ", 1)[0]
                self.asked.append(line)
                path = line.split(" ")[1].partition("?")[0].partition("/containers")[2]
                body = json.dumps(self.answers.get(path, {})).encode()
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


def described(*, image: str = "vllm/vllm-openai:nightly", pid: int = 4242) -> dict[str, Any]:
    return {
        "Id": IDENTITY,
        "Name": "/qwen",
        "Config": {"Image": image, "Labels": {"io.spark-tui.preset": "qwen", "io.spark-tui.port": "8000"}},
        "State": {"Status": "running", "Pid": pid, "StartedAt": "2026-11-21T09:00:00Z"},
    }


def hands(daemon: Daemon, root: Path, *, ready: bool = False) -> SystemGuardActuator:
    environ = {"DOCKER_HOST": f"unix://{daemon.path}", "HOME": str(root)}
    return SystemGuardActuator(DockerSocket(environ), SystemCacheDropper(), root=root, ready=lambda _port, _path: ready)


def process(root: Path, pid: int, identity: str = IDENTITY) -> Path:
    """A process of that container, as /proc and /sys show it; returns its cgroup.kill."""
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"0::/system.slice/docker-{identity}.scope\n")
    kill = root / f"sys/fs/cgroup/system.slice/docker-{identity}.scope/cgroup.kill"
    kill.parent.mkdir(parents=True)
    kill.write_text("")
    return kill


def test_engines_are_found_with_what_a_stop_will_need(daemon: Daemon, tmp_path: Path) -> None:
    daemon.answers = {"/json": [{"Id": IDENTITY}], f"/{IDENTITY}/json": described()}
    process(tmp_path, 4242)
    [engine] = hands(daemon, tmp_path).engines()
    assert (engine.id, engine.name, engine.pid, engine.ours, engine.loading) == (IDENTITY, "qwen", 4242, True, True)
    [engine] = hands(daemon, tmp_path, ready=True).engines()
    assert not engine.loading


def test_an_engine_that_has_answered_once_is_not_asked_again(daemon: Daemon, tmp_path: Path) -> None:
    daemon.answers = {"/json": [{"Id": IDENTITY}], f"/{IDENTITY}/json": described()}
    process(tmp_path, 4242)
    polls: list[int] = []

    def ready(port: int, _path: str) -> bool:
        polls.append(port)
        return len(polls) > 1

    adapter = SystemGuardActuator(
        DockerSocket({"DOCKER_HOST": f"unix://{daemon.path}"}), SystemCacheDropper(), root=tmp_path, ready=ready
    )
    assert [adapter.engines()[0].loading for _ in range(4)] == [True, False, False, False]
    assert polls == [8000, 8000]
    assert sum(line.endswith(f"{IDENTITY}/json") for line in daemon.asked) == 1, "facts are asked once"


def test_a_container_that_is_no_engine_is_none(daemon: Daemon, tmp_path: Path) -> None:
    plain = described(image="postgres:17")
    plain["Config"]["Labels"] = {}
    daemon.answers = {"/json": [{"Id": IDENTITY}], f"/{IDENTITY}/json": plain}
    assert hands(daemon, tmp_path).engines() == ()


def test_one_between_two_starts_is_no_engine_to_stop_but_one_that_restarts(daemon: Daemon, tmp_path: Path) -> None:
    between = described(pid=0)
    between["State"]["Status"] = "restarting"
    between["RestartCount"] = 2
    between["HostConfig"] = {"RestartPolicy": {"Name": "unless-stopped"}}
    daemon.answers = {"/json": [{"Id": IDENTITY}], f"/{IDENTITY}/json": between}
    adapter = hands(daemon, tmp_path)
    assert adapter.engines() == ()
    [facts] = adapter.restarting()
    assert (facts.name, facts.restart_count) == ("qwen", 2)


def test_a_stop_is_sent_and_not_waited_for(daemon: Daemon, tmp_path: Path) -> None:
    daemon.answers = {"/json": [{"Id": IDENTITY}], f"/{IDENTITY}/json": described()}
    adapter = hands(daemon, tmp_path)
    [engine] = adapter.engines()
    assert adapter.stop(engine, 10) == "docker stop, 10 s grace"
    adapter.engines()
    adapter.close()
    assert f"POST /v1.41/containers/{IDENTITY}/stop?t=10" in daemon.asked


def test_a_kill_goes_to_docker_and_to_the_kernel_at_once(daemon: Daemon, tmp_path: Path) -> None:
    daemon.answers = {"/json": [{"Id": IDENTITY}], f"/{IDENTITY}/json": described()}
    kill = process(tmp_path, 4242)
    adapter = hands(daemon, tmp_path)
    [engine] = adapter.engines()
    assert adapter.kill(engine) == "docker kill, cgroup.kill"
    assert kill.read_text() == "1"
    adapter.close()


def test_without_docker_the_first_process_is_signalled(daemon: Daemon, tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        process(tmp_path, child.pid)
        docker = DockerSocket({"DOCKER_HOST": f"unix://{tmp_path}/gone.sock"})
        adapter = SystemGuardActuator(docker, SystemCacheDropper(), root=tmp_path)
        engine = GuardedEngine(IDENTITY, "qwen", child.pid)
        with pytest.raises(SparkError):
            adapter.engines()
        assert adapter.stop(engine, 10) == f"SIGTERM to pid {child.pid}"
        assert child.wait(10) == -15
    finally:
        child.kill()
        child.wait()


def test_a_pid_that_belongs_to_somebody_else_now_is_never_signalled(daemon: Daemon, tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        process(tmp_path, child.pid, identity="cd" * 32)
        docker = DockerSocket({"DOCKER_HOST": f"unix://{tmp_path}/gone.sock"})
        adapter = SystemGuardActuator(docker, SystemCacheDropper(), root=tmp_path)
        assert adapter.kill(GuardedEngine(IDENTITY, "qwen", child.pid)) == "not reached by any way"
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_the_way_to_a_stop_imports_no_docker_sdk(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from spark_tui.services.guard.actuator import SystemGuardActuator\n"
        "from spark_tui.services.host.drop_caches import SystemCacheDropper\n"
        "import spark_tui.core.guard\n"
        "from spark_tui.domain.host.guard import GuardedEngine\n"
        "from spark_tui.services.docker.socket import DockerSocket\n"
        f"docker = DockerSocket({{'DOCKER_HOST': 'unix://{tmp_path}/no.sock'}})\n"
        "hands = SystemGuardActuator(docker, SystemCacheDropper())\n"
        "hands.stop(GuardedEngine('a' * 64, 'x'), 1)\n"
        "hands.kill(GuardedEngine('a' * 64, 'x'))\n"
        "heavy = {'docker', 'httpx', 'requests', 'pynvml', 'psutil', 'yaml', 'textual', 'huggingface_hub'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


def test_a_port_where_nobody_listens_is_not_ready() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert not answers(probe.getsockname()[1])


# --- shared memory ----------------------------------------------------------------------------------------


def test_shared_files_tell_who_has_them_open(tmp_path: Path) -> None:
    shm = tmp_path / "dev/shm"
    shm.mkdir(parents=True)
    (shm / "psm_aa").write_bytes(b"x" * 8192)
    (shm / "psm_bb").write_bytes(b"x" * 8192)
    (shm / "folder").mkdir()
    for kind in ("fd", "map_files"):
        (tmp_path / "proc/7" / kind).mkdir(parents=True)
    reading = ProcfsHost(tmp_path).shared_files()
    assert isinstance(reading, Ok)
    assert [(file.name, file.open) for file in reading.value] == [("psm_aa", False), ("psm_bb", False)]
    assert all(file.size >= 4096 for file in reading.value)
    assert isinstance(ProcfsHost(tmp_path / "nowhere").shared_files(), Missing)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no shared memory here")
def test_a_file_that_this_very_process_maps_is_in_use() -> None:
    path = Path(f"/dev/shm/psm_{os.getpid():08x}")
    try:
        with path.open("wb") as file:
            file.write(b"x" * 8192)
            file.flush()
            reading = ProcfsHost().shared_files()
            assert isinstance(reading, Ok)
            assert {each.name: each.open for each in reading.value}[path.name] is True
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("cgroup", "expected"), [(f"0::/system.slice/docker-{IDENTITY}.scope\n", IDENTITY), ("0::/\n", "")]
)
def test_a_process_knows_its_container(tmp_path: Path, cgroup: str, expected: str) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(cgroup)
    assert ProcfsHost(tmp_path).container_of(7) == expected
    assert ProcfsHost(tmp_path).container_of(8) == ""


# --- units --------------------------------------------------------------------------------------------------


def test_a_unit_is_written_enabled_and_started_and_taken_away(programs: Path, tmp_path: Path) -> None:
    program(programs, "systemctl", "exit 0")
    units = SystemdUserUnits(tmp_path / "home", dict(os.environ) | {"XDG_CONFIG_HOME": ""})
    assert not units.uninstall("spark-tui-guard.service")
    units.install("spark-tui-guard.service", "[Unit]\n")
    path = tmp_path / "home/.config/systemd/user/spark-tui-guard.service"
    assert path.read_text() == "[Unit]\n"
    assert units.uninstall("spark-tui-guard.service")
    assert not path.exists()
    name = "spark-tui-guard.service"
    assert [line.removeprefix("systemctl --user ") for line in asked(programs)] == [
        "daemon-reload", f"enable {name}", f"restart {name}", f"disable --now {name}", "daemon-reload",
    ]  # fmt: skip


def test_without_a_login_session_systemd_s_own_words_are_told(programs: Path, tmp_path: Path) -> None:
    program(programs, "systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    with pytest.raises(SparkError) as caught:
        SystemdUserUnits(tmp_path, dict(os.environ)).install("x.service", "[Unit]\n")
    assert caught.value.detail == "Failed to connect to bus: No medium found"
    assert "spark-tui guard" in caught.value.remedy
