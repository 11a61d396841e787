"""Other machines in the settings: hosts by name, and clusters of nodes."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.errors import SparkError, UnreachableError, UsageError
from spark_tui.base.finding import Missing, Ok, Reading, reason_of, value_of
from spark_tui.base.quantities import gib, human_bytes
from spark_tui.base.text import clean, clean_line, truncate
from spark_tui.base.untrusted import load_json

DEFAULT_COMMAND: Final = "spark-tui"
MOST_HOSTS: Final = 32
"""All are asked at once."""
MOST_CHARACTERS: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SCHEME: Final = "ssh://"
_OTHER_KEY: Final = re.compile(r"ssh-keygen .*-R |HOST IDENTIFICATION HAS CHANGED")
"""What ssh says where a host has another key than before. A banner can say it too: nothing else is taken of it."""
_ADDRESS: Final = re.compile(r"\[?([^\]]*?)\]?(?::(\d+))?")
_SHELLS_OWN: Final = frozenset("'\"`$\\;&<>|(){}*?!#,/")
"""ssh itself refuses most of them in a name: they could reach a shell through its ProxyCommand. The comma is ours."""
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
_PARTS: Final = ("ssh", "command")
_HERE: Final = ("localhost", "127.0.0.1")
_NEEDS_QUOTES: Final = re.compile(r"[\s'\"\\]")


class RemoteHost(Struct, frozen=True):
    """A machine that ssh reaches as `destination` (`nv@spark-2`), where `command` starts spark-tui. `localhost` is this
    machine itself, which needs no ssh."""

    name: str
    destination: str
    command: str = DEFAULT_COMMAND

    @property
    def here(self) -> bool:
        """It is this machine."""
        return self.destination in _HERE

    @property
    def known_name(self) -> str:
        """Its name in ssh's known_hosts, where ~/.ssh/config gives it no other."""
        address = self.destination.removeprefix(_SCHEME).rpartition("@")[2]
        found = _ADDRESS.fullmatch(address) if self.destination.startswith(_SCHEME) else None
        name, port = found.groups() if found is not None else (address, None)
        return name if port in (None, "22") else f"[{name}]:{port}"

    def line(self, arguments: Sequence[str]) -> str:
        """What the shell there runs: command and arguments, quoted; a leading `~/` is left to that shell."""
        return " ".join([*map(_quoted, shlex.split(self.command)), *map(shlex.quote, arguments)])

    def ssh(self, arguments: Sequence[str], *options: str) -> tuple[str, ...]:
        """The whole ssh command, with options of ssh's own before the destination."""
        return ("ssh", *options, self.destination, "--", self.line(arguments))


Hosts: TypeAlias = tuple[RemoteHost, ...]
"""By name, in the order of their names."""


def read_hosts(value: object) -> Hosts:
    """Hosts from a TOML table (`lab = "nv@spark-2"`, `lab = { ssh = "nv@spark-2", command = "~/bin/spark-tui" }`), from
    text (`lab=nv@spark-2 attic=nv@10.0.0.7,~/bin/spark-tui`), or as they were read. Raises ValueError."""
    found: list[RemoteHost] = []
    if isinstance(value, str):
        for word in _words(value):
            name, equals, given = word.partition("=")
            if not equals:
                raise ValueError(f"must be hosts by name, such as lab=nv@spark-2; it has {word[:80]!r}")
            found.append(read_host(name, given))
    elif isinstance(value, Mapping):
        found = [_of_entry(name, given) for name, given in value.items()]
    elif isinstance(value, tuple) and all(isinstance(each, RemoteHost) for each in value):
        found = list(value)
    else:
        raise ValueError(f'must be a table of hosts, such as lab = "nv@spark-2"; it is {value!r}')
    if len({each.name for each in found}) < len(found):
        raise ValueError("must name each host once")
    if len(found) > MOST_HOSTS:
        raise ValueError(f"must be at most {MOST_HOSTS} hosts; it is {len(found)}")
    return tuple(sorted(found, key=lambda each: each.name))


def server_address(text: str) -> str:
    """The base URL of a server, without `/v1` and trailing slash. Raises ValueError for what is none."""
    try:
        place = urlsplit(text.rstrip("/").removesuffix("/v1"))
        sound = place.scheme in ("http", "https") and place.hostname and place.port != 0
    except ValueError:
        sound = False
    if not sound or place.query or place.fragment or place.username or not text.isprintable():
        raise ValueError(f"must be an address such as http://192.168.1.7:8000; it is {text[:80]!r}")
    return place.geturl()


def read_host(name: str, text: str) -> RemoteHost:
    """One host from `nv@spark-2`, or `nv@spark-2,COMMAND`. Raises ValueError."""
    where, comma, command = text.partition(",")
    return _host(name, where, command if comma else DEFAULT_COMMAND)


def host_text(host: RemoteHost) -> str:
    """As text that `read_host` reads back."""
    return host.destination if host.command == DEFAULT_COMMAND else f"{host.destination},{host.command}"


def hosts_text(hosts: Hosts) -> str:
    """As text that `read_hosts` reads back."""
    words = (f"{each.name}={host_text(each)}" for each in hosts)
    return " ".join(shlex.quote(word) if _NEEDS_QUOTES.search(word) else word for word in words)


def host_plain(host: RemoteHost) -> str | dict[str, str]:
    """As written in the settings file: a text, or a table where the command is another."""
    own = host.command != DEFAULT_COMMAND
    return {"ssh": host.destination, "command": host.command} if own else host.destination


def find_host(hosts: Hosts, name: str) -> RemoteHost:
    """The host of that name, else of that address (`nv@spark-2`, `10.0.0.7`). Raises UsageError, with a suggestion."""
    known = {each.name: each for each in hosts}
    if name in known:
        return known[name]
    if any(sign in name for sign in "@.:"):
        try:
            return RemoteHost(name, check_destination(name))
        except ValueError as error:
            raise UsageError(f"--host {error}.", "Write it as for ssh: spark-tui --host nv@spark-2") from None
    near = next(iter(difflib.get_close_matches(name, known, 1)), "")
    there = f" Known: {', '.join(known)}." if known else ""
    add = "Use an ssh address (--host USER@ADDRESS), or add it: spark-tui config set hosts.NAME USER@ADDRESS"
    raise UsageError(f"Unknown host {name[:60]!r}.{there}", f"Did you mean `{near}`?" if near else add)


def check_name(name: str) -> str:
    """A name that needs no quotes anywhere. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"must have names of letters, digits, - and _; it has {name[:60]!r}")
    return name


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError(f"must have its quotes closed; it is {text[:80]!r}") from None


def _of_entry(name: object, given: object) -> RemoteHost:
    if isinstance(given, str):
        return _host(name, given, DEFAULT_COMMAND)
    if not isinstance(given, Mapping) or "ssh" not in given:
        raise ValueError(f'must be an address such as "nv@spark-2", or {{ ssh = ..., command = ... }} (for {name})')
    for part in given:
        if part not in _PARTS:
            near = next(iter(difflib.get_close_matches(str(part), _PARTS, 1)), "")
            hint = f"did you mean {near}?" if near else f"there are {' and '.join(_PARTS)}"
            raise ValueError(f"must have known parts; {str(part)[:40]!r} is none: {hint} (for {name})")
    return _host(name, given["ssh"], given.get("command", DEFAULT_COMMAND))


def _host(name: object, where: object, command: object) -> RemoteHost:
    named = check_name(name if isinstance(name, str) else repr(name))
    try:
        return RemoteHost(named, check_destination(where), _command(command))
    except ValueError as error:
        raise ValueError(f"{error} (for {named})") from None


def check_destination(value: object) -> str:
    """What ssh takes as a destination and for nothing else. Raises ValueError."""
    example = "must be an address as for ssh, such as nv@spark-2"
    if not isinstance(value, str) or not value or len(value) > MOST_CHARACTERS:
        raise ValueError(f"{example}; it is {str(value)[:60]!r}")
    user, at, host = value.removeprefix(_SCHEME).rpartition("@")
    if not host or (at and not user) or user.startswith("-") or host.startswith("-"):
        raise ValueError(f"{example}; it is {value[:60]!r}")
    strange = next(
        (each for each in user + host if not each.isprintable() or each.isspace() or each in _SHELLS_OWN), ""
    )
    if strange:
        raise ValueError(f"{example}; {value[:60]!r} has {strange!r}")
    bare, colon, port = host.partition(":")
    if colon and port.isdigit() and bare and not value.startswith(_SCHEME):
        raise ValueError(f"{example}; a port is written so: {_SCHEME}{value[:60]}")
    return value


def _command(value: object) -> str:
    example = "must have a command such as ~/spark-tui/.venv/bin/spark-tui"
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_CHARACTERS:
        raise ValueError(f"{example}; it is {str(value)[:60]!r}")
    words = _words(value)
    if not words or not words[0] or words[0].startswith("-"):
        raise ValueError(f"{example}; it is {value[:60]!r}")
    return value.strip()


def _quoted(word: str) -> str:
    """Quoted for a shell, but for `~/`, which the shell there is to make its home."""
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") and len(word) > 2 else shlex.quote(word)


QUESTION: Final = ("status", "--json")
SSH_FAILED: Final = 255
"""ssh's own exit code when it could not connect; every other one is that of the command there."""
NOT_FOUND: Final = (126, 127)
"""POSIX shells: found and cannot be run, not found."""
_MOST: Final = 300
_MOST_ENGINES: Final = 100
_NOT_REPORTED: Final = "not reported"


class HostUnreachable(UnreachableError, id="host_unreachable"):
    """ssh does not connect."""


class HostNotReady(SparkError, id="host_not_ready"):
    """ssh connects, but no spark-tui answers."""


class RemoteEngine(Struct, frozen=True):
    """An engine of another machine. `model` is empty and `port` None where unknown."""

    name: str
    state: str
    model: str = ""
    port: int | None = None

    @property
    def serving(self) -> bool:
        return self.state in ("ready", "busy", "SERVING")


class RemoteStatus(Struct, frozen=True):
    """Another machine, by its own spark-tui. `available` of `total` bytes of memory are usable."""

    hostname: str
    available: Reading[int]
    total: Reading[int]
    engines: Reading[tuple[RemoteEngine, ...]]


def read_status(out: str) -> RemoteStatus | None:
    """The answer to `status --json`, which may follow other lines of that shell; None for any other text."""
    starts = [0, *(at + 1 for at, char in enumerate(out) if char == "\n" and out.startswith("{", at + 1))]
    for start in starts[:_MOST_ENGINES]:
        try:
            given, _ = json.JSONDecoder().raw_decode(out[start:].lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(given, Mapping):
            return _status(given) if "memory" in given and "engines" in given else None
    return None


def _status(given: Mapping[str, Any]) -> RemoteStatus:
    host, memory, listed = given.get("host"), given.get("memory"), given.get("engines")
    reason = _text(given.get("memory_reason")) or _NOT_REPORTED

    def count(key: str) -> Reading[int]:
        value = memory.get(key) if isinstance(memory, Mapping) else None
        return Ok(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else Missing(reason)

    def engine(each: Mapping[str, Any]) -> RemoteEngine:
        port = each.get("port")
        known = isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536
        model = _text(each.get("served_name")) or _text(each.get("model"))
        return RemoteEngine(_text(each.get("id")), _text(each.get("state")), model, port if known else None)

    engines: Reading[tuple[RemoteEngine, ...]] = Missing(_text(given.get("engines_reason")) or _NOT_REPORTED)
    if isinstance(listed, list):
        engines = Ok(tuple(engine(each) for each in listed[:_MOST_ENGINES] if isinstance(each, Mapping)))
    hostname = _text(host.get("id")) if isinstance(host, Mapping) else ""
    return RemoteStatus(hostname, count("available_bytes"), count("total_bytes"), engines)


def no_answer(host: RemoteHost, code: int, out: str, err: str) -> SparkError:
    """Why `host` gave no status: by ssh's exit code, standard output and standard error."""
    message = last_line(err)
    if code == SSH_FAILED:
        return HostUnreachable(
            f"{host.name} is unreachable: {message or 'no message from ssh'}.",
            _ssh_remedy(host, err),
            detail=clean(err),
        )
    if code in NOT_FOUND:
        return not_installed(host, clean(err))
    return HostNotReady(
        f"{host.name} reports no status: {message or last_line(out) or f'exit code {code}'}.",
        f"Its spark-tui is probably older: update it. See: ssh {host.destination} -- {host.line(QUESTION)}",
        detail=clean(err) or clean(out[:_MOST]),
    )


def not_installed(host: RemoteHost, detail: str = "") -> SparkError:
    where = "not on the PATH of ssh" if host.command == DEFAULT_COMMAND else f"no {host.command}"
    return HostNotReady(
        f"{host.name}: spark-tui is not installed ({where}).",
        "Install it on that machine, or set its path: "
        f"spark-tui config set hosts.{_settings_name(host)} '{host.destination},~/.local/bin/spark-tui'",
        detail=detail,
    )


def too_slow(host: RemoteHost, seconds: float) -> SparkError:
    return HostUnreachable(
        f"{host.name} has not answered for {seconds:g} s.",
        f"Check that it is on and reachable: ssh {host.destination}",
    )


def too_long(host: RemoteHost, most: int) -> SparkError:
    """`most` in bytes: of its whole answer, or of one line."""
    return HostNotReady(
        f"{host.name} sent more than {human_bytes(most)} as one answer.",
        f"Check what its login shell prints: ssh {host.destination} true",
    )


def memory_words(status: RemoteStatus) -> str:
    """`96.3 of 119.7 GiB`, or why it is unknown."""
    available, total = value_of(status.available), value_of(status.total)
    if available is None:
        return f"n/a: {reason_of(status.available)}"
    return f"{gib(available)} GiB" if total is None else f"{gib(available)} of {gib(total)} GiB"


def serving_words(status: RemoteStatus) -> str:
    """`qwen3 :8000, gemma :8001; 1 not serving`, or why the engines are unknown."""
    engines = value_of(status.engines)
    if engines is None:
        return f"n/a: {reason_of(status.engines)}"
    serving = [each.name if each.port is None else f"{each.name} :{each.port}" for each in engines if each.serving]
    others = len(engines) - len(serving)
    more = f"{others} not serving" if others else ""
    return "; ".join(filter(None, (", ".join(serving) or "none", more)))


def last_line(text: str) -> str:
    """The last line that is not blank, cleaned, without its full stop."""
    lines = [line for line in (clean_line(each).strip() for each in text.splitlines()) if line]
    return truncate(lines[-1], _MOST).rstrip(".") if lines else ""


def _settings_name(host: RemoteHost) -> str:
    return host.name if host.name != host.destination else "NAME"


def _ssh_remedy(host: RemoteHost, err: str) -> str:
    by_hand = f"ssh {host.destination}"
    if "Permission denied" in err:
        return f"Copy your key: ssh-copy-id {host.destination}. With a password: spark-tui --host {host.name}"
    if _OTHER_KEY.search(err):
        remove = f"ssh-keygen -R {shlex.quote(host.known_name)}"
        return (
            f"Do not log in, unless it was newly installed: then remove its old key ({remove}), by its HostName where "
            "~/.ssh/config has one."
        )
    if "Host key verification failed" in err:
        return f"Log in once and check the key it shows: {by_hand}"
    if "Could not resolve hostname" in err:
        return f"Correct its address: spark-tui config set hosts.{_settings_name(host)} USER@ADDRESS"
    return f"See the message of ssh: {by_hand}"


def _text(value: object) -> str:
    return truncate(clean_line(value), _MOST) if isinstance(value, str) else ""


# --- nodes -----------------------------------------------------------------------------------------------


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
_NODES_PARTS: Final = {"fabric": "fabric", "if": "interfaces", "hca": "devices"}
_EXAMPLE: Final = "nv@spark-2,fabric=192.168.100.2,if=enp1s0f0np0"


class Topology(StrEnum):
    """How the nodes are wired."""

    DIRECT = "direct"
    SWITCH = "switch"
    RING = "ring"


class Spread(StrEnum):
    """How nodes share the work."""

    TENSOR = "tp"
    PIPELINE = "pp"
    DATA = "dp"
    REPLICAS = "replicas"


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
        if key not in _NODES_PARTS:
            raise ValueError(f"must have nodes such as {_EXAMPLE}; {piece[:60]!r} is not understood")
        parts.setdefault(_NODES_PARTS[key], []).append(value)
    return _node(host, parts)


def node_text(node: ClusterNode) -> str:
    """As text that `read_node` reads back."""
    given = ((key, getattr(node, field)) for key, field in _NODES_PARTS.items())
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
        given = ((field, getattr(node, field)) for field in _NODES_PARTS.values())
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
        if not isinstance(each, Mapping) or set(each) - {"ssh", *_NODES_PARTS.values()}:
            raise ValueError(f"must have nodes of ssh, {', '.join(_NODES_PARTS.values())} (for {name[:40]})")
        parts = {key: part if isinstance(part, list) else [part] for key, part in each.items() if key != "ssh"}
        nodes.append(_node(each.get("ssh"), parts))
    return _checked(name, tuple(nodes), Topology(wiring) if wiring else None)


def _node(host: object, parts: Mapping[str, list[Any]]) -> ClusterNode:
    named = check_destination(host)
    fabric, interfaces, devices = (tuple(map(str, parts.get(field, ()))) for field in _NODES_PARTS.values())
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
