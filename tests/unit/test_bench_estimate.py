"""How long a benchmark will take: from an earlier run in proportion, or at least so long by a published speed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_tui.domain.bench.plan import BenchPlan
from spark_tui.domain.bench.run import Ending, Estimate, estimate
from tests.unit.bench_kit import a_run

RUN = a_run("one", (1, (40.0, 41.0, 40.5)), (8, (130.0, 131.0, 129.0)), seconds=90.0)


def seconds_of(plan: BenchPlan) -> float:
    found = estimate(plan, before=RUN)
    assert found is not None
    assert not found.at_least
    return found.seconds


def test_the_same_plan_takes_as_long_as_before_and_twice_the_load_twice_as_long() -> None:
    assert seconds_of(RUN.plan) == pytest.approx(RUN.seconds)
    twice = replace(RUN.plan, passes=RUN.plan.passes * 2, warmup=RUN.plan.warmup * 2)
    assert seconds_of(twice) == pytest.approx(2 * RUN.seconds)


def test_beyond_the_levels_that_are_known_more_streams_take_longer() -> None:
    known, beyond = (replace(RUN.plan, concurrency=(streams,)) for streams in (8, 32))
    assert seconds_of(beyond) > seconds_of(known)


def test_by_a_published_speed_it_takes_at_least_the_time_of_decoding() -> None:
    plan = BenchPlan(output_tokens=100, concurrency=(1, 8), passes=1, rounds=2)
    assert estimate(plan, decode_rate=50.0) == Estimate(8.0, at_least=True)


def test_without_a_run_that_came_to_its_end_nothing_is_known() -> None:
    assert estimate(BenchPlan()) is None
    assert estimate(BenchPlan(), before=replace(RUN, ending=Ending.CANCELLED)) is None
    assert estimate(BenchPlan(), before=replace(RUN, levels=())) is None
