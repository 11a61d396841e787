"""Which Docker daemon is used: DOCKER_HOST, else the current context of the docker program, else the local socket.

The SDK is imported only where a context is configured: the memory guard uses this too, and holds every page it loads.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from spark_tui.base.errors import DaemonNotRunning
from spark_tui.base.files import read_plain
from spark_tui.base.untrusted import load_json

LOCAL_SOCKET: Final = "unix:///var/run/docker.sock"
DEFAULT_ORIGIN: Final = "the default"
_PLAIN_PORT: Final = 2375
_TLS_PORT: Final = 2376


class DockerHost(Struct, frozen=True):
    """Where the daemon listens: the path of a unix socket (port 0), or a name and a port.

    `tls` holds keyword arguments of the SDK's TLSConfig, or a TLSConfig from a context; None without TLS. `origin`
    names the setting behind it, for error messages.
    """

    address: str
    port: int = 0
    tls: Any = None
    origin: str = ""

    @property
    def local(self) -> bool:
        """A unix socket of this machine."""
        return not self.port

    @property
    def url(self) -> str:
        """The SDK's `base_url`."""
        if self.local:
            return f"unix://{self.address}"
        name = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.tls is not None else 'http'}://{name}:{self.port}"

    def __str__(self) -> str:
        return self.address if self.local else f"{self.address}:{self.port}"


def config_folder(environ: Mapping[str, str]) -> Path:
    """The docker program's own folder: DOCKER_CONFIG or ~/.docker."""
    named = environ.get("DOCKER_CONFIG")
    return Path(named) if named else Path(environ.get("HOME") or Path.home()) / ".docker"


def find_host(environ: Mapping[str, str]) -> DockerHost:
    """The daemon that the docker program would use in this environment. Raises DaemonNotRunning."""
    url = environ.get("DOCKER_HOST")
    if url:
        verify, folder = environ.get("DOCKER_TLS_VERIFY", ""), environ.get("DOCKER_CERT_PATH", "")
        tls = _tls_files(Path(folder) if folder else config_folder(environ), bool(verify)) if verify or folder else None
        return _parsed(url, "DOCKER_HOST", tls)
    context = environ.get("DOCKER_CONTEXT") or _current_context(config_folder(environ) / "config.json")
    if context in ("", "default"):
        return _parsed(LOCAL_SOCKET, DEFAULT_ORIGIN, None)
    return _context_host(context)


def _tls_files(folder: Path, verify: bool) -> dict[str, Any]:
    return {
        "client_cert": (str(folder / "cert.pem"), str(folder / "key.pem")),
        "ca_cert": str(folder / "ca.pem") if verify else None,
        "verify": verify,
    }


def _parsed(url: str, origin: str, tls: Any) -> DockerHost:
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = ("unix", url) if url.startswith("/") else ("tcp", url)
    if scheme == "unix" and rest.startswith("/"):
        return DockerHost(rest, origin=origin)
    if scheme == "ssh":
        machine = shlex.quote(f"ssh://{rest.partition('/')[0]}")
        raise DaemonNotRunning(
            f"{origin} leads to another machine ({url}).",
            "Memory and GPU are read on this machine only. Install spark-tui there too, name that machine "
            f"(spark-tui config set hosts.NAME {machine}), and open it: spark-tui --host NAME",
        )
    try:
        split = urlsplit(f"//{rest}")
        name, port = split.hostname, split.port
    except ValueError:
        name = port = None
    if scheme not in ("tcp", "http", "https") or not name:
        raise DaemonNotRunning(
            f"{origin} is {url!r}, which is no address of a Docker daemon.",
            "Use unix:///path/to/docker.sock or tcp://host:port, or unset it.",
        )
    if scheme == "https" and tls is None:
        tls = {"verify": True}
    return DockerHost(name, port or (_TLS_PORT if tls is not None else _PLAIN_PORT), tls, origin)


def _current_context(config: Path) -> str:
    """`currentContext` of the docker program's settings; empty where there is none. Raises DaemonNotRunning."""
    try:
        settings = load_json(read_plain(config))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise DaemonNotRunning(f"Cannot read {config}.", "Repair it, or set DOCKER_HOST.", detail=str(error)) from error
    context = settings.get("currentContext", "") if isinstance(settings, dict) else ""
    return context if isinstance(context, str) else ""


def _context_host(name: str) -> DockerHost:
    """The endpoint that `docker context create` stored, read by the SDK."""
    from docker.context import Context

    context, detail = None, "no such context"
    try:
        context = Context.load_context(name)
    except Exception as error:  # noqa: BLE001 - the SDK raises bare Exceptions here
        detail = f"{type(error).__name__}: {error}"
    if context is None or not context.Host:
        raise DaemonNotRunning(
            f"Cannot read the Docker context {name!r}.",
            "Choose another (docker context ls, docker context use default), or set DOCKER_HOST.",
            detail=detail,
        )
    return _parsed(context.Host, f"the Docker context {name!r}", context.TLSConfig)
