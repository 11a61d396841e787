"""Container events and image pulls: producers that run on a thread of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.engine.container import ContainerEvent, LayerProgress, PullProgress
from spark_tui.domain.errors import UnreachableError
from spark_tui.domain.text import clean_line
from spark_tui.services.docker.daemon import Daemon
from spark_tui.services.docker.errors import Request, broken, from_message, registry_of
from spark_tui.services.docker.facts import CONTAINER_EVENTS, container_event
from spark_tui.services.executors import Handover

if TYPE_CHECKING:
    from spark_tui.services.docker.client import StreamClient

_EVENT_WEIGHT: Final = 500
_DOWNLOADED: Final = frozenset(("Verifying Checksum", "Download complete", "Extracting", "Pull complete"))
_WAITING: Final = frozenset(("Pulling fs layer", "Waiting", "Retrying", "Downloading"))
_DONE: Final = ("Status: Downloaded newer image", "Status: Image is up to date")


class _StreamReader:
    """What both readers share: one stream, and its end from another thread."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._stream: StreamClient | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Ends `run` at once, and closes the connection."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.abort()

    def _opened(self) -> StreamClient:
        self._stream = self._daemon.stream()
        if self._cancelled:
            self._stream.abort()
        return self._stream


class EventReader(_StreamReader):
    """Producer of container events from now on; ends only by an error, or by `cancel`."""

    def run(self, handover: Handover[ContainerEvent]) -> None:
        """Raises DaemonNotRunning ... when it cannot begin, StreamBroken when the daemon goes away."""
        stream, begun = self._opened(), False
        from spark_tui.services.docker.client import FAILURES

        try:
            messages: Any = stream.events(filters={"type": "container", "event": list(CONTAINER_EVENTS)}, decode=True)
            begun = True
            for message in messages:
                event = container_event(message)
                if event is not None:
                    handover.put([event], _EVENT_WEIGHT)
            raise ConnectionResetError("the stream ended")
        except FAILURES as error:
            if self._cancelled:
                return
            found = self._daemon.translated(error, Request("report its events"))
            if begun and isinstance(found, UnreachableError):
                found = broken("The event stream", 0, found)
            raise found from error
        finally:
            stream.close()


class PullReader(_StreamReader):
    """Producer of a pull's progress: the latest state replaces one that was not taken."""

    def __init__(self, daemon: Daemon, reference: str) -> None:
        super().__init__(daemon)
        self._reference = reference
        self._request = Request(f"pull {reference}", image=reference, pulling=True)

    def run(self, handover: Handover[PullProgress]) -> None:
        """Pulls to the end. Raises ImageNotFound, RegistryUnreachable, RegistryUnauthorized, NoSpaceLeft ..."""
        tracker = PullTracker(self._request)
        handover.replace(tracker.progress())
        stream = self._opened()
        from spark_tui.services.docker.client import FAILURES

        try:
            for message in stream.pull_messages(self._reference):
                tracker.feed(message)
                handover.replace(tracker.progress())
            # A daemon that does not report the end may have pulled it.
            if not tracker.done and not self._cancelled and self._daemon.image(self._reference) is None:
                raise ConnectionResetError("the stream ended early")
        except FAILURES as error:
            if self._cancelled:
                return
            found = self._daemon.translated(error, self._request)
            if isinstance(found, UnreachableError) and tracker.begun:
                found = broken(f"The pull of {self._reference}", 0, found)
            raise found from error
        finally:
            stream.close()


class PullTracker:
    """Adds up the daemon's messages about layers."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._layers: dict[str, LayerProgress] = {}
        self._status = f"asking {registry_of(request.image)}"
        self.begun = self.done = False

    def feed(self, message: Mapping[str, Any]) -> None:
        """Takes one message. Raises DockerError for one that reports a failure."""
        self.begun = True
        failure = message.get("error") or (message.get("errorDetail") or {}).get("message")
        if failure:
            raise from_message(str(failure), self._request)
        status, layer = clean_line(str(message.get("status", ""))), clean_line(str(message.get("id") or ""))
        if not layer or "progressDetail" not in message:
            if status.startswith(_DONE):
                self.done, self._status = True, status.removeprefix("Status: ")
            return
        detail = message["progressDetail"] or {}
        before = self._layers.get(layer) or LayerProgress(layer, status)
        current, total = before.current, before.total
        if status == "Downloading":
            current, total = int(detail.get("current") or 0), int(detail.get("total") or 0) or total
        elif status in _DOWNLOADED:
            current = total
        self._layers[layer] = LayerProgress(layer, status, current, total)

    def progress(self) -> PullProgress:
        """The pull so far."""
        layers = tuple(self._layers.values())
        status = self._status
        if layers and not self.done:
            status = "downloading" if any(layer.status in _WAITING for layer in layers) else "extracting"
        return PullProgress(self._request.image, layers, status)
