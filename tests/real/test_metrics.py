"""The metrics of a real vLLM: what the command and the screen report is what was asked of it, before, during and after.

One engine for both: the command looks first, then a person watches it work, end and start again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.pty_app import PtyApp, spark_tui
from tests.real.lab.lab import Lab
from tests.real.lab.serving import fetch_json
from tests.real.lab.support import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PRESET, NAME = "cpu-smollm2", "metered"
TOKENS = 300
BOOT_SECONDS = 240


@pytest.fixture(scope="module")
def environment(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    home = tmp_path_factory.mktemp("metrics")
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "SPARK_TUI_STORE": str(vllm_lab.store),
    }


def call(environment: Mapping[str, str], *arguments: str, check: int = 0) -> str:
    done = subprocess.run(
        spark_tui(*arguments), env=dict(environment), capture_output=True, text=True, timeout=420, input=""
    )
    assert done.returncode == check, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def engine(environment: Mapping[str, str], take_port: Callable[[], int]) -> Iterator[str]:
    remove = spark_tui("down", NAME, "--remove")
    subprocess.run(
        remove, env=dict(environment), capture_output=True, timeout=120
    )  # an interrupted run may have left it
    call(environment, "up", PRESET, "--name", NAME, "--port", str(take_port()), "--wait")
    yield NAME
    subprocess.run(remove, env=dict(environment), capture_output=True, timeout=120)


def write(port: int, tokens: int) -> int:
    """Has the engine write so many tokens, whatever it would say; returns how many it counted."""
    body = {"model": "smollm2", "prompt": "One, two,", "max_tokens": tokens, "ignore_eos": True}
    return int(fetch_json(f"http://127.0.0.1:{port}/v1/completions", body)["usage"]["completion_tokens"])


def test_what_was_asked_is_what_was_counted(engine: str, environment: Mapping[str, str]) -> None:
    def look(*more: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(call(environment, "metrics", engine, "--json", *more))
        return found

    before = look("--seconds", "1")
    assert before["running_requests"] == 0
    assert before["kv_capacity_tokens"] > 0
    assert before["speculation_reason"] == "no speculative decoding"

    question = spark_tui(
        "chat", engine, "-m", "Count from one to a thousand in words.", "--max-tokens", str(TOKENS), "--json"
    )
    with subprocess.Popen(question, env=dict(environment), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as asking:
        busy = look("--seconds", "3")
        said, _ = asking.communicate(timeout=300)
    usage = json.loads(said.splitlines()[-1])

    after = look("--seconds", "1")
    grown = after["generated_tokens_since_start"] - before["generated_tokens_since_start"]
    assert grown == usage["completion_tokens"]
    finished = after["since_start"]["finished_requests"] - before["since_start"]["finished_requests"]
    assert finished == 1
    assert busy["running_requests"] <= 1
    slowest = after["since_start"]["ttft"]
    assert slowest["p50_low_seconds"] <= slowest["p50_seconds"] <= slowest["p50_high_seconds"]


def test_on_the_screen_it_works_ends_and_starts_again(engine: str, environment: Mapping[str, str]) -> None:
    [port] = [each["port"] for each in json.loads(call(environment, "ps", "--json")) if each["id"] == engine]
    with PtyApp(spark_tui(), env=environment, columns=170, rows=44) as app, ThreadPoolExecutor(1) as asking:
        app.wait_for(f"{engine} ready", timeout=60)
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
        app.wait_for(f"Stop {engine}?")
        app.send("y")
        app.wait_for("stopped", timeout=90)
        app.send("5")
        app.wait_for("No response: the engine has ended")

        app.send("1")
        app.wait_for("Engines")
        app.send("r")
        app.wait_for(f"Restart {engine}?")
        app.send("y")
        app.wait_for(f"{engine} ready", timeout=BOOT_SECONDS)
        app.send("5")
        shown = app.wait_for("no values at", "the engine has ended", "R: engine restarted", timeout=60)
        assert least_rate(shown) >= 0, "a counter that began anew is no negative speed"
        assert since_start(shown) <= 1, "only the first request of the new start"
        assert asking.submit(write, port, 40).result(timeout=300) == 40
        assert wait_until(lambda: since_start(app.text()) > since_start(shown), 60), app.text()
        app.send("q")
        assert app.wait_end() == 0

    call(environment, "down", engine)
    call(environment, "metrics", engine, check=3)


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
