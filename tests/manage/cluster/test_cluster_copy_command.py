"""`cluster copy model` from end to end: three homes on this machine, each with its own spark-tui behind an ssh."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_tui.catalog.models.model.store import PARTIAL_FOLDER
from tests import store_kit
from tests.cli.world import in_process
from tests.ssh_nodes import SshNodes

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")

SETTINGS = """\
[clusters.duo]
nodes = [
  { ssh = "nv@spark-1", fabric = ["192.168.100.1"], interfaces = ["enp1s0f0np0"] },
  { ssh = "nv@spark-2", fabric = ["192.168.100.2"], interfaces = ["enp1s0f0np0"] },
]
"""
MODEL = "acme/tiny"
SIZE = 2_000_000
PATIENCE = 60.0


@pytest.fixture
def nodes(tmp_path: Path) -> SshNodes:
    """A cluster of two; the first has the model."""
    nodes = SshNodes(tmp_path / "nodes")
    for number in (1, 2):
        nodes.add(f"spark-{number}", f"192.168.100.{number}")
    settings = nodes.folder / "home/.config/spark-tui/settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS)
    store_kit.cached(store(nodes, 1), MODEL, store_kit.files(SIZE))
    return nodes


def store(nodes: SshNodes, number: int) -> Path:
    return nodes.folder / f"spark-{number}/vllm"


def blobs(nodes: SshNodes, number: int) -> Path:
    return store(nodes, number) / "hub/models--acme--tiny/blobs"


def run(nodes: SshNodes, *arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process(("cluster", "copy", *arguments), nodes.environment)


def copied(nodes: SshNodes, *arguments: str) -> Any:
    """The result for the receiving node."""
    done = run(nodes, "model", MODEL, "duo", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["type"] for line in lines[:-1]} <= {"progress"}
    [node] = lines[-1]["nodes"]
    return node


def content(folder: Path) -> dict[str, bytes | Path]:
    """Every file and link below a folder."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    return {name: path.readlink() if path.is_symlink() else path.read_bytes() for name, path in paths.items()}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def of_the_test(nodes: SshNodes) -> list[psutil.Process]:
    """Processes whose home is one of the test's."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME", "").startswith(str(nodes.folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_model_arrives_whole_and_is_not_sent_twice(nodes: SshNodes) -> None:
    first = copied(nodes)
    assert (first["id"], first["state"]) == ("spark-2", "copied")
    assert first["hashed_bytes"] >= 2 * SIZE, "every copied blob of weights"
    assert content(store(nodes, 1)) == content(store(nodes, 2))
    sends = [call for call in nodes.calls if "node send" in call]
    assert any("rsync --server" in call and "192.168.100.2" in call for call in nodes.calls), "over the fabric"
    assert copied(nodes)["state"] == "had"
    assert [call for call in nodes.calls if "node send" in call] == sends


def test_only_what_differs_is_sent_and_repaired(nodes: SshNodes) -> None:
    copied(nodes)
    before = content(store(nodes, 1))
    large = max(blobs(nodes, 2).iterdir(), key=lambda path: path.stat().st_size)
    large.write_bytes(large.read_bytes() + b"x")
    ref = store(nodes, 2) / "hub/models--acme--tiny/refs/main"
    ref.write_text(store_kit.OLDER)
    again = copied(nodes)
    assert again["files"] == 2
    assert content(store(nodes, 2)) == before
    assert content(store(nodes, 1)) == before


def test_the_source_may_be_another_node_and_one_without_it_names_the_one_with_it(nodes: SshNodes) -> None:
    refused = run(nodes, "model", MODEL, "duo", "--from", "spark-2", "--json")
    assert refused.returncode == 2
    assert json.loads(refused.stderr)["error"]["remedy"].endswith("--from spark-1")
    copied(nodes)
    shutil.rmtree(store(nodes, 1))
    assert copied(nodes, "--from", "spark-2")["id"] == "spark-1"
    assert content(store(nodes, 1)) == content(store(nodes, 2))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("model", "acme/none", "duo"), 2, "models pull acme/none"),
        (("model", MODEL, "trio"), 2, "cluster list"),
        (("model", MODEL, "duo", "--from", "spark-9"), 2, "spark-1, spark-2"),
        (("image", "repo/engine@sha256:1", "duo"), 2, "tag"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_a_next_step(
    nodes: SshNodes, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = run(nodes, *arguments, "--json")
    assert done.returncode == code
    assert says in json.loads(done.stderr)["error"]["remedy"]
    assert content(store(nodes, 2)) == {}


def test_a_partial_model_is_not_handed_on(nodes: SshNodes) -> None:
    max(blobs(nodes, 1).iterdir(), key=lambda path: path.stat().st_size).unlink()
    done = run(nodes, "model", MODEL, "duo", "--json")
    assert done.returncode == 4
    assert "models pull" in json.loads(done.stderr)["error"]["remedy"]


def test_nodes_without_ssh_to_each_other_get_the_command_for_it(nodes: SshNodes) -> None:
    (nodes.folder / "192.168.100.2").unlink()
    (nodes.folder / "192.168.100.2").mkdir()
    (nodes.folder / "192.168.100.2/refuses").touch()
    done = run(nodes, "model", MODEL, "duo", "--json")
    error = json.loads(done.stderr)["error"]
    assert done.returncode == 1
    assert "Permission denied" in error["summary"]
    assert "ssh-copy-id" in error["detail"] and "@192.168.100.2" in error["detail"]
    assert error["remedy"]


def test_a_damaged_source_is_found_by_the_receiver_and_not_left_there(nodes: SshNodes) -> None:
    large = max(blobs(nodes, 1).iterdir(), key=lambda path: path.stat().st_size)
    large.write_bytes(bytes(large.stat().st_size))
    done = run(nodes, "model", MODEL, "duo", "--json")
    assert done.returncode == 1
    assert "models verify" in json.loads(done.stderr)["error"]["remedy"]
    assert not (blobs(nodes, 2) / large.name).exists()


def test_ctrl_c_ends_the_processes_of_the_nodes_and_the_next_copy_continues(nodes: SshNodes) -> None:
    program = f'#!/bin/sh\nexec {shutil.which("rsync")} --bwlimit=500 "$@"\n'
    nodes.program("rsync", program)
    child = subprocess.Popen(
        [sys.executable, "-m", "spark_tui", "cluster", "copy", "model", MODEL, "duo"], env=nodes.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: any(each.stat().st_size > 500_000 for each in blobs(nodes, 2).glob(".*.*")))
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130
    assert f"cluster copy model {MODEL} duo" in err
    until(lambda: not of_the_test(nodes))
    kept = list((blobs(nodes, 2) / PARTIAL_FOLDER).iterdir())
    assert 0 < kept[0].stat().st_size < SIZE
    assert not (store(nodes, 2) / "hub/models--acme--tiny/snapshots").exists(), "nothing names it whole"
    (nodes.folder / "bin/rsync").unlink()
    copied(nodes)
    assert content(store(nodes, 1)) == content(store(nodes, 2))
