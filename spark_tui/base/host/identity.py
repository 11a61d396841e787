"""Which machine this is: a DGX Spark, one of its siblings from another maker, or something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import UsageError
from spark_tui.base.quantities import GIB

GB10_PCI_ID: Final = (0x10DE, 0x2E12)
"""Vendor and device of the GB10's GPU. 0x2e03 and 0x2e06 are the N1X, which is no Spark."""

NOMINAL_MEMORY: Final = int(121.69 * GIB)
"""Memory of a 128 GB GB10 as vLLM logs it, in bytes; older firmware has 119.69 GiB. For machines not read yet: Sparks
with 64 GB are on sale."""


class HostIdentity(Struct, frozen=True):
    """Name and make of the machine, and its memory in bytes (64 and 128 GB Sparks are sold). Empty strings and 0 where
    unknown."""

    hostname: str
    product: str = ""
    kernel: str = ""
    architecture: str = ""
    cpu_count: int = 0
    is_spark: bool = False
    has_gpu: bool | None = None
    """An NVIDIA one; None where the machine does not list its devices."""
    memory: int = 0
    lan_address: str = ""
    """Of the interface that leads out of this machine."""


# What the makers write into DMI and into DGX_PLATFORM, in lower case with spaces -> how people call it.
_PRODUCTS: Final = (
    ("dgx spark", "DGX Spark"),
    ("gx10", "ASUS Ascent GX10"),
    ("dell pro max with gb10", "Dell Pro Max with GB10"),
    ("hp zgx nano", "HP ZGX Nano"),
    ("thinkstation pgx", "Lenovo ThinkStation PGX"),
    ("ai top atom", "Gigabyte AI TOP ATOM"),
    ("edgexpert", "MSI EdgeXpert"),
    ("veriton gn100", "Acer Veriton GN100"),
)
_PLACEHOLDERS: Final = frozenset(
    ("", "none", "default string", "system product name", "to be filled by o.e.m.", "not specified", "unknown")
)


def parse_release(text: str) -> Mapping[str, str]:
    """`/etc/dgx-release` -> its values by key.

    The file is appended to at every update, so the last of equal keys counts; HP's has no quotes, a copied one may
    have one only. Whatever is not `KEY=value` is passed over.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        key = key.strip()
        if equals and key.isidentifier():
            found[key] = value.strip().strip("\"'").strip()
    return found


def product_label(release: Mapping[str, str], dmi: Iterable[str]) -> tuple[str, bool]:
    """What to call the machine, and whether that name is a Spark's.

    The maker's own name (DGX_PLATFORM, DMI) comes before NVIDIA's, which every sibling has too; a machine that is none
    of them is called by its DMI product name, the first of `dmi`.
    """
    platform, own = release.get("DGX_PLATFORM", ""), [name.strip() for name in dmi]
    for name in (platform, *own, release.get("DGX_PRETTY_NAME", ""), release.get("DGX_NAME", "")):
        for mark, label in _PRODUCTS:
            if mark in _words(name):
                return label, True
    named = release.get("DGX_PRETTY_NAME") or release.get("DGX_NAME") or ""
    return named or next((name for name in own if _words(name) not in _PLACEHOLDERS), ""), False


def _words(name: str) -> str:
    return " ".join(name.replace("_", " ").lower().split())


class HostPaths(Struct, frozen=True):
    """Absolute directories of the host: the model store, the compile caches, and the person's home (for `~`)."""

    store: str
    caches: str
    home: str = ""

    def __post_init__(self) -> None:
        for what, path in (("model store", self.store), ("cache folder", self.caches)):
            if not path.startswith("/") or ":" in path:
                raise UsageError(
                    f"The {what} must be an absolute path without a colon; it is {path!r}.",
                    "Correct it in the settings.",
                )
