"""Processes by the memory that they hold, as far as this user may look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostProcess:
    """One process; sizes in bytes. `pss` charges shared pages to their users in equal parts; None where that may not
    be read. `gpu` is what CUDA holds for it, which stands in neither; None where the driver does not tell.
    `container` is a container's id, empty for none."""

    pid: int
    name: str
    rss: int
    pss: int | None = None
    swap: int | None = None
    gpu: int | None = None
    container: str = ""
    uid: int = 0

    @property
    def weight(self) -> int:
        """What it holds of the pool as far as that is known."""
        return (self.pss if self.pss is not None else self.rss) + (self.gpu or 0)


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """What the kernel charges to a container, in bytes: all, its anonymous memory, its page cache, shared memory and
    swap. CUDA memory is in none of them: `docker stats` and `--memory` do not see it."""

    current: int
    anon: int | None = None
    file: int | None = None
    shmem: int | None = None
    swap: int | None = None
    limit: int | None = None


def heaviest(found: Iterable[HostProcess], limit: int) -> tuple[HostProcess, ...]:
    """The first `limit` by weight; of equal ones the older."""
    return tuple(sorted(found, key=lambda each: (-each.weight, each.pid))[:limit])


def parse_cgroup_memory(current: str, stat: str = "", swap: str = "", limit: str = "") -> ContainerMemory | None:
    """`memory.current`, `memory.stat`, `memory.swap.current` and `memory.max` of a cgroup (version 2); None where the
    first holds no number."""
    size = _size(current)
    if size is None:
        return None
    told = dict(line.split(maxsplit=1) for line in stat.splitlines() if len(line.split(maxsplit=1)) == 2)
    return ContainerMemory(
        current=size,
        anon=_size(told.get("anon", "")),
        file=_size(told.get("file", "")),
        shmem=_size(told.get("shmem", "")),
        swap=_size(swap),
        limit=_size(limit),
    )


def _size(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None
