"""Failures between the processes of several nodes: rendezvous, Gloo, NCCL and RDMA."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from spark_tui.base.finding import Change, Finding
from spark_tui.observe.explain.model.causes.cause import CauseId, CauseRule, FailureContext, fix, rule

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


def collective_timeout(_match: re.Match[str], context: FailureContext) -> Finding:
    version = context.facts.nccl
    numbers = tuple(int(part) for part in re.findall(r"\d{1,4}", version)[:3])
    leak = "" if numbers >= FIXED_NCCL else f" NCCL {version or 'before 2.29.3'} leaks on aarch64."
    return fix(
        f"The nodes stopped exchanging data: a collective operation timed out.{leak}",
        "Use an image with NCCL 2.29.3 or newer. Check the log of the other node and the link (`ping -M do -s 8972`).",
    )


_SENTENCES: Final = (
    *(each[:3] for each in (NO_ADDRESS, NO_QUEUE_PAIR, NO_RDMA_MEMORY)),
    (
        r"Timed out after (\d{1,6}) seconds waiting for clients\.(?: (\d{1,4})/(\d{1,4}) clients)?",
        "Only {1} of {2} nodes joined within {0} s.",
        "Check the other node: container running, same image and arguments, same master address and port, no firewall.",
    ),
    (
        CLIENT_SOCKET + r".{0,60}?connect to (?:any network address of )?"
        r"\(?\[?([\w.:\-]{1,80}?)\]?, (\d{1,5})",
        "Cannot reach the head node at {0}, port {1}.",
        "Check from this node: `nc -zv {0} {1}`. The head must run first, its firewall must allow the port, and the "
        "master address must be one of its own.",
    ),
    (
        f"Gloo {MESH}" + r"(?:.{0,160}?remote=\[?([\w.:]{1,60}))?",
        "The nodes cannot reach each other (Gloo, {0}).",
        "Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on each node to its fabric interface (`ip -br addr`): without "
        "them a host name may lead to 127.0.0.1.",
    ),
    (
        r"Could not find any running Ray instance|Failed to connect to GCS|Every node should have a unique IP|"
        r"(?:MASTER_ADDR|MASTER_PORT) expected, but not set|RendezvousTimeoutError|Barrier timed out",
        "The nodes could not meet: {match}.",
        "Set env.VLLM_HOST_IP, GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on each node to its fabric address and "
        "interface "
        "(`ip -br addr`), and the same master address and port on all.",
    ),
    (
        r"ibv_create_ah\(.{1,200}failed.{0,60}|ucp_ep_create.{1,80}failed.{0,60}|MPI_INIT failed|PML add procs failed",
        "MPI or UCX could not open the fabric: {match}.",
        "Choose the devices that have a link (`ibdev2netdev`): env.UCX_NET_DEVICES and NCCL_IB_HCA, or UCX_TLS=tcp.",
    ),
    (
        r"Timed out waiting \d{1,9} ?ms for (?:send|recv) operation|gloo/transport/\S{1,60}:\d{1,5}\] .{1,120}",
        "The nodes cannot exchange data over Gloo: {match}.",
        "Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on each node to its fabric interface (`ip -br addr`), and check "
        "the link and the log of the other node.",
    ),
    (
        r"ggml_backend_rpc\w{0,30}: .{0,60}(?:failed|refused)|[Ff]ailed to connect to (?:RPC|rpc) .{1,80}|"
        r"Failed to connect to [\w.\-]{1,80}:\d{4,5}$",
        "The other node's RPC server does not answer: {match}.",
        "Start the same build's rpc-server on the other node first, and check its log, address, port and firewall.",
    ),
    (
        r"IBV_WC_\w{1,30}ERR",
        "The other node does not answer over RDMA.",
        "Check cable and MTU on both nodes: `ping -M do -s 8972 ADDRESS`.",
    ),
    (
        r"\(TCPStore\)|TCPStore server has shut down|Connection was likely closed|"
        r"(?:recvValue|sendBytes|recvBytes) failed|[Cc]onnection (?:closed|reset) by (?:remote )?peer",
        "The other node closed the connection.",
        "See the log of the other node first: it has failed, was stopped, or never started.",
    ),
    (
        r"socketStartConnect: Connect to ([\w.:\[\]]{3,60})(?:<\d{1,5}>)? failed : (.{1,60})",
        "NCCL cannot reach another rank at {0}: {1}.",
        "Set NCCL_SOCKET_IFNAME on each node to its fabric interface (`ip -br addr`): an address of another network, "
        "or 169.254.x.x of a second port, is not reachable from there. Check the link and the firewall.",
    ),
    (
        r"MPI error .{1,300} '(\d{1,5})'",
        "MPI could not reach the other ranks (error {0}).",
        "Start the ranks with one mpirun, from one image, each node with its own GPU; check names, ports and firewall.",
    ),
    (
        r"ncclCommunicator\.cpp.{0,40}invalid usage",
        "NCCL refused the group: more ranks than GPUs.",
        "Set tp_size to the number of GPUs: 1 on one Spark. Over several, start one rank per node with mpirun.",
    ),
)

NETWORK_RULES: Final[tuple[CauseRule, ...]] = (
    *(rule(CauseId.NCCL, *words) for words in _SENTENCES),
    rule(CauseId.BAD_ARGUMENT, *RAY_REFUSED[:3], change=RAY_REFUSED.change),
    rule(
        CauseId.NCCL,
        f"Watchdog caught collective operation|watchdog (?:hang|got stuck)|{COLLECTIVE}",
        collective_timeout,
    ),
    rule(
        CauseId.NCCL,
        r"NCCL [Ee]rror|NCCL WARN|nccl\w{1,40}Error|DistBackendError|DistNetworkError|DistStoreError|"
        r"ibv_\w{1,40} failed|ProcessGroupNCCL|detected by watchdog|unhandled (?:cuda|system) error|"
        r"NET/IB : |" + CLIENT_SOCKET,
        "GPU communication failed (NCCL).",
        "Set {ranks}=1 on one Spark. On several, check the log of the other node, cable, addresses and "
        "interface (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME); env.NCCL_DEBUG=INFO gives NCCL's own reason.",
        vague=True,
    ),
)
"""In the order in which they are tried; what merely names NCCL is last."""
