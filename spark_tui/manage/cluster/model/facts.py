"""What the checks of a cluster look at: readings of each node, and of the paths between nodes. None is unknown."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.engine.container import ImageFacts
from spark_tui.base.errors import SparkError
from spark_tui.base.protocol import FabricLink, RankState
from spark_tui.base.remote import Cluster, ClusterNode, Topology
from spark_tui.manage.cluster.model.variables import DATA_PORT, MASTER_PORT, SGLANG_PORT

PORTS: Final = (MASTER_PORT, SGLANG_PORT, DATA_PORT)
"""Ports that ranks meet on."""
API_PORT: Final = 8000
"""Of a preset that names no other."""
ABSENT: Final = "not downloaded"
"""In `NodeFacts.missing`: the image or model is not there; any other reason is a failure to look."""


class RoceDevice(Struct, frozen=True):
    """Port 1 of an RDMA device. `rate` in Gbit/s; `gids` are index and IPv4 address of its RoCE v2 entries. PCIe has so
    many `lanes` of `transfers` GT/s each."""

    name: str
    state: str = ""
    rate: float | None = None
    firmware: str = ""
    gids: tuple[tuple[int, str], ...] = ()
    lanes: int | None = None
    transfers: float | None = None


class FactsRequest(Struct, frozen=True):
    """What to read beside the machine itself: who listens on `ports`, an image, a model."""

    ports: tuple[int, ...] = ()
    image: str = ""
    model: str = ""


class NodeFacts(Struct, frozen=True):
    """One node by its own spark-tui. `clock` is its time at the start and the end of the reading, `free` bytes of the
    model store's disk, `files` name, size and blob of each file of the model, `leaked` shared memory of no engine.
    `missing` has the reason, by field, for what is None."""

    hostname: str
    version: str
    clock: tuple[float, float]
    user: str = ""
    kernel: str = ""
    driver: str | None = None
    links: tuple[FabricLink, ...] | None = None
    devices: tuple[RoceDevice, ...] | None = None
    docker: str | None = None
    image: ImageFacts | None = None
    files: tuple[tuple[str, int, str], ...] | None = None
    available: int | None = None
    total: int | None = None
    free: int | None = None
    ranks: tuple[RankState, ...] | None = None
    leaked: tuple[str, ...] | None = None
    taken: tuple[tuple[int, str], ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


class Ping(Struct, frozen=True):
    """Pings from an interface to a peer, not to be fragmented: whether some of `size` bytes of data came back, and of
    56. None with `problem`: not tried."""

    interface: str
    peer: str
    size: int
    received: bool | None = None
    small: bool | None = None
    problem: str = ""


class Dial(Struct, frozen=True):
    """A TCP connection to a port of a peer. `problem` is why it was not made; empty when it was."""

    peer: str
    port: int
    problem: str = ""


ALL_GATHER: Final = "all_gather_perf"
"""NCCL between all nodes, in their own image."""


class MeasureKind(StrEnum):
    """What a bandwidth is of. TWIN: of one RoCE device alone, RDMA: of both twins at once."""

    RDMA = "ib_write_bw, both twins"
    TWIN = "ib_write_bw, one twin"
    TCP = "iperf3"
    NCCL = "NCCL all-gather"
    NCCL_RING = "NCCL all-gather on a ring"

    @property
    def unit(self) -> str:
        return "GB/s" if self in (MeasureKind.NCCL, MeasureKind.NCCL_RING) else "Gbit/s"


NOT_INSTALLED: Final = "not installed"
NO_END: Final = "no end within"
"""How the problem of a transfer reads whose program is absent, and begins that of one that only waited."""


class Transfer(Struct, frozen=True):
    """A bandwidth to measure by `program` (ib_write_bw on a RoCE device `at`, iperf3 on an own address `at`, an
    all-gather in the image `at`), as its server where `peer` is empty. `words` are further arguments. `gbits` a second,
    of the all-gather gigabytes; None with `problem`."""

    program: str
    at: str
    port: int
    peer: str = ""
    gbits: float | None = None
    problem: str = ""
    words: tuple[str, ...] = ()


class ProbeRequest(Struct, frozen=True):
    """What to try: pings, ssh to addresses, transfers; and to listen on `ports` of `address` for at most `seconds`,
    until `guests` connections came, while `dials` are made."""

    pings: tuple[Ping, ...] = ()
    ssh: tuple[str, ...] = ()
    address: str = ""
    ports: tuple[int, ...] = ()
    guests: int = 0
    dials: tuple[Dial, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    seconds: float = 10.0


class NodeProbe(Struct, frozen=True):
    """What came of it. `routes` are the interfaces to the peers of the pings, empty without a route. `ssh` has a
    problem for each address, `deaf` one for each port: empty where it worked."""

    pings: tuple[Ping, ...] = ()
    routes: dict[str, str] = field(default_factory=dict)
    ssh: dict[str, str] = field(default_factory=dict)
    dials: tuple[Dial, ...] = ()
    deaf: dict[str, str] = field(default_factory=dict)
    transfers: tuple[Transfer, ...] = ()

    def no_path(self, peer: str) -> bool:
        """Not even small pings came back from that address."""
        pings = [each for each in self.pings if each.peer == peer and each.received is not None]
        return bool(pings) and not any(each.received or each.small for each in pings)


class Measure(Struct, frozen=True):
    """A bandwidth between the head and a node in Gbit/s, of NCCL in GB/s; None with `problem`."""

    kind: MeasureKind
    value: float | None
    problem: str = ""

    @property
    def text(self) -> str:
        """`190.1 Gbit/s (ib_write_bw, both twins)`; why it is unknown."""
        return self.problem if self.value is None else f"{self.value:.1f} {self.kind.unit} ({self.kind.value})"


class NodeReadings(Struct, frozen=True):
    """A node: its `facts`, or the `problem`. Its clock is `offset` seconds ahead of this machine's, by `tolerance`."""

    node: ClusterNode
    facts: NodeFacts | None = None
    probe: NodeProbe = NodeProbe()
    problem: SparkError | None = None
    offset: float = 0.0
    tolerance: float = 0.0
    measures: tuple[Measure, ...] = ()

    def link(self, rail: int) -> FabricLink | None:
        """The interface of a rail, where the node has it."""
        links = self.facts.links if self.facts and rail < len(self.node.interfaces) else None
        return next((each for each in links or () if each.name == self.node.interfaces[rail]), None)

    def device(self, rail: int) -> str:
        """The RoCE device of a rail; empty where it is not known, as of a LAN interface."""
        alone = replace(self.node, interfaces=self.node.interfaces[rail : rail + 1], devices=())
        paired = len(self.node.hca) == len(self.node.interfaces) > rail
        return self.node.hca[rail] if paired else next(iter(alone.hca), "")

    def subnet(self, rail: int) -> ipaddress.IPv4Interface | None:
        """What the interface of a rail has: the fabric address where it has that, else its first."""
        link = self.link(rail)
        own = sorted(link.addresses if link else (), key=lambda each: each.partition("/")[0] != self.node.fabric[rail])
        return ipaddress.IPv4Interface(own[0]) if own else None


class ClusterReadings(Struct, frozen=True):
    """Everything the checks look at. `image` and `model` are empty where none was named."""

    cluster: Cluster
    nodes: tuple[NodeReadings, ...]
    ports: tuple[int, ...] = PORTS
    image: str = ""
    model: str = ""
    bandwidth: bool = False

    def paths(self, at: int) -> tuple[tuple[int, NodeReadings, int], ...]:
        """From node `at`: own rail, peer, and the peer's rail. Rails of a ring are paired by their subnets, all others
        by their order."""
        own = self.nodes[at]

        def joined(mine: int, peer: NodeReadings, theirs: int) -> bool:
            if self.cluster.topology is not Topology.RING:
                return mine == theirs
            ends = own.subnet(mine), peer.subnet(theirs)
            return ends[0] is not None and ends[1] is not None and ends[0].network == ends[1].network

        return tuple(
            (mine, peer, theirs)
            for peer in self.nodes
            if peer is not own
            for mine in range(len(own.node.fabric))
            for theirs in range(len(peer.node.fabric))
            if joined(mine, peer, theirs)
        )


def completed(node: ClusterNode, facts: NodeFacts) -> ClusterNode:
    """The node with the fabric that the settings leave out: its ConnectX interfaces with an address."""
    owners = {each.partition("/")[0]: link for link in facts.links or () for each in link.addresses}
    fabric = node.fabric or tuple(ip for ip, link in owners.items() if link.connectx)
    if node.interfaces or not all(ip in owners for ip in fabric):
        return replace(node, fabric=fabric)
    return replace(node, fabric=fabric, interfaces=tuple(owners[ip].name for ip in fabric))
