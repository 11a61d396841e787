"""A vLLM container of the lab, started by hand: what the application's own launches are compared with."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.lab.engine import PrivateEngine
from tests.real.lab.support import LabFailed, wait_until
from tests.real.lab.vllm_image import SERVE_TAG

LIGHT = ("--max-model-len", "1024", "--max-num-seqs", "4", "--kv-cache-memory-bytes", "64M", "--enforce-eager")
"""Flags for a small server: 64 MiB of KV cache, and no compiler, which the image does not have."""

READY_SECONDS = 180.0


@dataclass(frozen=True)
class Served:
    """A container that answers."""

    name: str
    port: int
    seconds_to_ready: float

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def chat(self, text: str, *, model: str, max_tokens: int = 32) -> str:
        """One answer, not streamed."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        answer = fetch_json(f"{self.url}/v1/chat/completions", body)
        return str(answer["choices"][0]["message"]["content"])


@dataclass
class Lent:
    """A container that many tests use in turn, none of which may change it."""

    engine: PrivateEngine
    served: Served
    changed: str = ""
    """Which test did so all the same, and what was found then."""
    healthy_seconds: float = 30.0
    """For an answer of an engine that serves: it may take seconds on a busy machine."""
    _first: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._first = self._facts()

    def change(self) -> str:
        """What is no longer as at the start; empty while the same start of the same container serves."""
        name = self.served.name
        try:
            facts = self._facts()
        except LabFailed as error:
            return f"{name} is gone: {error}"
        state = facts["State"]
        if facts["Id"] != self._first["Id"]:
            return f"{name} is another container"
        if state["Status"] != "running":
            return f"{name} is {state['Status']} (exit code {state['ExitCode']})"
        if state["StartedAt"] != self._first["State"]["StartedAt"]:
            return f"{name} was started again"
        if not wait_until(lambda: healthy(self.served.port), self.healthy_seconds):
            return f"{name} does not serve"
        return ""

    def _facts(self) -> dict[str, Any]:
        found: dict[str, Any] = self.engine.api("GET", f"/containers/{self.served.name}/json")
        return found


def fetch_json(url: str, body: object = None) -> Any:
    """GET, or POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def serve(
    engine: PrivateEngine, model: Path, *, name: str, port: int, served_as: str, flags: Sequence[str] = LIGHT
) -> Served:
    """Runs a model the way a person would and waits until it is healthy."""
    started = time.monotonic()
    engine.docker(
        *("run", "--detach", "--name", name, "--gpus", "all", "--ipc", "host"),
        *("--publish", f"127.0.0.1:{port}:8000", "--volume", f"{model}:/models/{model.name}:ro"),
        *(SERVE_TAG, f"/models/{model.name}", "--served-model-name", served_as, *flags),
    )
    while not healthy(port):
        seconds = time.monotonic() - started
        state = engine.api("GET", f"/containers/{name}/json")["State"]
        if not state["Running"] or seconds > READY_SECONDS:
            log = engine.try_docker("logs", "--tail", "40", name)
            raise LabFailed(
                f"{name}: {state['Status']} and not healthy after {seconds:.0f} s\n{log.stdout}{log.stderr}"
            )
        time.sleep(0.1)
    return Served(name, port, time.monotonic() - started)


def healthy(port: int) -> bool:
    """Whether a vLLM on this port says that it is well."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
