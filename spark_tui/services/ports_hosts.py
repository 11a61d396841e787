"""The port to other boxes: ssh, as the person has set it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from spark_tui.domain.remote_hosts import RemoteHost


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command on another box ended: ssh's exit code, and what came, of which the beginning is kept."""

    code: int
    out: str
    err: str


class RemoteShell(Protocol):
    """Runs spark-tui on another box. Nothing secret goes with it: neither in its arguments nor in its environment."""

    async def ask(self, host: RemoteHost, arguments: Sequence[str]) -> Ended:
        """Runs it with these arguments, without a terminal and without a question to the person. Raises
        UnreachableError when there is no ssh, or no end in time."""

    async def on_terminal(self, host: RemoteHost, arguments: Sequence[str]) -> int:
        """Runs it on this program's terminal until it ends, and returns its exit code. Raises UnreachableError."""

    def become(self, host: RemoteHost, arguments: Sequence[str], *, terminal: bool) -> NoReturn:
        """This process becomes ssh, with a terminal there or without. Raises UnreachableError when there is no ssh."""
