"""Faults planted on a host of its own, with its own Docker: an engine in each state, a Docker that freezes, sixty
containers. The engine is a double of vLLM: what is asked is what is around it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.pty_app import PtyApp
from tests.real.lab import Lab, Rig
from tests.real.lab.images import ensure_busybox
from tests.real.lab.node import Node
from tests.real.lab.support import wait_until
from tests.real.lab.vllm_image import SERVE_TAG
from tests.real.test_cluster import DOUBLE_ENV, PRESET, furnished
from tests.real.test_cluster import TINY as MODEL

NAME = "solo"
READY_SECONDS = 120
FROZEN_SECONDS = 240
"""A look at Docker every half a minute waits half a minute for its answer; a slow machine needs more."""
ENGINES = 60
MANY = "vllm/many:1"


@pytest.fixture(scope="module")
def node(vllm_lab: Lab, rig: Rig) -> Iterator[Node]:
    """The first host, with the double as a preset for one node."""
    rig.load_image(SERVE_TAG)
    node = rig.node(1)
    store = furnished(rig, vllm_lab)
    text = PRESET.format(name=NAME, env=DOUBLE_ENV, seconds=60, tiny=MODEL, image=SERVE_TAG)
    files = {"settings.toml": f'store = "{store}"\n', f"presets/{NAME}.yaml": text.replace("min_nodes: 2\n", "")}
    for name, content in files.items():
        path = f"/root/.config/spark-tui/{name}"
        node.run(["sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}"], stdin=content.encode())
    yield node
    node.engine.try_docker("rm", "--force", NAME)


@pytest.fixture
def engine(node: Node) -> Node:
    """With the engine ready, whatever the test before did to it."""
    if state(node) != "ready":
        node.engine.try_docker("rm", "--force", NAME)
        spark_tui(node, "up", NAME)
    return node


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "spark_tui", *words]


def spark_tui(node: Node, *words: str, code: int = 0) -> list[dict[str, object]]:
    """The array or the lines of JSON that the program prints there; fails unless it ends with `code`."""
    done = node.try_run(program(*words, "--json"), timeout=READY_SECONDS + 60)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    if done.stdout.startswith("["):
        return list(json.loads(done.stdout))
    return [json.loads(line) for line in done.stdout.splitlines()]


def state(node: Node) -> object:
    return next((row["state"] for row in spark_tui(node, "ps", "-a") if row["id"] == NAME), None)


def dockerd(node: Node) -> int:
    """Its process as the node numbers it."""
    return int(node.run(["cat", "/var/run/docker.pid"]))


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    """With a Docker that takes connections and answers none."""
    pid = str(dockerd(node))
    node.run(["kill", "-STOP", pid])
    try:
        yield
    finally:
        node.run(["kill", "-CONT", pid])


# --- restart in each state --------------------------------------------------------------------------------------

PID = ("inspect", "--format", "{{.State.Pid}}")
STATES: dict[str, Callable[[Node], object]] = {
    "ready": lambda node: None,
    "stopped": lambda node: node.engine.docker("stop", NAME),
    "killed": lambda node: node.engine.docker("kill", NAME),
    "paused": lambda node: node.engine.docker("pause", NAME),
    "loading": lambda node: node.engine.docker("restart", "--time", "0", NAME),
    "not responding": lambda node: node.run(["kill", "-STOP", node.engine.docker(*PID, NAME).strip()]),
}


@pytest.mark.parametrize("before", STATES)
def test_a_restart_brings_an_engine_of_any_state_back(engine: Node, before: str) -> None:
    STATES[before](engine)
    result = spark_tui(engine, "restart", NAME, "--wait", "--timeout", "5", "--yes")[-1]
    assert (result["id"], result["state"]) == (NAME, "ready")
    assert wait_until(lambda: state(engine) == "ready", 30)  # one probe may be late on a busy machine


# --- a Docker that freezes under the open screen ------------------------------------------------------------------


def test_a_frozen_docker_holds_up_no_key_and_no_chat_and_is_over_when_it_goes_on(engine: Node) -> None:
    env = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with PtyApp(engine.argv(program(), env), env=os.environ, rows=40) as app:
        app.wait_for("docker OK", f"{NAME} ready", timeout=60)
        with frozen(engine):
            for _ in range(2):
                for key, seen in (("3", "gpt-oss-120b"), ("5", "decode"), ("8", "Doctor"), ("1", "[1 Home]")):
                    app.send(key)
                    app.wait_for(seen, timeout=60)
            app.send("6")
            app.wait_for("Message to m")
            app.send(*"ping", "enter")
            app.wait_for("pong", "ttft", timeout=60)
            app.wait_for("docker UNREACHABLE", timeout=FROZEN_SECONDS)
        app.wait_for("docker OK", timeout=FROZEN_SECONDS)
        app.send("esc")
        app.wait_for("Enter Write")
        app.send("1")
        app.wait_for("[1 Home]", f"{NAME} ready", timeout=60)
        app.send("q")
        assert app.wait_end(timeout=60) == 0


def test_a_command_says_that_docker_is_frozen_and_what_to_do(engine: Node) -> None:
    with frozen(engine):
        started = time.monotonic()
        done = engine.try_run(program("ps"), timeout=120)
        took = time.monotonic() - started
    assert done.returncode == 3
    assert took < 25  # it gives up after ten seconds, one call of Docker's own client after thirty
    assert "Docker" in done.stderr
    assert "systemctl" in done.stderr


# --- sixty containers -------------------------------------------------------------------------------------------


def test_sixty_containers_are_listed_and_the_last_is_reached_by_keys(engine: Node, lab: Lab) -> None:
    ensure_busybox(engine.engine, lab.toolbox, MANY)
    names = [f"many-{number:02}" for number in range(ENGINES)]
    words = "for name in " + " ".join(names) + f"; do docker create --name $name {MANY} sleep 1000; done"
    engine.run(["sh", "-c", words])
    try:
        engine.engine.docker("start", *names[:10])
        rows = {row["id"]: row["state"] for row in spark_tui(engine, "ps", "-a")}
        assert set(names) <= rows.keys()
        assert [rows[name] for name in names[10:12]] == ["queued", "queued"]
        with PtyApp(engine.argv(program(), {"TERM": "xterm-256color"}), env=os.environ) as app:
            app.wait_for("docker OK", NAME, timeout=60)
            app.send("end")
            app.wait_for(names[-1], timeout=60)
            app.send("delete")
            app.wait_for(f"Remove {names[-1]}?", timeout=60)
            app.send("esc", "q")
            assert app.wait_end(timeout=60) == 0
    finally:
        engine.engine.try_docker("rm", "--force", *names)
