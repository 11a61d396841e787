"""What the daemon's sentences mean, and what a person does about them."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.errors import (
    ContainerNotFound,
    DaemonNotRunning,
    DockerError,
    GpuDriverMissing,
    ImageNotFound,
    NameInUse,
    NoSpaceLeft,
    PortInUse,
    RegistryUnauthorized,
    RegistryUnreachable,
    SocketPermissionDenied,
    SparkError,
    StreamBroken,
    WrongArchitecture,
)
from spark_tui.domain.text import clean_line
from spark_tui.services.docker.connection import DockerHost, Refused


@dataclass(frozen=True, slots=True)
class Rule:
    """One sentence of the daemon. `pulling`: it means this only while an image is pulled."""

    pattern: re.Pattern[str]
    error: type[DockerError]
    summary: str
    remedy: str
    pulling: bool = False


def _rule(pattern: str, error: type[DockerError], summary: str, remedy: str, *, pulling: bool = False) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), error, summary, remedy, pulling)


_OFFLINE = "Check the network and the image's name. An image from another machine: docker save there, docker load here."
_LOOK_AT_IMAGE = "See what the image starts by itself (docker image inspect {image}) and correct the preset's command."

_GPU: Final = (
    _rule(
        r"could not select device driver .*\bgpu\b|no known GPU vendor found",
        GpuDriverMissing,
        "Docker cannot give containers the GPU: it does not know the NVIDIA Container Toolkit.",
        "Install it and restart Docker: sudo apt install nvidia-container-toolkit && sudo systemctl restart docker",
    ),
    _rule(
        r"CDI device injection failed|unresolvable CDI devices|could not select device driver \"cdi\"",
        GpuDriverMissing,
        "Docker finds no CDI description of the GPU.",
        "Write it and restart Docker: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        " && sudo systemctl restart docker",
    ),
    _rule(
        r"driver/library version mismatch",
        GpuDriverMissing,
        "The NVIDIA driver was updated while it was in use.",
        "Restart the machine, so that kernel module and libraries match again.",
    ),
    _rule(
        r"nvidia-container-cli|nvidia-container-runtime|libnvidia-ml\.so",
        GpuDriverMissing,
        "The NVIDIA Container Toolkit cannot reach the GPU driver.",
        "Check that nvidia-smi works here; after a driver update, restart the machine.",
    ),
    _rule(
        r"(?:unknown runtime specified|unknown or invalid runtime name:) nvidia",
        GpuDriverMissing,
        "This Docker has no runtime named nvidia.",
        "Ask for the GPU with --gpus all instead: that works on every Spark.",
    ),
)

_STARTING: Final = (
    _rule(
        r"port is already allocated|address already in use|ports are not available",
        PortInUse,
        "The port is taken.",
        "Stop what listens there, or choose another port.",
    ),
    _rule(
        r"listen \w+ (?P<address>\S+?):\d+: bind: cannot assign requested address",
        DockerError,
        "This machine has no address {address}.",
        "Publish the port on 127.0.0.1 or on an address that `ip addr` shows.",
    ),
    _rule(
        r"container name \"/?(?P<name>[^\"]+)\" is already in use(?: by container \"?(?P<id>[0-9a-f]{12})?)?",
        NameInUse,
        "The name {name} is taken by another container.",
        "Remove that one (docker rm {name}) or launch under another name.",
    ),
    _rule(
        r"no space left on device|disk quota exceeded",
        NoSpaceLeft,
        "The disk is full.",
        "See what takes the room: docker system df, df -h. Free it: docker image prune, or delete weights you"
        " no longer use.",
    ),
    _rule(
        r"exec format error|no match(?:ing manifest)? for(?: platform)?.*(?:manifest|platform)"
        r"|does not match the specified platform",
        WrongArchitecture,
        "The image {image} is not built for this machine's processor.",
        "Choose a tag that is (on a DGX Spark: arm64, often marked aarch64).",
    ),
    _rule(
        r"exec: \"(?P<program>[^\"]+)\": (?:stat .*: )?(?:executable file not found|no such file or directory)",
        DockerError,
        "The image has no program {program}.",
        _LOOK_AT_IMAGE,
    ),
    _rule(
        r"exec: \"(?P<program>[^\"]+)\": (?:permission denied|is a directory)",
        DockerError,
        "{program} in the image cannot be run.",
        _LOOK_AT_IMAGE,
    ),
    _rule(
        r"bind source path does not exist: (?P<path>.+)",
        DockerError,
        "{path} does not exist, and the container wants it mounted.",
        "Create it, or correct the mount.",
    ),
    _rule(
        r"error while creating mount source path '(?P<path>.+?)': (?P<why>.+)",
        DockerError,
        "Docker cannot create {path}, which the container wants mounted.",
        "Create it yourself, or correct the mount.",
    ),
    _rule(
        r"error gathering device information while adding custom device \"(?P<path>[^\"]+)\"",
        DockerError,
        "This machine has no device {path}, which the container asks for.",
        "Remove it from the preset, or load its driver.",
    ),
    _rule(
        r"unable to find (?:user|group) (?P<user>\S+): ",
        DockerError,
        "The image knows no user {user}.",
        "Give a number (1000:1000), or remove the user from the preset.",
    ),
    _rule(
        r"network (?P<network>\S+) not found",
        DockerError,
        "Docker has no network {network}.",
        "Create it (docker network create {network}), or use bridge or host.",
    ),
)

_CONTAINERS: Final = (
    _rule(
        r"no such container:? ?(?P<name>\S*)",
        ContainerNotFound,
        "There is no container {container}.",
        "See which there are: spark-tui ps, or docker ps --all",
    ),
    _rule(
        r"stop the container before",
        DockerError,
        "{container} is running.",
        "Stop it first.",
    ),
    _rule(
        r"cannot start a paused container|is paused",
        DockerError,
        "{container} is paused.",
        "Let it go on: docker unpause {container}",
    ),
    _rule(
        r"marked for removal|removal of container .* is already in progress",
        DockerError,
        "{container} is being removed.",
        "Wait a moment, then try again.",
    ),
    _rule(
        r"did not receive an exit event|could not kill|cannot kill container|is zombie and can not be killed",
        DockerError,
        "{container} does not end: its process hangs in the kernel, most often in the GPU driver.",
        "Look at: sudo dmesg | tail. If it hangs for minutes, only a restart of the machine frees its memory.",
    ),
    _rule(
        r"logging driver does not support reading",
        DockerError,
        "The log of {container} cannot be read: its log driver sends it elsewhere.",
        "Read it there, or make the container anew with Docker's default log driver.",
    ),
    _rule(
        r"client version (?P<version>\S+) is too (?P<what>new|old)",
        DockerError,
        "This Docker daemon and spark-tui speak different versions of its API.",
        "Update Docker and spark-tui.",
    ),
)

_IMAGES: Final = (
    _rule(
        r"toomanyrequests|pull rate limit",
        RegistryUnauthorized,
        "{registry} lets nobody without a login pull more for now.",
        "Log in ({login}), or wait a few hours.",
    ),
    _rule(
        r"pull access denied for \S+, repository does not exist",
        ImageNotFound,
        "There is no image {image} at {registry}, or it is private.",
        "Check its name. For a private image log in first: {login}",
    ),
    _rule(
        r"unauthorized|no basic auth credentials|authentication required|\bdenied\b|40[13] (?:unauthorized|forbidden)"
        r"|insufficient_scope|authorization failed",
        RegistryUnauthorized,
        "{registry} wants a login for {image}.",
        "Log in, then try again: {login}",
        pulling=True,
    ),
    _rule(
        r"manifest unknown|manifest for .* not found|not found: manifest|name unknown|repository .* not found"
        r"|failed to resolve reference .*: not found",
        ImageNotFound,
        "{registry} has no image {image}.",
        "Check its name and tag.",
        pulling=True,
    ),
    _rule(
        r"no such image|image .* not found",
        ImageNotFound,
        "The image {image} is not on this machine.",
        "Pull it: docker pull {image}",
    ),
    _rule(
        r"invalid reference format|repository name .* must be",
        ImageNotFound,
        "{image} is no name of an image.",
        "Write it as registry/name:tag, in small letters.",
    ),
    _rule(
        r"x509:|certificate|server gave HTTP response to HTTPS client",
        RegistryUnreachable,
        "The image {image} is not here, and {registry} has no certificate that this machine trusts.",
        "Check the machine's clock and any proxy; a registry of your own belongs into insecure-registries of"
        " /etc/docker/daemon.json.",
        pulling=True,
    ),
    _rule(
        r"no such host|server misbehaving|try again|name resolution",
        RegistryUnreachable,
        "The image {image} is not here, and the name {registry} cannot be resolved.",
        _OFFLINE,
        pulling=True,
    ),
    _rule(
        r"connection refused|timeout|deadline exceeded|unreachable|no route to host|connection reset|\bEOF\b"
        r"|unexpected HTTP status|unexpected status|failed to do request|proxyconnect|dial tcp",
        RegistryUnreachable,
        "The image {image} is not here, and {registry} does not answer.",
        _OFFLINE,
        pulling=True,
    ),
)

RULES: Final = (*_GPU, *_STARTING, *_CONTAINERS, *_IMAGES)

DOCKER_HUB: Final = "docker.io"
_LOGINS: Final = {
    "nvcr.io": "docker login nvcr.io, with the user name $oauthtoken, as it stands, and an NGC API key as password",
    "ghcr.io": "docker login ghcr.io, with your GitHub name and a token that may read packages",
    DOCKER_HUB: "docker login, with your Docker Hub name and an access token",
}


def registry_of(image: str) -> str:
    """The registry that an image name means: `nvcr.io`, `127.0.0.1:5000`, or docker.io."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first
    return DOCKER_HUB


def login_for(registry: str) -> str:
    """How to log in there."""
    return _LOGINS.get(registry, f"docker login {registry}")


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
