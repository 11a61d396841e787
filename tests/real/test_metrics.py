"""The metrics of a real vLLM: what the command reports is what was asked of it, before, during and after."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.pty_app import spark_tui
from tests.real.lab.lab import Lab

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PRESET, NAME = "cpu-smollm2", "metered"
TOKENS = 300


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path) -> Mapping[str, str]:
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_TUI_STORE": str(vllm_lab.store),
    }


def call(environment: Mapping[str, str], *arguments: str, check: int = 0) -> str:
    done = subprocess.run(
        spark_tui(*arguments), env=dict(environment), capture_output=True, text=True, timeout=420, input=""
    )
    assert done.returncode == check, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def engine(environment: Mapping[str, str], free_port: int) -> Iterator[str]:
    remove = spark_tui("down", NAME, "--remove")
    subprocess.run(
        remove, env=dict(environment), capture_output=True, timeout=120
    )  # an interrupted run may have left it
    call(environment, "up", PRESET, "--name", NAME, "--port", str(free_port), "--wait")
    yield NAME
    subprocess.run(remove, env=dict(environment), capture_output=True, timeout=120)


def test_what_was_asked_is_what_was_counted(engine: str, environment: Mapping[str, str]) -> None:
    def look(*more: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(call(environment, "metrics", engine, "--json", *more))
        return found

    before = look("--seconds", "1")
    assert before["running_requests"] == 0
    assert before["kv_capacity_tokens"] > 0
    assert before["speculation_reason"] == "it does not speculate"

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

    call(environment, "down", engine)
    call(environment, "metrics", engine, check=3)
