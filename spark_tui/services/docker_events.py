"""The daemon's event stream, as far as it concerns containers."""

from __future__ import annotations

import json

from spark_tui.domain.engine.container import ContainerEvent
from spark_tui.domain.errors import UnreachableError
from spark_tui.services.docker_errors import TRANSPORT_ERRORS, Asked, broken, translate
from spark_tui.services.docker_facts import CONTAINER_EVENTS, container_event
from spark_tui.services.docker_http import Aborted, ByteStream, DockerHttp, Refused
from spark_tui.services.executors import Handover

_EVENT_WEIGHT = 500
_ASKED = Asked("report its events")


class EventReader:
    """Producer of container events from now on; ends only by an error, or by `cancel`."""

    def __init__(self, http: DockerHttp) -> None:
        filters = json.dumps({"type": ["container"], "event": list(CONTAINER_EVENTS)})
        self._http = http
        self._stream: ByteStream = http.stream("GET", "/events", {"filters": filters})

    def cancel(self) -> None:
        """Ends `run` at once."""
        self._stream.abort()

    def run(self, handover: Handover[ContainerEvent]) -> None:
        """Raises DaemonNotRunning ... when it cannot begin, StreamBroken when the daemon goes away."""
        begun = False
        try:
            self._stream.open()
            begun = True
            self._pump(handover)
            raise ConnectionResetError("the stream ended")
        except Aborted:
            return
        except (*TRANSPORT_ERRORS, Refused, ValueError) as error:
            found = translate(error, self._http.host, _ASKED)
            if begun and isinstance(found, UnreachableError):
                found = broken("The event stream", 0, found)
            raise found from error
        finally:
            self._stream.close()

    def _pump(self, handover: Handover[ContainerEvent]) -> None:
        rest = b""
        while data := self._stream.read():
            *lines, rest = (rest + data).split(b"\n")
            events = [container_event(json.loads(line)) for line in lines if line.strip()]
            found = [event for event in events if event is not None]
            if found:
                handover.put(found, _EVENT_WEIGHT * len(found))
