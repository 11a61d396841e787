"""Whether an engine that ended may be started again: never where a restart cannot help, else a few times and slower
each time.

Every failed start leaves less free memory behind (0.1 GiB each was measured): trying again blindly ends in a freeze.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.logs.causes.cause import CauseId
from spark_tui.domain.quantities import human_duration

PERMANENT: Final = frozenset((
    CauseId.NO_KV_ROOM, CauseId.KV_CACHE_TOO_SMALL, CauseId.OUT_OF_MEMORY_LOADING, CauseId.OUT_OF_MEMORY_WARMUP,
    CauseId.MAX_MODEL_LEN_TOO_LONG, CauseId.UNKNOWN_ARCHITECTURE, CauseId.UNKNOWN_QUANTIZATION,
    CauseId.QUANTIZATION_MISMATCH, CauseId.GATED_REPO, CauseId.REPO_NOT_FOUND, CauseId.WEIGHTS_CORRUPT,
    CauseId.WEIGHTS_MISSING, CauseId.PORT_IN_USE, CauseId.NO_GPU, CauseId.DRIVER_TOO_OLD, CauseId.ARCH_NOT_COMPILED,
    CauseId.MISSING_MODULE, CauseId.MISSING_FILE, CauseId.UNSUPPORTED_MODEL_FEATURE, CauseId.KERNEL_FAILURE,
    CauseId.BAD_ARGUMENT, CauseId.BAD_PARSER, CauseId.TOO_MANY_RANKS, CauseId.STOPPED,
))  # fmt: skip
"""The same command meets the same end until a person changes something; `stopped` was a person's wish.

What may heal: memory that the engine before has not given back yet, memory that moved while it was measured, the
network, a peer that was late, a process that died or was killed, and what is not known.
"""

MOST_RESTARTS: Final = 3
WITHIN_SECONDS: Final = 3600.0
"""Only ends within the last hour count: a crash a day is no loop."""
FIRST_PAUSE: Final = 60.0
"""Memory of an ended engine takes a minute and more to come back."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An end of one engine: when (seconds), and the cause's id. `by_guard` says that the memory guard ended it."""

    at: float
    cause: str
    by_guard: bool = False


@dataclass(frozen=True, slots=True)
class RestartVerdict:
    """Whether to start it again, in how many seconds from now, and why (not)."""

    allowed: bool
    wait_seconds: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Restarts:
    """What is remembered of one container. `count` is Docker's own count of its restarts, `started_at` (seconds) its
    present start. `given_up`: it was stopped for good."""

    count: int
    started_at: float | None
    ends: list[Ended] = field(default_factory=list)
    given_up: bool = False
    _cause: str = ""

    def started_again(self, count: int, at: float | None) -> float | None:
        """Notes Docker's next start. Returns when the one that has ended had begun."""
        before = self.started_at
        self.count, self.started_at = count, at
        return before

    def ended(self, at: float, cause: str, *, guess: bool, by_guard: bool = False) -> RestartVerdict:
        """The verdict after one more end. A cause that is only likely has to be seen twice before it counts."""
        sure = not guess or cause == self._cause
        self._cause = cause
        self.ends.append(Ended(at, cause if sure else CauseId.UNKNOWN, by_guard=by_guard))
        return may_restart(self.ends, at)


def may_restart(ends: Sequence[Ended], now: float) -> RestartVerdict:
    """The verdict after the last of `ends`, which are oldest first and of one engine with unchanged settings."""
    if not ends:
        return RestartVerdict(True)
    last = ends[-1]
    if last.by_guard:
        return RestartVerdict(False, reason="stopped by the memory guard: the same settings would end there again")
    if last.cause in PERMANENT:
        return RestartVerdict(False, reason=f"{last.cause}: restarting does not help")
    recent = [end for end in ends if now - end.at <= WITHIN_SECONDS]
    if len(recent) > MOST_RESTARTS:
        span = human_duration(now - recent[0].at)
        return RestartVerdict(False, reason=f"ended {len(recent)} times within {span}")
    pause = FIRST_PAUSE * 2.0 ** max(0, len(recent) - 1)
    wait = max(0.0, last.at + pause - now)
    return RestartVerdict(True, wait, f"restart {max(1, len(recent))} of {MOST_RESTARTS}")
