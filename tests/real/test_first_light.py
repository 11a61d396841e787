"""The main job on real parts: a preset becomes a container, a real vLLM boots in it, a person talks to it.

The tests of the command line share one engine, and so does that of the metrics; each stands alone, and finds it running
after the other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.pty_app import PtyApp, spark_tui
from tests.real.lab.lab import Lab
from tests.real.lab.serving import LIGHT, fetch_json
from tests.real.lab.support import wait_until
from tests.real.lab.vllm_image import SERVE_TAG

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PRESET = "cpu-smollm2"
BY_HAND = "first-by-hand"
BOOT_SECONDS = 240
TOKENS = 300


@pytest.fixture(scope="module")
def environment(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A new user's home on the lab's engine and store."""
    home = tmp_path_factory.mktemp("home")
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "SPARK_TUI_STORE": str(vllm_lab.store),
    }


@pytest.fixture(scope="module")
def port(take_port: Callable[[], int]) -> int:
    """The port of the engine that the tests of the command line share."""
    return take_port()


@pytest.fixture(scope="module")
def run(environment: Mapping[str, str]) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
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


def test_from_the_command_line(run, port: int) -> None:
    up = run("up", PRESET, "--port", str(port), "--wait", "--json")
    steps = [json.loads(line) for line in up.stdout.splitlines()]
    done = {step["id"] for step in steps if step.get("state") in ("done", "skipped")}
    assert {"preflight", "pull", "create", "start", "follow", "ready", "warm"} <= done

    engines = json.loads(run("ps", "--json").stdout)
    [engine] = [e for e in engines if e["id"] == PRESET]
    assert engine["state"] in ("ready", "busy")
    assert engine["port"] == port
    assert engine["exposure"] == "LOCAL"

    again = run("up", PRESET, "--port", str(port), "--wait")
    assert "already running" in again.stdout + again.stderr, "a second launch is the same launch"

    log = run("logs", PRESET).stdout
    assert "Application startup complete" in log

    answer = run("chat", PRESET, "-m", "What is the capital of France?", "--max-tokens", "40").stdout
    assert len(answer.split()) > 2

    taken = run("up", PRESET, "--name", "second", "--port", str(port), check=4)
    assert PRESET in taken.stderr, "the error names who has the port"


def write(port: int, tokens: int) -> int:
    """Has the engine write so many tokens, whatever it would say; returns how many it counted."""
    body = {"model": "smollm2", "prompt": "One, two,", "max_tokens": tokens, "ignore_eos": True}
    return int(fetch_json(f"http://127.0.0.1:{port}/v1/completions", body)["usage"]["completion_tokens"])


def test_on_the_screen_it_works_ends_and_starts_again(run, environment: Mapping[str, str], port: int) -> None:
    run("up", PRESET, "--port", str(port), "--wait")
    with PtyApp(spark_tui(), env=environment, columns=170, rows=44) as app, ThreadPoolExecutor(1) as asking:
        app.wait_for(f"{PRESET} ready", timeout=60)
        app.send("5")
        app.wait_for("live", "requests", "KV cache", "running 0")
        asked = asking.submit(write, port, TOKENS)
        app.wait_for("running 1", "decode", timeout=60)
        assert asked.result(timeout=300) == TOKENS
        app.wait_for("running 0", "since start", timeout=60)
        counted = since_start(app.text())
        assert counted >= 1

        app.send("1")
        app.wait_for("Engines")
        app.send("x")
        app.wait_for(f"Stop {PRESET}?")
        app.send("y")
        app.wait_for("stopped", timeout=90)
        app.send("5")
        app.wait_for("No response: the engine has ended")

        app.send("1")
        app.wait_for("Engines")
        app.send("r")
        app.wait_for(f"Restart {PRESET}?")
        app.send("y")
        app.wait_for(f"{PRESET} ready", timeout=BOOT_SECONDS)
        app.send("5")
        # An event of the first start may have been what was seen.
        shown = app.wait_for("no values at", "the engine has ended", "R: engine restarted", timeout=BOOT_SECONDS)
        assert least_rate(shown) >= 0, "a counter that began anew is no negative speed"
        assert since_start(shown) <= 1, "only the first request of the new start"
        assert asking.submit(write, port, 40).result(timeout=300) == 40
        assert wait_until(lambda: since_start(app.text()) > since_start(shown), 60), app.text()
        app.send("q")
        assert app.wait_end() == 0


def since_start(screen: str) -> int:
    """How many first tokens the table on the right has counted; 0 where it says that there was none."""
    line = next(line for line in screen.splitlines() if line.lstrip().startswith("TTFT ") and "p95" not in line)
    right = line.split("TTFT ")[-1].split()
    return int(right[-1]) if right[-1].isdigit() else 0


def least_rate(screen: str) -> float:
    """The least speed in view, the first of the three figures beside the graph of decode speed."""
    found = re.search(r"decode\b.*?(?:min (-?[\d.]+)  avg|(-?[\d.]+) / -?[\d.]+ / )", screen)
    assert found is not None, screen
    return float(found[1] or found[2])


def test_an_edit_that_fails_goes_back_also_when_it_is_killed_on_the_way(
    run, environment: Mapping[str, str], vllm_lab: Lab, port: int
) -> None:
    def runs() -> tuple[str, str]:
        """The running container's id and its context; empty while it does not run."""
        if not vllm_lab.engine.docker("ps", "--quiet", "--filter", f"name=^{PRESET}$"):
            return "", ""
        facts = vllm_lab.engine.api("GET", f"/containers/{PRESET}/json")
        command = facts["Config"]["Cmd"]
        return facts["Id"], "" if "--no-such-option" in command else command[command.index("--max-model-len") + 1]

    run("up", PRESET, "--port", str(port), "--wait")
    first, context = runs()
    assert context == "2048"
    bad = ("--set", "max_model_len=1k", "--set", "extra_args=--no-such-option", "--yes")
    words = spark_tui("edit", PRESET, *bad)
    with subprocess.Popen(words, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as edit:
        wait_until(lambda: runs()[0] not in ("", first), BOOT_SECONDS, pause=0.5)
        goes_back = wait_until(lambda: runs() == (first, "2048"), BOOT_SECONDS, pause=0.5)
        edit.kill()
        assert goes_back, edit.stdout and edit.stdout.read().decode()
    run("edit", PRESET)  # finishes what was interrupted
    assert runs() == (first, "2048"), "the container of before is the one that serves"
    [engine] = [each for each in json.loads(run("ps", "--json").stdout) if each["id"] == PRESET]
    assert (engine["state"], engine["port"]) == ("ready", port)

    run("edit", PRESET, "--set", "max_model_len=1k", "--yes")
    assert runs()[1] == "1024"
    run("down", PRESET)
    [engine] = [e for e in json.loads(run("ps", "-a", "--json").stdout) if e["id"] == PRESET]
    assert engine["state"] == "stopped"
    assert "Application startup complete" in run("logs", PRESET).stdout, "a stopped container keeps its log"
    run("metrics", PRESET, check=3)


def test_in_the_terminal_by_keys_alone(environment: Mapping[str, str], run, free_port: int, tmp_path: Path) -> None:
    recording = Path(os.environ.get("SPARK_TUI_RECORDING", tmp_path / "first-light.cast"))
    with PtyApp(spark_tui(), env=environment, recording=recording) as app:
        app.wait_for("1 Home", "docker OK")
        app.send("3")
        app.wait_for("gpt-oss-120b")
        app.send("/")
        app.send(*"smollm")
        app.wait_for("1 of", "SmolLM2-135M on the CPU")
        app.send("enter", "enter")
        app.wait_for("docker run", "^l")
        app.send("ctrl+o")
        app.wait_for("container name: ")
        app.send("down")
        app.wait_for("port: ")
        app.send(*str(free_port))
        app.wait_for(f"127.0.0.1:{free_port}:")
        app.send("ctrl+l")

        app.wait_for(PRESET, "Engine init", timeout=120)
        app.wait_for(f"{PRESET} ready", timeout=BOOT_SECONDS)
        app.wait_for("KV cache")

        app.send("6")
        app.wait_for("Message to smollm2", timeout=BOOT_SECONDS)  # an event of an earlier start says ready, too
        app.send(*"What is the capital of France?")
        app.send("enter")
        app.wait_for("ttft", timeout=120)
        app.wait_gone("Esc stop", timeout=120)
        assert "France" in app.text()

        time.sleep(1.5)  # an Esc right after the answer's end was meant for the answer
        app.send("esc", "4")
        app.wait_for("following")
        app.send("1")
        app.wait_for("Engines")
        app.send("x")
        app.wait_for(f"Stop {PRESET}?")
        app.send("y")
        app.wait_for("stopped", timeout=90)
        app.send("q")
        assert app.wait_end() == 0
    assert recording.stat().st_size > 0


@pytest.fixture
def by_hand(vllm_lab: Lab, free_port: int) -> Iterator[str]:
    """A container that somebody started with `docker run`, and that was stopped; and what is launched of it."""
    engine, flags = vllm_lab.engine, ("--served-model-name", "handmade", *LIGHT)
    names = (BY_HAND, f"{BY_HAND}-2")
    engine.try_docker("rm", "--force", *names)
    engine.docker(
        *("run", "--detach", "--name", BY_HAND, "--publish", f"127.0.0.1:{free_port}:8000"),
        *("--volume", f"{vllm_lab.store}:/models:ro", SERVE_TAG, "/models/smollm2", *flags),
    )
    engine.docker("kill", BY_HAND)
    yield names[1]
    engine.try_docker("rm", "--force", *names)


def test_a_foreign_engine_is_imported_and_launched_and_outlives_the_killed_app(
    environment: Mapping[str, str], vllm_lab: Lab, by_hand: str
) -> None:
    with PtyApp(spark_tui(), env=environment) as app:
        app.wait_for("1 Home", BY_HAND, timeout=60)
        app.press_until("down", "i Import")  # the list may hold other engines, which are imported by no key
        app.send("i")
        app.wait_for("container", "handmade", "l launch")
        app.send("l")
        app.wait_for("docker run", "^l launch")
        app.send("ctrl+l")
        app.wait_for(by_hand, timeout=60)
        assert wait_until(lambda: by_hand in vllm_lab.engine.docker("ps", "--format", "{{.Names}}").split(), 60)
    with PtyApp(spark_tui(), env=environment) as app:  # the first one was killed with SIGKILL
        app.wait_for(f"{by_hand} ready", timeout=BOOT_SECONDS)
        app.wait_for("KV cache")
        app.send("q")
        app.wait_end()
    command = vllm_lab.engine.api("GET", f"/containers/{by_hand}/json")["Config"]["Cmd"]
    assert set(LIGHT) <= set(command), "its options are kept"
    assert 0 < float(command[command.index("--gpu-memory-utilization") + 1]) < 0.92, "and it takes what it needs"


def test_gpus_on_an_engine_without_the_nvidia_toolkit_is_explained(
    environment: Mapping[str, str], plain_engine, free_port: int
) -> None:
    folder = Path(environment["XDG_CONFIG_HOME"], "spark-tui/presets")
    folder.mkdir(parents=True, exist_ok=True)
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
