"""Other machines over ssh: the nodes of a cluster, each asked through its own spark-tui, and hosts of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spark_tui import __version__
from spark_tui.base import remote
from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, SparkError, UnreachableError
from spark_tui.base.executors import end_tasks
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.ports import HostProbe, RemoteShell, ShellResult
from spark_tui.base.protocol import (
    COMMAND,
    PROTOCOL,
    Hello,
    LookRequest,
    NodeError,
    NodeFailed,
    NodeLook,
    NodeRefused,
    NodeSilent,
    NodeVersion,
)
from spark_tui.base.remote import (
    ADDRESSES,
    DEFAULT_COMMAND,
    NOT_FOUND,
    QUESTION,
    SSH_FAILED,
    ClusterNode,
    HostNotReady,
    HostUnreachable,
    NodeUnreadable,
    RemoteHost,
    RemoteStatus,
    find_host,
    last_line,
    no_answer,
    not_installed,
    read_status,
    ssh_host,
    with_addresses,
)
from spark_tui.base.text import clean, clean_line
from spark_tui.base.untrusted import decode, encode

T = TypeVar("T")

ASK_SECONDS: Final = 60.0
"""For a question that starts no work: ssh, a Python that starts on a machine that may be busy, and one look. ssh itself
finds a node that is away sooner."""
VERSION_SECONDS: Final = 5.0
"""For what is only shown beside other facts."""
HERE: Final = "localhost"
_PROGRESS: Final = '{"progress"'
_ERROR: Final = '{"error"'
_MOST_LINES: Final = 200
_MOST_CHARS: Final = 8 * 1024 * 1024


class Nodes(Struct, eq=False):
    """Asks nodes through the user's own ssh. `hosts` are those of the settings."""

    _hosts: remote.Hosts
    _shell: RemoteShell
    _host: HostProbe

    @classmethod
    def from_context(cls, context: Context) -> Nodes:
        return cls(context.settings.hosts, context.ports.remote_shell, context.host)

    def reach(self, node: ClusterNode) -> RemoteHost:
        """How to work the node: the host of that name in the settings, else its address; this machine without ssh."""
        found = ssh_host(node, self._hosts)
        here = set(node.fabric) & set(self._host.addresses())
        return replace(found, destination=HERE, command=DEFAULT_COMMAND) if here else found

    async def ask(
        self,
        node: ClusterNode,
        verb: str,
        request: object,
        kind: type[T],
        *,
        seconds: float = ASK_SECONDS,
        on_progress: Callable[[str], None] | None = None,
    ) -> T:
        """The answer to one request of `base.protocol`. `on_progress` gets each line that comes before it.

        Raises NodeSilent (no ssh, no spark-tui, no end within `seconds`; 0: no limit), NodeVersion, or NodeFailed
        (NodeRefused where a check there refuses it) with the node's own error.
        """
        host, lines = self.reach(node), list[str]()

        def line(text: str) -> None:
            if on_progress is not None and text.startswith(_PROGRESS):
                on_progress(text)
            elif len(lines) < _MOST_LINES and sum(map(len, lines)) + len(text) <= _MOST_CHARS:
                lines.append(text)
            else:
                raise NodeSilent(
                    f"{node.name} sent more than an answer has.", f"See what it prints: ssh {host.destination} true"
                )

        try:
            ended = await self._shell.ask(host, (COMMAND, verb), given=encode(request), seconds=seconds, on_line=line)
        except UnreachableError as error:
            raise NodeSilent(error.summary, error.remedy, detail=error.detail) from error
        return _answer(node, host, ended, lines, kind)

    async def logs(self, node: ClusterNode, container: str, on_line: Callable[[str], None], *, follow: bool) -> None:
        """Hands over each line of a container's log as `logs --json` prints it; with `follow` until the log ends or ssh
        is cut: which of both, the container's state says. Raises UnreachableError without ssh."""
        words = ("logs", container, "--json", *(("-f",) if follow else ()))
        await self._shell.ask(self.reach(node), words, seconds=0, on_line=on_line)

    async def versions(self, nodes: Sequence[ClusterNode]) -> list[Reading[str]]:
        """The spark-tui of each node, asked all at once; a node that does not answer soon says why."""

        async def one(node: ClusterNode) -> Reading[str]:
            try:
                found = await self.ask(node, "look", LookRequest(), NodeLook, seconds=VERSION_SECONDS)
            except SparkError as error:
                return Missing(error.summary.removeprefix(f"{node.name}: "))
            return Ok(clean_line(found.version))

        return await asyncio.gather(*map(one, nodes))

    async def complete(self, nodes: Sequence[ClusterNode]) -> tuple[ClusterNode, ...]:
        """The nodes, each by the name of its host where the settings have one, and with its fabric read from the node
        unless all of it was given. Raises SparkError for the first node that does not say."""
        names = {host.destination: host.name for host in self._hosts}
        named = (replace(node, host=names.get(node.host, node.host)) for node in nodes)
        return tuple(await asyncio.gather(*map(self._complete, named)))

    async def _complete(self, node: ClusterNode) -> ClusterNode:
        if node.fabric and node.interfaces:
            return node
        host = replace(ssh_host(node, self._hosts), command="ip")
        ended = await self._shell.ask(host, ADDRESSES)
        if ended.code != 0:
            why = last_line(ended.err) or f"exit code {ended.code}"
            how = f"ssh {host.destination}" if ended.code == SSH_FAILED else f"ssh {host.destination} ip addr"
            raise NodeUnreadable(
                f"{node.name} lists no addresses: {why}.",
                f"Give them: --node {node.host},fabric=IP,if=NAME. Or see why: {how}",
                detail=ended.err,
            )
        return with_addresses(node, ended.out)


def _answer(node: ClusterNode, host: RemoteHost, ended: ShellResult, lines: Sequence[str], kind: type[T]) -> T:
    """The value of the last line. What a login shell prints before the first one is left out."""
    hello = next(filter(None, map(_hello, lines)), None)
    install = f"Install this version there: spark-tui cluster install {node.name}"
    if hello is None and ended.code in (ExitCode.DONE, ExitCode.USAGE):
        raise NodeVersion(f"The spark-tui of {node.name} is older: it does not know clusters.", install)
    if hello is None:
        problem = no_answer(host, ended.code, "\n".join(lines), ended.err)
        raise NodeSilent(problem.summary, problem.remedy, detail=problem.detail)
    if hello.protocol != PROTOCOL:
        raise NodeVersion(
            f"{node.name} has spark-tui {clean_line(hello.version)} (protocol {hello.protocol}), "
            f"this machine {__version__} (protocol {PROTOCOL}).",
            install,
        )
    try:
        if lines[-1].startswith(_ERROR):
            found = decode(lines[-1], dict[str, NodeError])["error"]
            kind_of_error = NodeRefused if found.exit_code == ExitCode.REFUSED else NodeFailed
            raise kind_of_error(
                f"{node.name}: {clean_line(found.summary)}",
                f"Check that machine: spark-tui --host {node.host} doctor",
                detail=clean("\n".join(filter(None, (f"{node.name} proposes: {found.remedy}", found.detail)))),
            )
        return decode(lines[-1], dict[str, kind])["result"]  # type: ignore[valid-type]
    except (ValueError, KeyError):
        raise NodeSilent(
            f"{node.name} ended without an answer (exit code {ended.code}).",
            f"See why: ssh {host.destination} -- {host.line(('doctor',))}",
            detail=clean(ended.err),
        ) from None


def _hello(line: str) -> Hello | None:
    try:
        return decode(line, Hello) if line.startswith('{"protocol"') else None
    except ValueError:
        return None


# --- hosts ---------------------------------------------------------------------------------------------


READ_ONLY: Final = "--read-only"


class HostView(Struct, frozen=True):
    """A host with its answer, or with the reason why there is none."""

    host: RemoteHost
    status: RemoteStatus | None = None
    problem: SparkError | None = None


class Hosts:
    """The hosts of the settings. In read-only mode the remote control centre is read-only too."""

    @classmethod
    def from_context(cls, context: Context) -> Hosts:
        return cls(context.settings.hosts, context.ports.remote_shell, read_only=context.settings.read_only)

    def __init__(self, known: remote.Hosts, shell: RemoteShell, *, read_only: bool = False) -> None:
        self.known = known
        self._shell = shell
        self._read_only = read_only

    async def look(self) -> AsyncGenerator[HostView, None]:
        """Asks all at once; yields each answer or failure as it comes."""
        asked = [asyncio.ensure_future(self.ask(host)) for host in self.known]
        try:
            for answer in asyncio.as_completed(asked):
                yield await answer
        finally:
            await end_tasks(*asked)

    async def ask(self, host: RemoteHost) -> HostView:
        """The status of one. Never raises: a failure is the answer."""
        try:
            ended = await self._shell.ask(host, QUESTION)
        except SparkError as error:
            return HostView(host, problem=error)
        status = read_status(ended.out)
        problem = no_answer(host, ended.code, ended.out, ended.err) if status is None else None
        return HostView(host, status, problem)

    async def open(self, host: RemoteHost) -> None:
        """Runs its control centre on this terminal. Raises SparkError when it did not open."""
        code = await self._shell.on_terminal(host, self._arguments(()))
        remedy = f"See why: spark-tui --host {host.name}"
        if code == SSH_FAILED:
            raise HostUnreachable(f"ssh did not connect to {host.name}, or was cut off.", remedy)
        if code in NOT_FOUND:
            raise not_installed(host)
        if code not in (ExitCode.DONE, ExitCode.INTERRUPTED):
            raise HostNotReady(f"{host.name}: spark-tui ended with exit code {code}.", remedy)

    def become(self, name: str, arguments: Sequence[str], *, terminal: bool) -> NoReturn:
        """Replaces this process by the command on that host. Raises UsageError for an unknown name, UnreachableError
        without ssh."""
        self._shell.become(find_host(self.known, name), self._arguments(arguments), terminal=terminal)

    def _arguments(self, given: Sequence[str]) -> tuple[str, ...]:
        missing = self._read_only and READ_ONLY not in given
        return (READ_ONLY, *given) if missing else tuple(given)
