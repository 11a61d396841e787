"""The demo's history behaves as the real one does, and begins with a past."""

from __future__ import annotations

import math

from spark_tui.domain.engine.state import Endpoint
from spark_tui.domain.history import Record
from spark_tui.domain.metrics.page import Snapshot
from spark_tui.domain.metrics.series import HOST, Gap, MetricId, Sample, SeriesKey, SeriesSlice
from spark_tui.domain.metrics.serving import MetricWindow, engine_values
from spark_tui.domain.reading import Ok
from spark_tui.services.demo.metrics import DemoHistory, DemoMetrics
from spark_tui.services.demo.world import MOST_STREAMS, SERVING_NAME, SERVING_PORT, DemoWorld
from spark_tui.services.ports import HistoryStore
from tests.fakes_host import EPOCH, FakeClock


async def test_a_past_is_there_and_new_starts_join_it() -> None:
    history: HistoryStore = DemoHistory(FakeClock())
    reading = await history.starts()
    assert isinstance(reading, Ok)
    newest, warm, cold = reading.value
    assert newest.failed
    assert (warm.warm, cold.warm) == (True, False)
    assert warm.seconds is not None
    assert cold.seconds is not None
    assert warm.seconds < cold.seconds
    history.add_start(warm)
    assert await history.starts() == reading
    assert await history.starts(failed=True) == Ok((newest,))


async def test_samples_come_back_and_failures_are_gaps() -> None:
    history = DemoHistory(FakeClock())
    for second in range(0, 60, 5):
        gap = "refused" if 20 <= second < 40 else ""
        values = {} if gap else {MetricId.RUNNING: float(second)}
        history.add_sample(Sample("one", EPOCH + second, values, gap))
    key = SeriesKey("one", MetricId.RUNNING.value)
    reading = await history.series([key], EPOCH, EPOCH + 60, 60)
    assert isinstance(reading, Ok)
    [found] = reading.value
    empty = [at - EPOCH for at, value in zip(found.times, found.mean, strict=True) if math.isnan(value)]
    assert empty == [float(second) for second in (*range(16, 40), *range(56, 60))]
    assert found.gaps == (Gap(EPOCH + 20, EPOCH + 40, "refused"),)


async def test_records_are_kept_for_as_long_as_the_demo_runs() -> None:
    history = DemoHistory(FakeClock())
    await history.add_record(Record("bench", "a", 2.0, {"x": 1}))
    await history.add_record(Record("bench", "b", 3.0, None))
    assert await history.records("bench", key="a") == Ok((Record("bench", "a", 2.0, {"x": 1}),))
    assert [r.key for r in (await history.records("bench", since=2.5)).value] == ["b"]  # type: ignore[union-attr]


async def last_six_hours(history: DemoHistory, now: float, *metrics: MetricId) -> tuple[SeriesSlice, ...]:
    keys = [SeriesKey(HOST if metric.of_host else SERVING_NAME, metric.value) for metric in metrics]
    reading = await history.series(keys, now - 6 * 3600, now, 2160)
    assert isinstance(reading, Ok)
    return reading.value


async def test_the_past_has_a_start_a_crowd_and_a_silence() -> None:
    world = DemoWorld(FakeClock())
    history = DemoHistory(world.clock, world)
    running, ttft, power = await last_six_hours(
        history, world.clock.now(), MetricId.RUNNING, MetricId.TTFT_P95, MetricId.GPU_POWER
    )
    known = [value for value in running.mean if not math.isnan(value)]
    assert max(known) == MOST_STREAMS
    assert known[0] == known[-1] == 1
    assert max(value for value in ttft.mean if not math.isnan(value)) > 2
    starting, silent = running.gaps
    assert (starting.reason, silent.reason) == ("the engine is starting", "it did not answer within 6 s")
    assert 40 <= silent.end - silent.begin <= 60
    assert len(running.restarts) == 1
    idle, busy = power.mean[10], power.mean[-10]
    assert idle < 10 < busy


async def test_the_past_is_what_would_have_been_measured() -> None:
    world = DemoWorld(FakeClock())
    history, clock = DemoHistory(world.clock, world), world.clock
    assert isinstance(clock, FakeClock)
    window = MetricWindow()
    for _ in range(12):
        await clock.advance(10)
        page = await DemoMetrics(world).read(Endpoint(f"http://127.0.0.1:{SERVING_PORT}"))
        window.add(Snapshot(clock.monotonic(), page))
    now = window.metrics()
    assert now is not None
    live, _ = engine_values(now)
    for metric in (MetricId.TTFT_P95, MetricId.ITL_P50, MetricId.DECODE_RATE, MetricId.FINISHED_RATE):
        [past] = await last_six_hours(history, world.began_at, metric)
        last = [value for value in past.mean if not math.isnan(value)][-5:]
        assert min(last) * 0.5 < live[metric] < max(last) * 2, metric


async def test_what_is_kept_now_follows_the_past() -> None:
    world = DemoWorld(FakeClock())
    history = DemoHistory(world.clock, world)
    assert isinstance(world.clock, FakeClock)
    history.add_sample(Sample(SERVING_NAME, world.clock.now() + 1, {MetricId.RUNNING: 1.0}))
    await world.clock.advance(5)
    [found] = await last_six_hours(history, world.clock.now(), MetricId.RUNNING)
    assert list(found.times) == sorted(found.times)
    assert not math.isnan(found.mean[-1])
