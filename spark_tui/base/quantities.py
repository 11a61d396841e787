"""Bytes, durations and counts: parse what people write, format what the screen shows."""

from __future__ import annotations

import re
from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b?)\s*$", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(text: str | int | float) -> int:
    """`"10g"`, `"64M"`, `"10.24gb"`, `1024` -> bytes, by Docker's rule that every unit is a power of 1024.

    Raises ValueError for anything else, negative numbers included.
    """
    if isinstance(text, bool):
        raise ValueError(f"not a size: {text}")
    if isinstance(text, (int, float)):
        if text < 0:
            raise ValueError(f"a size cannot be negative: {text}")
        return int(text)
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"not a size: {text!r} (write for example 512m or 10g)")
    number, unit, _ = match.groups()
    return int(float(number) * 1024 ** _POWERS[unit.lower()])


def parse_count(text: str) -> int:
    """`65536`, `65,536`, `64k`, `1M`. A power of two is in units of 1024, as contexts are named: 64k is 65,536, and
    100k is 100,000. Raises ValueError."""
    plain = text.strip().lower().replace("_", "").replace(",", "")
    unit = {"k": 1, "m": 2}.get(plain[-1:], 0)
    number = int(plain[:-1] if unit else plain)
    binary = number > 0 and number & (number - 1) == 0
    return int(number * (1024 if binary else 1000) ** unit)


def docker_size(size: int) -> str:
    """The shortest exact Docker spelling: 10737418240 -> `10g`, 1000 -> `1000b`."""
    for unit, factor in (("g", GIB), ("m", MIB), ("k", KIB)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}b"


def gib(size: float, digits: int = 1) -> str:
    """Bytes as GiB without the unit: `78.2`."""
    return f"{size / GIB:.{digits}f}"


def human_bytes(size: float) -> str:
    """Bytes with a binary unit and three significant figures: `512 B`, `18.4 GiB`."""
    if size < KIB:
        return f"{int(size)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= KIB
        if size < 1000 or unit == "TiB":
            return f"{size:.0f} {unit}" if size >= 100 else f"{size:.1f} {unit}"
    raise AssertionError("unreachable")


def human_duration(seconds: float) -> str:
    """`4s`, `1m02s`, `2h05m`, `6d4h`. Under one second in tenths: `0.4s`."""
    if seconds < 0:
        return f"-{human_duration(-seconds)}"
    if seconds < 1:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def ago(seconds: float) -> str:
    """`12s ago`, `59m ago`, `2d ago`: one unit, for it is only a hint."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(0, int(seconds))}s ago"


def human_count(count: int) -> str:
    """`694,656`."""
    return f"{count:,}"


def short_tokens(count: int) -> str:
    """Context lengths as people say them: 131072 -> `131k`, 1010000 -> `1.0M`, 4096 -> `4.1k`, 512 -> `512`."""
    if count < 1000:
        return str(count)
    if count < 10_000:
        return f"{count / 1000:.1f}k"
    if count < 1_000_000:
        return f"{count // 1000}k"
    return f"{count / 1_000_000:.1f}M"


def hexadecimal(text: str) -> int | None:
    """`0xd85` -> 3461; None for anything else."""
    try:
        return int(text, 16)
    except ValueError:
        return None
