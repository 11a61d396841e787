"""The one frozen description of a container. Docker SDK arguments and the `docker run` text both render from it."""

from __future__ import annotations

from dataclasses import dataclass

LABEL_PREFIX = "io.spark-tui."
LABEL_PRESET = LABEL_PREFIX + "preset"
LABEL_SPEC_HASH = LABEL_PREFIX + "spec-hash"
LABEL_MODEL = LABEL_PREFIX + "model"
LABEL_SERVED_NAME = LABEL_PREFIX + "served-name"
LABEL_RUNTIME = LABEL_PREFIX + "runtime"
LABEL_PORT = LABEL_PREFIX + "port"
LABEL_API_KEY_FILE = LABEL_PREFIX + "api-key-file"
LABEL_OVERRIDES = LABEL_PREFIX + "overrides"

LOOPBACK = "127.0.0.1"
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - only where the person asked for exposure


@dataclass(frozen=True, slots=True)
class EnvVar:
    """`-e NAME=VALUE`. Never a secret: those stand in `ContainerSpec.env_files`."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount of a host path (absolute) into the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PublishedPort:
    """`-p host_ip:host_port:container_port/protocol`. `host_ip` 127.0.0.1 unless exposure was asked for."""

    container_port: int
    host_port: int
    host_ip: str = LOOPBACK
    protocol: str = "tcp"


@dataclass(frozen=True, slots=True)
class Ulimit:
    """`--ulimit name=soft:hard`; -1 is unlimited."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Gpus:
    """`--gpus all` (count -1), `--gpus N`, or `--gpus device=ID,ID`.

    Always a device request, never `runtime="nvidia"`: a stock Spark lists no such runtime.
    """

    count: int = -1
    device_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """`no`, `always`, `unless-stopped`, or `on-failure` with at most `maximum_retries`."""

    name: str = "no"
    maximum_retries: int = 0


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What is asked of Docker. Tuples keep the order in which people read the command.

    `entrypoint` None keeps the image's own; an empty tuple clears it. `env_files` are host paths of
    `NAME=value` files (mode 0600): keys travel there and never in argv, labels or this value.
    """

    name: str
    image: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] = ()
    env_files: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    ports: tuple[PublishedPort, ...] = ()
    gpus: Gpus | None = None
    ipc: str = ""
    shm_size: int = 0
    network: str = ""
    user: str = ""
    ulimits: tuple[Ulimit, ...] = ()
    restart: RestartPolicy = RestartPolicy()
    labels: tuple[tuple[str, str], ...] = ()
    oom_score_adj: int = 0
    cap_add: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    privileged: bool = False
    init: bool = False

    def label(self, key: str) -> str:
        """The label's value, or an empty string."""
        return next((value for name, value in self.labels if name == key), "")
