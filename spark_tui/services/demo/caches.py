"""Dropping the simulated page cache: allowed, and done at once."""

from __future__ import annotations

from collections.abc import Sequence

from spark_tui.domain.host.drop_caches import TEE_COMPACT, TEE_DROP, Access, Route
from spark_tui.domain.host.drop_unit import SystemFile
from spark_tui.services.demo.host import DemoHost


class DemoDropper:
    """The CacheDropper port of a box whose person has installed the grant."""

    def __init__(self, host: DemoHost) -> None:
        self._host = host

    async def access(self) -> Access:
        """By sudo, without a password."""
        return Access(sudo=TEE_DROP, sudo_compact=TEE_COMPACT, has_sudo=True)

    async def drop(self, route: Route) -> bool:
        """Gives the simulated cache up."""
        self._host.drop()
        return True

    async def compact(self, route: Route) -> None:
        """Simulated memory is in one piece."""

    def on_terminal(self, argv: Sequence[str]) -> int:
        """Nothing is run."""
        return 0

    async def check_grant(self, text: str) -> str:
        """Sound."""
        return ""

    def write_grant(self, text: str) -> int:
        """Nothing is written."""
        return 0

    def remove_grant(self) -> int:
        """Nothing is removed."""
        return 0

    def write_files(self, files: Sequence[SystemFile]) -> int:
        """Nothing is written."""
        return 0

    def remove_files(self, paths: Sequence[str]) -> int:
        """Nothing is removed."""
        return 0

    def user(self) -> tuple[str, int]:
        """The demo's person."""
        return "spark", 1000

    async def close(self) -> None:
        """Nothing to end."""
