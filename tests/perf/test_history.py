"""The history after a day of everything: its size, what a window costs to read, what writing costs."""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median

import pytest

from spark_tui.base.finding import Ok
from spark_tui.base.host.series import HOST, MetricId, Sample, SeriesKey
from spark_tui.observe.metrics.adapter.db import HistoryDb

T0 = 1_800_000_000
DAY, HOUR = 86_400, 3600
ENGINES = ("qwen", "gemma")
OF_ENGINE = [metric for metric in MetricId if not metric.of_host]
OF_BOX = [metric for metric in MetricId if metric.of_host]


@pytest.mark.timeout(600)
async def test_a_day_of_two_engines_is_small_and_six_hours_of_it_are_read_at_once(tmp_path: Path) -> None:
    """Every metric of two engines and of the box, each second, two thirds of the time busy with noise."""
    now, noise = [float(T0)], random.Random(1)
    history = HistoryDb(tmp_path / "h", now=lambda: now[0], flush_seconds=1e9)
    flushes = []
    for begin in range(T0, T0 + DAY, 10):
        for at in range(begin, begin + 10):
            busy = (at // 600) % 3 != 0
            for engine in ENGINES:
                values = {metric: noise.random() * 100 if busy else 0.0 for metric in OF_ENGINE}
                history.add_sample(Sample(engine, at + 0.2, values))
            history.add_sample(Sample(HOST, at + 0.5, {metric: 60 + noise.random() for metric in OF_BOX}))
        now[0] = begin + 10.0
        started = time.perf_counter()
        await history.flush()
        flushes.append(time.perf_counter() - started)
    flushes.sort()
    series = len(OF_ENGINE) * 2 + len(OF_BOX)
    print(f"\n{series} series for 24 h; ten seconds of them are written in {median(flushes) * 1000:.1f} ms ", end="")
    print(f"(99 of 100 within {flushes[len(flushes) * 99 // 100] * 1000:.1f} ms, at most {flushes[-1] * 1000:.0f} ms)")
    end, took = T0 + DAY, {}
    for hours, count in ((6, 1), (6, 8), (1, 8), (24, 1)):
        keys = [SeriesKey("qwen", metric) for metric in OF_ENGINE[:count]]
        times = []
        for _ in range(7):
            started = time.perf_counter()
            reading = await history.series(keys, end - hours * HOUR, end, 400)
            times.append(time.perf_counter() - started)
            assert isinstance(reading, Ok)
            assert sum(value == value for value in reading.value[0].mean) > 300
        took[hours, count] = median(times)
        print(f"{hours:>2} h of {count} series: {median(times) * 1000:.1f} ms, {reading.value[0].step:g} s buckets")
    await history.close()
    size = sum(path.stat().st_size for path in (tmp_path / "h").iterdir())
    print(f"on disk: {size / 1e6:.1f} MB")
    assert size < 50e6
    assert took[6, 1] < 0.1
