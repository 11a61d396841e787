"""Lines that explain a launch over several machines: faults of one rank, and consequences of another rank's fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from spark_tui.base.finding import Change
from spark_tui.observe.explain.model.causes import network


class ClusterCauseId(StrEnum):
    """Stable ids of findings about several ranks. A rank's own failure keeps its `CauseId`."""

    NODE_UNREACHABLE = "node_unreachable"
    RANK_MISSING = "rank_missing"
    RANK_LATE = "rank_late"
    RANK_LOST = "rank_lost"
    RANK_LEFT_RUNNING = "rank_left_running"
    STALE_RANK = "stale_rank"
    FABRIC_BLOCKED = "fabric_blocked"
    LINK_LOST = "link_lost"
    CONNECTION_LOST = "connection_lost"
    WRONG_MASTER = "wrong_master"
    WRONG_INTERFACE = "wrong_interface"
    MASTER_PORT_IN_USE = "master_port_in_use"
    NO_COMPILER = "no_compiler"
    NO_RAY = "no_ray"
    RAY_REFUSED = "ray_refused"
    RAY_NODE_IP = "ray_node_ip"
    PINNED_GID = "pinned_gid"
    RDMA_MEMORY = "rdma_memory"
    RDMA_RETRY = "rdma_retry"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    NO_RDMA = "no_rdma"
    ONE_HCA = "one_hca"
    BOOTSTRAP_WIFI = "bootstrap_wifi"


class Signature(NamedTuple):
    """A line that names a fault of the rank that wrote it. Texts may hold `{0}` (the first group), `{host}` (for ssh)
    and `{refresh}` (the command that reads the nodes' addresses again)."""

    id: ClusterCauseId
    pattern: re.Pattern[str]
    summary: str
    remedy: str
    change: Change = ()


Id: TypeAlias = ClusterCauseId


_REFRESH: Final = "Read the interfaces of all nodes again: {refresh}"


def _shared(id_: ClusterCauseId, fault: network.Fault, remedy: str = "") -> Signature:
    """A fault that one log alone shows too, with the remedy for a launch over several nodes where there is a better."""
    return Signature(id_, re.compile(fault.pattern), fault.summary, remedy or fault.remedy, fault.change)


SIGNATURES: Final = (
    _shared(Id.WRONG_INTERFACE, network.NO_ADDRESS, f"{_REFRESH}. Remove *_SOCKET_IFNAME from the preset."),
    Signature(Id.MASTER_PORT_IN_USE,
              re.compile(r"server socket has failed to \w+ on .{0,60}port: (\d{1,5}).{1,80}EADDRINUSE"),
              "master port {0} is already in use.",
              "Find the older engine and stop it: spark-tui --host {host} ps. Other programs: ssh {host} ss -ltnp"),
    Signature(Id.NO_COMPILER, re.compile(r"InvalidCxxCompiler|No working C\+\+ compiler found"),
              "the image has no C++ compiler: the engine fails at its first request.",
              "Use an image with g++, or disable torch.compile.", (("env.TORCHDYNAMO_DISABLE", "1"),)),
    _shared(Id.RAY_REFUSED, network.RAY_REFUSED),
    Signature(Id.NO_RAY,
              re.compile(r"Error: (?:No module named 'ray'|Ray is not installed)|\bray\"?: .{0,40}not found"),
              "Ray is not installed in this image.",
              "Use an image with Ray, or the engine's own multi-node mode.", (("distributed_executor_backend", "mp"),)),
    _shared(Id.PINNED_GID, network.NO_QUEUE_PAIR),
    _shared(Id.RDMA_MEMORY, network.NO_RDMA_MEMORY),
)  # fmt: skip
"""The first line of a rank that matches one is a cause, whatever followed on other ranks."""
NOTES: Final = (
    Signature(Id.NO_RDMA, re.compile(r"NET/Socket : Using|Using network Socket"),
              "NCCL uses sockets instead of RDMA: about an eighth of the bandwidth.",
              f"Start the container with --device=/dev/infiniband. {_REFRESH}"),
    Signature(Id.ONE_HCA, re.compile(r"NET/IB : Using \[0\](\w{1,40}):\d+/\w+(?! ?\[1\])\b"),
              "NCCL uses one RDMA device ({0}): half the bandwidth.", f"Configure both of the cage. {_REFRESH}"),
    Signature(Id.BOOTSTRAP_WIFI, re.compile(r"Bootstrap ?: Using (wl\w{1,20})"),
              "NCCL starts over Wi-Fi ({0}).", _REFRESH),
)  # fmt: skip
"""Warnings: what NCCL says about its choice with NCCL_DEBUG=INFO, at the beginning of a message."""


class Consequence(StrEnum):
    """What a rank reports when another rank, or the way to it, fails."""

    STORE = "store"
    """The head waited in vain for ranks."""
    CONNECT = "connect"
    """The head's store could not be reached."""
    RETRY = "retry"
    RPC = "rpc"
    COLLECTIVE = "collective"
    PEER_GONE = "peer_gone"
    DP_WAIT = "dp_wait"
    RAY_WAIT = "ray_wait"
    REPEAT = "repeat"
    """Another process of the rank repeats an error."""


CONSEQUENCES: Final[Mapping[Consequence, re.Pattern[str]]] = {
    Consequence.STORE: re.compile(r"DistStoreError|\d/\d+ clients joined"),
    Consequence.CONNECT: re.compile(network.CLIENT_SOCKET + "|TCP client failed to connect|connect to GCS"),
    Consequence.RETRY: re.compile(r"IBV_WC_RETRY_EXC_ERR|[Gg]ot completion .{0,120}?(?:error |status=)12\b"),
    Consequence.RPC: re.compile(r"RPC call to \w{1,60} timed out"),
    Consequence.COLLECTIVE: re.compile(network.COLLECTIVE + r"|OpType=\w{1,60},.{0,300}Timeout\(ms\)"),
    Consequence.REPEAT: re.compile(
        r"(?:WorkerProc|Engine core) initialization failed|EngineCore encountered an issue|Worker failed with error"
    ),
    Consequence.PEER_GONE: re.compile(
        r"[Cc]onnection (?:was likely )?(?:closed|reset|refused)|[Bb]roken pipe|Socket Timeout|"
        rf"{network.MESH}|remote process exited|nccl(?:Remote|System)Error|unhandled system error|DistNetworkError"
    ),
    Consequence.DP_WAIT: re.compile(r"Waiting for READY message from DP Coordinator"),
    Consequence.RAY_WAIT: re.compile(r"Waiting for creating a placement group of specs"),
}
WAITS: Final = (Consequence.DP_WAIT, Consequence.RAY_WAIT)
"""Not errors: the rank still waits."""

WORKER_FAILED: Final = ("WorkerProc failed to start", "WorkerProc hit an exception")
"""A worker's exception follows, in records with the same time and source."""
RENDEZVOUS: Final = re.compile(r"world_size=\d+ .*distributed_init_method=tcp://\[?([\w.:\-]{1,60}?)\]?:\d{1,5}\b")
PORT: Final = re.compile(r"(?:\(|to host |GCS at )[\[\]\w.:\-]{1,60}?(?:, |:)(\d{2,5})\b")
PEER: Final = re.compile(r"\[(\d{1,3}(?:\.\d{1,3}){3})\]:\d+")
NCCL_VERSION: Final = re.compile(r"(?:nccl==|NCCL version )(\d{1,3})\.(\d{1,3})\.(\d{1,3})")
WORDS: Final = ("rror", "ERR", "xception", "imed out", "imeout", "by peer", "NCCL", "nccl==", "IBV_", "init_method",
                "READY message", "placement group", "not found", "roken pipe", "clients joined")  # fmt: skip
"""One of them is in every line that matters."""
