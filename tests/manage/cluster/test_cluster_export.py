"""`presets export` for several nodes: a file for each, as `up --nodes` would start it, without asking any of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_LAUNCH, LABEL_RANK, ContainerSpec, RestartPolicy
from spark_tui.base.engine.docker_run import read_argv, render_text, split_text
from spark_tui.base.errors import PresetError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.remote import Spread
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.dialects.container_files import compose_text, quadlet_text, systemd_text
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.manage.cluster.model.plan import plan_cluster
from tests.cases import all_cases
from tests.catalog.presets.test_launchers import imported
from tests.fake_ssh import FakeSsh
from tests.manage.cluster.test_cluster_command import pair, run, ssh
from tests.manage.cluster.test_cluster_plan import PATHS, argv, cluster_of, preset
from tests.manage.cluster.test_cluster_presets import PRESETS

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
    assert any("models move org/Qwen3.5-122B-A10B-big" in note for note in found["notes"]), "and no second download"
    plain = run(pair, "presets", "export", "big", *nodes)
    assert plain.stdout == found["text"] == "\n".join(each["text"] for each in found["nodes"])


def test_the_order_of_the_names_decides_who_is_the_head(pair: FakeSsh) -> None:
    assert [each["id"] for each in exported(pair, "--nodes", "spark-2,spark-1")["nodes"]] == ["spark-1", "spark-2"]


def test_a_command_is_what_a_launch_on_the_nodes_runs(pair: FakeSsh) -> None:
    share = ("--set", "gpu_memory_utilization=0.5")
    dry = json.loads(run(pair, "up", "big", "--nodes", "duo", *share, "--dry-run", "--json").stdout)

    for planned, file in zip(dry["nodes"], exported(pair, *share)["nodes"], strict=True):
        spec, left = read_argv(planned["argv"])
        labels = tuple(pair for pair in spec.labels if pair[0] != LABEL_LAUNCH)
        assert (planned["id"], (replace(spec, labels=labels), left)) == (file["id"], command_in(file["text"]))


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


# --- there and back -----------------------------------------------------------------------------------

WRITERS = {
    "c.yaml": compose_text, "a.service": systemd_text, "a.container": quadlet_text,
    "run.sh": lambda spec: f"# spark-1: rank 0\n{render_text(spec)}\n",
}  # fmt: skip
JOINED = {
    "ray": ("", "distributed_executor_backend=ray", "tensor_parallel=2"),
    "data": ("", "data_parallel=2"),
    "layers": ("", "pipeline_parallel=2"),
    "sglang": ("runtime: sglang\ncommand: python3 -m sglang.launch_server --model-path {model}\n",),
    "sglang_key": ("runtime: sglang\ncommand: python3 -m sglang.launch_server --model-path {model}\n", "api_key=yes"),
    "mpi": ("runtime: trtllm\ncommand: trtllm-serve {model}\n",),
}
"""Other ways to join the ranks than those of the shipped presets."""


def launches() -> Iterator[tuple[str, Preset, tuple[str, ...]]]:
    yield from ((name, found, ()) for name, found in PRESETS.items())
    yield from ((name, preset(text), tuple(settings)) for name, (text, *settings) in JOINED.items())
    entry = replace(preset(), image="vllm/vllm-openai:nightly")
    yield "ray_by_entrypoint", entry, ("distributed_executor_backend=ray", "tensor_parallel=2")


def read_back(folder: Path, name: str, text: str) -> Preset | PresetError:
    """What an import makes of a file."""
    (found,) = imported(folder, {name: text})
    if found.problem is not None:
        return found.problem
    document = parse(Path(found.file).read_text(), found.file)
    return preset_from(document, name=found.recipe.name, origin=Origin.USER, file=found.file)


@pytest.mark.parametrize("file", WRITERS)
@all_cases("case", tuple(launches()), ids=lambda case: case[0])
def test_the_file_of_the_head_comes_back_as_the_launch_on_all_nodes(
    case: tuple[str, Preset, tuple[str, ...]], file: str, tmp_path: Path
) -> None:
    _, preset, settings = case
    home = tmp_path / "home"
    paths = HostPaths(str(home / "vllm"), str(home / ".cache/spark-tui"), str(home), (1000, 1000))
    overrides = overrides_from_pairs(dict(setting.split("=", 1) for setting in settings))
    cluster = cluster_of(max(2, preset.min_nodes))

    def planned(preset: Preset, overrides: Overrides, keys: str | None = None) -> list[ContainerSpec]:
        plan = plan_cluster(preset, overrides, paths, cluster, launch_id="", env_file=keys)
        return [each.plan.spec for each in plan.ranks]

    def plain(specs: list[ContainerSpec]) -> list[str]:
        """Variables by name: the order in which each of them is set means nothing."""
        named = (replace(each, env=tuple(sorted(each.env, key=lambda variable: variable.name))) for each in specs)
        return [render_text(replace(each, labels=(), restart=RestartPolicy())) for each in named]

    first, *workers = planned(preset, overrides, str(home / "keys.env"))
    back = read_back(tmp_path, file, WRITERS[file](first))
    assert isinstance(back, Preset), back
    assert back.min_nodes == len(cluster.nodes)
    assert plain(planned(back, Overrides())) == plain(planned(preset, overrides))
    for worker in workers:
        refused = read_back(tmp_path, file, WRITERS[file](worker))
        assert isinstance(refused, PresetError)
        assert "up NAME --nodes" in refused.remedy


TWO_NODES = """\
docker run --name node --gpus all --network host --ipc host --device /dev/infiniband -e NCCL_SOCKET_IFNAME=enp1s0f1np1 \
  vllm/vllm-openai:nightly org/m --tensor-parallel-size 2 --nnodes 2 --node-rank {rank} --master-addr 10.0.0.1 {more}
"""


def test_a_guide_s_two_commands_are_one_preset_for_two_nodes(tmp_path: Path) -> None:
    head, worker = TWO_NODES.format(rank=0, more="--master-port=29500"), TWO_NODES.format(rank=1, more="--headless")
    first, second = imported(tmp_path, {"guide.md": f"On one:\n\n```\n{head}```\n\nOn two:\n\n```\n{worker}```\n"})
    assert first.problem is None, first.problem
    assert (first.recipe.preset is not None, second.problem is not None) == (True, True)
    assert first.recipe.preset.min_nodes == 2
    assert any("--nodes CLUSTER" in each for each in first.recipe.changes)
    command = argv(plan_cluster(first.recipe.preset, Overrides(), PATHS, cluster_of(2), launch_id=""), 1)
    assert [command.count(each) for each in ("--nnodes", "--node-rank", "--master-addr", "--headless")] == [1] * 4
    assert "10.0.0.1" not in command


@pytest.mark.parametrize("label", ["0/x", "x/2", "0/0", "9" * 40 + "/2", "0/" + "9" * 40, "/"])
def test_a_label_that_is_no_rank_breaks_nothing(label: str, tmp_path: Path) -> None:
    text = f"docker run --gpus all --network host --label {LABEL_RANK}={label} vllm/vllm-openai:nightly --model org/m\n"
    assert isinstance(read_back(tmp_path, "run.sh", text), Preset)


def test_one_of_several_replicas_is_an_engine_by_itself(tmp_path: Path) -> None:
    cluster = replace(cluster_of(2), nodes=tuple(replace(each, fabric=()) for each in cluster_of(2).nodes))
    paths = HostPaths(str(tmp_path / "home/vllm"), str(tmp_path / "home/.cache/spark-tui"), str(tmp_path / "home"))
    plan = plan_cluster(preset(), Overrides(), paths, cluster, launch_id="", spread=Spread.REPLICAS)
    found = read_back(tmp_path, "c.yaml", compose_text(plan.ranks[1].plan.spec))
    assert isinstance(found, Preset), found
    assert found.min_nodes == 1
