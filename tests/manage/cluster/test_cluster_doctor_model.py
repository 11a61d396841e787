"""Each fault, planted in the readings of a healthy pair, is found at its node; what was not read is never OK."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerStatus, ImageFacts
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.protocol import FabricLink, NodeSilent, RankState
from spark_tui.base.quantities import GIB
from spark_tui.base.remote import Cluster, ClusterNode, read_cluster
from spark_tui.base.untrusted import decode, encode
from spark_tui.manage.cluster.model.doctor import CHECKS, examine, judge_bandwidth, netplan
from spark_tui.manage.cluster.model.facts import (
    ABSENT,
    ClusterReadings,
    Dial,
    Measure,
    MeasureKind,
    NodeFacts,
    NodeProbe,
    NodeReadings,
    Ping,
    RoceDevice,
    completed,
)
from tests.cases import all_cases

F, W, I, U, OK = Severity.ERROR, Severity.WARNING, Severity.INFO, Severity.UNKNOWN, Severity.OK  # noqa: E741
IMAGE = ImageFacts("sha256:a1", "vllm", digests=("vllm@sha256:aa",), layers=("sha256:1",), nccl="2.29.7-1")
NAMES, DEVICES = ("enp1s0f0np0", "enP2p1s0f0np0"), ("rocep1s0f0", "roceP2p1s0f0")


def links(number: int) -> tuple[FabricLink, ...]:
    twins = (
        FabricLink(name, True, 200_000, 9000, "p0", connectx=True, addresses=(f"192.168.{100 + rail}.{number}/24",))
        for rail, name in enumerate(NAMES)
    )
    others = (FabricLink(name, False, None, 1500, "p1", connectx=True) for name in ("enp1s0f1np1", "enP2p1s0f1np1"))
    lan = FabricLink("enP7s7", True, 10_000, 1500, addresses=(f"10.77.0.1{number}/24",))
    wifi = FabricLink("wlP9s9", True, None, 1500, wireless=True, addresses=(f"10.88.0.1{number}/24",))
    return (*twins, *others, lan, wifi)


def healthy(number: int) -> NodeReadings:
    other = 3 - number
    fabric = tuple(f"192.168.{100 + rail}.{number}" for rail in range(2))
    peers = tuple(f"192.168.{100 + rail}.{other}" for rail in range(2))
    devices = (
        RoceDevice(name, "4: ACTIVE", 200.0, "28.45.4028", ((3, address),), 4, 32.0)
        for name, address in zip(DEVICES, fabric, strict=True)
    )
    facts = NodeFacts(
        f"spark-{number}", "1.0", (0.0, 0.2), "nv", "6.17.0-1032-nvidia", "580.142", links(number), tuple(devices),
        "28.3.3", IMAGE,
        (("config.json", 700, "c0"), ("model.safetensors", 5 * GIB, "ab")), 110 * GIB, 121 * GIB, 900 * GIB, (), (),
    )  # fmt: skip
    pings = tuple(Ping(name, peer, 8972, received=True) for name, peer in zip(NAMES, peers, strict=True))
    dials = tuple(Dial(peers[0], port) for port in (29501, 8000))
    probe = NodeProbe(pings, dict(zip(peers, NAMES, strict=True)), {peers[0]: ""}, dials, {"29501": "", "8000": ""})
    return NodeReadings(ClusterNode(f"nv@spark-{number}", fabric, NAMES), facts, probe, None, 0.1, 0.3)


HEALTHY = ClusterReadings(
    Cluster("duo", (healthy(1).node, healthy(2).node)), (healthy(1), healthy(2)), (29501, 8000), "vllm", "org/model"
)


def at_second(**changes: Any) -> ClusterReadings:
    return replace(HEALTHY, nodes=(HEALTHY.nodes[0], replace(HEALTHY.nodes[1], **changes)))


def facts(**changes: Any) -> ClusterReadings:
    second = HEALTHY.nodes[1].facts
    assert second
    return at_second(facts=replace(second, **changes))


def link(at: int, **changes: Any) -> ClusterReadings:
    found = links(2)
    return facts(links=(*found[:at], replace(found[at], **changes), *found[at + 1 :]))


def device(**changes: Any) -> ClusterReadings:
    second = HEALTHY.nodes[1].facts
    assert second and second.devices
    return facts(devices=(replace(second.devices[0], **changes), second.devices[1]))


def probe(**changes: Any) -> ClusterReadings:
    return at_second(probe=replace(HEALTHY.nodes[1].probe, **changes))


def node(**changes: Any) -> ClusterReadings:
    return at_second(node=replace(HEALTHY.nodes[1].node, **changes))


def first_dials(problem: str, second: NodeProbe = HEALTHY.nodes[1].probe, **changes: Any) -> ClusterReadings:
    """The head cannot connect to port 29501 of the worker."""
    head = HEALTHY.nodes[0]
    tried = replace(head.probe, dials=(Dial("192.168.100.2", 29501, problem),), **changes)
    return replace(HEALTHY, nodes=(replace(head, probe=tried), replace(HEALTHY.nodes[1], probe=second)))


def only(seen: ClusterReadings, check: str, name: str) -> Finding:
    return next(each for each in examine(seen) if (each.id, each.subject) == (check, name))


def missing(field: str, reason: str = ABSENT) -> ClusterReadings:
    return facts(**{field: None}, missing={field: reason})


RANK = RankState("c1", "big-r1", "abc", 1, 2, ContainerStatus.RUNNING)
LOST_SMALL = replace(HEALTHY.nodes[0].probe.pings[0], received=False, small=False)
PEER = "192.168.100.1"


MEASURED = ("rdma_bandwidth", "tcp_bandwidth", "nccl_bandwidth")


def test_a_healthy_pair_passes_everything_that_was_asked() -> None:
    found = [(each.id, each.subject, each.severity) for each in examine(HEALTHY) if each.severity is not OK]
    skipped = [
        (check, name, U)
        for check in ("nccl", "rdma_bandwidth", "tcp_bandwidth", "nccl_bandwidth")
        for name in ("spark-1", "spark-2")
    ]
    assert found == skipped
    assert netplan(HEALTHY, examine(HEALTHY)) == {}


FAULTS: list[tuple[str, str, Severity, ClusterReadings, str]] = [
    ("no answer", "reach", F, at_second(facts=None, problem=NodeSilent("gone", "ssh spark-2")), "ssh"),
    ("another spark-tui", "reach", W, facts(version="0.9"), "install"),
    ("another user", "user", W, facts(user="root"), "user"),
    ("clock behind", "clock", W, at_second(offset=-5.0), "timedatectl"),
    ("slow answer", "clock", U, at_second(tolerance=9.0), ""),
    ("bad kernel", "kernel", F, facts(kernel="7.0.0-1019-nvidia"), "6.17.0-1032"),
    ("another kernel", "kernel", W, facts(kernel="6.14.0"), "apt"),
    ("memory in use", "memory", W, facts(available=30 * GIB), "memory"),
    ("full disk", "disk", F, facts(free=GIB), "models"),
    ("small disk", "disk", W, facts(free=30 * GIB), "models"),
    ("a rank alone", "leftovers", W, facts(ranks=(RANK,)), "docker rm"),
    ("leaked memory", "leftovers", W, facts(leaked=("psm_1",)), "rm"),
    ("another driver", "driver", W, facts(driver="575.1"), "Update"),
    ("no driver", "driver", U, missing("driver", "not loaded"), ""),
    ("no Docker", "docker", F, missing("docker", "not running"), "doctor"),
    ("another Docker", "docker", I, facts(docker="29.2.1"), ""),
    ("no image", "image", F, missing("image"), "copy image"),
    ("image unread", "image", U, missing("image", "Docker does not answer"), ""),
    ("another image", "image", F, facts(image=replace(IMAGE, digests=(), layers=("sha256:2",))), "copy image"),
    ("another id alone", "image", OK, facts(image=replace(IMAGE, id="sha256:b2", digests=())), ""),
    ("nothing to compare", "image", U, facts(image=replace(IMAGE, digests=(), layers=())), ""),
    ("leaking NCCL", "nccl", W, facts(image=replace(IMAGE, nccl="2.28.9-1")), "2.29.3"),
    ("no model", "model", F, missing("files"), "copy model"),
    ("a longer file", "model", F, facts(files=(("config.json", 701, "c0"),)), "copy model"),
    ("another blob", "model", F, facts(files=(("config.json", 700, "c1"),)), "copy model"),
    ("no such interface", "variables", F, node(interfaces=("enp1s0f1np9", NAMES[1])), "cluster add"),
    ("no such device", "roce", F, node(devices=("mlx5_7",)), "hca="),
    ("cable out", "carrier", F, link(0, up=False), "cable"),
    ("link unread", "carrier", U, link(0, up=None), ""),
    ("one twin in use", "twins", W, node(fabric=("192.168.100.2",), interfaces=NAMES[:1]), "netplan"),
    ("a twin down", "twins", U, link(1, up=False), ""),
    ("a route without a link", "route", U, link(1, up=False), ""),
    ("slow switch", "speed", W, link(0, speed=100_000), "200G"),
    ("10 GbE", "speed", W, link(0, speed=10_000), "ConnectX"),
    ("speed unread", "speed", U, link(0, speed=None), "ethtool"),
    ("one MTU 1500", "mtu", F, link(1, mtu=1500), "mtu 9000"),
    ("another address", "address", F, link(0, addresses=("192.168.100.9/24",)), "cluster add"),
    ("an address twice", "address", F, link(4, addresses=("192.168.100.1/24",)), "ip addr del"),
    ("another subnet", "subnet", F, link(0, addresses=("192.168.200.2/24",)), "netplan"),
    ("twins in one subnet", "subnet", W, link(1, addresses=("192.168.100.3/24",)), "netplan"),
    ("no RDMA device", "roce", F, facts(devices=()), "mlx5_ib"),
    ("RDMA unread", "roce", U, missing("devices", "denied"), ""),
    ("device down", "roce", F, device(state="1: DOWN"), "ibdev2netdev"),
    ("slow device", "roce", W, device(rate=100.0), "200G"),
    ("no GID", "gid", F, device(gids=()), "show_gids"),
    ("another GID index", "gid", I, device(gids=((5, "192.168.100.2"),)), ""),
    ("another firmware", "firmware", W, device(firmware="28.44.1"), "fwupdmgr"),
    ("half the lanes", "pcie", W, device(lanes=2), "fwupdmgr"),
    ("an older PCIe", "pcie", W, device(transfers=16.0), "fwupdmgr"),
    ("unknown lanes", "pcie", U, device(lanes=None), "lspci"),
    ("control on Wi-Fi", "wifi", F, node(fabric=("10.88.0.12",), interfaces=("wlP9s9",)), "ConnectX"),
    ("route over Wi-Fi", "route", F, probe(routes={PEER: "wlP9s9"}), "ip route"),
    ("routes unread", "route", U, probe(routes={}), ""),
    ("large packets lost", "ping", F, probe(pings=(Ping(NAMES[0], PEER, 8972, False, True),)), "mtu"),
    ("no packets", "ping", F, probe(pings=(Ping(NAMES[0], PEER, 8972, False, False),)), "setup-cluster.sh"),
    ("no ping there", "ping", U, probe(pings=(Ping(NAMES[0], PEER, 8972, problem="no ping"),)), "apt"),
    ("no probe", "ping", U, at_second(probe=NodeProbe()), ""),
    ("key unknown", "ssh", W, probe(ssh={PEER: "Permission denied (publickey)"}), "ssh-copy-id"),
    ("host unknown", "ssh", W, probe(ssh={PEER: "Host key verification failed"}), f"ssh {PEER}"),
    ("port taken", "ports", W, facts(taken=((8000, "vllm (7)"),)), "--port"),
    ("firewall", "firewall", F, first_dials("timed out"), "ufw"),
    ("nothing listened", "firewall", U, first_dials("refused", NodeProbe(deaf={"29501": "in use"})), ""),
    ("no listener known", "firewall", U, first_dials("refused", NodeProbe()), ""),
    ("no way there", "firewall", U, first_dials("timed out", pings=(LOST_SMALL,)), ""),
]  # fmt: skip


@all_cases(("check", "severity", "seen", "fix"), [each[1:] for each in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_is_found_at_its_node_with_a_fix(
    check: str, severity: Severity, seen: ClusterReadings, fix: str
) -> None:
    found = only(seen, check, "spark-2")
    assert found.severity is severity
    assert fix in found.remedy
    assert only(seen, check, "spark-1").severity in (OK, U, I), "the other node is not blamed"


def test_every_check_finds_a_fault() -> None:
    assert {each[1] for each in FAULTS} | {"rdma_bandwidth", "tcp_bandwidth", "nccl_bandwidth"} == {
        check.id for check in CHECKS
    }


def test_what_was_not_read_is_never_ok() -> None:
    bare = replace(HEALTHY, nodes=tuple(replace(each, facts=NodeFacts("", "", (0, 0)), probe=NodeProbe(), tolerance=9)
                                        for each in HEALTHY.nodes))  # fmt: skip
    severities = {each.id: each.severity for each in examine(bare)}
    assert severities.pop("docker") is F, "no Docker is a fault"
    assert severities.pop("ports") is OK, "nobody listens"
    assert set(severities.values()) == {U}
    silent = at_second(facts=None, problem=NodeSilent("gone", "ssh spark-2"))
    others = {each.severity for each in examine(silent) if each.subject == "spark-2" and each.id != "reach"}
    assert others == {U}


def test_a_launch_that_runs_on_all_nodes_is_no_leftover() -> None:
    head, worker = (replace(each, facts=replace(each.facts, ranks=(replace(RANK, rank=at),)))  # type: ignore[type-var]
                    for at, each in enumerate(HEALTHY.nodes))  # fmt: skip
    assert only(replace(HEALTHY, nodes=(head, worker)), "leftovers", "spark-2").severity is I


def test_the_rails_of_a_ring_are_paired_by_their_subnets() -> None:
    ring = read_cluster("trio", "a,fabric=10.0.1.1,10.0.3.1,if=e1np0,e2np1;b,fabric=10.0.2.2,10.0.1.2,if=e1np0,e2np1;"
                                "c,fabric=10.0.3.3,10.0.2.3,if=e1np0,e2np1;ring")  # fmt: skip
    nodes = tuple(
        NodeReadings(each, NodeFacts(each.name, "1", (0, 0), links=tuple(
            FabricLink(name, addresses=(f"{ip}/24",)) for name, ip in zip(each.interfaces, each.fabric, strict=True)
        ))) for each in ring.nodes
    )  # fmt: skip
    seen = ClusterReadings(ring, nodes)
    assert [(mine, peer.node.name, theirs) for mine, peer, theirs in seen.paths(0)] == [(0, "b", 1), (1, "c", 0)]
    assert netplan(seen, [Finding("mtu", F, "")]) == {}


def test_the_device_of_a_rail_is_not_shifted_by_a_lan_interface() -> None:
    ring = ClusterNode("a", ("10.77.0.11", "10.0.1.1"), ("enP7s7", NAMES[0]))
    assert [NodeReadings(ring).device(rail) for rail in range(3)] == ["", DEVICES[0], ""]
    named = replace(ring, interfaces=("e0", "e1"), devices=("mlx5_0", "mlx5_1"))
    assert NodeReadings(named).device(1) == "mlx5_1"


def test_a_proposal_names_every_twin_keeps_good_addresses_and_sets_the_mtu() -> None:
    seen = link(1, mtu=1500)
    proposal = netplan(seen, examine(seen))
    assert list(proposal) == ["spark-2"], "the other node needs no change"
    assert proposal["spark-2"].count("mtu: 9000") == 2
    assert "[192.168.101.2/24]" in proposal["spark-2"]
    single = node(fabric=("192.168.100.2",), interfaces=NAMES[:1])
    assert f"{NAMES[1]}:" in netplan(single, examine(single))["spark-2"]


def test_the_fabric_is_completed_from_the_facts() -> None:
    first = HEALTHY.nodes[0].facts
    assert first
    assert completed(ClusterNode("spark-1"), first) == replace(HEALTHY.nodes[0].node, host="spark-1")
    assert completed(ClusterNode("spark-1", ("10.77.0.11",)), first).interfaces == ("enP7s7",)
    assert completed(ClusterNode("spark-1", ("10.1.1.1",)), first).interfaces == ()


@all_cases(
    ("kind", "value", "severity", "cause"),
    [
        (MeasureKind.RDMA, 190.0, OK, "full"),
        (MeasureKind.RDMA, 98.0, W, "one twin"),
        (MeasureKind.RDMA, 13.2, F, "degraded"),
        (MeasureKind.TWIN, 111.0, OK, "full"),
        (MeasureKind.TWIN, 13.0, F, "degraded"),
        (MeasureKind.TCP, 96.0, OK, "full"),
        (MeasureKind.TCP, 9.4, F, "another interface"),
        (MeasureKind.NCCL, 23.7, OK, "full"),
        (MeasureKind.NCCL, 18.9, W, "MTU 1500"),
        (MeasureKind.NCCL, 20.95, W, "MTU 1500"),
        (MeasureKind.NCCL, 12.0, W, "one RoCE device"),
        (MeasureKind.NCCL, 3.0, F, "TCP sockets"),
        (MeasureKind.NCCL_RING, 10.5, OK, "full"),
        (MeasureKind.NCCL_RING, 0.0, F, "TCP sockets"),
    ],
)
def test_a_bandwidth_has_a_cause(kind: MeasureKind, value: float, severity: Severity, cause: str) -> None:
    found = judge_bandwidth(kind, value)
    assert (found.severity, bool(found.remedy)) == (severity, severity is not OK)
    assert cause in found.summary


def test_a_program_that_is_not_there_leaves_the_bandwidth_unknown() -> None:
    absent = Measure(MeasureKind.RDMA, None, "not installed")
    seen = replace(at_second(measures=(absent, Measure(MeasureKind.TCP, 96.0))), bandwidth=True)
    found = only(seen, "rdma_bandwidth", "spark-2")
    assert found.severity is U
    assert "apt install perftest" in found.remedy
    assert only(seen, "tcp_bandwidth", "spark-2").severity is OK
    refused = Measure(MeasureKind.TCP, None, "unable to connect to server")
    found = only(replace(at_second(measures=(refused,)), bandwidth=True), "tcp_bandwidth", "spark-2")
    assert (found.severity, "apt install" in found.remedy) == (U, False)


def test_facts_and_probes_travel_as_json() -> None:
    assert HEALTHY.nodes[0].facts
    for value in (HEALTHY.nodes[0].facts, HEALTHY.nodes[0].probe):
        assert decode(encode(value), type(value)) == value
    assert set(NodeFacts.__struct_fields__) >= {check.needs for check in CHECKS} - {""}
