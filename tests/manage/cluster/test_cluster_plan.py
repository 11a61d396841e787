"""Launches over several nodes: each rank's container, beside what other launchers run for the same recipe."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_API_KEY_FILE, LABEL_LAUNCH, LABEL_OVERRIDES, LABEL_PORT, LABEL_RANK
from spark_tui.base.engine.docker_run import render_argv
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.remote import Cluster, ClusterNode, Spread, Topology
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.model.rules import check
from spark_tui.manage.cluster.model.plan import SPREADS, ClusterLayout, ClusterPlan, plan_cluster, router_port
from spark_tui.manage.cluster.model.variables import FORBIDDEN, VARIABLES, Backend
from tests import TESTS
from tests.cases import all_cases
from tests.dialect_fixtures import REAL, imported

PATHS = HostPaths(store="/home/spark/vllm", caches="/home/spark/.cache/spark-tui/kernels", home="/home/spark")
FIXTURES = sorted((TESTS / "fixtures/cluster").glob("*.txt"))


def cluster_of(count: int, topology: Topology | None = None) -> Cluster:
    def node(number: int) -> ClusterNode:
        fabric = (f"192.168.100.{number}", f"192.168.101.{number}")
        return ClusterNode(f"nv@spark-{number}", fabric, ("enp1s0f0np0", "enP2p1s0f0np0"))

    wiring = topology or (Topology.DIRECT if count == 2 else Topology.SWITCH)
    return Cluster("lab", tuple(map(node, range(1, count + 1))), wiring)


def preset(text: str = "", **changes: Any) -> Preset:
    command = "" if "command:" in text else "command: vllm serve {model}\n"
    document = parse(f"model: org/m\ncontainer: org/vllm:1\n{command}{text}", "r.yaml")
    return replace(preset_from(document, name="r", origin=Origin.USER, file="r.yaml"), **changes)


def planned(found: Preset, count: int = 2, *settings: str, **more: Any) -> ClusterPlan:
    overrides = overrides_from_pairs(dict(setting.split("=", 1) for setting in settings))
    cluster = more.pop("cluster", None) or cluster_of(count)
    return plan_cluster(found, overrides, PATHS, cluster, launch_id="l1", **more)


def argv(plan: ClusterPlan, rank: int = 0) -> tuple[str, ...]:
    return plan.ranks[rank].plan.spec.command


def env(plan: ClusterPlan, rank: int = 0) -> dict[str, str]:
    return {each.name: each.value for each in plan.ranks[rank].plan.spec.env}


# --- beside its recipe ------------------------------------------------------------------------------------


def differs(plan: ClusterPlan) -> dict[str, str]:
    return {each.id: each.launch for each in check.deviations(plan.head.plan)}


def test_a_head_says_what_the_fabric_takes_and_who_reaches_it() -> None:
    needed, rdma = "--network host --ipc host", "--device /dev/infiniband --cap-add IPC_LOCK"
    for settings in ((), ("distributed_executor_backend=ray",)):
        found = differs(planned(preset(), 2, *settings))
        assert (found["fabric"], found["exposure"]) == (f"{needed} {rdma}", "--host 127.0.0.1")
        assert not {"ipc", "shm_size"} & found.keys()
    assert "exposure" not in differs(planned(preset(), 2, "exposure=lan"))
    own = "executor_config: {network: host, ipc: host}\n"
    assert differs(planned(preset(own)))["fabric"] == rdma, "what the recipe says is no deviation"
    sized = differs(planned(preset("executor_config: {shm_size: 32g}\n")))
    assert sized["fabric"] == f"--network host {rdma}" and "ipc" not in sized


def test_a_replica_says_that_the_fabric_reaches_it_too() -> None:
    found = differs(planned(preset(), 2, spread=Spread.REPLICAS))
    assert found["exposure"] == "-p 127.0.0.1:8000:8000 -p 192.168.100.1:8000:8000" and "fabric" not in found


# --- beside other launchers -------------------------------------------------------------------------------

DEVIATIONS = {
    # ours or theirs, by flag or variable: why
    "--privileged": "never: /dev/infiniband, IPC_LOCK and memlock are what RDMA needs",
    "--device": "eugr has it through --privileged",
    "--cap-add": "IPC_LOCK for registered memory; SYS_PTRACE is for debuggers",
    "--ulimit": "memlock and stack always; one limit of open files for all",
    "--ipc": "the host's, as eugr has it, unless the recipe sizes /dev/shm",
    "--shm-size": "as the recipe says; with the host's IPC there is none to size",
    "--security-opt": "Docker's defaults",
    "--user": "images are built for root, and caches are keyed to it",
    "--gpus": "all: a Spark has one",
    "--rm": "never: the log of a failed rank must stay",
    "--entrypoint": "the image's own where it runs the command; NVIDIA's sets CUDA forward compatibility",
    "--name": "the preset's, with the rank for workers",
    "--label": "ours name launch, rank, preset and settings",
    "--oom-score-adj": "the engine ends before the system does",
    "-v": "our model store and caches",
    "HOME": "root's own", "HF_HOME": "our model store", "HF_HUB_CACHE": "our model store",
    "TRANSFORMERS_OFFLINE": "HF_HUB_OFFLINE covers it",
    "HF_HUB_OFFLINE": "workers only: the head may fetch its model",
    "CUTE_DSL_ARCH": "the recipe's to set", "PYTORCH_CUDA_ALLOC_CONF": "the recipe's to set",
    "NODE_IP": "for sparkrun's own scripts", "NCCL_NET": "NCCL finds RDMA by itself, and says so when not",
    "NCCL_CROSS_NIC": "NCCL's default suits twins of one cage", "NCCL_CUMEM_ENABLE": "NCCL's default",
    "UCX_NET_DEVICES": "the interface, as eugr has it",
    "IMAGE": "sparkrun replaces eugr's retired -tf5 image by the plain one",
    "VLLM_ENGINE_READY_TIMEOUT_S": "a large model takes longer than ten minutes",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "a lost link ends the engine after 300 s",
    "--served-model-name": "sparkrun adds the model's own name",
    "--master-port": "29501, as eugr has it; sparkrun 25000",
}  # fmt: skip
INTERFACES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "MN_IF_NAME", "OMPI_MCA_btl_tcp_if_include",
              "NCCL_SOCKET_IFNAME")  # fmt: skip
"""sparkrun lists both twins; Gloo and vLLM take one name."""
WHERE_ELSE = re.compile(r"RAY_.*|.*_CACHE_(DIR|ROOT|HOME)|FLASHINFER_WORKSPACE_BASE|TORCH_HOME|TORCH_EXTENSIONS_DIR")
"""eugr sets Ray's variables without Ray too; sparkrun moves compiled kernels, which we mount where libraries look."""


@dataclass(frozen=True)
class Run:
    """A docker run, taken apart: flags, variables, image, and the server's words in their order of options."""

    flags: frozenset[tuple[str, str]]
    env: dict[str, str]
    image: str
    words: tuple[str, ...]
    options: frozenset[tuple[str, ...]]


SWITCHES = ("-d", "--rm", "--privileged")


def taken_apart(line: tuple[str, ...]) -> Run:
    flags, variables, words = set(), {}, list(line[2:])
    while words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        value = value if equals or name in SWITCHES else words.pop(0)
        if name == "-e":
            variables[value.partition("=")[0]] = value.partition("=")[2]
        elif name != "-d":
            flags.add(({"--volume": "-v", "--env": "-e"}.get(name, name), value))
    image, *rest = words
    options: list[tuple[str, ...]] = [()]
    for word in rest:
        options = [*options, (word,)] if re.match(r"--?[A-Za-z]", word) else [*options[:-1], (*options[-1], word)]
    return Run(frozenset(flags), variables, image, tuple(rest), frozenset(options[1:]))


def deviations(path: Path) -> set[str]:
    """What differs from the fixture's launcher, by flag, variable or option of the server; ranks and values that must
    be equal are asserted."""
    lines = path.read_text().splitlines()
    recipe = REAL / next(line.split()[-1] for line in lines if line.startswith("# recipe:"))
    theirs = [taken_apart(tuple(shlex.split(line))) for line in lines if not line.startswith("#")]
    found = imported(recipe).preset
    assert found is not None
    assert found.min_nodes == len(theirs), "it is imported for as many nodes as it was made for"
    plan = planned(found, len(theirs), "exposure=lan", "api_key=no")
    differing = set()
    for rank, their in zip(plan.ranks, theirs, strict=True):
        our = taken_apart(tuple(render_argv(rank.plan.spec)))
        for name in INTERFACES:
            assert our.env[name] == their.env[name].split(",")[0]
        names = {name for name in {*our.env, *their.env} if our.env.get(name) != their.env.get(name)}
        differing |= {each for each in names.difference(INTERFACES) if not WHERE_ELSE.fullmatch(each)}
        differing |= {name for name, _ in our.flags ^ their.flags}
        differing |= {option[0] for option in our.options ^ their.options}
        differing |= {"IMAGE"} if our.image != their.image else set()
    return differing


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_each_rank_is_what_the_recipes_own_launcher_runs_but_for_the_stated_deviations(path: Path) -> None:
    assert deviations(path) <= set(DEVIATIONS)


def test_every_stated_deviation_is_one() -> None:
    assert len(FIXTURES) >= 8
    assert set(DEVIATIONS) == set().union(*map(deviations, FIXTURES))


# --- how it is spread -------------------------------------------------------------------------------------


@all_cases(
    ("text", "count", "settings", "more", "layout"),
    [
        ("min_nodes: 2\ndefaults: {tensor_parallel: 2}\n", 2, (), {}, ClusterLayout(tensor=2)),
        ("min_nodes: 4\ndefaults: {tensor_parallel: 2, pipeline_parallel: 2}\n", 4, (), {}, ClusterLayout(2, 2)),
        ("", 2, (), {"heads": 32}, ClusterLayout(tensor=2)),
        ("", 4, (), {}, ClusterLayout(tensor=4)),
        ("", 3, (), {}, ClusterLayout(pipeline=3)),
        ("", 3, (), {"heads": 24}, ClusterLayout(tensor=3)),
        ("", 2, (), {"heads": 25}, ClusterLayout(pipeline=2)),
        ("", 4, ("tensor_parallel=2", "pipeline_parallel=2"), {}, ClusterLayout(2, 2)),
        ("defaults: {tensor_parallel: 4}\n", 2, (), {"spread": Spread.TENSOR}, ClusterLayout(tensor=2)),
        ("", 2, (), {"spread": Spread.PIPELINE}, ClusterLayout(pipeline=2)),
        ("", 2, (), {"spread": Spread.DATA}, ClusterLayout(data=2)),
        ("max_nodes: 1\n", 2, (), {"spread": Spread.REPLICAS}, ClusterLayout(replicas=2)),
    ],
)
def test_the_spread_is_the_one_asked_for_else_the_recipes_else_what_the_heads_allow(
    text: str, count: int, settings: tuple[str, ...], more: dict[str, Any], layout: ClusterLayout
) -> None:
    command = "" if "defaults" not in text else "command: vllm serve {model} -tp {tensor_parallel}\n"
    command = command.replace("}\n", "} -pp {pipeline_parallel}\n") if "pipeline" in text else command
    plan = planned(preset(text + command), count, *settings, **more)
    assert plan.layout == layout
    numbers = {"--tensor-parallel-size": layout.tensor, "--pipeline-parallel-size": layout.pipeline}
    for flag, ways in numbers.items():
        words = argv(plan)
        short = {"--tensor-parallel-size": "-tp", "--pipeline-parallel-size": "-pp"}[flag]
        given = [words[at + 1] for at, word in enumerate(words) if word in (flag, short)]
        assert (given or ["1"]) == [str(ways)], "said once, and as planned"


@pytest.mark.parametrize(
    ("text", "count", "more", "kind"),
    [
        ("min_nodes: 3\n", 2, {}, RefusedError),
        ("max_nodes: 2\n", 3, {}, RefusedError),
        ("max_nodes: 1\n", 2, {}, RefusedError),
        ("min_nodes: 2\n", 2, {"spread": Spread.REPLICAS}, RefusedError),
        ("", 3, {"heads": 32, "spread": Spread.TENSOR}, RefusedError),
        ("defaults: {tensor_parallel: 2}\ncommand: vllm serve {model} -tp {tensor_parallel}\n", 3, {}, UsageError),
        ("command: vllm serve {model} -tp 2 -dp 2\n", 4, {}, UsageError),
        ("runtime: llama-cpp\ncommand: llama-server -hf {model}\n", 2, {}, UsageError),
        ("command: bash -c 'vllm serve {model} | tee log'\n", 2, {}, UsageError),
    ],
)
def test_what_does_not_add_up_is_refused_with_a_way_out(
    text: str, count: int, more: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        planned(preset(text), count, **more)
    assert caught.value.remedy  # type: ignore[attr-defined]


def test_every_way_of_spreading_states_gain_cost_and_source() -> None:
    assert set(SPREADS) == set(Spread)
    assert all(facts.gain and facts.cost and facts.source for facts in SPREADS.values())


def test_heads_are_shared_as_far_as_there_are_any() -> None:
    assert ClusterLayout(tensor=4).cache_ways(2) == 2
    assert ClusterLayout(tensor=2, pipeline=2).cache_ways(8) == 4
    assert ClusterLayout(tensor=2, pipeline=3).cache_ways(None) == 3, "unknown heads, or one latent row: not divided"


# --- the ranks --------------------------------------------------------------------------------------------


def test_every_rank_carries_the_launch_its_number_and_no_more_rights_than_rdma_needs() -> None:
    plan = planned(preset("min_nodes: 2\n"), 2, "max_model_len=4096", env_file="/home/spark/key.env")
    assert [each.role for each in plan.start_order] == ["worker", "head"], "workers first"
    for number, each in enumerate(plan.ranks):
        spec = each.plan.spec
        assert (spec.label(LABEL_LAUNCH), spec.label(LABEL_RANK)) == ("l1", f"{number}/2")
        assert spec.label(LABEL_OVERRIDES) == '{"max_model_len": "4096"}', "what the person changed, not what we add"
        assert (spec.network, spec.ipc, spec.privileged, spec.ports) == ("host", "host", False, ())
        assert (spec.devices, spec.cap_add) == (("/dev/infiniband",), ("IPC_LOCK",))
        assert {limit.name: limit.hard for limit in spec.ulimits} == {
            "nofile": 1048576, "memlock": -1, "stack": 67108864,
        }  # fmt: skip
    head, worker = (each.plan.spec for each in plan.ranks)
    assert (head.name, worker.name) == ("r", "r-rank1")
    assert (head.env_files, worker.env_files) == (("/home/spark/key.env",), ()), "keys go to the head alone"
    assert head.label(LABEL_PORT) == "8000"
    assert not worker.label(LABEL_PORT) + worker.label(LABEL_API_KEY_FILE), "a worker has no API"


@pytest.mark.parametrize("runtime", ["vllm serve {model}", "python3 -m sglang.launch_server --model-path {model}"])
def test_the_api_key_is_the_heads(runtime: str) -> None:
    text = f"command: {runtime} --tp {{tensor_parallel}}\ndefaults: {{tensor_parallel: 2}}\n"
    if runtime.startswith("vllm"):
        text = text.replace("--tp", "-tp")
    plan = planned(preset(text), 2, "exposure=lan", env_file="/home/spark/key.env")
    head, worker = (each.plan.spec for each in plan.ranks)
    assert (head.env_files, worker.env_files) == (("/home/spark/key.env",), ())
    assert not any("API_KEY" in word for word in worker.command)
    assert not worker.label(LABEL_API_KEY_FILE)


def test_a_launch_id_is_no_setting() -> None:
    first, second = (
        plan_cluster(preset(), overrides_from_pairs({}), PATHS, cluster_of(2), launch_id=text) for text in "ab"
    )
    hashes = [[each.plan.spec.label("io.spark-tui.spec-hash") for each in plan.ranks] for plan in (first, second)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 2


def test_the_nodes_own_values_win_over_a_recipe_made_elsewhere_and_the_persons_over_both() -> None:
    text = "env: {NCCL_SOCKET_IFNAME: eth9, NCCL_IB_GID_INDEX: '3', NCCL_IB_DISABLE: '1', X: '1'}\n"
    plan = planned(preset(text), 2, "env.GLOO_SOCKET_IFNAME=lo")
    for rank in (0, 1):
        found = env(plan, rank)
        assert found["NCCL_SOCKET_IFNAME"] == "enp1s0f0np0"
        assert (found["NCCL_IB_DISABLE"], found["X"], found["GLOO_SOCKET_IFNAME"]) == ("1", "1", "lo")
        assert not set(FORBIDDEN) & set(found)
        assert found["VLLM_HOST_IP"] == f"192.168.100.{rank + 1}"
    assert "HF_HUB_OFFLINE" not in env(plan)
    assert env(plan, 1)["HF_HUB_OFFLINE"] == "1", "a worker downloads nothing by itself"
    notes = " ".join(plan.notes)
    assert "NCCL_IB_GID_INDEX" in notes
    assert "NCCL_SOCKET_IFNAME" in notes


def test_the_silence_after_which_an_engine_ends_is_stated() -> None:
    assert env(planned(preset()))["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "300"
    longer = planned(preset(), 2, "env.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=600")
    assert env(longer)["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "600"
    assert any("600 s" in note for note in longer.notes)


def test_native_ranks_meet_at_the_head_and_only_workers_are_headless() -> None:
    plan = planned(preset(), 2)
    assert plan.backend is Backend.MP
    meet = ("--master-addr", "192.168.100.1", "--master-port", "29501")
    assert argv(plan)[-8:] == ("--nnodes", "2", "--node-rank", "0", *meet)
    assert argv(plan, 1)[-9:] == ("--nnodes", "2", "--node-rank", "1", *meet, "--headless")


def test_data_parallel_ranks_have_the_options_that_each_takes() -> None:
    plan = planned(preset(), 2, spread=Spread.DATA)
    head, worker = argv(plan), argv(plan, 1)
    assert head[-2:] == ("--api-server-count", "1")
    assert worker[-3:] == ("--data-parallel-start-rank", "1", "--headless")
    assert "--api-server-count" not in worker, "a headless rank ends with it"
    for words in (head, worker):
        assert words[words.index("--data-parallel-size") + 1] == "2"
        assert words[words.index("--data-parallel-address") + 1] == "192.168.100.1"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("runtime: vllm-ray\n", ()),
        ("command: vllm serve {model} --distributed-executor-backend ray\n", ()),
        ("", ("distributed_executor_backend=ray",)),
    ],
)
def test_ray_is_used_where_the_recipe_or_the_person_asks(text: str, settings: tuple[str, ...]) -> None:
    plan = planned(preset(text), 2, *settings)
    assert plan.backend is Backend.RAY
    head, worker = argv(plan), argv(plan, 1)
    assert head[:2] == ("bash", "-c")
    assert "--node-ip-address 192.168.100.1" in head[2]
    assert "--object-store-memory 1073741824" in head[2]
    assert head.count("--distributed-executor-backend") == 1
    assert head[head.index("--distributed-executor-backend") + 1] == "ray"
    assert worker[:5] == ("ray", "start", "--block", "--address", "192.168.100.1:29501")
    assert worker[-2:] == ("--node-ip-address", "192.168.100.2")
    assert env(plan, 1)["RAY_OVERRIDE_NODE_IP_ADDRESS"] == "192.168.100.2"
    assert planned(preset(text), 2, "distributed_executor_backend=mp").backend is Backend.MP


def test_ray_is_refused_on_a_ring_and_a_ring_has_its_variables() -> None:
    ring = cluster_of(4, Topology.RING)
    with pytest.raises(UsageError):
        planned(preset("runtime: vllm-ray\n"), cluster=ring)
    found = env(planned(preset(), cluster=ring))
    assert (found["NCCL_ALGO"], found["NCCL_IB_MERGE_NICS"], found["NCCL_NET_PLUGIN"]) == ("Ring", "0", "none")
    assert "NCCL_ALGO" not in env(planned(preset(), 4))


def test_tensorrt_llm_starts_its_ranks_by_mpi_in_containers_that_share_ssh_keys() -> None:
    text = "runtime: trtllm\ncommand: trtllm-serve {model} --tp_size {tensor_parallel}\n"
    plan = planned(preset(text + "defaults: {tensor_parallel: 2}\nmin_nodes: 2\n"), 2)
    assert plan.backend is Backend.MPI
    head, worker = argv(plan), argv(plan, 1)
    assert "mpirun -np 2 -H 192.168.100.1,192.168.100.2" in head[2]
    assert head[4:6] == ("trtllm-serve", "org/m")
    assert worker[2].endswith("sshd -p 2233 -D")
    for each in plan.ranks:
        keys = next(mount for mount in each.plan.spec.mounts if mount.source == "/home/spark/.ssh")
        assert keys.read_only
    assert env(plan, 1)["OMPI_MCA_btl_tcp_if_include"] == "enp1s0f0np0"
    assert any(".ssh" in note for note in plan.notes)


def test_replicas_with_keys_have_no_router_and_name_the_gateways_that_serve_them_at_one_address() -> None:
    plan = planned(preset("max_nodes: 1\n"), 2, "api_key=true", spread=Spread.REPLICAS)
    assert router_port(plan) is None
    notes = " ".join(plan.notes)
    assert "gateway --peer spark-2=http://192.168.100.2:8080" in notes
    assert "gateway keys add spark-1 | spark-tui gateway keys use spark-2" in notes
    assert "API key" in notes
    keyless = planned(preset("max_nodes: 1\n"), 2, spread=Spread.REPLICAS)
    assert router_port(keyless) is not None
    assert "gateway" not in " ".join(keyless.notes)


def test_replicas_are_engines_of_their_own() -> None:
    plan = planned(preset("max_nodes: 1\n"), 2, spread=Spread.REPLICAS, env_file="/k")
    alone = planned(preset("max_nodes: 1\n"), 2, spread=Spread.REPLICAS).ranks[0].plan.spec
    for each in plan.ranks:
        spec = each.plan.spec
        assert each.role == "replica"
        assert (spec.name, spec.network, spec.devices, spec.env_files) == ("r", "", (), ("/k",))
        assert spec.command == alone.command
        assert not {"NCCL_SOCKET_IFNAME", "HF_HUB_OFFLINE"} & {variable.name for variable in spec.env}


def test_a_node_whose_fabric_is_unknown_is_named() -> None:
    whole = cluster_of(2)
    half = replace(whole, nodes=(whole.nodes[0], ClusterNode("nv@spark-2", ("192.168.100.2",))))
    with pytest.raises(UsageError) as caught:
        planned(preset(), cluster=half)
    assert "spark-2" in caught.value.summary
    assert "cluster add lab" in caught.value.remedy


def test_templates_see_the_launch() -> None:
    text = "env: {N: '{launch.num_nodes}', R: '{launch.node_rank}', H: '{launch.node_host}'}\n"
    plan = planned(preset(text), 2)
    assert [(env(plan, rank)["N"], env(plan, rank)["R"]) for rank in (0, 1)] == [("2", "0"), ("2", "1")]
    assert env(plan, 1)["H"] == "192.168.100.2"


def test_the_table_of_variables_names_each_once_with_its_reason() -> None:
    names = [each.name for each in VARIABLES]
    assert len(set(names)) == len(names)
    assert all(each.reason for each in VARIABLES)
    assert not set(FORBIDDEN) & set(names)
