"""Other machines: their status, and opening them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NoReturn

from msgspec import Struct

from spark_tui.base import remote
from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, SparkError
from spark_tui.base.executors import end_tasks
from spark_tui.base.ports import RemoteShell
from spark_tui.base.remote import (
    NOT_FOUND,
    QUESTION,
    SSH_FAILED,
    HostNotReady,
    HostUnreachable,
    RemoteHost,
    RemoteStatus,
    find_host,
    no_answer,
    not_installed,
    read_status,
)

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
