"""When to act before the machine freezes: a decision machine over samples of memory. Time is an argument.

A Spark that runs out of memory seldom kills a process: it answers pings and nothing else until the plug is pulled,
and from the first sign to the end it can take three seconds. So the guard looks often when it matters, judges the
fall as well as the floor, and asks for a graceful stop while there is still memory to stop with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.host.memory import LOADING_FLOOR, SERVING_FLOOR, THRASHING_PERCENT, WORTH_BYTES, MemInfo
from spark_tui.base.quantities import GIB, gib


class GuardAction(StrEnum):
    """What to do, from the mildest to the last resort."""

    NOTHING = "nothing"
    DROP_CACHE = "drop the cache"
    COMPACT = "compact memory"
    STOP = "stop the engine"
    KILL = "kill the engine"


class GuardedEngine(Struct, frozen=True):
    """An engine that may have to end. `id` is the container's, `pid` its first process on the host (0: unknown),
    `started_at` seconds since the epoch."""

    id: str
    name: str
    pid: int = 0
    ours: bool = True
    loading: bool = False
    started_at: float = 0.0


class GuardEntry(Struct, frozen=True):
    """What the guard did, for a person: seconds since the epoch, the act, the engine (empty: none), why, and how."""

    at: float
    act: str
    engine: str
    reason: str
    how: str = ""


END_LOOP: Final = "end the crash loop"
_ENDS: Final = (GuardAction.STOP.value, GuardAction.KILL.value, END_LOOP)
_LATE_SECONDS: Final = 90.0
"""Docker notes the end of what the guard stops up to a grace time later."""


def end_by_guard(
    entries: Iterable[GuardEntry], engine: str, started_at: float | None, finished_at: float | None
) -> GuardEntry | None:
    """What the guard did last to this start of an engine, where that ended it; times in seconds since the epoch."""
    if started_at is None or finished_at is None:
        return None
    found = [
        each
        for each in entries
        if each.engine == engine
        and each.act in _ENDS
        and started_at <= each.at <= finished_at + 1
        and finished_at - each.at <= _LATE_SECONDS
    ]
    return found[-1] if found else None


class Policy(Struct, frozen=True):
    """The figures of the decision: bytes and seconds.

    `serving_floor` and `loading_floor` are usable memory below which `low_strikes` samples in a row lead to a stop.
    A fall is judged below `fall_below`: when at its present rate nothing is left within `horizon`, for
    `fall_strikes` samples that each fell. `kill_floor` and `last_seconds` end the patience with a graceful stop, as
    does `grace`. For `settle` after an end what is missing counts as on its way back, and only a new fall, later than
    `aftermath`, ends another engine. While an engine loads, `load_free_floor` of MemFree is kept by dropping the
    cache, at most every `drop_every`.
    """

    serving_floor: int = SERVING_FLOOR
    loading_floor: int = LOADING_FLOOR
    low_strikes: int = 5
    fall_strikes: int = 3
    fall_below: int = 5 * GIB
    horizon: float = 2.0
    kill_floor: int = GIB
    last_seconds: float = 0.6
    grace: float = 10.0
    thrash_below: int = 8 * GIB
    thrash_seconds: float = 20.0
    settle: float = 90.0
    aftermath: float = 3.0
    load_free_floor: int = 8 * GIB  # the per-second guard of the field report that ended one machine's failed loads
    drop_every: float = 5.0
    calm_interval: float = 0.5
    near_interval: float = 0.1
    near_factor: float = 2.0


class GuardSample(Struct, frozen=True):
    """One look at memory, `at` in monotonic seconds; bytes. `pressure` is PSI `some avg10`, None when not known;
    `droppable` None when the kernel does not report it."""

    at: float
    usable: int
    free: int
    droppable: int | None = None
    pressure: float | None = None


def sample_of(mem: MemInfo, at: float, pressure: float | None = None) -> GuardSample:
    """The sample in a reading."""
    return GuardSample(at, mem.usable, mem.free, mem.droppable, pressure)


class GuardContext(Struct, frozen=True):
    """What runs: whether any engine may be stopped, whether one of them loads, and whether another measures memory
    (then the cache is left alone)."""

    engines: bool = True
    loading: bool = False
    measuring: bool = False


class GuardState(Struct, frozen=True):
    """What the machine remembers between samples. `stopping_since` and `killed_at` are monotonic seconds."""

    last: GuardSample | None = None
    low: int = 0
    falling: int = 0
    thrashing_since: float | None = None
    stopping_since: float | None = None
    killed_at: float | None = None
    dropped_at: float | None = None
    compacted: bool = True


class Decision(Struct, frozen=True):
    """What to do now and why; and in how many seconds to look again."""

    act: GuardAction = GuardAction.NOTHING
    reason: str = ""
    next_in: float = 0.5


START: Final = GuardState()


def decide(state: GuardState, sample: GuardSample, policy: Policy, scene: GuardContext) -> tuple[GuardState, Decision]:
    """One step. The same samples give the same decisions."""
    last, usable = state.last, sample.usable
    span = sample.at - last.at if last is not None else 0.0
    rate = max(0.0, (last.usable - usable) / span) if last is not None and span > 0 else 0.0
    lasts = usable / rate if rate > 0 else inf
    floor = policy.loading_floor if scene.loading else policy.serving_floor
    waits = sample.pressure is not None and sample.pressure >= THRASHING_PERCENT and usable < policy.thrash_below
    since = state.thrashing_since if state.thrashing_since is not None else sample.at
    state = replace(
        state,
        last=sample,
        low=state.low + 1 if usable < floor else 0,
        falling=state.falling + 1 if lasts < policy.horizon and usable < policy.fall_below else 0,
        thrashing_since=since if waits else None,
    )
    # Memory comes back late: a minute is usual, and meanwhile the next engine must not be ended for it.
    back = usable > policy.near_factor * max(policy.serving_floor, policy.loading_floor)
    settled = state.killed_at is not None and sample.at - state.killed_at > policy.settle
    if back or settled:
        state = replace(state, stopping_since=None, killed_at=None)
    act, reason = _act(state, sample, rate, lasts, floor, policy, scene) if scene.engines else (GuardAction.NOTHING, "")
    match act:
        case GuardAction.STOP:
            state = replace(state, stopping_since=sample.at, killed_at=None, low=0, falling=0, thrashing_since=None)
        case GuardAction.KILL:
            state = ended(state, sample.at)
        case GuardAction.DROP_CACHE:
            state = replace(state, dropped_at=sample.at, compacted=False)
        case GuardAction.COMPACT:
            state = replace(state, compacted=True)
    # Look closely near the floor, in a fast fall, and until an engine that was asked to end has ended.
    watched = usable < policy.near_factor * floor or lasts < 5 * policy.horizon or state.stopping_since is not None
    return state, Decision(act, reason, policy.near_interval if watched and scene.engines else policy.calm_interval)


def ended(state: GuardState, at: float) -> GuardState:
    """The engine that was asked to end is gone, or was killed: its memory is on its way back."""
    return replace(state, stopping_since=None, killed_at=at, low=0, falling=0, thrashing_since=None)


def _act(
    state: GuardState, sample: GuardSample, rate: float, lasts: float, floor: int, policy: Policy, scene: GuardContext
) -> tuple[GuardAction, str]:
    """What this sample calls for, and why. At `rate` bytes per second memory lasts `lasts` seconds."""
    usable, fall = sample.usable, ""
    if state.falling >= policy.fall_strikes:
        fall = f"memory fell at {gib(rate)} GiB/s with {gib(usable)} GiB left: gone in {lasts:.1f} s"
    if state.killed_at is not None:
        again = fall and sample.at - state.killed_at > policy.aftermath
        return (GuardAction.STOP, fall) if again else (GuardAction.NOTHING, "")
    if state.stopping_since is not None:
        waited = sample.at - state.stopping_since
        if usable < policy.kill_floor:
            return GuardAction.KILL, f"{gib(usable)} GiB usable, {waited:.1f} s after it was asked to stop"
        if lasts < policy.last_seconds:
            return (
                GuardAction.KILL,
                f"memory still fell at {gib(rate)} GiB/s, {waited:.1f} s after it was asked to stop",
            )
        if waited >= policy.grace:
            return GuardAction.KILL, f"it had not given its memory back {waited:.0f} s after it was asked to stop"
        return GuardAction.NOTHING, ""
    if state.low >= policy.low_strikes:
        when = "while an engine loads" if scene.loading else "while serving"
        looks = f"{policy.low_strikes} looks in a row below the floor of {gib(floor)} GiB"
        reason = f"{gib(usable)} GiB usable, {looks} {when}"
    elif fall:
        reason = fall
    elif state.thrashing_since is not None and sample.at - state.thrashing_since >= policy.thrash_seconds:
        waiting = f"{sample.pressure:.0f} % of the time spent waiting for memory for {policy.thrash_seconds:.0f} s"
        reason = f"{waiting}, {gib(usable)} GiB usable"
    elif not scene.loading or scene.measuring or sample.free >= policy.load_free_floor:
        return GuardAction.NOTHING, ""
    else:  # the driver allocates from free memory, which the checkpoint's pages take up
        free = f"{gib(sample.free)} GiB free while an engine loads"
        due = state.dropped_at is None or sample.at - state.dropped_at >= policy.drop_every
        if due and (sample.droppable is None or sample.droppable >= WORTH_BYTES):
            return GuardAction.DROP_CACHE, f"{free}, below {gib(policy.load_free_floor)}"
        return (GuardAction.NOTHING, "") if state.compacted else (GuardAction.COMPACT, free)
    return (GuardAction.KILL if lasts < policy.last_seconds or usable < policy.kill_floor else GuardAction.STOP), reason


def victim(engines: Sequence[GuardedEngine], *, only_ours: bool = True) -> GuardedEngine | None:
    """The engine that has to end: one that loads before one that serves, one of ours before another's, and of
    several the youngest, for the others were content before it came."""
    may = [engine for engine in engines if engine.ours or not only_ours]
    return max(may, key=lambda engine: (engine.loading, engine.ours, engine.started_at, engine.id), default=None)
