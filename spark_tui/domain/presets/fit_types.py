"""The answer to: does it fit? Sizes in bytes. None: not known, which is never zero."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.models.weights import DecodeCeiling
from spark_tui.domain.quantities import GIB

RESERVE_BYTES: Final = 6 * GIB
"""What should stay free: boxes that serve for days have 4 to 5 % available; below it the first long prompt hurts."""
FEW_SEQUENCES: Final = 4
"""What one Spark serves well at once; more of full length need not fit, since few requests are that long."""


class Verdict(StrEnum):
    """READY: it fits with room. SLOW: it starts, and something about it will be felt. BLOCKED: it would not start, or
    would take the machine down. UNKNOWN: too little is known to say."""

    READY = "READY"
    SLOW = "SLOW"
    BLOCKED = "BLOCKED"
    UNKNOWN = "UNKNOWN"


class Basis(StrEnum):
    """Where a figure comes from, best first."""

    MEASURED = "measured at an earlier start"
    FILES = "from the checkpoint's files"
    CONFIG = "from the model's config"
    LOG = "from a published log"
    RECIPE = "from the recipe"
    ASKED = "as asked"
    NOW = "read now"
    RULE = "rule of thumb"
    UNKNOWN = "not known"


class PartId(StrEnum):
    """What takes memory."""

    WEIGHTS = "weights"
    DRAFTER = "drafter"
    WORKSPACE = "workspace"
    RUNTIME = "runtime"
    GRAPHS = "graphs"
    KV = "kv"
    STATE = "state"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that takes memory. `note` says how the figure came about."""

    id: PartId
    label: str
    size: int | None
    basis: Basis
    note: str = ""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another engine on this machine. `holds` is what it has now; `will_take` what it is still going to take while it
    loads, 0 for one that serves. None: not known."""

    name: str
    holds: int | None = None
    will_take: int | None = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of an earlier start of this preset, from its log. `batched_tokens` and `utilization` are those of that
    start: `overhead` (all but weights, KV cache and graphs) counts for the same batched tokens only. `kv_tokens` are
    what the cache held of sequences of `context` tokens in `cache_dtype`."""

    weights: int | None = None
    kv_cache: int | None = None
    graphs: int | None = None
    overhead: int | None = None
    batched_tokens: int | None = None
    source: str = ""
    kv_tokens: int | None = None
    context: int | None = None
    cache_dtype: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that would help. `pairs` are what `overrides_from_pairs` takes; empty where no setting does it.
    `gains` is how much memory it makes free or leaves free, None where that is not its point."""

    summary: str
    pairs: tuple[tuple[str, str], ...] = ()
    gains: int | None = None


@dataclass(frozen=True, slots=True)
class KvFit:
    """The KV cache: `room` is what is left for it, `each` what one sequence of the asked length takes, padding
    included, `concurrency` how many of them the room holds, `longest` the longest context of which one fits."""

    room: int
    each: int
    needed: int
    concurrency: float
    tokens: int
    longest: int
    bytes_per_token: int
    state_bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Fit:
    """One launch against the memory now.

    `claim` is what the engine takes of the pool: its share for vLLM, whatever it needs of it; the sum of the parts for
    others. `parts` are what is within the claim, `outside` what comes on top of it. `need` sums the parts for one
    sequence, `need_all` for all that are asked; None when a part is not known, and `at_least` sums what is.
    `utilization_needed` is the share that up to four of the asked sequences need, above 1 where no machine has it;
    `utilization_most` is the largest that this one has room for now. `cache_to_drop` is page cache that must go first.
    `left` is what stays free, None when it cannot be told.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    outside: tuple[Part, ...] = ()
    total: int | None = None
    available: int | None = None
    claim: int | None = None
    at_least: int = 0
    need: int | None = None
    need_all: int | None = None
    left: int | None = None
    cache_to_drop: int = 0
    neighbours: tuple[Neighbour, ...] = ()
    utilization: float | None = None
    utilization_needed: float | None = None
    utilization_most: float | None = None
    context: int | None = None
    sequences: int = 1
    kv: KvFit | None = None
    decode: DecodeCeiling | None = None

    @property
    def only_neighbours(self) -> bool:
        """It is BLOCKED, and would not be if the other engines were stopped."""
        if self.verdict is not Verdict.BLOCKED or self.left is None or self.left >= 0:
            return False
        return self.left + sum(neighbour.holds or 0 for neighbour in self.neighbours) >= 0

    @property
    def unknown(self) -> tuple[Part, ...]:
        """The parts whose size is not known."""
        return tuple(part for part in (*self.parts, *self.outside) if part.size is None)

    def part(self, which: PartId) -> Part | None:
        """One part."""
        return next((part for part in (*self.parts, *self.outside) if part.id is which), None)
