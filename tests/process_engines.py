"""Engines outside Docker: child processes with an engine's command line, and the program that looks at them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests import TESTS

SERVER = """
import http.server, json, os, time
begun, wanted = time.time(), json.loads(os.environ["ENGINE"])
time.sleep(wanted["loads"])

def page():
    passed = time.time() - begun
    return "".join(
        f"# TYPE {name} {'gauge' if grows is None else 'counter'}\\n{name}{labels} {value + (grows or 0) * passed}\\n"
        for name, labels, value, grows in wanted["metrics"]
    )

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, text, status=200, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def barred(self):
        given = self.headers.get("Authorization", "") == f"Bearer {wanted['key']}"
        if wanted["key"] and self.path != "/health" and not given:
            self.say('{"error": {"message": "Please provide an API key"}}', 401)
            return True

    def do_GET(self):
        if self.barred():
            return
        model = {"id": wanted["model"], "object": "model", "owned_by": wanted["owner"], "max_model_len": 8192}
        if self.path == "/metrics" and wanted["metrics"]:
            self.say(page(), kind="text/plain")
        elif self.path == "/v1/models":
            self.say(json.dumps({"object": "list", "data": [model]}))
        elif self.path in wanted["pages"]:
            self.say(json.dumps(wanted["pages"][self.path]))
        else:
            self.say('{"detail": "Not Found"}', 404)

    def do_POST(self):
        if self.barred():
            return
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        words = asked.get("prompt") or asked.get("messages")
        count = len(words) if isinstance(words, list) else len(str(words).split())
        if self.path == "/tokenize":
            tokens = [sum(map(ord, word)) % 5000 for word in str(words).split()]
            return self.say(json.dumps({"count": len(tokens), "max_model_len": 8192, "tokens": tokens}))
        if self.path == "/detokenize":
            return self.say(json.dumps({"prompt": " ".join(f"w{token}" for token in asked["tokens"])}))
        many, chat = int(asked.get("max_tokens") or 4), "chat" in self.path
        usage = {"prompt_tokens": count, "completion_tokens": many, "total_tokens": count + many}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        ends = [None] * (many - 1) + ["length"]
        for end in ends:
            choice = {"index": 0, "finish_reason": end} | ({"delta": {"content": "blue "}} if chat else {"text": "w "})
            self.send({"model": wanted["model"], "choices": [choice]})
            time.sleep(0.002)
        self.send({"model": wanted["model"], "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\\n\\n")
        self.close_connection = True

    def send(self, event):
        self.wfile.write(f"data: {json.dumps(event)}\\n\\n".encode())
        self.wfile.flush()

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(wanted["port"])), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""

Series = tuple[str, str, float, float | None]
"""Name, labels, value, and growth in a second; None: a gauge."""


class ProcessEngine(Struct, frozen=True):
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def process_engine(
    folder: Path,
    *words: str,
    metrics: Sequence[Series] = (),
    pages: Sequence[str] = ("/health",),
    owner: str = "",
    model: str = "acme/tiny-1b",
    loads: float = 0.0,
    key: str = "",
) -> Iterator[ProcessEngine]:
    """A server with this command line, which ends with its `--port`; Python runs the file that the words name first,
    after the program. It answers after `loads` seconds."""
    place, port = folder / f"engine-{free_port()}", free_port()
    place.mkdir()
    script = place / words[1] if words[1] != "-m" else place / words[2].replace(".", "/")
    script.parent.mkdir(parents=True, exist_ok=True)
    (script if words[1] != "-m" else script.with_suffix(".py")).write_text(SERVER)
    wanted = {"port": port, "metrics": metrics, "pages": {path: {} for path in pages}, "owner": owner, "model": model,
              "loads": loads, "key": key}  # fmt: skip
    child = subprocess.Popen(
        [*words, "--port", str(port)], executable=sys.executable, cwd=place, stdout=subprocess.PIPE,
        env={**os.environ, "ENGINE": json.dumps(wanted), "PYTHONPATH": str(place)},
    )  # fmt: skip
    try:
        if not loads:
            assert child.stdout is not None
            assert int(child.stdout.readline()) == port
        yield ProcessEngine(port, child.pid)
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def without_docker(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program on this machine, in a home of its own; there is no Docker."""
    return subprocess.run(
        [sys.executable, "-m", "spark_tui", *words], cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(TESTS.parent), "COLUMNS": "150",
             "DOCKER_HOST": "unix:///nonexistent", "NO_COLOR": "1"},
        timeout=120, check=False,
    )  # fmt: skip
