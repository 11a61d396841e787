"""The main job on real parts: a preset becomes a container, a real vLLM boots in it, a person talks to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.pty_app import PtyApp, spark_tui
from tests.real.lab.lab import Lab

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PRESET = "cpu-smollm2"
BOOT_SECONDS = 240


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path) -> Mapping[str, str]:
    """A new user's home on the lab's engine and store."""
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_TUI_STORE": str(vllm_lab.store),
    }


@pytest.fixture
def run(environment: Mapping[str, str]) -> Iterator[object]:
    """`run("ps", "--json")`; what it launched is removed at the end."""

    def call(*arguments: str, check: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            spark_tui(*arguments), env=dict(environment), capture_output=True, text=True, timeout=420, input=stdin
        )
        assert done.returncode == check, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def remove() -> None:
        subprocess.run(spark_tui("down", PRESET, "--remove"), env=dict(environment), capture_output=True, timeout=120)

    remove()  # an interrupted run may have left it
    yield call
    remove()


def test_from_the_command_line(run, free_port: int) -> None:
    up = run("up", PRESET, "--port", str(free_port), "--wait", "--json")
    steps = [json.loads(line) for line in up.stdout.splitlines()]
    done = {step["id"] for step in steps if step.get("state") in ("done", "skipped")}
    assert {"preflight", "pull", "create", "start", "follow", "ready", "warm"} <= done

    engines = json.loads(run("ps", "--json").stdout)
    [engine] = [e for e in engines if e["id"] == PRESET]
    assert engine["state"] == "SERVING"
    assert engine["port"] == free_port
    assert engine["exposure"] == "LOCAL"

    again = run("up", PRESET, "--port", str(free_port), "--wait")
    assert "already running" in again.stdout + again.stderr, "a second launch is the same launch"

    log = run("logs", PRESET).stdout
    assert "Application startup complete" in log

    answer = run("chat", PRESET, "-m", "What is the capital of France?", "--max-tokens", "40").stdout
    assert len(answer.split()) > 2

    taken = run("up", PRESET, "--name", "second", "--port", str(free_port), check=4)
    assert PRESET in taken.stderr, "the error names who has the port"

    run("down", PRESET)
    [engine] = [e for e in json.loads(run("ps", "-a", "--json").stdout) if e["id"] == PRESET]
    assert engine["state"] == "STOPPED"
    assert "Application startup complete" in run("logs", PRESET).stdout, "a stopped container keeps its log"


def test_in_the_terminal_by_keys_alone(environment: Mapping[str, str], run, free_port: int, tmp_path: Path) -> None:
    recording = Path(os.environ.get("SPARK_TUI_RECORDING", tmp_path / "first-light.cast"))
    with PtyApp(spark_tui(), env=environment, recording=recording) as app:
        app.wait_for("1 Home", "docker OK")
        app.send("3")
        app.wait_for("gpt-oss-120b")
        app.send("/")
        app.send(*"smollm")
        app.wait_for("1 of", "SmolLM2-135M on the CPU")
        app.send("enter")
        app.wait_quiet(0.3)
        app.send("enter")
        app.wait_for("docker run", "^l")
        app.send(*str(free_port))
        app.wait_for(f"127.0.0.1:{free_port}:")
        app.send("ctrl+l")

        app.wait_for(PRESET, "Engine init", timeout=120)
        app.wait_for(f"{PRESET}  SERVING", timeout=BOOT_SECONDS)
        app.wait_for("KV cache")

        app.send("6")
        app.wait_for("Message to smollm2")
        app.send(*"What is the capital of France?")
        app.send("enter")
        app.wait_for("tok/s", timeout=120)
        assert "France" in app.text()

        app.wait_quiet(1.5)  # an Esc right after the answer's end was meant for the answer
        app.send("esc", "4")
        app.wait_for("following")
        app.send("1")
        app.wait_for("Engines")
        app.send("x")
        app.wait_for(f"Stop {PRESET}?")
        app.send("y")
        app.wait_for(f"{PRESET}  STOPPED", timeout=90)
        app.send("q")
        assert app.wait_end() == 0
    assert recording.stat().st_size > 0


def test_a_killed_app_leaves_the_container_and_the_next_start_finds_it(
    environment: Mapping[str, str], run, free_port: int
) -> None:
    run("up", PRESET, "--port", str(free_port), "--no-wait")
    with PtyApp(spark_tui(), env=environment) as app:
        app.wait_for(PRESET, timeout=60)
    with PtyApp(spark_tui(), env=environment) as app:  # the first one was killed with SIGKILL
        app.wait_for(f"{PRESET}  SERVING", timeout=BOOT_SECONDS)
        app.wait_for("KV cache")
        app.send("q")
        app.wait_end()


def test_gpus_on_an_engine_without_the_nvidia_toolkit_is_explained(
    environment: Mapping[str, str], plain_engine, free_port: int, tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "spark-tui" / "presets"
    folder.mkdir(parents=True)
    (folder / "needs-gpu.yaml").write_text(
        'recipe_version: "2"\nmodel: some/model\nruntime: vllm\n'
        f"container: {plain_engine.busybox}\ncommand: sleep 60\n",
        encoding="utf-8",
    )
    env = {**environment, **plain_engine.variables()}
    # Neither what memory this machine has nor whether the model can be fetched is what is asked here.
    done = subprocess.run(
        [sys.executable, "-m", "spark_tui", "up", "needs-gpu", "--port", str(free_port), "--force", "--no-fetch"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "NVIDIA Container Toolkit" in done.stderr
