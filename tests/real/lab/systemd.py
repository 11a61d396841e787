"""A systemd of the lab's own: a person's user manager with its own units, in its own cgroup and mount namespace.

It reads no unit of the machine and no unit of the person who runs the tests, and what it started ends with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.real.lab.support import LabFailed, LabUnavailable, send, wait_until

PROGRAM = Path("/usr/lib/systemd/systemd")
SHIPPED = Path("/usr/lib/systemd/user")
TARGETS = ("basic", "exit", "paths", "shutdown", "sockets", "timers")
DEFAULT = "[Unit]\nDescription=Everything\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n"

BOOTED = "mount -t tmpfs none /run/systemd && mkdir /run/systemd/system && exec "
"""A user manager refuses to run on a machine that systemd did not boot: in its own namespace, it did."""

JOIN = 'for folder in $CGROUPS; do echo $$ > "$folder/cgroup.procs"; done; exec unshare --mount sh -c "$1"'


class UserManager:
    """`systemd --user` in `folder`. `environment` is what its units and `systemctl --user` share."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._units, self._runtime = folder / "units", folder / "runtime"
        self._log = folder / "systemd.log"
        self._cgroups = [root / f"spark-tui-lab-{os.getpid()}" for root in cgroup_roots()]
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {**environment, "XDG_RUNTIME_DIR": str(self._runtime)}
        self.own = Path(environment["XDG_CONFIG_HOME"]) / "systemd/user"
        if not PROGRAM.exists() or shutil.which("systemctl") is None:
            raise LabUnavailable("systemd is not installed here (Debian's package systemd; it need not run)")

    def start(self) -> None:
        """Starts it, as at the machine's boot: what is enabled starts. Returns once it answers."""
        for path in (self._units, self.own, self._runtime):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (*(f"{target}.target" for target in TARGETS), "systemd-exit.service"):
            shutil.copy(SHIPPED / name, self._units)
        (self._units / "default.target").write_text(DEFAULT)
        for folder in self._cgroups:
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise LabUnavailable(f"no cgroup for systemd can be made here: {error}") from error
        environment = {
            **self.environment,
            "SYSTEMD_UNIT_PATH": f"{self.own}:{self._units}",
            "CGROUPS": " ".join(map(str, self._cgroups)),
        }
        script = f"{BOOTED}{PROGRAM} --user --log-target=console"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", JOIN, "sh", script], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        if not wait_until(lambda: self.systemctl("is-active", "basic.target") == "active", 30):
            raise LabFailed(f"systemd --user did not start:\n{self._log.read_text()}")

    def stop(self) -> None:
        """Ends it as a shutdown does. What its units left running goes on."""
        if self._process is not None:
            self.systemctl("exit")
            self._process.wait(60)
            self._process = None

    def purge(self) -> None:
        """Stops it, and kills what its units left running."""
        self.stop()
        for folder in self._cgroups:
            for path in folder.rglob("cgroup.procs"):
                for pid in path.read_text().split():
                    send(int(pid), signal.SIGKILL)
            deadline = time.monotonic() + 10
            for each in (*sorted(folder.rglob("*/"), reverse=True), folder):
                while each.exists() and time.monotonic() < deadline:
                    try:
                        each.rmdir()
                    except OSError:
                        time.sleep(0.05)

    def systemctl(self, *words: str) -> str:
        """What `systemctl --user` prints, stripped."""
        done = subprocess.run(
            ["systemctl", "--user", *words], env=self.environment, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip()

    def log(self) -> str:
        """What it and its units wrote."""
        return self._log.read_text()


def cgroup_roots() -> list[Path]:
    """The hierarchies in which systemd keeps processes: two where cgroups are still of version 1."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root]
    return [path for path in (root / "unified", root / "systemd") if path.is_dir()]
