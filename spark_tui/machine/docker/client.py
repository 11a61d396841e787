"""The Docker SDK's client as this program uses it: one per kind of call, and one for each stream.

Private names of the SDK, of requests and of urllib3 stand in this file only; tests/machine/test_docker_client.py
fails when an update changes one of them.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import docker
import docker.api.client
import docker.auth
import docker.utils.config
import urllib3.exceptions
from docker.errors import DockerException
from docker.tls import TLSConfig
from docker.utils.proxy import ProxyConfig

from spark_tui.machine.docker.host import DockerHost

CONNECT_SECONDS: Final = 10.0
BLOCK: Final = 64 * 1024
"""Bytes asked of the socket at once."""

FAILURES: Final = (
    DockerException,
    OSError,  # what requests raises is one too
    http.client.HTTPException,
    urllib3.exceptions.HTTPError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,  # the last four: an answer that is not Docker's
)
"""All that a call of the SDK, and reading its answer, can raise."""

# The SDK's constructor reads the settings and logins in this user's home before it can be told others.
_sdk: Any = docker.api.client
_sdk.config = SimpleNamespace(load_general_config=lambda: {"HttpHeaders": {}})


class DockerClient(docker.APIClient):
    """One daemon; each call has a connection of its own. Asks for the daemon's API version unless it is given."""

    def __init__(self, host: DockerHost, config: Path, *, version: str = "", timeout: float = 60.0) -> None:
        tls = TLSConfig(**host.tls) if isinstance(host.tls, dict) else host.tls or False
        super().__init__(host.url, version=version or "auto", timeout=timeout, tls=tls)  # type: ignore[arg-type]
        self.headers["Connection"] = "close"  # the SDK keeps a connection for every URL, up to 25
        self._general_configs = docker.utils.config.load_general_config(str(config))
        proxies: Any = self._general_configs.get("proxies") or {}
        named = host.url if host.local else f"tcp://{host}"
        chosen: Any = proxies.get(named) or proxies.get("default") or {}
        self._proxy_configs = ProxyConfig.from_dict(chosen)
        self._auth_configs = docker.auth.load_config(str(config))

    def _retrieve_server_version(self) -> str:
        """The constructor's only request. A proxy for the internet is not for a daemon; ~/.netrc is not read."""
        self.trust_env = False
        sdk: Any = super()  # a name that its type stubs leave out
        return str(sdk._retrieve_server_version())

    def image_disk(self) -> Any:
        """`GET /system/df` of images alone. The SDK's `df` measures volumes and the build cache too, which takes long;
        since API 1.52 the images are listed on request only."""
        sdk: Any = self  # names that its type stubs leave out
        url = sdk._url("/system/df")
        return sdk._result(sdk._get(url, params={"type": "image", "verbose": "1"}), True)

    def get_adapter(self, url: str) -> Any:
        """The SDK's adapter; its connections are made by `_connect`."""
        adapter: Any = super().get_adapter(url)
        if "get_connection_with_tls_context" in vars(adapter):
            return adapter
        pool_of = adapter.get_connection_with_tls_context

        def watched_pool(*args: Any, **kwargs: Any) -> Any:
            pool = pool_of(*args, **kwargs)
            new_connection = pool._new_conn

            def watched() -> Any:
                connection = new_connection()
                connection.connect = partial(self._connect, connection, connection.connect)
                return connection

            pool._new_conn = watched
            return pool

        adapter.get_connection_with_tls_context = watched_pool
        return adapter

    def _connect(self, connection: Any, connect: Any) -> None:
        path = getattr(connection, "unix_socket", "")
        if not path:
            connect()
            return
        sock = socket.socket(socket.AF_UNIX)  # the SDK does not close it on failure
        sock.settimeout(CONNECT_SECONDS)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            raise
        connection.sock = sock


class StreamClient(DockerClient):
    """A client for one long answer: any other thread may `abort` it at any time, also while it connects."""

    failures = FAILURES

    def __init__(self, host: DockerHost, config: Path, *, version: str) -> None:
        self.aborted = False
        self._sockets: list[socket.socket] = []
        self._response: Any = None
        self._chunks = Chunks()
        super().__init__(host, config, version=version, timeout=CONNECT_SECONDS)

    def abort(self) -> None:
        """Wakes the thread that reads, wherever it waits."""
        self.aborted = True
        for sock in self._sockets:
            # Not SSLSocket.shutdown, which takes the TLS layer away under the reader.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _connect(self, connection: Any, connect: Any) -> None:
        super()._connect(connection, connect)
        self._sockets.append(connection.sock)
        if self.aborted:
            self.abort()

    def pull_messages(self, reference: str) -> Any:
        """Messages of a pull, with the login that the docker program has stored for the registry."""
        with warnings.catch_warnings():  # the SDK also warns of a missing helper, into the middle of the screen
            warnings.simplefilter("ignore")
            return self.pull(reference, stream=True, decode=True)

    def open_log(self, container: str, query: dict[str, str | int]) -> None:
        """Asks for a log. `APIClient.logs` takes `since` as a float only, which rounds nanoseconds away."""
        sdk: Any = self  # names that its type stubs leave out
        url = sdk._url("/containers/{0}/logs", container)
        self._response = sdk._get(url, params=query, stream=True, timeout=(CONNECT_SECONDS, None))
        sdk._raise_for_status(self._response)

    def read(self) -> bytes:
        """What has arrived of the log, at least one byte; nothing at its end. Raises one of FAILURES.

        The SDK reads frame by frame, which costs a whole core in a flood of lines (20,000 a second); large blocks of
        its connection, split by `FrameDecoder`, cost a tenth of that (tests/perf/test_log_follow.py).
        """
        body = self._response.raw._fp
        while body.fp is not None:
            data = body.fp.read1(BLOCK)
            if not body.chunked:
                return bytes(data)
            if not data:
                if self._chunks.ended:
                    break
                raise ConnectionResetError("the stream ended within a chunk")
            content = self._chunks.feed(data)
            if content or self._chunks.ended:
                return content
        return b""

    def close(self) -> None:
        """Frees the connection; called by the thread that read."""
        if self._response is not None:
            self._response.close()
        super().close()


class Chunks:
    """Takes the sizes out of an HTTP/1.1 chunked body that arrives cut anywhere."""

    def __init__(self) -> None:
        self._rest = b"\r\n"  # as before every later size
        self._left = 0
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """The content within these bytes. Raises ValueError for what is no chunk."""
        data, at, content = self._rest + data, 0, []
        self._rest = b""
        while not self.ended:
            if self._left:
                piece = data[at : at + self._left]
                content.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
            end = data.find(b"\r\n", at + 2)
            if end < 0:
                self._rest = data[at:]
                break
            self._left = int(data[at + 2 : end].partition(b";")[0], 16)
            self.ended = not self._left
            at = end + 2
        return b"".join(content)
