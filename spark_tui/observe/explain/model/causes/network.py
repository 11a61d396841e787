"""Failures between the processes of several nodes: rendezvous, Gloo, NCCL and RDMA."""

from __future__ import annotations

from typing import Final, NamedTuple

from spark_tui.base.finding import Change

FIXED_NCCL: Final = (2, 29, 3)
"""Older ones leak proxy slots on aarch64 (NVIDIA/nccl#2213)."""


class Fault(NamedTuple):
    """A line between nodes: its pattern, and what it means. Who reads the logs of all ranks has other remedies."""

    pattern: str
    summary: str
    remedy: str
    change: Change = ()


NO_ADDRESS: Final = Fault(
    r"Unable to find (?:address|interface) for: ?\[?([\w.^,\-]{1,60})",
    "Interface {0} has no address on this node.",
    "Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to an interface of this node (`ip -br addr`), or remove them. "
    "Names differ between nodes, and images may set them.",
)
NO_QUEUE_PAIR: Final = Fault(
    r"ibv_modify_qp failed",
    "RDMA cannot connect: wrong GID index, or no link between these ports.",
    "Remove NCCL_IB_GID_INDEX from preset and image: the index differs between nodes. Check the cable's ports. On "
    "a ring of three set NCCL_CROSS_NIC=0.",
)
NO_RDMA_MEMORY: Final = Fault(
    r"ibv_reg_\w{1,30} failed",
    "RDMA cannot register memory.",
    "Start the container with `--ulimit memlock=-1`. Kernel 7.0.0-1019-nvidia fails even then: boot 6.17.",
)
# vLLM, initialize_ray_cluster: a platform without a Ray device key
RAY_REFUSED: Final = Fault(
    r"current platform ([\w.\-]{1,40}) does not support ray\b",
    "vLLM refuses Ray on its platform, {0}.",
    "Set distributed_executor_backend=mp: vLLM's own multi-node mode needs no Ray. On a Spark the platform is cuda: "
    "any other means an image without CUDA, or a container without the GPU.",
    (("distributed_executor_backend", "mp"),),
)
CLIENT_SOCKET: Final = r"client socket has (?:timed out|failed)"
COLLECTIVE: Final = r"collective operation timeout"
MESH: Final = r"connectFullMesh failed"
