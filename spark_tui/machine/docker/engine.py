"""The Docker engine behind the `ContainerEngine` port.

Calls run on two bounded pools, so that a stop which waits for its grace time never delays the list. Each log, pull
and event stream has a thread of its own, and a reader that produces on it. The SDK is imported with the first call.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from spark_tui.base.engine.container import (
    ContainerEvent,
    ContainerFacts,
    ContainerSpec,
    DaemonFacts,
    ImageDisk,
    ImageFacts,
    LayerProgress,
    PullProgress,
)
from spark_tui.base.engine.image import registry_of
from spark_tui.base.errors import ContainerNotFound, DockerError, SparkError, StreamBroken, UnreachableError
from spark_tui.base.executors import CallPool, StreamThreads, ThreadQueue
from spark_tui.base.files import read_plain
from spark_tui.base.ports import LogLine
from spark_tui.base.text import clean_line
from spark_tui.machine.docker import wire
from spark_tui.machine.docker.daemon import Daemon, PortOwner, ReadFile
from spark_tui.machine.docker.errors import Request, broken, from_message

if TYPE_CHECKING:
    from spark_tui.machine.docker.client import StreamClient

AWAY_SECONDS: Final = 60.0
"""How long the daemon may be away before a log stream is given up; a restart takes a few seconds."""
_QUICK_WORKERS: Final = 3
_SLOW_WORKERS: Final = 3
_EVENT_WEIGHT: Final = 500
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
_LINE_OVERHEAD: Final = 200
"""Bytes that a line takes in memory beside its text, about."""

# The daemon writes every line to the socket by itself. Reading at once would wake this thread for each; a short
# pause lets lines gather. A unix socket holds some 200 such writes, so in a flood the pause has to shrink.
_LONGEST_PAUSE, _SHORTEST_PAUSE = 0.01, 0.0003
_NEARLY_FULL, _NEARLY_EMPTY = 16 * 1024, 8 * 1024

_DOWNLOADED: Final = frozenset(("Verifying Checksum", "Download complete", "Extracting", "Pull complete"))
_WAITING: Final = frozenset(("Pulling fs layer", "Waiting", "Retrying", "Downloading"))
_DONE: Final = ("Status: Downloaded newer image", "Status: Image is up to date")


class DockerEngine:
    """See the port. `away_seconds`: how long a log stream waits for a daemon that went away."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        port_owner: PortOwner | None = None,
        read_env_file: ReadFile = read_plain,
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        self._daemon = Daemon(os.environ if environ is None else environ, port_owner, read_env_file)
        self._away_seconds = away_seconds
        self._quick = CallPool("docker", _QUICK_WORKERS)
        self._slow = CallPool("docker-slow", _SLOW_WORKERS)
        self._streams = StreamThreads()

    async def daemon(self) -> DaemonFacts:
        return await self._quick.run(self._daemon.facts)

    async def containers(self) -> tuple[ContainerFacts, ...]:
        return await self._quick.run(self._daemon.containers)

    async def inspect(self, container: str) -> ContainerFacts:
        return await self._quick.run(self._daemon.inspect, container)

    async def image(self, reference: str) -> ImageFacts | None:
        return await self._quick.run(self._daemon.image, reference)

    async def images(self) -> ImageDisk:
        return await self._slow.run(self._daemon.images)

    async def registry_digest(self, reference: str) -> str:
        return await self._slow.run(self._daemon.registry_digest, reference)

    async def tag_image(self, image: str, name: str) -> None:
        await self._slow.run(self._daemon.tag_image, image, name)

    async def remove_image(self, reference: str) -> None:
        await self._slow.run(self._daemon.remove_image, reference)

    async def run_once(self, image: str, argv: Sequence[str]) -> tuple[str, ...]:
        return await self._slow.run(self._daemon.run_once, image, argv)

    async def create(self, spec: ContainerSpec) -> str:
        return await self._slow.run(self._daemon.create, spec)

    async def start(self, container: str) -> None:
        await self._slow.run(self._daemon.start, container)

    async def stop(self, container: str, grace_seconds: int = 30) -> None:
        await self._slow.run(self._daemon.stop, container, grace_seconds)

    async def restart(self, container: str, grace_seconds: int = 30) -> None:
        await self._slow.run(self._daemon.restart, container, grace_seconds)

    async def rename(self, container: str, name: str) -> None:
        await self._quick.run(self._daemon.rename, container, name)

    async def remove(self, container: str, *, force: bool = False) -> None:
        await self._slow.run(self._daemon.remove, container, force)

    async def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]:
        async with aclosing(self._streams.read(PullReader(self._daemon, reference), "docker-pull")) as batches:
            async for batch in batches:
                yield batch[-1]

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        async with aclosing(self._streams.read(EventReader(self._daemon), "docker-events")) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def logs(
        self, container: str, *, tail: int | None = None, follow: bool = True, since: str = ""
    ) -> AsyncGenerator[Sequence[LogLine], None]:
        reader = LogReader(
            self._daemon, container, tail=tail, follow=follow, since=since, away_seconds=self._away_seconds
        )
        async with aclosing(self._streams.read(reader, "docker-log")) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        self._streams.close()
        self._quick.close()
        self._slow.close()


# --- events and pulls -------------------------------------------------------------------------------------


class _StreamReader:
    """One stream of the daemon, and its end from another thread. `begun`: from here on a failure is a break."""

    def __init__(self, daemon: Daemon, what: str, request: Request) -> None:
        self._daemon = daemon
        self._what = what
        self._request = request
        self._opened: StreamClient | None = None
        self._cancelled = self._begun = False

    def cancel(self) -> None:
        """Ends `run` at once, and closes the connection."""
        self._cancelled = True
        if self._opened is not None:
            self._opened.abort()

    @contextmanager
    def _stream(self) -> Iterator[StreamClient]:
        """A client for the stream; what goes wrong with it comes out translated, and nothing after `cancel`."""
        stream = self._opened = self._daemon.stream()
        try:
            if self._cancelled:
                stream.abort()
            yield stream
        except stream.failures as error:
            if self._cancelled:
                return
            found = self._daemon.translated(error, self._request)
            if self._begun and isinstance(found, UnreachableError):
                found = broken(self._what, 0, found)
            raise found from error
        finally:
            stream.close()


class EventReader(_StreamReader):
    """Producer of container events from now on; ends only by an error, or by `cancel`."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon, "The event stream", Request("report its events"))

    def run(self, handover: ThreadQueue[ContainerEvent]) -> None:
        """Raises DaemonNotRunning ... when it cannot begin, StreamBroken when the daemon goes away."""
        with self._stream() as stream:
            filters = {"type": "container", "event": list(wire.CONTAINER_EVENTS)}
            messages: Any = stream.events(filters=filters, decode=True)
            self._begun = True
            for message in messages:
                event = wire.container_event(message)
                if event is not None:
                    handover.put([event], _EVENT_WEIGHT)
            raise ConnectionResetError("the stream ended")


class PullReader(_StreamReader):
    """Producer of a pull's progress: the latest state replaces one that was not taken."""

    def __init__(self, daemon: Daemon, reference: str) -> None:
        request = Request(f"pull {reference}", image=reference, pulling=True)
        super().__init__(daemon, f"The pull of {reference}", request)
        self._layers: dict[str, LayerProgress] = {}
        self._status = f"asking {registry_of(reference)}"
        self._done = False

    def run(self, handover: ThreadQueue[PullProgress]) -> None:
        """Pulls to the end. Raises ImageNotFound, RegistryUnreachable, RegistryUnauthorized, NoSpaceLeft ..."""
        reference = self._request.image
        handover.replace(PullProgress(reference, (), self._status))
        with self._stream() as stream:
            for message in stream.pull_messages(reference):
                self._begun = True
                self._feed(message)
                layers = tuple(self._layers.values())
                status = self._status
                if layers and not self._done:
                    status = "downloading" if any(layer.status in _WAITING for layer in layers) else "extracting"
                handover.replace(PullProgress(reference, layers, status))
            # A daemon that does not report the end may have pulled it.
            if not self._done and not self._cancelled and self._daemon.image(reference) is None:
                raise ConnectionResetError("the stream ended early")

    def _feed(self, message: Mapping[str, Any]) -> None:
        """Adds up one message about a layer. Raises DockerError for one that reports a failure."""
        failure = message.get("error") or (message.get("errorDetail") or {}).get("message")
        if failure:
            raise from_message(str(failure), self._request)
        status, layer = clean_line(str(message.get("status", ""))), clean_line(str(message.get("id") or ""))
        if not layer or "progressDetail" not in message:
            if status.startswith(_DONE):
                self._done, self._status = True, status.removeprefix("Status: ")
            return
        detail = message["progressDetail"] or {}
        before = self._layers.get(layer) or LayerProgress(layer, status)
        current, total = before.current, before.total
        if status == "Downloading":
            current, total = int(detail.get("current") or 0), int(detail.get("total") or 0) or total
        elif status in _DOWNLOADED:
            current = total
        self._layers[layer] = LayerProgress(layer, status, current, total)


# --- logs -------------------------------------------------------------------------------------------------


class LogReader:
    """Producer of one container's lines, through restarts of the daemon, without losing or repeating a line."""

    def __init__(
        self, daemon: Daemon, container: str, *, tail: int | None, follow: bool, since: str, away_seconds: float
    ) -> None:
        self._daemon = daemon
        self._container = container
        self._tail = tail
        self._follow = follow
        self._away_seconds = away_seconds
        self._resume = wire.ReplayFilter(wire.canonical_stamp(since) if since else "", tail=tail is not None)
        self._cancelled = threading.Event()
        self._stream: StreamClient | None = None
        self._connections = 0
        self._request = Request(f"read the log of {container}", container=container)

    def cancel(self) -> None:
        """Ends `run` at once."""
        self._cancelled.set()
        if self._stream is not None:
            self._stream.abort()

    def run(self, handover: ThreadQueue[LogLine]) -> None:
        """Reads until the container has ended, or without `follow` to the end of what is there now.

        Raises ContainerNotFound, DaemonNotRunning ... when it cannot begin, and StreamBroken when the daemon stays
        away for longer than a restart takes.
        """
        # Without `follow` only what never changes counts of it: whether it has a terminal.
        facts = (None if self._follow else self._daemon.listed(self._container)) or self._daemon.inspect(
            self._container
        )
        fruitless, good = 0, time.monotonic()
        while not self._cancelled.is_set():
            decoder = wire.TerminalDecoder() if facts.tty else wire.FrameDecoder()
            new, error = self._read(facts, decoder, handover)
            if error is None and not self._follow:
                self._hand_over(decoder.finish(), 0, handover)
                return
            now, away = self._inspect_again(facts)
            error = error or away
            if now is None or (error is None and not facts.running):
                self._hand_over(decoder.finish(), 0, handover)
                return
            # Alive as this connection began, or cut off: there may be more. What it said last as it ended, what it
            # says since it was started again, what was written while the daemon was away.
            if new or error is None:
                good = time.monotonic()
            elif time.monotonic() - good > self._away_seconds:
                raise self._given_up(error)
            fruitless = 0 if new else fruitless + 1
            if now.running or error is not None:
                self._cancelled.wait(min(_FIRST_WAIT * 2 ** min(fruitless, 10), _LONGEST_WAIT))
            facts = now

    def _given_up(self, cause: BaseException) -> StreamBroken:
        found = cause if isinstance(cause, SparkError) else self._daemon.translated(cause, self._request)
        return broken(f"The log of {self._container}", self._away_seconds, found)

    def _read(
        self, facts: ContainerFacts, decoder: wire.FrameDecoder | wire.TerminalDecoder, handover: ThreadQueue[LogLine]
    ) -> tuple[bool, Exception | None]:
        """Hands over lines until the connection ends. Whether any was new, and the error that it ended with."""
        new, pause = False, _LONGEST_PAUSE
        self._connections += 1
        self._resume.reconnect()
        query: dict[str, str | int] = {"stdout": 1, "stderr": 1, "timestamps": 1}
        if self._follow and facts.running:
            query["follow"] = 1
        if self._resume.since:
            query["since"] = wire.since_query(self._resume.since)
        if self._tail is not None and not self._resume.begun:
            query["tail"] = self._tail
        try:
            stream = self._stream = self._daemon.stream()
        except UnreachableError as error:
            return False, error
        try:
            if self._cancelled.is_set():
                return False, None
            stream.open_log(facts.id, query)
            while data := stream.read():
                size = len(data)
                new = self._hand_over(decoder.feed(data), size, handover) or new
                if size >= _NEARLY_FULL:
                    pause = max(pause / 2, _SHORTEST_PAUSE)
                    continue
                time.sleep(pause)
                if size < _NEARLY_EMPTY:
                    pause = min(2 * pause, _LONGEST_PAUSE)
        except wire.DaemonReported as error:
            raise DockerError(
                f"Docker cannot read the log of {self._container}.",
                "Its log file is damaged. Recreate the container to start a new one.",
                detail=str(error),
            ) from error
        except (*stream.failures, wire.Damaged) as error:
            if getattr(error, "explanation", None) is None:
                return new, error
            status = getattr(getattr(error, "response", None), "status_code", 0)
            if self._connections == 1 or status not in (404, 409):  # else it is removed: its log has ended
                raise self._daemon.translated(error, self._request) from error
        finally:
            stream.close()
        return new, None

    def _hand_over(self, lines: list[LogLine], size: int, handover: ThreadQueue[LogLine]) -> bool:
        fresh = self._resume.fresh(lines)
        if fresh:
            handover.put(fresh, size + _LINE_OVERHEAD * len(fresh))
        return bool(fresh)

    def _inspect_again(self, facts: ContainerFacts) -> tuple[ContainerFacts | None, UnreachableError | None]:
        """The container as it is now, once the daemon is there, None when it is gone; and why it was away, if it was.
        By its id: another one may have been made under its name. Raises StreamBroken."""
        deadline = time.monotonic() + self._away_seconds
        wait, away = _FIRST_WAIT, None
        while not self._cancelled.is_set():
            try:
                return self._daemon.inspect(facts.id), away
            except ContainerNotFound:
                return None, away
            except UnreachableError as error:
                away = away or error
                if time.monotonic() > deadline:
                    raise self._given_up(error) from error
            self._cancelled.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        return None, away
