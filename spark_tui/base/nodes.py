"""Clusters: named sets of machines that serve one model together, as the settings keep them."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.remote import Hosts, RemoteHost, check_destination, check_name, find_host
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json

GATEWAY_PORT: Final = 8080
"""Of a node's gateway, where no other is named."""
MOST_NODES: Final = 8
MOST_CLUSTERS: Final = 16
ADDRESSES: Final = ("-j", "-4", "addr")
"""What `ip` is asked on a node."""
_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_DEVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,62}")
CONNECTX: Final = re.compile(r"en([pP]\S*f\d+)np\d+")
"""A ConnectX-7 function: port of the card and its twin by name. OEM machines may differ, hence `hca=`."""
_PARTS: Final = {"fabric": "fabric", "if": "interfaces", "hca": "devices"}
_EXAMPLE: Final = "nv@spark-2,fabric=192.168.100.2,if=enp1s0f0np0"


class Topology(StrEnum):
    """How the nodes are wired."""

    DIRECT = "direct"
    SWITCH = "switch"
    RING = "ring"


class ClusterNode(Struct, frozen=True):
    """A machine of a cluster. `host` is a host of the settings, else an ssh address. `fabric` are its addresses on the
    link between the nodes, the first one for all control traffic; `interfaces` have those addresses, one each.
    `devices` are RoCE devices where they do not follow from the interfaces' names."""

    host: str
    fabric: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people and containers: the host without its user."""
        return self.host.removeprefix("ssh://").rpartition("@")[2]

    @property
    def hca(self) -> tuple[str, ...]:
        """Its RoCE devices: given, or by the names of a ConnectX-7 (enp1s0f0np0 -> rocep1s0f0)."""
        named = (CONNECTX.fullmatch(each) for each in self.interfaces)
        return self.devices or tuple(f"roce{match[1]}" for match in named if match)

    @property
    def complete(self) -> bool:
        """Everything that a launch writes into this node's environment is known."""
        return bool(self.fabric and self.interfaces and self.hca)


class Cluster(Struct, frozen=True):
    """Machines that serve together; the first is the head."""

    name: str
    nodes: tuple[ClusterNode, ...]
    topology: Topology = Topology.DIRECT


Clusters: TypeAlias = tuple[Cluster, ...]
"""By name, in the order of their names."""


class NodeUnreadable(SparkError, id="node_unreadable"):
    """A node does not say what it has."""


# --- settings ---------------------------------------------------------------------------------------------


def read_clusters(value: object) -> Clusters:
    """Clusters from a TOML table (`duo = { nodes = [{ ssh = "nv@spark-1", fabric = [...] }, ...] }`), from text
    (`duo=nv@spark-1,fabric=192.168.100.1;nv@spark-2,...`, several with blanks between), or as they were read. Raises
    ValueError."""
    if isinstance(value, str):
        pairs = (word.partition("=") for word in value.split())
        found = [read_cluster(name, given) for name, _, given in pairs]
    elif isinstance(value, Mapping):
        found = [_of_table(str(name), given) for name, given in value.items()]
    elif isinstance(value, tuple) and all(isinstance(each, Cluster) for each in value):
        found = list(value)
    else:
        raise ValueError(f"must be a table of clusters; it is {str(value)[:60]!r}")
    if len(found) > MOST_CLUSTERS or len({each.name for each in found}) < len(found):
        raise ValueError(f"must be at most {MOST_CLUSTERS} clusters with different names")
    return tuple(sorted(found, key=lambda each: each.name))


def read_cluster(name: str, text: str) -> Cluster:
    """One cluster from `NODE;NODE`, with a topology as a further piece. Raises ValueError."""
    pieces = [piece.strip() for piece in text.split(";") if piece.strip()]
    wiring = [Topology(piece) for piece in pieces if piece in tuple(Topology)]
    nodes = tuple(read_node(piece) for piece in pieces if piece not in tuple(Topology))
    return _checked(name, nodes, wiring[-1] if wiring else None)


def read_node(text: str) -> ClusterNode:
    """A node from `ADDRESS[,fabric=IP[,IP]][,if=NAME[,NAME]][,hca=NAME[,NAME]]`. Raises ValueError."""
    host, *more = text.split(",")
    parts: dict[str, list[str]] = {}
    key = ""
    for piece in more:
        given, equals, value = piece.partition("=")
        key, value = (given, value) if equals else (key, piece)
        if key not in _PARTS:
            raise ValueError(f"must have nodes such as {_EXAMPLE}; {piece[:60]!r} is not understood")
        parts.setdefault(_PARTS[key], []).append(value)
    return _node(host, parts)


def node_text(node: ClusterNode) -> str:
    """As text that `read_node` reads back."""
    given = ((key, getattr(node, field)) for key, field in _PARTS.items())
    return ",".join((node.host, *(f"{key}={','.join(values)}" for key, values in given if values)))


def cluster_text(cluster: Cluster) -> str:
    """As text that `read_cluster` reads back."""
    return ";".join((*map(node_text, cluster.nodes), cluster.topology.value))


def clusters_text(clusters: Clusters) -> str:
    """As text that `read_clusters` reads back."""
    return " ".join(f"{each.name}={cluster_text(each)}" for each in clusters)


def cluster_plain(cluster: Cluster) -> dict[str, Any]:
    """As written in the settings file."""

    def plain(node: ClusterNode) -> dict[str, Any]:
        given = ((field, getattr(node, field)) for field in _PARTS.values())
        return {"ssh": node.host} | {field: list(values) for field, values in given if values}

    return {"topology": cluster.topology.value, "nodes": [plain(node) for node in cluster.nodes]}


def _of_table(name: str, given: object) -> Cluster:
    listed = given.get("nodes") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(listed, list) or set(given) - {"nodes", "topology"}:
        raise ValueError(
            f'must be {{ nodes = [{{ ssh = "nv@spark-1" }}, ...], topology = "direct" }} (for {name[:40]})'
        )
    wiring = given.get("topology")
    if wiring is not None and wiring not in tuple(Topology):
        raise ValueError(f"must have a topology of {', '.join(Topology)}; it is {str(wiring)[:40]!r} (for {name[:40]})")
    nodes = []
    for each in listed:
        if not isinstance(each, Mapping) or set(each) - {"ssh", *_PARTS.values()}:
            raise ValueError(f"must have nodes of ssh, {', '.join(_PARTS.values())} (for {name[:40]})")
        parts = {key: part if isinstance(part, list) else [part] for key, part in each.items() if key != "ssh"}
        nodes.append(_node(each.get("ssh"), parts))
    return _checked(name, tuple(nodes), Topology(wiring) if wiring else None)


def _node(host: object, parts: Mapping[str, list[Any]]) -> ClusterNode:
    named = check_destination(host)
    fabric, interfaces, devices = (tuple(map(str, parts.get(field, ()))) for field in _PARTS.values())
    for address in fabric:
        try:
            known = ipaddress.ip_address(address)
        except ValueError:
            raise ValueError(f"must have IP addresses under fabric; it is {address[:40]!r} (for {named})") from None
        if known.is_loopback or known.is_unspecified:
            raise ValueError(f"must have addresses that the other nodes reach; it is {address} (for {named})")
    for values, pattern, what in ((interfaces, _INTERFACE, "interfaces"), (devices, _DEVICE, "RoCE devices")):
        strange = next((each for each in values if pattern.fullmatch(each) is None), None)
        if strange is not None:
            raise ValueError(f"must have names of {what}; it is {strange[:40]!r} (for {named})")
    if interfaces and len(interfaces) != len(fabric):
        raise ValueError(f"must have one interface for each fabric address (for {named})")
    return ClusterNode(named, fabric, interfaces, devices)


def _checked(name: str, nodes: tuple[ClusterNode, ...], topology: Topology | None) -> Cluster:
    check_name(name)
    if not 2 <= len(nodes) <= MOST_NODES:
        raise ValueError(f"must have 2 to {MOST_NODES} nodes; {name} has {len(nodes)}")
    addresses = [address for node in nodes for address in node.fabric]
    for what, values in (("node", [node.host for node in nodes]), ("fabric address", addresses)):
        twice = next((each for at, each in enumerate(values) if each in values[:at]), None)
        if twice is not None:
            raise ValueError(f"must name each {what} once; {name} has {twice} twice")
    if topology is Topology.DIRECT and len(nodes) > 2:
        raise ValueError(f"must be wired by a switch or as a ring with {len(nodes)} nodes (for {name})")
    return Cluster(name, nodes, topology or (Topology.DIRECT if len(nodes) == 2 else Topology.SWITCH))


# --- look-ups ---------------------------------------------------------------------------------------------


def find_nodes(clusters: Clusters, names: Iterable[str]) -> Cluster:
    """The machines for one launch, in the order given: one cluster by its name, or nodes of one cluster by theirs.
    Raises UsageError."""
    wanted = [name.strip() for name in names if name.strip()]
    for cluster in clusters:
        if wanted == [cluster.name]:
            return cluster
        by_name = {key: node for node in cluster.nodes for key in (node.name, node.host)}
        if len(wanted) > 1 and all(name in by_name for name in wanted):
            if len(set(wanted)) < len(wanted):
                raise UsageError("A node is named twice.", "Name each node once.")
            return replace(cluster, nodes=tuple(by_name[name] for name in wanted))
    known = [key for cluster in clusters for key in (cluster.name, *(node.name for node in cluster.nodes))]
    lost = next((name for name in wanted if name not in known), "")
    if not known:
        raise UsageError("No cluster configured.", "Add one: spark-tui cluster add NAME --node ADDRESS --node ADDRESS")
    if lost:
        near = next(iter(difflib.get_close_matches(lost, known, 1)), "")
        hint = f"Did you mean `{near}`?" if near else "See: spark-tui cluster list"
        raise UsageError(f"Unknown cluster or node `{truncate(clean_line(lost), 60)}`.", hint)
    raise UsageError("--nodes takes one cluster, or two or more nodes of one cluster.", "See: spark-tui cluster list")


def find_machines(clusters: Clusters, hosts: Hosts, names: Iterable[str]) -> tuple[ClusterNode, ...]:
    """Each machine once: the nodes of a cluster by its name, a node or a host of the settings by its own, any other by
    its ssh address. Without names: the nodes of all clusters. Raises UsageError."""
    known: dict[str, tuple[ClusterNode, ...]]
    known = {key: (node,) for cluster in clusters for node in cluster.nodes for key in (node.name, node.host)}
    known |= {cluster.name: cluster.nodes for cluster in clusters}
    wanted = list(names) or [cluster.name for cluster in clusters]
    found = [node for name in wanted for node in known.get(name) or (ClusterNode(find_host(hosts, name).name),)]
    if not found:
        raise UsageError("No cluster configured.", "Name a machine: spark-tui cluster install USER@ADDRESS")
    return tuple({ssh_host(node, hosts).destination: node for node in found}.values())


def ssh_host(node: ClusterNode, hosts: Hosts) -> RemoteHost:
    """How ssh reaches the node: the host of that name or address in the settings, else its address."""
    found = next((host for host in hosts if node.host in (host.name, host.destination)), None)
    return found or RemoteHost(node.name, node.host)


def with_addresses(node: ClusterNode, answer: str) -> ClusterNode:
    """The node with its fabric by the answer of `ip -j -4 addr`: the ConnectX interfaces with an address, or those of
    the addresses that were given. Raises NodeUnreadable."""
    found: list[tuple[str, str]] = []
    try:
        for link in load_json(answer):
            name = str(link.get("ifname", ""))
            found += [(str(each["local"]), name) for each in link.get("addr_info", ()) if each.get("family") == "inet"]
    except (ValueError, AttributeError, KeyError, TypeError):
        raise NodeUnreadable(
            f"{node.name} lists no addresses.", f"Give them: --node {node.host},fabric=IP,if=NAME"
        ) from None
    found = [(ip, name) for ip, name in found if _INTERFACE.fullmatch(name)]
    interface_of = dict(found)
    fabric = node.fabric or tuple(ip for ip, name in found if CONNECTX.fullmatch(name))
    missing = [ip for ip in fabric if ip not in interface_of]
    if missing or not fabric:
        lost = f"has no interface with {missing[0]}" if missing else "has no ConnectX interface with an address"
        raise NodeUnreadable(
            f"{node.name} {lost}.", f"Configure its fabric, or give it: --node {node.host},fabric=IP,if=NAME"
        )
    return replace(node, fabric=fabric, interfaces=tuple(interface_of[ip] for ip in fabric))
