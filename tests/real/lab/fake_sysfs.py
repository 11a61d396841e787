"""Files under /sys by which a Spark's network cards are known, for nodes whose links are virtual.

Written into a folder of the machine that a node lays over its own /sys: read as they would be there, the rest live.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RDMA_DEVICES = {"enp1s0f0np0": "rocep1s0f0", "enP2p1s0f0np0": "roceP2p1s0f0"}
"""The twins of QSFP cage 0 (NVIDIA/dgx-spark-playbooks, connect-two-sparks)."""
SLOTS = {"enp1s0f0np0": "0000:01:00.0", "enP2p1s0f0np0": "0002:01:00.0", "enP7s7": "0007:01:00.0"}
DRIVERS = {"enp1s0f0np0": "mlx5_core", "enP2p1s0f0np0": "mlx5_core", "enP7s7": "r8127"}
SPEEDS = {"enp1s0f0np0": 200_000, "enP2p1s0f0np0": 200_000, "enP7s7": 10_000}
"""Mb/s."""
WIRELESS = "wlP9s9"

NO_GID = ipaddress.IPv6Address(0)


PCIE = {"device/current_link_width": "4", "device/current_link_speed": "32.0 GT/s PCIe"}


@dataclass(frozen=True)
class FakeSysfs:
    """The files of one node, in `folder`; none before `write`."""

    folder: Path

    @property
    def there(self) -> bool:
        """Whether the node has them."""
        return self.folder.exists()

    def write(self, addresses: Mapping[str, str], *, first_gid: int) -> None:
        """Writes every card. `addresses` are IPv4 by interface; RoCE's GIDs begin at the index `first_gid`."""
        for interface, device in RDMA_DEVICES.items():
            self._write_rdma(interface, device, addresses[interface], first_gid)
        for interface, speed in SPEEDS.items():
            files = {"speed": str(speed), "duplex": "full"}
            slot = f"DRIVER={DRIVERS[interface]}\nPCI_SLOT_NAME={SLOTS[interface]}"
            if interface in RDMA_DEVICES:
                files["phys_port_name"] = "p0"
                (self._card(interface) / "device/infiniband" / RDMA_DEVICES[interface]).mkdir(parents=True)
            write_files(self._card(interface), {**files, "device/uevent": slot})
        (self._card(WIRELESS) / "wireless").mkdir(parents=True)

    def show_link(self, interface: str, up: bool) -> None:
        """The RDMA port as its interface's link is."""
        port = self._rdma(RDMA_DEVICES[interface]) / "ports/1"
        state = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"} if up else {"state": "1: DOWN"}
        write_files(port, {"phys_state": "3: Disabled", **state})

    def overlays(self) -> list[tuple[Path, str]]:
        """What is laid over which folder of the node's /sys."""
        cards = sorted((self.folder / "net").iterdir()) if self.there else []
        found = [(card, f"/sys/devices/virtual/net/{card.name}") for card in cards]
        return [(self.folder / "class", "/sys/class"), *found] if found else []

    def _write_rdma(self, interface: str, device: str, address: str, first_gid: int) -> None:
        folder, port = self._rdma(device), self._rdma(device) / "ports/1"
        (folder / "device/net" / interface).mkdir(parents=True)
        write_files(folder, {"node_type": "1: CA", "fw_ver": "28.45.4028", **PCIE})
        write_files(port, {"rate": "200 Gb/sec (4X HDR)", "link_layer": "Ethernet"})
        self.show_link(interface, up=True)
        own = ipaddress.IPv4Address(address)
        local = ipaddress.IPv6Address(f"fe80::4ebb:47ff:fe00:{int(own) & 0xFFFF:x}")
        mapped = ipaddress.IPv6Address(f"::ffff:{own}")
        table = [NO_GID] * first_gid + [gid for gid in (local, mapped) for _ in range(2)]
        for index, gid in enumerate(table):
            write_files(port, {f"gids/{index}": gid.exploded})
            # The kernel refuses to read the attributes of an index without a GID.
            if gid != NO_GID:
                kind = "RoCE v2" if (index - first_gid) % 2 else "IB/RoCE v1"
                write_files(port / "gid_attrs", {f"types/{index}": kind, f"ndevs/{index}": interface})

    def _rdma(self, device: str) -> Path:
        return self.folder / "class/infiniband" / device

    def _card(self, interface: str) -> Path:
        return self.folder / "net" / interface


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Files of one line or more, each ending with a newline, as the kernel's do."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
