"""The Docker Engine API over HTTP, by the standard library: calls with an answer, and streams read in large blocks."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import shlex
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from spark_tui.domain.errors import DaemonNotRunning, SparkError

LOCAL_SOCKET: Final = "unix:///var/run/docker.sock"
_PLAIN_PORT: Final = 2375
_TLS_PORT: Final = 2376


@dataclass(frozen=True, slots=True)
class DockerHost:
    """Where the daemon listens: a unix socket's path, or a name with a port.

    `tls` is the folder with ca.pem, cert.pem and key.pem. `origin` names the setting that all this comes from, for
    error messages.
    """

    address: str
    port: int = 0
    tls: Path | None = None
    verify: bool = True
    origin: str = ""

    @property
    def local(self) -> bool:
        """A unix socket of this machine."""
        return not self.port

    def __str__(self) -> str:
        return self.address if self.local else f"{self.address}:{self.port}"


def config_folder(environ: Mapping[str, str]) -> Path:
    """The docker program's own folder: DOCKER_CONFIG or ~/.docker."""
    named = environ.get("DOCKER_CONFIG")
    return Path(named) if named else Path(environ.get("HOME") or Path.home()) / ".docker"


def find_host(environ: Mapping[str, str]) -> DockerHost:
    """The daemon that the docker program would talk to in this environment. Raises DaemonNotRunning with a remedy."""
    named = environ.get("DOCKER_HOST")
    if named:
        return parse_host(named, "DOCKER_HOST", **_tls_of(environ))
    context = environ.get("DOCKER_CONTEXT") or _current_context(environ)
    if context in ("", "default"):
        return parse_host(LOCAL_SOCKET, "the default")
    return _context_host(context, environ)


def parse_host(url: str, origin: str, *, tls: Path | None = None, verify: bool = True) -> DockerHost:
    """`unix:///path`, `tcp://host:port`; raises DaemonNotRunning for anything else."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = ("unix", url) if url.startswith("/") else ("tcp", url)
    if scheme == "unix" and rest.startswith("/"):
        return DockerHost(rest, origin=origin)
    if scheme in ("tcp", "http", "https"):
        split = _split(f"//{rest}", url, origin)
        if split.hostname:
            secure = scheme == "https" or tls is not None
            port = split.port or (_TLS_PORT if secure else _PLAIN_PORT)
            folder = tls or (Path() if secure else None)
            return DockerHost(split.hostname, port, folder, verify, origin)
    if scheme == "ssh":
        there = rest.partition("/")[0]
        raise DaemonNotRunning(
            f"{origin} leads to another machine ({url}).",
            "Memory and GPU are always those of the machine that spark-tui runs on. Install it there too, name that "
            f"machine (spark-tui config set hosts.NAME {shlex.quote(f'ssh://{there}')}), and open it: "
            "spark-tui --host NAME",
        )
    raise _unusable(url, origin)


def _split(address: str, url: str, origin: str) -> SplitResult:
    try:
        split = urlsplit(address)
        _ = split.port  # only asking for it finds a bad one
    except ValueError as error:
        raise _unusable(url, origin) from error
    return split


def _unusable(url: str, origin: str) -> SparkError:
    return DaemonNotRunning(
        f"{origin} is {url!r}, which is no address of a Docker daemon.",
        "Use unix:///path/to/docker.sock or tcp://host:port, or unset it.",
    )


def _tls_of(environ: Mapping[str, str]) -> dict[str, Any]:
    verify, folder = environ.get("DOCKER_TLS_VERIFY", ""), environ.get("DOCKER_CERT_PATH", "")
    if not verify and not folder:
        return {}
    return {"tls": Path(folder) if folder else config_folder(environ), "verify": bool(verify)}


def _current_context(environ: Mapping[str, str]) -> str:
    """The context in the docker program's settings; empty where there are none."""
    path = config_folder(environ) / "config.json"
    try:
        settings = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise DaemonNotRunning(
            f"{path} cannot be read.", "Repair it, or set DOCKER_HOST.", detail=str(error)
        ) from error
    context = settings.get("currentContext", "") if isinstance(settings, dict) else ""
    return context if isinstance(context, str) else ""


def _context_host(name: str, environ: Mapping[str, str]) -> DockerHost:
    """The endpoint that `docker context create` stored: folders are named by the SHA-256 of the context's name."""
    folder = config_folder(environ) / "contexts"
    key = hashlib.sha256(name.encode()).hexdigest()
    try:
        meta = json.loads((folder / "meta" / key / "meta.json").read_text("utf-8"))
        endpoint = meta["Endpoints"]["docker"]
        url, skip = endpoint["Host"], bool(endpoint.get("SkipTLSVerify"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DaemonNotRunning(
            f"The Docker context {name!r} cannot be read.",
            "Choose one that is there (docker context ls, docker context use default), or set DOCKER_HOST.",
            detail=f"{type(error).__name__}: {error}",
        ) from error
    stored = folder / "tls" / key / "docker"
    return parse_host(url, f"the Docker context {name!r}", tls=stored if stored.is_dir() else None, verify=not skip)


CONNECT_SECONDS: Final = 10.0
CALL_SECONDS: Final = 30.0
BLOCK: Final = 64 * 1024
"""Bytes asked of the socket at once."""

Query = Mapping[str, str | int]


class Refused(Exception):
    """The daemon answered with an error: HTTP `status`, and its own sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Aborted(Exception):
    """The stream was closed from our side."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket that is connected already."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__("docker")
        self.sock = sock


class _StreamConnection(_Connection):
    """HTTP/1.0: the answer is not chunked, so that its body is the bare stream."""

    _http_vsn = 10
    _http_vsn_str = "HTTP/1.0"


class DockerHttp:
    """One daemon. Safe to use from several threads: each call has a connection of its own."""

    def __init__(self, host: DockerHost) -> None:
        self.host = host
        self._version = ""

    def call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: object | None = None,
        *,
        timeout: float | None = CALL_SECONDS,
    ) -> bytes:
        """The answer's body. Raises Refused, OSError or http.client.HTTPException."""
        headers = {"Connection": "close"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        target = self.target(path, query)
        with self.connect() as sock:
            sock.settimeout(timeout)
            connection = _Connection(sock)
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            content = answer.read()
        if answer.status >= 400:
            raise Refused(answer.status, message_of(content))
        return content

    def json(self, path: str, query: Query | None = None) -> Any:
        """GET, decoded."""
        return json.loads(self.call("GET", path, query))

    def stream(self, method: str, path: str, query: Query, headers: Mapping[str, str] | None = None) -> ByteStream:
        """A stream, not opened yet."""
        return ByteStream(self, method, path, query, headers or {})

    def target(self, path: str, query: Query | None = None) -> str:
        """The versioned path of a request; asks the daemon for its version the first time."""
        if not self._version:
            self._version = self._ask_version()
        text = f"?{urlencode(query)}" if query else ""
        return f"/v{self._version}{path}{text}"

    def api_version(self) -> str:
        """The API version that the daemon speaks: `1.41`."""
        self.target("")
        return self._version

    def forget_version(self) -> None:
        """After the daemon was away: it may have come back as another version."""
        self._version = ""

    def _ask_version(self) -> str:
        with self.connect() as sock:
            connection = _Connection(sock)
            connection.request("GET", "/_ping", headers={"Connection": "close"})
            answer = connection.getresponse()
            content = answer.read()
        version = answer.headers.get("Api-Version", "")
        if answer.status != http.client.OK or not version:
            raise Refused(answer.status, message_of(content) or "this is no Docker daemon")
        return version

    def connect(self) -> socket.socket:
        """A new connection, with a timeout for what follows. Raises OSError."""
        if self.host.local:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(CONNECT_SECONDS)
            try:
                sock.connect(self.host.address)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((self.host.address, self.host.port), CONNECT_SECONDS)
        return self._secured(sock) if self.host.tls is not None else sock

    def _secured(self, sock: socket.socket) -> socket.socket:
        try:
            context = self._tls_context()
        except OSError as error:  # about a file, and not about the daemon
            sock.close()
            raise ssl.SSLError(f"{self.host.tls}: {error}") from error
        return context.wrap_socket(sock, server_hostname=self.host.address)

    def _tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        folder = self.host.tls
        if folder is not None and (folder / "ca.pem").is_file():
            context.load_verify_locations(folder / "ca.pem")
        if folder is not None and (folder / "cert.pem").is_file():
            context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        if not self.host.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class ByteStream:
    """A long answer, read by one thread; any other thread may `abort` it, at any time."""

    def __init__(self, http_: DockerHttp, method: str, path: str, query: Query, headers: Mapping[str, str]) -> None:
        self._http = http_
        self._request = (method, path, query, headers)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._answer: http.client.HTTPResponse | None = None
        self._aborted = False

    def open(self) -> None:
        """Sends the request and reads the answer's head. Raises Refused, Aborted, OSError, HTTPException."""
        method, path, query, headers = self._request
        target = self._http.target(path, query)
        sock = self._http.connect()
        with self._lock:
            if self._aborted:
                sock.close()
                raise Aborted
            self._socket = sock
        sock.settimeout(None)
        connection = _StreamConnection(sock)
        try:
            connection.request(method, target, headers=dict(headers))
            self._answer = answer = connection.getresponse()
        except (OSError, http.client.HTTPException):
            if self._aborted:
                raise Aborted from None
            raise
        if answer.status >= 400:
            raise Refused(answer.status, message_of(answer.read()))

    def read(self) -> bytes:
        """What has arrived, at least one byte; nothing at the end. Raises Aborted, OSError, HTTPException."""
        if self._answer is None:
            raise Aborted
        try:
            data = self._answer.read1(BLOCK)
        except (OSError, ValueError, http.client.HTTPException):
            if self._aborted:
                raise Aborted from None
            raise
        if not data and self._aborted:
            raise Aborted
        return data

    def abort(self) -> None:
        """Wakes the reading thread, wherever it waits."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                # Not through SSLSocket.shutdown, which would take the TLS layer away under the reader.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the connection; called by the thread that read."""
        with self._lock:
            if self._answer is not None:
                self._answer.close()
            if self._socket is not None:
                self._socket.close()
                self._socket = None


def message_of(content: bytes) -> str:
    """The daemon's sentence in an error's body: `{"message": "..."}`, or the body itself."""
    try:
        found = json.loads(content)
    except ValueError:
        return content.decode(errors="replace").strip()
    message = found.get("message") if isinstance(found, dict) else None
    return message if isinstance(message, str) else content.decode(errors="replace").strip()


def segment(text: str, safe: str = "") -> str:
    """A name or id as one segment of a path; characters in `safe` stay as they are."""
    return quote(text, safe=safe)
