"""What the doctor's checks look at. What could not be read is Missing, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.domain.host.detectors import SharedFile
from spark_tui.domain.host.drop_caches import Access
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import GpuReading
from spark_tui.domain.reading import NOT_READ_YET, Reading


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface that is up. `speed` in Mbit/s, None where the driver does not report it."""

    name: str
    wireless: bool
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A process of an inference engine outside any container. `memory` is its resident memory in bytes."""

    pid: int
    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """A folder of models or caches. `free` and `total` in bytes of its file system; `foreign` counts entries at its top
    and one level below that belong to another user, `foreign_example` is one of them."""

    path: str
    exists: bool
    writable: bool
    free: int | None = None
    total: int | None = None
    foreign: int = 0
    foreign_example: str = ""


@dataclass(frozen=True, slots=True)
class TerminalState:
    """The terminal by its environment and size in cells."""

    term: str = ""
    colours: str = ""
    encoding: str = ""
    width: int = 0
    height: int = 0
    ssh: bool = False
    multiplexer: str = ""
    interactive: bool = True


@dataclass(frozen=True, slots=True)
class DockerState:
    """Whether Docker answers, or why not. `in_group`: this user is in the group `docker`; `relogin`: only a new login
    would see it."""

    reachable: bool
    version: str = ""
    architecture: str = ""
    socket: str = ""
    error_id: str = ""
    error: str = ""
    remedy: str = ""
    in_group: bool = False
    relogin: bool = False


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything the checks look at.

    `earlyoom` is its command line (empty: not running), `toolkit` the path of the NVIDIA container toolkit (empty: not
    installed), `registries` those with a login, `gpu_container` the error of a container with the GPU (empty: it
    started), `token` whether the Hugging Face token has the form of one, `gated` presets with a gated model, `ports`
    the taken ports of presets, each with its owner.
    """

    identity: HostIdentity
    user: str = ""
    root: bool = False
    driver: Reading[str] = NOT_READ_YET
    gpu: Reading[GpuReading] = NOT_READ_YET
    memory: Reading[MemInfo] = NOT_READ_YET
    min_free_bytes: Reading[int] = NOT_READ_YET
    watermark_boost: Reading[int] = NOT_READ_YET
    earlyoom: Reading[str] = NOT_READ_YET
    drop: Reading[Access] = NOT_READ_YET
    shared: Reading[tuple[SharedFile, ...]] = NOT_READ_YET
    orphans: Reading[tuple[EngineProcess, ...]] = NOT_READ_YET
    engines_run: bool = False
    clock_synchronised: Reading[bool] = NOT_READ_YET
    docker: DockerState = DockerState(reachable=False)
    toolkit: Reading[str] = NOT_READ_YET
    cdi: Reading[tuple[str, ...]] = NOT_READ_YET
    registries: Reading[tuple[str, ...]] = NOT_READ_YET
    gpu_container: Reading[str] = NOT_READ_YET
    store: Reading[StoreState] = NOT_READ_YET
    caches: Reading[StoreState] = NOT_READ_YET
    token: Reading[bool] = NOT_READ_YET
    gated: tuple[str, ...] = ()
    ports: tuple[tuple[int, str], ...] = ()
    links: Reading[tuple[Link, ...]] = NOT_READ_YET
    default_link: str = ""
    terminal: TerminalState = TerminalState()
