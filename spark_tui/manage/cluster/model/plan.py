"""One launch over several machines: how it is spread, and the container of each rank. Nothing is touched here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import (
    LABEL_API_KEY_FILE,
    LABEL_FABRIC,
    LABEL_LAUNCH,
    LABEL_NODES,
    LABEL_OVERRIDES,
    LABEL_PORT,
    LABEL_RAILS,
    LABEL_RANK,
    LABEL_SPEC_HASH,
    LOOPBACK,
    ImageFacts,
    Mount,
    Ulimit,
    local_model_path,
)
from spark_tui.base.engine.docker_run import spec_hash
from spark_tui.base.engine.invocation import Invocation
from spark_tui.base.engine.runtimes import runtime_named
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.launches import HOUR, ClusterRecord, RankRecord, Stage
from spark_tui.base.protocol import CanaryRequest, RouteRequest, StartRequest
from spark_tui.base.remote import GATEWAY_PORT, Cluster, ClusterNode, Spread, Topology
from spark_tui.base.secret import secret_variables
from spark_tui.catalog.presets.model.command import HOST_NETWORK, command_of
from spark_tui.catalog.presets.model.fetching import hub_models
from spark_tui.catalog.presets.model.overrides import Overrides, pairs_of
from spark_tui.catalog.presets.model.plan import LaunchPlan, Placement, key_wanted, plan
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.manage.cluster.model.variables import (
    DATA_PORT,
    FORBIDDEN,
    MASTER_PORT,
    OBJECT_STORE,
    SGLANG_PORT,
    SILENCE_SECONDS,
    SSH_PORT,
    Backend,
    Rank,
    environment,
)

ROUTER_ABOVE: Final = 1000
"""The router's port above that of the replicas behind it: 9000 for 8000."""
_NOFILE: Final = Ulimit("nofile", 1048576, 1048576)
_INFINIBAND: Final = "/dev/infiniband"
_LOCKED: Final = "IPC_LOCK"
_BACKEND: Final = "distributed_executor_backend"
_WAYS: Final = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_SSH_KEYS: Final = "/tmp/.ssh"  # noqa: S108 - a mount in a fresh container
_SSH_SETUP: Final = (
    f"install -d -m 700 /root/.ssh && cp -rL {_SSH_KEYS}/. /root/.ssh/ && chown -R root:root /root/.ssh && "
    f"mkdir -p /run/sshd && ssh-keygen -A && /usr/sbin/sshd -p {SSH_PORT}"
)


class SpreadFacts(Struct, frozen=True):
    """What a way of spreading costs and gains, and who measured it."""

    gain: str
    cost: str
    source: str


SPREADS: Final[Mapping[Spread, SpreadFacts]] = {
    Spread.TENSOR: SpreadFacts(
        "2.09x decode speed on two nodes, each with its share of the weights",
        "traffic at every layer; the number of nodes must divide the attention heads",
        "unslothai/unsloth#10280",
    ),
    Spread.PIPELINE: SpreadFacts(
        "room for a larger model; 1.08x decode speed on two nodes",
        "no faster for one request; many vLLM versions refuse speculative decoding with it",
        "unslothai/unsloth#10280",
    ),
    Spread.DATA: SpreadFacts(
        "more requests at once behind one address; unmeasured on GB10",
        "every node holds all weights; vLLM 0.32 and newer take it for MoE models alone",
        "vLLM's data-parallel guide",
    ),
    Spread.REPLICAS: SpreadFacts(
        "1.3x to 1.9x throughput on two nodes; a node may fail alone",
        "no faster for one request; every node holds all weights; needs a router such as vllm-router",
        "unslothai/unsloth#10280",
    ),
}


class ClusterLayout(Struct, frozen=True):
    """Ways of each kind; their product is the number of nodes."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    replicas: int = 1

    @property
    def nodes(self) -> int:
        return self.tensor * self.pipeline * self.data * self.replicas

    @property
    def spreads(self) -> tuple[Spread, ...]:
        """The kinds that are used."""
        return tuple(kind for kind, ways in self.ways if ways > 1)

    @property
    def text(self) -> str:
        """`tp 2, pp 2`."""
        return ", ".join(f"{kind.value} {ways}" for kind, ways in self.ways if ways > 1)

    @property
    def ways(self) -> tuple[tuple[Spread, int], ...]:
        return tuple(zip(Spread, (self.tensor, self.pipeline, self.data, self.replicas), strict=True))

    def cache_ways(self, kv_heads: int | None) -> int:
        """How many nodes share one sequence's cache. Heads are divided, and never further than there are; where they
        are unknown, or one latent row stands for all (None), every tensor rank keeps the whole of its layers."""
        return self.pipeline * min(self.tensor, kv_heads or 1)


class RankPlan(Struct, frozen=True):
    """The container of one node."""

    rank: Rank
    plan: LaunchPlan

    @property
    def node(self) -> ClusterNode:
        return self.rank.node

    @property
    def role(self) -> str:
        if self.rank.backend is Backend.NONE:
            return "replica"
        return "worker" if self.rank.number else "head"


class ClusterPlan(Struct, frozen=True):
    """A launch over several machines, decided. `ranks` are in the order of their numbers; `notes` say what was assumed,
    changed or left out, and what must be there before a start."""

    cluster: Cluster
    layout: ClusterLayout
    backend: Backend
    launch_id: str
    ranks: tuple[RankPlan, ...]
    notes: tuple[str, ...] = ()

    @property
    def head(self) -> RankPlan:
        return self.ranks[0]

    @property
    def start_order(self) -> tuple[RankPlan, ...]:
        """Workers first, then the head."""
        return (*self.ranks[1:], self.ranks[0])


# --- how it is spread -------------------------------------------------------------------------------------


def layout_of(
    preset: Preset, overrides: Overrides, nodes: int, asked: Spread | None, heads: int | None
) -> ClusterLayout:
    """How the launch is spread over that many nodes: as asked, else as its command says, else by tensors where the
    attention heads allow it, else by layers. `heads` None: unknown.

    Raises RefusedError for a number of nodes that the preset does not run on or that does not divide its heads, and
    UsageError for parallelism that does not add up.
    """
    if asked is Spread.REPLICAS:
        if preset.min_nodes > 1:
            raise RefusedError(f"{preset.name} needs {preset.min_nodes} nodes for one copy.", "Leave parallel out.")
        return ClusterLayout(replicas=nodes)
    _check_count(preset, nodes)
    own = _own_ways(preset, overrides)
    if asked is None and own.nodes == nodes:
        found = own
    elif asked is None and own.nodes > 1:
        raise UsageError(
            f"{preset.name} is spread over {own.nodes} nodes ({own.text}); {nodes} given.",
            f"Name {own.nodes} nodes, or change the layout: parallel=tp",
        )
    else:
        divisible = nodes in (2, 4, 8) if heads is None else heads % nodes == 0
        kind = asked or (Spread.TENSOR if divisible else Spread.PIPELINE)
        names = {Spread.TENSOR: "tensor", Spread.PIPELINE: "pipeline", Spread.DATA: "data"}
        found = ClusterLayout(**{names[kind]: nodes})
    if heads is not None and heads % found.tensor:
        raise RefusedError(
            f"{found.tensor} nodes do not divide the {heads} attention heads of {preset.model}.",
            "Split by layers: parallel=pp",
        )
    if found.data > 1 and found.tensor * found.pipeline > 1:
        raise UsageError(
            "Data parallel together with tensor or pipeline parallel is not planned.", "Choose one: parallel=tp"
        )
    return found


def _check_count(preset: Preset, nodes: int) -> None:
    """Raises RefusedError for fewer or more nodes than one copy runs on."""
    least, most = preset.min_nodes, preset.max_nodes
    if least <= nodes and (most is None or nodes <= most):
        return
    if most == 1:
        raise RefusedError(
            f"{preset.name} runs on one node; {nodes} given.", "One copy on each node: parallel=replicas"
        )
    limits = f"{least}" if most == least else f"at least {least}" if nodes < least else f"at most {most}"
    raise RefusedError(f"{preset.name} runs on {limits} nodes; {nodes} given.", "See: spark-tui cluster list")


def _own_ways(preset: Preset, overrides: Overrides) -> ClusterLayout:
    """What the command says; a switch of an engine that has none means 1."""
    if preset.facts.runs_as_is:
        return ClusterLayout()
    found = command_of(preset, overrides, preset.model).invocation
    return ClusterLayout(*(max(1, int(found.number(key) or 1)) for key in _WAYS))


def backend_of(preset: Preset, found: Invocation, layout: ClusterLayout) -> Backend:
    """What joins the ranks: the engine's own way, Ray where the recipe asks for it. Raises UsageError for an engine
    without one."""
    if layout.replicas > 1:
        return Backend.NONE
    if preset.engine == "vllm" and not preset.cpu_only:
        wanted = found.value(_BACKEND) or ("ray" if "ray" in preset.runtime.split("-") else "mp")
        return Backend.RAY if wanted == "ray" else Backend.MP
    joined = {"sglang": Backend.SGLANG, "trtllm": Backend.MPI}
    if preset.engine not in joined:
        raise UsageError(
            f"{preset.name} ({preset.runtime}) runs on one node.", "One copy on each node: parallel=replicas"
        )
    return joined[preset.engine]


# --- the ranks --------------------------------------------------------------------------------------------


class _Words(Struct, frozen=True):
    """What a rank's command has beyond the server's own: options, words before it, or a command in its place."""

    options: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()


def plan_cluster(
    preset: Preset,
    overrides: Overrides,
    paths: HostPaths,
    cluster: Cluster,
    *,
    launch_id: str,
    spread: Spread | None = None,
    heads: int | None = None,
    image: ImageFacts | None = None,
    env_file: str | None = None,
) -> ClusterPlan:
    """The containers of one launch on the nodes of `cluster`, the first the head. `paths` and `env_file` are those of
    every node; `image` None: not downloaded; `launch_id` empty: no launch of this program.

    Raises RefusedError and UsageError as `layout_of`, for a node whose addresses are unknown, and for what planning one
    node raises.
    """
    layout = layout_of(preset, overrides, len(cluster.nodes), spread, heads)
    solo = replace(preset, min_nodes=1)
    keys = (("tensor_parallel", layout.tensor), ("pipeline_parallel", layout.pipeline), ("data_parallel", layout.data))
    own = _own_ways(preset, overrides)
    changed = tuple(
        (key, str(ways))
        for (key, ways), before in zip(keys, (own.tensor, own.pipeline, own.data), strict=True)
        if ways != before
    )
    kept = tuple(pair for pair in overrides.values if pair[0] not in dict(changed))
    spread_out = replace(overrides, values=(*kept, *changed))
    found = Invocation() if preset.facts.runs_as_is else command_of(solo, spread_out, preset.model).invocation
    backend = backend_of(preset, found, layout)
    if backend is Backend.RAY:
        if cluster.topology is Topology.RING:
            raise UsageError(
                "Ray does not run on a ring: no subnet reaches all nodes.",
                f"Set {_BACKEND}=mp, or connect the nodes by a switch.",
            )
        spread_out = replace(spread_out, values=(*spread_out.values, (_BACKEND, "ray")))
    if backend is not Backend.NONE:
        unknown = next((node for node in cluster.nodes if not node.complete), None)
        if unknown is not None:
            raise UsageError(
                f"The fabric of {unknown.name} is unknown (address, interface or RDMA device).",
                f"Add it: spark-tui cluster add {cluster.name} --node {unknown.host},fabric=IP,if=NAME ...",
            )
    ranks = tuple(
        Rank(node, number, len(cluster.nodes), backend, cluster.topology) for number, node in enumerate(cluster.nodes)
    )
    plans = tuple(
        RankPlan(rank, _rank_plan(solo, overrides, spread_out, paths, ranks, rank, layout, launch_id, image, env_file))
        for rank in ranks
    )
    found_plan = ClusterPlan(cluster, layout, backend, launch_id, plans)
    notes = (
        *plans[0].plan.notes,
        *_router_notes(found_plan),
        *_notes(preset, overrides, ranks, layout, heads, changed),
    )
    return replace(found_plan, notes=tuple(dict.fromkeys(notes)))


def _rank_plan(
    preset: Preset,
    overrides: Overrides,
    spread: Overrides,
    paths: HostPaths,
    ranks: tuple[Rank, ...],
    rank: Rank,
    layout: ClusterLayout,
    launch_id: str,
    image: ImageFacts | None,
    env_file: str | None,
) -> LaunchPlan:
    """One rank: the plan of a single node, with its own words, variables, rights and labels."""
    joined, is_worker, options = rank.backend is not Backend.NONE, rank.number > 0, preset.options
    words = _words(ranks, rank, layout, paths)
    if joined:
        ipc = options.ipc or ("" if options.shm_size else "host")
        preset = replace(preset, options=replace(options, network=HOST_NETWORK, ipc=ipc))
        recipe = {name: text for name, text in preset.env if name not in FORBIDDEN}
        preset = replace(preset, env=tuple((recipe | environment(rank, recipe)).items()))
    name = spread.name or preset.name
    if joined and is_worker:  # it has no API to protect
        spread, preset = replace(spread, api_key=False), replace(preset, facts=replace(preset.facts, wants_key=False))
    mine = replace(
        spread,
        name=f"{name}-rank{rank.number}" if joined and is_worker else name,
        extra_args=(*spread.extra_args, *words.options),
        without=(*spread.without, *words.without),
    )
    private = env_file if not (joined and is_worker) or secret_variables(preset.env) else None
    place = Placement(
        rank.count if joined else 1, rank.number if joined else 0, _address(rank), words.before, words.instead
    )
    found = plan(preset, mine, paths, image=image, env_file=private, place=place)
    spec = found.spec
    if joined:
        limits = {limit.name: limit for limit in (_NOFILE, *spec.ulimits)}
        spec = replace(
            spec,
            ulimits=tuple(limits.values()),
            devices=tuple(dict.fromkeys((_INFINIBAND, *spec.devices))),
            cap_add=tuple(dict.fromkeys((_LOCKED, *spec.cap_add))),
            mounts=(*spec.mounts, *words.mounts),
        )
    elif _routed(found, rank.node) and spec.ports[0].host_ip == LOOPBACK:
        spec = replace(spec, ports=(*spec.ports, replace(spec.ports[0], host_ip=rank.node.fabric[0])))
    hidden = {LABEL_SPEC_HASH, *((LABEL_PORT, LABEL_API_KEY_FILE) if joined and is_worker else ())}
    changes = pairs_of(overrides)
    own = {LABEL_OVERRIDES: json.dumps(changes) if changes else "", LABEL_RANK: f"{rank.number}/{rank.count}"}
    labels = tuple((key, own.pop(key, text)) for key, text in spec.labels if key not in hidden)
    labels = tuple(pair for pair in (*labels, *own.items()) if pair[1])
    settings = (LABEL_SPEC_HASH, spec_hash(replace(spec, labels=labels)))  # what a launch is called does not count
    node = rank.node
    names = tuple(each.node.name for each in ranks)
    rails, launch = node.hca or node.interfaces, (launch_id,) if launch_id else ()
    lists = ((LABEL_LAUNCH, launch), (LABEL_NODES, names), (LABEL_FABRIC, node.fabric), (LABEL_RAILS, rails))
    where = tuple((key, ",".join(values)) for key, values in lists if values)
    spec = replace(spec, labels=(*labels, *where, settings))
    return replace(found, spec=spec, overrides=overrides, preset=replace(found.preset, options=options))


def router_port(plan: ClusterPlan) -> int | None:
    """Where a router in front of replicas listens on the head; None for one engine, and for replicas that have no
    address for it or a key each."""
    if plan.backend is not Backend.NONE or not all(_routed(each.plan, each.node) for each in plan.ranks):
        return None
    return plan.head.plan.host_port + ROUTER_ABOVE


def _routed(found: LaunchPlan, node: ClusterNode) -> bool:
    """Whether the other nodes can reach a replica by the fabric, and no key of its own keeps them out."""
    return bool(node.fabric and found.spec.ports) and not key_wanted(found.preset, found.overrides)


def _address(rank: Rank) -> str:
    return rank.node.fabric[0] if rank.node.fabric else rank.node.name


def _words(ranks: tuple[Rank, ...], rank: Rank, layout: ClusterLayout, paths: HostPaths) -> _Words:
    """How this rank finds the others."""
    head, number, count = _address(ranks[0]), str(rank.number), str(rank.count)
    worker = rank.number > 0
    match rank.backend:
        case Backend.MP if layout.data > 1:
            # A headless rank refuses the number of API servers.
            own = ("--data-parallel-start-rank", number, "--headless") if worker else ("--api-server-count", "1")
            meet = ("--data-parallel-address", head, "--data-parallel-rpc-port", str(DATA_PORT))
            return _Words(("--data-parallel-size-local", "1", *meet, *own), without=(_BACKEND,))
        case Backend.MP:
            meet = ("--master-addr", head, "--master-port", str(MASTER_PORT))
            return _Words(("--nnodes", count, "--node-rank", number, *meet, *(("--headless",) if worker else ())))
        case Backend.RAY:
            limits = ("--object-store-memory", str(OBJECT_STORE), "--num-cpus", "2", "--disable-usage-stats")
            node = (*limits, "--node-ip-address", _address(rank))
            if worker:
                return _Words(instead=("ray", "start", "--block", "--address", f"{head}:{MASTER_PORT}", *node))
            start = ("ray", "start", "--head", "--port", str(MASTER_PORT), "--include-dashboard=false", *node)
            return _Words(before=("bash", "-c", f'{shlex.join(start)} && exec "$@"', "bash"))
        case Backend.SGLANG:
            return _Words(("--dist-init-addr", f"{head}:{SGLANG_PORT}", "--nnodes", count, "--node-rank", number))
        case Backend.MPI:
            keys = (Mount(f"{paths.home or '/root'}/.ssh", _SSH_KEYS, read_only=True),)
            if worker:
                return _Words(instead=("bash", "-c", f"{_SSH_SETUP} -D"), mounts=keys)
            hosts = ",".join(map(_address, ranks))
            mpirun = f'mpirun -np {count} -H {hosts} --mca plm_rsh_args "-p {SSH_PORT}" trtllm-llmapi-launch "$@"'
            return _Words(before=("bash", "-c", f"{_SSH_SETUP} && exec {mpirun}", "bash"), mounts=keys)
        case _:
            return _Words()


def _router_notes(found: ClusterPlan) -> list[str]:
    """Of replicas."""
    if found.backend is not Backend.NONE:
        return []
    port = router_port(found)
    if port is None:
        return [f"{len(found.ranks)} engines of their own, without a router: {_no_router(found)}", *_gateways(found)]
    optional = "(optional: pip install vllm-router)"
    return [f"One address for all: vllm-router on {found.head.node.name}, port {port} {optional}."]


def _no_router(found: ClusterPlan) -> str:
    """Why the replicas have none."""
    if any(key_wanted(each.plan.preset, each.plan.overrides) for each in found.ranks):
        # vllm-router 0.1.17: --api-key is one for all workers, and neither a variable nor a file holds it
        return "each has its own API key, and vllm-router takes one for all, on its command line where others see it."
    return "they use the host's network, or have no fabric address."


def _gateways(found: ClusterPlan) -> Iterator[str]:
    """What gives such replicas one address: the gateway of each node, and those of the others behind the head's."""
    head, peers = found.head.node, []
    for each in found.ranks[1:]:
        node, address = each.node, each.node.fabric[0] if each.node.fabric else "ADDRESS"
        peers.append(f"--peer {node.name}=http://{address}:{GATEWAY_PORT}")
        keys = f"ssh {node.host} spark-tui gateway keys add {head.name} | spark-tui gateway keys use {node.name}"
        yield f"For {node.name}, on {head.name}: {keys}. On {node.name}: spark-tui gateway --address {address}"
    yield f"One address for all, on {head.name}: spark-tui gateway {' '.join(peers)}"


def _notes(
    preset: Preset,
    overrides: Overrides,
    ranks: tuple[Rank, ...],
    layout: ClusterLayout,
    heads: int | None,
    changed: tuple[tuple[str, str], ...],
) -> list[str]:
    head = ranks[0]
    if head.backend is Backend.NONE:
        return []
    found = [f"Each node needs the image, the model files and the same folders: {preset.model}."]
    if local_model_path(preset.model) is None:
        found.append("A launch reads a model from another Hub cache of a node where all of it lies there.")
    if head.backend in (Backend.MP, Backend.RAY):
        stated = dict(overrides.extra_env) | dict(preset.env)
        limit = stated.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", str(SILENCE_SECONDS))
        found.append(f"The engine ends after {limit} s without an answer of a rank.")
    if layout.tensor > 1 and heads is None and changed:
        found.append(f"Attention heads unknown: vLLM refuses to start unless {layout.tensor} divides them.")
    gone = [name for name, _ in preset.env if name in FORBIDDEN]
    if gone:
        found.append(f"{', '.join(gone)} of the recipe is left out: the index differs between nodes.")
    recipe = dict(preset.env)
    lost = [name for name, text in environment(head, recipe).items() if recipe.get(name, text) != text]
    if lost:
        found.append(f"{', '.join(lost)} of the recipe is replaced by each node's own.")
    if head.backend is Backend.MPI:
        found.append("The containers see ~/.ssh of their node, read only: MPI starts the other ranks through ssh.")
    alone = [rank.node.name for rank in ranks if len(rank.node.hca) == 1]
    if alone:
        found.append(f"One RDMA device on {', '.join(alone)}: half the bandwidth of the cable.")
    return found


# --- a measurement ----------------------------------------------------------------------------------------

# A gigabyte in all, so that a model that is loaded stays; bus bandwidth as nccl-tests defines it.
_ALL_GATHER_PROGRAM: Final = """\
import datetime, json, signal, time
signal.alarm(100)
import torch, torch.distributed as ranks
ranks.init_process_group("nccl", timeout=datetime.timedelta(seconds=60))
count = ranks.get_world_size()
own = torch.ones(2**28 // count, device="cuda")
out = torch.empty(own.numel() * count, device="cuda")
def turns(times):
    for _ in range(times):
        ranks.all_gather_into_tensor(out, own)
    torch.cuda.synchronize()
turns(3)
began = time.monotonic()
turns(10)
print(json.dumps({"busbw": 40 * own.numel() * (count - 1) / (time.monotonic() - began) / 1e9}))
"""


def all_gather_words(rank: Rank, head: str, image: str) -> tuple[str, ...]:
    """The arguments of `docker run` for one rank of an all-gather of NCCL; it prints `{"busbw": GB/s}`."""
    place = {"RANK": rank.number, "WORLD_SIZE": rank.count, "MASTER_ADDR": head, "MASTER_PORT": MASTER_PORT}
    variables = {**environment(rank, {}), **{name: str(value) for name, value in place.items()}}
    pairs = (word for name, text in variables.items() for word in ("-e", f"{name}={text}"))
    rights = (
        "--gpus",
        "all",
        "--network",
        "host",
        "--ipc",
        "host",
        "--ulimit",
        "memlock=-1:-1",
        "--device",
        _INFINIBAND,
        "--cap-add",
        _LOCKED,
    )
    return (*rights, *pairs, "--entrypoint", "python3", image, "-c", _ALL_GATHER_PROGRAM)


# --- what it comes to ----------------------------------------------------------------------------------

_MEETING: Final = {
    Backend.MP: (MASTER_PORT, DATA_PORT),
    Backend.RAY: (MASTER_PORT,),
    Backend.SGLANG: (SGLANG_PORT,),
    Backend.MPI: (SSH_PORT,),
    Backend.NONE: (),
}
"""Where the ranks meet, on the head."""


def record_of(plan: ClusterPlan, *, patience: float = HOUR) -> ClusterRecord:
    """What a planned launch will do."""
    head = plan.head.plan
    alone = plan.backend is Backend.NONE
    ranks, models = [], hub_models(head)
    for each in plan.ranks:
        serves = alone or each.rank.number == 0
        ports = (each.plan.host_port, *_MEETING[plan.backend]) if serves else ()
        keyed = serves and key_wanted(each.plan.preset, each.plan.overrides)
        uses_hub = local_model_path(each.plan.model) is None
        variable = each.plan.preset.server.key_variable if keyed else ""
        start = StartRequest(each.plan.spec, each.plan.directories, ports, variable, uses_hub, models)
        ranks.append(RankRecord(each.node, start))
    canary = CanaryRequest(
        head.spec.name,
        head.host_port,
        head.served_name,
        plan.layout.data,
        seconds=runtime_named(head.preset.engine).first_request_seconds,
        runtime=head.preset.engine,
        keyed=key_wanted(head.preset, head.overrides),
    )
    return ClusterRecord(
        head.spec.name,
        plan.launch_id,
        Stage.STARTING,
        head.preset.name,
        plan.cluster.name,
        tuple(ranks),
        canary,
        plan.cluster.topology,
        alone,
        _router(plan),
        patience,
    )


def _router(plan: ClusterPlan) -> RouteRequest | None:
    """In front of replicas that their head reaches: on the loopback address, or as widely as they are exposed."""
    port, ports = router_port(plan), plan.head.plan.spec.ports
    if port is None:
        return None
    workers = tuple(f"http://{each.node.fabric[0]}:{each.plan.host_port}" for each in plan.ranks)
    return RouteRequest(plan.launch_id, ports[0].host_ip, port, workers)
