"""The hours before the demo was opened, as a history would have kept them: a start, use, a crowd, a silence.

The figures are read from the simulated server's own counters by the code that reads a real one's: where the past ends
and the demo begins, no curve jumps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from spark_tui.domain.engine.metric_change import Snapshot
from spark_tui.domain.engine.metric_series import Sample
from spark_tui.domain.engine.metric_values import HostLook, engine_values, host_values
from spark_tui.domain.engine.metric_window import MetricWindow
from spark_tui.domain.history import BOX
from spark_tui.domain.reading import Ok
from spark_tui.services.demo.chronicle import STATS_SECONDS
from spark_tui.services.demo.host import gpu_at, memory_at
from spark_tui.services.demo.metrics import page_at
from spark_tui.services.demo.run import Run
from spark_tui.services.demo.tally import Tally
from spark_tui.services.demo.world import SERVING_NAME, DemoWorld

PAST_SECONDS: Final = 6 * 3600
"""As far back as the longest window shows."""
FINE_SECONDS: Final = 4500
COARSE_STEP: Final = 30
"""Before the last hour and a quarter, in which the crowd came, a sample in so many seconds is enough."""
_SILENCE: Final = (-760.0, -715.0)
"""Seconds from the opening of the demo."""
_SILENT: Final = "it did not answer within 6 s"
_STARTING: Final = "the engine is starting"


def past_of(world: DemoWorld) -> tuple[Sample, ...]:
    """Samples of the box and of the engine that serves, oldest first, up to the opening of the demo."""
    fine, step = range(-FINE_SECONDS, 0, int(STATS_SECONDS)), COARSE_STEP
    times = [world.began_at + into for into in (*range(-PAST_SECONDS, -FINE_SECONDS, step), *fine)]
    run = next((run for run in world.find(SERVING_NAME).runs if run.traffic), None)
    engine = () if run is None else _engine(replace(run, tally=Tally()), times, world)
    return (*_box(world, times), *engine)


def _box(world: DemoWorld, times: list[float]) -> Iterator[Sample]:
    for at in times:
        values, _ = host_values(HostLook(Ok(gpu_at(world, at), at), Ok(memory_at(world, at), at)))
        yield Sample(BOX, at, values)


def _engine(run: Run, times: list[float], world: DemoWorld) -> Iterator[Sample]:
    window, joules, last, fresh = MetricWindow(), 0.0, run.ready_at, True
    for at in times:
        into = at - world.began_at
        if at < run.started_at:
            continue
        if at < run.ready_at or _SILENCE[0] <= into < _SILENCE[1]:
            yield Sample(SERVING_NAME, at, gap=_STARTING if at < run.ready_at else _SILENT)
            continue
        joules += (gpu_at(world, at).power_watts or 0.0) * (at - last)
        last = at
        window.add(Snapshot(at, page_at(run, at), joules, at - run.ready_at))
        metrics = window.metrics()
        if metrics is not None:
            yield Sample(SERVING_NAME, at, engine_values(metrics)[0], restarted=fresh)
            fresh = False
