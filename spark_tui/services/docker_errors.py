"""Docker's failures as errors that say what to do: from sockets, and from the daemon's own sentences."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from dataclasses import dataclass

from spark_tui.domain.errors import (
    DaemonNotRunning,
    DockerError,
    ImageNotFound,
    RegistryUnauthorized,
    SocketPermissionDenied,
    SparkError,
    StreamBroken,
)
from spark_tui.domain.text import clean_line
from spark_tui.services.docker_host import DockerHost
from spark_tui.services.docker_http import Refused
from spark_tui.services.docker_messages import DOCKER_HUB, RULES, Rule, login_for, registry_of

TRANSPORT_ERRORS = (OSError, http.client.HTTPException)
"""What a connection raises; the daemon's answers are `Refused`."""

_PORT = re.compile(r":(?P<port>\d{1,5})(?:/\w+)?(?: failed|: bind| ->|:|$)")
_START_DOCKER = "Start it: sudo systemctl start docker. To have it from now on: sudo systemctl enable docker"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of the daemon, for the sentence: `what` is a verb phrase, `start qwen36-35b`."""

    what: str
    container: str = ""
    image: str = ""
    pulling: bool = False


def translate(error: Exception, host: DockerHost, asked: Asked) -> SparkError:
    """The error that a person meets, for anything that a call of the daemon raises."""
    if isinstance(error, SparkError):
        return error
    if isinstance(error, Refused):
        return from_message(error.message, asked)
    if isinstance(error, TRANSPORT_ERRORS):
        return from_transport(error, host)
    return DockerError(
        f"Docker's answer was not understood: cannot {asked.what}.",
        f"Is {host} a Docker daemon? Check with: docker version",
        detail=f"{type(error).__name__}: {error}",
    )


def from_message(message: str, asked: Asked) -> DockerError:
    """The meaning of the daemon's sentence; its own words are the detail."""
    message = message.strip()
    for rule in RULES:
        if rule.pulling and not asked.pulling:
            continue
        match = rule.pattern.search(message)
        if match:
            return _by_rule(rule, match, message, asked)
    return DockerError(
        f"Docker cannot {asked.what}.",
        "Its own words are in the detail; more stands in: sudo journalctl -u docker -n 50",
        detail=message,
    )


def _by_rule(rule: Rule, match: re.Match[str], message: str, asked: Asked) -> DockerError:
    registry = registry_of(asked.image)
    groups = {name: clean_line(value or "") for name, value in match.groupdict().items()}
    words = {
        "container": clean_line(asked.container) or groups.get("name") or "the container",
        "image": clean_line(asked.image) or "IMAGE",
        "registry": registry,
        "login": login_for(registry),
        **groups,
    }
    error = rule.error
    # Docker Hub says the same of private images and of names that do not exist; others serve no anonymous list.
    if error is ImageNotFound and "pull access denied" in message and registry != DOCKER_HUB:
        error = RegistryUnauthorized
    return error(rule.summary.format(**words), rule.remedy.format(**words), detail=message)


def port_of(message: str) -> int | None:
    """The host port that a message about a taken port names."""
    ports = [int(match["port"]) for match in _PORT.finditer(message)]
    return ports[0] if ports else None


def from_transport(error: BaseException, host: DockerHost) -> SparkError:
    """Why there is no connection to the daemon, or no answer."""
    detail = f"{type(error).__name__}: {error}"
    where = f" ({host.origin} says so)" if host.origin not in ("", "the default") else ""
    if isinstance(error, PermissionError):
        return SocketPermissionDenied(
            f"Cannot reach Docker: permission denied on {host}{where}.",
            "Add yourself to the docker group: sudo usermod -aG docker $USER, then log in again.",
            detail=detail,
        )
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        remedy = _START_DOCKER if not where else f"Check {host.origin}: does that daemon run?"
        return DaemonNotRunning(f"Docker is not running: there is no {host}{where}.", remedy, detail=detail)
    if isinstance(error, ssl.SSLError):
        return DaemonNotRunning(
            f"The Docker daemon at {host} does not accept the connection{where}.",
            "Check its certificates (DOCKER_CERT_PATH, DOCKER_TLS_VERIFY).",
            detail=detail,
        )
    if isinstance(error, socket.gaierror):
        return DaemonNotRunning(
            f"The name of the Docker daemon, {host}, cannot be resolved{where}.", "Check DOCKER_HOST.", detail=detail
        )
    if isinstance(error, TimeoutError):
        return DaemonNotRunning(
            f"The Docker daemon at {host} does not answer.",
            "It may be busy: wait a moment. If it stays so: sudo systemctl restart docker",
            detail=detail,
        )
    if isinstance(error, ConnectionRefusedError):
        remedy = _START_DOCKER if not where else f"Check {host.origin}: does that daemon run?"
        return DaemonNotRunning(f"Docker is not running: nobody listens on {host}{where}.", remedy, detail=detail)
    return DaemonNotRunning(
        f"The Docker daemon at {host} went away in the middle of its answer.",
        "It restarts or has crashed: look at sudo systemctl status docker, then try again.",
        detail=detail,
    )


def broken(what: str, seconds: float, cause: SparkError) -> StreamBroken:
    """A stream that could not be resumed."""
    waited = f" for {seconds:.0f} s" if seconds else ""
    return StreamBroken(
        f"{what} broke off: Docker does not answer{waited}.",
        f"The containers may well go on. {cause.remedy}",
        detail=f"{cause.summary} {cause.detail}".strip(),
    )
