"""The Docker engine behind the `ContainerEngine` port.

Calls run on two bounded pools, so that a stop which waits for its grace time never delays the list. Each log, pull
and event stream has a thread of its own. The SDK is imported with the first call.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from spark_tui.domain.engine.container import (
    ContainerEvent,
    ContainerFacts,
    ContainerSpec,
    DaemonFacts,
    ImageFacts,
    PullProgress,
)
from spark_tui.services.docker.daemon import Daemon, PortOwner
from spark_tui.services.docker.logs import AWAY_SECONDS, LogReader
from spark_tui.services.docker.streams import EventReader, PullReader
from spark_tui.services.executors import CallPool, StreamThreads
from spark_tui.services.ports import LogLine

_QUICK_WORKERS: Final = 3
_SLOW_WORKERS: Final = 3


class DockerEngine:
    """See the port. `away_seconds`: how long a log stream waits for a daemon that went away."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        port_owner: PortOwner | None = None,
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        self._daemon = Daemon(os.environ if environ is None else environ, port_owner)
        self._away_seconds = away_seconds
        self._quick = CallPool("docker", _QUICK_WORKERS)
        self._slow = CallPool("docker-slow", _SLOW_WORKERS)
        self._streams = StreamThreads()

    async def daemon(self) -> DaemonFacts:
        """See the port."""
        return await self._quick.run(self._daemon.facts)

    async def containers(self) -> tuple[ContainerFacts, ...]:
        """See the port."""
        return await self._quick.run(self._daemon.containers)

    async def inspect(self, container: str) -> ContainerFacts:
        """See the port."""
        return await self._quick.run(self._daemon.inspect, container)

    async def image(self, reference: str) -> ImageFacts | None:
        """See the port."""
        return await self._quick.run(self._daemon.image, reference)

    async def create(self, spec: ContainerSpec) -> str:
        """See the port."""
        return await self._slow.run(self._daemon.create, spec)

    async def start(self, container: str) -> None:
        """See the port."""
        await self._slow.run(self._daemon.start, container)

    async def stop(self, container: str, grace_seconds: int = 30) -> None:
        """See the port."""
        await self._slow.run(self._daemon.stop, container, grace_seconds)

    async def restart(self, container: str, grace_seconds: int = 30) -> None:
        """See the port."""
        await self._slow.run(self._daemon.restart, container, grace_seconds)

    async def remove(self, container: str, *, force: bool = False) -> None:
        """See the port."""
        await self._slow.run(self._daemon.remove, container, force)

    async def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]:
        """See the port."""
        async with aclosing(self._streams.read(PullReader(self._daemon, reference), "docker-pull")) as batches:
            async for batch in batches:
                yield batch[-1]

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """See the port."""
        async with aclosing(self._streams.read(EventReader(self._daemon), "docker-events")) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def logs(
        self, container: str, *, tail: int | None = None, follow: bool = True, since: str = ""
    ) -> AsyncGenerator[Sequence[LogLine], None]:
        """See the port."""
        reader = LogReader(
            self._daemon, container, tail=tail, follow=follow, since=since, away_seconds=self._away_seconds
        )
        async with aclosing(self._streams.read(reader, "docker-log")) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        """See the port."""
        self._streams.close()
        self._quick.close()
        self._slow.close()
