"""A Docker engine of our own: daemon, containerd, bridge and data. The machine's Docker is never touched."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.real.lab.debian import Toolbox, require_machine
from tests.real.lab.support import (
    Daemon,
    LabFailed,
    LabUnavailable,
    fingerprint,
    parent_of,
    processes_naming,
    remove_tree,
    run,
    runtime_folder,
    send,
    wait_until,
)

HOOK = "nvidia-container-runtime-hook"
"""dockerd accepts `--gpus` when a program of this name stands on its PATH as it starts."""

FAKE_HOOK = "#!/bin/sh\ncat >/dev/null\nexit 0\n"
"""Takes the container's state, as a prestart hook must, and adds no device."""

CONTAINERD_CONFIG = """\
version = 2
root = "{root}/containerd"
state = "{runtime}/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{runtime}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
"""

LIMITLESS_RUNC = """\
#!{python}
import json, os, sys

if "--bundle" in sys.argv:
    path = os.path.join(sys.argv[sys.argv.index("--bundle") + 1], "config.json")
    with open(path) as file:
        spec = json.load(file)
    spec["process"].pop("rlimits", None)
    with open(path, "w") as file:
        json.dump(spec, file)
os.execv("{runc}", ["{runc}", *sys.argv[1:]])
"""
"""Stands before runc where root may not raise limits: every preset for a GPU asks for unlimited locked memory."""

CAP_SYS_RESOURCE = 24

READY_SECONDS = 60.0
API_SECONDS = 30.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class EngineClient:
    """A Docker engine behind a unix socket. `config` is a folder for the `docker` program's settings."""

    def __init__(self, socket_file: Path, config: Path, toolbox: Toolbox) -> None:
        self.socket = socket_file
        self.host = f"unix://{socket_file}"
        self._config = config
        self._toolbox = toolbox

    def answers(self) -> bool:
        """Whether the daemon answers a ping."""
        try:
            return self._request("GET", "/_ping", timeout=2)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def api(self, method: str, path: str) -> Any:
        """One call of Docker's API; `LabFailed` with its message where it refuses."""
        status, body = self._request(method, path, timeout=API_SECONDS)
        if status >= 400:
            raise LabFailed(f"{method} {path}: {status} {body.decode(errors='replace').strip()}")
        return json.loads(body) if body.strip() else None

    def environ(self) -> dict[str, str]:
        """The environment in which the `docker` program talks to this engine."""
        return {**self._toolbox.environ(), **self.variables()}

    def variables(self) -> dict[str, str]:
        """What a program has to be told: this engine, and Docker settings of the lab instead of the user's."""
        return {"DOCKER_HOST": self.host, "DOCKER_CONFIG": str(self._config)}

    def docker_argv(self, *arguments: str | Path) -> list[str]:
        """The command line of the `docker` program, to be run in `environ()`."""
        return [str(self._toolbox.need("docker")), *map(str, arguments)]

    def docker(self, *arguments: str | Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
        """Runs the `docker` program against this engine and returns its stdout, stripped."""
        return run(self.docker_argv(*arguments), env={**self.environ(), **(env or {})}, stdin=stdin).strip()

    def try_docker(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs the `docker` program and returns how it ended, for what is meant to fail."""
        words = self.docker_argv(*arguments)
        return subprocess.run(words, env=self.environ(), capture_output=True, text=True, check=False, timeout=300)

    def image_id(self, reference: str) -> str | None:
        """An image's id, the same in every engine; None where the image is not there."""
        try:
            return str(self.api("GET", f"/images/{reference}/json")["Id"])
        except LabFailed:
            return None

    def image_label(self, reference: str, label: str) -> str | None:
        """A label of an image; None where the image is not there or not labelled."""
        try:
            labels = self.api("GET", f"/images/{reference}/json")["Config"]["Labels"] or {}
        except LabFailed:
            return None
        value = labels.get(label)
        return None if value is None else str(value)

    def _request(self, method: str, path: str, timeout: float) -> tuple[int, bytes]:
        connection = UnixConnection(self.socket, timeout)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


class PrivateEngine(EngineClient):
    """A Docker engine whose data is in `root` and whose socket is in a folder under /run.

    gpu: whether `--gpus all` is accepted. Without it the daemon answers, as on a machine without NVIDIA's toolkit,
        `could not select device driver "" with capabilities: [[gpu]]`.
    live_restore: whether containers go on while the daemon restarts.

    Published ports work on 127.0.0.1 through Docker's user-land proxy. Containers cannot reach the internet: the
    daemon leaves the machine's firewall and its forwarding alone, which also keeps a second Docker unharmed.
    """

    busybox = "spark-tui/busybox:1"
    """The tag of the small image that the lab puts into every engine it makes."""

    def __init__(self, root: Path, toolbox: Toolbox, *, gpu: bool = True, live_restore: bool = False) -> None:
        self.root = root
        self.runtime = runtime_folder(root)
        super().__init__(self.runtime / "docker.sock", root / "client", toolbox)
        self.bridge = f"sparklab-{self.runtime.name[:6]}"
        self._gpu = gpu
        self._live_restore = live_restore
        self._daemon = self._own("dockerd")
        self._containerd = self._own("containerd")

    def __enter__(self) -> PrivateEngine:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The daemon's pid while it runs."""
        return self._daemon.pid()

    @property
    def running(self) -> bool:
        """Whether the daemon runs and answers."""
        return self.pid is not None and self.answers()

    def start(self) -> None:
        """Starts what does not run yet and waits until the daemon answers."""
        require_machine()
        if self.running:
            return
        self.root.mkdir(parents=True, exist_ok=True)
        self.runtime.mkdir(parents=True, exist_ok=True)
        self._start_containerd()
        self._ensure_bridge()
        self._start_daemon()

    def stop(self) -> None:
        """Ends containers, daemon and bridge, and whatever a crash left behind. The data stays."""
        if self.running:
            self._kill_containers()
        self._daemon.stop()
        self._containerd.stop()
        self._end_strays()
        if self._bridge_exists():
            self._ip("link", "delete", self.bridge)
        remove_tree(self.runtime)

    def purge(self) -> None:
        """Stops, and deletes the data as well."""
        self.stop()
        remove_tree(self.root)

    def restart(self, *, crash: bool = False) -> None:
        """Restarts the daemon alone. Containers go on only with `live_restore`, as on a real machine."""
        if crash:
            self._daemon.kill()
            # Until init has collected the dead daemon, its pid still exists and a new one would refuse to start.
            (self.runtime / "docker.pid").unlink(missing_ok=True)
        else:
            self._daemon.stop(grace_seconds=60)
        self._start_daemon()

    def pause_daemon(self) -> None:
        """Takes the daemon away; `start` brings it back."""
        self._daemon.stop(grace_seconds=60)

    def log(self) -> str:
        """What the daemon wrote so far."""
        return self._daemon.log()

    def _own(self, name: str) -> Daemon:
        return Daemon(name, self.runtime / f"{name}.pid", self.root / f"{name}.log", str(self.root / f"{name}."))

    def _start_containerd(self) -> None:
        if self._containerd.pid() is not None:
            return
        config = self.root / "containerd.toml"
        config.write_text(CONTAINERD_CONFIG.format(root=self.root, runtime=self.runtime))
        address = self.runtime / "containerd.sock"
        address.unlink(missing_ok=True)
        # Without one of our own, dockerd would share the machine's containerd with the machine's Docker.
        self._containerd.start([self._toolbox.need("containerd"), "--config", config], self._containerd_environ())
        self._containerd.wait_ready(lambda: connects(address), READY_SECONDS)

    def _start_daemon(self) -> None:
        # An own file, because dockerd otherwise reads the machine's /etc/docker/daemon.json.
        config = self.root / "dockerd.json"
        config.write_text(json.dumps({"live-restore": self._live_restore}))
        self._config.mkdir(exist_ok=True)
        arguments: list[str | Path] = [
            *(self._toolbox.need("dockerd"), "--config-file", config),
            *("--data-root", self.root / "data", "--exec-root", self.runtime / "exec"),
            *("--host", self.host, "--pidfile", self.runtime / "docker.pid", "--group", socket_group()),
            *("--containerd", self.runtime / "containerd.sock", "--bridge", self.bridge),
            *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
        ]
        self._daemon.start(arguments, self._daemon_environ())
        self._daemon.wait_ready(self.answers, READY_SECONDS)

    def _containerd_environ(self) -> dict[str, str]:
        env = self._toolbox.environ()
        if not may_raise_limits():
            folder = self.root / "limitless"
            write_limitless_runc(folder, self._toolbox.need("runc"))
            env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
        return env

    def _daemon_environ(self) -> dict[str, str]:
        env = self._toolbox.environ()
        if self._gpu:
            folder = self.root / "hook"
            write_gpu_hook(folder)
            env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
        elif shutil.which(HOOK, path=env["PATH"]):
            raise LabUnavailable("NVIDIA's container toolkit is installed here: an engine without it cannot be had")
        return env

    def _kill_containers(self) -> None:
        for container in self.api("GET", "/containers/json"):
            try:
                self.api("POST", f"/containers/{container['Id']}/kill")
            except LabFailed:
                continue  # it has ended by itself in the meantime

    def _end_strays(self) -> None:
        """Ends the container processes that a crashed daemon left: each hangs on a shim naming our containerd."""
        for shim in processes_naming(str(self.runtime / "containerd.sock")):
            everyone = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
            for pid in everyone:
                if parent_of(pid) == shim:
                    send(pid, signal.SIGKILL)
            send(shim, signal.SIGKILL)
        wait_until(lambda: not processes_naming(str(self.runtime / "containerd.sock")), 10)

    def _ensure_bridge(self) -> None:
        if not self._bridge_exists():
            self._ip("link", "add", "name", self.bridge, "type", "bridge")
            self._ip("address", "add", unused_gateway(self.bridge), "dev", self.bridge)
        self._ip("link", "set", self.bridge, "up")

    def _bridge_exists(self) -> bool:
        return Path("/sys/class/net", self.bridge).exists()

    def _ip(self, *arguments: str) -> None:
        run([self._toolbox.need("ip"), *arguments], env=self._toolbox.environ())


def write_limitless_runc(folder: Path, runc: Path) -> None:
    """A `runc` that stands before the real one at `runc`."""
    write_program(folder / "runc", LIMITLESS_RUNC.format(python=sys.executable, runc=runc))


def write_gpu_hook(folder: Path) -> None:
    """The program that makes dockerd accept `--gpus`."""
    write_program(folder / HOOK, FAKE_HOOK)


def write_program(path: Path, text: str) -> None:
    """An executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def may_raise_limits() -> bool:
    """Whether root has its usual right to raise resource limits; some containers and virtual machines take it away."""
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> CAP_SYS_RESOURCE & 1)


def connects(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def socket_group() -> str:
    """Who may use the socket besides root: the person's group under sudo, so that the app itself needs no root."""
    return os.environ.get("SUDO_GID", "0")


def routed_networks() -> list[ipaddress.IPv4Network]:
    """The networks that this machine has routes to, the default route excepted."""
    networks = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        _, destination, _, _, _, _, _, mask, *_ = line.split()
        address, netmask = (int.from_bytes(bytes.fromhex(word), "little") for word in (destination, mask))
        if netmask:
            networks.append(ipaddress.IPv4Network((address, bin(netmask).count("1"))))
    return networks


def unused_gateway(name: str) -> str:
    """An address with prefix for a bridge of this name, in a network that leads nowhere yet."""
    taken = routed_networks()
    first = int(fingerprint(name)[:2], 16)
    for offset in range(256):
        network = ipaddress.IPv4Network(f"10.213.{(first + offset) % 256}.0/24")
        if not any(network.overlaps(other) for other in taken):
            return f"{network[1]}/24"
    raise LabUnavailable("10.213.0.0/16 is in use on this machine; the lab needs a free /24 in it for its bridge")
