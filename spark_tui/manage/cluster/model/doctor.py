"""The doctor of a cluster: each check makes one Finding of each node. What was not read is UNKNOWN, never OK."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.finding import Finding, Severity
from spark_tui.base.protocol import FabricLink
from spark_tui.base.quantities import GIB, human_bytes
from spark_tui.base.remote import Topology
from spark_tui.base.text import clean_line, quoted, truncate
from spark_tui.manage.cluster.model.copying import same_image
from spark_tui.manage.cluster.model.facts import (
    ABSENT,
    NOT_INSTALLED,
    ClusterReadings,
    MeasureKind,
    NodeFacts,
    NodeReadings,
)
from spark_tui.manage.cluster.model.variables import VARIABLES, Backend, Rank
from spark_tui.observe.explain.model.causes.network import FIXED_NCCL

JUMBO: Final = 9000
LINK_SPEED: Final = 200_000
"""Of a ConnectX-7 port of a Spark, in Mbit/s."""
CLOCK_SECONDS: Final = 2.0
ROOM_ERROR, ROOM_WARNING = 5 * GIB, 50 * GIB
# NVIDIA forum 383023, eugr/spark-vllm-docker#392
BAD_KERNELS: Final = {"7.0.0-1019-nvidia": "ibv_reg_mr fails with ENOMEM when NCCL starts; 6.17.0-1032 works"}
PCIE_LANES, PCIE_TRANSFERS = 4, 32.0
"""Of each function of the ConnectX-7: Gen5 x4."""
SETUP: Final = "setup-cluster.sh --doctor (eugr/spark-vllm-docker; its changes are reversible)"
NETPLAN_FILE: Final = "/etc/netplan/40-cx7.yaml"
NAME_ONE: Final = "Name one: --preset NAME, --image REFERENCE or --model NAME"
MEASURE_IT: Final = "Measure it: --bandwidth"
MEASURE_AGAIN: Final = "Check the firewall between the nodes, then measure again: --bandwidth"
GATHER_NEEDS: Final = "It needs a GPU on each node, and an image with PyTorch: --bandwidth --image REFERENCE"
ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.UNKNOWN, Severity.INFO, Severity.OK)
"""What needs attention first: what could not be checked stands before what is fine."""


class CheckGroup(StrEnum):
    """What a check is about, in display order."""

    NODES = "Nodes"
    SOFTWARE = "Software"
    FABRIC = "Fabric"
    PATHS = "Paths"


class NodeView(Struct, frozen=True):
    """One node under a check, among all."""

    all: ClusterReadings
    at: int
    own: NodeReadings
    facts: NodeFacts

    @property
    def rails(self) -> Iterator[tuple[int, FabricLink]]:
        """The fabric interfaces, numbered; one that the node does not have is unknown in all. On a ring the first may
        be on the LAN."""
        ring, names = self.all.cluster.topology is Topology.RING, enumerate(self.own.node.interfaces)
        found = ((rail, self.own.link(rail) or FabricLink(name)) for rail, name in names)
        return ((rail, link) for rail, link in found if link.connectx or not ring)

    def first(self, read: Callable[[NodeFacts], Any]) -> tuple[str, Any]:
        """The first node that has something, and what; empty and None where none has."""
        found = ((each.node.name, read(each.facts)) for each in self.all.nodes if each.facts)
        return next((each for each in found if each[1]), ("", None))


Rule = Callable[[NodeView], Iterator[Finding]]


class ClusterCheck(Struct, frozen=True):
    """`rule` yields what it finds at a node, the worst counts. `needs` names the fact that it looks at: where that is
    None, or nothing is found, the finding is UNKNOWN. Scripts rely on `id`."""

    id: str
    group: CheckGroup
    title: str
    rule: Rule
    needs: str = ""

    def run(self, seen: ClusterReadings, at: int) -> Finding:
        """The finding with this check's id and the node as its subject."""
        own = seen.nodes[at]
        found = sorted(self._found(seen, at, own), key=lambda each: ORDER.index(each.severity))
        worst = found[0] if found else _unknown(f"{self.title}: not checked.")
        evidence = [text for each in found if each.severity is worst.severity for text in each.evidence]
        evidence = list(dict.fromkeys(truncate(clean_line(text), 200) for text in evidence if text))
        return replace(worst, id=self.id, subject=own.node.name, evidence=tuple(evidence))

    def _found(self, seen: ClusterReadings, at: int, own: NodeReadings) -> Iterable[Finding]:
        if own.facts is None:
            problem = own.problem if self.id == "reach" else None
            return [_error(problem.summary, problem.remedy) if problem else _unknown("Not checked.")]
        if self.needs and getattr(own.facts, self.needs) is None:
            return [_unknown(f"{self.title}: unknown.", "", own.facts.missing.get(self.needs, ""))]
        return self.rule(NodeView(seen, at, own, own.facts))


def _found(severity: Severity, summary: str, remedy: str = "", evidence: str = "") -> Finding:
    return Finding("", severity, summary, (evidence,), remedy)


_ok, _info, _unknown, _warning, _error = (
    partial(_found, each) for each in (Severity.OK, Severity.INFO, Severity.UNKNOWN, Severity.WARNING, Severity.ERROR)
)


def _equal(field: str, what: str, remedy: str, severity: Severity = Severity.WARNING) -> Rule:
    """A fact that is to be the same on all nodes; the first node with one is the measure."""

    def rule(seen: NodeView) -> Iterator[Finding]:
        own, (name, first) = getattr(seen.facts, field), seen.first(lambda each: getattr(each, field))
        if own and own == first:
            yield _ok(f"{what} {own}.")
        elif own:
            fix = remedy.replace("NODE", seen.own.node.name)
            yield _found(severity, f"{what} {own} differs from {name}.", fix, f"{own}; {name}: {first}")

    return rule


# --- nodes ------------------------------------------------------------------------------------------------


def _clock(seen: NodeView) -> Iterator[Finding]:
    offset, tolerance = seen.own.offset, seen.own.tolerance
    evidence = f"{offset:+.1f} s against this machine (within {tolerance:.1f} s)"
    if abs(offset) - tolerance > CLOCK_SECONDS:
        yield _warning("The clock is wrong: times in logs do not match.", "sudo timedatectl set-ntp true", evidence)
    elif tolerance > CLOCK_SECONDS:
        yield _unknown("The answer took too long to compare clocks.", "", evidence)
    else:
        yield _ok("The clock agrees.", "", evidence)


def _kernel(seen: NodeView) -> Iterator[Finding]:
    if cause := BAD_KERNELS.get(seen.facts.kernel):
        fix = "Boot 6.17.0-1032 or another one (GRUB, Advanced options). See: apt list --installed 'linux-image-*'"
        yield _error(f"Kernel {seen.facts.kernel} breaks RDMA.", fix, cause)
    update = "Update all nodes to the same release: sudo apt update && sudo apt full-upgrade"
    yield from _equal("kernel", "Kernel", update)(seen)


def _memory(seen: NodeView) -> Iterator[Finding]:
    available, total = seen.facts.available or 0, seen.facts.total or 0
    evidence = f"{human_bytes(available)} of {human_bytes(total)} available"
    if available < total / 2:
        fix = f"See what uses it: spark-tui --host {seen.own.node.host} memory"
        yield _warning("More than half of the memory is in use.", fix, evidence)
    yield _ok("Enough memory is available.", "", evidence)


def _disk(seen: NodeView) -> Iterator[Finding]:
    free = seen.facts.free or 0
    severity = Severity.ERROR if free < ROOM_ERROR else Severity.WARNING if free < ROOM_WARNING else Severity.OK
    fix = f"Remove unused models: spark-tui --host {seen.own.node.host} models list"
    yield _found(severity, f"{human_bytes(free)} free for models.", "" if severity is Severity.OK else fix)


def _leftovers(seen: NodeView) -> Iterator[Finding]:
    """Ranks of a launch of which not all run, and shared memory that no process has open."""
    own, leaked = seen.facts.ranks or (), seen.facts.leaked
    ranks = [rank for each in seen.all.nodes if each.facts for rank in each.facts.ranks or () if rank.running]
    left = [each.name for each in own if sum(rank.launch == each.launch for rank in ranks) < each.count]
    if left:
        fix = f"docker rm -f {' '.join(map(quoted, left))}"
        yield _warning(f"{left[0]} belongs to a launch that is not complete.", fix, ", ".join(left))
    if leaked:
        names = " ".join(quoted(f"/dev/shm/{each}") for each in leaked[:3])  # noqa: S108 - named, not used
        yield _warning(f"{len(leaked)} leaked files in shared memory.", f"Remove them: sudo rm {names}", names)
    if leaked is None:
        yield _unknown("Shared memory: unknown.", "", seen.facts.missing.get("leaked", ""))
    if own:
        yield _info("A launch over several nodes runs.", "", ", ".join(each.name for each in own))
    yield _ok("No leftovers.")


# --- software ---------------------------------------------------------------------------------------------


def _docker(seen: NodeView) -> Iterator[Finding]:
    if seen.facts.docker is None:
        fix = f"See why: spark-tui --host {seen.own.node.host} doctor"
        yield _error("Docker does not answer.", fix, seen.facts.missing.get("docker", ""))
    yield from _equal("docker", "Docker", "", Severity.INFO)(seen)


def _absent(seen: NodeView, field: str, named: str, copy: str, fetch: str) -> Iterator[Finding]:
    """For an image or a model that the node does not have."""
    reason, owner = seen.facts.missing.get(field, ""), seen.first(lambda each: getattr(each, field))[0]
    if reason != ABSENT:
        yield _unknown(f"{named}: unknown.", "", reason)
    elif owner:
        yield _error(f"{named} is not downloaded.", copy, f"downloaded on {owner}")
    else:
        yield _warning(f"{named} is not downloaded.", f"On the head: {fetch}. Then: {copy}")


def _image(seen: NodeView) -> Iterator[Finding]:
    image, (name, first) = seen.all.image, seen.first(lambda each: each.image)
    copy = f"spark-tui cluster copy image {quoted(image)} {seen.all.cluster.name}"
    if not image:
        yield _unknown("No image named.", NAME_ONE)
    elif seen.facts.image is None:
        yield from _absent(seen, "image", image, copy, f"docker pull {quoted(image)}")
    elif same_image(seen.facts.image, first):
        yield _ok("The image is the same.", "", image)
    elif not (seen.facts.image.layers and first.layers):
        yield _unknown("The image has neither digests nor layers to compare.", "", image)
    else:
        yield _error(f"The image differs from {name}.", copy, image)


def _nccl(seen: NodeView) -> Iterator[Finding]:
    text = seen.facts.image.nccl if seen.facts.image else ""
    numbers = tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())
    command = "python3 -c 'import torch; print(torch.cuda.nccl.version())'"
    read = f"docker run --rm --entrypoint '' {quoted(seen.all.image)} {command}"
    if seen.facts.image is None:
        yield _unknown("Image not available.", "" if seen.all.image else NAME_ONE)
    elif len(numbers) < len(FIXED_NCCL):
        yield _unknown("The image states no NCCL version.", read)
    elif numbers < FIXED_NCCL:
        fix = f"Use an image with 2.29.3 or later. PyTorch may have its own: {read}"
        found = _warning(f"NCCL {text}: generation may stop after 20 minutes.", fix, "NVIDIA/nccl#2213")
        yield replace(found, guess=True)
    else:
        yield _unknown(f"The image states NCCL {text}; PyTorch may have its own.", read)


def _model(seen: NodeView) -> Iterator[Finding]:
    model, (name, first) = seen.all.model, seen.first(lambda each: each.files)
    copy = f"spark-tui cluster copy model {quoted(model)} {seen.all.cluster.name}"
    if not model:
        yield _unknown("No model named.", NAME_ONE)
        return
    if not seen.facts.files:
        yield from _absent(seen, "files", model, copy, f"spark-tui models pull {quoted(model)}")
        return
    mine, theirs = ({file: rest for file, *rest in files} for files in (seen.facts.files, first))
    other = [file for file in sorted({*mine, *theirs}) if not _same_file(mine.get(file), theirs.get(file))]
    if not other:
        yield _ok(f"{len(mine)} files, the same on all nodes.", "", model)
        return
    sizes = (f"{file}: {mine.get(file, ['absent'])[0]}, {name}: {theirs.get(file, ['absent'])[0]}" for file in other)
    yield _error(f"{len(other)} files of the model differ from {name}.", copy, "; ".join([*sizes][:3]))


def _same_file(one: list[Any] | None, other: list[Any] | None) -> bool:
    """By size and blob; a plain folder has no blob names to compare."""
    return bool(one and other and one[0] == other[0] and (one[1] == other[1] or not (one[1] and other[1])))


# --- fabric -----------------------------------------------------------------------------------------------


def _variables(seen: NodeView) -> Iterator[Finding]:
    """What a launch writes into the environment must exist on this node. RoCE devices have their own check."""
    node, links = seen.own.node, seen.facts.links or ()
    if not (node.fabric and node.interfaces):
        return
    have = {each.name for each in links} | {each.partition("/")[0] for link in links for each in link.addresses}
    rank = Rank(node, seen.at, len(seen.all.nodes), Backend.RAY, seen.all.cluster.topology)
    for each in VARIABLES:
        value = each.value(rank) if each.own and each.name != "NCCL_IB_HCA" else None
        if value and value not in have:
            fix = f"Name what it has: spark-tui cluster add {seen.all.cluster.name} --node {node.host},..."
            yield _error(f"{each.name} would name {value}, which does not exist.", fix, f"{each.name}={value}")
    yield _ok("Interfaces and addresses exist.")


def _carrier(seen: NodeView) -> Iterator[Finding]:
    for _, link in seen.rails:
        if link.up is None:
            yield _unknown(f"Link of {link.name}: unknown.")
        elif link.up:
            yield _ok("All links are up.")
        else:
            fix = f"sudo ip link set {quoted(link.name)} up. If it stays down, check the cable at both ends."
            yield _error(f"{link.name} has no link.", fix, f"{link.name}: no carrier")


def _twins(seen: NodeView) -> Iterator[Finding]:
    """Each cage is two interfaces of half the bandwidth."""
    used = {link.name for _, link in seen.rails}
    for cage in sorted({link.cage for _, link in seen.rails if link.connectx and link.cage}):
        twins = [each for each in seen.facts.links or () if each.connectx and each.cage == cage]
        idle = [each.name for each in twins if each.name not in used]
        names = f"cage {cage}: {', '.join(each.name for each in twins)}"
        if idle:
            fix = f"Give it an address (netplan below), then: spark-tui cluster add {seen.all.cluster.name}"
            yield _warning(f"{idle[0]} is not in use: half the bandwidth.", fix, names)
        elif len(twins) < 2:
            yield _warning("The cage has one interface: half the bandwidth.", "See: ibdev2netdev", names)
        elif all(each.up for each in twins):
            yield _ok("Both interfaces of the cage are in use.", "", names)


def _speed(seen: NodeView) -> Iterator[Finding]:
    for _, link in seen.rails:
        evidence = f"{link.name}: {link.speed} Mbit/s"
        if not link.speed:
            yield _unknown(f"Speed of {link.name}: unknown.", f"Read it: ethtool {quoted(link.name)}")
        elif link.speed >= LINK_SPEED:
            yield _ok("200 Gbit/s.", "", evidence)
        elif link.speed == LINK_SPEED // 2:
            fix = "Force 200G on the switch port, or replace the cable."
            yield _warning("100 Gbit/s: auto-negotiation of the switch, or the cable.", fix, evidence)
        else:
            fix = "Use the ConnectX-7 interfaces: spark-tui cluster add --help"
            yield _warning(f"{link.speed / 1000:g} Gbit/s: not a QSFP port.", fix, evidence)


def _mtu(seen: NodeView) -> Iterator[Finding]:
    for rail, link in seen.rails:
        fix = f"sudo ip link set {quoted(link.name)} mtu {JUMBO}. To keep it: netplan below."
        others = [(peer.node.name, peer.link(theirs)) for mine, peer, theirs in seen.all.paths(seen.at) if mine == rail]
        known = [(each.mtu, name) for name, each in others if each and each.mtu]
        largest, name = max(known, default=(0, ""))
        if link.mtu is None:
            yield _unknown(f"MTU of {link.name}: unknown.")
        elif largest > link.mtu:
            evidence = f"{link.name}: {link.mtu}, {name}: {largest}"
            yield _error(f"MTU {link.mtu} is smaller than on {name}: large packets are lost.", fix, evidence)
        elif link.mtu < JUMBO:
            yield _warning(f"MTU {link.mtu} costs 10 to 20 % bandwidth.", fix, f"{link.name}: {link.mtu}")
        elif len(known) < len(others):
            yield _unknown("MTU of the other nodes: unknown.", "", f"{link.name}: {link.mtu}")
        else:
            yield _ok(f"MTU {link.mtu} on all nodes.")


def _address(seen: NodeView) -> Iterator[Finding]:
    for rail, link in seen.rails:
        given, cluster = seen.own.node.fabric[rail], seen.all.cluster.name
        if link.has(given):
            yield _ok("Each fabric address exists once.", "", f"{link.name}: {given}")
        else:
            fix = f"Give it the address (netplan below), or correct the cluster: spark-tui cluster add {cluster}"
            has = ", ".join(link.addresses) or "no address"
            yield _error(f"{given} is not an address of {link.name}.", fix, f"{link.name}: {has}")
    if any(each.facts is None or each.facts.links is None for each in seen.all.nodes):
        yield _unknown("Addresses of the other nodes: unknown.")
    for link in seen.facts.links or ():
        for peer, address in ((each.node.name, ip) for each in seen.all.nodes for ip in each.node.fabric):
            if link.has(address) and address not in seen.own.node.fabric:
                fix = f"Remove it: sudo ip addr del {address} dev {quoted(link.name)}, and from netplan."
                yield _error(f"{link.name} has an address of {peer}.", fix, f"{link.name}: {address}")


def _subnet(seen: NodeView) -> Iterator[Finding]:
    fix, own = "Use one subnet for each rail (netplan below).", seen.own
    for rail, link in seen.rails:
        subnet = own.subnet(rail)
        paths = [(peer, theirs) for mine, peer, theirs in seen.all.paths(seen.at) if mine == rail]
        if subnet is None:
            yield _unknown(f"Subnet of {link.name}: unknown.")
            continue
        evidence = f"{link.name}: {subnet}"
        others = [(peer.node.name, peer.subnet(theirs)) for peer, theirs in paths if peer is seen.all.nodes[0]]
        twins = [found for each in range(rail) if (found := own.subnet(each)) and found.network == subnet.network]
        name, head = others[0] if others else ("", subnet)
        if twins:
            yield _warning("Two rails share a subnet: all traffic takes one of them.", fix, f"{evidence}, {twins[0]}")
        elif not paths:
            yield _error(f"No other node has an address in {subnet.network}.", f"See: {SETUP}", evidence)
        elif head is None:
            yield _unknown(f"Subnet of {name}: unknown.")
        elif head.network != subnet.network:
            yield _error(f"{link.name} is not in the subnet of {name}.", fix, f"{evidence}, {name}: {head}")
        else:
            yield _ok("Each rail has its subnet.", "", evidence)


def _roce(seen: NodeView) -> Iterator[Finding]:
    devices = {each.name: each for each in seen.facts.devices or ()}
    down = {seen.own.device(rail) for rail, link in seen.rails if link.up is False}
    for name in seen.own.node.hca:
        device = devices.get(name)
        if device is None:
            fix = "sudo modprobe mlx5_ib. For another device: hca=NAME in the cluster (see ibdev2netdev)."
            yield _error(f"No {name}: NCCL falls back to TCP.", fix, f"RoCE devices: {', '.join(devices) or 'none'}")
        elif "ACTIVE" not in device.state and name in down:
            yield _unknown(f"{name} has no link.", "", f"{name}: {device.state}")
        elif "ACTIVE" not in device.state:
            yield _error(f"{name} is not active.", "Check cable and interface: ibdev2netdev", f"{name}: {device.state}")
        elif device.rate is None:
            yield _unknown(f"Rate of {name}: unknown.")
        elif device.rate * 1000 < LINK_SPEED:
            fix = "Force 200G on the switch port, or replace the cable."
            yield _warning(f"{name} runs at {device.rate:g} Gbit/s instead of 200.", fix, name)
        else:
            yield _ok("RoCE devices are active at 200 Gbit/s.", "", name)


def _gids(node: NodeReadings) -> dict[str, int]:
    """The index of the RoCE v2 GID of each address."""
    devices = node.facts.devices if node.facts else None
    return {address: index for each in devices or () for index, address in each.gids}


def _gid(seen: NodeView) -> Iterator[Finding]:
    gids = _gids(seen.own)
    wanted = [(link.name, seen.own.node.fabric[rail]) for rail, link in seen.rails]
    for name, address in wanted if seen.facts.devices else ():
        if address not in gids:
            fix = f"See: show_gids; ip addr show {name}. Then: sudo netplan apply"
            yield _error(f"No RoCE v2 GID for {address}.", fix, f"{name}: {address}")
        elif {gids[address]} != {
            _gids(each).get(ip) for each in seen.all.nodes if each.facts for ip in each.node.fabric
        }:
            yield _info("GID indexes differ. Launches therefore pin none.", "", f"{address}: index {gids[address]}")
        else:
            yield _ok("Each fabric address has a RoCE v2 GID.", "", f"{address}: index {gids[address]}")


def _firmware(seen: NodeView) -> Iterator[Finding]:
    def versions(each: NodeFacts) -> str:
        return ", ".join(sorted({device.firmware for device in each.devices or () if device.firmware}))

    own, (name, first) = versions(seen.facts), seen.first(versions)
    if own and own == first:
        yield _ok(f"Firmware {own}.")
    elif own:
        fix = "Update all nodes: sudo fwupdmgr update, then a full power cycle."
        yield _warning(f"Firmware {own} differs from {name}.", fix, f"{own}; {name}: {first}")


def _pcie(seen: NodeView) -> Iterator[Finding]:
    """Each function of the card has its own four lanes; a firmware of before spring 2026 gives the second cage two."""
    devices = {each.name: each for each in seen.facts.devices or ()}
    for device in (devices[name] for name in seen.own.node.hca if name in devices):
        if device.lanes is None or device.transfers is None:
            yield _unknown(f"PCIe width of {device.name}: unknown.", f"Read it: sudo lspci -vv ({device.name})")
        elif device.lanes < PCIE_LANES or device.transfers < PCIE_TRANSFERS:
            found = f"PCIe x{device.lanes} at {device.transfers:g} GT/s instead of x{PCIE_LANES} at {PCIE_TRANSFERS:g}"
            fix = "Update the firmware: sudo fwupdmgr update, then a full power cycle."
            yield _warning(f"{device.name}: {found}.", fix, device.name)
        else:
            yield _ok(f"PCIe x{PCIE_LANES} at {PCIE_TRANSFERS:g} GT/s.", "", device.name)


def _wifi(seen: NodeView) -> Iterator[Finding]:
    """All control traffic uses the first address."""
    first = next(iter(seen.own.node.fabric), "")
    for link in seen.facts.links or ():
        if first and link.has(first) and link.wireless:
            fix = f"Use the address of a ConnectX interface: spark-tui cluster add {seen.all.cluster.name}"
            yield _error(f"{first} is on Wi-Fi.", fix, link.name)
        elif first and link.has(first):
            yield _ok("Not on Wi-Fi.", "", link.name)


# --- paths ------------------------------------------------------------------------------------------------


def _route(seen: NodeView) -> Iterator[Finding]:
    for mine, peer, theirs in seen.all.paths(seen.at):
        address, link = peer.node.fabric[theirs], seen.own.link(mine)
        used, wanted = seen.own.probe.routes.get(address), link.name if link and link.up is not False else ""
        if used is None or not wanted:
            yield _unknown(f"Route to {address}: not checked.", "", "" if wanted else "no link")
        elif used != wanted:
            fix = f"See: ip route get {address}. Use one subnet for each rail."
            yield _error(f"{address} is not reached by {wanted}.", fix, f"{address}: {used or 'no route'}")
        else:
            yield _ok("Each peer is reached by its rail.", "", f"{address}: {used}")


def _ping(seen: NodeView) -> Iterator[Finding]:
    down = {link.name for _, link in seen.rails if link.up is False}
    for ping in seen.own.probe.pings:
        size, evidence = ping.size + 28, f"ping -M do -s {ping.size} -I {ping.interface} {ping.peer}"
        if ping.received is None:
            yield _unknown(f"Not checked: {ping.problem}.", "sudo apt install iputils-ping", evidence)
        elif ping.received:
            yield _ok("Packets of full size arrive.", "", evidence)
        elif ping.interface in down:
            yield _unknown(f"{ping.interface} has no link.", "", evidence)
        elif ping.small:
            fix = f"Same MTU on both ends and on the switch: sudo ip link set {quoted(ping.interface)} mtu {JUMBO}"
            yield _error(f"Packets of {size} bytes to {ping.peer} are lost; small ones arrive.", fix, evidence)
        else:
            fix = f"Check cable and addresses of both ends: {SETUP}"
            yield _error(f"{ping.peer} does not answer on {ping.interface}.", fix, evidence)


def _ssh(seen: NodeView) -> Iterator[Finding]:
    for address, problem in seen.own.probe.ssh.items():
        if not problem:
            yield _ok("ssh over the fabric works.", "", address)
        elif seen.own.probe.no_path(address) or address.startswith("-"):  # an option of ssh
            yield _unknown(f"{address} does not answer pings either.")
        else:
            program = "ssh" if "verification failed" in problem else "ssh-copy-id"
            fix = f"On {seen.own.node.name}, once: {program} {quoted(address)}"
            yield _warning(f"ssh to {address} fails, so copies will too.", fix, problem)


def _ports(seen: NodeView) -> Iterator[Finding]:
    for port, owner in seen.facts.taken:
        yield _warning(f"Port {port} is taken.", "Stop that process, or launch with --port.", f"{port}: {owner}")
    yield _ok("The ports of a launch are free.", "", ", ".join(map(str, seen.all.ports)))


def _firewall(seen: NodeView) -> Iterator[Finding]:
    """What other nodes could connect to, at the address for control traffic."""
    own = seen.own
    dials = [(each, dial) for each in seen.all.nodes if each is not own for dial in each.probe.dials]
    for guest, dial in dials:
        if dial.peer not in own.node.fabric:
            continue
        evidence, deaf = f"{guest.node.name} to {dial.peer}:{dial.port}", own.probe.deaf.get(str(dial.port))
        if not dial.problem:
            yield _ok("Other nodes can connect.", "", evidence)
        elif deaf != "" or guest.probe.no_path(dial.peer):
            yield _unknown(f"Port {dial.port}: not checked.", "", deaf or "no answer to pings either")
        else:
            interface = own.node.interfaces[0] if own.node.interfaces else "NAME"
            fix = f"On {own.node.name}: sudo ufw allow in on {interface}. See: sudo iptables -vnL INPUT"
            summary = f"{guest.node.name} cannot connect to port {dial.port}: probably a firewall."
            yield _error(summary, fix, f"{evidence}: {dial.problem}")


# --- bandwidth --------------------------------------------------------------------------------------------

_POWER: Final = "Shut down, unplug the power supply for a minute, start. A reboot does not help."
_TWINS: Final = "Use both twins of the cage. See: spark-tui cluster show NAME"
_LINK: Final = "Check speed, MTU and route of the rail."
_DEVICE: Final = "Start containers with --device /dev/infiniband and --ulimit memlock=-1."
_DEGRADED: Final = (0, Severity.ERROR, "degraded start of the ConnectX-7 (about 13)", _POWER)
_SOCKETS: Final = (0, Severity.ERROR, "TCP sockets instead of RDMA (about 3)", _DEVICE)
BANDS: Final[Mapping[MeasureKind, tuple[tuple[float, Severity, str, str], ...]]] = {
    # at least so much, and its cause; from the playbooks' benchmark guide and spark_cluster_setup.py
    MeasureKind.RDMA: (
        (170, Severity.OK, "full speed", ""),
        (80, Severity.WARNING, "one twin only", _TWINS),
        (20, Severity.WARNING, "below one twin", _LINK),
        _DEGRADED,
    ),
    MeasureKind.TWIN: (
        (80, Severity.OK, "full speed of one twin", ""),
        (20, Severity.WARNING, "below one twin", _LINK),
        _DEGRADED,
    ),
    MeasureKind.TCP: (
        (80, Severity.OK, "full speed", ""),
        (20, Severity.WARNING, "below the usual 96", _LINK),
        (0, Severity.ERROR, "another interface, or degraded start of the ConnectX-7", f"{_LINK} Then: {_POWER}"),
    ),
    MeasureKind.NCCL: (
        (21.875, Severity.OK, "full speed", ""),
        (18, Severity.WARNING, "MTU 1500", f"Set MTU {JUMBO} on all nodes."),
        (8, Severity.WARNING, "one RoCE device (about 12)", _TWINS),
        _SOCKETS,
    ),
    MeasureKind.NCCL_RING: (
        (10, Severity.OK, "full speed of a ring", ""),
        (5, Severity.WARNING, "below the usual 10", _LINK),
        _SOCKETS,
    ),
}


def judge_bandwidth(kind: MeasureKind, value: float) -> Finding:
    """What a bandwidth means: Gbit/s, of NCCL GB/s."""
    _, severity, cause, remedy = next(each for each in BANDS[kind] if value >= each[0])
    return _found(severity, f"{value:.1f} {kind.unit}: {cause}.", remedy, f"{kind.value}: {value:.1f} {kind.unit}")


def _bandwidth(name: str, fix: str, *kinds: MeasureKind) -> Rule:
    """The rule for what that program measures."""

    def rule(seen: NodeView) -> Iterator[Finding]:
        if not seen.all.bandwidth:
            yield _unknown("Not measured.", MEASURE_IT)
        for kind, value, problem in ((each.kind, each.value, each.problem) for each in seen.own.measures):
            if kind in kinds and value is not None:
                yield judge_bandwidth(kind, value)
            elif kind in kinds:
                again = fix != GATHER_NEEDS and problem != NOT_INSTALLED
                yield _unknown(f"{name}: {problem.rstrip('.')}.", MEASURE_AGAIN if again else fix)

    return rule


_APT: Final = "On all nodes: sudo apt install {}"
_rdma = _bandwidth("perftest", _APT.format("perftest"), MeasureKind.RDMA, MeasureKind.TWIN)
_tcp = _bandwidth("iperf3", _APT.format("iperf3"), MeasureKind.TCP)
_collective = _bandwidth("NCCL all-gather", GATHER_NEEDS, MeasureKind.NCCL, MeasureKind.NCCL_RING)
CHECKS: Final = (
    ClusterCheck(
        "reach", CheckGroup.NODES, "spark-tui", _equal("version", "spark-tui", "spark-tui cluster install NODE")
    ),
    ClusterCheck(
        "user",
        CheckGroup.NODES,
        "User",
        _equal("user", "User", "Use the same user on all nodes: copies and mpirun expect it."),
    ),
    ClusterCheck("clock", CheckGroup.NODES, "Clock", _clock),
    ClusterCheck("kernel", CheckGroup.NODES, "Kernel", _kernel),
    ClusterCheck("memory", CheckGroup.NODES, "Memory", _memory, "available"),
    ClusterCheck("disk", CheckGroup.NODES, "Disk", _disk, "free"),
    ClusterCheck("leftovers", CheckGroup.NODES, "Leftovers", _leftovers, "ranks"),
    ClusterCheck(
        "driver", CheckGroup.SOFTWARE, "NVIDIA driver", _equal("driver", "Driver", "Update all nodes alike."), "driver"
    ),
    ClusterCheck("docker", CheckGroup.SOFTWARE, "Docker", _docker),
    ClusterCheck("image", CheckGroup.SOFTWARE, "Image", _image),
    ClusterCheck("nccl", CheckGroup.SOFTWARE, "NCCL", _nccl),
    ClusterCheck("model", CheckGroup.SOFTWARE, "Model", _model),
    ClusterCheck("variables", CheckGroup.FABRIC, "Environment", _variables, "links"),
    ClusterCheck("carrier", CheckGroup.FABRIC, "Cable", _carrier, "links"),
    ClusterCheck("twins", CheckGroup.FABRIC, "Twins", _twins, "links"),
    ClusterCheck("speed", CheckGroup.FABRIC, "Link speed", _speed, "links"),
    ClusterCheck("mtu", CheckGroup.FABRIC, "MTU", _mtu, "links"),
    ClusterCheck("address", CheckGroup.FABRIC, "Addresses", _address, "links"),
    ClusterCheck("subnet", CheckGroup.FABRIC, "Subnets", _subnet, "links"),
    ClusterCheck("roce", CheckGroup.FABRIC, "RoCE devices", _roce, "devices"),
    ClusterCheck("gid", CheckGroup.FABRIC, "RoCE v2 GIDs", _gid, "devices"),
    ClusterCheck("firmware", CheckGroup.FABRIC, "Firmware", _firmware, "devices"),
    ClusterCheck("pcie", CheckGroup.FABRIC, "PCIe", _pcie, "devices"),
    ClusterCheck("wifi", CheckGroup.FABRIC, "Wi-Fi", _wifi, "links"),
    ClusterCheck("route", CheckGroup.PATHS, "Routes", _route),
    ClusterCheck("ping", CheckGroup.PATHS, "Jumbo pings", _ping),
    ClusterCheck("ssh", CheckGroup.PATHS, "ssh", _ssh),
    ClusterCheck("ports", CheckGroup.PATHS, "Ports", _ports),
    ClusterCheck("firewall", CheckGroup.PATHS, "Firewall", _firewall),
    ClusterCheck("rdma_bandwidth", CheckGroup.PATHS, "RDMA bandwidth", _rdma),
    ClusterCheck("tcp_bandwidth", CheckGroup.PATHS, "TCP bandwidth", _tcp),
    ClusterCheck("nccl_bandwidth", CheckGroup.PATHS, "NCCL bandwidth", _collective),
)
"""All checks in display order."""
CHECK_BY_ID: Final = {check.id: check for check in CHECKS}


def examine(seen: ClusterReadings) -> tuple[Finding, ...]:
    """The finding of every check for every node, in the order of CHECKS and of the nodes. Never raises."""
    return tuple(check.run(seen, at) for check in CHECKS for at in range(len(seen.nodes)))


def netplan(seen: ClusterReadings, findings: Iterable[Finding]) -> dict[str, str]:
    """A proposal for NETPLAN_FILE by node, where MTU, twins, addresses or subnets need one: 192.168.100.N/24 on the
    first rail and so on, good addresses kept. Empty for a ring, whose subnets follow from its cables."""
    found = [each for each in findings if each.severity in (Severity.ERROR, Severity.WARNING)]
    new = {each.id for each in found} & {"address", "subnet"}
    small = {each.subject for each in found if each.id == "mtu"}
    wanted = new or any(each.id == "twins" for each in found)
    proposals = {}
    for at, own in enumerate(seen.nodes if seen.cluster.topology is not Topology.RING else ()):
        cages = {link.cage for rail in range(len(own.node.fabric)) if (link := own.link(rail)) and link.connectx}
        links = [
            each for each in (own.facts.links if own.facts else None) or () if each.connectx and each.cage in cages
        ]
        names = list(dict.fromkeys((*own.node.interfaces, *(each.name for each in links))))
        lines = ["network:", "  version: 2", "  ethernets:"]
        for rail, name in enumerate(names):
            kept = own.subnet(rail) if rail < len(own.node.fabric) and not new else None
            lines += [f"    {name}:", "      dhcp4: no", "      dhcp6: no", "      link-local: []"]
            lines += [f"      mtu: {JUMBO}", f"      addresses: [{kept or f'192.168.{100 + rail}.{at + 1}/24'}]"]
        if links and (wanted or own.node.name in small):
            proposals[own.node.name] = "\n".join(lines) + "\n"
    return proposals
