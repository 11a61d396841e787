"""The rig is what it says: two hosts with ssh, Docker and links between them. Nothing of them is left after `down`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.lab import Lab, Rig
from tests.real.lab.cluster import FABRIC_A, FABRIC_B, INTERFACES, LAN, NUMBERS, cgroup_roots
from tests.real.lab.fake_sysfs import RDMA_DEVICES
from tests.real.lab.images import BUSYBOX
from tests.real.lab.node import Node
from tests.real.lab.support import LabFailed, is_alive, processes_naming, run, wait_until

FLAGS_OF_A_SPARK = (
    *("--network", "host", "--ipc", "host", "--gpus", "all", "--device", "/dev/infiniband"),
    *("--ulimit", "memlock=-1", "--ulimit", "nofile=1048576"),
)
JUMBO = 9000 - 28
"""Bytes of payload in one IPv4 packet of 9000."""


def at_desk(rig: Rig, *arguments: str) -> str:
    """A program's stdout at the desk, stripped."""
    return run(rig.desk_argv(arguments), timeout=60).strip()


def ping(node: Node, address: str, *options: str) -> bool:
    """Whether one packet is answered within two seconds."""
    return node.try_run(["ping", "-c", "1", "-W", "2", *options, address]).returncode == 0


def carrier(node: Node, interface: str) -> str:
    """The link as the node's kernel has it: 1 up, 0 no carrier."""
    return node.run(["cat", f"/sys/class/net/{interface}/carrier"]).strip()


class TestReach:
    @pytest.mark.parametrize("number", NUMBERS)
    def test_a_node_answers_over_ssh_from_the_desk(self, rig: Rig, number: int) -> None:
        assert at_desk(rig, "ssh", f"spark-{number}", "hostname") == f"spark-{number}"

    @pytest.mark.parametrize("source", NUMBERS)
    @pytest.mark.parametrize("target", NUMBERS)
    def test_every_node_reaches_every_node_by_name_lan_and_fabric(self, rig: Rig, source: int, target: int) -> None:
        for host in (f"spark-{target}", *(wire.address(target) for wire in (LAN, FABRIC_A, FABRIC_B))):
            assert rig.node(source).run(["ssh", host, "hostname"]) == f"spark-{target}\n"

    def test_an_unknown_host_key_is_refused(self, rig: Rig) -> None:
        words = rig.desk_argv(["ssh", "-o", "UserKnownHostsFile=/dev/null", "spark-1", "true"])
        refused = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert refused.returncode == 255
        assert "Host key verification failed" in refused.stderr

    def test_files_go_over_the_fabric_by_rsync(self, rig: Rig) -> None:
        first, second = rig.node(1), rig.node(2)
        first.run(["dd", "if=/dev/urandom", "of=/root/data", "bs=1M", "count=2"])
        first.run(["rsync", "--archive", "/root/data", f"{FABRIC_A.address(2)}:/root/data"])
        assert first.run(["sha256sum", "/root/data"]) == second.run(["sha256sum", "/root/data"])
        for node in (first, second):
            node.run(["rm", "/root/data"])


class TestNode:
    def test_the_machines_own_network_shows_none_of_it(self, rig: Rig) -> None:
        desk = {line.split(":")[1].split("@")[0].strip() for line in at_desk(rig, "ip", "-o", "link").splitlines()}
        assert desk == {"lo", "lan", "lan1", "lan2", "wlan", "wlan1", "wlan2"}
        machine = {path.name for path in Path("/sys/class/net").iterdir()}
        assert not machine & {*INTERFACES, *(desk - {"lo"})}

    def test_it_is_a_host_of_its_own(self, rig: Rig) -> None:
        for node in (rig.node(number) for number in NUMBERS):
            names = set(node.run(["ls", "/sys/class/net"]).split())
            assert names == {*INTERFACES, "lo", "docker0"}
            processes = node.run(["ps", "-e", "-o", "pid=,args="])
            assert "node_init.py" in processes.splitlines()[0]
            assert "pytest" not in processes

    def test_home_holds_ssh_and_nothing_of_the_machines(self, rig: Rig) -> None:
        names = set(rig.node(1).run(["ls", "-A", "/root"]).split())
        mounted = {path.relative_to("/root").parts[0] for path in rig.seen() if path.is_relative_to("/root")}
        assert names - {".local", ".config"} == {".ssh"} | mounted, (
            "what spark-tui itself has written there is the node's own"
        )

    def test_the_checkouts_program_runs_on_a_node(self, rig: Rig) -> None:
        assert rig.node(1).run([sys.executable, "-m", "spark_tui", "--version"]).startswith("spark-tui ")

    def test_only_the_shared_folder_is_writable(self, rig: Rig) -> None:
        rig.node(1).run(["touch", rig.share / "from-1"])
        assert (rig.share / "from-1").exists()
        assert "from-1" in rig.node(2).run(["ls", rig.share]).split()
        refused = rig.node(1).try_run(["touch", Path(__file__).with_name("written")])
        assert "Read-only file system" in refused.stderr

    @pytest.mark.parametrize("number", NUMBERS)
    def test_a_container_runs_with_the_flags_of_a_spark(self, rig: Rig, number: int) -> None:
        words = ("sh", "-c", "hostname; ls /dev/infiniband; ip -o address")
        printed = rig.node(number).engine.docker("run", "--rm", *FLAGS_OF_A_SPARK, BUSYBOX, *words).splitlines()
        assert printed[0] == f"spark-{number}"
        assert "uverbs0" in printed
        assert any(FABRIC_A.address(number) in line for line in printed)

    def test_a_published_port_is_reached_from_the_desk(self, rig: Rig) -> None:
        engine = rig.node(2).engine
        engine.docker("run", "--detach", "--name", "web", "--publish", "8080:80", BUSYBOX, "httpd", "-f", "-h", "/etc")
        page = [sys.executable, "-c", f"import urllib.request as u; u.urlopen('http://{LAN.address(2)}:8080/passwd')"]
        try:
            assert wait_until(lambda: subprocess.run(rig.desk_argv(page), capture_output=True).returncode == 0, 20)
        finally:
            engine.docker("rm", "--force", "web")


class TestLinks:
    def test_jumbo_packets_pass_until_a_node_has_an_mtu_of_1500(self, rig: Rig) -> None:
        whole = ("-M", "do", "-s", str(JUMBO))
        assert ping(rig.node(1), FABRIC_A.address(2), *whole)
        rig.mtu(2, FABRIC_A.name, 1500)
        try:
            assert not ping(rig.node(1), FABRIC_A.address(2), *whole)
            assert ping(rig.node(1), FABRIC_A.address(2))
        finally:
            rig.mtu(2, FABRIC_A.name, 9000)
        assert ping(rig.node(1), FABRIC_A.address(2), *whole)

    def test_a_pulled_cable_is_seen_at_the_other_end(self, rig: Rig) -> None:
        rig.link(2, FABRIC_A.name, up=False)
        try:
            assert carrier(rig.node(1), FABRIC_A.name) == "0"
            assert carrier(rig.node(1), FABRIC_B.name) == "1"
            assert not ping(rig.node(1), FABRIC_A.address(2))
        finally:
            rig.link(2, FABRIC_A.name, up=True)
        assert carrier(rig.node(1), FABRIC_A.name) == "1"
        assert wait_until(lambda: ping(rig.node(1), FABRIC_A.address(2)), 20)

    def test_the_default_route_comes_back_with_the_lan(self, rig: Rig) -> None:
        before = rig.node(1).run(["ip", "route"])
        rig.link(1, LAN.name, up=False)
        assert rig.node(1).run(["ip", "route", "show", "default"]).split()[4] == "wlP9s9"
        rig.link(1, LAN.name, up=True)
        assert sorted(rig.node(1).run(["ip", "route"]).splitlines()) == sorted(before.splitlines())

    def test_a_firewall_closes_one_port_of_one_interface(self, rig: Rig) -> None:
        connect = ["ssh", "-o", "ConnectTimeout=2", FABRIC_A.address(2), "true"]
        rig.firewall(2, FABRIC_A.name, 22)
        try:
            refused = rig.node(1).try_run(connect)
            assert "timed out" in refused.stderr
            rig.node(1).run(["ssh", FABRIC_B.address(2), "true"])
        finally:
            rig.firewall(2, FABRIC_A.name, 22, closed=False)
        rig.node(1).run(connect)


class TestRdma:
    """What a node's /sys says about its cards."""

    def test_each_twin_is_a_roce_device_of_its_interface(self, rdma_rig: Rig) -> None:
        for number in NUMBERS:
            node = rdma_rig.node(number)
            assert node.run(["ls", "/sys/class/infiniband"]).split() == ["roceP2p1s0f0", "rocep1s0f0"]
            for interface, device in RDMA_DEVICES.items():
                folder = f"/sys/class/infiniband/{device}"
                assert node.run(["ls", f"{folder}/device/net"]) == f"{interface}\n"
                assert node.run(["cat", f"{folder}/ports/1/rate"]).startswith("200 Gb/sec")
                assert node.run(["cat", f"/sys/class/net/{interface}/speed"]) == "200000\n"
                assert node.run(["ls", f"/sys/class/net/{interface}/device/infiniband"]) == f"{device}\n"

    def test_the_gid_of_an_address_has_another_index_on_the_other_node(self, rdma_rig: Rig) -> None:
        indices = []
        for number in NUMBERS:
            port, node = "/sys/class/infiniband/rocep1s0f0/ports/1", rdma_rig.node(number)
            kinds = node.run(["grep", "-rl", "RoCE v2", f"{port}/gid_attrs/types"]).split()
            gids = {int(kind.rpartition("/")[2]): "" for kind in kinds}
            for index in gids:
                gids[index] = node.run(["cat", f"{port}/gids/{index}"]).strip()
            indices.append([index for index, gid in gids.items() if gid.endswith(f"ffff:c0a8:640{number}")])
        assert indices == [[3], [5]]

    def test_the_rest_of_sysfs_is_live(self, rdma_rig: Rig) -> None:
        node = rdma_rig.node(1)
        assert set(node.run(["ls", "/sys/class/net"]).split()) == {*INTERFACES, "lo", "docker0"}
        assert node.try_run(["ls", "/sys/class/net/late"]).returncode != 0
        node.run(["ip", "link", "add", "late", "type", "bridge"])
        assert node.run(["cat", "/sys/class/net/late/mtu"]) == "1500\n"
        node.run(["ip", "link", "delete", "late"])
        assert node.run(["ls", "/sys/class/net/wlP9s9/wireless"]) == ""
        rdma_rig.mtu(1, FABRIC_A.name, 4000)
        assert node.run(["cat", f"/sys/class/net/{FABRIC_A.name}/mtu"]) == "4000\n"
        rdma_rig.mtu(1, FABRIC_A.name, FABRIC_A.mtu)

    def test_the_port_goes_down_with_the_cable_at_either_end(self, rdma_rig: Rig) -> None:
        read = ["cat", f"/sys/class/infiniband/{RDMA_DEVICES[FABRIC_B.name]}/ports/1/state"]
        rdma_rig.link(2, FABRIC_B.name, up=False)
        assert [rdma_rig.node(number).run(read) for number in NUMBERS] == ["1: DOWN\n", "1: DOWN\n"]
        rdma_rig.link(2, FABRIC_B.name, up=True)
        assert [rdma_rig.node(number).run(read) for number in NUMBERS] == ["4: ACTIVE\n", "4: ACTIVE\n"]

    def test_a_reboot_keeps_the_cards(self, rdma_rig: Rig) -> None:
        rdma_rig.plug(1, False)
        rdma_rig.plug(1, True)
        state = rdma_rig.node(1).run(["cat", "/sys/class/infiniband/rocep1s0f0/ports/1/phys_state"])
        assert state == "5: LinkUp\n"


def test_without_the_cards_there_is_no_rdma(rig: Rig) -> None:
    assert rig.node(1).try_run(["ls", "/sys/class/infiniband"]).returncode != 0


class TestPower:
    def test_a_node_without_power_is_gone_and_comes_back_with_its_disk(self, rig: Rig) -> None:
        node = rig.node(2)
        node.engine.docker("run", "--detach", "--name", "sleeper", BUSYBOX, "sleep", "1000")
        node.run(["touch", "/root/kept", "/tmp/lost"])
        rig.firewall(2, LAN.name, 8000)
        host = node.docker_host
        rig.plug(2, False)
        try:
            assert node.pid is None
            assert carrier(rig.node(1), FABRIC_A.name) == "0"
            assert not ping(rig.node(1), LAN.address(2))
            with pytest.raises(LabFailed, match="spark-2 is off"):
                node.run(["true"])
        finally:
            rig.plug(2, True)
        assert at_desk(rig, "ssh", "spark-2", "ls /root/kept") == "/root/kept"
        assert at_desk(rig, "ssh", "spark-2", "test -e /tmp/lost || echo lost") == "lost"
        assert "DROP" not in node.run(["iptables", "--list", "INPUT", "--numeric"])
        assert node.docker_host == host
        state = node.engine.api("GET", "/containers/sleeper/json")["State"]
        assert (state["Status"], state["ExitCode"]) == ("exited", 255)
        node.engine.docker("rm", "sleeper")
        node.run(["rm", "/root/kept"])


def test_nothing_is_left_after_down(lab: Lab, rig: Rig, tmp_path: Path) -> None:
    """The last test here: the rig that the others share comes back afterwards."""
    rig.node(1).engine.docker("run", "--detach", *FLAGS_OF_A_SPARK, BUSYBOX, "sleep", "1000")
    forwarding = subprocess.Popen(rig.desk_argv(["ssh", "-N", "-L", f"{tmp_path}/s:/run/docker.sock", "spark-1"]))
    assert wait_until((tmp_path / "s").is_socket, 20)
    inside = [pid for number in NUMBERS if (pid := rig.node(number).pid)]
    try:
        rig.down()
        assert forwarding.wait(20) != 0
        assert len(inside) == 2
        assert not any(is_alive(pid) for pid in inside)
        assert processes_naming(str(rig.root)) == []
        assert not rig.runtime.exists()
        assert str(rig.root) not in Path("/proc/self/mounts").read_text()
        assert not [path for root in cgroup_roots() for path in root.glob(f"sparklab-{rig.runtime.name}*")]
    finally:
        rig.up(print)
    assert rig.node(1).engine.docker("ps", "--all", "--quiet") == ""
