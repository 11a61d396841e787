"""Docker's failures as errors with a remedy: from sockets, from the SDK, and from the daemon's own sentences.

The sentences are those of Engine 20.10 to 29 and of both image stores. The first rule that matches wins.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from spark_tui.base import errors
from spark_tui.base.engine.image import DOCKER_HUB, registry_of
from spark_tui.base.errors import (
    DaemonNotRunning,
    DockerError,
    ImageNotFound,
    RegistryUnauthorized,
    SocketPermissionDenied,
    SparkError,
    StreamBroken,
)
from spark_tui.base.text import clean_line, quoted
from spark_tui.machine.docker.host import DEFAULT_ORIGIN, DockerHost

_START_DOCKER: Final = "Start it: sudo systemctl start docker. At every boot: sudo systemctl enable docker"
_PORT: Final = re.compile(r":(?P<port>\d{1,5})(?:/\w+)?(?: failed|: bind| ->|:|$)")


class Request(Struct, frozen=True):
    """What was asked of the daemon, for the sentence: `what` is a verb phrase, `start qwen36-35b`."""

    what: str
    container: str = ""
    image: str = ""
    pulling: bool = False


class DaemonRule(Struct, frozen=True):
    """One sentence of the daemon. `summary` and `remedy` may name the pattern's groups, and `{container}`, `{image}`,
    `{registry}`, `{login}`. With `pulling` it applies to pulls only."""

    pattern: str
    error: type[DockerError]
    summary: str
    remedy: str
    pulling: bool = False


def _rules() -> Iterator[DaemonRule]:
    for row in Path(__file__).with_name("sentences.tsv").read_text(encoding="utf-8").splitlines():
        error, when, pattern, summary, remedy = row.split("\t")
        yield DaemonRule(pattern, getattr(errors, error), summary, remedy, when == "pull")


RULES: Final = tuple(_rules())
"""Those of `sentences.tsv`, in the order in which they are tried: error, `pull` where the rule is for pulls only,
pattern, summary, remedy. Read when this is imported: the memory guard meets errors when there is no memory left."""

_LOGINS: Final = {
    "nvcr.io": "docker login nvcr.io, with the literal user name $oauthtoken and an NGC API key as password",
    "ghcr.io": "docker login ghcr.io, with your GitHub name and a token that may read packages",
    DOCKER_HUB: "docker login, with your Docker Hub name and an access token",
}


def port_of(message: str) -> int | None:
    """The host port that a message about a taken port names."""
    match = _PORT.search(message)
    return int(match["port"]) if match else None


def translate(error: BaseException, host: DockerHost, request: Request) -> SparkError:
    """The error for anything that a call of the SDK raises."""
    if isinstance(error, SparkError):
        return error
    explanation = getattr(error, "explanation", None)  # docker.errors.APIError: the daemon's own sentence
    if explanation is not None:
        return from_message(str(explanation), request)
    if "redentials store" in str(error):
        return from_message(str(error), request)
    behind = _behind(error)
    for cause in behind:
        if isinstance(cause, OSError) and type(cause).__module__ in ("builtins", "socket", "ssl"):
            return from_transport(cause, host)
    if any(type(cause).__name__ == "TLSParameterError" for cause in behind):
        return from_transport(ssl.SSLError(str(error)), host)
    if not any(isinstance(cause, ValueError | LookupError | TypeError | AttributeError) for cause in behind):
        if type(error).__module__ == "docker.errors":
            return from_message(str(error), request)
        return from_transport(error, host)
    return DockerError(
        f"Docker's answer was not understood: cannot {request.what}.",
        f"Is {host} a Docker daemon? Check with: docker version",
        detail=f"{type(error).__name__}: {error}",
    )


def _behind(error: BaseException) -> list[BaseException]:
    """The error and all that caused it: requests and urllib3 wrap a socket's error three times."""
    found = [error]
    for cause in found:
        linked = (cause.__cause__, cause.__context__, *cause.args)
        found += [each for each in linked if isinstance(each, BaseException) and all(each is not one for one in found)]
    return found


def from_message(message: str, request: Request) -> DockerError:
    """The meaning of the daemon's sentence; its own words are the detail."""
    message = message.strip()
    for rule in RULES:
        applies = request.pulling or not rule.pulling
        match = re.search(rule.pattern, message, re.IGNORECASE) if applies else None
        if match is None:
            continue
        registry = registry_of(request.image)
        groups = {name: clean_line(value or "") for name, value in match.groupdict().items()}
        words = {
            "container": clean_line(request.container) or groups.get("name") or "the container",
            "image": clean_line(request.image) or "IMAGE",
            "registry": registry,
            "verb": request.what.partition(" ")[0],
            **groups,
        }
        login = _LOGINS.get(registry, f"docker login {quoted(registry)}")
        error = rule.error
        # Docker Hub says the same of private images and of unknown names; other registries mean: log in.
        if error is ImageNotFound and "pull access denied" in message and registry != DOCKER_HUB:
            error = RegistryUnauthorized
        return error(
            rule.summary.format(**words),
            rule.remedy.format(**{name: quoted(word) for name, word in words.items()}, login=login),
            detail=message,
        )
    return DockerError(
        f"Docker cannot {request.what}.",
        "See the detail for Docker's message, and: sudo journalctl -u docker -n 50",
        detail=message,
    )


def from_transport(error: BaseException, host: DockerHost) -> SparkError:
    """Why there is no connection to the daemon, or no answer."""
    detail = f"{type(error).__name__}: {error}"
    where = "" if host.origin in ("", DEFAULT_ORIGIN) else f" (set by {host.origin})"
    start = f"Check {host.origin}: does that daemon run?" if where else _START_DOCKER
    kind: type[SparkError] = DaemonNotRunning
    match error:
        case PermissionError():
            kind, summary = SocketPermissionDenied, f"Cannot reach Docker: permission denied on {host}{where}."
            remedy = "Add yourself to the docker group: sudo usermod -aG docker $USER, then log in again."
        case FileNotFoundError() | NotADirectoryError():
            summary, remedy = f"Docker is not running: {host} does not exist{where}.", start
        case ssl.SSLError():
            summary = f"The Docker daemon at {host} rejects the connection{where}."
            remedy = "Check its certificates (DOCKER_CERT_PATH, DOCKER_TLS_VERIFY)."
        case socket.gaierror():
            summary, remedy = f"Cannot resolve the name of the Docker daemon, {host}{where}.", "Check DOCKER_HOST."
        case TimeoutError():
            summary = f"The Docker daemon at {host} does not answer."
            remedy = "It may be busy: wait a moment. Otherwise: sudo systemctl restart docker"
        case ConnectionRefusedError():
            summary, remedy = f"Docker is not running: nothing listens on {host}{where}.", start
        case _:
            summary = f"The Docker daemon at {host} closed the connection."
            remedy = "It restarted or crashed: see sudo systemctl status docker, then try again."
    return kind(summary, remedy, detail=detail)


def broken(what: str, seconds: float, cause: SparkError) -> StreamBroken:
    """A stream that could not be resumed."""
    waited = f" for {seconds:.0f} s" if seconds else ""
    return StreamBroken(
        f"{what} broke off: Docker does not answer{waited}.",
        f"Containers keep running. {cause.remedy}",
        detail=f"{cause.summary} {cause.detail}".strip(),
    )
