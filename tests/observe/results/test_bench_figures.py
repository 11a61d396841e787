"""The figures: what `vllm bench serve` computed from its requests, we compute from the same; and what ends badly."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.metrics_page import EMPTY_PAGE, MetricPage
from spark_tui.machine.engine_api import PageReader
from spark_tui.observe.results.model.plan import BenchPlan, Segment
from spark_tui.observe.results.model.record import (
    RequestOutcome,
    RequestRecord,
    between,
    cross_check,
    distribution,
    mean_interval,
    median_interval,
    others,
    student_t,
)
from spark_tui.observe.results.model.run import Estimate, Pass, RunOutcome, estimate, level, scaling
from tests.bench_kit import FIXTURES, a_pass, a_run, records_of, request, saved

RUNS = ("vllm-bench-serve", "vllm-bench-serve-rate")
finite = st.floats(0, 1e6, allow_nan=False)


def page(when: str) -> MetricPage:
    """The server's, before or after the run at a rate."""
    return PageReader().read((FIXTURES / f"metrics-{when}.txt").read_bytes())


# --- the same requests, the same figures ---------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(("ours", "theirs"), [("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2el")])
def test_latencies_are_what_vllm_computed(name: str, ours: str, theirs: str) -> None:
    told = saved(name)
    found = level([Pass(Segment(1, 4, 16, 0, 0), records_of(told))])
    figures = getattr(found, ours)
    for figure in ("mean", "p50", "p90", "p99"):
        key = f"{figure}_{theirs}_ms"
        assert getattr(figures, figure) * 1000 == pytest.approx(told[key], rel=1e-6), key


def test_throughput_of_a_closed_loop_is_what_vllm_computed() -> None:
    told = saved("vllm-bench-serve")
    found = Pass(Segment(1, 4, 16, 0, 0), records_of(told))
    # Theirs contains the time from the last token to the end of its last task: less than 1 % here.
    assert found.output_rate == pytest.approx(told["output_throughput"], rel=0.01)
    assert found.request_rate == pytest.approx(told["request_throughput"], rel=0.01)
    assert found.total_rate == pytest.approx(told["total_token_throughput"], rel=0.01)


def test_the_servers_histograms_around_that_run_agree_with_its_requests() -> None:
    records = records_of(saved("vllm-bench-serve-rate"))
    side = between(page("before"), page("after"))
    assert side is not None and side.e2e is not None
    assert (side.e2e.count, side.output_tokens) == (24, 2304)
    checks = {check.what: check for check in cross_check(side, records)}
    assert {what for what, check in checks.items() if check.agrees} == set(checks)
    assert len(checks) == 8
    assert others(side, records) == 0
    assert others(side, records[:20]) == 4


def test_a_counter_that_fell_is_an_engine_that_was_restarted() -> None:
    assert between(page("after"), page("before")) is None


def test_without_a_page_before_or_after_nothing_is_known() -> None:
    assert between(EMPTY_PAGE, EMPTY_PAGE) is None
    assert between(EMPTY_PAGE, page("after")) is None
    assert between(page("before"), EMPTY_PAGE) is None


# --- one request ---------------------------------------------------------------------------------------


def test_a_request_in_figures() -> None:
    one = request(sent=10.0, ttft=0.5, step=0.1, tokens=5)
    assert one.outcome is RequestOutcome.COMPLETE
    assert one.ttft == pytest.approx(0.5)
    assert one.e2e == pytest.approx(0.9)
    assert one.itls == pytest.approx([0.1] * 4)
    assert one.tpot == pytest.approx(0.1)
    assert one.decode_rate == pytest.approx(10)
    assert one.stream_rate == pytest.approx(5 / 0.9)
    assert one.prefill_rate == pytest.approx(20)


def test_tokens_come_from_the_usage_and_not_from_counting_chunks() -> None:
    speculating = request(tokens=5, completion_tokens=9, asked_output=9)
    assert speculating.tpot == pytest.approx(0.4 / 8)
    assert len(speculating.itls) == 4


def test_prompt_tokens_from_the_cache_are_not_prefilled() -> None:
    assert request(prompt_tokens=10, cached_tokens=8).prefill_rate == pytest.approx(4)
    assert request(prompt_tokens=10, cached_tokens=10).prefill_rate is None


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, RequestOutcome.COMPLETE),
        ({"completion_tokens": 6}, RequestOutcome.COMPLETE),
        ({"completion_tokens": 4}, RequestOutcome.SHORT),
        ({"error": "broke", "completion_tokens": None}, RequestOutcome.TRUNCATED),
        ({"error": "refused", "chunks": ()}, RequestOutcome.FAILED),
        ({"completion_tokens": None}, RequestOutcome.FAILED),
        ({"chunks": ()}, RequestOutcome.FAILED),
        ({"cancelled": True, "error": "broke"}, RequestOutcome.CANCELLED),
    ],
)
def test_how_a_request_ended(changes: dict[str, object], outcome: RequestOutcome) -> None:
    assert request(**changes).outcome is outcome  # type: ignore[arg-type]


# --- a level -------------------------------------------------------------------------------------------


def test_bad_requests_are_counted_and_never_averaged_away() -> None:
    slow = request(1, ttft=90.0, error="broke", completion_tokens=None)
    short = request(2, ttft=70.0, completion_tokens=2)
    refused = RequestRecord(3, 0, 0.0, 0.1, 10, 5, status=503, error="The engine is busy.")
    found = level([Pass(Segment(1, 4, 4, 10, 5), (request(0), slow, short, refused))])
    assert found.ttft is not None and found.ttft.count == 1
    assert found.ttft.most == pytest.approx(0.5)
    counts = found.counts
    assert (counts.complete, counts.truncated, counts.short, counts.failed) == (1, 1, 1, 1)
    assert counts.bad == 3
    assert dict(found.errors) == {"broke": 1, "The engine is busy.": 1}


def test_nothing_measured_is_not_zero() -> None:
    refused = RequestRecord(0, 0, 0.0, 0.1, 10, 5, status=500, error="no")
    found = level([Pass(Segment(1, 1, 1, 10, 5), (refused,))])
    assert (found.output_rate, found.ttft, found.itl, found.decode_rate) == (None, None, None, None)


def test_a_stopped_pass_gives_no_rate_where_a_finished_one_does() -> None:
    whole, cut = a_pass(2, 10.0), a_pass(2, 20.0)
    found = level([whole, Pass(cut.segment, cut.records, finished=False)])
    assert found.output_rate == pytest.approx(20)
    assert found.passes == 1
    assert found.counts.complete == 4


def test_several_passes_have_an_interval() -> None:
    found = level([a_pass(1, 10.0), a_pass(1, 10.2), a_pass(1, 9.8)])
    assert found.output_interval is not None
    assert found.output_interval.low < 10 < found.output_interval.high
    assert level([a_pass(1, 10.0)]).output_interval is None


def test_the_peak_is_the_fullest_second_wherever_it_begins() -> None:
    burst = request(0, ttft=1.6, step=0.05, tokens=10)
    found = level([Pass(Segment(1, 1, 1, 10, 10), (burst,))])
    assert found.peak_rate == pytest.approx(10)


# --- statistics ----------------------------------------------------------------------------------------


@given(st.lists(finite, min_size=2, max_size=60))
def test_percentiles_interpolate_as_the_standard_library_does_inclusively(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    for percent, mine in ((50, found.p50), (90, found.p90), (95, found.p95), (99, found.p99)):
        assert mine == pytest.approx(cuts[percent - 1], rel=1e-9, abs=1e-9)
    assert found.std == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6)


@given(st.lists(finite, min_size=6, max_size=1200))
def test_the_medians_interval_holds_the_median(values: list[float]) -> None:
    found = median_interval(sorted(values))
    assert found is not None
    assert found.low <= statistics.median(values) <= found.high


def test_the_medians_interval_covers_at_least_95_percent_and_not_much_more() -> None:
    for count in range(6, 200):
        found = median_interval([float(value) for value in range(count)])
        assert found is not None
        inside = sum(math.comb(count, k) for k in range(int(found.low) + 1, count - int(found.low))) / 2**count
        assert inside >= 0.95
        tighter = sum(math.comb(count, k) for k in range(int(found.low) + 2, count - int(found.low) - 1)) / 2**count
        assert tighter < 0.95


def test_small_samples_have_no_interval() -> None:
    assert median_interval([1.0] * 5) is None
    assert mean_interval([1.0]) is None
    assert distribution([]) is None
    assert [student_t(n) for n in (1, 2, 22, 1000)] == [12.706, 4.303, 2.086, 1.980]


# --- scaling -------------------------------------------------------------------------------------------


def test_scaling_efficiency_and_knee() -> None:
    found = scaling({1: 40.0, 2: 76.0, 4: 130.0, 8: 170.0, 16: 190.0})
    assert found is not None
    assert found.efficiency == pytest.approx(190 / (16 * 40))
    assert (found.knee_streams, found.knee_throughput) == (8, 170.0)
    assert (found.most_streams, found.most_throughput) == (16, 190.0)
    assert not found.knee_is_last


def test_a_curve_that_never_bends_has_its_knee_at_its_end_or_beyond() -> None:
    found = scaling({1: 25.0, 64: 1660.0, 128: 3330.0})
    assert found is not None
    assert found.efficiency == pytest.approx(1.041, abs=0.001)
    assert (found.knee_streams, found.knee_is_last) == (128, True)


def test_without_a_single_stream_there_is_no_measure_of_scaling() -> None:
    found = scaling({4: 100.0, 8: 150.0})
    assert found is not None
    assert (found.efficiency, found.knee_streams, found.most_streams) == (None, None, 8)
    assert scaling({}) is None


@given(st.dictionaries(st.integers(1, 512), st.floats(0.1, 1e5), min_size=1))
def test_the_knee_is_always_a_level_with_at_least_half_efficiency(curve: dict[int, float]) -> None:
    found = scaling(curve)
    assert found is not None
    if 1 in curve:
        assert found.knee_streams in curve
        assert curve[found.knee_streams] >= 0.5 * found.knee_streams * curve[1] * (1 - 1e-12)
    else:
        assert found.knee_streams is None


# --- estimates -----------------------------------------------------------------------------------------

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
    assert estimate(BenchPlan(), before=replace(RUN, ending=RunOutcome.CANCELLED)) is None
    assert estimate(BenchPlan(), before=replace(RUN, levels=())) is None
