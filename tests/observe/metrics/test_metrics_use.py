"""The collector: engines come, go, die and start again; what is kept of them, and what it costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerFacts, ContainerStatus
from spark_tui.base.engine.metrics_page import MetricPage
from spark_tui.base.engine.state import Endpoint, EngineState, Exposure, Health, ServedModel
from spark_tui.base.errors import EngineUnreachable
from spark_tui.base.finding import Missing, Ok, Stale, value_of
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.host.series import MetricId, Sample
from spark_tui.base.host.vitals import GpuReading
from spark_tui.base.jobs import JobView, Step, StepState
from spark_tui.base.quantities import GIB
from spark_tui.base.store import Store
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.use.metrics import CAPACITY, SLOW_SECONDS, EngineMetricsCollector, SeriesRing
from tests import metric_fixtures as pages
from tests.fakes_host import FakeClock
from tests.fakes_metrics import FakeMetrics
from tests.kit import running

DEAD = EngineUnreachable("Nothing answers at http://127.0.0.1:8000.", "Is the engine running?")


class Bench:
    """A collector on a clock that is moved by hand, a scripted source, and engines as the supervisor publishes them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.source = FakeMetrics(self.clock)
        self.store = Store(self.clock)
        self.collector = EngineMetricsCollector(
            self.source, self.store, self.clock, lambda name: Endpoint(f"http://127.0.0.1:8000/{name}")
        )
        self.samples: list[Sample] = []
        self.collector.subscribe(self.samples.append)

    def engines(self, *views: EngineView) -> None:
        self.store.put(ENGINES, Ok(views, self.clock.now()))

    def gpu(self, watts: float | None) -> None:
        reading = GpuReading("NVIDIA GB10", 96, watts, 62, 2411)
        self.store.update(
            gpu=Ok(reading, self.clock.now()), memory=Ok(MemInfo(total=121 * GIB, free=20 * GIB, available=30 * GIB))
        )

    @asynccontextmanager
    async def collecting(self) -> AsyncIterator[None]:
        async with running(self.collector.run()):
            yield

    def values(
        self, metric: MetricId = MetricId.DECODE_RATE, engine: str = "qwen", seconds: float = 600
    ) -> list[float]:
        return list(self.collector.series(engine, metric, seconds).values)


def view(
    name: str = "qwen",
    state: EngineState = EngineState.SERVING,
    *,
    started_at: float = 50.0,
    exit_code: int | None = None,
) -> EngineView:
    ended = state in (EngineState.STOPPED, EngineState.FAILED)
    container = ContainerFacts(
        id=f"{name}-id", name=name, image="vllm/vllm-openai", image_id="sha256:1",
        status=ContainerStatus.EXITED if ended else ContainerStatus.RUNNING,
        started_at=started_at, exit_code=exit_code,
    )  # fmt: skip
    return EngineView(container, state, "vllm", Exposure.LOCAL, 8000, Health.OK, (ServedModel("m"),))


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- following engines --------------------------------------------------------------------------------


async def test_an_engine_is_asked_once_it_serves_and_no_more_when_it_has_ended(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view(state=EngineState.STARTING))
        await bench.clock.advance(20)
        assert bench.source.asked == []
        bench.engines(view())
        await bench.clock.advance(20)
        assert len(bench.source.asked) >= 4
        bench.engines(view(state=EngineState.FAILED, exit_code=137))
        await bench.clock.advance(1)
        asked = len(bench.source.asked)
        await bench.clock.advance(60)
        assert len(bench.source.asked) == asked
    series = bench.collector.series("qwen", MetricId.DECODE_RATE, 600)
    assert series.last is None
    assert series.reason == "the engine has ended with exit code 137"
    assert series.gaps[-1].reason == series.reason
    assert series.gaps[-1].end == bench.clock.now()
    assert isinstance(bench.collector.current("qwen"), Stale)


async def test_once_a_second_while_somebody_looks_and_seldom_otherwise(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(60)
        assert 11 <= len(bench.source.asked) <= 14
        with bench.collector.attend(), bench.collector.attend():
            asked = len(bench.source.asked)
            await bench.clock.advance(20)
            assert 19 <= len(bench.source.asked) - asked <= 22
        asked = len(bench.source.asked)
        await bench.clock.advance(60)
        assert 11 <= len(bench.source.asked) - asked <= 14


async def test_somebody_who_looks_waits_for_nothing(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(7)
        asked = len(bench.source.asked)
        look = bench.collector.attend()
        await bench.clock.advance(0)
        assert len(bench.source.asked) == asked + 1
        look.close()
        look.close()
        await bench.clock.advance(SLOW_SECONDS * 4)
        assert len(bench.source.asked) - asked <= 6


async def test_speed_becomes_a_series(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        with bench.collector.attend():
            await bench.clock.advance(30)
    series = bench.collector.series("qwen", MetricId.DECODE_RATE, 600)
    assert series.last == pytest.approx(40.0)
    assert isnan(series.values[0])  # one look gives no rate
    assert all(value == pytest.approx(40.0) for value in series.values[1:])
    assert list(series.times) == sorted(set(series.times))
    assert (series.gaps, series.restarts, series.reason) == ((), (), "")
    short = bench.collector.series("qwen", MetricId.DECODE_RATE, 5)
    assert len(short.times) in (5, 6)


def test_an_engine_that_is_not_known_has_an_empty_series_with_its_reason(bench: Bench) -> None:
    series = bench.collector.series("nobody", MetricId.DECODE_RATE, 60)
    assert (len(series.times), series.last, series.reason) == (0, None, "not serving")
    assert bench.collector.current("nobody") == Missing("not serving")


# --- gaps and restarts --------------------------------------------------------------------------------


async def test_a_failed_look_is_a_gap_with_its_reason_and_never_a_zero(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        with bench.collector.attend():
            await bench.clock.advance(10)
            bench.source.error = DEAD
            await bench.clock.advance(10)
            failed_at = bench.clock.now()
            dead = bench.collector.series("qwen", MetricId.RUNNING, 600)
            assert bench.collector.of("qwen").error is DEAD
            assert isinstance(bench.collector.current("qwen"), Stale)
            bench.source.error = None
            await bench.clock.advance(20)
    assert dead.last is None
    assert dead.reason == DEAD.summary
    assert dead.gaps[-1].end == failed_at
    series = bench.collector.series("qwen", MetricId.RUNNING, 600)
    assert 0.0 not in list(series.values)
    (gap,) = series.gaps
    assert gap.reason == DEAD.summary
    inside = [value for time, value in zip(series.times, series.values, strict=True) if gap.begin <= time < gap.end]
    assert inside
    assert all(isnan(value) for value in inside)
    assert series.last == 1.0
    assert series.restarts == ()


async def test_a_counter_that_falls_is_a_restart(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        with bench.collector.attend():
            await bench.clock.advance(10)
            bench.source.began = bench.clock.monotonic() + 20  # the counters begin again, lower
            await bench.clock.advance(10)
    series = bench.collector.series("qwen", MetricId.DECODE_RATE, 600)
    assert len(series.restarts) == 1
    assert min(value for value in series.values if not isnan(value)) >= 0
    assert [sample.restarted for sample in bench.samples].count(True) == 1


async def test_a_new_start_of_the_container_is_a_restart_whatever_the_counters_say(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        with bench.collector.attend():
            await bench.clock.advance(10)
            bench.engines(view(state=EngineState.STOPPED, exit_code=0))
            await bench.clock.advance(5)
            bench.source.speed = 4000.0  # so that no counter is lower than before
            bench.engines(view(started_at=99.0))
            await bench.clock.advance(0.6)
            first = bench.collector.series("qwen", MetricId.DECODE_RATE, 600)
            await bench.clock.advance(5)
    assert len(first.restarts) == 1
    assert first.last is None  # no rate from one start to the next
    assert bench.collector.series("qwen", MetricId.DECODE_RATE, 600).last == pytest.approx(4000.0)
    assert [gap.reason for gap in first.gaps] == ["the engine has ended with exit code 0"]


async def test_an_engine_that_answers_again_is_asked_at_once(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        bench.source.error = DEAD
        bench.engines(view(state=EngineState.NOT_ANSWERING))
        await bench.clock.advance(120)
        bench.source.error = None
        asked = len(bench.source.asked)
        bench.engines(view())
        await bench.clock.advance(1)
        assert len(bench.source.asked) > asked


async def test_a_removed_container_is_remembered_for_its_graphs(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(10)
        bench.engines()
        await bench.clock.advance(1)
    assert bench.collector.series("qwen", MetricId.RUNNING, 600).reason == "the container was removed"
    assert 1.0 in bench.values(MetricId.RUNNING)


async def test_a_docker_that_fails_stops_nothing(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(6)
        bench.store.put(ENGINES, Stale((view(),), 0.0, "Docker is away"))
        asked = len(bench.source.asked)
        await bench.clock.advance(30)
        assert len(bench.source.asked) > asked + 3


# --- the box ------------------------------------------------------------------------------------------


async def test_gpu_and_memory_are_there_without_any_engine(bench: Bench) -> None:
    bench.gpu(47.0)
    async with bench.collecting():
        await bench.clock.advance(11)
    assert bench.values(MetricId.GPU_POWER, engine="whoever") == [47.0, 47.0, 47.0]
    assert bench.values(MetricId.MEMORY_AVAILABLE) == [30.0, 30.0, 30.0]
    assert {sample.engine for sample in bench.samples} == {""}


async def test_what_the_driver_does_not_report_is_absent_with_its_reason(bench: Bench) -> None:
    bench.gpu(None)
    async with bench.collecting():
        await bench.clock.advance(6)
    series = bench.collector.series("", MetricId.GPU_POWER, 600)
    assert (series.last, series.reason) == (None, "not reported by the driver")


async def test_energy_per_token_from_the_gpus_power(bench: Bench) -> None:
    bench.gpu(48.0)
    async with bench.collecting():
        bench.engines(view())
        with bench.collector.attend():
            await bench.clock.advance(30)
    assert bench.values(MetricId.ENERGY)[-1] == pytest.approx(48 / 40, rel=0.05)


async def test_whose_power_it_is_cannot_be_told_while_two_engines_work(bench: Bench) -> None:
    bench.gpu(48.0)
    async with bench.collecting():
        bench.engines(view("one"), view("two"))
        with bench.collector.attend():
            await bench.clock.advance(30)
    series = bench.collector.series("one", MetricId.ENERGY, 60)
    assert series.last is None
    assert "another engine is busy" in series.reason


# --- what else is told --------------------------------------------------------------------------------


async def test_samples_reach_whoever_wants_them_until_they_do_not(bench: Bench) -> None:
    heard: list[Sample] = []
    stop = bench.collector.subscribe(heard.append)
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(11)
        stop()
        stop()
        count = len(heard)
        await bench.clock.advance(20)
    assert len(heard) == count
    qwen = [sample for sample in heard if sample.engine == "qwen"]
    assert qwen[-1].values[MetricId.DECODE_RATE] == pytest.approx(40.0)
    assert MetricId.TTFT_P50 not in qwen[-1].values


async def test_the_wedge_detector_gets_counters_only_while_the_engine_answers(bench: Bench) -> None:
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(6)
        sample = bench.collector.of("qwen").token_sample()
        assert sample is not None
        assert (sample.running, sample.generated >= 1000) == (1.0, True)
        bench.source.error = DEAD
        await bench.clock.advance(10)
        assert bench.collector.of("qwen").token_sample() is None


async def test_data_parallel_engines_are_told_apart(bench: Bench) -> None:
    def page(_: Endpoint) -> MetricPage:
        return pages.page("tiny-data-parallel-2")

    bench.source.page = page
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(2)
    parts = bench.collector.of("qwen").parts()
    assert list(parts) == ["0", "1"]
    assert value_of(parts["0"].prompt_tokens) == 132
    whole = value_of(bench.collector.lifetime("qwen"))
    assert whole is not None
    assert value_of(whole.prompt_tokens) == 264


async def test_engines_of_long_ago_are_forgotten(bench: Bench) -> None:
    async with bench.collecting():
        for number in range(30):
            bench.engines(view(f"engine-{number}"))
            await bench.clock.advance(2)
        bench.engines(view("last"))
        await bench.clock.advance(2)
    known = [name for name in (f"engine-{n}" for n in range(30)) if bench.values(MetricId.RUNNING, name)]
    assert 14 <= len(known) <= 16
    assert "engine-29" in known


# --- the rings ----------------------------------------------------------------------------------------


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.floats(0.1, 4.0), st.none() | st.integers(0, 9)), min_size=1, max_size=40),
    st.floats(0, 60),
)
def test_a_ring_shows_the_same_as_a_list_of_the_last_rows(
    capacity: int, steps: list[tuple[float, int | None]], window: float
) -> None:
    ring, rows, at = SeriesRing(capacity), list[tuple[float, int | None]](), 1000.0
    for seconds, value in steps:
        at += seconds
        ring.add(at, {} if value is None else {MetricId.RUNNING: float(value)}, gap="gone" if value is None else "")
        rows.append((at, value))
    since = at - window
    expected = [(time, value) for time, value in rows[-capacity:] if time >= since]
    shown = ring.view(MetricId.RUNNING, since, at, step=1.0)
    assert list(shown.times) == [time for time, _ in expected]
    assert [None if isnan(value) else int(value) for value in shown.values] == [value for _, value in expected]
    assert all(gap.begin <= gap.end for gap in shown.gaps)
    gone = [time for time, value in expected if value is None]
    assert all(any(gap.begin <= time <= gap.end for gap in shown.gaps) for time in gone)


@pytest.mark.parametrize("back", [0.0, 0.4, 3600.0])
def test_a_clock_that_is_set_back_leaves_times_rising(back: float) -> None:
    ring = SeriesRing()
    for second in range(5):
        ring.add(5000.0 + second, {MetricId.RUNNING: float(second)})
    ring.add(5004.0 - back, {MetricId.RUNNING: 5.0})
    ring.add(5005.0 - back, {MetricId.RUNNING: 6.0})
    shown = ring.view(MetricId.RUNNING, 0.0, 9000.0, step=1.0)
    assert list(shown.values) == [0, 1, 2, 3, 4, 5, 6]
    assert all(earlier < later for earlier, later in zip(shown.times, shown.times[1:], strict=False))
    assert shown.times[-1] == pytest.approx(5005.0 - back, abs=0.01)


def test_a_ring_holds_six_hours() -> None:
    ring = SeriesRing()
    values = dict.fromkeys((metric for metric in MetricId if not metric.of_host), 1.0)
    for second in range(CAPACITY + 100):
        ring.add(float(second), values)
    assert len(ring) == CAPACITY
    assert len(ring.view(MetricId.RUNNING, 0.0, 1e6, step=1.0).times) == CAPACITY


# --- our own warm-up ----------------------------------------------------------------------------------


WARMING = JobView("1", "qwen", (Step("warm", "Warm up", StepState.RUNNING),))


async def test_the_warm_up_request_of_a_launch_is_in_no_figure(bench: Bench) -> None:
    bench.source.page = lambda _: pages.vllm(generation_tokens_total=3 + 40 * max(0.0, bench.clock.monotonic() - 1100))
    async with bench.collecting():
        bench.engines(view())
        await bench.clock.advance(6)  # it serves, and the warm-up begins a moment later
        bench.store.update(jobs=(WARMING,))
        await bench.clock.advance(1)
        asked = len(bench.source.asked)
        await bench.clock.advance(20)
        assert len(bench.source.asked) == asked
        assert bench.collector.of("qwen").reason == "the engine is warming up"
        bench.store.update(jobs=(replace(WARMING, state=StepState.DONE),))
        await bench.clock.advance(10)
        ever = value_of(bench.collector.lifetime("qwen"))
        assert ever is not None
        assert value_of(ever.decode_rate) == 0, "the three tokens of the warm-up do not count"
        await bench.clock.advance(100)
        assert bench.values()[-1] == pytest.approx(40.0)
    series = bench.collector.series("qwen", MetricId.DECODE_RATE, 600)
    assert [gap.reason for gap in series.gaps] == ["the engine is warming up"]
