"""The sliding window: rates, restarts, gaps, energy; and what becomes a series."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.metrics_page import Snapshot, restarted
from spark_tui.base.finding import Missing, Ok, Reading, Stale, value_of
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.host.series import MetricGroup, MetricId, SeriesView
from spark_tui.base.host.vitals import GpuProcess, GpuReading, LinkRate, Vitals
from spark_tui.base.quantities import GIB
from spark_tui.observe.metrics.model.serving import (
    ONE_LOOK,
    HostReadings,
    MetricWindow,
    engine_values,
    host_values,
)
from tests import metric_fixtures as pages


def tokens(at: float, count: float, joules: float = 0.0, powered: float = 0.0, **more: float) -> Snapshot:
    return Snapshot(at, pages.vllm(generation_tokens_total=count, **more), joules, powered)


def rate(window: MetricWindow) -> Reading[float]:
    metrics = window.metrics()
    assert metrics is not None
    return metrics.decode_rate


# --- rates --------------------------------------------------------------------------------------------


def test_one_look_gives_no_rate() -> None:
    window = MetricWindow()
    assert window.metrics() is None
    window.add(tokens(0, 1000))
    assert rate(window) == ONE_LOOK


def test_speed_is_over_the_last_seconds_by_the_clock() -> None:
    window = MetricWindow()
    for second in range(21):
        window.add(tokens(second * 1.1, 1000 + 44 * second))
    assert value_of(rate(window)) == pytest.approx(40.0)
    for second in range(21, 27):
        window.add(tokens(second * 1.1, 1000 + 44 * 20))
    assert rate(window) == Ok(0.0)


@given(st.lists(st.tuples(st.floats(0.5, 5.0), st.integers(0, 500)), min_size=2, max_size=80))
def test_no_rate_is_negative_and_the_window_stays_small(steps: list[tuple[float, int]]) -> None:
    window, at, count = MetricWindow(), 0.0, 0
    for seconds, more in steps:
        at, count = at + seconds, count + more
        assert window.add(tokens(at, count)) is False
        metrics = window.metrics()
        assert metrics is not None
        if isinstance(metrics.decode_rate, Ok):
            assert 0 <= metrics.decode_rate.value <= 1000
        assert metrics.seconds is not None
        assert metrics.seconds <= 65.0 + 5.0
    assert len(window._recent) <= 12
    assert len(window._coarse) <= 15


# --- restarts -----------------------------------------------------------------------------------------


def test_a_counter_that_falls_is_a_restart_and_never_a_negative_rate() -> None:
    window = MetricWindow()
    window.add(tokens(0, 1000))
    window.add(tokens(1, 1040))
    assert window.add(tokens(2, 30)) is True
    assert rate(window) == ONE_LOOK
    assert window.add(tokens(3, 70)) is False
    assert rate(window) == Ok(40.0)


def test_a_new_process_is_a_restart_although_its_counters_are_higher() -> None:
    started = "process_start_time_seconds {}\nvllm:generation_tokens_total {}\n"
    before, after = (pages.page_of_text(started.format(*pair)) for pair in ((100.0, 10), (500.5, 20)))
    assert restarted(before, after)
    assert not restarted(before, pages.page_of_text(started.format(100.25, 20)))


def test_gauges_may_fall_and_series_may_appear() -> None:
    before = pages.vllm(num_requests_running=8, kv_cache_usage_perc=0.9, generation_tokens_total=1)
    after = pages.vllm(num_requests_running=0, kv_cache_usage_perc=0, generation_tokens_total=1, prompt_tokens_total=5)
    assert not restarted(before, after)


def test_the_real_pages_of_one_run_are_one_start() -> None:
    for before, after in (("smol-12s", "smol-24s"), ("smol-24s", "smol-48s"), ("kv-pressure-1", "kv-pressure-8")):
        assert not restarted(pages.page(before), pages.page(after))
        assert restarted(pages.page(after), pages.page(before))


def test_after_a_long_gap_the_window_begins_anew() -> None:
    window = MetricWindow()
    window.add(tokens(0, 0))
    window.add(tokens(1, 40))
    assert window.add(tokens(300, 400_000)) is False
    assert rate(window) == ONE_LOOK


def test_latency_of_a_window_forgets_what_was_before_it() -> None:
    window = MetricWindow()
    for second in range(0, 130, 5):
        name = "smol-12s" if second == 0 else "smol-24s"
        window.add(Snapshot(float(second), pages.page(name)))
        metrics = window.metrics()
        assert metrics is not None
        assert isinstance(metrics.ttft, Ok) is (0 < second <= 60)
    lifetime = window.lifetime()
    assert lifetime is not None
    assert isinstance(lifetime.ttft, Ok)


def test_since_the_start_rates_need_to_know_when_that_was() -> None:
    window = MetricWindow()
    window.add(Snapshot(0.0, pages.page("tiny-after")))
    began = 1795227401.12
    unknown, known = window.lifetime(), window.lifetime(began + 100)
    assert unknown is not None
    assert known is not None
    assert unknown.decode_rate == ONE_LOOK
    assert value_of(known.decode_rate) == pytest.approx(147.0)


# --- energy -------------------------------------------------------------------------------------------


def test_energy_is_what_the_gpu_drew_by_the_tokens_of_the_window() -> None:
    window = MetricWindow()
    window.add(tokens(0, 0, joules=1000, powered=50))
    window.add(tokens(10, 400, joules=1500, powered=60))
    metrics = window.metrics()
    assert metrics is not None
    assert metrics.energy == Ok(1.25)


@pytest.mark.parametrize(
    ("after", "why"),
    [(tokens(10, 400, joules=100, powered=2), "power unknown"), (tokens(10, 0, 500, 10), "no token")],
)
def test_energy_is_unknown_rather_than_wrong(after: Snapshot, why: str) -> None:
    window = MetricWindow()
    window.add(tokens(0, 0))
    window.add(after)
    metrics = window.metrics()
    assert metrics is not None
    assert isinstance(metrics.energy, Missing)
    assert why in metrics.energy.reason


# --- series -------------------------------------------------------------------------------------------


def test_every_series_has_a_name_a_unit_and_a_place() -> None:
    labels = [metric.label for metric in MetricId]
    assert len(set(labels)) == len(labels)
    assert {metric.group for metric in MetricId} == set(MetricGroup)


def test_every_series_has_a_value_or_a_reason() -> None:
    window = MetricWindow()
    window.add(Snapshot(0.0, pages.page("smol-12s")))
    window.add(Snapshot(12.0, pages.page("smol-24s")))
    metrics = window.metrics()
    assert metrics is not None
    values, reasons = engine_values(metrics)
    assert set(values) | set(reasons) == {metric for metric in MetricId if not metric.of_host}
    assert not set(values) & set(reasons)
    assert all(reasons.values())
    assert values[MetricId.DECODE_RATE] > 0
    assert "speculative" in reasons[MetricId.ACCEPTANCE]


def test_the_box_in_series() -> None:
    gpu = GpuReading("NVIDIA GB10", 96, 47.2, 62, 2411, processes=(GpuProcess(1, 70 * GIB),), unified=True)
    look = HostReadings(Ok(gpu), Ok(MemInfo(total=121 * GIB, free=20 * GIB, available=30 * GIB)))
    links = (LinkRate("enP7s7", 118e6, 2e6, up=True), LinkRate("wlP9s9", 0.0, 0.0, up=False))
    assert host_values(replace(look, vitals=Ok(Vitals(links=Ok(links)))))[0][MetricId.NETWORK_RATE] == 120.0
    values, reasons = host_values(look)
    assert set(reasons) == {MetricId.CPU_UTILIZATION, MetricId.DISK_RATE, MetricId.NETWORK_RATE}, "vitals were not read"
    assert (values[MetricId.GPU_POWER], values[MetricId.MEMORY_ENGINES]) == (47.2, 70.0)
    assert values[MetricId.MEMORY_AVAILABLE] == 30.0
    own = replace(look, gpu=Ok(replace(gpu, unified=False)))
    assert MetricId.MEMORY_ENGINES not in host_values(own)[0], "memory of the GPU's own is none of the machine's"


def test_a_stale_gpu_is_a_gap_and_not_its_last_figures() -> None:
    look = HostReadings(Stale(GpuReading("NVIDIA GB10", 96), 0.0, "the driver hangs"), Missing("no /proc"))
    values, reasons = host_values(look)
    assert values == {}
    assert reasons[MetricId.GPU_UTILIZATION] == "the driver hangs"
    assert reasons[MetricId.MEMORY_AVAILABLE] == "no /proc"


def test_a_view_answers_for_a_time() -> None:
    view = SeriesView(MetricId.RUNNING, (10.0, 11.0, 12.0), (1.0, float("nan"), 3.0))
    assert (view.at(10.4), view.at(11.1), view.at(12.9), view.at(40.0)) == (1.0, None, 3.0, None)
    assert view.last == 3.0
    assert SeriesView(MetricId.RUNNING).last is None


# --- a beginning of our own ---------------------------------------------------------------------------


def test_figures_begin_with_the_next_reading_until_the_counters_begin_again() -> None:
    window = MetricWindow()
    window.add(tokens(0, 3))
    window.clear(rebase=True)
    window.add(tokens(10, 5))
    window.add(tokens(20, 105))
    assert value_of(rate(window)) == pytest.approx(10.0)
    assert _since_beginning(window) == pytest.approx(100 / 10)
    window.add(tokens(100, 205))  # a gap starts the window over, not the beginning
    assert _since_beginning(window) == pytest.approx(200 / 90)
    window.add(tokens(110, 7))  # started again: nobody says when
    assert _since_beginning(window) is None


def _since_beginning(window: MetricWindow) -> float | None:
    lifetime = window.lifetime()
    return None if lifetime is None else value_of(lifetime.decode_rate)
