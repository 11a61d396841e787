"""Docker for the memory guard: the bare socket, without the SDK and without threads.

The guard locks all its memory and acts when the machine hardly answers: the SDK (21 MB, 360 modules) has no place in
its process. What changes something is sent and not waited for: dockerd carries on, also after the guard is gone.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.errors import DaemonNotRunning, DockerError, SparkError
from spark_tui.base.ports import LogLine
from spark_tui.base.untrusted import load_json
from spark_tui.machine.docker import wire
from spark_tui.machine.docker.errors import Request, from_message, translate
from spark_tui.machine.docker.host import DockerHost, find_host

CALL_SECONDS: Final = 30.0
SEND_SECONDS: Final = 0.4
"""How long Docker's socket may take to accept a request."""
_MOST_PENDING: Final = 16


class DockerSocket:
    """The GuardDocker port on the daemon of `environ`. What is sent is kept open until it is answered."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._host: DockerHost | None = None
        self._prefix = ""
        self._pending: deque[socket.socket] = deque()

    def local(self) -> bool:
        return find_host(self._environ).local

    def running(self) -> tuple[str, ...]:
        self._forget_answered()
        query = {"filters": json.dumps({"status": ["running", "restarting"]})}
        request = Request("list its containers")
        rows = self._get_json("/containers/json", query, request)
        try:
            return tuple(str(row["Id"]) for row in rows)
        except (KeyError, TypeError) as error:
            raise self._failed(error, request) from error

    def inspect(self, container: str) -> ContainerFacts:
        request = Request("inspect a container", container=container)
        found = self._get_json(f"/containers/{quote(container, safe='')}/json", {}, request)
        try:
            return wire.container_facts(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._failed(error, request) from error

    def log(self, container: str, since: str, tail: int, *, tty: bool) -> tuple[LogLine, ...]:
        query: dict[str, str | int] = {"stdout": 1, "stderr": 1, "timestamps": 1, "tail": tail}
        if since:
            query["since"] = wire.since_query(wire.canonical_stamp(since))
        request = Request("read the log of a container", container=container)
        decoder = wire.TerminalDecoder() if tty else wire.FrameDecoder()
        content = self._get(f"/containers/{quote(container, safe='')}/logs", query, request)
        try:
            return (*decoder.feed(content), *decoder.finish())
        except (wire.Damaged, wire.DaemonReported) as error:
            raise DockerError("Docker cannot read the log of a container.", "", detail=str(error)) from error

    def send_stop(self, container: str, grace_seconds: int) -> bool:
        return self._post(f"/containers/{container}/stop?t={grace_seconds}")

    def send_kill(self, container: str) -> bool:
        return self._post(f"/containers/{container}/kill?signal=SIGKILL")

    def close(self) -> None:
        while self._pending:
            self._pending.popleft().close()

    # --- requests -------------------------------------------------------------------------------------

    def _get_json(self, path: str, query: Mapping[str, str | int], request: Request) -> Any:
        content = self._get(path, query, request)
        try:
            return load_json(content)
        except ValueError as error:
            raise self._failed(error, request) from error

    def _get(self, path: str, query: Mapping[str, str | int], request: Request) -> bytes:
        if self._host is None:
            self._host = find_host(self._environ)
        try:
            if not self._prefix:
                self._prefix = f"/v{self._fetch('/_ping')[0].headers['Api-Version']}"
            answer, content = self._fetch(f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else ""))
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            raise self._failed(error, request) from error
        if answer.status < http.client.BAD_REQUEST:
            return content
        try:
            message = str(load_json(content)["message"])
        except (ValueError, LookupError, TypeError):
            message = content.decode("utf-8", "replace")
        raise from_message(message, request)

    def _fetch(self, target: str) -> tuple[http.client.HTTPResponse, bytes]:
        with self._connected(CALL_SECONDS) as sock:
            connection = http.client.HTTPConnection("docker")
            connection.sock = sock
            connection.request("GET", target, headers={"Connection": "close"})
            answer = connection.getresponse()
            return answer, answer.read()

    def _connected(self, seconds: float) -> socket.socket:
        host = self._host
        if host is None or host.tls is not None:
            raise DaemonNotRunning(
                f"The memory guard cannot use Docker over TLS ({host}).", "Set DOCKER_HOST to the local socket."
            )
        if not host.local:
            return socket.create_connection((host.address, host.port), seconds)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(seconds)
        try:
            sock.connect(host.address)
        except BaseException:
            sock.close()
            raise
        return sock

    def _failed(self, error: BaseException, request: Request) -> SparkError:
        return translate(error, self._host or DockerHost(""), request)

    def _post(self, path: str) -> bool:
        if self._host is None or not self._host.local or not self._prefix:
            return False
        try:
            sock = self._connected(SEND_SECONDS)
        except OSError:
            return False
        try:
            sock.sendall(f"POST {self._prefix}{path} HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode())
        except OSError:
            sock.close()
            return False
        sock.setblocking(False)  # kept open: some daemons take a closed connection for a cancellation
        self._pending.append(sock)
        while len(self._pending) > _MOST_PENDING:
            self._pending.popleft().close()
        return True

    def _forget_answered(self) -> None:
        for _ in range(len(self._pending)):
            sock = self._pending.popleft()
            with contextlib.suppress(OSError):
                try:
                    sock.recv(4096)
                except BlockingIOError:
                    self._pending.append(sock)
                    continue
            sock.close()
