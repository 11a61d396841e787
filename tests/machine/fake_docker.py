"""A daemon that speaks the Engine API over a unix socket, as far as a test teaches it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import socketserver
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

VERSION = "1.41"


class Request(BaseHTTPRequestHandler):
    """One request. A route answers with `json`, or writes a stream to `wfile` as it likes."""

    daemon: FakeDocker
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def finish(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().finish()

    def route(self) -> None:
        split = urlsplit(self.path)
        self.query = {key: values[0] for key, values in parse_qs(split.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length)) if length else None
        path = re.sub(r"^/v[\d.]+", "", split.path)
        self.daemon.requests.append(self)
        self.daemon.calls.append(f"{self.command} {path}")
        answer = self.daemon.routes.get(f"{self.command} {path}")
        if answer is None and path == "/version":
            answer = {"ApiVersion": VERSION, "Version": "20.10.24"}
        if answer is None:
            self.json({"message": f"No such container: {path}"}, 404)
        elif callable(answer):
            answer(self)
            if isinstance(self.wfile, Chunked):
                self.wfile.end()
        else:
            self.json(answer)

    do_GET = do_POST = do_DELETE = route

    def send_response(self, code: int, message: str | None = None) -> None:
        """Says that it closes when it will, as the daemon does: a client would use the connection once more."""
        super().send_response(code, message)
        if self.close_connection:
            self.send_header("Connection", "close")

    def json(self, found: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(found).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def begin(self) -> None:
        """The head of a stream; what is written afterwards goes out in chunks, as a daemon's does."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile = Chunked(self.wfile)  # type: ignore[assignment]

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


class Chunked:
    """Each write as one chunk."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def write(self, data: bytes) -> None:
        if data:
            self._raw.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        self._raw.write(b"0\r\n\r\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class FakeDocker:
    """`routes` maps `GET /path` to an answer, or to a function that gets the request. `tcp`: on a port of 127.0.0.1."""

    def __init__(self, *, tcp: bool = False) -> None:
        self._tcp = tcp
        self._folder = tempfile.TemporaryDirectory()  # a socket's path is short, pytest's folders are not
        self.socket = Path(self._folder.name) / "docker.sock"
        self.routes: dict[str, object | Callable[[Request], None]] = {}
        self.requests: list[Request] = []
        self.calls: list[str] = []
        self._server: socketserver.TCPServer | None = None
        self._open: set[socket.socket] = set()

    def environ(self, config: Path | None = None) -> dict[str, str]:
        """What leads the adapter here."""
        host = f"unix://{self.socket}"
        if self._tcp and self._server is not None:
            host = f"tcp://127.0.0.1:{self._server.server_address[1]}"
        return {"DOCKER_HOST": host, "DOCKER_CONFIG": str(config or Path(self._folder.name))}

    def start(self) -> None:
        """Begins to listen."""
        connections = self._open

        class Server(socketserver.ThreadingTCPServer if self._tcp else socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            block_on_close = False

            def process_request(self, request: Any, client_address: Any) -> None:
                connections.add(request)
                super().process_request(request, client_address)

            def shutdown_request(self, request: Any) -> None:
                connections.discard(request)
                super().shutdown_request(request)

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that goes away is no failure of the daemon."""

        address = ("127.0.0.1", 0) if self._tcp else str(self.socket)
        self._server = Server(address, type("Bound", (Request,), {"daemon": self}))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Goes away, and cuts every connection."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.cut()
        self.socket.unlink(missing_ok=True)

    def cut(self) -> None:
        """Cuts every connection."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stops, and removes the socket's folder."""
        self.stop()
        self._folder.cleanup()


def frame(stamp: str, text: bytes, stream: int = 1) -> bytes:
    """One frame of a log, as `timestamps=1` gives it."""
    payload = stamp.encode() + b" " + text
    return struct.pack(">BxxxL", stream, len(payload)) + payload


def stamp(ns: int) -> str:
    """So many nanoseconds after noon."""
    seconds, rest = divmod(ns, 10**9)
    return f"2026-11-21T12:{seconds // 60:02d}:{seconds % 60:02d}.{rest:09d}Z"


def inspected(name: str = "x", status: str = "running", tty: bool = False, **more: Any) -> dict[str, Any]:
    """What `GET /containers/x/json` says."""
    return {
        "Id": (name.encode().hex() + "0" * 64)[:64],
        "Name": f"/{name}",
        "Image": "sha256:1",
        "Created": "2026-11-21T11:59:00.5Z",
        "Config": {"Image": "image:1", "Tty": tty, "Env": ["A=1", "HF_TOKEN=secret"], "Cmd": ["sh"]},
        "State": {"Status": status, "ExitCode": 0, "StartedAt": "0001-01-01T00:00:00Z"},
        **more,
    }


@pytest.fixture
def daemon() -> Iterator[FakeDocker]:
    fake = FakeDocker()
    fake.start()
    yield fake
    fake.close()


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
