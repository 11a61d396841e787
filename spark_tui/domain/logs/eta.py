"""When a start will be ready: from this machine's own earlier starts, else from progress bars, else unknown.

A start of 15 minutes is the same 15 minutes every time on one machine, for one preset and one image, as long as the
JIT caches are as warm as then. So earlier starts say more than any bar, and a bar says more than nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from spark_tui.domain.logs.line import share
from spark_tui.domain.logs.timeline import LABELS, BootTimeline, Phase, PhaseId, PhaseState
from spark_tui.domain.quantities import human_bytes

MAX_STARTS: Final = 5
"""So many of the latest starts count: drivers, clocks and page caches change."""
_OUTSIDE: Final = (PhaseId.DOWNLOAD, PhaseId.READY, PhaseId.WARM)
"""Not part of a repeated start: a download happens once, and what follows readiness is not waited for."""
FROM_CACHE: Final = "from cache"
"""The compile phase's detail when its work was found in the cache."""


class Basis(StrEnum):
    """What an estimate rests on."""

    HISTORY = "history"
    PROGRESS = "progress"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PastStart:
    """A start of the same preset and image on this machine that became ready: seconds by phase, in any order.

    `warm`: its JIT caches were warm; None where that is not known (eager, or an engine without such a cache).
    """

    seconds: tuple[tuple[PhaseId, float], ...]
    warm: bool | None = None


@dataclass(frozen=True, slots=True)
class Eta:
    """`seconds` from now until `until` (READY, or only the running phase's end) are an estimate, None when nothing is
    known. `starts` is how many earlier starts it rests on; `overdue` says that the running phase already takes longer
    than it ever did."""

    seconds: float | None = None
    basis: Basis = Basis.UNKNOWN
    until: PhaseId = PhaseId.READY
    starts: int = 0
    overdue: bool = False


UNKNOWN: Final = Eta()


def past_start(timeline: BootTimeline) -> PastStart | None:
    """What is worth remembering of a start that became ready; None for any other."""
    if not timeline.ready:
        return None
    seconds = tuple(
        (phase.id, phase.seconds)
        for phase in timeline.phases
        if phase.state is PhaseState.DONE and phase.seconds is not None and phase.id not in _OUTSIDE
    )
    return PastStart(seconds, is_warm(timeline)) if seconds else None


def is_warm(timeline: BootTimeline) -> bool | None:
    """Whether this start found its compiled kernels in the cache; None while it has not said so."""
    compile_ = timeline.phase(PhaseId.COMPILE)
    if compile_.detail == FROM_CACHE:
        return True
    return False if compile_.detail else None


def eta(timeline: BootTimeline, now: float, history: Sequence[PastStart] = (), *, warm: bool | None = None) -> Eta:
    """How long until it is ready. `now` is on the clock of `Phase.started_at`; `history` is latest last.

    `warm` says whether the JIT caches are there, for as long as the log has not said so itself. The starts with the
    same caches count; where there are none, all of them.
    """
    running = timeline.current
    if running is None or timeline.ready:
        return UNKNOWN
    logged = is_warm(timeline)
    alike = _alike(history, warm if logged is None else logged)
    by_bar = _by_bar(running, now)
    if not alike or (running.id is PhaseId.DOWNLOAD and by_bar is None):
        return Eta(by_bar, Basis.PROGRESS, running.id) if by_bar is not None else UNKNOWN
    repeated: list[PhaseId] = [phase_id for phase_id in PhaseId if phase_id not in _OUTSIDE]
    usual = {phase_id: _usual(alike, phase_id) for phase_id in repeated}
    rest, overdue = _rest_of(running, now, usual, by_bar)
    if rest is None:
        return UNKNOWN
    rest += sum(usual[phase.id] for phase in timeline.phases if phase.id in usual and _is_to_come(phase, running))
    return Eta(rest, Basis.HISTORY, PhaseId.READY, len(alike), overdue)


def _alike(history: Sequence[PastStart], warm: bool | None) -> Sequence[PastStart]:
    same = [start for start in history if warm is not None and start.warm in (warm, None)]
    return (same or list(history))[-MAX_STARTS:]


def _usual(starts: Sequence[PastStart], phase_id: PhaseId) -> float:
    """The median; a start without the phase counts as none of its time."""
    return median(dict(start.seconds).get(phase_id, 0.0) for start in starts)


def _rest_of(
    running: Phase, now: float, usual: dict[PhaseId, float], by_bar: float | None
) -> tuple[float | None, bool]:
    """Seconds that the running phase still takes, and whether it is overdue. Its bar may end before it does (a
    drafter's shards follow), so the longer of both counts."""
    if running.id not in usual:
        return by_bar, False
    if running.started_at is None:
        return None, False
    expected = usual[running.id] - (now - running.started_at)
    if by_bar is not None:
        return max(by_bar, expected), False
    return max(expected, 0.0), expected < 0


def _is_to_come(phase: Phase, running: Phase) -> bool:
    """Weights that wait for their download have begun, and are still to come."""
    return phase is not running and phase.state is PhaseState.PENDING


def _by_bar(running: Phase, now: float) -> float | None:
    """By the bar's own word, grown older since; else by how far it came in the time it had."""
    if running.left is not None:
        since = 0.0 if running.estimated_at is None else max(0.0, now - running.estimated_at)
        return max(0.0, running.left - since) if running.estimated_at is not None else running.left
    if not running.progress or running.started_at is None:
        return None
    return max(0.0, now - running.started_at) * (1 - running.progress) / running.progress


WINDOW_SECONDS: Final = 30.0
"""The rate is that of the latest readings: a download that stalls must not look fast."""
MIN_SECONDS: Final = 2.0
"""Readings closer together say nothing about a rate."""


class Transfer:
    """Readings of one download, the latest ones only."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque(maxlen=120)
        self.done = -1
        """Bytes that are there; -1 before the first reading."""
        self.total: int | None = None

    def note(self, done: int, total: int | None, at: float | None) -> bool:
        """One reading: bytes there, bytes in all (None: not known), when (seconds, None without a clock). Returns
        whether there is more than at the reading before."""
        grown = 0 <= self.done < done
        if done < self.done or total != self.total:
            self._readings.clear()  # another file, or begun again
        self.done, self.total = done, total
        if at is not None and (not self._readings or at > self._readings[-1][0]):
            self._readings.append((at, done))
            while at - self._readings[0][0] > WINDOW_SECONDS and len(self._readings) > 2:
                self._readings.popleft()
        return grown

    @property
    def rate(self) -> float | None:
        """Bytes a second; None while it is not known."""
        if len(self._readings) < 2:
            return None
        (began, first), (at, last) = self._readings[0], self._readings[-1]
        return (last - first) / (at - began) if at - began >= MIN_SECONDS else None

    @property
    def left(self) -> float | None:
        """Seconds to the end at this rate; None when that is not known, or nothing arrives."""
        rate = self.rate
        return (self.total - self.done) / rate if self.total is not None and rate else None

    @property
    def progress(self) -> float | None:
        """0..1, None when the total is not known."""
        return None if self.total is None else share(self.done, self.total)

    @property
    def detail(self) -> str:
        """`12.3 GiB of 21.3 GiB, 112 MiB/s`."""
        said = human_bytes(self.done)
        said = said if self.total is None else f"{said} of {human_bytes(self.total)}"
        rate = self.rate
        return said if rate is None else f"{said}, {human_bytes(rate)}/s"


_STEPS: Final = ((60.0, 5), (600.0, 10), (float("inf"), 60))
"""Up to so many seconds, in steps of so many."""
_FEW_SECONDS: Final = 7.5
"""Where the step above begins: a text stands for five seconds at least."""


def eta_text(found: Eta) -> str:
    """`about 2 min 10 s left (from 3 earlier starts)`; empty when nothing is known."""
    if found.seconds is None or found.basis is Basis.UNKNOWN:
        return ""
    if found.basis is Basis.PROGRESS:
        return f"{LABELS[found.until][0]}: {rough_duration(found.seconds)} left, by its own progress"
    source = f"from {found.starts} earlier start{'' if found.starts == 1 else 's'}"
    if not found.overdue:
        return f"{rough_duration(found.seconds)} left ({source})"
    if found.seconds < _FEW_SECONDS:
        return f"takes longer than usual ({source})"
    return f"takes longer than usual; then {rough_duration(found.seconds)} ({source})"


def rough_duration(seconds: float) -> str:
    """`a few seconds`, `about 45 s`, `about 2 min 10 s`, `about 14 min`."""
    if seconds < _FEW_SECONDS:
        return "a few seconds"
    step = next(step for most, step in _STEPS if seconds < most)
    whole = round(seconds / step) * step
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"about {rest} s"
    return f"about {minutes} min {rest} s" if rest else f"about {minutes} min"
