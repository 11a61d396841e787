"""Which Docker daemon is meant: DOCKER_HOST, else the context that the docker program uses, else the local socket."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from spark_tui.domain.errors import DaemonNotRunning, SparkError

LOCAL_SOCKET: Final = "unix:///var/run/docker.sock"
_PLAIN_PORT: Final = 2375
_TLS_PORT: Final = 2376


@dataclass(frozen=True, slots=True)
class DockerHost:
    """Where the daemon listens: a unix socket's path, or a name with a port.

    `tls` is the folder with ca.pem, cert.pem and key.pem. `origin` names the setting that all this comes from, for
    error messages.
    """

    address: str
    port: int = 0
    tls: Path | None = None
    verify: bool = True
    origin: str = ""

    @property
    def local(self) -> bool:
        """A unix socket of this machine."""
        return not self.port

    def __str__(self) -> str:
        return self.address if self.local else f"{self.address}:{self.port}"


def config_folder(environ: Mapping[str, str]) -> Path:
    """The docker program's own folder: DOCKER_CONFIG or ~/.docker."""
    named = environ.get("DOCKER_CONFIG")
    return Path(named) if named else Path(environ.get("HOME") or Path.home()) / ".docker"


def find_host(environ: Mapping[str, str]) -> DockerHost:
    """The daemon that the docker program would talk to in this environment. Raises DaemonNotRunning with a remedy."""
    named = environ.get("DOCKER_HOST")
    if named:
        return parse_host(named, "DOCKER_HOST", **_tls_of(environ))
    context = environ.get("DOCKER_CONTEXT") or _current_context(environ)
    if context in ("", "default"):
        return parse_host(LOCAL_SOCKET, "the default")
    return _context_host(context, environ)


def parse_host(url: str, origin: str, *, tls: Path | None = None, verify: bool = True) -> DockerHost:
    """`unix:///path`, `tcp://host:port`; raises DaemonNotRunning for anything else."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = ("unix", url) if url.startswith("/") else ("tcp", url)
    if scheme == "unix" and rest.startswith("/"):
        return DockerHost(rest, origin=origin)
    if scheme in ("tcp", "http", "https"):
        split = _split(f"//{rest}", url, origin)
        if split.hostname:
            secure = scheme == "https" or tls is not None
            port = split.port or (_TLS_PORT if secure else _PLAIN_PORT)
            folder = tls or (Path() if secure else None)
            return DockerHost(split.hostname, port, folder, verify, origin)
    if scheme == "ssh":
        there = rest.partition("/")[0]
        raise DaemonNotRunning(
            f"{origin} leads to another machine ({url}).",
            "Memory and GPU are always those of the machine that spark-tui runs on. Install it there too, name that "
            f"machine (spark-tui config set hosts.NAME {shlex.quote(f'ssh://{there}')}), and open it: "
            "spark-tui --host NAME",
        )
    raise _unusable(url, origin)


def _split(address: str, url: str, origin: str) -> SplitResult:
    try:
        split = urlsplit(address)
        _ = split.port  # only asking for it finds a bad one
    except ValueError as error:
        raise _unusable(url, origin) from error
    return split


def _unusable(url: str, origin: str) -> SparkError:
    return DaemonNotRunning(
        f"{origin} is {url!r}, which is no address of a Docker daemon.",
        "Use unix:///path/to/docker.sock or tcp://host:port, or unset it.",
    )


def _tls_of(environ: Mapping[str, str]) -> dict[str, Any]:
    verify, folder = environ.get("DOCKER_TLS_VERIFY", ""), environ.get("DOCKER_CERT_PATH", "")
    if not verify and not folder:
        return {}
    return {"tls": Path(folder) if folder else config_folder(environ), "verify": bool(verify)}


def _current_context(environ: Mapping[str, str]) -> str:
    """The context in the docker program's settings; empty where there are none."""
    path = config_folder(environ) / "config.json"
    try:
        settings = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise DaemonNotRunning(
            f"{path} cannot be read.", "Repair it, or set DOCKER_HOST.", detail=str(error)
        ) from error
    context = settings.get("currentContext", "") if isinstance(settings, dict) else ""
    return context if isinstance(context, str) else ""


def _context_host(name: str, environ: Mapping[str, str]) -> DockerHost:
    """The endpoint that `docker context create` stored: folders are named by the SHA-256 of the context's name."""
    folder = config_folder(environ) / "contexts"
    key = hashlib.sha256(name.encode()).hexdigest()
    try:
        meta = json.loads((folder / "meta" / key / "meta.json").read_text("utf-8"))
        endpoint = meta["Endpoints"]["docker"]
        url, skip = endpoint["Host"], bool(endpoint.get("SkipTLSVerify"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DaemonNotRunning(
            f"The Docker context {name!r} cannot be read.",
            "Choose one that is there (docker context ls, docker context use default), or set DOCKER_HOST.",
            detail=f"{type(error).__name__}: {error}",
        ) from error
    stored = folder / "tls" / key / "docker"
    return parse_host(url, f"the Docker context {name!r}", tls=stored if stored.is_dir() else None, verify=not skip)
