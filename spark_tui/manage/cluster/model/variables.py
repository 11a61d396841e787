"""The environment of a rank: one table of variables, with the reason for each. And the ports where ranks meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.remote import ClusterNode, Topology

MASTER_PORT: Final = 29501
"""The rendezvous of vLLM and the port of Ray's head, as eugr's launcher has them."""
SGLANG_PORT: Final = 25000
DATA_PORT: Final = 13345
SSH_PORT: Final = 2233
"""sshd in TensorRT-LLM's containers: MPI starts its ranks through it (dgx-spark-playbooks trt-llm)."""
SILENCE_SECONDS: Final = 300
"""A rank that hears nothing for so long ends the engine: after a lost link nothing else does."""
OBJECT_STORE: Final = 1024**3
"""Ray's object store in bytes; its default is 30 % of the memory."""


class Backend(StrEnum):
    """What joins the ranks of one engine."""

    MP = "mp"
    RAY = "ray"
    SGLANG = "sglang"
    MPI = "mpi"
    NONE = "none"


class Rank(Struct, frozen=True):
    """One node's place in a launch over `count` nodes: 0 is the head."""

    node: ClusterNode
    number: int
    count: int
    backend: Backend
    topology: Topology

    @property
    def address(self) -> str:
        """What the other nodes reach it by."""
        return self.node.fabric[0]

    @property
    def interface(self) -> str:
        return self.node.interfaces[0]


class Variable(Struct, frozen=True):
    """One variable. `value` gives its text for a rank, None where it is not set. `own`: it depends on the node, so that
    a recipe's value, made for other machines, gives way."""

    name: str
    value: Callable[[Rank], str | None]
    reason: str
    own: bool = False


def _constant(name: str, text: str, reason: str, where: Callable[[Rank], bool] = lambda _: True) -> Variable:
    return Variable(name, lambda rank: text if where(rank) else None, reason)


def _interface(name: str, reason: str) -> Variable:
    return Variable(name, lambda rank: rank.interface, reason, own=True)


def _is_vllm(rank: Rank) -> bool:
    return rank.backend in (Backend.MP, Backend.RAY)


def _is_ray(rank: Rank) -> bool:
    return rank.backend is Backend.RAY


def _is_mpi(rank: Rank) -> bool:
    return rank.backend is Backend.MPI


def _is_ring(rank: Rank) -> bool:
    return rank.topology is Topology.RING


_BAKED: Final = "images may have another one baked in (eugr/spark-vllm-docker sets them all)"

VARIABLES: Final = (
    Variable("VLLM_HOST_IP", lambda rank: rank.address if _is_vllm(rank) else None,
             "else vLLM's message queue follows the default route, often Wi-Fi (spark-arena/sparkrun#219)", own=True),
    _interface("NCCL_SOCKET_IFNAME", "NCCL's bootstrap on the fabric"),
    _interface("GLOO_SOCKET_IFNAME", "Gloo has no default on a node without a route (spark-arena/sparkrun#275)"),
    _interface("TP_SOCKET_IFNAME", _BAKED),
    _interface("MN_IF_NAME", _BAKED),
    _interface("UCX_NET_DEVICES", _BAKED),
    _interface("OMPI_MCA_btl_tcp_if_include", _BAKED),
    Variable("NCCL_IB_HCA", lambda rank: ",".join(rank.node.hca),
             "both twins of the cage: one alone is half the bandwidth", own=True),
    _constant("NCCL_IB_DISABLE", "0", "an image may turn RDMA off"),
    _constant("NCCL_IGNORE_CPU_AFFINITY", "1", "eugr/spark-vllm-docker, spark-arena/sparkrun"),
    _constant("NCCL_NET_PLUGIN", "none", "no external plugin on a ring (NVIDIA's ring guide)", _is_ring),
    _constant("NCCL_IB_SUBNET_AWARE_ROUTING", "1", "six subnets on a ring (NVIDIA's ring guide)", _is_ring),
    _constant("NCCL_IB_MERGE_NICS", "0", "the ports of a ring lead to different nodes", _is_ring),
    _constant("NCCL_ALGO", "Ring", "the automatic choice ends in QP time-outs on a ring of four",
              lambda rank: _is_ring(rank) and rank.count > 3),
    _constant("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", str(SILENCE_SECONDS),
              "ends a hang after a lost link: seconds of silence", _is_vllm),
    _constant("HF_HUB_OFFLINE", "1", "a worker never starts a download of its own",
              lambda rank: rank.number > 0 and rank.backend is not Backend.NONE),
    Variable("RAY_NODE_IP_ADDRESS", lambda rank: rank.address if _is_ray(rank) else None,
             "else the placement group waits for another address (eugr/spark-vllm-docker#227)", own=True),
    Variable("RAY_OVERRIDE_NODE_IP_ADDRESS", lambda rank: rank.address if _is_ray(rank) else None,
             "eugr/spark-vllm-docker#227", own=True),
    _constant("RAY_memory_monitor_refresh_ms", "0", "Ray's memory monitor kills engines on unified memory", _is_ray),
    _constant("RAY_num_prestart_python_workers", "0", "no idle Python workers", _is_ray),
    _constant("RAY_object_store_memory", str(OBJECT_STORE), "30 % of the memory by default", _is_ray),
    _constant("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "0", "the head has other services (spark-arena/sparkrun)",
              lambda rank: rank.backend is Backend.SGLANG),
    _constant("OMPI_ALLOW_RUN_AS_ROOT", "1", "the container's user is root (dgx-spark-playbooks trt-llm)", _is_mpi),
    _constant("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", "dgx-spark-playbooks trt-llm", _is_mpi),
    _constant("OMPI_MCA_rmaps_ppr_n_pernode", "1", "one rank on each node (dgx-spark-playbooks trt-llm)", _is_mpi),
)  # fmt: skip
FORBIDDEN: Final = ("NCCL_IB_GID_INDEX",)
"""Never set: the index of RoCE v2 differs between nodes and moves while they run; NCCL finds it when left alone."""


def environment(rank: Rank, recipe: Mapping[str, str]) -> dict[str, str]:
    """Every variable of the table for this rank; the recipe's own value stays where the node does not decide it."""
    found = {each.name: (each.value(rank), each.own) for each in VARIABLES}
    return {name: text for name, (text, own) in found.items() if text is not None and (own or name not in recipe)}
