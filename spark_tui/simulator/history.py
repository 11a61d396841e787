"""The history of a simulated Spark: the real one, in the demo's folder, with what happened before it was opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from spark_tui.base.engine.image import repository
from spark_tui.base.engine.metrics_page import Snapshot
from spark_tui.base.finding import Ok, Reading
from spark_tui.base.host.series import FINE_STEP, HOST, MetricId, Record, Sample, SeriesKey, SeriesSlice
from spark_tui.observe.explain.model.starts import StartBackends, StartRecord, StartSizes
from spark_tui.observe.explain.model.timeline import PhaseId, StartOutcome
from spark_tui.observe.metrics.adapter.db import HistoryDb, Write
from spark_tui.observe.metrics.adapter.samples import SampleWriter
from spark_tui.observe.metrics.model.serving import HostReadings, MetricWindow, engine_values, host_values
from spark_tui.simulator.machine import gpu_at, memory_at, rates_at
from spark_tui.simulator.metrics import page_at
from spark_tui.simulator.world import (
    FAILED_NAME,
    FAILED_OURS,
    SERVING_MODEL,
    SERVING_NAME,
    SERVING_PRESET,
    VERSION,
    VLLM_IMAGE,
    Counters,
    DemoWorld,
    Run,
)

T = TypeVar("T")

PAST_SECONDS: Final = 6 * 3600
"""As far back as the longest window shows."""
FINE_SECONDS: Final = 4500
COARSE_STEP: Final = 30
"""Before the last hour and a quarter, in which the crowd came, they are worked out this far apart, and kept for as long
as that: a history has a sample every ten seconds."""
_SILENCE: Final = (-760.0, -715.0)
"""Seconds from the opening of the demo."""
_SILENT: Final = "it did not answer within 6 s"
_STARTING: Final = "the engine is starting"


def past_of(world: DemoWorld) -> tuple[Sample, ...]:
    """Samples of the machine and of the engine that serves, oldest first, up to the opening of the demo."""
    fine, step = range(-FINE_SECONDS, 1, FINE_STEP), COARSE_STEP
    times = [world.began_at + into for into in (*range(-PAST_SECONDS, -FINE_SECONDS, step), *fine)]
    run = next((run for run in world.named(SERVING_NAME).runs if run.traffic), None)
    engine = () if run is None else _engine(replace(run, counters=Counters()), times, world)
    found = (*_host(world, times), *engine)
    later = range(0, COARSE_STEP, FINE_STEP)
    return tuple(
        replace(each, at=each.at + late, restarted=each.restarted and not late)
        for each in found
        for late in (later if each.at < world.began_at - FINE_SECONDS else (0,))
    )


def _host(world: DemoWorld, times: list[float]) -> Iterator[Sample]:
    for at in times:
        values, _ = host_values(HostReadings(Ok(gpu_at(world, at), at), Ok(memory_at(world, at), at)))
        rates = rates_at(world, at)
        counted = {
            MetricId.CPU_UTILIZATION: (rates["X925"] + rates["A725"]) / 2,  # there are as many of each
            MetricId.DISK_RATE: (rates["read"] + rates["written"]) / 1e6,
            MetricId.NETWORK_RATE: (rates["received"] + rates["sent"]) / 1e6,
        }
        yield Sample(HOST, at, {**values, **counted})


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


# What the recorded engine's own log says of its start (GB10, vLLM 0.20.2), and of one with a full memory.
_SIZES: Final = StartSizes(
    weights_gib=21.42,
    kv_gib=28.18,
    kv_tokens=1_258_291,
    graphs_gib=0.37,
    pool_gib=121.63,
    utilization=0.5,
    context=262144,
)
_COLD: Final = (
    (PhaseId.CONFIG, 30.0),
    (PhaseId.ENGINE_INIT, 11.0),
    (PhaseId.WEIGHTS, 198.0),
    (PhaseId.COMPILE, 117.0),
    (PhaseId.KV_CACHE, 7.0),
    (PhaseId.AUTOTUNE, 15.0),
    (PhaseId.CAPTURE, 2.0),
    (PhaseId.SERVER, 3.0),
)
_WARM: Final = tuple((phase, 9.0 if phase is PhaseId.COMPILE else seconds) for phase, seconds in _COLD)


class SimulatedHistory(HistoryDb):
    """The HistoryStore port. Earlier starts and events are written when it is first read, the samples before the demo
    was opened when a series is first asked for: they take a moment."""

    def __init__(self, folder: Path, world: DemoWorld) -> None:
        super().__init__(folder, now=world.clock.now)
        self._world = world
        self._past: dict[str, asyncio.Task[None]] = {}

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[SeriesSlice, ...]]:
        await self._once("samples", self._recall_samples)
        return await super().series(keys, since, until, buckets)

    async def _read(self, work: Callable[[Connection], T]) -> Reading[T]:
        await self._once("starts", self._recall_starts)
        return await super()._read(work)

    async def _once(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._past:
            self._past[name] = asyncio.create_task(work())
        await asyncio.shield(self._past[name])

    async def _recall_samples(self) -> None:
        self._put(Write(lambda db: SampleWriter(db).write(past_of(self._world))))
        await self.flush()

    async def _recall_starts(self) -> None:
        for start in _earlier(self._world.began_at):
            self.add_start(start)
        await asyncio.gather(*map(self.add_record, _day(self._world)))


def _earlier(now: float) -> tuple[StartRecord, ...]:
    """A cold start four days ago, a warm one the day after, and one that failed."""
    cold = StartRecord(
        "demo-1",
        now - 4.2 * 86_400,
        SERVING_NAME,
        preset=SERVING_PRESET,
        image=VLLM_IMAGE,
        image_id="sha256:the-one-before",
        model=SERVING_MODEL,
        runtime="vllm",
        version=VERSION,
        ready=True,
        outcome=StartOutcome.STOPPED,
        warm=False,
        seconds=sum(seconds for _, seconds in _COLD),
        phases=_COLD,
        sizes=_SIZES,
        exit_code=0,
        ended_at=now - 3.3 * 86_400,
        image_digest=f"{repository(VLLM_IMAGE)}@sha256:{'5e' * 32}",
        backends=StartBackends(
            ("FLASHINFER",),
            (("NVFP4", "moe", "FLASHINFER_CUTLASS"),),
            "FULL_AND_PIECEWISE",
            (("CUDA", "13.0.2"), ("NCCL", "2.28.9")),
        ),
        kernel="6.14.0-1015-nvidia",
        driver="580.95.05",
    )
    warm = replace(
        cold,
        container="demo-2",
        at=now - 3.2 * 86_400,
        warm=True,
        phases=_WARM,
        seconds=sum(seconds for _, seconds in _WARM),
        ended_at=now - 2.9 * 86_400,
    )
    failed = replace(
        cold,
        container="demo-3",
        at=now - 2.1 * 86_400,
        engine=FAILED_NAME,
        preset="",
        ready=False,
        warm=None,
        outcome=StartOutcome.FAILED,
        seconds=None,
        phases=_COLD[:2],
        sizes=StartSizes(utilization=0.91),
        failed_in=PhaseId.ENGINE_INIT,
        cause="free_memory_below_utilization",
        failure="vLLM wants 110.7 GiB (0.91 of 121.6), and 109.5 GiB were free.",
        exit_code=1,
        ended_at=now - 2.1 * 86_400 + 44,
    )
    return cold, warm, failed


def _day(world: DemoWorld) -> tuple[Record, ...]:
    """The events of the day so far, as the feed kept them."""
    serving, failed = world.named(SERVING_NAME), world.named(FAILED_OURS)
    ready = serving.runs[-1].ready_at
    return tuple(
        Record("event", text, at, {"severity": severity, "kind": kind, "subject": subject})
        for at, text, severity, kind, subject in (
            (serving.created_at, f"{SERVING_NAME}: launch requested", "info", "launch", SERVING_NAME),
            (serving.created_at + 1, f"{SERVING_NAME}: started", "info", "started", SERVING_NAME),
            (ready, f"{SERVING_NAME}: ready after 6m49s", "info", "ready", SERVING_NAME),
            (world.began_at + _SILENCE[0], f"{SERVING_NAME}: no answer within 6 s", "warning", "stalled", SERVING_NAME),
            (failed.created_at, f"{FAILED_OURS}: launch requested", "info", "launch", FAILED_OURS),
            (
                failed.created_at + 44,
                f"{FAILED_OURS}: failed (exit 1): memory share too large",
                "error",
                "failed",
                FAILED_OURS,
            ),
        )
    )
