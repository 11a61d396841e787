"""The memory guard as a process of its own, on a real container that takes memory.

The squeeze ends 3 GiB below what was usable at first, and the floor is put above that: nothing comes near the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.container import LABEL_PRESET, LABEL_RUNTIME
from spark_tui.base.finding import Ok
from spark_tui.base.quantities import GIB, MIB
from spark_tui.machine.docker.wire import seconds_of
from spark_tui.machine.procfs import ProcfsHost
from tests.failure_logs import cases
from tests.real.lab import Lab, PrivateEngine
from tests.real.lab.images import BUSYBOX
from tests.real.lab.support import wait_until

STEP_MIB = 64
FLOOR_BELOW = 1 * GIB
"""The floor lies so far below what is usable at rest."""
SQUEEZE_BELOW = 2 * GIB
"""The hog takes memory until so much less than the floor is usable, however much others give back meanwhile."""

PROOF = "\n".join(next(case.log for case in cases() if case.cause == "no_kv_room" and not case.guess))

CAP_IPC_LOCK, CAP_SYS_RESOURCE = 14, 24

GROW = f"""
trap 'exit 0' TERM
i=0
while [ "$(awk '/^MemAvailable/ {{print $2}}' /proc/meminfo)" -gt "$1" ]; do
    dd if=/dev/zero of=/dev/shm/hog$i bs=1M count={STEP_MIB} 2>/dev/null
    i=$((i+1))
    sleep 0.05
done
while true; do sleep 0.1; done
"""


def usable_now() -> int:
    reading = ProcfsHost().memory()
    assert isinstance(reading, Ok)
    return reading.value.usable


def usable_at_rest() -> int:
    """What is usable once nobody gives back or takes memory: one that has just ended frees its own for a while."""
    before, now = 0, usable_now()
    deadline = time.monotonic() + 20
    while abs(now - before) > 64 * MIB and time.monotonic() < deadline:
        time.sleep(0.5)
        before, now = now, usable_now()
    return now


@pytest.fixture
def engine(lab: Lab, make_engine: Callable[..., PrivateEngine]) -> PrivateEngine:
    """An engine of this test's own: a guard on the shared one might end what others run there.

    Its programs are read beforehand: after a test that dropped the page cache they would start so slowly from the
    disk that the lab takes a daemon which is about to run for one that has ended.
    """
    for program in ("containerd", "dockerd", "containerd-shim-runc-v2", "runc"):
        lab.toolbox.need(program).read_bytes()
    return make_engine()


@pytest.fixture
def container_name() -> str:
    return "hog"


@pytest.fixture
def floor(engine: PrivateEngine) -> int:
    """Bytes, so little below what is usable that a small squeeze reaches it."""
    usable = usable_at_rest()
    if usable < 6 * GIB:
        pytest.skip("too little memory here for a squeeze")
    return usable - FLOOR_BELOW


@pytest.fixture
def environment(engine: PrivateEngine, floor: int, tmp_path: Path) -> dict[str, str]:
    """A new user's home and the lab's engine, with that floor."""
    return {
        **engine.environ(),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "SPARK_TUI_GUARD_SERVING_GIB": f"{floor / GIB:.2f}",
        "SPARK_TUI_GUARD_LOADING_GIB": f"{floor / GIB:.2f}",
    }


class Watchdog:
    """`spark-tui guard --json` as a process; `entries` are the lines that it has written."""

    def __init__(self, environment: dict[str, str], *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spark_tui", "guard", "--json", *options],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.entries: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.entries.append(json.loads(line))

    def proc(self, name: str) -> str:
        """A file of its /proc directory."""
        return Path(f"/proc/{self.process.pid}/{name}").read_text()

    @property
    def prepared(self) -> bool:
        """It has its name, and so has made all its preparations but the looking."""
        return self.process.poll() is None and self.proc("comm").strip() == "spark-tui-guard"

    @property
    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = self.proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> int:
        """Ends it as systemd would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(10)
        self._reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code


Start = Callable[..., Watchdog]


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Starts watchdogs that are ended with the test."""
    running: list[Watchdog] = []

    def begin(*options: str) -> Watchdog:
        watchdog = Watchdog(environment, *options)
        running.append(watchdog)
        assert wait_until(lambda: watchdog.prepared, 60)
        return watchdog

    yield begin
    for watchdog in running:
        if watchdog.process.returncode is None:
            watchdog.end()


def launch(engine: PrivateEngine, name: str, script: str, floor: int, *, ours: bool = True) -> None:
    """An `engine` that runs a shell script, with room for a squeeze below the floor (bytes) in its shared memory."""
    labels = [f"--label={LABEL_RUNTIME}=vllm", *([f"--label={LABEL_PRESET}=hog"] if ours else [])]
    engine.docker(
        "run", "--detach", "--name", name, "--network", "none", "--restart", "unless-stopped",
        "--shm-size=64g", *labels, BUSYBOX, "sh", "-c", script, "sh",
        str((floor - SQUEEZE_BELOW) // 1024),
    )  # fmt: skip


def state(engine: PrivateEngine, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(engine.docker("inspect", "--format", "{{json .State}}", name))
    return found


def seconds_between(entry: dict[str, Any], watchdog_entries: list[dict[str, Any]], ended: str) -> float:
    """From the decision to the container's end."""
    assert entry in watchdog_entries
    finished = seconds_of(ended)
    assert finished is not None
    return finished - float(entry["at_seconds"])


def seconds_of_a_plain_stop(engine: PrivateEngine, name: str, floor: int) -> float:
    """What Docker and a container that obeys SIGTERM and holds as much memory need for an ordinary stop."""
    launch(engine, name, GROW, floor, ours=False)
    assert wait_until(lambda: usable_now() < floor - SQUEEZE_BELOW + STEP_MIB * MIB, 60)
    asked = time.time()
    engine.docker("stop", name)
    finished = seconds_of(state(engine, name)["FinishedAt"])
    assert finished is not None
    return finished - asked


def asked_to_stop_at(engine: PrivateEngine, name: str) -> float:
    """When Docker sent the container its SIGTERM, epoch seconds: the container's own way out is not in it."""
    told = engine.docker(
        "events", "--since", "10m", "--until", f"{time.time():.0f}", "--filter", f"container={name}",
        "--filter", "event=kill", "--format", "{{.TimeNano}} {{.Actor.Attributes.signal}}",
    )  # fmt: skip
    moment, signal_number = told.splitlines()[0].split()
    assert int(signal_number) == signal.SIGTERM
    return int(moment) / 1e9


@pytest.mark.parametrize("busy", [0, 6], ids=["quiet machine", "starved of CPU"])
def test_a_squeeze_is_stopped_within_a_second_of_the_decision(
    engine: PrivateEngine, container_name: str, start: Start, floor: int, busy: int
) -> None:
    watchdog = start()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        launch(engine, container_name, GROW, floor)
        assert wait_until(lambda: bool(watchdog.entries), 60), "the guard has acted"
        assert wait_until(lambda: not state(engine, container_name)["Running"], 20)
    finally:
        for other in others:
            other.kill()
            other.wait()
    [entry] = watchdog.entries
    assert entry["act"] == "stop the engine"
    assert entry["engine"] == container_name
    assert "below the floor" in entry["reason"]
    assert -0.2 < asked_to_stop_at(engine, container_name) - float(entry["at_seconds"]) < 1.0
    if not busy:
        took = seconds_between(entry, watchdog.entries, state(engine, container_name)["FinishedAt"])
        plain_stop = seconds_of_a_plain_stop(engine, f"{container_name}-plain", floor)
        assert -0.2 < took < 1.0 + plain_stop, "the guard adds less than a second to Docker's stop"
    assert wait_until(lambda: usable_now() > GIB, 5)
    time.sleep(1.5)  # a restart policy that Docker was not told about would have acted by now
    assert not state(engine, container_name)["Running"], "it stays stopped"


def test_one_that_ignores_sigterm_is_killed_after_its_grace(
    engine: PrivateEngine, container_name: str, start: Start, floor: int
) -> None:
    watchdog = start()
    launch(engine, container_name, GROW.replace("'exit 0'", "''"), floor)
    assert wait_until(lambda: len(watchdog.entries) == 2, 60)
    assert wait_until(lambda: not state(engine, container_name)["Running"], 5)
    assert [entry["act"] for entry in watchdog.entries] == ["stop the engine", "kill the engine"]
    first, second = (float(entry["at_seconds"]) for entry in watchdog.entries)
    assert second - first == pytest.approx(10.0, abs=1.0)
    assert state(engine, container_name)["ExitCode"] == 137


def test_an_engine_that_fits_and_a_container_that_is_none_of_ours_are_left_alone(
    engine: PrivateEngine, container_name: str, start: Start, floor: int
) -> None:
    watchdog = start()
    launch(engine, container_name, GROW, floor, ours=False)
    assert wait_until(lambda: usable_now() < floor - 256 * MIB, 60), "the squeeze is on"
    time.sleep(2)
    assert watchdog.entries == []
    assert state(engine, container_name)["Running"]


def test_with_every_engine_a_foreign_one_is_stopped_too(
    engine: PrivateEngine, container_name: str, start: Start, floor: int
) -> None:
    watchdog = start("--every-engine")
    launch(engine, container_name, GROW, floor, ours=False)
    assert wait_until(lambda: not state(engine, container_name)["Running"], 60)
    assert watchdog.entries[0]["engine"] == container_name


def test_it_cannot_be_swapped_out_or_taken_for_an_engine(start: Start) -> None:
    watchdog = start()

    def read_status() -> dict[str, str]:
        return dict(line.split(":", 1) for line in watchdog.proc("status").splitlines())

    status = read_status()
    capabilities = int(status["CapEff"], 16)
    if capabilities >> CAP_SYS_RESOURCE & 1:
        assert wait_until(lambda: int(watchdog.proc("oom_score_adj")) == -900, 5)
    if capabilities >> CAP_IPC_LOCK & 1:
        locked = wait_until(lambda: int(read_status()["VmLck"].split()[0]) * 1024 > 10 * MIB, 20)
        assert locked, "its memory is locked"
    assert "python" not in status["Name"]
    assert "vllm" not in status["Name"]


def test_looking_costs_under_half_a_per_cent_of_a_core_and_it_ends_when_told(start: Start) -> None:
    watchdog = start()
    time.sleep(2)
    shares: list[float] = []
    while len(shares) < 5 and min(shares, default=1.0) >= 0.005 + 0.01 / 8:  # a busy machine makes the same work dearer
        began, before = time.monotonic(), watchdog.cpu_seconds
        time.sleep(8)
        shares.append((watchdog.cpu_seconds - before) / (time.monotonic() - began))
    assert min(shares) < 0.005 + 0.01 / 8, f"{shares} of a core (the kernel counts in hundredths of a second)"
    assert watchdog.end() == 0


def test_there_is_one_guard_and_its_deeds_are_kept(
    engine: PrivateEngine, container_name: str, start: Start, floor: int, environment: dict[str, str]
) -> None:
    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "spark_tui", "guard", *words], env=environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    assert json.loads(ask("--status", "--json").stdout)["running"] is False
    watchdog = start()
    second = ask()
    assert second.returncode == 4
    assert "A guard is already running" in second.stderr
    launch(engine, container_name, GROW, floor)
    assert wait_until(lambda: bool(watchdog.entries), 60)
    told = json.loads(ask("--status", "--json").stdout)
    assert told["running"] is True
    assert told["entries"][-1]["engine"] == container_name
    assert container_name in ask("--status").stdout
    watchdog.end()
    assert json.loads(ask("--status", "--json").stdout)["running"] is False


def test_a_crash_loop_that_nobody_watches_is_ended_with_its_cause(
    engine: PrivateEngine, container_name: str, start: Start
) -> None:
    watchdog = start()
    labels = (f"--label={LABEL_RUNTIME}=vllm", f"--label={LABEL_PRESET}=hog")
    engine.docker(
        "run", "--detach", "--name", container_name, "--network", "none", "--restart", "unless-stopped", *labels,
        BUSYBOX, "sh", "-c", 'sleep 2; printf "%s\\n" "$1"; exit 1', "sh", PROOF,
    )  # fmt: skip
    assert wait_until(lambda: bool(watchdog.entries), 90)
    [entry] = watchdog.entries
    assert entry["act"] == "end the crash loop"
    assert "restarting does not help" in entry["reason"]
    time.sleep(3.0)
    found = json.loads(engine.docker("inspect", "--format", "{{json .}}", container_name))
    assert not found["State"]["Running"]
    assert found["RestartCount"] <= 3


def test_a_launch_is_guarded_without_asking_and_the_guard_outlives_what_started_it(
    engine: PrivateEngine, container_name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "spark-tui" / "presets"
    folder.mkdir(parents=True)
    (folder / "small.yaml").write_text(
        f'recipe_version: "2"\nmodel: some/model\nruntime: vllm\ncontainer: {BUSYBOX}\ncommand: sleep 600\n'
        "executor_config:\n  accelerator_vendor: cpu\n",
        encoding="utf-8",
    )

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "spark_tui", *words], env=environment, capture_output=True, text=True, timeout=120
        )

    up = ask("up", "small", "--no-wait", "--no-fetch", "--force")
    assert up.returncode == 0, up.stderr
    told = json.loads(ask("guard", "--status", "--json").stdout)
    assert told["running"] is True
    [pid] = guards_of(tmp_path)
    os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not guards_of(tmp_path), 20)


def guards_of(home: Path) -> list[int]:
    """The guards that were started for that home by themselves."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            theirs = f"HOME={home}\0".encode() in path.read_bytes()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if theirs and b"--while-engines-run" in command:
            found.append(int(path.parent.name))
    return found
