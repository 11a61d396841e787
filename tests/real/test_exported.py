"""An exported `docker run` that somebody changed: its labels are those of the launch that it came from."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.pty_app import spark_tui
from tests.real.lab.lab import Lab
from tests.real.lab.support import wait_until
from tests.real.lab.vllm_image import SERVE_TAG

pytestmark = pytest.mark.timeout(600)

READY_SECONDS = 300
RECIPE = """\
recipe_version: "2"
model: /models/tiny
runtime: vllm
container: {image}
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults:
  port: {port}
env:
  HF_HUB_OFFLINE: "1"
  VLLM_NO_USAGE_STATS: "1"
command: |
  vllm serve {{model}} --port {{port}} --served-model-name tiny --max-model-len 512 --max-num-seqs 2 \\
    --enforce-eager --kv-cache-memory-bytes 16M
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


class _Other(BaseHTTPRequestHandler):
    """Whatever listens where the launch would have: it must never be asked."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_error(404)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def other() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path, container_name: str, other: ThreadingHTTPServer) -> Mapping[str, str]:
    """A new user's home with one preset, whose port is the other server's."""
    presets = tmp_path / "config" / "spark-tui" / "presets"
    presets.mkdir(parents=True)
    recipe = RECIPE.format(image=SERVE_TAG, port=other.server_address[1])
    (presets / f"{container_name}.yaml").write_text(recipe, encoding="utf-8")
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(vllm_lab.store),
    }


@pytest.fixture
def run(environment: Mapping[str, str]) -> Run:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=dict(environment), capture_output=True, text=True, timeout=300)

    return call


def test_it_is_shown_and_talked_to_where_docker_publishes_it(
    vllm_lab: Lab, run: Run, container_name: str, free_port: int, other: ThreadingHTTPServer
) -> None:
    labelled = other.server_address[1]
    exported = run(*spark_tui("presets", "export", container_name)).stdout
    assert f"127.0.0.1:{labelled}:" in exported
    started = run("bash", "-c", exported.replace(f"127.0.0.1:{labelled}:", f"127.0.0.1:{free_port}:"))
    assert started.returncode == 0, started.stderr

    def shown() -> dict[str, Any]:
        engines = json.loads(run(*spark_tui("ps", "--json")).stdout)
        return next(each for each in engines if each["id"] == container_name)

    assert wait_until(lambda: shown()["state"] == "ready", READY_SECONDS, pause=1), shown()
    assert shown()["port"] == free_port
    answer = run(*spark_tui("chat", container_name, "-m", "Hi", "--max-tokens", "4"))
    assert answer.returncode == 0, answer.stderr
    again = run(*spark_tui("up", container_name))
    assert again.returncode != 0, "it is not the launch of the preset"
    assert other.asked == []  # type: ignore[attr-defined]


def test_a_client_in_an_engines_image_is_no_engine(vllm_lab: Lab, run: Run, container_name: str) -> None:
    made = vllm_lab.engine.docker(
        "create", "--name", container_name, "--entrypoint", "vllm", SERVE_TAG, "bench", "serve", "--help"
    )
    assert made
    assert container_name not in run(*spark_tui("ps", "--json")).stdout
