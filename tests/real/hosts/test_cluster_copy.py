"""Images and models from node 1 to node 2 over the fabric, started at a desk: by real ssh, rsync and Docker engines."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_tui.catalog.models.model.store import PARTIAL_FOLDER
from tests import store_kit
from tests.real.lab import Rig
from tests.real.lab.cluster import FABRIC_A, NUMBERS
from tests.real.lab.images import BUSYBOX
from tests.real.lab.node import CHECKOUT
from tests.real.lab.support import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

MODEL = "acme/tiny"
FOLDER = "hub/models--acme--tiny"
IMAGE = "spark-tui-test/copy:1"
SLOW = ("root", "tbf", "rate", "80mbit", "burst", "256k", "latency", "50ms")
PATIENCE = 60


class Desk:
    """A person's machine beside the two nodes; each node has a store of its own in its home."""

    def __init__(self, rig: Rig, home: Path) -> None:
        self.rig = rig
        there = f"env PYTHONPATH={CHECKOUT} SPARK_TUI_STORE=/root/store {sys.executable} -m spark_tui"
        hosts = [f'spark-{number} = {{ ssh = "spark-{number}", command = "{there}" }}' for number in NUMBERS]
        nodes = [
            f'{{ ssh = "spark-{number}", fabric = ["{FABRIC_A.address(number)}"], interfaces = ["{FABRIC_A.name}"] }}'
            for number in NUMBERS
        ]
        settings = home / "config/spark-tui/settings.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("\n".join(["[hosts]", *hosts, "[clusters.duo]", f"nodes = [{', '.join(nodes)}]", ""]))
        run = rig.runtime / "desk-run"  # short, as a socket's path must be
        run.mkdir(mode=0o700)
        self.environment = {
            "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "LANG": "C.UTF-8", "PYTHONPATH": str(CHECKOUT),
            "XDG_RUNTIME_DIR": str(run), "DOCKER_HOST": f"unix://{home}/no-docker.sock",
        }  # fmt: skip

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        words = [f"{name}={value}" for name, value in self.environment.items()]
        command = ["env", *words, sys.executable, "-m", "spark_tui", "cluster", "copy", *arguments, "duo", "--json"]
        return subprocess.Popen(
            self.rig.desk_argv(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip

    def copy(self, *arguments: str) -> Any:
        """What node 2 received."""
        child = self.start(*arguments)
        out, err = child.communicate(timeout=300)
        assert child.returncode == 0, err
        return json.loads(out.splitlines()[-1])["nodes"][0]

    def refused(self, *arguments: str) -> Any:
        """The error, with its exit code."""
        child = self.start(*arguments)
        out, err = child.communicate(timeout=300)
        assert child.returncode != 0, out
        return json.loads(err)["error"]

    def store(self, number: int) -> Path:
        """A node's store as this machine sees it."""
        return self.rig.node(number).home / "store"

    def processes(self) -> list[str]:
        """What of a copy runs on the nodes."""
        marks = ("rsync", "docker save", "docker load", "spark_tui node")
        lines = [line for number in NUMBERS for line in self.rig.node(number).run(["ps", "-eo", "args="]).splitlines()]
        return [line for line in lines if any(mark in line for mark in marks)]


@pytest.fixture(scope="module")
def _desk(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(rig, tmp_path_factory.mktemp("desk"))


@pytest.fixture
def desk(_desk: Desk) -> Iterator[Desk]:
    """Node 1 has the model, node 2 nothing."""
    store_kit.cached(_desk.store(1), MODEL, store_kit.files(20_000_000))
    yield _desk
    for number in NUMBERS:
        shutil.rmtree(_desk.store(number), ignore_errors=True)


@pytest.fixture
def slow(rig: Rig) -> Iterator[Rig]:
    """Ten megabytes a second from node 1."""
    rig.node(1).run(["tc", "qdisc", "add", "dev", FABRIC_A.name, *SLOW])
    yield rig
    rig.node(1).try_run(["tc", "qdisc", "del", "dev", FABRIC_A.name, "root"])


@pytest.fixture
def image(rig: Rig) -> Iterator[str]:
    """An image of 30 MB that node 1 alone has."""
    engine = rig.node(1).engine
    engine.docker("run", "--name", "copy-source", BUSYBOX, "dd", "if=/dev/urandom", "of=/data", "bs=1M", "count=30")
    engine.docker("commit", "copy-source", IMAGE)
    engine.docker("rm", "copy-source")
    yield IMAGE
    for number in NUMBERS:
        if rig.node(number).engine.image_id(IMAGE):
            rig.node(number).engine.docker("rmi", IMAGE)


def content(folder: Path) -> dict[str, str]:
    """Every file and link below a folder."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    return {
        name: str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
    }


def received(desk: Desk) -> int:
    """Bytes of the largest file on its way to node 2."""
    sizes = [path.stat().st_size for path in (desk.store(2) / FOLDER / "blobs").glob(".*.*") if path.is_file()]
    return max(sizes, default=0)


# --- models -----------------------------------------------------------------------------------------------


def test_a_model_arrives_over_the_fabric_and_a_second_copy_sends_nothing(desk: Desk) -> None:
    first = desk.copy("model", MODEL)
    assert (first["id"], first["state"]) == ("spark-2", "copied")
    assert content(desk.store(2)) == content(desk.store(1))
    assert desk.copy("model", MODEL)["state"] == "had"


def test_a_file_that_is_a_byte_longer_is_found_and_repaired(desk: Desk) -> None:
    desk.copy("model", MODEL)
    large = max((desk.store(2) / FOLDER / "blobs").iterdir(), key=lambda path: path.stat().st_size)
    with large.open("ab") as file:
        file.write(b"x")
    assert desk.copy("model", MODEL)["files"] == 1
    assert content(desk.store(2)) == content(desk.store(1))


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_ended_at_the_desk_ends_on_the_nodes_and_continues(
    desk: Desk, slow: Rig, sign: signal.Signals
) -> None:
    child = desk.start("model", MODEL)
    assert wait_until(lambda: received(desk) > 5_000_000, PATIENCE)
    child.send_signal(sign)
    child.communicate(timeout=PATIENCE)
    assert wait_until(lambda: not desk.processes(), PATIENCE), desk.processes()
    folder = desk.store(2) / FOLDER
    assert wait_until(lambda: any((folder / "blobs" / PARTIAL_FOLDER).glob("*")), PATIENCE)
    assert not (folder / "snapshots").exists()
    slow.node(1).run(["tc", "qdisc", "del", "dev", FABRIC_A.name, "root"])
    desk.copy("model", MODEL)
    assert content(desk.store(2)) == content(desk.store(1))


def test_a_node_without_room_is_refused_with_figures(desk: Desk, rig: Rig) -> None:
    node = rig.node(2)
    node.run(["mkdir", "-p", "/root/store"])
    node.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", "/root/store"])
    try:
        error = desk.refused("model", MODEL)
        assert node.run(["ls", "/root/store"]) == ""
    finally:
        node.run(["umount", "/root/store"])
    assert (error["id"], error["exit_code"]) == ("refused", 4)
    assert "8.0 MiB free in /root/store" in error["summary"]


def test_a_disk_that_fills_in_mid_copy_leaves_a_partial_model_that_continues(desk: Desk, slow: Rig) -> None:
    node = slow.node(2)
    node.run(["mkdir", "-p", "/root/store"])
    node.run(["mount", "-t", "tmpfs", "-o", "size=1200m", "tmpfs", "/root/store"])
    try:
        for _ in range(5):  # until the disk is full before the copy is over
            child = desk.start("model", MODEL)
            assert wait_until(lambda: node.try_run(["ls", f"/root/store/{FOLDER}/blobs"]).returncode == 0, PATIENCE)
            node.try_run(["fallocate", "-l", "1190M", "/root/store/other"])
            _, err = child.communicate(timeout=PATIENCE)
            if err:
                break
            node.run(["rm", "-rf", f"/root/store/{FOLDER}", "/root/store/other"])
        error = json.loads(err)["error"]
        assert "is full" in error["summary"]
        assert node.try_run(["ls", f"/root/store/{FOLDER}/snapshots"]).returncode != 0
        node.run(["rm", "/root/store/other"])
        slow.node(1).run(["tc", "qdisc", "del", "dev", FABRIC_A.name, "root"])
        assert desk.copy("model", MODEL)["state"] == "copied"
    finally:
        node.run(["umount", "/root/store"])


def test_without_ssh_between_the_nodes_the_command_for_it_is_named(desk: Desk, rig: Rig) -> None:
    rig.node(1).run(["mv", "/root/.ssh/id_ed25519", "/root/.ssh/away"])
    try:
        error = desk.refused("model", MODEL)
    finally:
        rig.node(1).run(["mv", "/root/.ssh/away", "/root/.ssh/id_ed25519"])
    assert "--host spark-1" in error["remedy"]
    assert f"ssh-copy-id root@{FABRIC_A.address(2)}" in error["detail"], "what a node proposes is shown as the node's"


def test_a_cable_that_is_pulled_ends_the_copy(desk: Desk, slow: Rig) -> None:
    child = desk.start("model", MODEL)
    assert wait_until(lambda: received(desk) > 5_000_000, PATIENCE)
    slow.link(1, FABRIC_A.name, up=False)
    try:
        _, err = child.communicate(timeout=PATIENCE)
        assert json.loads(err)["error"]["remedy"]
    finally:
        slow.link(1, FABRIC_A.name, up=True)
    assert wait_until(lambda: not desk.processes(), PATIENCE), desk.processes()


# --- images -----------------------------------------------------------------------------------------------


def test_an_image_arrives_and_a_second_copy_sends_nothing(desk: Desk, rig: Rig, image: str) -> None:
    assert desk.copy("image", image)["bytes"] > 30_000_000
    layers = [rig.node(number).engine.docker("inspect", "--format", "{{.RootFS.Layers}}", image) for number in NUMBERS]
    assert layers[0] == layers[1]
    assert desk.copy("image", image)["state"] == "had"


def test_an_image_copy_that_is_ended_leaves_nothing_and_works_when_repeated(desk: Desk, slow: Rig, image: str) -> None:
    child = desk.start("image", image)
    assert wait_until(lambda: sum("docker load" in line for line in desk.processes()) >= 2, PATIENCE)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE)
    assert wait_until(lambda: not desk.processes(), PATIENCE), desk.processes()
    assert slow.node(2).engine.image_id(image) is None
    slow.node(1).run(["tc", "qdisc", "del", "dev", FABRIC_A.name, "root"])
    assert desk.copy("image", image)["state"] == "copied"
