"""One model on two real hosts: launched, proven, broken and stopped from a desk by ssh, Docker and vLLM."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spark_tui.manage.cluster.use.launch import CHECK_SECONDS
from tests.real.lab import Lab, Rig
from tests.real.lab.cluster import FABRIC_A, LAN, NUMBERS, WIFI
from tests.real.lab.engine import write_program
from tests.real.lab.models import TINY
from tests.real.lab.node import CHECKOUT
from tests.real.lab.support import processes_naming, send, wait_until
from tests.real.lab.vllm_image import SERVE_TAG

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

NAME, QUICK, STRICT = "pair", "mimic", "strict"
"""vLLM itself, and a double of it that starts in seconds: what ends ranks, nodes and programs needs no real model. The
last is the double with little patience for the other ranks."""
UP_SECONDS = 400
CUT_SECONDS = 12
KILLS = int(os.environ.get("SPARK_TUI_KILLS", "2"))
"""How many random moments a launch is broken at."""
PRESET = """\
recipe_version: "2"
name: {name}
model: /models/{tiny}
runtime: vllm
container: {image}
min_nodes: 2
defaults: {{port: 8000, max_model_len: 512, max_num_seqs: 4}}
env:
  OMP_NUM_THREADS: "1"
  VLLM_CPU_OMP_THREADS_BIND: nobind
  TORCHDYNAMO_DISABLE: "1"
  {env}
command: >-
  vllm serve {{model}} --host 127.0.0.1 --port {{port}} --served-model-name m
  --max-model-len {{max_model_len}} --max-num-seqs {{max_num_seqs}} --enforce-eager --kv-cache-memory-bytes 64M
  --distributed-timeout-seconds {seconds} --cpu-distributed-timeout-seconds {seconds}
"""
DOUBLE = "double/vllm/entrypoints/cli/main.py"
"""Below the models: what the image's `vllm` imports is found there first."""
DOUBLE_ENV = "PYTHONPATH: /models/double"


def preset_text(name: str) -> str:
    env, seconds = ("" if name == NAME else DOUBLE_ENV), (6 if name == STRICT else 60)
    return PRESET.format(name=name, env=env, seconds=seconds, tiny=TINY, image=SERVE_TAG)


def furnished(rig: Rig, lab: Lab) -> Path:
    """A model store that both nodes see, with the model and the double."""
    store = rig.share / "store"
    shutil.copytree(lab.store / TINY, store / TINY, dirs_exist_ok=True)
    for name in ("", "entrypoints", "entrypoints/cli"):
        (store / "double/vllm" / name).mkdir(parents=True, exist_ok=True)
        (store / "double/vllm" / name / "__init__.py").touch()
    shutil.copy(CHECKOUT / "tests/real/lab/rank_double.py", store / DOUBLE)
    return store


class Desk:
    """A person's machine beside the two: spark-tui with a home of its own, and the nodes by ssh."""

    def __init__(self, rig: Rig, lab: Lab, home: Path) -> None:
        self.rig = rig
        self.home = home
        self.settings = home / "config/spark-tui"
        (self.settings / "presets").mkdir(parents=True)
        for name in (NAME, QUICK, STRICT):
            (self.settings / "presets" / f"{name}.yaml").write_text(preset_text(name))
        store = furnished(rig, lab)
        self.there = f"env PYTHONPATH={CHECKOUT} SPARK_TUI_STORE={store} {sys.executable} -m spark_tui"
        self.hosts = {f"spark-{number}": self.there for number in NUMBERS}
        self.clusters = {
            "duo": [("spark-1", FABRIC_A.name), ("spark-2", FABRIC_A.name)],
            "odd": [("spark-1", FABRIC_A.name), ("spark-2", "enp1s0f1np1")],
        }
        self.write_settings()
        self.unset: set[str] = set()
        run = rig.runtime / "cluster-run"  # short, as a socket's path must be
        run.mkdir(mode=0o700, exist_ok=True)
        self.environment = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_RUNTIME_DIR": str(run),
            "SPARK_TUI_STORE": str(store),
            "DOCKER_HOST": f"unix://{home}/no-docker.sock",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(CHECKOUT),
        }

    def write_settings(self) -> None:
        lines = ["[hosts]"]
        lines += [f'{name} = {{ ssh = "{name}", command = {json.dumps(there)} }}' for name, there in self.hosts.items()]
        for name, nodes in self.clusters.items():
            ends = (
                f'{{ ssh = "{host}", fabric = ["{FABRIC_A.address(number)}"], interfaces = ["{interface}"] }}'
                for number, (host, interface) in zip(NUMBERS, nodes, strict=True)
            )
            lines += [f"[clusters.{name}]", f"nodes = [{', '.join(ends)}]"]
        (self.settings / "settings.toml").write_text("\n".join([*lines, ""]))

    def reached_by(self, name: str, *options: str, command: str = "") -> None:
        """A cluster of that name, whose second node is reached by ssh with these options."""
        self.rig.alias(name, 2, *options)
        self.hosts[name] = command or self.there
        self.clusters[name] = [("spark-1", FABRIC_A.name), (name, FABRIC_A.name)]
        self.write_settings()

    def argv(self, *arguments: str, **variables: str) -> list[str]:
        environment = self.environment | variables
        words = [f"{name}={value}" for name, value in environment.items() if name not in self.unset]
        return self.rig.desk_argv(["env", *words, sys.executable, "-m", "spark_tui", *arguments])

    def run(self, *arguments: str, code: int = 0, seconds: float = UP_SECONDS) -> str:
        """What it prints to stdout; fails on another exit code."""
        done = subprocess.run(self.argv(*arguments), capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, preset: str, cluster: str) -> Any:
        """The error of a launch."""
        words = self.argv("up", preset, "--nodes", cluster, "--json")
        done = subprocess.run(words, capture_output=True, text=True, timeout=UP_SECONDS, check=False)
        assert done.stderr, done
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert done.returncode == error["exit_code"] != 0, error
        assert error["remedy"]
        return error

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return started(self.argv(*arguments))

    def status(self) -> Any:
        return json.loads(self.run("cluster", "status", "--json"))

    def answered(self, name: str = NAME) -> bool:
        """Whether the model answers; with what, a tiny model may leave empty."""
        told = self.run("--host", "spark-1", "--json", "chat", name, "-m", "Hello", "--max-tokens", "8")
        return all(json.loads(line) for line in told.splitlines()) and bool(told)

    def until(self, holds: Callable[[Any], bool]) -> Any:
        """The one launch, as soon as that holds of it."""
        found: list[Any] = []

        def look() -> bool:
            found[:] = self.status()
            return len(found) == 1 and holds(found[0])

        assert wait_until(look, UP_SECONDS, pause=1), found
        return found[0]

    def containers(self) -> list[str]:
        """`spark-1 pair`: what is on the nodes, running or not."""
        found = []
        for number in NUMBERS:
            node = self.rig.node(number)
            names = node.engine.docker("ps", "--all", "--format", "{{.Names}} {{.State}}").splitlines()
            found += [f"{node.name} {name}" for name in names]
        return found

    def running(self) -> list[str]:
        return [line.removesuffix(" running") for line in self.containers() if line.endswith(" running")]

    def watchers(self) -> list[int]:
        """The programs that watch a launch from this desk."""
        lines = ((pid, Path(f"/proc/{pid}/environ").read_bytes()) for pid in processes_naming("cluster watch"))
        return [pid for pid, variables in lines if str(self.home).encode() in variables]

    def left(self) -> list[str]:
        """All that a launch may leave: containers, shared memory, listeners and work on the nodes, what is written
        down here."""
        found = [*self.containers(), *(f"launch {each['id']}" for each in self.status())]
        for number in NUMBERS:
            node = self.rig.node(number)
            found += [f"{node.name} {line}" for line in node.run(["ls", "/dev/shm"]).split()]
            listening = node.run(["cat", "/proc/net/tcp"])
            found += [
                f"{node.name} port {port}" for port in (8000, 29501) if f":{port:04X} 00000000:0000 0A" in listening
            ]
            processes = node.run(["ps", "-eo", "args="]).splitlines()
            found += [f"{node.name} {line}" for line in processes if "spark_tui node" in line]
            lease = node.try_run(["cat", "/root/.local/state/spark-tui/launches/node-lease.json"]).stdout
            long = bool(lease) and json.loads(lease)["until"] > time.time() + CHECK_SECONDS
            found += [f"{node.name} {lease}"] * long
        return found


def until_step(process: subprocess.Popen[str], step: str) -> None:
    """Reads on until that step of a launch begins."""
    assert process.stdout is not None
    told = []
    for line in process.stdout:
        told.append(line)
        if line.startswith("{") and json.loads(line).get("id") == step:
            return
    pytest.fail(f"{step} never began: {''.join(told)}")


def started(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip


@pytest.fixture(scope="module")
def desk(vllm_lab: Lab, rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    rig.load_image(SERVE_TAG)
    desk = Desk(rig, vllm_lab, tmp_path_factory.mktemp("desk"))
    yield desk
    for name in (NAME, QUICK):
        subprocess.run(desk.argv("down", name), capture_output=True, timeout=200, check=False)


@pytest.fixture
def serving(desk: Desk) -> Iterator[Desk]:
    """The model on both nodes; a test that ends it leaves the next one to launch it again."""
    if desk.running() != BOTH:
        desk.run("up", NAME, "--nodes", "duo", "--json")
    yield desk


@pytest.fixture
def idle(desk: Desk) -> Desk:
    """Nothing on either node."""
    for each in desk.status():
        desk.run("down", each["id"])
    assert desk.containers() == []
    return desk


@pytest.fixture
def quick(idle: Desk) -> Desk:
    """The double on both nodes."""
    idle.run("up", QUICK, "--nodes", "duo", "--json")
    return idle


@pytest.fixture
def unshared(idle: Desk) -> Iterator[Desk]:
    """Each question by a connection of its own."""
    idle.unset.add("XDG_RUNTIME_DIR")
    yield idle
    idle.unset.clear()


@pytest.fixture
def greeting(desk: Desk) -> Iterator[None]:
    """A login shell that prints: fish where the machine has it, which reads no command of a Bourne shell."""
    node, fish = desk.rig.node(2), shutil.which("fish", path="/usr/bin:/bin")
    rc = "/root/.config/fish/config.fish" if fish else "/root/.bashrc"
    node.run(["sh", "-c", f"mkdir -p $(dirname {rc}) && echo 'echo Welcome to spark-2' > {rc}"])
    node.run(["sh", "-c", f"sed -i.before 's|^\\(root:.*:\\).*|\\1{fish or '/bin/bash'}|' /etc/passwd"])
    yield
    node.run(["sh", "-c", f"mv /etc/passwd.before /etc/passwd && rm {rc}"])


BOTH = ["spark-1 pair", "spark-2 pair-rank1"]


# --- vLLM itself ------------------------------------------------------------------------------------------


def test_a_model_is_launched_on_both_nodes_and_answers(idle: Desk, greeting: None) -> None:
    steps = [json.loads(line) for line in idle.run("up", NAME, "--nodes", "duo", "--json").splitlines()]
    assert steps[-1]["stage"] == "ready"
    done = [step["id"] for step in steps if step.get("state") == "done"]
    assert done == ["nodes", "clear", "workers", "head", "follow", "ready"]
    assert idle.running() == BOTH
    (launch,) = idle.status()
    assert launch["states"] == ["running", "running"]
    assert idle.answered()
    lines = [json.loads(line) for line in idle.run("cluster", "logs", NAME, "--json").splitlines()]
    assert {line["node"] for line in lines} == {"spark-1", "spark-2"}
    listed = idle.run("--host", "spark-2", "ps", "--json")
    (rank,) = json.loads(listed[listed.index("[") :])  # after what that shell prints
    assert (rank["state"], rank["port"]) == ("running", None), "a headless rank is no engine that never becomes ready"


LONG_ANSWER = """
import json, sys, urllib.request
body = {"model": "m", "prompt": "Hello", "max_tokens": 480, "ignore_eos": True, "stream": True}
url = "http://127.0.0.1:8000/v1/completions"
asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
while True:
    for line in urllib.request.urlopen(asked, timeout=300):
        print(line.decode().strip(), flush=True)
"""
"""Answers one after the other, for ever."""


def test_a_rank_killed_in_mid_answer_takes_the_other_with_it_and_both_start_again(serving: Desk) -> None:
    (before,) = serving.status()
    node = serving.rig.node(1)
    with subprocess.Popen(node.argv([sys.executable, "-c", LONG_ANSWER]), stdout=subprocess.PIPE, text=True) as answer:
        assert answer.stdout is not None
        assert answer.stdout.readline().startswith("data: ")
        serving.rig.node(2).engine.docker("kill", "pair-rank1")
        answer.communicate(timeout=UP_SECONDS)
    assert answer.returncode, "the answer under way is cut off, and not silent for ever"
    serving.until(lambda now: now["launch_id"] != before["launch_id"] and now["stage"] == "ready")
    assert serving.running() == BOTH
    assert serving.answered()


def test_a_link_that_is_lost_in_mid_run_is_named_and_all_ranks_are_stopped(serving: Desk) -> None:
    serving.rig.link(2, FABRIC_A.name, up=False)
    try:
        assert serving.status()[0]["states"] == ["running", "running"], "no container says so"
        launch = serving.until(lambda now: now["stage"] == "broken")
        assert f"{FABRIC_A.name} of spark-2" in launch["problem"]
        assert serving.containers() == []
        error = serving.refused(NAME, "duo")
        assert (error["id"], FABRIC_A.name in error["summary"]) == ("refused", True)
    finally:
        serving.rig.link(2, FABRIC_A.name, up=True)
    stopped = json.loads(serving.run("down", NAME, "--json"))
    assert [node["clean"] for node in stopped["nodes"]] == [True, True]
    assert serving.left() == [], "no shared memory either"


def test_a_firewall_between_the_ranks_is_found_in_their_logs(idle: Desk) -> None:
    idle.rig.firewall(1, FABRIC_A.name, 29501)
    try:
        error = idle.refused(STRICT, "duo")
    finally:
        idle.rig.firewall(1, FABRIC_A.name, 29501, closed=False)
    assert (error["exit_code"], error["id"]) == (1, "cluster_failed")
    assert "spark-" in error["summary"]
    assert "29501" in error["detail"] or "1/2 clients" in error["detail"], "the line of the log that says so"
    assert idle.left() == []


def test_a_worker_that_is_killed_while_it_boots_is_named(idle: Desk) -> None:
    with idle.start("up", QUICK, "--nodes", "duo", "--json") as process:
        until_step(process, "follow")
        idle.rig.node(2).engine.docker("kill", f"{QUICK}-rank1")
        told = process.communicate(timeout=UP_SECONDS)[0]
    error = json.loads(told.splitlines()[-1])["error"]
    assert (process.returncode, error["id"]) == (1, "cluster_failed"), error
    assert "spark-2" in error["summary"]
    assert idle.left() == []


# --- refused before anything starts -----------------------------------------------------------------------


def test_what_a_node_lacks_or_has_otherwise_is_refused_before_anything_starts(idle: Desk) -> None:
    """A port that is taken; then a worker without the image, with another of that name, with a model of another size,
    and without the model."""
    node = idle.rig.node(1)
    node.engine.docker("run", "--detach", "--name", "web", "--network", "host", "spark-tui/busybox:1", "httpd", "-f",
                       "-p", "29501")  # fmt: skip
    try:
        assert idle.refused(QUICK, "duo")["id"] == "port_in_use"
    finally:
        node.engine.docker("rm", "--force", "web")
    other = idle.rig.node(2).engine
    other.docker("tag", SERVE_TAG, "kept:1")
    other.docker("rmi", SERVE_TAG)
    try:
        assert "does not have the image" in idle.refused(QUICK, "duo")["summary"]
        other.docker("tag", "spark-tui/busybox:1", SERVE_TAG)
        assert "of spark-2 differs" in idle.refused(QUICK, "duo")["summary"]
    finally:
        other.docker("tag", "kept:1", SERVE_TAG)
        other.docker("rmi", "kept:1")
    weights = idle.rig.share / "store" / TINY / "model.safetensors"
    there = idle.rig.node(2)
    there.run(["sh", "-c", f"(cat {weights}; echo) > /root/longer && mount --bind /root/longer {weights}"])
    try:
        size = weights.stat().st_size
        summary = idle.refused(QUICK, "duo")["summary"]
        assert f"{size:,} bytes on spark-1, {size + 1:,} bytes on spark-2" in summary
    finally:
        there.run(["sh", "-c", f"umount {weights}; rm /root/longer"])
    there.run(["mount", "-t", "tmpfs", "tmpfs", weights.parent])
    try:
        assert "does not have the model" in idle.refused(QUICK, "duo")["summary"]
    finally:
        there.run(["umount", weights.parent])
    assert idle.containers() == []


@pytest.mark.parametrize(
    ("options", "command", "id_", "says", "remedy"),
    [
        (["PreferredAuthentications password"], "", "node_silent", "Permission denied", "ssh-copy-id"),
        (["UserKnownHostsFile {wrong}"], "", "node_silent", "Host key verification failed", "ssh-keygen -R"),
        ([], "/opt/none/spark-tui", "node_silent", "not installed", "Install it"),
        ([], "{share}/protocol-0", "node_version", "protocol 0", "cluster install"),
        ([], "{share}/older", "node_version", "older", "cluster install"),
        (["ProxyCommand sleep 300"], "", "node_silent", "timed out", "ssh"),
    ],
    ids=["password", "host-key", "absent", "protocol", "older", "deaf"],
)
def test_a_node_that_ssh_does_not_work_is_refused_with_its_sentence(
    unshared: Desk, request: pytest.FixtureRequest, options: list[str], command: str, id_: str, says: str, remedy: str
) -> None:
    wrong, share = unshared.home / "wrong", unshared.rig.share
    wrong.write_text(f"{WIFI.address(2)} {(unshared.rig.root / 'keys/host-spark-1.pub').read_text()}")
    for program, text in (("older", "exit 2"), ("protocol-0", """echo '{"protocol":0,"version":"0.1"}'""")):
        write_program(share / program, f"#!/bin/sh\n{text}\n")
    name = f"bad-{request.node.callspec.id}"
    unshared.reached_by(name, *(each.format(wrong=wrong) for each in options), command=command.format(share=share))
    began = time.monotonic()
    error = unshared.refused(QUICK, name)
    assert time.monotonic() - began < 60
    assert (error["id"], says in error["summary"], remedy in error["remedy"]) == (id_, True, True), error
    assert unshared.left() == []


def test_an_interface_that_a_node_does_not_have_and_a_node_without_ssh_are_refused(idle: Desk) -> None:
    assert "enp1s0f1np1" in idle.refused(QUICK, "odd")["summary"]
    idle.rig.firewall(2, LAN.name, 22)
    try:
        error = idle.refused(QUICK, "duo")
    finally:
        idle.rig.firewall(2, LAN.name, 22, closed=False)
    assert (error["exit_code"], "spark-2" in error["summary"]) == (3, True)
    assert idle.left() == []


@pytest.mark.parametrize("address", ["192.168.100.77", "127.0.0.1"])
def test_an_address_that_is_not_the_heads_is_refused(idle: Desk, address: str) -> None:
    path = idle.settings / "settings.toml"
    before = path.read_text()
    path.write_text(before.replace(f'"{FABRIC_A.address(1)}"', f'"{address}"'))
    try:
        error = idle.refused(QUICK, "duo")
    finally:
        path.write_text(before)
    assert address in error["summary"], error
    assert idle.left() == []


def test_of_two_people_at_once_one_gets_the_nodes(idle: Desk, tmp_path: Path) -> None:
    """Each from a machine of their own."""

    def other(*arguments: str) -> list[str]:
        machine = ("unshare", "--uts", "sh", "-c", 'hostname other; exec "$0" "$@"')
        return [*machine, *idle.argv(*arguments, XDG_STATE_HOME=str(tmp_path))]

    words = ("up", QUICK, "--nodes", "duo", "--json")
    with idle.start(*words) as mine, started(other(*words)) as theirs:
        told = [each.communicate(timeout=UP_SECONDS)[0] for each in (mine, theirs)]
    assert sorted((mine.returncode, theirs.returncode)) == [0, 4], told
    assert len(idle.running()) == 2
    down = idle.argv("down", QUICK) if mine.returncode == 0 else other("down", QUICK)
    subprocess.run(down, capture_output=True, timeout=UP_SECONDS, check=True)
    assert wait_until(lambda: idle.left() == [], 30), idle.left()


@pytest.mark.parametrize("step", ["nodes", "clear", "workers", "head", "follow", "ready"])
def test_ssh_that_is_cut_in_a_step_leaves_all_of_it_or_nothing(idle: Desk, step: str) -> None:
    with idle.start("up", QUICK, "--nodes", "duo", "--json") as process:
        until_step(process, step)
        idle.rig.firewall(2, LAN.name, 22)
        try:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=CUT_SECONDS)
        finally:
            idle.rig.firewall(2, LAN.name, 22, closed=False)
        process.communicate(timeout=UP_SECONDS)
    assert process.returncode in (0, 1, 3)
    settle(idle)


# --- what ends ranks, nodes and programs ------------------------------------------------------------------

DELAY = """
import os, select, socket, sys, time
link, queue = socket.create_connection((sys.argv[1], 22)), []
ends = {0: link.fileno(), link.fileno(): 1}
while ends or queue:
    wait = max(0, queue[0][0] - time.monotonic()) if queue else None
    for end in select.select(list(ends), [], [], wait)[0]:
        data = os.read(end, 65536)
        queue.append((time.monotonic() + 1, ends[end], data))
        if not data:
            del ends[end]
    while queue and queue[0][0] <= time.monotonic():
        _, end, data = queue.pop(0)
        if not data:
            sys.exit()
        while data:
            data = data[os.write(end, data):]
"""


def test_a_node_that_answers_after_two_seconds_is_worked(idle: Desk) -> None:
    delay = idle.home / "delay.py"
    delay.write_text(DELAY)
    idle.reached_by("slow", f"ProxyCommand {sys.executable} {delay} %h")
    idle.run("up", QUICK, "--nodes", "slow", "--json", seconds=200)
    assert len(idle.running()) == 2
    idle.run("down", QUICK, seconds=100)
    assert idle.left() == []


def kill_both(desk: Desk) -> None:
    for number, name in zip(NUMBERS, (QUICK, f"{QUICK}-rank1"), strict=True):
        desk.rig.node(number).engine.try_docker("kill", name)  # the worker may have followed its head


def kill_head(desk: Desk) -> None:
    desk.rig.node(1).engine.docker("kill", QUICK)


def reboot(desk: Desk) -> None:
    desk.rig.plug(2, False)
    desk.rig.plug(2, True)


def restart_docker(desk: Desk) -> None:
    desk.rig.node(2).restart_docker()


def test_what_ends_ranks_starts_them_again_three_times_an_hour_also_after_the_desks_own_end(quick: Desk) -> None:
    (watcher,) = quick.watchers()
    send(watcher, signal.SIGKILL)
    assert wait_until(lambda: not quick.watchers(), 20)
    (before,) = quick.status()
    assert wait_until(lambda: len(quick.watchers()) == 1, 20), "asking for the status has it watched again"
    for count, fault in enumerate((reboot, restart_docker, kill_both), 1):
        fault(quick)
        after = quick.until(lambda now, last=before: now["launch_id"] != last["launch_id"] and now["stage"] == "ready")
        assert after["restarts"] == count
        assert after["problem"]
        assert len(quick.running()) == 2
        before = after
    kill_head(quick)
    broken = quick.until(lambda now: now["stage"] == "broken")
    assert f"{QUICK} on spark-1 has ended" in broken["problem"]
    assert quick.containers() == []
    quick.run("down", QUICK)
    assert quick.left() == []


def test_an_mtu_that_changes_in_mid_run_is_named_and_all_ranks_start_again(quick: Desk) -> None:
    (before,) = quick.status()
    quick.rig.mtu(2, FABRIC_A.name, 1500)
    try:
        after = quick.until(lambda now: now["launch_id"] != before["launch_id"] and now["stage"] == "ready")
    finally:
        quick.rig.mtu(2, FABRIC_A.name, FABRIC_A.mtu)
    assert f"MTU 1500 at {FABRIC_A.name} of spark-2" in after["problem"]
    assert "no token" in after["problem"]


def test_a_node_without_power_is_remembered_and_cleaned_when_it_is_back(quick: Desk) -> None:
    quick.rig.plug(2, False)
    try:
        stopped = json.loads(quick.run("down", QUICK, "--json", code=1))
        assert [node["clean"] for node in stopped["nodes"]] == [True, False]
    finally:
        quick.rig.plug(2, True)
    assert quick.status() == [], "what is left is finished as soon as it can be"
    assert quick.left() == []


@pytest.mark.parametrize("step", ["nodes", "clear", "workers", "head", "follow", "ready"])
def test_a_desk_that_dies_in_a_step_leaves_what_the_next_start_undoes(idle: Desk, step: str) -> None:
    with idle.start("up", QUICK, "--nodes", "duo", "--json") as process:
        until_step(process, step)
        os.killpg(process.pid, signal.SIGKILL)
    settle(idle)


def settle(desk: Desk) -> None:
    """Asks for the status until the launch serves or is gone; then it is stopped, and nothing is left."""
    deadline = time.monotonic() + UP_SECONDS
    while (found := desk.status()) and found[0]["stage"] != "ready" and time.monotonic() < deadline:
        time.sleep(0.5)
    assert len(desk.running()) == 2 * len(found), "all of it or nothing"
    for each in found:
        desk.run("down", each["id"])
    assert wait_until(lambda: desk.left() == [], 30), desk.left()


@pytest.mark.parametrize("seed", range(KILLS))
def test_nothing_is_left_whatever_is_killed_at_a_random_moment(idle: Desk, seed: int) -> None:
    """SPARK_TUI_KILLS says how many moments."""
    chance = random.Random(seed)
    victim, then = chance.choice(["desk", "desk", "head", "worker"]), chance.choice(["up", "status", "down"])
    moment = chance.uniform(0, 12)
    print(f"{victim} killed after {moment:.1f} s, then {then}")
    with idle.start("up", QUICK, "--nodes", "duo", "--json") as process:
        reading = threading.Thread(target=lambda: process.stdout and process.stdout.read(), daemon=True)
        reading.start()
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        if victim == "desk":
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            number, name = (1, QUICK) if victim == "head" else (2, f"{QUICK}-rank1")
            idle.rig.node(number).engine.try_docker("kill", name)
        process.wait(UP_SECONDS)
        reading.join(20)
    if then == "up":
        subprocess.run(
            idle.argv("up", QUICK, "--nodes", "duo", "--replace", "--json"), capture_output=True, timeout=UP_SECONDS,
            check=False,
        )  # fmt: skip
    if then == "down":
        subprocess.run(idle.argv("down", QUICK), capture_output=True, timeout=UP_SECONDS, check=False)
    settle(idle)
