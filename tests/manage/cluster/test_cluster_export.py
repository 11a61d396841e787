"""`presets export` for several nodes: a file for each, as `up --nodes` would start it, without asking any of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_tui.base.engine.container import LABEL_LAUNCH, LABEL_RANK
from spark_tui.base.engine.docker_run import read_argv, split_text
from tests.fake_ssh import FakeSsh
from tests.manage.cluster.test_cluster_command import pair, run, ssh

__all__ = ["pair", "ssh"]  # fixtures

SPECS = ("docker-run", "compose", "systemd", "quadlet")


def exported(pair: FakeSsh, *arguments: str) -> Any:
    done = run(pair, "presets", "export", "big", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def command_in(text: str) -> Any:
    """The container of a docker run below its comment, and what of it is left out."""
    return read_argv(split_text(text.partition("\n")[2]))


@pytest.mark.parametrize("nodes", [(), ("--nodes", "duo"), ("--nodes", "spark-1,spark-2")], ids=["only", "duo", "both"])
def test_each_node_has_its_command_the_head_last_and_no_node_is_asked(pair: FakeSsh, nodes: tuple[str, ...]) -> None:
    found = exported(pair, *nodes)
    assert [each["id"] for each in found["nodes"]] == ["spark-2", "spark-1"]
    specs = [command_in(each["text"])[0] for each in found["nodes"]]
    assert [each.label(LABEL_RANK) for each in specs] == ["1/2", "0/2"]
    assert [each.label(LABEL_LAUNCH) for each in specs] == ["", ""], "no launch of this program watches them"
    assert pair.calls == []
    assert found == exported(pair, *nodes), "the same files each time"
    plain = run(pair, "presets", "export", "big", *nodes)
    assert plain.stdout == found["text"] == "\n".join(each["text"] for each in found["nodes"])


def test_the_order_of_the_names_decides_who_is_the_head(pair: FakeSsh) -> None:
    assert [each["id"] for each in exported(pair, "--nodes", "spark-2,spark-1")["nodes"]] == ["spark-1", "spark-2"]


def test_a_command_is_what_a_launch_on_the_nodes_runs(pair: FakeSsh) -> None:
    share = ("--set", "gpu_memory_utilization=0.5")
    dry = json.loads(run(pair, "up", "big", "--nodes", "duo", *share, "--dry-run", "--json").stdout)

    def words(spec: Any) -> Any:
        return [word for word in spec if not word.startswith(f"{LABEL_LAUNCH}=")]

    for planned, file in zip(dry["nodes"], exported(pair, *share)["nodes"], strict=True):
        assert (planned["id"], read_argv(words(planned["argv"]))) == (file["id"], command_in(file["text"]))


@pytest.mark.parametrize("form", SPECS)
def test_every_form_writes_a_file_for_each_node(pair: FakeSsh, tmp_path: Path, form: str) -> None:
    found = exported(pair, "--format", form, "-o", str(tmp_path / "out.x"))
    files = [str(tmp_path / f"out-{node}.x") for node in ("spark-2", "spark-1")]
    assert [each["file"] for each in found["nodes"]] == files
    assert [Path(each).read_text() for each in files] == [each["text"] for each in found["nodes"]]
    assert [each.split("\n")[0] for each in (each["text"] for each in found["nodes"])] == [
        "# spark-2: rank 1 of 2",
        "# spark-1: rank 0 of 2",
    ]
    assert run(pair, "presets", "export", "big", "--format", form, "-o", str(tmp_path / "out.x")).returncode == 4


def test_a_name_without_a_suffix_gives_names_without_one(pair: FakeSsh, tmp_path: Path) -> None:
    exported(pair, "-o", str(tmp_path / "out"))
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out-spark-1", "out-spark-2"]


def test_a_worker_s_service_has_its_own_name(pair: FakeSsh) -> None:
    services = [yaml.safe_load(each["text"])["services"] for each in exported(pair, "--format", "compose")["nodes"]]
    assert [[*each] for each in services] == [["big-rank1"], ["big"]]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--nodes", "duo", "--format", "sparkrun"), 2, "--nodes"),
        (("--nodes", "trio"), 2, "cluster list"),
        (("--nodes", "spark-1"), 2, "cluster list"),
        (("-o", "/nonexistent/x"), 1, "-o FILE"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_a_way_on(
    pair: FakeSsh, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = run(pair, "presets", "export", "big", *arguments, "--json")
    assert done.returncode == code
    assert says in json.loads(done.stderr)["error"]["remedy"]


def test_without_a_cluster_it_says_how_to_name_the_nodes(pair: FakeSsh) -> None:
    (Path(pair.environment["HOME"]) / ".config/spark-tui/settings.toml").write_text("")
    done = run(pair, "presets", "export", "big", "--json")
    assert (done.returncode, "cluster add" in json.loads(done.stderr)["error"]["remedy"]) == (2, True)
    assert run(pair, "presets", "export", "big", "--format", "sparkrun").returncode == 0, "a recipe is for any nodes"


def test_with_several_clusters_one_has_to_be_named(pair: FakeSsh) -> None:
    settings = Path(pair.environment["HOME"]) / ".config/spark-tui/settings.toml"
    settings.write_text(settings.read_text() + "other={nodes=[{ssh='a'},{ssh='b'}]}\n")
    assert run(pair, "presets", "export", "big").returncode == 2
    assert len(exported(pair, "--nodes", "duo")["nodes"]) == 2
