"""Two hosts on one machine, wired like two DGX Sparks, and a desk beside them from which they are controlled.

Everything is real but GPU, RDMA and switch: two sshd on port 22, two Docker engines, two fabric links, LAN, Wi-Fi.
Nothing of it appears in the machine's own network namespace.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real.lab.debian import NODE_PROGRAMS, Toolbox, require_machine
from tests.real.lab.engine import EngineClient, PrivateEngine, write_program
from tests.real.lab.fake_sysfs import RDMA_DEVICES
from tests.real.lab.images import ensure_busybox
from tests.real.lab.node import CHECKOUT, Node, write_secrets
from tests.real.lab.support import (
    LabFailed,
    LabUnavailable,
    Say,
    fresh_folder,
    locked,
    remove_tree,
    run,
    runtime_folder,
    send,
    wait_until,
)

NUMBERS = (1, 2)


@dataclass(frozen=True)
class Interface:
    """A network interface that every node has: the address of node 1, that of node 2 is the next."""

    name: str
    first: ipaddress.IPv4Interface
    mtu: int = 1500
    metric: int | None = None

    def address(self, number: int) -> str:
        """A node's address, without the prefix."""
        return str(self.first.ip + number - 1)

    @property
    def gateway(self) -> str:
        """The desk's address in the same network."""
        return str(self.first.network[1])


FABRIC_A = Interface("enp1s0f0np0", ipaddress.IPv4Interface("192.168.100.1/24"), mtu=9000)
FABRIC_B = Interface("enP2p1s0f0np0", ipaddress.IPv4Interface("192.168.101.1/24"), mtu=9000)
LAN = Interface("enP7s7", ipaddress.IPv4Interface("10.77.0.11/24"), metric=100)
WIFI = Interface("wlP9s9", ipaddress.IPv4Interface("10.88.0.11/24"), metric=600)
INTERFACES = {interface.name: interface for interface in (FABRIC_A, FABRIC_B, LAN, WIFI)}
"""One QSFP cage's two links from node to node; RJ45 and Wi-Fi, each a bridge at the desk."""

WIFI_RATE = ("rate", "100mbit", "burst", "256k", "latency", "50ms")

CLIENT_CONFIG = """\
Host *
  User root
  IdentityFile {identity}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
  StrictHostKeyChecking yes
  ConnectTimeout 5
"""


class Rig:
    """Two nodes and a desk, in the folder `root` and one under /run.

    The paths of this checkout, its Python and the lab's folder are the same inside the nodes, and read-only there;
    `share` alone is writable for the machine and for both nodes. Images that were loaded stay for the next `up`.
    `tools` holds the programs of the nodes, for all rigs of a lab.
    """

    def __init__(self, root: Path, toolbox: Toolbox, engine: PrivateEngine, *, tools: Path) -> None:
        self.root = root
        self.share = root / "share"
        self.runtime = runtime_folder(root)
        self._toolbox = toolbox
        self._node_tools = Toolbox(tools, NODE_PROGRAMS)
        self._engine = engine
        self._keys = root / "keys"
        self._programs = root / "desk"
        self._desk = self.runtime / "desk"
        programs = (toolbox, self._node_tools)
        self._nodes = {number: Node(number, root / f"node{number}", self.runtime, programs) for number in NUMBERS}

    @contextlib.contextmanager
    def lease(self, say: Say) -> Iterator[None]:
        """A rig fresh from `up`, for one user at a time; taken down at the end."""
        require_machine()
        busy = f"another run uses the rig in {self.root}: waiting (a lab in another folder, SPARK_TUI_LAB, has its own)"
        with locked(self.root / "lock", lambda: say(busy)):
            try:
                self.up(say)
                yield
            finally:
                self.down()

    def up(self, say: Say, *, rdma: bool = False) -> None:
        """Brings up both nodes with empty homes and no containers, and waits until ssh and Docker answer.

        Images of earlier times are there, and the lab's busybox always.

        rdma: whether /sys shows a Spark's cards: RoCE devices with their GIDs, speeds, a Wi-Fi that is one. Without it
            /sys shows what is there: virtual links and no RDMA.

        A rig that is up already is taken down first.
        """
        require_machine()
        require_plain_root()
        with locked(self._node_tools.root.with_name("tools.lock")):
            self._toolbox.ensure(say)
            self._node_tools.ensure(say)
        self.down()
        say("booting two nodes")
        fresh_folder(self.share)
        self._make_keys()
        self._wire()
        for node in self._nodes.values():
            self._prepare(node)
            if rdma:
                addresses = {name: wire.address(node.number) for name, wire in INTERFACES.items()}
                # As between two Sparks: the index of the same GID differs (tonyd2wild #38).
                node.sysfs.write(addresses, first_gid=2 * (node.number - 1))
            self._boot(node)
        for node in self._nodes.values():
            node.wait_ready()
            node.engine.api("POST", "/containers/prune")
            ensure_busybox(node.engine, self._toolbox)

    def down(self) -> None:
        """Ends both nodes, and everything that was started at the desk. Images stay."""
        for node in self._nodes.values():
            node.kill()
        for namespace in (self._desk, *(node.network for node in self._nodes.values())):
            end_processes_in(namespace)
        remove_tree(self.runtime)
        remove_cgroups(f"sparklab-{self.runtime.name}")

    def node(self, number: int) -> Node:
        """Node 1 or 2."""
        return self._nodes[number]

    def desk_argv(self, arguments: Sequence[str | Path]) -> list[str]:
        """The same command at the desk: the machine's files, the desk's network, and an `ssh` that knows the nodes."""
        path = os.pathsep.join([str(self._programs), os.environ.get("PATH", ""), self._toolbox.path()])
        return ["nsenter", f"--net={self._desk}", "env", f"PATH={path}", *map(str, arguments)]

    def alias(self, name: str, number: int, *options: str) -> None:
        """A further name of a node at the desk, by Wi-Fi, with options of ssh that go before all others.

        By another address than the node's own name: a connection that is open to that is none for this one.
        """
        config = self._keys / "config"
        lines = (f"Host {name}", f"  HostName {WIFI.address(number)}", *(f"  {option}" for option in options))
        config.write_text("\n".join([*lines, config.read_text()]))

    def plug(self, number: int, on: bool) -> None:
        """Cuts a node's power, or boots it. Docker's data and the home stay, links and firewall are as at the start."""
        node = self.node(number)
        if not on:
            # First the cables: the kernel would otherwise close the dead node's connections, which no dead node does.
            for name in INTERFACES:
                self.link(number, name, up=False)
            node.kill()
            return
        for name, interface in INTERFACES.items():
            self.mtu(number, name, interface.mtu)
            self.link(number, name, up=True)
        self._boot(node)
        node.wait_ready()

    def link(self, number: int, interface: str, *, up: bool) -> None:
        """Pulls an interface's cable, or puts it back: the other end loses its carrier as well."""
        self._ip(number, "link", "set", interface, "up" if up else "down")
        wire = INTERFACES[interface]
        if up and wire.metric is not None:
            # The kernel drops routes with the link; on a Spark NetworkManager brings them back.
            way = ("default", "via", wire.gateway, "dev", interface, "metric", str(wire.metric))
            self._ip(number, "route", "replace", *way)
        if interface in RDMA_DEVICES:
            for node in self._nodes.values():
                self._show_rdma(node, interface)

    def mtu(self, number: int, interface: str, value: int) -> None:
        """Sets an interface's MTU in bytes."""
        self._ip(number, "link", "set", interface, "mtu", str(value))

    def firewall(self, number: int, interface: str, port: int, *, closed: bool = True) -> None:
        """Drops what arrives at a TCP port of a node through an interface, or lets it in again."""
        rule = ("INPUT", "--in-interface", interface, "--protocol", "tcp", "--dport", str(port), "--jump", "DROP")
        self.node(number).run(["iptables", "--wait", "--insert" if closed else "--delete", *rule])

    def load_image(self, reference: str, *numbers: int) -> None:
        """Puts an image of the lab's engine on these nodes, or on both; nothing where it is already. A node's
        containers end with its Docker, which starts again with the image."""
        wanted = self._engine.image_id(reference)
        if wanted is None:
            raise LabFailed(f"the lab's engine has no image {reference}")
        for number in numbers or NUMBERS:
            node = self.node(number)
            if node.engine.image_id(reference) == wanted:
                continue
            data = (self._engine.root / "data", node.folder / "docker")
            node.restart_docker(functools.partial(share_image, reference, wanted, *data))
            if node.engine.image_id(reference) != wanted:
                copy_image(reference, self._engine, node.engine)

    def seen(self) -> list[Path]:
        """The folders of the machine that the nodes see, read-only: checkout, Python, and the lab with its models."""
        python = [path for path in (sys.prefix, sys.base_prefix) if path != "/usr"]
        return [CHECKOUT, *(Path(path).resolve() for path in python), self.root.parent]

    def _boot(self, node: Node) -> None:
        node.boot([*((path, False) for path in self.seen()), (self.share, True)])

    def _prepare(self, node: Node) -> None:
        keys = self._keys
        hosts = "".join(f"{LAN.address(each.number)} {each.name}\n" for each in self._nodes.values())
        ssh = {
            "id_ed25519": (keys / node.name).read_text(),
            "authorized_keys": "".join((keys / f"{name}.pub").read_text() for name in self._logins()),
            "known_hosts": (keys / "known_hosts").read_text(),
            "config": CLIENT_CONFIG.format(identity="~/.ssh/id_ed25519", known_hosts="~/.ssh/known_hosts"),
        }
        node.prepare({"hosts": f"127.0.0.1 localhost\n{hosts}"}, ssh, (keys / f"host-{node.name}").read_text())

    def _logins(self) -> list[str]:
        """Who has a key: the desk, and each node for the others and for itself."""
        return ["desk", *(node.name for node in self._nodes.values())]

    def _make_keys(self) -> None:
        """Everybody's keys, the list of known hosts, and an ssh for the desk that uses them."""
        fresh_folder(self._keys).chmod(0o700)
        nodes = list(self._nodes.values())
        generate = (str(self._node_tools.need("ssh-keygen")), "-q", "-t", "ed25519", "-N", "")
        for name in (*self._logins(), *(f"host-{node.name}" for node in nodes)):
            run([*generate, "-C", name, "-f", self._keys / name], env=self._node_tools.environ())
        known = ""
        for node in nodes:
            addresses = [interface.address(node.number) for interface in INTERFACES.values()]
            key = (self._keys / f"host-{node.name}.pub").read_text().split()[:2]
            known += f"{','.join([node.name, *addresses])} {' '.join(key)}\n"
        hosts = "".join(f"Host {node.name}\n  HostName {LAN.address(node.number)}\n" for node in nodes)
        known_hosts, config = self._keys / "known_hosts", self._keys / "config"
        everyone = CLIENT_CONFIG.format(identity=self._keys / "desk", known_hosts=known_hosts)
        write_secrets(self._keys, {"known_hosts": known, "config": hosts + everyone})
        for name in ("ssh", "scp", "sftp"):
            # OpenSSH finds ~ in /etc/passwd, whatever HOME says: its files can only be named.
            write_program(self._programs / name, f'#!/bin/sh\nexec {self._node_tools.need(name)} -F {config} "$@"\n')

    def _wire(self) -> None:
        """The three network namespaces and what joins them."""
        for namespace in (self._desk, *(node.network for node in self._nodes.values())):
            namespace.parent.mkdir(parents=True, exist_ok=True)
            namespace.touch()
            run(["unshare", f"--net={namespace}", "true"])
        first, second = (node.network for node in self._nodes.values())
        self._at(self._desk, "link", "set", "lo", "up")
        for wire in (FABRIC_A, FABRIC_B):
            mtu = ("mtu", str(wire.mtu))
            peer = ("type", "veth", "peer", "name", wire.name, *mtu, "netns", second)
            self._at(self._desk, "link", "add", wire.name, *mtu, "netns", first, *peer)
        for bridge, wire in (("lan", LAN), ("wlan", WIFI)):
            self._at(self._desk, "link", "add", bridge, "type", "bridge")
            self._at(self._desk, "address", "add", f"{wire.gateway}/{wire.first.network.prefixlen}", "dev", bridge)
            self._at(self._desk, "link", "set", bridge, "up")
            for number, node in self._nodes.items():
                port = f"{bridge}{number}"
                self._at(
                    *(self._desk, "link", "add", wire.name, "netns", node.network),
                    *("type", "veth", "peer", "name", port),
                )
                self._at(self._desk, "link", "set", port, "master", bridge, "up")
        for number, node in self._nodes.items():
            self._ip(number, "link", "set", "lo", "up")
            for wire in INTERFACES.values():
                prefix = wire.first.network.prefixlen
                self._ip(number, "address", "add", f"{wire.address(number)}/{prefix}", "dev", wire.name)
                self.link(number, wire.name, up=True)
            shape = ("qdisc", "add", "dev", WIFI.name, "root", "tbf", *WIFI_RATE)
            run(["nsenter", f"--net={node.network}", self._toolbox.need("tc"), *shape], env=self._toolbox.environ())

    def _show_rdma(self, node: Node, interface: str) -> None:
        """RDMA's port goes up and down with its interface, which needs both ends."""
        if node.sysfs.there:
            state = self._at(node.network, "-oneline", "link", "show", interface)
            node.sysfs.show_link(interface, "LOWER_UP" in state)

    def _ip(self, number: int, *arguments: str) -> None:
        self._at(self.node(number).network, *arguments)

    def _at(self, namespace: Path, *arguments: str | Path) -> str:
        return run(["nsenter", f"--net={namespace}", self._toolbox.need("ip"), *arguments], env=self._toolbox.environ())


def require_plain_root() -> None:
    """`LabUnavailable` where a node's root cannot be laid over the machine's."""
    if run(["stat", "--file-system", "--format=%T", "/"]).strip() == "overlayfs":
        raise LabUnavailable("the machine's root is an overlay; the rig needs a disk there: a real or virtual machine")


BELOW_MOUNT = (
    *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
    'while mountpoint -q "$1"; do umount --lazy "$1"; done; cp --archive --link "$2" "$3"', "links",
)  # fmt: skip
"""Docker mounts the folder of its data on itself, and a hard link does not lead out of a mount."""


def share_image(reference: str, image: str, source: Path, target: Path) -> None:
    """Makes an image of one engine's data also one of another's, which must not run. Its layers are hard links: that
    takes seconds, a copy of vLLM two minutes. Does nothing where the data is not laid out as overlay2 has it, or one of
    the layers is there."""
    images, layers = "image/overlay2/imagedb/content/sha256", "image/overlay2/layerdb/sha256"
    content = source / images / image.removeprefix("sha256:")
    if not content.exists() or not (target / images).exists():
        return
    chain, known = "", list[str]()
    for layer in json.loads(content.read_text())["rootfs"]["diff_ids"]:
        chain = f"sha256:{hashlib.sha256(f'{chain} {layer}'.encode()).hexdigest()}" if chain else layer
        known.append(f"{layers}/{chain.removeprefix('sha256:')}")
    if any((target / each).exists() for each in known):
        return
    for each in known:
        files = f"overlay2/{(source / each / 'cache-id').read_text()}"
        run([*BELOW_MOUNT, source, source / files, target / files])
        (target / "overlay2/l" / (source / files / "link").read_text()).symlink_to(f"../{Path(files).name}/diff")
        shutil.copytree(source / each, target / each)
    shutil.copy(content, target / images)
    names = target / "image/overlay2/repositories.json"
    tags = json.loads(names.read_text())
    tags["Repositories"].setdefault(reference.rpartition(":")[0], {})[reference] = image
    names.write_text(json.dumps(tags))


def copy_image(reference: str, source: EngineClient, target: EngineClient) -> None:
    """`docker save` of one engine into `docker load` of another."""
    save, load = source.docker_argv("save", reference), target.docker_argv("load")
    with subprocess.Popen(save, env=source.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as saving:
        loaded = subprocess.run(load, env=target.environ(), stdin=saving.stdout, capture_output=True, check=False)
        assert saving.stderr is not None
        problem = saving.stderr.read()
    if saving.returncode or loaded.returncode:
        raise LabFailed(f"{reference} was not copied: {(problem + loaded.stderr).decode(errors='replace').strip()}")


def end_processes_in(namespace: Path) -> None:
    """Ends every process whose network namespace this file is; nobody but the rig's users is in there."""
    if not namespace.is_mount():
        return
    wanted = namespace.stat().st_ino
    for pid in processes_in(wanted):
        send(pid, signal.SIGKILL)
    if not wait_until(lambda: not processes_in(wanted), 10):
        raise LabFailed(f"processes {processes_in(wanted)} of the rig do not end")


def processes_in(network: int) -> list[int]:
    """The processes in a network namespace, which is known by its inode."""
    found = []
    for entry in Path("/proc").iterdir():
        # What ends meanwhile, and what is dead and not yet collected, has no namespace.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "ns/net").stat().st_ino == network:
                found.append(int(entry.name))
    return found


def cgroup_roots() -> list[Path]:
    """The machine's hierarchies of cgroups: one, or with cgroups of version 1 many."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root]
    return [path for path in root.iterdir() if (path / "cgroup.procs").exists()]


def remove_cgroups(name: str) -> None:
    """Removes a cgroup and those in it from every hierarchy, once they are empty."""
    for folder in [root / name for root in cgroup_roots() if (root / name).is_dir()]:
        inner = sorted((Path(path) for path, _, _ in os.walk(folder)), reverse=True)
        if not wait_until(functools.partial(try_rmdir, inner), 10):
            raise LabFailed(f"{folder} cannot be removed; processes are left in it")


def try_rmdir(folders: Sequence[Path]) -> bool:
    """Whether all of these folders are gone, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not any(folder.exists() for folder in folders)
