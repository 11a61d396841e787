"""The daemon's JSON as plain values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from spark_tui.domain.engine.container import (
    ContainerEvent,
    ContainerFacts,
    ContainerStatus,
    ImageFacts,
    Mount,
    PublishedPort,
)
from spark_tui.domain.errors import UnreachableError
from spark_tui.services.docker.connection import Aborted, ByteStream, DockerHttp, Refused
from spark_tui.services.docker.errors import TRANSPORT_ERRORS, Asked, broken, translate
from spark_tui.services.executors import Handover

_NEVER: Final = "0001-01-01T00:00:00Z"
"""Go's zero time: it has not happened."""

_ENDED: Final = (ContainerStatus.EXITED, ContainerStatus.DEAD, ContainerStatus.RESTARTING)

CONTAINER_EVENTS: Final = (
    "create",
    "start",
    "restart",
    "pause",
    "unpause",
    "stop",
    "die",
    "oom",
    "rename",
    "update",
    "destroy",
)
"""Events after which a container's facts may differ. Health checks and execs, which come all the time, are not."""


def container_facts(found: Mapping[str, Any]) -> ContainerFacts:
    """`GET /containers/ID/json`."""
    config, state = found.get("Config") or {}, found.get("State") or {}
    status = _status(state)
    return ContainerFacts(
        id=found["Id"],
        name=str(found.get("Name", "")).lstrip("/"),
        image=config.get("Image") or found.get("Image", ""),
        image_id=found.get("Image", ""),
        status=status,
        argv=_argv(found, config),
        labels=tuple(sorted((config.get("Labels") or {}).items())),
        ports=_ports(found),
        network_mode=(found.get("HostConfig") or {}).get("NetworkMode", ""),
        environment=tuple(entry.partition("=")[0] for entry in config.get("Env") or ()),
        tty=bool(config.get("Tty")),
        pid=state.get("Pid") or 0,
        exit_code=state.get("ExitCode") if status in _ENDED else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=state.get("Error") or "",
        restart_count=found.get("RestartCount") or 0,
        created_at=seconds_of(found.get("Created")),
        started_at=seconds_of(state.get("StartedAt")),
        finished_at=seconds_of(state.get("FinishedAt")),
        restart_policy=_restart_policy(found),
        mounts=_mounts(found.get("Mounts") or ()),
    )


def _restart_policy(found: Mapping[str, Any]) -> str:
    name = ((found.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name") or ""
    return "" if name == "no" else str(name)


def _mounts(found: Iterable[Mapping[str, Any]]) -> tuple[Mount, ...]:
    """Folders of the host alone: a tmpfs has no source."""
    mounts = ((each.get("Source"), each.get("Destination"), each.get("RW", True)) for each in found)
    return tuple(sorted((Mount(a, b, not rw) for a, b, rw in mounts if a and b), key=lambda mount: mount.target))


def _status(state: Mapping[str, Any]) -> ContainerStatus:
    word = state.get("Status")
    if word in tuple(ContainerStatus):
        return ContainerStatus(word)
    return ContainerStatus.RUNNING if state.get("Running") else ContainerStatus.EXITED


def _argv(found: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str, ...]:
    words = (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ()))
    if words:
        return words
    return tuple(filter(None, (found.get("Path"), *(found.get("Args") or ()))))


def _ports(found: Mapping[str, Any]) -> tuple[PublishedPort, ...]:
    """What is really bound while it runs; else what was asked for, host port 0 where Docker is to choose."""
    bound = (found.get("NetworkSettings") or {}).get("Ports") or {}
    asked = (found.get("HostConfig") or {}).get("PortBindings") or {}
    return tuple(sorted(_published(bound) or _published(asked), key=_port_order))


def _published(bindings: Mapping[str, Any]) -> list[PublishedPort]:
    ports = []
    for key, hosts in bindings.items():
        number, _, protocol = key.partition("/")
        for host in hosts or ():
            port = host.get("HostPort") or "0"
            ports.append(
                PublishedPort(
                    int(number), int(port) if port.isdigit() else 0, host.get("HostIp") or "", protocol or "tcp"
                )
            )
    return ports


def _port_order(port: PublishedPort) -> tuple[int, str, int, str]:
    return (port.container_port, port.protocol, port.host_port, port.host_ip)


def image_facts(found: Mapping[str, Any], reference: str) -> ImageFacts:
    """`GET /images/NAME/json`."""
    config = found.get("Config") or {}
    return ImageFacts(
        id=found.get("Id", ""),
        reference=reference,
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        architecture=found.get("Architecture") or "",
        os=found.get("Os") or "",
        size=found.get("Size") or 0,
        digest=_first(found.get("RepoDigests") or ()),
    )


def _first(digests: Iterable[str]) -> str:
    return next(iter(digests), "")


def container_event(found: Mapping[str, Any]) -> ContainerEvent | None:
    """A line of `GET /events`; None for what does not concern a container."""
    actor = found.get("Actor") or {}
    attributes = actor.get("Attributes") or {}
    identity, action = actor.get("ID"), found.get("Action")
    if found.get("Type") != "container" or not identity or not action:
        return None
    code = str(attributes.get("exitCode", ""))
    return ContainerEvent(
        action=str(action).partition(":")[0],
        container_id=identity,
        name=attributes.get("name", ""),
        at=found["timeNano"] / 1e9 if "timeNano" in found else float(found.get("time", 0)),
        exit_code=int(code) if code.isdigit() else None,
    )


def seconds_of(stamp: str | None) -> float | None:
    """RFC 3339 as seconds since the epoch; None where Docker has no time."""
    if not stamp or stamp == _NEVER:
        return None
    return datetime.fromisoformat(stamp).astimezone(UTC).timestamp()


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
