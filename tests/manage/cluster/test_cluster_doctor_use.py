"""Both sides of the examination: nodes on fakes read themselves, and are asked through the protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_LAUNCH, LABEL_RANK
from spark_tui.base.errors import UsageError
from spark_tui.base.finding import Missing, Ok, Reading, Severity
from spark_tui.base.host.detectors import SharedFile
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import DoctorProbe, ShellResult
from spark_tui.base.protocol import FabricLink
from spark_tui.base.remote import Cluster, ClusterNode, RemoteHost
from spark_tui.base.untrusted import decode, encode
from spark_tui.catalog.models.model.store import Payload, StoredFile
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.model.doctor import examine
from spark_tui.manage.cluster.model.facts import (
    ABSENT,
    Dial,
    FactsRequest,
    MeasureKind,
    Ping,
    ProbeRequest,
    RoceDevice,
    Transfer,
)
from spark_tui.manage.cluster.use.doctor import ClusterDoctor, NodeExaminer
from spark_tui.observe.results.use import measured_bandwidth
from tests.fakes_files import MemoryState
from tests.fakes_host import FakeClock
from tests.fakes_ports import Absent
from tests.kit import IMAGE, Kit
from tests.manage.cluster.test_cluster_doctor_model import HEALTHY


class FakeFabric:
    """A FabricProbe of a healthy node; `cut` addresses do not answer, `refused` ports are behind a firewall."""

    def __init__(self, number: int) -> None:
        facts = HEALTHY.nodes[number].facts
        assert facts
        self.found, self.rdma, self.routes = facts.links, facts.devices, HEALTHY.nodes[number].probe.routes
        self.cut: set[str] = set()
        self.refused: set[int] = set()
        self.gbits: dict[str, float] = {}
        self.requests: list[ProbeRequest] = []

    def links(self) -> Reading[tuple[FabricLink, ...]]:
        return Missing("denied") if self.found is None else Ok(self.found)

    def devices(self) -> Reading[tuple[RoceDevice, ...]]:
        return Ok(self.rdma or ())

    async def route(self, peer: str) -> str | None:
        return self.routes.get(peer)

    async def ping(self, ping: Ping) -> Ping:
        back = ping.peer not in self.cut
        return replace(ping, received=back, small=back)

    async def ssh(self, address: str) -> str:
        return "No route to host" if address in self.cut else ""

    async def transfer(self, transfer: Transfer, seconds: float) -> Transfer:
        if transfer.program not in self.gbits:
            return replace(transfer, problem="not installed")
        return replace(transfer, gbits=self.gbits[transfer.program] if transfer.peer else None)

    async def meet(self, request: ProbeRequest) -> tuple[tuple[Dial, ...], dict[str, str]]:
        self.requests.append(request)
        dials = tuple(replace(each, problem="timed out" * (each.port in self.refused)) for each in request.dials)
        return dials, {str(port): "" for port in request.ports}


class FakeModels:
    """A ModelStore of one file, as far as it is asked here."""

    there = True

    async def files(self, model: str, revision: str = "", *, anywhere: bool = False) -> tuple[StoredFile, ...]:
        if not self.there:
            raise UsageError("There is no such model.", "")
        return (StoredFile("model.safetensors", Payload("k", 10, 10), "ab"),)


class Pair:
    """Two nodes and the ssh that reaches them."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        """Each node has its own clock, or all have that one."""
        self.clock, self.delay, self.state = clock or FakeClock(), 0.0, MemoryState()
        self.clocks = [self.clock, clock or FakeClock()]
        self.kits, self.fabrics = [Kit(), Kit()], [FakeFabric(0), FakeFabric(1)]
        doctor = Absent(DoctorProbe, user=("nv", False), driver=Ok("580.142"))
        self.models = [FakeModels(), FakeModels()]
        self.nodes = [
            NodeExaminer(kit.docker, kit.host, doctor, fabric, model, clock, HostPaths("/store", "/c", "/h"))
            for kit, fabric, model, clock in zip(self.kits, self.fabrics, self.models, self.clocks, strict=True)
        ]
        self.questions: list[str] = []

    async def ask(
        self, host: RemoteHost, arguments: Sequence[str], *, given: str = "", seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> ShellResult:  # fmt: skip
        """The RemoteShell port."""
        assert on_line is not None
        self.questions.append(arguments[1])
        if host.destination.endswith("2"):
            self.clock.tick(self.delay)
        kind, work = self.nodes[int(host.destination[-1]) - 1].verbs()[arguments[1]]
        on_line(encode({"protocol": 1, "version": "0"}))
        on_line(encode({"result": await work(decode(given, kind))}))
        return ShellResult(0, "", "")

    async def found(
        self, *, bandwidth: bool = False, cluster: Cluster | None = None
    ) -> dict[tuple[str, str], Severity]:
        """The severities that are not OK, by check and node."""
        shell = Nodes((), self, self.kits[0].host)  # type: ignore[arg-type]
        self.seen = await ClusterDoctor(shell, self.state, self.clock).readings(
            cluster or HEALTHY.cluster, IMAGE, "org/m", bandwidth=bandwidth
        )
        return {(each.id, each.subject): each.severity for each in examine(self.seen)
                if each.severity is not Severity.OK and each.id not in ("nccl", "image")}  # fmt: skip


@pytest.fixture
def pair() -> Pair:
    return Pair()


UNMEASURED = {
    (f"{kind}_bandwidth", f"spark-{number}"): Severity.UNKNOWN for kind in ("rdma", "tcp", "nccl") for number in (1, 2)
}


async def test_a_healthy_pair_is_asked_twice_each_and_passes(pair: Pair) -> None:
    assert await pair.found() == UNMEASURED
    assert pair.questions == ["facts", "facts", "probe", "probe"]
    tried = pair.fabrics[0].requests[0]
    assert [(each.interface, each.peer, each.size) for each in tried.pings] == [
        ("enp1s0f0np0", "192.168.100.2", 8972), ("enP2p1s0f0np0", "192.168.101.2", 8972),
    ]  # fmt: skip
    assert (tried.address, tried.ports, tried.guests) == ("192.168.100.1", (8000, 13345, 25000, 29501), 4)
    assert tried.ssh == ("192.168.100.2",)


async def test_a_cluster_without_addresses_is_completed_from_the_nodes(pair: Pair) -> None:
    bare = Cluster("duo", tuple(ClusterNode(f"nv@spark-{number}") for number in (1, 2)))
    assert await pair.found(cluster=bare) == UNMEASURED


async def test_faults_of_a_node_are_found_at_it(pair: Pair) -> None:
    docker, host = pair.kits[1].docker, pair.kits[1].host
    docker.add_container("big-r1", image=IMAGE, labels=((LABEL_LAUNCH, "l"), (LABEL_RANK, "1/2")))
    host.ports = {8000: "vllm (pid 7)"}
    host.shared = Missing("denied")
    pair.models[1].there = False
    pair.fabrics[0].refused = {29501}
    found = await pair.found()
    assert found == UNMEASURED | {
        ("leftovers", "spark-2"): Severity.WARNING,
        ("ports", "spark-2"): Severity.WARNING,
        ("model", "spark-2"): Severity.ERROR,
        ("firewall", "spark-2"): Severity.ERROR,
    }
    assert 8000 not in pair.fabrics[1].requests[0].ports, "a port in use is left alone"
    assert all(each.port != 8000 for each in pair.fabrics[0].requests[0].dials)


async def test_a_cable_that_is_out_is_no_firewall_and_no_missing_key(pair: Pair) -> None:
    pair.fabrics[0].cut = {"192.168.100.2"}
    pair.fabrics[0].refused = {8000, 13345, 25000, 29501}
    found = await pair.found()
    assert found[("ping", "spark-1")] is Severity.ERROR
    assert found[("firewall", "spark-2")] is found[("ssh", "spark-1")] is Severity.UNKNOWN


async def test_what_a_node_cannot_read_has_a_reason(pair: Pair) -> None:
    pair.kits[0].docker.go_down()
    pair.fabrics[0].found = None
    pair.models[0].there = False
    facts = await pair.nodes[0].facts(FactsRequest(image="x", model="org/m"))
    assert (facts.docker, facts.image, facts.ranks, facts.links, facts.files) == (None,) * 5
    assert {"docker", "image", "ranks", "links"} < set(facts.missing)
    assert facts.missing["files"] == ABSENT


async def test_leaked_shared_memory_is_named(pair: Pair) -> None:
    pair.kits[0].host.shared = Ok((SharedFile("psm_1a2b3c4d", 1 << 30, 1e6, False),))
    assert (await pair.nodes[0].facts(FactsRequest())).leaked == ("psm_1a2b3c4d",)


async def test_clocks_are_compared_with_half_the_round_trip_as_tolerance(pair: Pair) -> None:
    pair.clocks[1].tick(6.0)  # the node is six seconds ahead, and takes three to begin
    pair.delay = 3.0
    assert (await pair.found())[("clock", "spark-2")] is Severity.WARNING
    assert pair.seen.nodes[1].offset == pytest.approx(4.5)
    assert pair.seen.nodes[1].tolerance == pytest.approx(1.5)


async def test_bandwidth_is_the_sum_of_the_twins_and_absent_programs_are_unknown(pair: Pair) -> None:
    for fabric in pair.fabrics:
        fabric.gbits = {"ib_write_bw": 95.0}
    await pair.found(bandwidth=True)
    measures = {each.kind: each for each in pair.seen.nodes[1].measures}
    assert measures[MeasureKind.RDMA].value == 190.0
    assert measures[MeasureKind.TCP].problem == "not installed"
    (gathered,) = pair.seen.nodes[0].measures
    assert (gathered.kind, gathered.problem) == (MeasureKind.NCCL, "not installed")
    assert "190.0 Gbit/s" in measured_bandwidth(pair.state, ("spark-2", "spark-1")), "a benchmark names it"
