"""Bringing this version of spark-tui to another machine: what is sent, and which Python there runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import SparkError
from spark_tui.base.quantities import human_bytes
from spark_tui.base.remote import RemoteHost

LINK: Final = "~/.local/bin/spark-tui"
"""What runs the installed program on a node; the shell there knows its home."""
OLDEST: Final = (3, 11)
_CPYTHON: Final = re.compile(r"cp3(\d+)")


class InstallFailed(SparkError, id="install_failed"):
    """The program was not installed on a node. What ran there before still does."""


class NodePython(Struct, frozen=True):
    """A Python of a node. `venv` is empty where its venv module works, else says why not; `free` are bytes of the home
    folder's disk."""

    executable: str
    version: tuple[int, int]
    machine: str
    free: int
    venv: str = ""

    @property
    def text(self) -> str:
        return f"Python {self.version[0]}.{self.version[1]} on {self.machine}"

    def __post_init__(self) -> None:
        """Raises ValueError for a machine that is no plain word: it is part of a command to copy."""
        if not re.fullmatch(r"\w{1,20}", self.machine, re.ASCII):
            raise ValueError(f"{self.machine[:20]!r} is no name of a processor")


class ProgramPart(Struct, frozen=True):
    """An installed distribution. `tags` are those of its wheel, such as `cp312-cp312-manylinux_2_28_aarch64`."""

    name: str
    version: str
    tags: tuple[str, ...]

    def runs_on(self, python: NodePython) -> bool:
        """Whether one of its tags is for that Python and machine."""
        return any(_fits(tag, python) for tag in self.tags)


class ProgramBundle(Struct, frozen=True):
    """The running program with everything it needs: `data` is an installer and the files, in one stream for `bash -s`
    with a variable `python`. `unpacked` are the bytes of the files."""

    version: str
    parts: tuple[ProgramPart, ...]
    unpacked: int
    data: bytes


def choose_python(host: RemoteHost, found: Sequence[NodePython], bundle: ProgramBundle) -> NodePython:
    """The first Python of the node that runs every part. Raises InstallFailed: what is missing, and how to get it."""
    new = [each for each in found if each.version >= OLDEST]
    fitting = [each for each in new if all(part.runs_on(each) for part in bundle.parts)]
    usable = [each for each in fitting if not each.venv]
    apt = f"Install it: ssh -t {host.destination} sudo apt install"
    if not found:
        raise InstallFailed(f"{host.name} has no python3.", f"{apt} python3 python3-venv")
    if not new:
        raise InstallFailed(
            f"{host.name} has {found[0].text}; spark-tui needs 3.11 or newer.",
            f"Install a newer one beside it, for example with uv: ssh {host.destination} uv python install 3.12",
        )
    if not fitting:
        lost = [part for part in bundle.parts if not part.runs_on(new[0])]
        minor = ".".join(map(str, new[0].version))
        raise InstallFailed(
            f"{host.name} has {new[0].text}; parts of this installation are built for another: "
            f"{', '.join(each.name for each in lost[:4])}{' and more' if len(lost) > 4 else ''}.",
            f"Use the same Python there as here. Or download wheels, copy and install them there: pip download "
            f"spark-tui=={bundle.version} --only-binary=:all: --python-version {minor} "
            f"--platform manylinux_2_28_{new[0].machine} --dest wheels",
            detail="\n".join(f"{each.name}: {', '.join(each.tags)}" for each in lost),
        )
    if not usable:
        raise InstallFailed(f"{host.name} has no venv module.", f"{apt} python3-venv", detail=fitting[0].venv)
    if usable[0].free < bundle.unpacked:
        raise disk_full(host, bundle, f"{human_bytes(usable[0].free)} free")
    return usable[0]


def disk_full(host: RemoteHost, bundle: ProgramBundle, detail: str) -> InstallFailed:
    return InstallFailed(
        f"{host.name}: no space left (spark-tui needs {human_bytes(bundle.unpacked)} in the home folder).",
        f"Free space there, then repeat. See: ssh {host.destination} df -h .",
        detail=detail,
    )


def _fits(tag: str, python: NodePython) -> bool:
    """By PEP 425: interpreter, ABI, platform."""
    interpreter, _, rest = tag.partition("-")
    abi, _, platform = rest.partition("-")
    if platform != "any" and not ("linux" in platform and platform.endswith(f"_{python.machine}")):
        return False
    minors = [int(match[1]) for match in map(_CPYTHON.fullmatch, interpreter.split(".")) if match]
    if abi == "abi3":
        return any(minor <= python.version[1] for minor in minors)
    return python.version[1] in minors if minors else abi == "none" and "py3" in interpreter
