"""What a deletion takes away and what it gives back, before anything is touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.models.store import Payload, StoreFinding, unique
from spark_tui.domain.quantities import human_bytes


class Extent(StrEnum):
    """How much goes. LEFTOVERS: unfinished downloads, and blobs that no revision uses."""

    MODEL = "model"
    REVISION = "revision"
    LEFTOVERS = "leftovers"


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """One deletion, prepared. `removes` are paths within the store's root, in the order in which they go.

    `freed` is the disk space that comes back; `stays` that of data which other names lead to and which is kept.
    `name` is what a person types to confirm. `obstacles` are why it cannot be done; none when it can.
    """

    model: str
    extent: Extent
    name: str
    path: str
    revision: str = ""
    freed: int = 0
    stays: int = 0
    files: int = 0
    refs: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    obstacles: tuple[StoreFinding, ...] = ()

    @property
    def sentence(self) -> str:
        """What it does, in words."""
        what = {
            Extent.MODEL: f"{self.model} and all its files",
            Extent.REVISION: f"revision {self.revision[:7]} of {self.model}",
            Extent.LEFTOVERS: f"what interrupted downloads have left of {self.model}",
        }[self.extent]
        kept = f" {human_bytes(self.stays)} stay: other models use them." if self.stays else ""
        return f"Deletes {what}, and frees {human_bytes(self.freed)}.{kept}"


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deletion that has been done. `freed` in bytes of disk space."""

    plan: DeletePlan
    freed: int
    files: int


def freed_by(names: Iterable[Payload], kept: Collection[str]) -> tuple[int, int]:
    """Disk space that comes back, and that which stays, when these names go; one payload per name.

    Data goes with its last name: `kept` are keys of data that another name in the store leads to, and a hard link
    more than are removed leads there from elsewhere. Shared blobs have one hard link, whoever uses them.
    """
    given = tuple(names)
    count = Counter(payload.key for payload in given)
    freed = stays = 0
    for payload in unique(given):
        last = payload.shared or count[payload.key] >= payload.links
        if payload.key in kept or not last:
            stays += payload.disk
        else:
            freed += payload.disk
    return freed, stays
