"""A private image registry, open or asking for a password, and a slow way to it."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
import time
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.real.lab.debian import Toolbox
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.support import Daemon, free_port, remove_tree, runtime_folder

USER = "spark"
PASSWORD = "open-sesame"
HTPASSWD = "spark:$2b$05$6dssizPUQe7olkoaVxi8te2PbqPx99ck39TunStgE9LwE0Uh5K2P6\n"
"""USER and PASSWORD in the one form (bcrypt) that the registry reads."""

CONFIG = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {root}/data}}
  delete: {{enabled: true}}
http:
  addr: 127.0.0.1:{port}
"""

ASK_PASSWORD = "auth:\n  htpasswd: {{realm: spark-tui lab, path: {root}/htpasswd}}\n"

READY_SECONDS = 20.0
CHUNK = 16 * 1024


class PrivateRegistry:
    """A registry on a port of 127.0.0.1, which every Docker engine accepts without TLS.

    password: whether it answers 401 to those who do not log in as USER with PASSWORD.
    """

    def __init__(self, root: Path, toolbox: Toolbox, *, password: bool = False) -> None:
        self.root = root
        self.runtime = runtime_folder(root)
        self.password = password
        self._toolbox = toolbox
        self._config = root / "registry.yml"
        self._port_file = self.runtime / "registry.port"
        self._daemon = Daemon(
            "docker-registry", self.runtime / "registry.pid", root / "registry.log", str(self._config)
        )

    def __enter__(self) -> PrivateRegistry:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        return self._daemon.pid()

    @property
    def port(self) -> int:
        """Where it listens; asked for only while it runs."""
        return int(self._port_file.read_text())

    @property
    def address(self) -> str:
        """The first part of an image reference in this registry."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it on a free port unless it runs already."""
        if self.pid is not None:
            return
        self.runtime.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(parents=True, exist_ok=True)
        port = free_port()
        (self.root / "htpasswd").write_text(HTPASSWD)
        template = CONFIG + (ASK_PASSWORD if self.password else "")
        self._config.write_text(template.format(root=self.root, port=port))
        self._port_file.write_text(str(port))
        self._daemon.start([self._toolbox.need("docker-registry"), "serve", self._config], self._toolbox.environ())
        self._daemon.wait_ready(self.answers, READY_SECONDS)

    def stop(self) -> None:
        """Ends it; what was pushed stays."""
        self._daemon.stop(grace_seconds=5)
        remove_tree(self.runtime)

    def purge(self) -> None:
        """Ends it and deletes what was pushed."""
        self.stop()
        remove_tree(self.root)

    def answers(self) -> bool:
        """Whether it answers, be it with 401."""
        try:
            urllib.request.urlopen(f"http://{self.address}/v2/", timeout=2).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 401
        except OSError:
            return False
        return True

    def push(self, engine: PrivateEngine, image: str, repository: str) -> str:
        """Pushes an image of the engine under a name here; returns the reference to pull, without a copy left."""
        reference = f"{self.address}/{repository}"
        engine.docker("tag", image, reference)
        try:
            with self.logged_in(engine) as config:
                engine.docker("push", reference, env={"DOCKER_CONFIG": str(config)})
        finally:
            engine.docker("rmi", reference)
        return reference

    @contextlib.contextmanager
    def logged_in(self, engine: PrivateEngine) -> Iterator[Path]:
        """A folder of Docker client settings that hold the password, for as long as the block runs."""
        folder = self.root / "client"
        folder.mkdir(exist_ok=True)
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        auths = {self.address: {"auth": token}} if self.password else {}
        (folder / "config.json").write_text(json.dumps({"auths": auths}))
        try:
            yield folder
        finally:
            (folder / "config.json").unlink()


class SlowLink:
    """A port that leads to another with so many bytes a second back, shared by all connections.

    It stretches a pull long enough to watch its progress and to cancel it.
    """

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self._target = port
        self._rate = bytes_per_second
        self._turn = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self.port: int = self._listener.getsockname()[1]

    @property
    def address(self) -> str:
        """The first part of an image reference through this link."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> SlowLink:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._closing.set()
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)
        self._listener.close()

    def _spawn(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._spawn(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            self._open |= {near, far}
            up = threading.Thread(target=self._copy, args=(near, far, None), daemon=True)
            up.start()
            self._copy(far, near, self._rate)
            up.join(timeout=5)
            self._open -= {near, far}

    def _copy(self, source: socket.socket, target: socket.socket, rate: float | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if rate is not None:
                    with self._turn:
                        time.sleep(len(data) / rate)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
