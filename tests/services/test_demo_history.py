"""The demo's history behaves as the real one does, and begins with a past."""

from __future__ import annotations

import math

from spark_tui.domain.engine.metric_series import MetricId, Sample
from spark_tui.domain.history import Record, SeriesKey
from spark_tui.domain.reading import Ok
from spark_tui.services.demo.history import DemoHistory
from spark_tui.services.ports_history import HistoryLedger
from tests.fakes_host import EPOCH, FakeClock


async def test_a_past_is_there_and_new_starts_join_it() -> None:
    history: HistoryLedger = DemoHistory(FakeClock())
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
    assert {gap.reason for gap in found.gaps} == {"refused"}
    assert await history.keys() == Ok((key,))


async def test_records_are_kept_for_as_long_as_the_demo_runs() -> None:
    history = DemoHistory(FakeClock())
    await history.add_record(Record("bench", "a", 2.0, {"x": 1}))
    await history.add_record(Record("bench", "b", 3.0, None))
    assert await history.records("bench", key="a") == Ok((Record("bench", "a", 2.0, {"x": 1}),))
    assert [r.key for r in (await history.records("bench", since=2.5)).value] == ["b"]  # type: ignore[union-attr]
