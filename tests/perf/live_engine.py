"""A machine with one engine under a load that goes up and down: its Docker, its API, its GPU.

All of it is outside the program that is measured: what that costs is its own.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.machine.fake_docker import FakeDocker, Request, frame, inspected, stamp
from tests.metric_fixtures import FOLDER

NAME = "qwen"
STUB = Path(__file__).parent.parent / "fixtures" / "gb10" / "nvml_stub.c"
WATTS = "47 W"
"""What the stub says that the GPU draws."""
_LINES = [line.rpartition(" ") for line in (FOLDER / "smol-12s.txt").read_text().splitlines() if line[:1] != "#"]
_GROW = ("_total", "_sum", "_count", "_bucket")


def page(seconds: float) -> str:
    """A metrics page of vLLM after so long under load."""
    grown, wave = 1 + seconds / 20 + 0.3 * math.sin(seconds / 7), math.sin(seconds / 11)
    gauges = {"vllm:num_requests_running": round(4 + 3 * wave), "vllm:kv_cache_usage_perc": 0.4 + 0.3 * wave}
    found = []
    for series, _, value in _LINES:
        name = series.partition("{")[0]
        now = float(value) * grown if name.endswith(_GROW) else gauges.get(name, float(value))
        found.append(f"{series} {now}")
    return "\n".join(found) + "\n"


class _Api(BaseHTTPRequestHandler):
    """What the program asks an engine."""

    protocol_version = "HTTP/1.1"
    began = time.monotonic()

    def do_GET(self) -> None:
        models = {"data": [{"id": NAME, "root": "org/m", "max_model_len": 262_144}]}
        told = {"/v1/models": models, "/version": {"version": "0.33.0"}}.get(self.path, {})
        text = page(time.monotonic() - self.began) if self.path == "/metrics" else json.dumps(told)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain" if self.path == "/metrics" else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


_START = (b"INFO 11-21 12:00:00 [api_server.py:1] vLLM\n", b"INFO:     Application startup complete.\n")


@contextmanager
def live_engine(folder: Path) -> Iterator[dict[str, str]]:
    """The environment that leads a program to it. Without a C compiler the machine has no GPU."""
    api = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    port, docker = api.server_address[1], FakeDocker()
    facts = inspected(
        NAME,
        Config={"Image": "vllm/vllm-openai:v1", "Cmd": ["vllm", "serve", "org/m", "--port", "8000"]},
        State={"Status": "running", "Pid": 4242, "StartedAt": "2026-11-21T12:00:00Z"},
        NetworkSettings={"Ports": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}},
    )
    over = threading.Event()

    def log(request: Request) -> None:
        request.begin()
        for number, text in enumerate(_START):
            request.wfile.write(frame(stamp(number + 1), text))
        if request.query.get("follow") == "1":
            over.wait()

    def events(request: Request) -> None:
        request.begin()
        over.wait()

    container = f"/containers/{facts['Id']}"
    docker.routes |= {
        "GET /info": {"DockerRootDir": "/var/lib/docker"},
        "GET /containers/json": [{"Id": facts["Id"]}],
        f"GET {container}/json": facts,
        f"GET {container}/logs": log,
        "GET /events": events,
    }
    docker.start()
    env = docker.environ()
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is not None:
        library = str(folder / "libnvidia-ml.so.1")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(STUB)], check=True)
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    try:
        yield env
    finally:
        over.set()
        docker.close()
        api.shutdown()
        api.server_close()
