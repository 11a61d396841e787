"""The metrics of a real vLLM: what the command reports is what was asked of it, before, during and after."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.pty_app import spark_tui
from tests.real.lab.serving import Served

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

TOKENS = 300


def test_what_was_asked_is_what_was_counted(server: Served, environment: Mapping[str, str]) -> None:
    def look(*more: str) -> dict[str, Any]:
        words = spark_tui("metrics", server.name, "--json", *more)
        done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, timeout=420)
        assert done.returncode == 0, f"{more}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    before = look("--seconds", "1")
    assert before["running_requests"] == 0
    assert before["kv_capacity_tokens"] > 0
    assert before["speculation_reason"] == "no speculative decoding"

    question = spark_tui(
        "chat", server.name, "-m", "Count from one to a thousand in words.", "--max-tokens", str(TOKENS), "--json"
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
