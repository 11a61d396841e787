"""Which machine this is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Name and make of the box. Empty strings where the box does not say."""

    hostname: str
    product: str = ""
    kernel: str = ""
    architecture: str = ""
    cpu_count: int = 0
    is_spark: bool = False
