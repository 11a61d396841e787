"""The demo's history is the real one, and begins with a past."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spark_tui.base.engine.metrics_page import Snapshot
from spark_tui.base.finding import Ok
from spark_tui.base.host.series import HOST, MetricId, Sample, SeriesKey, SeriesSlice
from spark_tui.observe.metrics.model.serving import MetricWindow, engine_values
from spark_tui.simulator.history import SimulatedHistory
from spark_tui.simulator.metrics import page_at
from spark_tui.simulator.world import MOST_STREAMS, SERVING_NAME, DemoWorld
from tests.fakes_host import FakeClock


@pytest.fixture
def world() -> DemoWorld:
    return DemoWorld(FakeClock())


@pytest.fixture
async def history(tmp_path: Path, world: DemoWorld) -> AsyncIterator[SimulatedHistory]:
    history = SimulatedHistory(tmp_path, world)
    yield history
    await history.close()


async def test_a_past_is_there_and_new_starts_join_it(history: SimulatedHistory) -> None:
    reading = await history.starts()
    assert isinstance(reading, Ok)
    newest, warm, cold = reading.value
    assert newest.failed
    assert (warm.warm, cold.warm) == (True, False)
    assert warm.seconds is not None
    assert cold.seconds is not None
    assert warm.seconds < cold.seconds
    history.add_start(warm)
    await history.flush()
    assert await history.starts() == reading
    assert await history.starts(failed=True) == Ok((newest,), reading.at)
    events = await history.records("event")
    assert isinstance(events, Ok)
    assert {each.body["kind"] for each in events.value} == {"launch", "started", "ready", "stalled", "failed"}


async def last_six_hours(history: SimulatedHistory, now: float, *metrics: MetricId) -> tuple[SeriesSlice, ...]:
    keys = [SeriesKey(HOST if metric.of_host else SERVING_NAME, metric.value) for metric in metrics]
    reading = await history.series(keys, now - 6 * 3600, now, 2160)
    assert isinstance(reading, Ok)
    return reading.value


async def test_the_past_has_a_start_a_crowd_and_a_silence(world: DemoWorld, history: SimulatedHistory) -> None:
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


async def test_the_past_is_what_would_have_been_measured(world: DemoWorld, history: SimulatedHistory) -> None:
    clock = world.clock
    assert isinstance(clock, FakeClock)
    window, run = MetricWindow(), world.named(SERVING_NAME).run
    assert run is not None
    for _ in range(12):
        await clock.advance(10)
        window.add(Snapshot(clock.monotonic(), page_at(run, clock.now())))
    now = window.metrics()
    assert now is not None
    live, _ = engine_values(now)
    for metric in (MetricId.TTFT_P95, MetricId.ITL_P50, MetricId.DECODE_RATE, MetricId.FINISHED_RATE):
        [past] = await last_six_hours(history, world.began_at, metric)
        last = [value for value in past.mean if not math.isnan(value)][-5:]
        assert min(last) * 0.5 < live[metric] < max(last) * 2, metric


async def test_what_is_kept_now_follows_the_past(world: DemoWorld, history: SimulatedHistory) -> None:
    assert isinstance(world.clock, FakeClock)
    history.add_sample(Sample(SERVING_NAME, world.clock.now() + 1, {MetricId.RUNNING: 1.0}))
    await world.clock.advance(5)
    [found] = await last_six_hours(history, world.clock.now(), MetricId.RUNNING)
    assert list(found.times) == sorted(found.times)
    assert not math.isnan(found.mean[-1])
