"""A real engine that ends: killed in mid answer, killed while it is measured, taken down.

One server for all of them; it is started again for the next one where it does not run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.pty_app import spark_tui
from tests.real.lab import LabFailed
from tests.real.lab.lab import Lab
from tests.real.lab.models import SMOLLM2
from tests.real.lab.serving import READY_SECONDS, Served, healthy, serve
from tests.real.lab.support import wait_until
from tests.real.talk import ANSWER_SECONDS, LONG, spoken, talking

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

NAME = f"test-ended-{os.getpid()}"
"""Of this run alone: others use the lab too."""
MODEL = "smollm2"
PATIENCE = 300.0
LOAD = ("--concurrency", "1", "--input", "64", "--output", "16", "--passes", "50")
MEASURERS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "bench": (("bench", NAME, *LOAD), 20),
    "prove": (("prove", NAME), 20),
    "canary": (("canary",), 15),
}
"""Each command, and after how many requests the engine is killed: a canary's proof begins after ten."""


@pytest.fixture(scope="module")
def served(vllm_lab: Lab, take_port: Callable[[], int]) -> Iterator[Served]:
    engine = vllm_lab.engine
    try:
        yield serve(engine, vllm_lab.model(SMOLLM2), name=NAME, port=take_port(), served_as=MODEL)
    finally:
        engine.try_docker("rm", "--force", "--volumes", NAME)


@pytest.fixture
def server(served: Served, vllm_lab: Lab) -> Served:
    """It serves, whatever the test before did to it."""
    vllm_lab.engine.docker("start", NAME)
    assert wait_until(lambda: healthy(served.port), READY_SECONDS, 0.2)
    return served


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path) -> Mapping[str, str]:
    """A new user's home and empty store on the lab's engine."""
    return {
        **os.environ,
        **vllm_lab.engine.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(tmp_path / "store"),
    }


def kill(vllm_lab: Lab) -> None:
    """Not by Docker, whose kill is a person's wish: as the kernel ends what takes too much memory."""
    os.kill(int(vllm_lab.engine.docker("inspect", "--format", "{{.State.Pid}}", NAME)), signal.SIGKILL)


# --- while it answers ---------------------------------------------------------------------------------------


def test_a_server_killed_in_mid_answer_leaves_what_came_and_the_talk_goes_on_with_the_next_one(
    server: Served, vllm_lab: Lab, environment: Mapping[str, str]
) -> None:
    with talking(environment, NAME, MODEL) as talk:
        talk.set(temperature="0", thinking="off")
        talk.ask(LONG)
        talk.app.wait_for("answering", " tok/s", timeout=ANSWER_SECONDS)
        kill(vllm_lab)
        shown = talk.app.wait_for("error", "^g retry", "F4 continue", timeout=60)
        assert spoken(shown)[3:], "what had come is there"
        talk.app.wait_for("failed (exit 137)", timeout=60)
        talk.set(max_tokens="16")  # a model that goes on for a page would move the question off the screen
        talk.ask("Are you there?")
        talk.app.wait_for("is not serving", "Are you there?")

        vllm_lab.engine.docker("start", NAME)
        assert wait_until(lambda: healthy(server.port), READY_SECONDS), vllm_lab.engine.try_docker(
            "logs", "--tail", "40", NAME
        )
        talk.app.wait_gone("failed (exit 137)", timeout=60)
        talk.app.wait_for("Enter send ", timeout=60)  # with other engines the bar above does not name this one
        talk.app.send("enter")
        talk.answered(" tok/s", "Are you there?")
        sent_once = wait_until(lambda: talk.app.text().count("Are you there?") == 1, 10)
        assert sent_once, talk.app.text()


# --- while it is measured -----------------------------------------------------------------------------------


@pytest.mark.parametrize("measurer", MEASURERS)
def test_an_engine_killed_while_it_is_measured_voids_that_and_runs_again(
    server: Served, vllm_lab: Lab, environment: Mapping[str, str], measurer: str
) -> None:
    words, most = MEASURERS[measurer]
    engine = vllm_lab.engine

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            spark_tui(*words, "--json"), env=dict(environment), capture_output=True, text=True, timeout=120
        )

    def posts() -> int:
        log = engine.try_docker("logs", NAME)
        return (log.stdout + log.stderr).count('"POST /v1/')

    before = posts()
    command = spark_tui(*words, "--json")
    with subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as measuring:
        assert wait_until(lambda: posts() >= before + most or measuring.poll() is not None, PATIENCE, 0.2)
        kill(vllm_lab)
        out, err = measuring.communicate(timeout=PATIENCE)
    assert measuring.returncode == 1, f"{out}\n{err}"
    assert json.loads(out)["void"], err
    assert engine.docker("inspect", "--format", "{{.State.Running}}", NAME) == "true"
    assert wait_until(lambda: healthy(server.port), PATIENCE, 0.2), "it serves again"
    assert run("prove", NAME, "--kept").returncode == 2, "no proof"
    kept = json.loads(run("results", "list").stdout)
    assert len(kept) == (measurer == "canary"), "the bench of a canary had come to its end"
    assert json.loads(run("canary", "--status").stdout)["engines"] == []
    [event] = json.loads(run("events").stdout)
    assert (event["kind"], event["subject"]) == ("bench", NAME)


# --- taken down ---------------------------------------------------------------------------------------------


def test_it_is_taken_down_and_goes(server: Served, vllm_lab: Lab, environment: Mapping[str, str]) -> None:
    def call(*words: str) -> int:
        return subprocess.run(spark_tui(*words), env=dict(environment), capture_output=True, timeout=120).returncode

    assert call("down", NAME) == 0
    assert not healthy(server.port)
    assert call("metrics", NAME) == 3
    vllm_lab.engine.docker("rm", NAME)
    with pytest.raises(LabFailed, match="No such container"):
        vllm_lab.engine.api("GET", f"/containers/{NAME}/json")
