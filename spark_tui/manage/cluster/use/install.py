"""This version of spark-tui for the nodes of a cluster, through the user's own ssh: no network is needed there."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spark_tui import __version__
from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import in_thread
from spark_tui.base.ports import RemoteShell, ShellResult, port_named
from spark_tui.base.quantities import human_bytes
from spark_tui.base.remote import SSH_FAILED, ClusterNode, Hosts, RemoteHost, last_line, no_answer
from spark_tui.base.text import clean, clean_line
from spark_tui.base.untrusted import decode
from spark_tui.machine.nodes import Nodes

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


# --- install ---------------------------------------------------------------------------------------------


T = TypeVar("T")

_ASK_SECONDS: Final = 20.0
_COPY_SECONDS: Final = 1800.0
"""Some 15 MB, over a slow line too, behind another installer at worst."""
_NAMES: Final = "python3 python3.14 python3.13 python3.12 python3.11"
# Fed to bash: the login shell may be another, which must read two plain words only. `-I`: nothing of the person's.
_PYTHONS: Final = f"""\
uv=$(PATH="$PATH:$HOME/.local/bin" uv python find --offline --no-project '>=3.11' 2>/dev/null)
for name in {_NAMES} "$uv"; do
[ -n "$name" ] && command -v "$name" >/dev/null && "$name" -I - <<'END'
import json, os, platform, sys
why = ""
try:
    import venv
except ImportError as error:
    why = str(error)
disk = os.statvfs(os.path.expanduser("~"))
print(json.dumps({{"executable": sys.executable, "version": sys.version_info[:2], "machine": platform.machine(),
    "free": disk.f_bavail * disk.f_frsize, "venv": why}}))
END
done
exit 0
"""


@port_named("program")
class ProgramSource(Protocol):
    """The running program, to be copied to another machine."""

    def pack(self) -> ProgramBundle:
        """All of it, for a thread: takes seconds. Raises InstallFailed for a part whose files are unknown."""


class NodeProgram(Struct, frozen=True):
    """How an installation ended, by the node's own word. `earlier` is the version before, empty for none; `copied` is
    False where this very program was there. `problem` is empty, or `disk_full`, `cut_off`, `broken` or `failed`."""

    path: str = ""
    earlier: str = ""
    copied: bool = False
    problem: str = ""
    detail: str = ""


class Installed(Struct, frozen=True):
    """A node with this version. `program` None: it is this machine. `host`: how ssh starts the program from now on,
    None where that is as the settings have it."""

    node: ClusterNode
    program: NodeProgram | None = None
    host: RemoteHost | None = None


class Installer(Struct, eq=False):
    """Installs the running program on nodes."""

    _hosts: Hosts
    _nodes: Nodes
    _shell: RemoteShell
    _program: ProgramSource

    @classmethod
    def from_context(cls, context: Context) -> Installer:
        return cls(context.settings.hosts, context[Nodes], context.ports.remote_shell, context[ProgramSource])

    async def install(
        self, nodes: Sequence[ClusterNode], on_step: Callable[[ClusterNode, str], None]
    ) -> list[tuple[ClusterNode, Installed | SparkError]]:
        """All at once; how each ended, in the same order. `on_step` hears what begins on a node. Raises InstallFailed
        where the running program cannot be packed."""
        bundle = await in_thread(self._program.pack)

        async def one(node: ClusterNode) -> tuple[ClusterNode, Installed | SparkError]:
            try:
                return node, await self._install(node, bundle, lambda step: on_step(node, step))
            except SparkError as error:
                return node, error

        return await asyncio.gather(*map(one, nodes))

    async def _install(self, node: ClusterNode, bundle: ProgramBundle, on_step: Callable[[str], None]) -> Installed:
        host = self._nodes.reach(node)
        if host.here:
            return Installed(node)
        lines = list[str]()
        ended = await self._bash(host, _PYTHONS.encode(), _ASK_SECONDS, lines.append)
        found = list(filter(None, (_read(line, NodePython) for line in lines)))
        if ended.code != 0 and not found:
            raise _no_shell(host, ended, lines)
        python = choose_python(host, found, bundle)
        program = await self._send(host, python, bundle, on_step)
        return Installed(node, program, await self._command(host))

    async def _send(
        self, host: RemoteHost, python: NodePython, bundle: ProgramBundle, on_step: Callable[[str], None]
    ) -> NodeProgram:
        ended, noise = list[NodeProgram](), list[str]()

        def line(text: str) -> None:
            if (step := _read(text, dict[str, str])) and "step" in step:
                on_step(clean_line(step["step"]))
            elif (end := _read(text, dict[str, NodeProgram])) and "ended" in end:
                ended.append(end["ended"])
            else:
                noise.append(text)

        given = f"python={shlex.quote(python.executable)}\n".encode() + bundle.data
        result = await self._bash(host, given, _COPY_SECONDS, line)
        if not ended:
            raise _no_shell(host, result, noise)
        if ended[-1].problem:
            raise _failed(host, bundle, ended[-1])
        return ended[-1]

    async def _command(self, host: RemoteHost) -> RemoteHost | None:
        """How ssh starts the new program: None where the host's command does, else the host with the link."""
        linked = replace(host, command=LINK)
        for each in (host, linked):
            ended = await self._shell.ask(each, ("--version",), seconds=_ASK_SECONDS)
            if ended.code == 0 and last_line(ended.out) == f"spark-tui {__version__}":
                return None if each is host else replace(each, name=self._name(host))
        raise InstallFailed(
            f"{host.name}: the installed spark-tui does not answer through ssh.",
            f"See why: ssh {host.destination} -- {linked.line(('--version',))}",
            detail=clean(ended.err or ended.out),
        )

    def _name(self, host: RemoteHost) -> str:
        """For the settings: its own there, else one that no other host has."""
        taken = {each.name for each in self._hosts if each.destination != host.destination}
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", host.name).strip("-_")[:36]
        return next(name for name in (plain, *(f"{plain}-{at}" for at in range(2, 99))) if name not in taken)

    async def _bash(
        self, host: RemoteHost, given: bytes, seconds: float, on_line: Callable[[str], None]
    ) -> ShellResult:
        return await self._shell.ask(
            replace(host, command="bash"), ("-s",), given=given, seconds=seconds, on_line=on_line
        )


def _read(line: str, kind: type[T]) -> T | None:
    """That value; None for a line of the login shell's own."""
    try:
        return decode(line, kind) if line.startswith("{") else None
    except ValueError:
        return None


def _failed(host: RemoteHost, bundle: ProgramBundle, ended: NodeProgram) -> InstallFailed:
    detail = clean(ended.detail)
    if ended.problem == "disk_full":
        return disk_full(host, bundle, detail)
    if ended.problem == "cut_off":
        return InstallFailed(f"{host.name}: the copy was cut off.", "Repeat the command.", detail=detail)
    if ended.problem == "broken":
        return InstallFailed(
            f"{host.name}: the copied spark-tui does not start: {last_line(detail)}.",
            "Use the same system and Python there as here.",
            detail=detail,
        )
    return InstallFailed(
        f"{host.name}: {last_line(detail)}.",
        f"See its home folder: ssh {host.destination} ls -la .local",
        detail=detail,
    )


def _no_shell(host: RemoteHost, ended: ShellResult, lines: Sequence[str]) -> SparkError:
    """Why there was no answer: ssh failed, or bash."""
    if ended.code == SSH_FAILED:
        return no_answer(host, ended.code, "".join(lines), ended.err)
    why = last_line(ended.err) or last_line("".join(lines)) or f"exit code {ended.code}"
    return InstallFailed(
        f"{host.name}: no answer from bash: {why}.",
        f"See why: ssh {host.destination} bash --version",
        detail=clean(ended.err),
    )
