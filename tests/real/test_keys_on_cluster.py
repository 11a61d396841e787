"""By keys alone at the head of two real hosts: nodes, launch, chat, bench, stop; with a double, a lost rank."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spark_tui.use.chat.screen.chat import LATE_ESC_SECONDS
from tests.pty_app import PtyApp
from tests.real.lab import Lab, Rig
from tests.real.lab.cluster import FABRIC_A, NUMBERS
from tests.real.lab.node import CHECKOUT, Node
from tests.real.lab.support import wait_until
from tests.real.lab.vllm_image import SERVE_TAG
from tests.real.test_cluster import NAME, QUICK, furnished, preset_text
from tests.real.test_keys_on_engine import type_into

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]

BOOT_SECONDS = 900
"""Of two engines on a machine that others may use too; the launch, and the restart."""
RANKS = {name: [name, f"{name}-rank1"] for name in (NAME, QUICK)}


@pytest.fixture
def head(vllm_lab: Lab, rig: Rig) -> Iterator[Node]:
    """The first host, with a cluster of both in its settings and the presets."""
    rig.load_image(SERVE_TAG)
    node = rig.node(1)
    store = furnished(rig, vllm_lab)
    there = f"env PYTHONPATH={CHECKOUT} SPARK_TUI_STORE={store} {sys.executable} -m spark_tui"
    nodes = (
        f'{{ ssh = "spark-{number}", fabric = ["{FABRIC_A.address(number)}"], interfaces = ["{FABRIC_A.name}"] }}'
        for number in NUMBERS
    )
    settings = [
        f'store = "{store}"', "[hosts]", f'spark-2 = {{ ssh = "spark-2", command = "{there}" }}',
        "[clusters.duo]", f"nodes = [{', '.join(nodes)}]",
    ]  # fmt: skip
    presets = {f"presets/{name}.yaml": preset_text(name) for name in RANKS}
    files = {"settings.toml": "\n".join((*settings, "")), **presets}
    for name, text in files.items():
        path = f"/root/.config/spark-tui/{name}"
        node.run(["sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}"], stdin=text.encode())
    yield node
    for number in NUMBERS:
        rig.node(number).engine.try_docker("rm", "--force", *itertools.chain(*RANKS.values()))


def program(node: Node) -> list[str]:
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", "PYTHONPATH": str(CHECKOUT)}
    return node.argv([sys.executable, "-m", "spark_tui"], terminal)


def running(rig: Rig) -> list[str]:
    return [
        name for number in NUMBERS for name in rig.node(number).engine.docker("ps", "--format", "{{.Names}}").split()
    ]


def spark_tui(node: Node, *words: str) -> Any:
    """What the program there prints as JSON."""
    env = {"LANG": "C.UTF-8", "PYTHONPATH": str(CHECKOUT)}
    return json.loads(node.run([sys.executable, "-m", "spark_tui", *words, "--json"], env=env))


def test_nodes_launch_chat_bench_and_stop(head: Node, rig: Rig) -> None:
    with PtyApp(program(head), env=os.environ, rows=40) as app:
        app.wait_for("1 Home", "docker OK", timeout=60)
        app.send("J")
        app.wait_for("duo  2 nodes", "GiB", "Nothing runs on several nodes.", timeout=60)
        app.send("esc")
        app.wait_for("[1 Home]")
        _launch(app, NAME)
        assert running(rig) == RANKS[NAME]
        _see_nodes(app)
        _ask(app)
        _measure(app)
        assert wait_until(lambda: bool(spark_tui(head, "results", "list")), 120, pause=2)
        (entry,) = spark_tui(head, "results", "list")
        run = spark_tui(head, "results", "show", entry["id"])
        assert run["run"]["conditions"]["nodes"] == ["spark-1", "spark-2"]
        app.send("J")
        _stop(app, rig, NAME)
        app.send("q")
        assert app.wait_end(timeout=60) == 0


def test_a_lost_rank_is_seen_and_all_start_again(head: Node, rig: Rig) -> None:
    with PtyApp(program(head), env=os.environ, rows=40) as app:
        app.wait_for("1 Home", "docker OK", timeout=60)
        _launch(app, QUICK)
        _lose_a_rank(app, rig)
        _stop(app, rig, QUICK)
        app.send("q")
        assert app.wait_end(timeout=60) == 0


def _launch(app: PtyApp, name: str) -> None:
    """Needs two nodes: the form names them by itself."""
    app.send("3")
    app.wait_for("gpt-oss-120b")
    app.send("/", *name, "enter")
    app.wait_for("1 of", name)
    app.send("enter")
    app.wait_for("this machine  [duo]", "tp 2, joined by mp", "2 nodes", timeout=60)
    app.send("ctrl+l")
    app.wait_for("check nodes", "start workers", timeout=60)
    app.wait_for(f"{name} ready", timeout=BOOT_SECONDS)


def _stop(app: PtyApp, rig: Rig, name: str) -> None:
    """On the page of the cluster, which is left again."""
    app.wait_for(f"{name:<8}ready", timeout=60)
    app.send("x")
    app.wait_for(f"Stop {name} on all nodes?")
    app.send("y")
    app.wait_for("Nothing runs on several nodes.", timeout=120)
    assert running(rig) == []
    app.send("esc")
    app.wait_gone("Nothing runs on several nodes.")


def _see_nodes(app: PtyApp) -> None:
    app.send("5")
    shown = app.wait_for("Nodes now", "spark-2", "MB/s", timeout=60)
    assert re.search(r"spark-2 .* GiB", shown)


def _ask(app: PtyApp) -> None:
    app.send("6")
    app.wait_for("Message to m")
    app.send(*"Hello", "enter")
    app.wait_for("ttft", " tok/s", timeout=120)
    app.send("esc")
    time.sleep(2 * LATE_ESC_SECONDS)  # one pressed to stop an answer that has just ended must not leave the prompt
    app.send("esc")
    app.wait_for("Enter Write")


def _measure(app: PtyApp) -> None:
    app.send("7")
    app.wait_for("No runs yet", NAME)
    app.send("b")
    app.wait_for("prompt tokens", "^l measure")
    type_into(app, "engine", {"prompt tokens": "32", "answer tokens": "16", "streams": "1", "passes": "1"})
    app.send("ctrl+l")
    app.wait_gone("^l measure")


def _lose_a_rank(app: PtyApp, rig: Rig) -> None:
    """All ranks are stopped and started again by the watcher, which the screen follows."""
    app.send("J")
    app.wait_for(f"{QUICK:<8}ready", timeout=120)
    rig.node(2).engine.docker("kill", RANKS[QUICK][1])
    app.wait_for("1 of 3 this hour", timeout=120)
    assert wait_until(lambda: running(rig) == RANKS[QUICK], BOOT_SECONDS, pause=1)
    app.wait_for(f"{QUICK:<8}ready", timeout=BOOT_SECONDS)
