"""A check's outcome, and what checks look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.host.detectors import SharedFile
from spark_tui.domain.host.drop_caches import Access
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import GpuReading
from spark_tui.domain.reading import NOT_READ_YET, Reading


class Verdict(StrEnum):
    """How a check ended, the gravest first."""

    FAIL = "FAIL"
    WARN = "WARN"
    PASS = "PASS"  # noqa: S105 - a verdict
    SKIP = "SKIP"


class Group(StrEnum):
    """What a check is about, in the order in which groups are shown."""

    MACHINE = "Machine"
    MEMORY = "Memory"
    DOCKER = "Docker"
    STORE = "Models"
    NETWORK = "Network"
    TERMINAL = "Terminal"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`summary` is one sentence, `evidence` what was seen; `remedy` is empty for PASS and SKIP."""

    verdict: Verdict
    summary: str
    evidence: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A check and its outcome. `id` is stable: scripts may rely on it."""

    id: str
    group: Group
    title: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface that is up. `speed` in Mbit/s, None where the driver does not tell."""

    name: str
    wireless: bool
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A process of an inference engine that is in no container. `memory` is its resident memory in bytes."""

    pid: int
    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """The model store. `free` and `total` in bytes of its file system; `foreign` counts entries at its top and one
    level below that are not this user's, `foreign_example` is one of them."""

    path: str
    exists: bool
    writable: bool
    free: int | None = None
    total: int | None = None
    foreign: int = 0
    foreign_example: str = ""


@dataclass(frozen=True, slots=True)
class TerminalState:
    """What the terminal says of itself."""

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
    """How Docker can be reached. `error_id` and `error` tell why not; `socket` is where it was looked for.

    `in_group`: this user is in the group `docker`; `relogin`: it is, but not in this session.
    """

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
    """Everything that the checks look at; what could not be read is Missing with its reason."""

    identity: HostIdentity
    user: str = ""
    root: bool = False
    driver: Reading[str] = NOT_READ_YET
    gpu: Reading[GpuReading] = NOT_READ_YET
    memory: Reading[MemInfo] = NOT_READ_YET
    min_free_bytes: Reading[int] = NOT_READ_YET
    watermark_boost: Reading[int] = NOT_READ_YET
    earlyoom: Reading[str] = NOT_READ_YET
    """Its command line; empty where it does not run."""
    drop: Reading[Access] = NOT_READ_YET
    shared: Reading[tuple[SharedFile, ...]] = NOT_READ_YET
    orphans: Reading[tuple[EngineProcess, ...]] = NOT_READ_YET
    engines_run: bool = False
    clock_synchronised: Reading[bool] = NOT_READ_YET
    docker: DockerState = DockerState(reachable=False)
    toolkit: Reading[str] = NOT_READ_YET
    """Path of the NVIDIA container toolkit; empty where it is not installed."""
    cdi: Reading[tuple[str, ...]] = NOT_READ_YET
    registries: Reading[tuple[str, ...]] = NOT_READ_YET
    """Registries with a login."""
    gpu_container: Reading[str] = NOT_READ_YET
    """What a container with the GPU said; Missing when none was tried."""
    store: Reading[StoreState] = NOT_READ_YET
    caches: Reading[StoreState] = NOT_READ_YET
    token: Reading[bool] = NOT_READ_YET
    """Whether the Hugging Face token has the form of one; Missing when there is none."""
    gated: tuple[str, ...] = ()
    """Presets whose model is gated."""
    ports: tuple[tuple[int, str], ...] = ()
    """Ports that presets want and somebody has, with whom."""
    links: Reading[tuple[Link, ...]] = NOT_READ_YET
    default_link: str = ""
    terminal: TerminalState = TerminalState()


Check = Callable[[Readings], Outcome]


def passed(summary: str, evidence: str = "") -> Outcome:
    """All is well."""
    return Outcome(Verdict.PASS, summary, evidence)


def skipped(summary: str, evidence: str = "") -> Outcome:
    """It could not be looked at, or does not apply here."""
    return Outcome(Verdict.SKIP, summary, evidence)


def warned(summary: str, remedy: str, evidence: str = "") -> Outcome:
    """Worth mending."""
    return Outcome(Verdict.WARN, summary, evidence, remedy)


def failed(summary: str, remedy: str, evidence: str = "") -> Outcome:
    """Serving a model will not work until it is mended."""
    return Outcome(Verdict.FAIL, summary, evidence, remedy)
