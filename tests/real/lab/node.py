"""One host of the rig: namespaces with a process 1, a root of its own, sshd and a Docker engine."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.real.lab.debian import SYSTEM_PATH, Toolbox
from tests.real.lab.engine import EngineClient, may_raise_limits, write_gpu_hook, write_limitless_runc
from tests.real.lab.fake_sysfs import FakeSysfs
from tests.real.lab.support import (
    Daemon,
    LabFailed,
    fingerprint,
    fresh_folder,
    is_alive,
    remove_tree,
    run,
    send,
    wait_until,
)

INIT = Path(__file__).with_name("node_init.py")
CHECKOUT = Path(__file__).resolve().parents[3]

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication yes
UsePAM no
UseDNS no
PidFile /run/sshd.pid
Subsystem sftp internal-sftp
"""
NO_PASSWORD = "root:*:20000:0:99999:7:::\n"
"""sshd refuses every key of an account that is locked, as Ubuntu's root is. A password is asked for, and none fits."""
SSHD_USER = "sshd:x:74:65534::/run/sshd:/usr/sbin/nologin\n"

NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd")
NO_RULES = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n*nat\nCOMMIT\n"
FIREWALL = "iptables/rules.v4"
IPTABLES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")

BOOT_SECONDS = 60.0


class Node:
    """A host of the rig, known by its number.

    `folder` on the machine's disk holds what outlives a reboot of the node: root's home, the logs, and Docker's
    images and containers. `network` is the file of its network namespace, which outlives a reboot as well.
    """

    def __init__(self, number: int, folder: Path, runtime: Path, tools: Sequence[Toolbox]) -> None:
        self.number = number
        self.name = f"spark-{number}"
        self.folder = folder
        self.home = folder / "home"
        self.sysfs = FakeSysfs(folder / "sysfs")
        self.network = runtime / self.name / "net"
        self.cgroup = f"sparklab-{runtime.name}/{self.name}"
        self._sockets = runtime / self.name / "sockets"
        self._layer = folder / "layer"
        self._tools = tools
        self._daemon = Daemon(self.name, runtime / f"{self.name}.pid", folder / "boot.log", str(folder / "plan.json"))
        self.engine = EngineClient(self._sockets / "docker.sock", folder / "client", tools[0])
        """Its Docker engine, reached from the machine without ssh."""

    @property
    def docker_host(self) -> str:
        """DOCKER_HOST for programs of the machine; stays the same over a reboot."""
        return self.engine.host

    @property
    def pid(self) -> int | None:
        """The node's process 1 as the machine numbers it, while the node is on."""
        parent = self._daemon.pid()
        if parent is None:
            return None
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            return int(children[0]) if children else None
        return None

    def argv(self, arguments: Sequence[str | Path], env: Mapping[str, str] | None = None) -> list[str]:
        """The same command inside the node, to be started from the machine. It sees `env` and none of the machine's."""
        if self.pid is None:
            raise LabFailed(f"{self.name} is off")
        variables = {**self.environ(), **(env or {})}
        inside = ["nsenter", "--target", str(self.pid), *NAMESPACES, "env", "--ignore-environment", "--chdir=/root"]
        return [*inside, *(f"{key}={value}" for key, value in variables.items()), *map(str, arguments)]

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float = 300,
    ) -> str:
        """Runs a program inside the node, as root, without ssh; its stdout. `LabFailed` where it fails."""
        return run(self.argv(arguments, env), stdin=stdin, timeout=timeout)

    def try_run(
        self, arguments: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program inside the node and returns how it ended, for what is meant to fail."""
        words = self.argv(arguments, env)
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout)

    @staticmethod
    def environ() -> dict[str, str]:
        """What root's programs see inside. Python finds this checkout's packages."""
        path = os.pathsep.join(SYSTEM_PATH)
        return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "xterm", "PYTHONPATH": str(CHECKOUT)}

    def log(self, service: str) -> str:
        """What `sshd`, `dockerd` or `boot` wrote since `up`."""
        path = self._daemon.log_file if service == "boot" else self.folder / "log" / f"{service}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def prepare(self, etc: Mapping[str, str], ssh: Mapping[str, str], host_key: str) -> None:
        """Lays out a node that has never been booted, but for Docker's data.

        etc: files by their path below /etc. ssh: files of root's ~/.ssh by name. Home has nothing else.
        """
        for name in ("home", "log"):
            fresh_folder(self.folder / name)
        self.home.chmod(0o700)
        for name in ("docker", "scratch", "client"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._sockets.mkdir(parents=True, exist_ok=True)
        self._daemon.log_file.unlink(missing_ok=True)
        (self.home / ".ssh").mkdir(mode=0o700)
        write_secrets(self.home / ".ssh", ssh)
        for folder in (self._layer, self.sysfs.folder):
            remove_tree(folder)
        files = {
            "hostname": f"{self.name}\n",
            "machine-id": fingerprint(str(self.folder)) * 2 + "\n",
            "resolv.conf": "",
            "docker/daemon.json": "{}\n",
            FIREWALL: NO_RULES,
            "ssh/sshd_config": SSHD_CONFIG,
            "passwd": with_sshd_user(Path("/etc/passwd").read_text()),
            **etc,
        }
        for name, text in files.items():
            path = self._layer / "etc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        write_secrets(self._layer / "etc", {"shadow": NO_PASSWORD, "ssh/ssh_host_ed25519_key": host_key})
        self._add_programs(self._layer / "usr/local/bin")

    def boot(self, binds: Sequence[tuple[Path, bool]]) -> None:
        """Starts process 1; `wait_ready` waits for it.

        binds: folders of the machine that are seen at the same path, and whether they are writable there.
        """
        own = {"docker": "/var/lib/docker", "home": "/root", "log": "/var/log"}
        plan = {
            "hostname": self.name,
            "layers": [str(self._layer), *(str(toolbox.root) for toolbox in self._tools if toolbox.root.exists())],
            "scratch": str(self.folder / "scratch"),
            "binds": [
                *((str(self.folder / name), target, True) for name, target in own.items()),
                (str(self._sockets), str(self._sockets), True),
                *((str(path), str(path), writable) for path, writable in binds),
            ],
            "overlays": [[str(source), target] for source, target in self.sysfs.overlays()],
            # The network namespace outlives a reboot, a machine's firewall does not.
            "setup": [["iptables-restore", f"/etc/{FIREWALL}"]],
            "services": {"sshd": ["/usr/sbin/sshd", "-D", "-e"], "dockerd": self._dockerd()},
        }
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan, indent=1))
        self.engine.socket.unlink(missing_ok=True)
        # --kill-child: whoever ends unshare ends process 1, and with it everything in the node.
        own_namespaces = ["--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        self._daemon.start(
            ["nsenter", f"--net={self.network}", "unshare", *own_namespaces, sys.executable, "-I", INIT, path],
            self.environ(),
        )

    def wait_ready(self) -> None:
        """Waits until Docker and sshd answer."""
        self._daemon.wait_ready(self.engine.answers, BOOT_SECONDS)
        if not wait_until(self._sshd_listens, BOOT_SECONDS):
            raise LabFailed(f"sshd of {self.name} does not listen:\n{self.log('sshd')}")

    def restart_docker(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Ends the Docker engine as a service manager does, its containers with it, and starts it again.

        meanwhile: what is done to its data in between.
        """
        pid = self.run(["cat", "/var/run/docker.pid"]).strip()
        self.run(["kill", pid])
        if not wait_until(lambda: self.try_run(["test", "-e", f"/proc/{pid}"]).returncode != 0, BOOT_SECONDS):
            raise LabFailed(f"dockerd of {self.name} does not end:\n{self.log('dockerd')}")
        meanwhile()
        start = f"setsid --fork {shlex.join(self._dockerd())} >>/var/log/dockerd.log 2>&1 </dev/null"
        self.run(["sh", "-c", start])
        self.wait_ready()

    def _dockerd(self) -> list[str]:
        hosts = ("--host", "unix:///var/run/docker.sock", "--host", self.engine.host)
        return ["dockerd", *hosts, "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self.cgroup}"]

    def kill(self) -> None:
        """Ends everything in the node at once, as a power failure does."""
        pid = self.pid
        if pid is not None:
            send(pid, signal.SIGKILL)
            # Process 1 is dead only when every process of its namespace is.
            if not wait_until(lambda: not is_alive(pid), BOOT_SECONDS):
                raise LabFailed(f"{self.name} does not end (process {pid})")
        self._daemon.kill()
        self._daemon.pid_file.unlink(missing_ok=True)

    def _sshd_listens(self) -> bool:
        greeting = self.try_run(["bash", "-c", "read -r -t 5 line </dev/tcp/127.0.0.1/22 && echo $line"])
        return greeting.stdout.startswith("SSH-")

    def _add_programs(self, folder: Path) -> None:
        """What Docker needs: `--gpus` accepted, any limit accepted, and an iptables."""
        write_gpu_hook(folder)
        if not may_raise_limits():
            write_limitless_runc(folder, self._seen_inside("runc"))
        if shutil.which("iptables", path=os.pathsep.join(SYSTEM_PATH)) is None:
            for name in IPTABLES:
                (folder / name).symlink_to(self._iptables())

    def _iptables(self) -> Path:
        """Debian's set-up script picks one of the two; here the one that this kernel knows is taken."""
        legacy = [self._tools[0].need("iptables-legacy"), "--numeric", "--table", "nat", "--list"]
        words = ["nsenter", f"--net={self.network}", *map(str, legacy)]
        known = subprocess.run(words, env=self._tools[0].environ(), capture_output=True, check=False).returncode == 0
        return self._seen_inside("xtables-legacy-multi" if known else "xtables-nft-multi")

    def _seen_inside(self, program: str) -> Path:
        """Where the node finds a program of the toolbox."""
        path, root = self._tools[0].need(program), self._tools[0].root
        return Path("/", path.relative_to(root)) if path.is_relative_to(root) else path


def write_secrets(folder: Path, files: Mapping[str, str]) -> None:
    """Files that their owner alone may read, in a folder that is there."""
    for name, text in files.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(text)


def with_sshd_user(passwd: str) -> str:
    """The machine's users, and the one as whom sshd handles what is not logged in yet."""
    return passwd if "\nsshd:" in passwd else passwd + SSHD_USER
