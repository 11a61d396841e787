"""What every part of the lab uses: its two errors, narration, commands, daemons known by a pid file, ports, locks."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Say = Callable[[str], None]
"""Takes one sentence about what happens now."""

TAIL_LINES = 15
"""So many last lines of a failed program's output stand in its error."""


class LabUnavailable(Exception):
    """This machine cannot run the lab. The message says what is missing and what to do about it."""


class LabFailed(Exception):
    """A part of the lab failed where it should not have."""


@dataclass
class Progress:
    """Prints each step with the seconds since the start."""

    write: Callable[[str], None]
    started: float = field(default_factory=time.monotonic)

    def __call__(self, text: str) -> None:
        self.write(f"[{time.monotonic() - self.started:6.1f} s] {text}")


def tail(text: str) -> str:
    """The last lines of a program's output, for an error message."""
    return "\n".join(text.strip().splitlines()[-TAIL_LINES:])


def run(
    arguments: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    timeout: float = 900,
) -> str:
    """Runs a program to its end and returns its stdout. `LabFailed` carries the end of its stderr."""
    words = [str(argument) for argument in arguments]
    try:
        done = subprocess.run(
            words,
            env=None if env is None else dict(env),
            input=b"" if stdin is None else stdin,
            cwd=cwd,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabFailed(f"`{' '.join(words[:4])} …` did not end within {timeout:.0f} s") from error
    if done.returncode != 0:
        output = done.stderr.decode(errors="replace") or done.stdout.decode(errors="replace")
        raise LabFailed(f"`{' '.join(words)}` ended with {done.returncode}:\n{tail(output)}")
    return done.stdout.decode(errors="replace")


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.05) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def command_line(pid: int) -> str:
    """A process's arguments in one line; empty for one that is gone, or dead and not yet collected."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def processes_naming(text: str) -> list[int]:
    """The processes whose arguments contain `text`, this one excepted."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and text in command_line(pid)]


def parent_of(pid: int) -> int:
    """The parent's pid, 0 where the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def is_alive(pid: int) -> bool:
    """Whether the process is there and not dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal; a process that is gone already is what was wanted."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@dataclass(frozen=True)
class Daemon:
    """A program in the background, known by its pid file.

    `marker` is a path that stands in its arguments and in no other program's: a pid that the kernel has given
    to somebody else since is never signalled.
    """

    name: str
    pid_file: Path
    log_file: Path
    marker: str

    def pid(self) -> int | None:
        """The pid while it runs."""
        try:
            pid = int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if self.marker in command_line(pid) else None

    def start(self, arguments: Sequence[str | Path], env: Mapping[str, str]) -> None:
        """Starts it in a session of its own, so that it outlives this process and no Ctrl-C reaches it."""
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        # The shell in between ends at once: the daemon becomes a child of init, which collects it when it ends.
        shell = ["sh", "-c", '"$@" >>"$0" 2>&1 </dev/null & echo $!', str(self.log_file)]
        started = subprocess.run(
            [*shell, *map(str, arguments)], env=dict(env), start_new_session=True, stdout=subprocess.PIPE, check=True
        )
        self.pid_file.write_text(started.stdout.decode())

    def wait_ready(self, ready: Callable[[], bool], seconds: float) -> None:
        """Waits until it answers; `LabFailed` with the end of its log when it does not."""
        # While a program is being loaded its arguments are empty: only its process tells that it has ended.
        pid = int(self.pid_file.read_text())
        answered = False

        def settled() -> bool:
            nonlocal answered
            answered = ready()
            return answered or not is_alive(pid)

        if wait_until(settled, seconds) and answered:
            return
        state = f"did not answer within {seconds:.0f} s" if is_alive(pid) else "ended at once"
        raise LabFailed(f"{self.name} {state}; the end of {self.log_file}:\n{tail(self.log())}")

    def log(self) -> str:
        """What it wrote so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def stop(self, grace_seconds: float = 20) -> None:
        """Asks it to end, then makes it."""
        pid = self.pid()
        if pid is not None:
            send(pid, signal.SIGTERM)
            if not wait_until(lambda: self.pid() is None, grace_seconds):
                self.kill()
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Ends it without a word, as a crash would."""
        pid = self.pid()
        if pid is not None:
            send(pid, signal.SIGKILL)
            wait_until(lambda: self.pid() is None, 10)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """One process at a time; the kernel frees the lock of a process that dies. `on_wait` says that another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fingerprint(*parts: bytes | str) -> str:
    """A short name for exactly this content."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def fresh_folder(path: Path) -> Path:
    """An empty folder; what a build that was cut short left there goes first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def runtime_folder(root: Path) -> Path:
    """Where sockets and pid files of the lab in `root` live.

    Under /run, because a unix socket's path is at most 107 bytes, and because a reboot must empty it.
    """
    return Path("/run/spark-tui-lab") / fingerprint(str(root.resolve()))[:8]


def mounts_under(folder: Path) -> list[Path]:
    """Mount points below a folder, deepest first."""
    points = (line.split()[1].replace("\\040", " ") for line in Path("/proc/self/mounts").read_text().splitlines())
    return sorted((Path(point) for point in points if Path(point).is_relative_to(folder)), reverse=True)


def remove_tree(folder: Path) -> None:
    """Deletes a folder, and unmounts what a killed engine left mounted in it."""
    for point in mounts_under(folder):
        run(["umount", "--lazy", point])
    shutil.rmtree(folder, ignore_errors=True)
