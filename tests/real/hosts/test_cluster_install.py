"""`cluster install` over a real ssh, to a node that has Python and no spark-tui, no pip and no network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_tui import __version__
from tests.real.lab import Rig
from tests.real.lab.support import wait_until

NODE = "root@spark-2"
SECONDS = 300


@pytest.fixture
def home(rig: Rig, tmp_path: Path) -> Iterator[Path]:
    """The desk's home; the node's is as it was afterwards."""
    node = rig.node(2)
    node.run(["sh", "-c", "echo 'echo Welcome to $HOSTNAME' > /root/.bashrc"])
    yield tmp_path
    # By name: folders of the machine are mounted elsewhere below this home.
    node.run(["rm", "-rf", "/root/.bashrc", "/root/.local/bin/spark-tui", "/root/.local/share/spark-tui"])


def desk(rig: Rig, home: Path, *arguments: str) -> list[str]:
    """spark-tui at the desk, as somebody with a home of their own."""
    words = ("env", f"HOME={home}", f"XDG_RUNTIME_DIR={home}", sys.executable, "-m", "spark_tui", *arguments)
    return rig.desk_argv(words)


def ask(rig: Rig, home: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        desk(rig, home, *arguments), capture_output=True, text=True, check=False, timeout=SECONDS
    )  # fmt: skip
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def test_a_node_gets_this_version_and_answers_with_it(rig: Rig, home: Path) -> None:
    code, out = ask(rig, home, "cluster", "install", NODE, "--json")
    assert code == 0, out
    assert [(each["id"], each["version"], each["copied"]) for each in json.loads(out)] == [
        ("spark-2", __version__, True)
    ]
    code, out = ask(rig, home, "--host", "spark-2", "status", "--json")
    assert code == 0, out
    answer = out[out.index("{") :]  # after the greeting of that shell
    assert json.loads(answer)["host"]["id"] == "spark-2"
    code, out = ask(rig, home, "--host", "spark-2", "--version")
    assert out.endswith(f"spark-tui {__version__}\n")
    nodes = [f"root@spark-{number},fabric=192.168.100.{number},if=enp1s0f0np0" for number in (1, 2)]
    assert ask(rig, home, "cluster", "add", "duo", "--node", nodes[0], "--node", nodes[1])[0] == 0
    code, out = ask(rig, home, "cluster", "show", "duo", "--json")
    first, second = json.loads(out)["nodes"]
    assert (first["version"], second["version"]) == (None, __version__)
    assert "not installed" in first["version_reason"]
    code, out = ask(rig, home, "cluster", "install", NODE, "--json")
    assert [each["copied"] for each in json.loads(out)] == [False]


def test_an_installation_that_is_killed_leaves_nothing_and_is_repeated(rig: Rig, home: Path) -> None:
    node = rig.node(2)
    with subprocess.Popen(desk(rig, home, "cluster", "install", NODE), stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "copying" in child.stderr.readline()
        child.kill()
    assert wait_until(lambda: not node.run(["sh", "-c", "pgrep -f '[s]tdin.buffer.read' || true"]), 60)
    assert node.try_run(["test", "-e", "/root/.local/bin/spark-tui"]).returncode == 1
    assert ask(rig, home, "cluster", "install", NODE)[0] == 0
    assert ask(rig, home, "--host", "spark-2", "--version")[1].endswith(f"spark-tui {__version__}\n")
