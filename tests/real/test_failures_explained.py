"""Real failures of a real vLLM, made on purpose, and what `spark-tui explain` says of each.

A hang is spoken of after two minutes: the engine of that test is frozen at the start, and the others run meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.pty_app import PtyApp, spark_tui
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.lab import Lab
from tests.real.lab.serving import Served, fetch_json, healthy, serve
from tests.real.lab.support import send, wait_until
from tests.real.lab.vllm_image import SERVE_TAG

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

END_SECONDS = 240
FROZEN_SECONDS = 150
"""A hang is spoken of after two minutes without a token."""

TINY = "/models/tiny"
SMALL = ("--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager")
LIGHT = (*SMALL, "--kv-cache-memory-bytes", "64M")

FAILURES: dict[str, tuple[tuple[str, ...], str]] = {
    "a parser that does not exist": (
        (TINY, *LIGHT, "--enable-auto-tool-choice", "--tool-call-parser", "hermess"),
        "bad_parser",
    ),
    "a parser that does not fit the tokenizer": (
        (TINY, *LIGHT, "--enable-auto-tool-choice", "--tool-call-parser", "llama3_json"),
        "bad_parser",
    ),
    "an option that does not exist": ((TINY, *LIGHT, "--max-modellen", "1024"), "bad_argument"),
    "weights that are not there": (("/models/no-weights", *LIGHT), "weights_missing"),
    "a model that is not there": (("/models/nowhere", *LIGHT), "weights_missing"),
    "a context beyond the model's": (
        (TINY, "--max-model-len", "1000000", "--enforce-eager", "--kv-cache-memory-bytes", "64M"),
        "max_model_len_too_long",
    ),
    "a KV cache too small for the context": ((TINY, *SMALL, "--kv-cache-memory-bytes", "192K"), "kv_cache_too_small"),
}


@pytest.fixture
def models(vllm_lab: Lab, tmp_path: Path) -> Path:
    """The tiny model, and one whose weights are missing."""
    shutil.copytree(vllm_lab.store / "tiny", tmp_path / "models" / "tiny")
    shutil.copytree(vllm_lab.store / "tiny", tmp_path / "models" / "no-weights")
    (tmp_path / "models" / "no-weights" / "model.safetensors").unlink()
    return tmp_path / "models"


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path, models: Path) -> Mapping[str, str]:
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(models),
    }


@pytest.fixture
def explain(environment: Mapping[str, str]) -> Callable[[str], dict[str, Any]]:
    """What `explain NAME --json` prints."""

    def call(name: str) -> dict[str, Any]:
        done = subprocess.run(
            spark_tui("explain", name, "--json"), env=dict(environment), capture_output=True, text=True, timeout=120
        )
        assert done.returncode in (0, 1), done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return call


@pytest.fixture
def run(vllm_lab: Lab, container_name: str, models: Path) -> Iterator[Callable[..., str]]:
    """Starts a vLLM that is going to fail, and waits for its end."""
    engine = vllm_lab.engine

    def call(arguments: tuple[str, ...], *options: str) -> str:
        engine.docker(
            "run", "--detach", "--name", container_name, "--gpus", "all", "--ipc", "host",
            "--env", "HF_HUB_OFFLINE=1", "--volume", f"{models}:/models:ro", *options, SERVE_TAG, *arguments,
        )  # fmt: skip
        assert wait_until(lambda: not running(engine, container_name), END_SECONDS), "it ends by itself"
        return container_name

    yield call


def running(engine: PrivateEngine, name: str) -> bool:
    return bool(engine.api("GET", f"/containers/{name}/json")["State"]["Running"])


SERVED = f"test-failures-{os.getpid()}"
"""Of this run alone: others use the lab too."""


@pytest.fixture(scope="module")
def served(vllm_lab: Lab, take_port: Callable[[], int]) -> Iterator[Served]:
    """The one engine here that comes to serve: it hangs, and then dies."""
    flags = ("--max-model-len", "4096", "--max-num-seqs", "4", "--enforce-eager", "--kv-cache-memory-bytes", "256M")
    engine = vllm_lab.engine
    try:
        model = vllm_lab.store / "smollm2"
        yield serve(engine, model, name=SERVED, port=take_port(), served_as="smollm2", flags=flags)
    finally:
        engine.try_docker("rm", "--force", "--volumes", SERVED)


@pytest.fixture(scope="module")
def frozen(vllm_lab: Lab, served: Served) -> Iterator[Served]:
    """Its core hangs in mid answer."""

    def ask() -> None:
        body = {
            "model": "smollm2", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 4000,
            "ignore_eos": True,
        }  # fmt: skip
        with suppress(urllib.error.URLError, OSError):  # it never comes
            fetch_json(f"{served.url}/v1/chat/completions", body)

    engine = vllm_lab.engine
    threading.Thread(target=ask, daemon=True).start()
    pid = core_pid(engine, served.name)
    assert wait_until(lambda: "Running: 1 reqs" in logged(engine, served.name), 60)
    os.kill(pid, signal.SIGSTOP)
    yield served
    send(pid, signal.SIGCONT)


@pytest.fixture(scope="module", autouse=True)
def _frozen_first(request: pytest.FixtureRequest) -> None:
    """Its two minutes pass while the other tests run, where the test of a hang is among those that were asked for."""
    if any("frozen" in getattr(item, "fixturenames", ()) for item in request.session.items):
        with suppress(Exception):  # it is raised again for the test that asks for it
            request.getfixturevalue("frozen")


@pytest.mark.parametrize("case", FAILURES)
def test_a_start_that_fails_names_its_cause(
    case: str, run: Callable[..., str], explain: Callable[[str], dict[str, Any]]
) -> None:
    arguments, cause = FAILURES[case]
    told = explain(run(arguments))
    assert told["outcome"] == "failed"
    failure = told["failure"]
    assert failure["cause"] == cause, failure
    assert failure["remedy"]
    assert failure["lines"]
    assert told["engine"] == "vllm"


def test_a_port_that_is_taken_is_named_and_another_is_proposed(
    run: Callable[..., str], explain: Callable[[str], dict[str, Any]]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        name = run((TINY, *LIGHT, "--host", "127.0.0.1", "--port", str(port)), "--network", "host")
    failure = explain(name)["failure"]
    assert failure["cause"] == "port_in_use"
    assert str(port) in failure["summary"]
    assert failure["override"]["port"] not in (None, port)


def core_pid(engine: PrivateEngine, name: str) -> int:
    """The engine core's process, as this machine numbers it."""
    lines = engine.docker("top", name, "-eo", "pid,args").splitlines()
    return next(int(line.split()[0]) for line in lines if "EngineCore" in line)


def logged(engine: PrivateEngine, name: str) -> str:
    """Both streams."""
    done = engine.try_docker("logs", name)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("waits_for", "signal_name", "outcome"),
    [
        ("non-default args", "TERM", "stopped"),
        ("Application startup complete", "INT", "stopped"),
        ("Application startup complete", "KILL", "failed"),
    ],
)
def test_who_was_asked_to_end_was_stopped_while_it_loaded_too(
    waits_for: str, signal_name: str, outcome: str, vllm_lab: Lab, container_name: str, models: Path,
    explain: Callable[[str], dict[str, Any]],
) -> None:  # fmt: skip
    engine = vllm_lab.engine
    engine.docker(
        "run", "--detach", "--name", container_name, "--ipc", "host", "--env", "HF_HUB_OFFLINE=1",
        "--volume", f"{models}:/models:ro", SERVE_TAG, TINY, *LIGHT,
    )  # fmt: skip
    assert wait_until(lambda: waits_for in logged(engine, container_name), END_SECONDS, pause=0.3)
    engine.docker("kill", "--signal", signal_name, container_name)
    assert wait_until(lambda: not running(engine, container_name), END_SECONDS)
    told = explain(container_name)
    assert told["outcome"] == outcome, logged(engine, container_name)[-3000:]


def test_an_engine_core_that_hangs_is_found_out_while_health_still_says_yes(
    vllm_lab: Lab, frozen: Served, explain: Callable[[str], dict[str, Any]], environment: Mapping[str, str]
) -> None:
    def hang() -> dict[str, Any] | None:
        return next((found for found in explain(frozen.name)["findings"] if found["id"] == "hang"), None)

    found_out = wait_until(lambda: hang() is not None, FROZEN_SECONDS + 60, pause=2)
    assert found_out, (explain(frozen.name), logged(vllm_lab.engine, frozen.name)[-3000:])
    found = hang()
    assert found is not None
    assert found["severity"] == "critical"
    assert healthy(frozen.port)
    with PtyApp(spark_tui(), env=environment) as app:
        app.wait_for(frozen.name, "no tokens for", "Restart the engine", timeout=60)


def test_an_engine_core_that_is_killed_has_died(
    vllm_lab: Lab, served: Served, explain: Callable[[str], dict[str, Any]]
) -> None:
    os.kill(core_pid(vllm_lab.engine, served.name), signal.SIGKILL)
    assert wait_until(lambda: not running(vllm_lab.engine, served.name), 60)
    told = explain(served.name)
    assert told["outcome"] == "failed"
    assert told["failure"]["cause"] in ("engine_died", "killed")
    assert told["phases"][-1]["state"] != "failed", "it had been ready; what ended was its serving"
