"""The Docker engine behind the `ContainerEngine` port.

Calls run on two bounded pools, so that a stop which waits for its grace time never holds up a look at the list. Each
log, pull and event stream has a thread of its own. The SDK is imported when a container is made or an image with a
stored login is pulled; everything else speaks to the daemon directly (`docker_http`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from spark_tui.domain.engine.container import (
    ContainerEvent,
    ContainerFacts,
    ContainerSpec,
    DaemonFacts,
    ImageFacts,
    PullProgress,
)
from spark_tui.services.docker import calls
from spark_tui.services.docker.connection import DockerHttp, config_folder, find_host
from spark_tui.services.docker.errors import Asked
from spark_tui.services.docker.facts import EventReader
from spark_tui.services.docker.logs import AWAY_SECONDS, LogReader
from spark_tui.services.docker.pull import PullReader
from spark_tui.services.executors import CallPool, StreamThreads
from spark_tui.services.ports import LogLine

T = TypeVar("T")

_QUICK_WORKERS: Final = 3
_SLOW_WORKERS: Final = 3


class DockerEngine:
    """One Docker daemon: the one that the `docker` program would use in `environ`.

    `port_owner` says which process listens on a port of this machine, for the error about a taken port.
    `away_seconds`: so long does a log stream wait for a daemon that went away.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        port_owner: calls.PortOwner | None = None,
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._port_owner = port_owner
        self._away_seconds = away_seconds
        self._quick = CallPool("docker", _QUICK_WORKERS)
        self._slow = CallPool("docker-slow", _SLOW_WORKERS)
        self._streams = StreamThreads()
        self._lock = threading.Lock()
        self._http: DockerHttp | None = None
        self._root = ("", "")

    # --- looking --------------------------------------------------------------------------------------

    async def daemon(self) -> DaemonFacts:
        """The daemon's version; raises DaemonNotRunning or SocketPermissionDenied."""
        return await self._call(self._quick, self._daemon)

    def _daemon(self, http: DockerHttp) -> DaemonFacts:
        found = calls.ask(http, Asked("say its version"), "/version")
        version = found.get("Version", "")
        if self._root[0] != version:  # where its data is does not change while it runs; to ask costs it some work
            self._root = (version, calls.ask(http, Asked("describe itself"), "/info").get("DockerRootDir", ""))
        return DaemonFacts(
            version=version,
            api_version=found.get("ApiVersion", ""),
            os=found.get("Os", ""),
            architecture=found.get("Arch", ""),
            root=self._root[1],
        )

    async def containers(self) -> tuple[ContainerFacts, ...]:
        """All containers, running or not, in name order."""
        return await self._call(self._quick, calls.containers)

    async def inspect(self, container: str) -> ContainerFacts:
        """One container by name or id; raises ContainerNotFound."""
        return await self._call(self._quick, calls.inspect, container)

    async def image(self, reference: str) -> ImageFacts | None:
        """A local image, or None."""
        return await self._call(self._quick, calls.image, reference)

    # --- acting ---------------------------------------------------------------------------------------

    async def create(self, spec: ContainerSpec) -> str:
        """Creates the container and returns its id; raises NameInUse, ImageNotFound, GpuDriverMissing ..."""
        return await self._call(self._slow, calls.create, spec, self._environ)

    async def start(self, container: str) -> None:
        """Starts it; raises PortInUse, GpuDriverMissing ..."""
        await self._call(self._slow, calls.begin, container, "start", {}, calls.START_SECONDS, self._port_owner)

    async def stop(self, container: str, grace_seconds: int = 30) -> None:
        """SIGTERM, then SIGKILL after the grace time; returns when it has ended. A stopped one is no error."""
        await self._call(self._slow, calls.stop, container, grace_seconds)

    async def restart(self, container: str, grace_seconds: int = 30) -> None:
        """Stop and start."""
        seconds = calls.START_SECONDS + grace_seconds
        await self._call(self._slow, calls.begin, container, "restart", {"t": grace_seconds}, seconds, self._port_owner)

    async def remove(self, container: str, *, force: bool = False) -> None:
        """Removes a container; its log goes with it."""
        await self._call(self._slow, calls.remove, container, force)

    # --- streams --------------------------------------------------------------------------------------

    async def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]:
        """Pulls an image; closing the iterator cancels the pull."""
        http = await self._quick.run(self._connect)
        reader = PullReader(http, reference, config_folder(self._environ) / "config.json")
        async with aclosing(self._streams.read(reader, "docker-pull")) as batches:
            async for batch in batches:
                yield batch[-1]

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Container events from now on; raises StreamBroken when the daemon goes away."""
        reader = EventReader(await self._quick.run(self._connect))
        async with aclosing(self._streams.read(reader, "docker-events")) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def logs(
        self, container: str, *, tail: int | None = None, follow: bool = True, since: str = ""
    ) -> AsyncGenerator[Sequence[LogLine], None]:
        """Batches of log lines, oldest first, stdout and stderr merged; see the port."""
        http = await self._quick.run(self._connect)
        reader = LogReader(http, container, tail=tail, follow=follow, since=since, away_seconds=self._away_seconds)
        async with aclosing(self._streams.read(reader, "docker-log")) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        """Ends all streams and threads."""
        self._streams.close()
        self._quick.close()
        self._slow.close()

    # --- the daemon -----------------------------------------------------------------------------------

    def _connect(self) -> DockerHttp:
        with self._lock:
            if self._http is None:
                self._http = DockerHttp(find_host(self._environ))
            return self._http

    async def _call(self, pool: CallPool, call: Callable[..., T], *arguments: Any) -> T:
        def work() -> T:
            return call(self._connect(), *arguments)

        return await pool.run(work)
