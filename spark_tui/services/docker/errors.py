"""Docker's failures as errors with a remedy: from sockets, from the SDK, and from the daemon's own sentences.

The sentences are those of Engine 20.10 to 29 and of both image stores. The first rule that matches wins.
"""

from __future__ import annotations

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
from spark_tui.services.docker.host import DEFAULT_ORIGIN, DockerHost

_START_DOCKER: Final = "Start it: sudo systemctl start docker. At every boot: sudo systemctl enable docker"
_PORT: Final = re.compile(r":(?P<port>\d{1,5})(?:/\w+)?(?: failed|: bind| ->|:|$)")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of the daemon, for the sentence: `what` is a verb phrase, `start qwen36-35b`."""

    what: str
    container: str = ""
    image: str = ""
    pulling: bool = False


@dataclass(frozen=True, slots=True)
class DaemonRule:
    """One sentence of the daemon. `summary` and `remedy` may name the pattern's groups, and `{container}`, `{image}`,
    `{registry}`, `{login}`. With `pulling` it applies to pulls only."""

    pattern: str
    error: type[DockerError]
    summary: str
    remedy: str
    pulling: bool = False


_OFFLINE = "Check the network and the image's name. From another machine: docker save there, docker load here."
_LOOK_AT_IMAGE = "See the image's own command (docker image inspect {image}) and correct the preset's."

RULES: Final = (
    # The registry's login.
    DaemonRule(
        r"credentials store error|credential helper",
        DockerError,
        "Cannot read the login for {registry}.",
        "Repair the credential helper in ~/.docker/config.json, or log in again: docker login {registry}",
        pulling=True,
    ),
    # The GPU.
    DaemonRule(
        r"could not select device driver .*\bgpu\b|no known GPU vendor found",
        GpuDriverMissing,
        "Docker cannot give containers the GPU: the NVIDIA Container Toolkit is not set up.",
        "Install it and restart Docker: sudo apt install nvidia-container-toolkit && sudo systemctl restart docker",
    ),
    DaemonRule(
        r"CDI device injection failed|unresolvable CDI devices|could not select device driver \"cdi\"",
        GpuDriverMissing,
        "Docker has no CDI description of the GPU.",
        "Generate it and restart Docker: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        " && sudo systemctl restart docker",
    ),
    DaemonRule(
        r"driver/library version mismatch",
        GpuDriverMissing,
        "The NVIDIA driver was updated while in use.",
        "Restart the machine: kernel module and libraries differ.",
    ),
    DaemonRule(
        r"nvidia-container-cli|nvidia-container-runtime|libnvidia-ml\.so",
        GpuDriverMissing,
        "The NVIDIA Container Toolkit cannot reach the GPU driver.",
        "Check that nvidia-smi works. After a driver update, restart the machine.",
    ),
    DaemonRule(
        r"(?:unknown runtime specified|unknown or invalid runtime name:) nvidia",
        GpuDriverMissing,
        "Docker has no runtime named nvidia.",
        "Use --gpus all instead: it works on every Spark.",
    ),
    # Creating and starting.
    DaemonRule(
        r"port is already allocated|address already in use|ports are not available",
        PortInUse,
        "The port is in use.",
        "Stop the process that uses it, or choose another port.",
    ),
    DaemonRule(
        r"listen \w+ (?P<address>\S+?):\d+: bind: cannot assign requested address",
        DockerError,
        "This machine has no address {address}.",
        "Publish the port on 127.0.0.1 or on an address that `ip addr` shows.",
    ),
    DaemonRule(
        r"container name \"/?(?P<name>[^\"]+)\" is already in use(?: by container \"?(?P<id>[0-9a-f]{12})?)?",
        NameInUse,
        "The name {name} is taken by another container.",
        "Remove that container (docker rm {name}) or launch under another name.",
    ),
    DaemonRule(
        r"no space left on device|disk quota exceeded",
        NoSpaceLeft,
        "The disk is full.",
        "See docker system df and df -h. Free space with docker image prune, or delete unused models.",
    ),
    DaemonRule(
        r"exec format error|no match(?:ing manifest)? for(?: platform)?.*(?:manifest|platform)"
        r"|does not match the specified platform",
        WrongArchitecture,
        "The image {image} is not built for this machine's processor.",
        "Choose an arm64 tag (often marked aarch64).",
    ),
    DaemonRule(
        r"exec: \"(?P<program>[^\"]+)\": (?:stat .*: )?(?:executable file not found|no such file or directory)",
        DockerError,
        "Program {program} is missing from the image.",
        _LOOK_AT_IMAGE,
    ),
    DaemonRule(
        r"exec: \"(?P<program>[^\"]+)\": (?:permission denied|is a directory)",
        DockerError,
        "Program {program} of the image cannot be run.",
        _LOOK_AT_IMAGE,
    ),
    DaemonRule(
        r"bind source path does not exist: (?P<path>.+)",
        DockerError,
        "{path} does not exist, but is to be mounted.",
        "Create it, or correct the mount.",
    ),
    DaemonRule(
        r"error while creating mount source path '(?P<path>.+?)': (?P<why>.+)",
        DockerError,
        "Docker cannot create {path}, which is to be mounted.",
        "Create it yourself, or correct the mount.",
    ),
    DaemonRule(
        r"error gathering device information while adding custom device \"(?P<path>[^\"]+)\"",
        DockerError,
        "This machine has no device {path}.",
        "Remove it from the preset, or load its driver.",
    ),
    DaemonRule(
        r"unable to find (?:user|group) (?P<user>\S+): ",
        DockerError,
        "The image has no user {user}.",
        "Use a number (1000:1000), or remove the user from the preset.",
    ),
    DaemonRule(
        r"network (?P<network>\S+) not found",
        DockerError,
        "Docker has no network {network}.",
        "Create it (docker network create {network}), or use bridge or host.",
    ),
    # Containers that exist.
    DaemonRule(
        r"no such container:? ?(?P<name>\S*)",
        ContainerNotFound,
        "No container named {container}.",
        "List them: spark-tui ps, or docker ps --all",
    ),
    DaemonRule(r"stop the container before", DockerError, "{container} is running.", "Stop it first."),
    DaemonRule(
        r"cannot start a paused container|is paused",
        DockerError,
        "{container} is paused.",
        "Resume it: docker unpause {container}",
    ),
    DaemonRule(
        r"marked for removal|removal of container .* is already in progress",
        DockerError,
        "{container} is being removed.",
        "Wait a moment, then try again.",
    ),
    DaemonRule(
        r"did not receive an exit event|could not kill|cannot kill container|is zombie and can not be killed",
        DockerError,
        "{container} does not stop: its process hangs in the kernel, usually in the GPU driver.",
        "See sudo dmesg | tail. If it hangs for minutes, restart the machine to free its memory.",
    ),
    DaemonRule(
        r"logging driver does not support reading",
        DockerError,
        "Cannot read the log of {container}: its log driver sends it elsewhere.",
        "Read it there, or recreate the container with Docker's default log driver.",
    ),
    DaemonRule(
        r"client version (?P<version>\S+) is too (?P<what>new|old)",
        DockerError,
        "The Docker daemon and spark-tui support different API versions.",
        "Update Docker and spark-tui.",
    ),
    # Images and registries.
    DaemonRule(
        r"toomanyrequests|pull rate limit",
        RegistryUnauthorized,
        "{registry} limits pulls without a login.",
        "Log in ({login}), or wait a few hours.",
    ),
    DaemonRule(
        r"pull access denied for \S+, repository does not exist",
        ImageNotFound,
        "No image {image} at {registry}, or it is private.",
        "Check its name. For a private image, log in first: {login}",
    ),
    DaemonRule(
        r"unauthorized|no basic auth credentials|authentication required|\bdenied\b|40[13] (?:unauthorized|forbidden)"
        r"|insufficient_scope|authorization failed",
        RegistryUnauthorized,
        "{registry} requires a login for {image}.",
        "Log in, then try again: {login}",
        pulling=True,
    ),
    DaemonRule(
        r"manifest unknown|manifest for .* not found|not found: manifest|name unknown|repository .* not found"
        r"|failed to resolve reference .*: not found",
        ImageNotFound,
        "{registry} has no image {image}.",
        "Check its name and tag.",
        pulling=True,
    ),
    DaemonRule(
        r"no such image|image .* not found",
        ImageNotFound,
        "The image {image} is not downloaded.",
        "Pull it: docker pull {image}",
    ),
    DaemonRule(
        r"invalid reference format|repository name .* must be|invalid (?:repository|index) name|contain a scheme",
        ImageNotFound,
        "{image} is not an image name.",
        "Write it as registry/name:tag, in small letters.",
    ),
    DaemonRule(
        r"x509:|certificate|server gave HTTP response to HTTPS client",
        RegistryUnreachable,
        "Cannot pull {image}: the certificate of {registry} is not trusted.",
        "Check the machine's clock and any proxy. Add your own registry to insecure-registries in"
        " /etc/docker/daemon.json.",
        pulling=True,
    ),
    DaemonRule(
        r"no such host|server misbehaving|try again|name resolution",
        RegistryUnreachable,
        "Cannot pull {image}: cannot resolve the name {registry}.",
        _OFFLINE,
        pulling=True,
    ),
    DaemonRule(
        r"connection refused|timeout|deadline exceeded|unreachable|no route to host|connection reset|\bEOF\b"
        r"|unexpected HTTP status|unexpected status|failed to do request|proxyconnect|dial tcp",
        RegistryUnreachable,
        "Cannot pull {image}: {registry} does not answer.",
        _OFFLINE,
        pulling=True,
    ),
)

DOCKER_HUB: Final = "docker.io"
_LOGINS: Final = {
    "nvcr.io": "docker login nvcr.io, with the literal user name $oauthtoken and an NGC API key as password",
    "ghcr.io": "docker login ghcr.io, with your GitHub name and a token that may read packages",
    DOCKER_HUB: "docker login, with your Docker Hub name and an access token",
}


def registry_of(image: str) -> str:
    """The registry that an image name means: `nvcr.io`, `127.0.0.1:5000`, or docker.io."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first
    return DOCKER_HUB


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
            "login": _LOGINS.get(registry, f"docker login {registry}"),
            **groups,
        }
        error = rule.error
        # Docker Hub says the same of private images and of unknown names; other registries mean: log in.
        if error is ImageNotFound and "pull access denied" in message and registry != DOCKER_HUB:
            error = RegistryUnauthorized
        return error(rule.summary.format(**words), rule.remedy.format(**words), detail=message)
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
