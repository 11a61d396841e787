"""Frees the page cache by the ways that the kernel, sudo and systemd leave to this user.

A write to drop_caches, and `sync` before it, may hang in the kernel where no signal ends them: both run in children
that are waited for only for a limited time, and then left behind.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from spark_tui.base.errors import SparkError
from spark_tui.base.executors import CallPool
from spark_tui.base.host import memory as drop_caches
from spark_tui.base.text import clean_line

SYNC_SECONDS: Final = 30.0
DROP_SECONDS: Final = 60.0
ASK_SECONDS: Final = 5.0
_END_SECONDS: Final = 0.5
_UNIT_FOLDERS: Final = ("etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# $1: path, $2: mode, $3: a command that checks the draft. sudo skips files with a dot in their name, systemd and polkit
# those that end in neither `.service` nor `.rules`: the draft does nothing.
_WRITE_SCRIPT: Final = """\
set -e
mkdir -p "$(dirname "$1")"
draft=$(mktemp "$(dirname "$1")/.spark-tui.XXXXXX")
trap 'rm -f "$draft"' EXIT
cat > "$draft"
chown root:root "$draft"
chmod "$2" "$draft"
$3 "$draft"
mv "$draft" "$1"
"""


class DropRefused(SparkError, id="drop_caches_failed"):
    """A way of freeing the cache that failed, and why."""


class SystemCacheDropper:
    """The CacheDropper port. `root` is where system files are looked for."""

    def __init__(self, root: Path = Path("/"), *, sync_seconds: float = SYNC_SECONDS) -> None:
        self._root = root
        self._sync_seconds = sync_seconds
        self._pool = CallPool("drop-caches", 2)

    async def access(self) -> drop_caches.Access:
        return await self._pool.run(self.access_now)

    async def drop(self, route: drop_caches.Route) -> bool:
        return await self._pool.run(self.drop_now, route)

    async def compact(self, route: drop_caches.Route) -> None:
        await self._pool.run(_perform, route, "Memory could not be compacted")

    async def check_grant(self, text: str) -> str:
        def check() -> str:
            visudo = _program("visudo")
            if visudo is None:
                raise DropRefused("visudo is not installed.", "Install sudo: sudo apt install sudo")
            with tempfile.NamedTemporaryFile("w", prefix="spark-tui-", suffix=".sudoers", encoding="ascii") as draft:
                draft.write(text)
                draft.flush()
                code, last = _run((visudo, "-cf", draft.name))
            return "" if code == 0 else last or "visudo did not answer"

        return await self._pool.run(check)

    async def close(self) -> None:
        self._pool.close()

    # --- blocking: for the guard's own thread, and for the pool -----------------------------------------

    def access_now(self) -> drop_caches.Access:
        """What this user may do now. sudo is asked for exact commands, and never prompts here."""
        has_sudo, root = _program("sudo") is not None, os.geteuid() == 0

        def granted(command: Sequence[str]) -> bool:
            return has_sudo and not root and _run(("sudo", "-n", "-l", *command))[0] == 0

        return drop_caches.Access(
            root=root,
            sudo=next(filter(granted, drop_caches.GRANTS), ()),
            sudo_compact=drop_caches.TEE_COMPACT if granted(drop_caches.TEE_COMPACT) else (),
            unit=_program("systemctl") is not None
            and any((self._root / folder / drop_caches.UNIT).is_file() for folder in _UNIT_FOLDERS),
            has_sudo=has_sudo,
        )

    def drop_now(self, route: drop_caches.Route) -> bool:
        """`sync`, then the route. Returns whether the syncing was done in time; raises SparkError."""
        synced = _run(("sync",), seconds=self._sync_seconds)[0] == 0
        _perform(route, "The page cache could not be freed")
        return synced

    def drop_silently(self) -> bool:
        """Frees the cache by the first way that needs no person and works; false where none does."""
        for route in drop_caches.routes(self.access_now()):
            if route.silent:
                with contextlib.suppress(SparkError):
                    self.drop_now(route)
                    return True
        return False

    def compact_silently(self) -> bool:
        """Compacts memory where that is permitted."""
        route = drop_caches.compact_route(self.access_now())
        if route is not None:
            with contextlib.suppress(SparkError):
                _perform(route, "Memory could not be compacted")
                return True
        return False

    # --- the person's terminal: all of it blocks, sudo may ask ------------------------------------------

    def on_terminal(self, argv: Sequence[str], text: str | None = None) -> int:
        """Runs a command with our own standard streams, where sudo asks by itself. `text` is its input, if any."""
        try:
            return subprocess.run(
                list(argv), input=text, text=True, check=False, env=_environment(translated=True)
            ).returncode
        except FileNotFoundError as error:
            raise DropRefused(
                f"{argv[0]} is not installed.", f"As root: {drop_caches.BY_HAND.removeprefix('sudo ')}"
            ) from error

    def user(self) -> tuple[str, int]:
        """The user whom a grant is for: behind sudo the one who typed it."""
        number = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
        uid = int(number) if number.isdigit() else os.getuid()
        try:
            return pwd.getpwuid(uid).pw_name, uid
        except KeyError:  # a user of no local database
            return "", uid

    def write_files(self, files: Sequence[drop_caches.SystemFile]) -> int:
        """Puts each in place in one step, once its check has found it sound there. The text goes through a pipe: no
        file of this user's could be changed on the way. Where one is a unit, systemd reloads them."""
        for file in files:
            words = ("sh", "-c", _WRITE_SCRIPT, "sh", file.path, file.mode, file.check)
            if code := self.on_terminal((*_as_root(), *words), file.text):
                return code
        return self._reload(file.path for file in files)

    def remove_files(self, paths: Sequence[str]) -> int:
        """Removes them; where one is a unit, systemd reloads them."""
        return self.on_terminal((*_as_root(), "rm", "-f", *paths)) or self._reload(paths)

    def _reload(self, paths: Iterable[str]) -> int:
        units = any(path.endswith(".service") for path in paths)
        return self.on_terminal((*_as_root(), "systemctl", "daemon-reload")) if units else 0


def _as_root() -> tuple[str, ...]:
    return () if os.geteuid() == 0 else ("sudo",)


def _perform(route: drop_caches.Route, failed: str) -> None:
    """Runs a silent route. Raises DropRefused with sudo's or systemd's own words."""
    if not route.silent:
        raise ValueError(f"{route.kind} is not a route for this adapter")
    code, last = _run(route.argv, route.stdin, DROP_SECONDS)
    if code is None:
        raise DropRefused(
            f"{failed}: the kernel has not answered for {DROP_SECONDS:.0f} s.",
            "It continues in the background. If the machine is slow in general, restart it.",
        )
    if code != 0:
        raise DropRefused(f"{failed} ({route.kind}).", f"In a shell: {drop_caches.BY_HAND}", detail=last)


def _run(argv: Sequence[str], text: str = "", seconds: float = ASK_SECONDS) -> tuple[int | None, str]:
    """The exit code and the last error line of a child with no terminal, so that nothing can prompt. One that does not
    end in time is killed, and left behind where the kernel holds it: its code is None."""
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror or error}"
    try:
        _, words = child.communicate(text.encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_END_SECONDS)
        for stream in (child.stdin, child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if child.returncode is None:
            child.poll()
        return None, ""
    return child.returncode, clean_line((words.decode("utf-8", "replace").strip().splitlines() or [""])[-1])


def _environment(*, translated: bool = False) -> dict[str, str]:
    """Ours, with the system's folders on the path; in English where we read the output."""
    path = os.environ.get("PATH", "")
    found = {**os.environ, "PATH": f"{path}:{_SYSTEM_PATH}" if path else _SYSTEM_PATH}
    return found if translated else {**found, "LC_ALL": "C"}


def _program(name: str) -> str | None:
    """An ordinary user's path often leaves /usr/sbin out."""
    return shutil.which(name, path=_environment()["PATH"])
