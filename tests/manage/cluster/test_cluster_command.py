"""`cluster`: the settings' clusters, with what their nodes say through ssh."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from spark_tui import __version__
from tests.base.test_nodes import SPARK, answer
from tests.cli.world import in_process
from tests.fake_ssh import FakeSsh

OTHER = answer(enp1s0f0np0="192.168.100.2", enP2p1s0f0np0="192.168.101.2")


@pytest.fixture
def ssh(tmp_path: Path) -> FakeSsh:
    fake = FakeSsh(tmp_path / "ssh")
    fake.hosts('lab = "nv@spark-2"\n# kept')
    fake.answer("nv@spark-1", SPARK)
    fake.answer("nv@spark-2", OTHER)
    return fake


def run(ssh: FakeSsh, *arguments: str, **variables: str) -> CompletedProcess[str]:
    return in_process(arguments, ssh.environment | variables)


def settings(ssh: FakeSsh) -> Any:
    return tomllib.loads((Path(ssh.environment["HOME"]) / ".config/spark-tui/settings.toml").read_text())


def test_a_cluster_is_added_with_what_its_nodes_say_listed_shown_and_removed(ssh: FakeSsh) -> None:
    added = run(ssh, "cluster", "add", "duo", "--node", "nv@spark-1", "--node", "nv@spark-2", "--json")
    assert added.returncode == 0, added.stderr
    nodes = json.loads(added.stdout)["nodes"]
    assert [(node["id"], node["rank"], node["ssh"]) for node in nodes] == [
        ("spark-1", 0, "nv@spark-1"), ("lab", 1, "lab"),
    ], "a host of the settings is named as there"  # fmt: skip
    assert nodes[1]["fabric"] == ["192.168.100.2", "192.168.101.2"]
    assert nodes[0]["rdma_devices"] == ["rocep1s0f0", "roceP2p1s0f0"]
    assert {tuple(call[-1:]) for call in ssh.calls} == {("ip -j -4 addr",)}
    kept = settings(ssh)
    assert kept["hosts"] == {"lab": "nv@spark-2"}
    assert kept["clusters"]["duo"]["nodes"][1]["interfaces"] == ["enp1s0f0np0", "enP2p1s0f0np0"]
    assert [each["id"] for each in json.loads(run(ssh, "cluster", "list", "--json").stdout)] == ["duo"]
    shown = run(ssh, "cluster", "show", "duo")
    assert "192.168.101.2" in shown.stdout
    assert run(ssh, "cluster", "remove", "duo").returncode == 0
    assert json.loads(run(ssh, "cluster", "--json").stdout) == []
    assert settings(ssh)["hosts"] == {"lab": "nv@spark-2"}


def test_a_node_that_is_described_is_not_asked(ssh: FakeSsh) -> None:
    nodes = ("--node", "a,fabric=10.0.0.1,if=enp1s0f0np0", "--node", "b,fabric=10.0.0.2,if=eth0")
    added = run(ssh, "cluster", "add", "other", *nodes)
    assert (added.returncode, ssh.calls) == (0, [])
    assert "b: RDMA device unknown" in added.stderr
    assert "a: one RDMA device" in added.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("add", "duo", "--node", "a"), 2),
        (("add", "duo"), 2),
        (("add", "a.b", "--node", "a", "--node", "b"), 2),
        (("add", "duo", "--node", "nv@spark-1", "--node", "nobody@nowhere"), 1),
        (("show", "duo"), 2),
        (("remove", "duo"), 2),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(ssh: FakeSsh, arguments: tuple[str, ...], code: int) -> None:
    done = run(ssh, "cluster", *arguments, "--json")
    assert done.returncode == code
    assert json.loads(done.stderr)["error"]["remedy"]
    assert "clusters" not in settings(ssh)


def test_a_variable_wins_over_the_file_and_that_is_reported(ssh: FakeSsh) -> None:
    nodes = ("--node", "a,fabric=10.0.0.1,if=e0", "--node", "b,fabric=10.0.0.2,if=e0")
    done = run(ssh, "cluster", "add", "duo", *nodes, SPARK_TUI_CLUSTERS="duo=c;d")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["c", "d"]
    assert "SPARK_TUI_CLUSTERS overrides the file" in done.stderr


def test_versions_of_the_nodes_are_shown_and_a_node_that_does_not_answer_says_why(ssh: FakeSsh) -> None:
    def node(name: str, version: str, protocol: int = 1) -> None:
        hello = {"protocol": protocol, "version": version}
        look = {"result": {"hostname": name, "version": version}}
        ssh.answer(f"nv@{name}", f"hello from bashrc\n{json.dumps(hello, separators=(',', ':'))}\n{json.dumps(look)}\n")

    def versions() -> list[str]:
        done = run(ssh, "cluster", "show", "duo", "--json")
        assert done.returncode == 0, done.stderr
        return [str(each["version"] or each["version_reason"]) for each in json.loads(done.stdout)["nodes"]]

    nodes = ("--node", "nv@spark-1,fabric=10.0.0.1,if=e0,hca=r0", "--node", "nv@spark-2,fabric=10.0.0.2,if=e0,hca=r0")
    assert run(ssh, "cluster", "add", "duo", *nodes).returncode == 0
    node("spark-1", __version__)
    node("spark-2", __version__)
    assert versions() == [__version__, __version__]
    assert "note" not in run(ssh, "cluster", "show", "duo").stderr
    node("spark-2", "9.9")
    shown = run(ssh, "cluster", "show", "duo")
    assert "9.9" in shown.stdout
    assert "cluster install duo" in shown.stderr
    node("spark-2", "9.9", protocol=99)
    assert "protocol 99" in versions()[1]
    ssh.answer("nv@spark-2", err="Permission denied (publickey).\n", code=255)
    assert "Permission denied" in versions()[1]
    assert "n/a: " in run(ssh, "cluster", "show", "duo").stdout


# --- a launch on several nodes ----------------------------------------------------------------------------

PRESET = """\
model: org/Qwen3.5-122B-A10B-big
container: vllm/vllm-openai:v0.32.0
min_nodes: 2
max_nodes: 2
defaults: {tensor_parallel: 2, gpu_memory_utilization: 0.85, max_model_len: 32768}
command: vllm serve {model} -tp {tensor_parallel} --gpu-memory-utilization {gpu_memory_utilization}
  --max-model-len {max_model_len}
metadata: {spark_tui: {quantization: NVFP4, weights: 140GB}}
"""
GB = 1_000_000_000


@pytest.fixture
def pair(ssh: FakeSsh) -> FakeSsh:
    """A cluster of two in the settings, with a preset for two."""
    node = "{{ssh='nv@spark-{0}',fabric=['192.168.100.{0}'],interfaces=['enp1s0f0np0']}}"
    folder = Path(ssh.environment["HOME"]) / ".config/spark-tui"
    (folder / "settings.toml").write_text(f"[clusters]\nduo={{nodes=[{node.format(1)},{node.format(2)}]}}\n")
    (folder / "presets").mkdir()
    (folder / "presets/big.yaml").write_text(PRESET)
    ssh.serves("nv@spark-1", memory={"total_bytes": 128 * GB, "available_bytes": 120 * GB})
    ssh.serves("nv@spark-2", memory={"total_bytes": 128 * GB, "available_bytes": 118 * GB})
    return ssh


def test_a_dry_run_prints_the_docker_run_of_each_node_workers_first(pair: FakeSsh) -> None:
    done = run(pair, "up", "big", "--nodes", "duo", "--dry-run")
    assert done.returncode == 0, done.stderr
    worker, head = done.stdout.split("\n\n")
    assert worker.startswith("# spark-2: worker, rank 1 of 2 (ssh nv@spark-2)\ndocker run ")
    assert "--headless" in worker
    assert head.startswith("# spark-1: head, rank 0 of 2")
    assert "-e VLLM_HOST_IP=192.168.100.1" in head
    assert "tp 2, joined by mp" in done.stderr
    assert "unslothai/unsloth#10280" in done.stderr, "what it gains is sourced"
    assert "spark-2, the node with the least memory" in done.stderr
    assert [done.stderr.count(text) for text in ("memory share 0.64 (auto), not 0.85", "--ipc host")] == [1, 1]
    assert "presets allow" not in done.stderr, "the recipe is not blamed for what the fabric takes"
    assert run(pair, "up", "big", "--nodes", "duo").stderr.count("memory share 0.64 (auto), not 0.85") == 1
    differs = json.loads(run(pair, "up", "big", "--nodes", "duo", "--dry-run", "--json").stdout)["deviations"]
    assert [each["id"] for each in differs] == ["gpu_memory_utilization", "exposure", "limits", "fabric", "folders"]


def test_the_fit_is_that_of_the_node_with_the_least_memory(pair: FakeSsh) -> None:
    def fit() -> Any:
        done = run(pair, "up", "big", "--nodes", "spark-1,spark-2", "--dry-run", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    plan = fit()
    assert [(node["id"], node["role"], node["available_bytes"]) for node in plan["nodes"]] == [
        ("spark-2", "worker", 118 * GB), ("spark-1", "head", 120 * GB),
    ]  # fmt: skip
    assert (plan["layout"], plan["backend"]) == ({"tp": 2, "pp": 1, "dp": 1, "replicas": 1}, "mp")
    assert plan["fit"]["verdict"] == "fits_with", "the memory share follows from what it needs"
    assert [each["id"] for each in plan["spreads"] if each["chosen"]] == ["tp"]
    pair.serves("nv@spark-2", memory={"total_bytes": 64 * GB, "available_bytes": 60 * GB})
    assert fit()["fit"]["verdict"] == "does_not_fit", "70 GB of weights on a node of 64"
    pair.answer("nv@spark-2", err="Permission denied (publickey).\n", code=255)
    plan = fit()
    assert plan["fit"]["verdict"] == "unknown"
    assert plan["nodes"][0]["available_bytes"] is None
    assert "Permission denied" in plan["nodes"][0]["available_bytes_reason"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("up", "big", "--nodes", "duo"), 1, "cluster install"),
        (("up", "big"), 4, "--nodes"),
        (("up", "big", "--dry-run"), 4, "--nodes"),
        (("fit", "big"), 4, "--nodes"),
        (("up", "big", "--nodes", "trio", "--dry-run"), 2, "cluster list"),
        (("up", "big", "--nodes", "spark-1", "--dry-run"), 2, "cluster list"),
        (("up", "big", "--parallel", "pp", "--dry-run"), 2, "--nodes"),
        (("up", "gpt-oss-20b", "--nodes", "duo", "--dry-run"), 4, "parallel=replicas"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_with_a_way_on(
    pair: FakeSsh, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = run(pair, *arguments, "--json")
    assert done.returncode == code
    assert says in json.loads(done.stderr)["error"]["remedy"]


def test_lists_say_how_many_nodes_a_preset_needs_instead_of_a_fit(pair: FakeSsh) -> None:
    listed = json.loads(run(pair, "presets", "list", "big", "--json").stdout)
    big = next(each for each in listed if each["id"] == "big")
    assert (big["minimum_sparks"], big["maximum_sparks"], big["verdict"]) == (2, 2, None)
    assert "needs 2 nodes" in big["verdict_reason"]
    assert "2 nodes" in run(pair, "presets", "list", "big").stdout
