"""The daemon's JSON as plain values."""

from __future__ import annotations

from collections.abc import Mapping
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

_NEVER: Final = "0001-01-01T00:00:00Z"
"""Go's zero time."""

_ENDED: Final = (ContainerStatus.EXITED, ContainerStatus.DEAD, ContainerStatus.RESTARTING)

CONTAINER_EVENTS: Final = (
    "create", "start", "restart", "pause", "unpause", "stop", "die", "oom", "rename", "update", "destroy",
)  # fmt: skip
"""Events that can change a container's facts. Not health checks and execs, which come all the time."""


def container_facts(found: Mapping[str, Any]) -> ContainerFacts:
    """`GET /containers/ID/json`."""
    config, state, host = found.get("Config") or {}, found.get("State") or {}, found.get("HostConfig") or {}
    word = state.get("Status")
    if word in tuple(ContainerStatus):
        status = ContainerStatus(word)
    else:
        status = ContainerStatus.RUNNING if state.get("Running") else ContainerStatus.EXITED
    argv = (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ()))
    policy = (host.get("RestartPolicy") or {}).get("Name") or ""
    mounts = ((each.get("Source"), each.get("Destination"), each.get("RW", True)) for each in found.get("Mounts") or ())
    # What is bound while it runs; else what was asked for, with host port 0 where Docker chooses.
    ports = _published((found.get("NetworkSettings") or {}).get("Ports")) or _published(host.get("PortBindings"))
    return ContainerFacts(
        id=found["Id"],
        name=str(found.get("Name", "")).lstrip("/"),
        image=config.get("Image") or found.get("Image", ""),
        image_id=found.get("Image", ""),
        status=status,
        argv=argv or tuple(filter(None, (found.get("Path"), *(found.get("Args") or ())))),
        labels=tuple(sorted((config.get("Labels") or {}).items())),
        ports=ports,
        network_mode=host.get("NetworkMode", ""),
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
        restart_policy="" if policy == "no" else str(policy),
        # Folders of the host only: a tmpfs has no source.
        mounts=tuple(sorted((Mount(a, b, not rw) for a, b, rw in mounts if a and b), key=lambda mount: mount.target)),
    )


def _published(bindings: Mapping[str, Any] | None) -> tuple[PublishedPort, ...]:
    ports = []
    for key, hosts in (bindings or {}).items():
        number, _, protocol = key.partition("/")
        for host in hosts or ():
            port = host.get("HostPort") or "0"
            host_port = int(port) if port.isdigit() else 0
            ports.append(PublishedPort(int(number), host_port, host.get("HostIp") or "", protocol or "tcp"))
    return tuple(sorted(ports, key=lambda port: (port.container_port, port.protocol, port.host_port, port.host_ip)))


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
        digest=next(iter(found.get("RepoDigests") or ()), ""),
    )


def container_event(found: Mapping[str, Any]) -> ContainerEvent | None:
    """A line of `GET /events`; None for what is not about a container."""
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
