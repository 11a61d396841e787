"""The gateway on real parts: two models of a real vLLM, swapped by requests alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.pty_app import spark_tui
from tests.real.lab.lab import Lab
from tests.real.lab.support import wait_until

pytestmark = pytest.mark.real

FIRST, SECOND = "cpu-smollm2", "cpu-think"
SECONDS = 900


@pytest.fixture(scope="module")
def environment(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A new user's home on the lab's engine and store, with a second preset."""
    home = tmp_path_factory.mktemp("home")
    own = home / "config/spark-tui/presets"
    own.mkdir(parents=True)
    built_in = Path(__file__).parents[2] / "presets" / f"{FIRST}.yaml"
    text = built_in.read_text(encoding="utf-8").replace("/models/smollm2", "/models/smollm2-think")
    text = text.replace("served_model_name: smollm2", "served_model_name: think")
    (own / f"{SECOND}.yaml").write_text(text, encoding="utf-8")
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "SPARK_TUI_STORE": str(vllm_lab.store),
    }


@pytest.fixture
def url(environment: Mapping[str, str], take_port: Callable[[], int]) -> Iterator[str]:
    """A gateway that runs one engine at a time; what it launched is removed at the end."""
    words = spark_tui(
        "gateway", "--port", str(take_port()), "--preset", FIRST, "--preset", SECOND, "--alone", "--stay", "0", "--json"
    )
    with subprocess.Popen(words, env=dict(environment), stdout=subprocess.PIPE, text=True) as gateway:
        try:
            assert gateway.stdout is not None
            yield json.loads(gateway.stdout.readline())["url"]
        finally:
            gateway.send_signal(signal.SIGINT)
            gateway.wait(60)
            for name in (FIRST, SECOND):
                down = spark_tui("down", name, "--remove")
                subprocess.run(down, env=dict(environment), capture_output=True, timeout=120)


def ask(url: str, model: str, **more: Any) -> urllib.request.Request:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, **more}
    headers = {"Content-Type": "application/json"}
    return urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)


def answered(url: str, model: str) -> str:
    with urllib.request.urlopen(ask(url, model), timeout=SECONDS) as answer:
        return str(json.load(answer)["model"])


def test_two_models_are_swapped_by_requests_alone(environment: Mapping[str, str], url: str) -> None:
    def running() -> set[str]:
        done = subprocess.run(
            spark_tui("ps", "--json"), env=dict(environment), capture_output=True, check=True, timeout=60
        )
        return {each["id"] for each in json.loads(done.stdout)}

    with urllib.request.urlopen(ask(url, FIRST, stream=True), timeout=SECONDS) as answer:
        text = answer.read().decode()
    assert text.startswith(": waiting for")
    assert '"delta"' in text
    assert text.rstrip().endswith("data: [DONE]")
    assert answered(url, "smollm2") == "smollm2"
    assert running() == {FIRST}

    with pytest.raises(urllib.error.HTTPError) as refused:
        answered(url, "think")
    with refused.value as error:
        assert error.code == 503
        assert int(error.headers["Retry-After"]) >= 1

    def second_serves() -> bool:
        try:
            return answered(url, SECOND) == "think"
        except urllib.error.HTTPError as error:
            with error:
                assert error.code == 503, error.read()
            return False

    assert wait_until(second_serves, SECONDS, pause=1)
    assert running() == {SECOND}

    def swap_back() -> dict[str, Any]:
        done = subprocess.run(
            spark_tui("gateway", "status", "--json"), env=dict(environment), capture_output=True, check=True, timeout=60
        )
        return next(iter(json.loads(done.stdout)["swaps"]), {})

    with urllib.request.urlopen(ask(url, FIRST, stream=True), timeout=SECONDS) as answer:
        first = answer.readline().decode()
        assert "about" in first, "the time of the earlier start is the estimate"
        assert wait_until(lambda: swap_back().get("stopped") == [SECOND], SECONDS, pause=1)
        assert swap_back()["ready_at"]


def test_a_gateway_knows_a_new_key_at_once_and_refuses_a_revoked_one(
    environment: Mapping[str, str], tmp_path: Path, take_port: Callable[[], int]
) -> None:
    env = {**environment, "XDG_STATE_HOME": str(tmp_path)}

    def keys(*words: str) -> str:
        done = subprocess.run(
            spark_tui("gateway", "keys", *words), env=env, capture_output=True, check=True, text=True, timeout=60
        )
        return done.stdout.strip()

    def listed(key: str) -> int:
        asked = urllib.request.Request(f"{url}/models", headers={"Authorization": f"Bearer {key}"} if key else {})
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    first = keys("add", "first")
    words = spark_tui("gateway", "--port", str(take_port()), "--preset", FIRST, "--json")
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as gateway:
        try:
            assert gateway.stdout is not None
            url = json.loads(gateway.stdout.readline())["url"]
            assert (listed(first), listed(""), listed("sk-none")) == (200, 401, 401)
            later = keys("add", "later")
            assert wait_until(lambda: listed(later) == 200, 30)
            keys("revoke", "first")
            assert wait_until(lambda: listed(first) == 401, 30)
        finally:
            gateway.send_signal(signal.SIGINT)
            gateway.wait(60)
