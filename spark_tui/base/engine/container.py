"""What Docker reports about containers and images, as plain values."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import RefusedError

LABEL_PREFIX = "io.spark-tui."
LABEL_PRESET = LABEL_PREFIX + "preset"
LABEL_SPEC_HASH = LABEL_PREFIX + "spec-hash"
LABEL_MODEL = LABEL_PREFIX + "model"
LABEL_SERVED_NAME = LABEL_PREFIX + "served-name"
LABEL_RUNTIME = LABEL_PREFIX + "runtime"
LABEL_PORT = LABEL_PREFIX + "port"
LABEL_API_KEY_FILE = LABEL_PREFIX + "api-key-file"
LABEL_OVERRIDES = LABEL_PREFIX + "overrides"
LABEL_LAUNCH = LABEL_PREFIX + "launch"
"""One value for all containers of a launch over several nodes."""
LABEL_RANK = LABEL_PREFIX + "rank"
"""`1/2`: the rank, and of how many nodes."""
LABEL_NODES = LABEL_PREFIX + "nodes"
"""The nodes of the launch by name, the head first, with commas; LABEL_FABRIC and LABEL_RAILS alike: of this node the
addresses between the nodes, and its RDMA devices or else interfaces there."""
LABEL_FABRIC = LABEL_PREFIX + "fabric"
LABEL_RAILS = LABEL_PREFIX + "rails"
LABEL_TOOL = LABEL_PREFIX + "tool"
"""Of a container that runs a program of ours for a moment, and is no engine whatever its image."""
PROCESS_ID = "process-"
"""Begins the id of a bare process, before its number."""
ADDRESS_ID = "address-"
"""Begins the id of a server that is known by its address alone, before its base URL."""

LOOPBACK = "127.0.0.1"
STORE_TARGET = "/models"
"""The model store as a container sees it."""
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - only where the person asked for exposure


class EnvVar(Struct, frozen=True):
    """`-e NAME=VALUE`. Never a secret: those stand in `ContainerSpec.env_files`."""

    name: str
    value: str


class Mount(Struct, frozen=True):
    """A bind mount of a host path (absolute) into the container."""

    source: str
    target: str
    read_only: bool = False


class PublishedPort(Struct, frozen=True):
    """`-p host_ip:host_port:container_port/protocol`. `host_ip` 127.0.0.1 unless exposure was asked for."""

    container_port: int
    host_port: int
    host_ip: str = LOOPBACK
    protocol: str = "tcp"


class Ulimit(Struct, frozen=True):
    """`--ulimit name=soft:hard`; -1 is unlimited."""

    name: str
    soft: int
    hard: int


class Gpus(Struct, frozen=True):
    """`--gpus all` (count -1), `--gpus N`, or `--gpus device=ID,ID`.

    Always a device request, never `runtime="nvidia"`: a stock Spark lists no such runtime.
    """

    count: int = -1
    device_ids: tuple[str, ...] = ()


class RestartPolicy(Struct, frozen=True):
    """`no`, `always`, `unless-stopped`, or `on-failure` with at most `maximum_retries`."""

    name: str = "no"
    maximum_retries: int = 0


class ContainerSpec(Struct, frozen=True):
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


class ContainerStatus(StrEnum):
    """Docker's own words (`State.Status`)."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"


class ContainerFacts(Struct, frozen=True):
    """One container as inspected. Times are seconds since the epoch; None when Docker has none.

    `environment` holds only names: values may be secrets. `argv` is entrypoint plus command, as it runs. `mounts` are
    folders of the host that it sees, volumes too. `restart_policy` is Docker's word for when it starts the container
    again by itself; empty for never. What our labels say is empty where there are none.
    """

    id: str
    name: str
    image: str
    image_id: str
    status: ContainerStatus
    argv: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[PublishedPort, ...] = ()
    network_mode: str = ""
    environment: tuple[str, ...] = ()
    tty: bool = False
    pid: int = 0
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    restart_count: int = 0
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    restart_policy: str = ""
    mounts: tuple[Mount, ...] = ()

    def label(self, key: str) -> str:
        """The label's value, or an empty string."""
        return next((value for name, value in self.labels if name == key), "")

    @property
    def bare(self) -> bool:
        """Whether it is an engine without a container, shown like one: Docker has neither its log nor its stop."""
        return self.id.startswith((PROCESS_ID, ADDRESS_ID))

    @property
    def address(self) -> str:
        """The base URL of a server that is known by its address alone, else empty."""
        return self.id.removeprefix(ADDRESS_ID) if self.id.startswith(ADDRESS_ID) else ""

    @property
    def where(self) -> str:
        """Of one without a container, what it is: `process 4711`, `http://10.0.0.7:8000`."""
        return self.address or f"process {self.pid}"

    @property
    def start(self) -> tuple[str, float | None, int, int]:
        """What differs between two starts, of this container or of two."""
        return self.id, self.started_at, self.restart_count, self.pid

    @property
    def rank_of(self) -> str:
        """The launch over several nodes that it is a rank of, where the API is another rank's; else empty."""
        number = self.label(LABEL_RANK).partition("/")[0]
        joined = number not in ("", "0") and not self.label(LABEL_PORT)
        return self.name.removesuffix(f"-rank{number}") if joined else ""

    @property
    def ours(self) -> bool:
        return bool(self.label(LABEL_PRESET))

    @property
    def preset(self) -> str:
        return self.label(LABEL_PRESET)

    def listed(self, key: str) -> tuple[str, ...]:
        """The values of a label that has several."""
        return tuple(filter(None, self.label(key).split(",")))

    @property
    def fabric(self) -> tuple[str, ...]:
        """Of a rank, the addresses between its nodes."""
        return self.listed(LABEL_FABRIC)

    @property
    def spec_hash(self) -> str:
        return self.label(LABEL_SPEC_HASH)

    def made_by(self, spec: ContainerSpec) -> bool:
        """Whether it is what the spec asks for: by our fingerprint, and by what Docker has itself. A label stays when
        a person changes an exported command."""
        words = (*(spec.entrypoint or ()), *spec.command)
        bound = {(each.container_port, each.host_port) for each in self.ports}
        return (
            self.spec_hash == spec.label(LABEL_SPEC_HASH)
            and (self.image == spec.image or "sha256:" in self.image)  # an update starts an image by its digest
            and self.argv[len(self.argv) - len(words) :] == words
            and bound == {(each.container_port, each.host_port) for each in spec.ports}
        )

    @property
    def model(self) -> str:
        return self.label(LABEL_MODEL)

    @property
    def runtime(self) -> str:
        return self.label(LABEL_RUNTIME)

    @property
    def api_port(self) -> str:
        """The host port of the API by our label, or an empty string."""
        return self.label(LABEL_PORT)

    @property
    def served_name(self) -> str:
        return self.label(LABEL_SERVED_NAME)

    @property
    def api_key_file(self) -> str:
        """Host path of the key file that it was launched with, or an empty string."""
        return self.label(LABEL_API_KEY_FILE)

    @property
    def overrides(self) -> str:
        """The changes to its preset that it was launched with, as a JSON object; empty where there were none."""
        return self.label(LABEL_OVERRIDES)

    @property
    def running(self) -> bool:
        """Its process exists (paused and restarting included)."""
        return self.status in (ContainerStatus.RUNNING, ContainerStatus.PAUSED, ContainerStatus.RESTARTING)


class ImageFacts(Struct, frozen=True):
    """A local image. `digest` is the first of its repo `digests`, empty for images that were never pulled or pushed.
    `layers` are digests of its file system's layers, `nccl` is the NCCL_VERSION of its environment, `versions` what its
    environment and labels say of the programs inside, as `(title, version)`."""

    id: str
    reference: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    architecture: str = ""
    os: str = ""
    size: int = 0
    digest: str = ""
    digests: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    nccl: str = ""
    versions: tuple[tuple[str, str], ...] = ()


class StoredImage(Struct, frozen=True):
    """An image on disk. `size` counts all its layers, `shared` those that other images have too: None where Docker did
    not measure. Of several images that share layers, each counts them. Sizes are bytes."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    created_at: float | None = None
    size: int = 0
    shared: int | None = None

    @property
    def unique(self) -> int | None:
        """What no other image has."""
        return None if self.shared is None else max(0, self.size - self.shared)


class ImageDisk(Struct, frozen=True):
    """Every local image, and the bytes that all layers take together, each counted once; None: not measured."""

    images: tuple[StoredImage, ...] = ()
    layers: int | None = None


class DaemonFacts(Struct, frozen=True):
    """The daemon that answered."""

    version: str
    api_version: str = ""
    os: str = ""
    architecture: str = ""
    root: str = ""


class LayerProgress(Struct, frozen=True):
    """One layer of a pull. `total` is 0 while the registry has not said."""

    id: str
    status: str
    current: int = 0
    total: int = 0


class PullProgress(Struct, frozen=True):
    """A pull so far: its layers in the order in which they appeared."""

    reference: str
    layers: tuple[LayerProgress, ...] = ()
    status: str = ""

    @property
    def current_bytes(self) -> int:
        """Of the layers whose size is known."""
        return sum(min(layer.current, layer.total) for layer in self.layers)

    @property
    def total_bytes(self) -> int:
        """Bytes to download as far as the registry has said."""
        return sum(layer.total for layer in self.layers)


_ENDING_SIGNALS: Final = (2, 3, 9, 15)
"""SIGINT, SIGQUIT, SIGKILL, SIGTERM."""


class ContainerEvent(Struct, frozen=True):
    """A line of the daemon's event stream that concerns a container: create, start, die, oom, destroy, rename ...
    `signal` is the number that a `kill` sent: of `docker stop` too, but never of the kernel's."""

    action: str
    container_id: str
    name: str
    at: float
    exit_code: int | None = None
    signal: int | None = None

    @property
    def asks_to_stop(self) -> bool:
        return self.action == "kill" and self.signal in _ENDING_SIGNALS


HUB_TARGET: Final = "/hub-cache"
"""The Hub's cache of a container whose models lie in several places of this machine."""
HUB_SETTINGS: Final = {"HF_HUB_CACHE": HUB_TARGET, "HF_HUB_OFFLINE": "1"}
_MORE_MODELS: Final = ("tokenizer", "hf_config_path")
"""Options that name another repository, which the engine fetches itself."""


def hub_environment(env: Mapping[str, str], value: Callable[[str], str | None]) -> dict[str, str]:
    """The environment of an engine whose Hub cache is made of single repositories: it asks the Hub for none of them.
    `value` gives the options of its command."""
    more = any("/" in (value(key) or "") for key in _MORE_MODELS)
    return {**HUB_SETTINGS, **({"HF_HUB_OFFLINE": "0"} if more else {}), **env, "HF_HUB_CACHE": HUB_TARGET}


def repository_folder(repo: str) -> str:
    """`org/name` -> `models--org--name`, its folder in a Hub cache."""
    return f"models--{repo.replace('/', '--')}"


def repository_in(path: str) -> str:
    """The repository whose folder that is; empty for another one."""
    kind, found, name = posixpath.basename(path).partition("--")
    return name.replace("--", "/") if found and kind == "models" else ""


def hub_of(home: str) -> str:
    """The Hub's cache below a HF_HOME."""
    return posixpath.join(home, "hub")


def local_model_path(model: str) -> str | None:
    """The folder within the store of a model given by path: `/models/smollm2` -> `smollm2`; None for a Hub name."""
    if model != STORE_TARGET and not model.startswith(STORE_TARGET + "/"):
        return None
    return posixpath.normpath(model.removeprefix(STORE_TARGET).strip("/") or ".")


def outside_docker(container: ContainerFacts, *, acts: bool = False) -> RefusedError:
    """Why an engine without a container has no log here, or with `acts` is not stopped, restarted or removed."""
    about = f"{container.name} runs outside Docker ({container.where}): "
    if acts:
        end = f"kill {container.pid}" if container.pid else "where it was started"
        return RefusedError(f"{about}spark-tui does not end what it cannot start again.", f"End it yourself: {end}")
    unit = f"Its unit and last lines, if it has one: systemctl status {container.pid}\n" if container.pid else ""
    return RefusedError(f"{about}no log is kept here.", f"{unit}Explain a log that you have: spark-tui explain FILE")
