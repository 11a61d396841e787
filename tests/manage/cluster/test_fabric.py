"""The fabric as one node sees it: a tree of files like a Spark's, programs of a test's own, and real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from spark_tui.base.finding import value_of
from spark_tui.manage.cluster.adapter.fabric import SystemFabric
from spark_tui.manage.cluster.model.facts import ALL_GATHER, Dial, Ping, ProbeRequest, RoceDevice, Transfer
from tests.programs import asked, program

PEER = "192.168.100.2"
STATISTICS = "3 packets transmitted, {} received, 0% packet loss"
RDMA = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      531072           0.00               92.63              0.176680
---------------------------------------------------------------------------------------
"""


def tree(root: Path, files: dict[str, str]) -> SystemFabric:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return SystemFabric({}, root)


def test_links_are_read_with_cage_speed_and_what_they_are(tmp_path: Path) -> None:
    net = "sys/class/net"
    fabric = tree(tmp_path, {
        f"{net}/enp1s0f0np0/operstate": "up", f"{net}/enp1s0f0np0/speed": "200000", f"{net}/enp1s0f0np0/mtu": "9000",
        f"{net}/enp1s0f0np0/phys_port_name": "p0", f"{net}/enp1s0f0np0/device/vendor": "0x15b3",
        f"{net}/enP2p1s0f0np0/operstate": "lowerlayerdown", f"{net}/enP2p1s0f0np0/speed": "-1",
        f"{net}/ens9/operstate": "unknown", f"{net}/ens9/carrier": "1", f"{net}/ens9/device/vendor": "0x15b3",
        f"{net}/wlP9s9/wireless/x": "", f"{net}/wlP9s9/device/x": "",
        f"{net}/veth12/operstate": "up", f"{net}/lo/operstate": "unknown",
    })  # fmt: skip
    links = {each.name: each for each in value_of(fabric.links()) or ()}
    assert set(links) == {"enp1s0f0np0", "enP2p1s0f0np0", "ens9", "wlP9s9"}
    first = links["enp1s0f0np0"]
    assert (first.up, first.speed, first.mtu, first.cage, first.connectx) == (True, 200_000, 9000, "0", True)
    twin = links["enP2p1s0f0np0"]
    assert (twin.up, twin.speed, twin.mtu, twin.cage, twin.connectx) == (False, None, None, "0", True)
    assert (links["ens9"].up, links["ens9"].connectx, links["ens9"].cage) == (True, True, "")
    assert (links["wlP9s9"].wireless, links["wlP9s9"].up) == (True, None), "unknown is not down"


def test_this_machines_own_addresses_have_their_prefix() -> None:
    found = value_of(SystemFabric({}).links())
    assert found is not None
    assert all("/" in address for link in found for address in link.addresses)


def test_devices_have_the_ipv4_entries_of_roce_v2_alone(tmp_path: Path) -> None:
    port = "sys/class/infiniband/rocep1s0f0/ports/1"
    mapped = "0000:0000:0000:0000:0000:ffff:c0a8:6401"
    fabric = tree(tmp_path, {
        "sys/class/infiniband/rocep1s0f0/fw_ver": "28.45.4028", f"{port}/state": "4: ACTIVE",
        f"{port}/rate": "200 Gb/sec (4X HDR)", "sys/class/infiniband/rocep1s0f0/device/current_link_width": "4",
        "sys/class/infiniband/rocep1s0f0/device/current_link_speed": "32.0 GT/s PCIe",
        f"{port}/gid_attrs/types/1": "RoCE v2", f"{port}/gids/1": "fe80:0000:0000:0000:4ebb:47ff:fe00:6401",
        f"{port}/gid_attrs/types/2": "IB/RoCE v1", f"{port}/gids/2": mapped,
        f"{port}/gid_attrs/types/3": "RoCE v2", f"{port}/gids/3": mapped,
        f"{port}/gids/4": "0000:0000:0000:0000:0000:0000:0000:0000", f"{port}/gid_attrs/types/5": "RoCE v2",
    })  # fmt: skip
    device = RoceDevice("rocep1s0f0", "4: ACTIVE", 200.0, "28.45.4028", ((3, "192.168.100.1"),), 4, 32.0)
    assert value_of(fabric.devices()) == (device,)
    assert value_of(tree(tmp_path / "none", {"sys/x": ""}).devices()) == (), "a kernel without RDMA"


SMALL_ALONE = f'case "$*" in *"-s 56"*) echo "{STATISTICS.format(2)}";; *) echo "{STATISTICS.format(0)}"; exit 1;; esac'
PINGS = {
    "all": (f'echo "{STATISTICS.format(3)}"', (True, True, "")),
    "small ones": (SMALL_ALONE, (False, True, "")),
    "none": (f'echo "{STATISTICS.format(0)}"; exit 1', (False, False, "")),
    "no route": ("echo 'ping: connect: Network is unreachable' >&2; exit 2", (False, False, "")),
    "no right": ("echo 'ping: socket: Operation not permitted' >&2; exit 2",
                 (None, None, "ping: socket: Operation not permitted")),
}  # fmt: skip


@pytest.mark.parametrize("case", PINGS)
async def test_pings_of_full_size_then_small_ones(programs: Path, case: str) -> None:
    body, (received, small, problem) = PINGS[case]
    program(programs, "ping", body)
    found = await SystemFabric({"PATH": f"{programs}:/bin"}).ping(Ping("enp1s0f0np0", PEER, 8972))
    assert (found.received, found.small, found.problem) == (received, small, problem)
    assert "-M do -s 8972 -I enp1s0f0np0" in asked(programs)[0]


async def test_a_program_that_is_absent_is_named(tmp_path: Path) -> None:
    fabric = SystemFabric({"PATH": str(tmp_path)}, tmp_path)
    assert (await fabric.ping(Ping("x", PEER, 56))).problem == "ping is not installed"
    assert await fabric.route(PEER) is None
    assert await fabric.ssh(PEER) == "ssh is not installed"
    assert (await fabric.transfer(Transfer("iperf3", PEER, 1, PEER), 1)).problem == "not installed"


@pytest.mark.parametrize(
    ("body", "route"),
    [
        ("""echo '[{"dst":"192.168.100.2","dev":"wlP9s9"}]'""", "wlP9s9"),
        ("echo 'RTNETLINK answers: Network is unreachable' >&2; exit 2", ""),
        ("""echo '[{"dst":"192.168.100.2"}]'""", ""),
        ("echo text", None),
        ("exit 1", None),
    ],
)
async def test_the_interface_of_a_route(programs: Path, body: str, route: str | None) -> None:
    program(programs, "ip", body)
    assert await SystemFabric({"PATH": f"{programs}:/bin"}).route(PEER) == route


async def test_ssh_asks_nothing_writes_nothing_and_says_why(programs: Path) -> None:
    program(programs, "ssh", "echo 'nv@192.168.100.2: Permission denied (publickey).' >&2; exit 255")
    assert "Permission denied" in await SystemFabric({"PATH": f"{programs}:/bin"}).ssh(PEER)
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes"} <= set(asked(programs)[0].split())
    program(programs, "ssh", "exit 0")
    assert await SystemFabric({"PATH": f"{programs}:/bin"}).ssh(PEER) == ""


async def test_transfers_give_gigabits_and_wait_for_their_server(programs: Path) -> None:
    fabric = SystemFabric({"PATH": f"{programs}:/bin"})
    late = f'[ -e {programs}/up ] || {{ touch {programs}/up; echo "Couldn\'t connect" >&2; exit 1; }}'
    program(programs, "ib_write_bw", f"{late}\ncat <<'END'\n{RDMA}END")
    found = await fabric.transfer(Transfer("ib_write_bw", "rocep1s0f0", 12000, PEER), 30)
    assert (found.gbits, found.problem) == (92.63, "")
    assert len(asked(programs)) == 2
    result = json.dumps({"end": {"sum_received": {"bits_per_second": 96.1e9}}})
    refused = json.dumps({"error": "unable to connect to server: Connection refused"})
    late = f"[ -e {programs}/heard ] || {{ touch {programs}/heard; echo '{refused}'; exit 0; }}"
    program(programs, "iperf3", f"{late}\necho '{result}'")
    assert (await fabric.transfer(Transfer("iperf3", "192.168.100.1", 12100, PEER), 30)).gbits == pytest.approx(96.1)
    lines = "Unable to find image locally" + chr(10) + json.dumps({"busbw": 23.7})
    program(programs, "docker", f"echo '{lines}'")
    gathered = Transfer(ALL_GATHER, "vllm:1", 29501, PEER, words=("--gpus", "all", "vllm:1"))
    assert (await fabric.transfer(gathered, 30)).gbits == pytest.approx(23.7)
    assert asked(programs)[-1] == "docker run --rm --gpus all vllm:1"
    served = await fabric.transfer(Transfer("iperf3", PEER, 12100), 30)
    assert (served.gbits, served.problem) == (None, "")
    program(programs, "iperf3", "echo nothing")
    assert (await fabric.transfer(Transfer("iperf3", PEER, 12100, PEER), 30)).problem == "no result"


async def test_nodes_that_listen_and_connect_at_once_find_each_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.3", 0)) as spare:
        port, closed = taken.getsockname()[1], spare.getsockname()[1]
    fabric = SystemFabric({})
    first = ProbeRequest(address="127.0.0.1", ports=(port,), guests=1, dials=(Dial("127.0.0.2", port),), seconds=30)
    second = ProbeRequest(address="127.0.0.2", ports=(port,), guests=1, dials=(Dial("127.0.0.1", port),), seconds=30)
    later = asyncio.create_task(fabric.meet(first))
    assert await fabric.meet(second) == ((Dial("127.0.0.1", port),), {str(port): ""})
    assert await later == ((Dial("127.0.0.2", port),), {str(port): ""})
    lonely = ProbeRequest(address="127.0.0.3", dials=(Dial("127.0.0.3", closed),), seconds=0.3)
    (dial,), deaf = await fabric.meet(lonely)
    assert dial.problem and deaf == {}
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        _, deaf = await fabric.meet(ProbeRequest(address="127.0.0.1", ports=(number,), seconds=0.1))
    assert "cannot listen" in deaf[str(number)]
