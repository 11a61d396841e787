"""The lab's vLLM is what tests take it for: it answers like a model, in little memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.real.lab import Lab
from tests.real.lab.serving import Served, fetch_json
from tests.real.serving.conftest import MODEL

pytestmark = pytest.mark.real


def test_a_server_answers(server: Served, vllm_lab: Lab, record_property: Callable[..., None]) -> None:
    record_property("seconds_to_ready", round(server.seconds_to_ready, 1))
    assert fetch_json(f"{server.url}/v1/models")["data"][0]["id"] == MODEL
    assert "Paris" in server.chat("What is the capital of France?", model=MODEL)
    memory = vllm_lab.engine.api("GET", f"/containers/{server.name}/stats?stream=false&one-shot=true")["memory_stats"]
    assert memory["usage"] < 4 * 1024**3
