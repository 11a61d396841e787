"""A program named `ssh` that really runs what it is given, in a folder as the home of each destination."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from spark_tui import __version__
from spark_tui.manage.cluster.adapter.bundle import InstalledProgram
from spark_tui.manage.cluster.use.install import ProgramBundle

_PROGRAM: Final = """#!/bin/sh
while [ "$1" != "--" ]; do destination=$1; shift; done
shift
node="{folder}/nodes/$destination"
[ -d "$node" ] || {{ echo "ssh: Could not resolve hostname $destination" >&2; exit 255; }}
printf '%s\\n' "$*" >> "$node/calls"
cd "$node/home" || exit 255
# As sshd: the person's own environment stays behind, and the login shell reads its own file first.
exec env -i HOME="$node/home" PATH="$(cat "$node/path")" "$(cat "$node/shell")" -c '. "$HOME/.shellrc"; '"$*"
"""


class NodeSsh:
    """The program in a folder of its own; `environment` puts it first on the PATH."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin/ssh"
        program.write_text(_PROGRAM.format(folder=folder))
        program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        home = self._folder / "desk"
        home.mkdir(exist_ok=True)
        return {"PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}

    def node(self, destination: str) -> Path:
        """The home of a new node, which has bash and this Python. `.local/bin` is not on its PATH."""
        node = self._folder / "nodes" / destination
        (node / "home").mkdir(parents=True)
        (node / "bin").mkdir()
        (node / "bin/bash").symlink_to(shutil.which("bash") or "/bin/bash")
        self.program(destination, "python3", f'exec "{sys._base_executable}" "$@"')
        self.logs_in(destination, "/bin/sh", "")
        (node / "path").write_text(str(node / "bin"))
        return node / "home"

    def program(self, destination: str, name: str, text: str) -> None:
        """A program on the node's PATH, as text for sh."""
        path = self._folder / "nodes" / destination / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def logs_in(self, destination: str, shell: str, rc: str) -> None:
        """The node's login shell, and what it runs at each login."""
        node = self._folder / "nodes" / destination
        (node / "shell").write_text(shell)
        (node / "home/.shellrc").write_text(f"{rc}\n")

    def calls(self, destination: str) -> list[str]:
        """What was run there."""
        return (self._folder / "nodes" / destination / "calls").read_text().splitlines()


def packed_small(presets: Path) -> ProgramBundle:
    """This program with what `--version` needs, in a fraction of the bytes."""
    needs = "Requires-Dist: click\nRequires-Dist: msgspec\n"
    text = f"Metadata-Version: 2.1\nName: spark-tui\nVersion: {__version__}\n{needs}"
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        info = Path(folder, f"spark_tui-{__version__}.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(text)
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
        patch.syspath_prepend(folder)
        return InstalledProgram(presets).pack()
