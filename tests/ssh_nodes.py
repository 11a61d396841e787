"""Machines behind a program named `ssh`: each destination is a folder, which is the home of what runs there."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

_SSH = """#!/bin/sh
printf '%s ' "$@" >> "{folder}/calls"
echo >> "{folder}/calls"
while :; do
    case "$1" in
        -o|-p|-e) shift 2 ;;
        -l) user=$2; shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
host=${{1##*@}}; shift
[ "$1" = "--" ] && shift
export HOME="{folder}/$host"
cd "$HOME" 2>/dev/null || {{ echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }}
[ -e refuses ] && {{ echo "root@$host: Permission denied (publickey)." >&2; exit 255; }}
[ -e bin ] && PATH="$HOME/bin:$PATH"
own="setsid --wait"  # another machine's processes get none of the signals here
[ "$1" = "docker load" ] && own=""  # a pipe that this ssh alone reads
eval "exec $own $*"
"""
_PROGRAM = '#!/bin/sh\nexec {python} -m spark_tui "$@"\n'


class SshNodes:
    """`add` machines; `environment` is that of a person at a further machine, with this ssh first on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        (folder / "home").mkdir()
        self.program("ssh", _SSH.format(folder=shlex.quote(str(folder)).strip("'")))
        self.program("spark-tui", _PROGRAM.format(python=shlex.quote(sys.executable)))

    def program(self, name: str, text: str, host: str = "") -> None:
        """A program on the PATH of every machine, or of one."""
        place = self.folder / host / "bin" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)

    def add(self, *hosts: str) -> Path:
        """A machine under these names; its home."""
        home = self.folder / hosts[0]
        home.mkdir()
        for other in hosts[1:]:
            (self.folder / other).symlink_to(home)
        return home

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        python = os.environ.get("PYTHONPATH", "")
        return {"PATH": path, "HOME": str(self.folder / "home"), "LANG": "C.UTF-8", "PYTHONPATH": python}

    @property
    def calls(self) -> list[str]:
        """Every ssh so far, as it was called."""
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []
