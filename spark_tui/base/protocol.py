"""What is asked of the spark-tui of a node, and what it answers: values that travel through ssh as JSON."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct, field

from spark_tui.base.engine.container import (
    LABEL_LAUNCH,
    LABEL_RANK,
    ContainerFacts,
    ContainerSpec,
    ContainerStatus,
    ImageFacts,
)
from spark_tui.base.errors import ExitCode, SparkError, UnreachableError

PROTOCOL: Final = 1
"""Of requests and answers. A node with another number is not worked."""
COMMAND: Final = "node"
"""The command of spark-tui that answers: `spark-tui node VERB`, with the request on its standard input."""
_CAGE: Final = re.compile(r"p(\d+)$")


class NodeFailed(SparkError, id="node_failed"):
    """A node answered, and what it was asked to do failed there."""


class NodeRefused(NodeFailed, id="node_refused", exit_code=ExitCode.REFUSED):
    """A check of the node refused it; nothing was changed there."""


class NodeVersion(SparkError, id="node_version"):
    """The spark-tui of a node has another protocol."""


class NodeSilent(UnreachableError, id="node_silent"):
    """A node gives no answer."""


class RankState(Struct, frozen=True):
    """One container of a launch over several nodes, as its node's Docker reports it. `exit_code` None while it runs;
    times are seconds since the epoch."""

    container: str
    name: str
    launch: str
    rank: int
    count: int
    status: ContainerStatus
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def running(self) -> bool:
        return self.status in (ContainerStatus.RUNNING, ContainerStatus.RESTARTING, ContainerStatus.PAUSED)


class FabricLink(Struct, frozen=True):
    """A network interface. `speed` in Mbit/s, `addresses` IPv4 with prefix length, `port` is the cage by the driver."""

    name: str
    up: bool | None = None
    speed: int | None = None
    mtu: int | None = None
    port: str = ""
    wireless: bool = False
    connectx: bool = False
    addresses: tuple[str, ...] = ()

    @property
    def cage(self) -> str:
        """The QSFP cage, by the driver or by the name; empty where neither says."""
        match = _CAGE.search(self.port or self.name)
        return match[1] if match else ""

    def has(self, address: str) -> bool:
        return any(each.partition("/")[0] == address for each in self.addresses)


class LookRequest(Struct, frozen=True):
    """What a launch needs of a node: image, model (below the store, or a Hub name; empty: not asked) and free ports;
    the files of the model are those of its `revision`, empty for the current one, wherever the node has all of it.
    `vitals`: also what it does now, with the traffic of `interfaces`, which takes a second."""

    image: str = ""
    model: str = ""
    ports: tuple[int, ...] = ()
    vitals: bool = False
    interfaces: tuple[str, ...] = ()
    revision: str = ""


class NodeVitals(Struct, frozen=True):
    """What a node does: GPU in per cent, watts and degrees Celsius; bytes per second through the interfaces asked for,
    RDMA included. None: unknown."""

    gpu: float | None = None
    power: float | None = None
    temperature: float | None = None
    received: float | None = None
    sent: float | None = None


class NodeLook(Struct, frozen=True):
    """A node as it is now. `available` and `total` are bytes of memory, None with `memory_problem`. `image` is the
    image asked for, None where it is not downloaded. `model` None: not asked, or left to the Hub. `files` are those of
    the model on this node, with their bytes and blobs; None where it has none. `taken` are ports asked for that
    are listened on, with who does. `docker_problem` is empty where Docker answers. `links` are its network interfaces,
    empty where they are unknown. `router`: one for replicas is installed."""

    hostname: str
    version: str
    available: int | None = None
    total: int | None = None
    memory_problem: str = ""
    docker_problem: str = ""
    image: ImageFacts | None = None
    model: bool | None = None
    taken: tuple[tuple[int, str], ...] = ()
    ranks: tuple[RankState, ...] = ()
    links: tuple[FabricLink, ...] = ()
    vitals: NodeVitals | None = None
    router: bool = False
    files: tuple[tuple[str, int, str], ...] | None = None


class Lease(Struct, frozen=True):
    """A launch that a node is kept for until then, seconds since the epoch: of two at once the workers of one would
    join the head of the other. `who` launches it. As a request, `until` in the past gives the node back."""

    launch: str
    name: str = ""
    who: str = ""
    until: float = 0.0


class StartRequest(Struct, frozen=True):
    """A container to create and start. `key_variable` is the name under which the node's own API key goes into its
    private file, `uses_hub` whether its Hugging Face token does; both stay on the node. `folders` must exist there,
    `ports` be free. `models` are what the engine looks for in its Hub cache, with their revisions: the node mounts what
    it has complete in another cache than its store's."""

    spec: ContainerSpec
    folders: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    key_variable: str = ""
    uses_hub: bool = False
    models: dict[str, str] = field(default_factory=dict)


class StopRequest(Struct, frozen=True):
    """Containers to stop and remove: those of a launch, and ranks with these names whatever their launch. `ports` must
    be free afterwards. `keeps_router`: a replica ends, and the router in front of all of them stays. `final`: nothing
    of that launch is started any more, also not by a request under way."""

    launch: str = ""
    names: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    grace_seconds: int = 20
    keeps_router: bool = False
    final: bool = False


class RouteRequest(Struct, frozen=True):
    """A router for the replicas of a launch: it listens on this address and port of the node, gives each request to the
    least busy of `workers` (URLs), and runs until the launch is stopped there."""

    launch: str
    address: str
    port: int
    workers: tuple[str, ...]


class Router(Struct, frozen=True):
    """A router that a node has started: its process, by number and birth in clock ticks since boot."""

    launch: str
    pid: int
    born: int


class Cleared(Struct, frozen=True):
    """What a stop did on a node. `left` says in sentences what is still there; empty: nothing. `available` bytes."""

    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    available: int | None = None


class CanaryRequest(Struct, frozen=True):
    """Short completions to ask of the server in `container` on this port of the node, all at once. A server that does
    not list the model yet is waited for `patience` seconds while its container runs. `keyed`: it wants the node's own
    key."""

    container: str
    port: int
    model: str
    answers: int = 1
    seconds: float = 30.0
    patience: float = 0.0
    runtime: str = "vllm"
    keyed: bool = False


class Canary(Struct, frozen=True):
    """What came of it: whether the server is up and lists the model, and how many completions brought a token.
    `running`: requests that it answers; `tokens`: how many it has generated since it started; None where unknown."""

    healthy: bool
    listed: bool
    answered: int = 0
    problem: str = ""
    running: int | None = None
    tokens: int | None = None


class NodeError(Struct, frozen=True):
    """A SparkError on its way back."""

    summary: str
    remedy: str
    detail: str = ""
    id: str = ""
    exit_code: int = ExitCode.FAILED


class Hello(Struct, frozen=True):
    """The first line of every answer."""

    protocol: int = PROTOCOL
    version: str = ""


def rank_of(container: ContainerFacts) -> RankState | None:
    """The rank that a container is by its labels; None for any other container."""
    number, _, count = container.label(LABEL_RANK).partition("/")
    if not number.isdigit() or not count.isdigit():
        return None
    return RankState(
        container.id,
        container.name,
        container.label(LABEL_LAUNCH),
        int(number),
        int(count),
        container.status,
        None if container.running else container.exit_code,
        container.oom_killed,
        container.started_at,
        container.finished_at,
    )
