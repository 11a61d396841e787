"""`cluster doctor`: what it asks of the nodes through ssh, what it prints, and how it ends."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.protocol import Hello
from spark_tui.base.untrusted import encode
from spark_tui.manage.cluster.model.facts import NodeFacts, NodeProbe
from tests.cli.world import in_process
from tests.fake_ssh import FakeSsh
from tests.manage.cluster.test_cluster_doctor_model import NAMES, healthy


def answers(ssh: FakeSsh, number: int, facts: NodeFacts | None = None, probe: NodeProbe | None = None) -> None:
    """That node's spark-tui answers both verbs, by its clock now."""
    own = healthy(number)
    assert own.facts
    facts = replace(facts or own.facts, clock=(12345.0, 12345.0))

    def printed(result: object) -> str:
        text = f"{encode(Hello(version='1'))}\n{encode({'result': result})}"
        return f"printf '%s\\n' {shlex.quote(text)}"

    now = f"""{printed(facts)} | sed "s/12345.0/$(date +%s)/g" """
    act = f'case "$2" in *facts*) {now};; *) {printed(probe or own.probe)};; esac; exit 0'
    ssh.answer(f"nv@spark-{number}", act=act)


@pytest.fixture
def pair(tmp_path: Path) -> FakeSsh:
    ssh = FakeSsh(tmp_path / "ssh")
    nodes = ",".join(
        f"{{ssh='nv@spark-{number}',fabric={list(healthy(number).node.fabric)},interfaces={list(NAMES)}}}"
        for number in (1, 2)
    )
    folder = Path(ssh.environment["HOME"]) / ".config/spark-tui"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(f"[clusters]\nduo={{nodes=[{nodes}]}}\n")
    for number in (1, 2):
        answers(ssh, number)
    return ssh


def run(ssh: FakeSsh, *arguments: str) -> CompletedProcess[str]:
    return in_process(("cluster", "doctor", *arguments), ssh.environment)


def verdicts(done: CompletedProcess[str], verdict: str) -> set[tuple[str, str]]:
    checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return {(each["id"], each["node"]) for each in checks if each["verdict"] == verdict}


def test_a_healthy_pair_ends_with_0_and_says_what_was_not_checked(pair: FakeSsh) -> None:
    done = run(pair, "duo", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert verdicts(done, "FAIL") == verdicts(done, "WARN") == set()
    assert {check for check, _ in verdicts(done, "SKIP")} == {
        "image",
        "nccl",
        "model",
        "rdma_bandwidth",
        "tcp_bandwidth",
        "nccl_bandwidth",
    }
    asked = {call[-1] for call in pair.calls}
    assert asked == {"spark-tui node facts", "spark-tui node probe"}, "nothing else runs there"


def test_a_fault_ends_with_1_and_is_printed_with_its_fix_and_a_proposal(pair: FakeSsh) -> None:
    own = healthy(2).facts
    assert own and own.links
    answers(pair, 2, replace(own, links=(own.links[0], replace(own.links[1], mtu=1500), *own.links[2:])))
    done = run(pair, "duo")
    assert done.returncode == 1
    row = next(line for line in done.stdout.splitlines() if line.startswith("MTU "))
    assert row.split()[1:3] == ["PASS", "FAIL"]
    assert "FAIL  spark-2: MTU" in done.stdout
    assert f"sudo ip link set {NAMES[1]} mtu 9000" in done.stdout
    assert "/etc/netplan/40-cx7.yaml on spark-2" in done.stdout
    assert verdicts(run(pair, "duo", "--json"), "FAIL") == {("mtu", "spark-2")}


def test_a_node_that_does_not_answer_ends_with_3_and_the_other_is_checked(pair: FakeSsh) -> None:
    pair.answer("nv@spark-2", err="ssh: connect to host spark-2 port 22: No route to host\n", code=255)
    done = run(pair, "duo", "--json")
    assert done.returncode == 3
    assert verdicts(done, "FAIL") == {("reach", "spark-2")}
    assert ("carrier", "spark-1") in verdicts(done, "PASS")
    assert ("carrier", "spark-2") in verdicts(done, "SKIP")


def test_a_line_without_an_end_is_the_nodes_fault_and_the_other_is_checked(pair: FakeSsh) -> None:
    pair.answer("nv@spark-2", act="head -c 100000000 /dev/zero")
    done = run(pair, "duo", "--json")
    assert "Traceback" not in done.stderr
    assert verdicts(done, "FAIL") == {("reach", "spark-2")}
    assert ("carrier", "spark-1") in verdicts(done, "PASS")
    remedy = next(each["remedy"] for each in json.loads(done.stdout)["checks"]
                  if (each["id"], each["node"]) == ("reach", "spark-2"))  # fmt: skip
    assert "nv@spark-2" in remedy


def test_an_older_spark_tui_is_to_be_installed_anew(pair: FakeSsh) -> None:
    error = {"error": {"summary": "Unknown verb 'facts'.", "remedy": "Known: look"}}
    pair.answer("nv@spark-2", f"{encode(Hello(version='0'))}\n{encode(error)}\n", code=2)
    done = run(pair, "duo", "--json")
    assert done.returncode == 1
    remedy = next(each["remedy"] for each in json.loads(done.stdout)["checks"]
                  if (each["id"], each["node"]) == ("reach", "spark-2"))  # fmt: skip
    assert "cluster install" in remedy


@pytest.mark.parametrize("arguments", [("trio",), ("duo", "--preset", "no-such-preset"), ()])
def test_a_name_that_nothing_has_is_refused(pair: FakeSsh, arguments: tuple[str, ...]) -> None:
    assert run(pair, *arguments, "--json").returncode == 2
    assert pair.calls == []
