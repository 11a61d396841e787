"""A real engine that is killed while it is measured: nothing is kept, that is said, and the engine runs again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.pty_app import spark_tui
from tests.real.lab.lab import Lab
from tests.real.lab.models import SMOLLM2
from tests.real.lab.serving import Served, healthy, serve
from tests.real.lab.support import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

NAME = f"test-void-{os.getpid()}"
"""Of this run alone: others use the lab too."""
PATIENCE = 300.0
LOAD = ("--concurrency", "1", "--input", "64", "--output", "16", "--passes", "50")
MEASURERS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "bench": (("bench", NAME, *LOAD), 20),
    "prove": (("prove", NAME), 20),
    "canary": (("canary",), 30),
}
"""Each command, and after how many requests the engine is killed: a canary's proof begins after ten."""


@pytest.fixture(scope="module")
def server(vllm_lab: Lab, take_port: Callable[[], int]) -> Iterator[Served]:
    engine = vllm_lab.engine
    try:
        yield serve(engine, vllm_lab.model(SMOLLM2), name=NAME, port=take_port(), served_as="smollm2")
    finally:
        engine.try_docker("rm", "--force", NAME)


@pytest.mark.parametrize("measurer", MEASURERS)
def test_an_engine_killed_while_it_is_measured_voids_that_and_runs_again(
    server: Served, vllm_lab: Lab, tmp_path: Path, measurer: str
) -> None:
    words, most = MEASURERS[measurer]
    engine = vllm_lab.engine
    environ = {
        **os.environ,
        **engine.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(tmp_path / "store"),
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(spark_tui(*words, "--json"), env=environ, capture_output=True, text=True, timeout=120)

    def posts() -> int:
        log = engine.try_docker("logs", NAME)
        return (log.stdout + log.stderr).count('"POST /v1/')

    assert wait_until(lambda: healthy(server.port), PATIENCE, 0.2)
    before = posts()
    command = spark_tui(*words, "--json")
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as measuring:
        assert wait_until(lambda: posts() >= before + most or measuring.poll() is not None, PATIENCE, 0.2)
        # Not by Docker, whose kill is a person's wish: as the kernel ends what takes too much memory.
        os.kill(int(engine.docker("inspect", "--format", "{{.State.Pid}}", NAME)), signal.SIGKILL)
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
