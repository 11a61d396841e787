"""The guard's decisions: it stops the engine before the recorded collapse, and is silent on every healthy Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.host.guard import (
    START,
    Decision,
    GuardAction,
    GuardContext,
    GuardedEngine,
    GuardSample,
    GuardState,
    Policy,
    decide,
    ended,
    sample_of,
    victim,
)
from spark_tui.base.host.memory import parse_meminfo
from spark_tui.base.quantities import GIB
from spark_tui.observe.engines.use.crash_loops import (
    MOST_RESTARTS,
    PERMANENT,
    WITHIN_SECONDS,
    EngineEnd,
    RestartVerdict,
    may_restart,
)
from spark_tui.observe.explain.model.causes.cause import CauseId
from tests.cases import all_cases
from tests.gb10_fixtures import TELEMETRY, crash_timeline, interpolated, rows, snapshot, telemetry

POLICY = Policy()
SERVING, LOADING = GuardContext(), GuardContext(loading=True)


def replay(
    usable: Callable[[float], int], seconds: float, scene: GuardContext = SERVING, policy: Policy = POLICY
) -> list[tuple[float, Decision, int]]:
    """Looks at memory as often as the guard asks for; `(seconds, decision, usable)` of every act."""
    state, at, acts = START, 0.0, []
    while at <= seconds:
        left = usable(at)
        state, decision = decide(state, GuardSample(at, left, left, 0, 0.0), policy, scene)
        if decision.act is not GuardAction.NOTHING:
            acts.append((at, decision, left))
        at += decision.next_in
    return acts


# --- the recorded collapses -----------------------------------------------------------------------------


@pytest.mark.parametrize("scene", [SERVING, LOADING], ids=["serving", "loading"])
def test_the_recorded_crash_is_stopped_before_its_last_reading(scene: GuardContext) -> None:
    points = crash_timeline()
    last, end = points[-1][0], points[-1][1]
    at, decision, left = replay(lambda t: interpolated(points, t), last, scene)[0]
    assert decision.act is GuardAction.STOP
    assert points[-2][0] < at < last - 0.5, "within the last three seconds, and with time to act"
    assert left > end + GIB
    assert "gone in" in decision.reason


@pytest.mark.parametrize(
    ("first", "rate"),
    [
        (29.0, 26.5 / 9.0),  # vllm #54200
        (12.0, 7.39 / 5.0),  # gb10-services 2026-07-17: 7.39 GiB across 5 s ...
        (8.0, 4.51 / 3.0),  # ... and 4.51 GiB within 3 s
    ],
)
def test_other_recorded_collapse_rates_end_in_a_stop_before_nothing_is_left(first: float, rate: float) -> None:
    at, decision, left = replay(lambda t: max(0, int((first - rate * t) * GIB)), first / rate)[0]
    assert decision.act is GuardAction.STOP
    assert left > 1.8 * GIB
    assert first / rate - at > 0.9, "more than 0.9 s before nothing is left"


def test_a_fall_that_continues_after_the_stop_ends_in_a_kill_and_one_too_fast_for_a_stop_is_a_kill_at_once() -> None:
    acts = replay(lambda t: max(0, int((12 - 2.4 * t) * GIB)), 5.0)
    assert [decision.act for _, decision, _ in acts] == [GuardAction.STOP, GuardAction.KILL]
    assert acts[1][2] > 0.8 * GIB
    assert replay(lambda t: max(0, int((20 - 12 * t) * GIB)), 2.0)[0][1].act is GuardAction.KILL


def test_a_free_pool_that_is_almost_all_cma_is_acted_upon() -> None:
    # Capture F: 9 GiB available, 8.5 of them CMA, which neither the driver nor the kernel can use.
    mem = parse_meminfo(snapshot("F"))
    state = START
    decisions = []
    for look in range(POLICY.low_strikes):
        state, decision = decide(state, sample_of(mem, look * 0.1, 0.0), POLICY, SERVING)
        decisions.append(decision.act)
    assert decisions == [*[GuardAction.NOTHING] * (POLICY.low_strikes - 1), GuardAction.KILL]


# --- healthy machines -----------------------------------------------------------------------------------


@all_cases("scene", [SERVING, LOADING], ids=["serving", "loading"])
@all_cases("unit", [1000**2, 1024**2], ids=["MB", "MiB"])
@all_cases("path", TELEMETRY, ids=lambda path: path.stem)
def test_healthy_telemetry_is_met_with_silence(path: Path, unit: int, scene: GuardContext) -> None:
    state = START
    quiet = Policy(load_free_floor=0)  # dropping the cache while loading is no alarm
    for at, usable, _ in telemetry(path, unit):
        state, decision = decide(state, GuardSample(at, usable, usable, 0, 0.0), quiet, scene)
        assert decision.act is GuardAction.NOTHING


NVTOP = [
    (float(row["t_s"]), int((121.6 - float(row["memtotal_minus_available_gib"])) * GIB))
    for row in rows("nvtop_vs_meminfo.csv")
][:-1]
CAPTURES = {letter: parse_meminfo(snapshot(letter)).usable for letter in "ABCDH"}
WORST = {
    row["dir"]: 127_535_084 * 1024 - int(float(row["mem_used_mb_max"])) * 1000**2 for row in rows("memory_38runs.csv")
}


@pytest.mark.parametrize(
    ("usable", "scene"),
    [
        *(pytest.param(lambda _, size=size: size, SERVING, id=name) for name, size in (CAPTURES | WORST).items()),
        # nvtop #449: from 8.6 to 46.6 GiB used within 24 s.
        pytest.param(lambda t: interpolated(NVTOP, t), LOADING, id="nvtop"),
        # A KV cache fills the memory as intended, at any speed: from 40 GiB to 5.8, the lowest of the 38 runs.
        *(
            pytest.param(lambda t, rate=rate: int(max(5.76, 40 - rate * t) * GIB), LOADING, id=f"kv-{rate}")
            for rate in (0.7, 1.0, 5.0, 20.0, 200.0)
        ),
        # The first long prompt of a ready engine: 11.9 GiB more within seconds, once (allocator workspace).
        pytest.param(lambda t: int(max(6.1, 18 - 6 * t) * GIB), SERVING, id="first-prompt"),
        # Below the floor for a third of a second, with no fall that continues.
        pytest.param(lambda t: int((1.8 if 5.0 <= t < 5.3 else 4.0) * GIB), SERVING, id="dip"),
    ],
)
def test_what_healthy_machines_show_is_met_with_silence(usable: Callable[[float], int], scene: GuardContext) -> None:
    assert replay(usable, 60.0, scene, Policy(load_free_floor=0)) == []


# --- the floors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usable", "scene", "acts"),
    [
        (2.1, SERVING, []),
        (1.9, SERVING, [GuardAction.STOP]),
        (0.9, SERVING, [GuardAction.KILL]),
        (3.1, LOADING, []),
        (2.9, LOADING, [GuardAction.STOP]),
        (1.9, GuardContext(engines=False), []),
        (0.5, GuardContext(engines=False), []),
    ],
)
def test_each_state_has_its_floor(usable: float, scene: GuardContext, acts: list[GuardAction]) -> None:
    found = replay(lambda _: int(usable * GIB), 5.0, scene, Policy(load_free_floor=0))
    assert [decision.act for _, decision, _ in found] == acts


def test_five_looks_in_a_row_below_the_floor_take_half_a_second() -> None:
    at, decision, _ = replay(lambda _: int(1.9 * GIB), 5.0)[0]
    assert at == pytest.approx(0.4)
    assert "5 looks in a row below the floor of 2.0 GiB while serving" in decision.reason


@pytest.mark.parametrize(
    ("usable", "pressure", "seconds", "acts"),
    [
        (6.0, 60.0, 19.0, []),
        (6.0, 60.0, 21.0, [GuardAction.STOP]),
        (6.0, 10.0, 60.0, []),
        (6.0, None, 60.0, []),
        (60.0, 90.0, 60.0, []),
    ],
)
def test_thrashing_counts_after_a_while_and_only_when_memory_is_short(
    usable: float, pressure: float | None, seconds: float, acts: list[GuardAction]
) -> None:
    state, at, found = START, 0.0, []
    while at <= seconds:
        state, decision = decide(state, GuardSample(at, int(usable * GIB), GIB, 0, pressure), POLICY, SERVING)
        found.append(decision.act)
        at += decision.next_in
    assert [act for act in found if act is not GuardAction.NOTHING] == acts


@pytest.mark.parametrize(
    ("usable", "scene", "interval"),
    [
        (60.0, SERVING, 0.5),
        (4.1, SERVING, 0.5),
        (3.9, SERVING, 0.1),
        (5.9, LOADING, 0.1),
        (3.9, GuardContext(engines=False), 0.5),
    ],
)
def test_it_looks_ten_times_a_second_when_near(usable: float, scene: GuardContext, interval: float) -> None:
    sample = GuardSample(0.0, int(usable * GIB), int(usable * GIB), 0)
    assert decide(START, sample, Policy(load_free_floor=0), scene)[1].next_in == interval


def test_a_fast_fall_is_looked_at_closely_from_its_first_sample() -> None:
    state, _ = decide(START, GuardSample(0.0, 20 * GIB, GIB, 0), POLICY, SERVING)
    _, decision = decide(state, GuardSample(0.5, 18 * GIB, GIB, 0), POLICY, SERVING)
    assert decision.next_in == 0.1


# --- afterwards -----------------------------------------------------------------------------------------


def stopping(at: float = 0.0) -> GuardState:
    """A guard that asked an engine to stop at that time."""
    return GuardState(last=GuardSample(at, int(1.9 * GIB), GIB, 0), stopping_since=at)


@pytest.mark.parametrize(
    ("later", "usable", "act"),
    [
        (1.0, 1.9, GuardAction.NOTHING),  # it is given its grace
        (9.9, 1.9, GuardAction.NOTHING),
        (10.0, 1.9, GuardAction.KILL),
        (1.0, 0.9, GuardAction.KILL),  # it cannot be waited for
        (30.0, 20.0, GuardAction.NOTHING),  # memory is back
    ],
)
def test_a_graceful_stop_has_its_time(later: float, usable: float, act: GuardAction) -> None:
    sample = GuardSample(later, int(usable * GIB), GIB, 0)
    assert decide(stopping(), sample, POLICY, SERVING)[1].act is act


def test_memory_that_comes_back_late_costs_no_second_engine() -> None:
    # 60 s and more are usual.
    state = ended(stopping(), 1.0)
    at = 1.0
    while at < 60:
        at += 0.5
        state, decision = decide(state, GuardSample(at, int(1.5 * GIB), GIB, 0), POLICY, SERVING)
        assert decision.act is GuardAction.NOTHING
    state, _ = decide(state, GuardSample(60.0, 60 * GIB, 60 * GIB, 0), POLICY, SERVING)
    assert (state.stopping_since, state.killed_at) == (None, None)


def test_a_second_fall_after_a_kill_ends_a_second_engine() -> None:
    state = ended(stopping(), 0.0)
    acts = []
    at = 0.0
    while at < 8:
        at += 0.1
        usable = 5.0 if at < 5 else max(0.0, 5.0 - 2.4 * (at - 5))
        state, decision = decide(state, GuardSample(at, int(usable * GIB), GIB, 0), POLICY, SERVING)
        if decision.act is not GuardAction.NOTHING:
            acts.append((round(at, 1), decision.act))
    assert acts[0][1] is GuardAction.STOP
    assert 5.2 < acts[0][0] < 5.6


def test_what_stays_missing_counts_again_after_a_while() -> None:
    state = ended(stopping(), 0.0)
    for look in range(20):
        state, decision = decide(state, GuardSample(91.0 + look / 10, int(1.5 * GIB), GIB, 0), POLICY, SERVING)
        if decision.act is not GuardAction.NOTHING:
            break
    assert decision.act is GuardAction.STOP


# --- while an engine loads ------------------------------------------------------------------------------


def load(free: float, droppable: float | None, *, measuring: bool = False, seconds: float = 6.0) -> list[GuardAction]:
    """The acts of a guard that looks once a second at a load with much usable memory."""
    state, found = START, []
    for second in range(int(seconds)):
        size = None if droppable is None else int(droppable * GIB)
        sample = GuardSample(float(second), 60 * GIB, int(free * GIB), size)
        state, decision = decide(state, sample, POLICY, GuardContext(loading=True, measuring=measuring))
        found.append(decision.act)
    return found


def test_free_memory_under_the_floor_drops_the_cache_then_compacts() -> None:
    assert load(7.9, 40.0) == [
        GuardAction.DROP_CACHE,
        GuardAction.COMPACT,
        GuardAction.NOTHING,
        GuardAction.NOTHING,
        GuardAction.NOTHING,
        GuardAction.DROP_CACHE,
    ]


@pytest.mark.parametrize(
    ("free", "droppable", "measuring"),
    [
        (8.1, 40.0, False),  # enough is free
        (2.0, 0.1, False),  # nothing worth a drop
        (2.0, 40.0, True),  # another engine measures memory: what becomes free would fail its start
    ],
)
def test_the_cache_is_left_alone_when_a_drop_helps_no_one(free: float, droppable: float, measuring: bool) -> None:
    assert set(load(free, droppable, measuring=measuring)) == {GuardAction.NOTHING}


def test_a_kernel_that_does_not_report_what_is_droppable_is_tried_and_without_a_load_nothing_is_dropped() -> None:
    assert load(2.0, None)[0] is GuardAction.DROP_CACHE
    _, decision = decide(START, GuardSample(0.0, 60 * GIB, GIB, 40 * GIB), POLICY, SERVING)
    assert decision.act is GuardAction.NOTHING


# --- who --------------------------------------------------------------------------------------------------

OLD = GuardedEngine("1", "old", started_at=10.0)
YOUNG = GuardedEngine("2", "young", started_at=20.0)
STARTING = GuardedEngine("3", "starting", loading=True, started_at=5.0)
FOREIGN = GuardedEngine("4", "foreign", ours=False, started_at=30.0)


@pytest.mark.parametrize(
    ("engines", "only_ours", "expected"),
    [
        ((), True, None),
        ((OLD,), True, OLD),
        ((OLD, YOUNG), True, YOUNG),
        ((OLD, YOUNG, STARTING), True, STARTING),
        ((FOREIGN,), True, None),
        ((FOREIGN,), False, FOREIGN),
        ((OLD, FOREIGN), False, OLD),
    ],
)
def test_the_youngest_of_ours_ends_and_one_that_loads_before_all(
    engines: tuple[GuardedEngine, ...], only_ours: bool, expected: GuardedEngine | None
) -> None:
    assert victim(engines, only_ours=only_ours) == expected
    assert victim(engines[::-1], only_ours=only_ours) == expected


# --- properties -----------------------------------------------------------------------------------------

_USABLE = st.integers(0, 2**37)


@given(st.lists(st.tuples(st.floats(0, 5), _USABLE), max_size=60), st.booleans())
def test_no_history_acts_without_an_engine_or_raises(points: list[tuple[float, int]], loading: bool) -> None:
    state, at = START, 0.0
    for step, usable in points:
        at += step
        state, decision = decide(
            state, GuardSample(at, usable, usable // 2, None, 50.0), POLICY, GuardContext(False, loading)
        )
        assert decision.act is GuardAction.NOTHING
        assert 0 < decision.next_in <= 0.5


@given(st.lists(_USABLE.map(lambda size: size + 13 * GIB), max_size=60))
def test_much_memory_never_ends_an_engine(sizes: list[int]) -> None:
    state = START
    for index, usable in enumerate(sizes):
        state, decision = decide(state, GuardSample(index * 0.5, usable, usable, 0, 99.0), POLICY, LOADING)
        assert decision.act is GuardAction.NOTHING


@given(st.lists(_USABLE, min_size=1, max_size=60))
def test_a_kill_needs_a_stop_or_hopelessness_and_every_act_has_a_reason(sizes: list[int]) -> None:
    state = START
    for index, usable in enumerate(sizes):
        before = state
        state, decision = decide(state, GuardSample(index * 0.1, usable, usable, None, None), POLICY, SERVING)
        assert bool(decision.reason) is (decision.act is not GuardAction.NOTHING)
        if decision.act is GuardAction.KILL and before.stopping_since is None:
            assert before.last is not None
            falls = (before.last.usable - usable) * 10
            assert usable < POLICY.kill_floor or usable < falls * POLICY.last_seconds


# --- restarts -------------------------------------------------------------------------------------------


def test_every_cause_either_heals_or_not_by_intent() -> None:
    may_heal = {
        CauseId.FREE_MEMORY_BELOW_UTILIZATION,  # the engine before has not given its memory back yet
        CauseId.MEMORY_CHANGED_WHILE_PROFILING,
        CauseId.HUB_OFFLINE,
        CauseId.NCCL,
        CauseId.READY_TIMEOUT,
        CauseId.ENGINE_DIED,
        CauseId.KILLED,
        CauseId.UNKNOWN,
    }
    assert may_heal | PERMANENT == set(CauseId)
    assert not may_heal & PERMANENT


@all_cases("cause", sorted(PERMANENT))
def test_what_no_restart_heals_is_not_restarted(cause: CauseId) -> None:
    verdict = may_restart((EngineEnd(100.0, cause),), 100.0)
    assert not verdict.allowed
    assert cause in verdict.reason


@pytest.mark.parametrize(
    ("ends", "allowed"),
    [
        ((), True),
        ((0.0, 100.0, 300.0), True),
        ((0.0, 100.0, 300.0, 700.0), False),
        ((0.0, 100.0, 300.0, WITHIN_SECONDS + 301), True),
    ],
)
def test_what_may_heal_is_restarted_a_few_times(ends: tuple[float, ...], allowed: bool) -> None:
    verdict = may_restart([EngineEnd(at, CauseId.ENGINE_DIED) for at in ends], max(ends, default=0.0))
    assert verdict.allowed is allowed


def test_what_the_guard_ended_is_not_restarted() -> None:
    assert may_restart((EngineEnd(0.0, CauseId.KILLED, by_guard=True),), 9.0) == RestartVerdict(
        False, "stopped by the memory guard: the same settings would end there again"
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20).map(sorted))
def test_no_engine_is_ever_started_more_than_a_few_times_an_hour(ends: list[float]) -> None:
    verdict = may_restart([EngineEnd(at, CauseId.ENGINE_DIED) for at in ends], ends[-1])
    recent = [at for at in ends if ends[-1] - at <= WITHIN_SECONDS]
    assert verdict.allowed is (len(recent) <= MOST_RESTARTS)


# --- samples --------------------------------------------------------------------------------------------


def test_a_sample_is_what_the_reading_says() -> None:
    mem = parse_meminfo("MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 400 kB\nCmaFree: 100 kB\n")
    assert sample_of(mem, 5.0, 1.5) == GuardSample(5.0, 300 * 1024, 300 * 1024, None, 1.5)
