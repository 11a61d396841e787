"""The doctor of a cluster on two real hosts: a healthy pair passes, and each fault is found where it is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.lab import Rig
from tests.real.lab.cluster import FABRIC_A, FABRIC_B, NUMBERS
from tests.real.lab.images import BUSYBOX
from tests.real.lab.node import CHECKOUT
from tests.real.lab.support import wait_until

pytestmark = pytest.mark.timeout(900)

PASSING = {
    "reach", "user", "clock", "kernel", "docker", "image", "variables", "carrier", "twins", "speed", "mtu", "address",
    "subnet", "roce", "firmware", "wifi", "route", "ping", "ssh", "ports", "firewall", "leftovers", "gid", "model",
}  # fmt: skip
"""What such a pair has; the rest is that of the machine below: its memory, disk, and no driver."""


class Desk:
    """A person's machine beside the two, with a home of its own."""

    def __init__(self, rig: Rig, home: Path) -> None:
        self.rig = rig
        there = f"env PYTHONPATH={CHECKOUT} {sys.executable} -m spark_tui"
        hosts = [f'spark-{number} = {{ ssh = "spark-{number}", command = "{there}" }}' for number in NUMBERS]
        rails = [FABRIC_A, FABRIC_B]
        nodes = [
            f"{{ ssh = 'spark-{number}', fabric = {[rail.address(number) for rail in rails]}, "
            f"interfaces = {[rail.name for rail in rails]} }}"
            for number in NUMBERS
        ]
        settings = home / ".config/spark-tui/settings.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("\n".join(["[hosts]", *hosts, "[clusters.duo]", f"nodes = [{', '.join(nodes)}]", ""]))
        self.environment = {"HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": str(CHECKOUT)}

    def doctor(self, *arguments: str, code: int) -> dict[tuple[str, int], str]:
        """The verdict of each check at each node; fails on another exit code."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        words = ["env", *variables, sys.executable, "-m", "spark_tui", "cluster", "doctor", "duo", "--json", *arguments]
        done = subprocess.run(self.rig.desk_argv(words), capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.checks = json.loads(done.stdout)["checks"]
        return {(each["id"], int(each["node"][-1])): each["verdict"] for each in self.checks}

    def failures(self, code: int = 1) -> set[tuple[str, int]]:
        return {key for key, verdict in self.doctor(code=code).items() if verdict == "FAIL"}


def processes(rig: Rig) -> list[str]:
    """Processes of an examination that are on the nodes."""
    found = "".join(rig.node(number).run(["ps", "-e", "-o", "args="]) for number in NUMBERS)
    return [line for line in found.splitlines() if "spark_tui" in line or line.startswith("ping ")]


@pytest.fixture
def desk(rdma_rig: Rig, tmp_path: Path) -> Iterator[Desk]:
    yield Desk(rdma_rig, tmp_path)
    assert wait_until(lambda: not processes(rdma_rig), 30), processes(rdma_rig)


class TestDoctor:
    def test_a_healthy_pair_passes(self, desk: Desk) -> None:
        for number in NUMBERS:
            make = "mkdir -p ~/vllm/small && printf '{}' > ~/vllm/small/config.json"
            desk.rig.node(number).run(["sh", "-c", make])
        found = desk.doctor("--image", BUSYBOX, "--model", "/models/small", code=0)
        missed = [each for each in desk.checks if each["id"] in PASSING and each["verdict"] != "PASS"]
        slow = ("clock", "SKIP")  # an answer that took seconds compares no clocks
        assert [each for each in missed if (each["id"], each["verdict"]) != slow] == []
        assert not {key for key, verdict in found.items() if verdict == "FAIL"}
        desk.rig.node(2).run(["sh", "-c", "printf ' ' >> ~/vllm/small/config.json"])
        found = desk.doctor("--model", "/models/small", code=1)
        assert {key for key, verdict in found.items() if verdict == "FAIL"} == {("model", 2)}

    def test_an_mtu_of_1500_on_one_rail(self, desk: Desk) -> None:
        desk.rig.mtu(2, FABRIC_B.name, 1500)
        try:
            assert desk.failures() == {("mtu", 2), ("ping", 1)}
        finally:
            desk.rig.mtu(2, FABRIC_B.name, FABRIC_B.mtu)

    def test_a_cable_that_is_out(self, desk: Desk) -> None:
        desk.rig.link(2, FABRIC_A.name, up=False)
        try:
            found = desk.doctor(code=1)
            failed = {key for key, verdict in found.items() if verdict == "FAIL"}
            assert failed == {("carrier", 1), ("carrier", 2)}, "one cause, found once at each end"
            assert {found[(check, 1)] for check in ("twins", "roce", "route", "ping")} == {"SKIP"}
            assert found[("firewall", 1)] == found[("firewall", 2)] == "SKIP", "no path is no firewall"
            assert found[("ssh", 1)] == "SKIP"
        finally:
            desk.rig.link(2, FABRIC_A.name, up=True)

    def test_a_firewall_on_the_port_of_the_ranks(self, desk: Desk) -> None:
        desk.rig.firewall(2, FABRIC_A.name, 29501)
        try:
            assert desk.failures() == {("firewall", 2)}
            assert "29501" in next(each["summary"] for each in desk.checks if each["verdict"] == "FAIL")
        finally:
            desk.rig.firewall(2, FABRIC_A.name, 29501, closed=False)

    def test_a_wrong_subnet(self, desk: Desk) -> None:
        with readdressed(desk.rig, FABRIC_A.name, f"{FABRIC_A.address(2)}/24", "192.168.200.2/24"):
            assert {("address", 2), ("subnet", 2), ("ping", 1)} <= desk.failures()

    def test_ssh_without_a_key_and_a_port_in_use(self, desk: Desk) -> None:
        node = desk.rig.node(2)
        node.run(["mv", "/root/.ssh/id_ed25519", "/root/.ssh/kept"])
        node.engine.docker(
            "run", "--detach", "--name", "web", "--network", "host", BUSYBOX, "httpd", "-f", "-p", "8000"
        )
        try:
            found = desk.doctor(code=0)
            assert (found[("ssh", 2)], found[("ssh", 1)]) == ("WARN", "PASS")
            assert (found[("ports", 2)], found[("ports", 1)]) == ("WARN", "PASS")
        finally:
            node.run(["mv", "/root/.ssh/kept", "/root/.ssh/id_ed25519"])
            node.engine.docker("rm", "--force", "web")

    def test_bandwidth_is_measured_where_the_program_is(self, desk: Desk) -> None:
        shape = ("root", "tbf", "rate", "1gbit", "burst", "256k", "latency", "50ms")
        for rail in (FABRIC_A, FABRIC_B):
            desk.rig.node(1).run(["tc", "qdisc", "add", "dev", rail.name, *shape])
        try:
            desk.doctor("--bandwidth", code=1)
        finally:
            for rail in (FABRIC_A, FABRIC_B):
                desk.rig.node(1).run(["tc", "qdisc", "del", "dev", rail.name, "root"])
        found = next(each for each in desk.checks if (each["id"], each["node"]) == ("tcp_bandwidth", "spark-2"))
        assert found["verdict"] == "FAIL"
        assert "iperf3" in found["evidence"]

    def test_a_node_without_power(self, desk: Desk) -> None:
        desk.rig.plug(2, on=False)
        try:
            assert desk.failures(code=3) >= {("reach", 2)}
        finally:
            desk.rig.plug(2, on=True)

    def test_afterwards_the_pair_is_as_before(self, desk: Desk) -> None:
        assert desk.failures(code=0) == set()
        for number in NUMBERS:
            assert desk.rig.node(number).engine.docker("ps", "--all", "--quiet") == ""


@contextlib.contextmanager
def readdressed(rig: Rig, interface: str, before: str, after: str) -> Iterator[None]:
    """Node 2 with another address on an interface."""
    rig.node(2).run(["ip", "address", "delete", before, "dev", interface])
    rig.node(2).run(["ip", "address", "add", after, "dev", interface])
    try:
        yield
    finally:
        rig.node(2).run(["ip", "address", "delete", after, "dev", interface])
        rig.node(2).run(["ip", "address", "add", before, "dev", interface])
