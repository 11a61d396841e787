"""Process 1 of a node, already in namespaces of its own: builds the root, starts sshd and dockerd, collects the dead.

`node_init.py PLAN` reads a JSON object:
    hostname: its name
    layers:   folders laid over the machine's root, the first on top
    scratch:  a folder for the mounts from which the root is built
    binds:    [source, target, writable] triples of paths, mounted in this order
    overlays: [source, target] pairs of folders: what is laid over which part of /sys
    setup:    commands that are run to their end first
    services: {name: arguments}, each started with its output in /var/log/NAME.log
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
    # Null devices that stand for RDMA's: Docker wants nodes behind `--device /dev/infiniband`.
    "infiniband/rdma_cm": (1, 3),
    "infiniband/uverbs0": (1, 3),
    "infiniband/uverbs1": (1, 3),
}
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}


def mount(kind: str, target: Path, options: str) -> None:
    """Mounts a file system that needs no device; makes the mount point."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, kind, target], check=True)


def bind(source: str | Path, target: Path, *, writable: bool = True, recursive: bool = False) -> None:
    """Shows `source` at `target` as well; makes the mount point."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--rbind" if recursive else "--bind", source, target], check=True)
    if not writable:
        subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)


def build_root(plan: dict[str, Any]) -> Path:
    """The machine's root as it is, with the node's layers over it and whatever the node writes in memory."""
    scratch = Path(plan["scratch"])
    mount("tmpfs", scratch, "mode=755")
    view, root = scratch / "layers", scratch / "root"
    for name in ("upper", "work", "empty"):
        (scratch / name).mkdir()
    # Overlayfs refuses a layer that lies inside another one, as these lie inside the machine's root. Seen through an
    # overlay of their own they lie on another file system. One folder alone makes no overlay.
    mount("overlay", view, f"ro,lowerdir={':'.join([*plan['layers'], str(scratch / 'empty')])}")
    mount("overlay", root, f"lowerdir={view}:/,upperdir={scratch / 'upper'},workdir={scratch / 'work'}")
    return root


def furnish(root: Path, binds: list[tuple[str, str, bool]]) -> None:
    """What a machine that has booted finds in its root."""
    mount("proc", root / "proc", "nosuid")
    mount("sysfs", root / "sys", "nosuid")
    bind("/sys/fs/cgroup", root / "sys/fs/cgroup", recursive=True)
    make_devices(root / "dev")
    for name, mode in (("run", "755"), ("tmp", "1777"), ("home", "755")):
        mount("tmpfs", root / name, f"mode={mode}")
    (root / "run/sshd").mkdir(mode=0o755)
    for source, target, writable in binds:
        bind(source, root / target.lstrip("/"), writable=writable)


def add_to_sysfs(root: Path, overlays: list[tuple[str, str]], scratch: Path) -> None:
    """Lays files over /sys. The list of interfaces stays the kernel's own: an overlay misses what appears later."""
    for source, target in overlays:
        mount("overlay", root / target.lstrip("/"), f"ro,lowerdir={source}:{root}{target}")
    if overlays:
        mount("sysfs", scratch / "sysfs", "nosuid")
        bind(scratch / "sysfs/class/net", root / "sys/class/net")


def make_devices(folder: Path) -> None:
    """A /dev of the node's own, because the machine's must not change."""
    mount("tmpfs", folder, "mode=755")
    (folder / "infiniband").mkdir()
    for name, number in DEVICES.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(*number))
        (folder / name).chmod(0o666)
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    mount("devpts", folder / "pts", "newinstance,ptmxmode=0666,mode=620")
    (folder / "ptmx").symlink_to("pts/ptmx")
    mount("tmpfs", folder / "shm", "mode=1777")
    mount("mqueue", folder / "mqueue", "nosuid")


def enter(root: Path) -> None:
    """Makes `root` the root, and lets go of the machine's mounts."""
    old = root / "tmp/machine"
    old.mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", old.relative_to(root)], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/tmp/machine"], check=True)
    Path("/tmp/machine").rmdir()


def collect_forever() -> None:
    """Process 1 inherits every orphan; without this they would stay as zombies."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


def main() -> None:
    """Boots; never returns."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    os.umask(0o022)
    root = build_root(plan)
    furnish(root, plan["binds"])
    add_to_sysfs(root, plan["overlays"], Path(plan["scratch"]))
    enter(root)
    socket.sethostname(plan["hostname"])
    for arguments in plan["setup"]:
        subprocess.run(arguments, check=True)
    for name, arguments in plan["services"].items():
        with Path(f"/var/log/{name}.log").open("ab") as log:
            # Never waited for by name: the loop below collects whatever ends.
            subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    collect_forever()


if __name__ == "__main__":
    main()
