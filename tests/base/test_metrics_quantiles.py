"""Quantiles: against a reference computation on real pages, and against the observations themselves."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache
from math import ceil, inf, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from spark_tui.base.engine.metrics_page import Change, Family, Snapshot, histogram
from tests import metric_fixtures as pages
from tests.cases import all_cases

FAMILIES = {
    Family.TTFT: "vllm:time_to_first_token_seconds",
    Family.ITL: "vllm:inter_token_latency_seconds",
    Family.E2E: "vllm:e2e_request_latency_seconds",
    Family.QUEUE: "vllm:request_queue_time_seconds",
}
PAIRS = [
    ("tiny-before", "tiny-after"),
    ("smol-12s", "smol-24s"),
    ("smol-24s", "smol-48s"),
    ("kv-pressure-1", "kv-pressure-4"),
    ("kv-pressure-4", "kv-pressure-8"),
]


@cache
def _buckets(name: str, family: str) -> dict[float, Fraction]:
    """Cumulative counts by bound over all engines, by the whole of prometheus_client's parser."""
    counts: dict[float, Fraction] = {}
    for metric in text_string_to_metric_families(pages.text(name).decode()):
        for sample in metric.samples:
            if sample.name == f"{family}_bucket":
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, Fraction(0)) + Fraction(sample.value)
    return counts


def _reference(counts: dict[float, Fraction], share: Fraction) -> float | None:
    """Prometheus's definition, in exact numbers and by single buckets: walk until the share is used up."""
    bounds = sorted(counts)
    single = [counts[b] - (counts[bounds[i - 1]] if i else 0) for i, b in enumerate(bounds)]
    left = share * sum(single)
    if not sum(single):
        return None
    for index, (bound, inside) in enumerate(zip(bounds, single, strict=True)):
        low = bounds[index - 1] if index else 0.0
        if inside and left <= inside:
            return low if bound == inf else float(Fraction(low) + (Fraction(bound) - Fraction(low)) * left / inside)
        left -= inside
    raise AssertionError("the buckets do not add up")


@all_cases("family", FAMILIES)
@all_cases("share", ["0.5", "0.95", "0.99"])
@all_cases(("before", "after"), PAIRS)
def test_quantiles_of_a_window_match_a_reference_computation(
    before: str, after: str, share: str, family: Family
) -> None:
    then, now = _buckets(before, FAMILIES[family]), _buckets(after, FAMILIES[family])
    expected = _reference({bound: now[bound] - then[bound] for bound in now}, Fraction(share))
    found = pages.between(pages.page(before), pages.page(after)).histogram(family)
    assert found is not None
    found = replace(found, sum=None)  # Prometheus does not look at it
    quantile = found.quantile(float(share))
    assert (quantile is None) is (expected is None)
    if quantile is not None and expected is not None:
        assert isclose(quantile.value, expected, rel_tol=1e-9)
        assert quantile.low <= quantile.value <= quantile.high


@all_cases("family", FAMILIES)
@all_cases("name", pages.PAGES)
def test_quantiles_since_the_start_match_a_reference_computation(name: str, family: Family) -> None:
    expected = _reference(_buckets(name, FAMILIES[family]), Fraction("0.95"))
    found = Change(None, Snapshot(0.0, pages.page(name)), None).histogram(family)
    assert found is not None
    found = replace(found, sum=None)
    quantile = found.quantile(0.95)
    assert (None if quantile is None else pytest.approx(quantile.value, rel=1e-9)) == expected


BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0, inf)


@given(
    st.lists(st.floats(1e-4, 50.0), min_size=1, max_size=200),
    st.sampled_from((0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)),
)
def test_the_true_quantile_lies_in_the_bucket_that_is_shown(observed: list[float], share: float) -> None:
    counts = {bound: float(sum(value <= bound for value in observed)) for bound in BOUNDS}
    found = histogram(counts)
    assert found is not None
    quantile = found.quantile(share)
    assert quantile is not None
    rank = ceil(Fraction(str(share)) * len(observed))
    true = sorted(observed)[rank - 1]
    assert quantile.low < true <= quantile.high
    assert quantile.low <= quantile.value <= quantile.high
    if quantile.high != inf:
        assert abs(quantile.value - true) <= quantile.error


@given(st.lists(st.floats(1e-4, 50.0), min_size=1, max_size=100))
def test_quantiles_rise_with_their_share(observed: list[float]) -> None:
    found = histogram({bound: float(sum(value <= bound for value in observed)) for bound in BOUNDS}, sum_=sum(observed))
    latency = found.latency() if found else None
    assert latency is not None
    assert latency.p50.value <= latency.p95.value <= latency.p99.value
    assert latency.count == len(observed)
    assert latency.mean == pytest.approx(sum(observed) / len(observed))


def test_beyond_the_last_bound_only_the_least_is_known() -> None:
    found = histogram({1.0: 0.0, 10.0: 1.0, inf: 100.0})
    quantile = found.quantile(0.5) if found else None
    assert quantile is not None
    assert (quantile.value, quantile.low, quantile.high, quantile.error) == (10.0, 10.0, inf, inf)


def test_without_observations_there_is_no_quantile() -> None:
    empty = histogram(dict.fromkeys(BOUNDS, 0.0))
    assert empty is not None
    assert empty.quantile(0.5) is None
    assert empty.latency() is None
    assert histogram({}) is None


def test_counts_that_fall_from_bound_to_bound_are_lifted() -> None:
    """A page of several processes may be read while one of them writes."""
    found = histogram({0.1: 5.0, 0.2: 4.0, inf: 6.0})
    assert found is not None
    assert found.counts == (5.0, 5.0, 6.0)


def test_engines_with_other_bounds_are_added_up_where_both_have_one() -> None:
    """The sum of cumulative counts means nothing at a bound that one of them lacks."""
    body = "".join(
        f'vllm:time_to_first_token_seconds_bucket{{engine="{engine}",le="{le}",model_name="m"}} {count}\n'
        for engine, le, count in (("0", "0.1", 1), ("0", "0.5", 4), ("0", "+Inf", 4), ("1", "0.5", 2), ("1", "+Inf", 2))
    )
    page = pages.page_of_text(body)
    found = Change(None, Snapshot(0.0, page), None).histogram(Family.TTFT)
    assert found is not None
    assert (found.bounds, found.counts) == ((0.5, inf), (6.0, 6.0))
    assert bisect_left(found.bounds, 0.5) == 0


def test_no_percentile_lies_above_what_was_seen() -> None:
    """Within a bucket of 0.5 to 1 s, one answer of 0.6 s, and two of 0.55 s together with a fast one."""
    alone = histogram({0.5: 0, 1.0: 1, inf: 1}, sum_=0.6)
    assert alone is not None
    found = alone.latency()
    assert found is not None
    assert (found.p50.value, found.p99.value, found.p99.error) == (0.6, 0.6, 0.0)
    several = histogram({0.1: 1, 0.5: 1, 1.0: 3, inf: 3}, sum_=1.15)
    assert several is not None
    p99 = several.quantile(0.99)
    assert p99 is not None
    assert p99.value <= 0.65
    assert p99.low == 0.5


@given(st.lists(st.floats(0.001, 50.0), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_a_quantile_s_bounds_hold_the_true_value(seen: list[float], share: float) -> None:
    bounds = (0.1, 0.5, 1.0, 5.0, 20.0, inf)
    found = histogram({bound: sum(each <= bound for each in seen) for bound in bounds}, sum_=sum(seen))
    assert found is not None
    quantile = found.quantile(share)
    assert quantile is not None
    true = sorted(seen)[max(0, ceil(share * len(seen)) - 1)]
    assert quantile.low - 1e-9 <= true <= quantile.high + 1e-9
    assert quantile.low - 1e-9 <= quantile.value <= quantile.high + 1e-9
