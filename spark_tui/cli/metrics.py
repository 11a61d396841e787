"""metrics: what an engine's own counters say, once or second by second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from spark_tui.cli import shapes
from spark_tui.cli.engines import find_container
from spark_tui.cli.output import Cell, Column, Table, labelled
from spark_tui.cli.session import Session
from spark_tui.cli.shapes import Object
from spark_tui.core.context import Context
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import EngineUnreachable
from spark_tui.domain.host.vitals import GpuReading
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.metrics.quantiles import Latency, Quantile
from spark_tui.domain.metrics.series import MetricId, Sample
from spark_tui.domain.metrics.serving import Drafting, EngineMetrics
from spark_tui.domain.quantities import human_count, human_duration
from spark_tui.domain.reading import Missing, Ok, Reading, reason_of, value_of

_DIGITS: Final = 4


def _number(value: float) -> float:
    return round(value, _DIGITS)


def _percent(share: Reading[float]) -> Reading[float]:
    return share if isinstance(share, Missing) else Ok(share.value * 100)


def engine_object(metrics: EngineMetrics) -> Object:
    """Measured metrics over a window. A quantile has the bounds of its bucket: the true value is between them."""
    return {
        **shapes.maybe("window_seconds", _rounded(metrics.seconds), "the server does not tell when it began"),
        **shapes.maybe("rate_seconds", _rounded(metrics.rate_seconds), "the server does not tell when it began"),
        **shapes.read("decode_tokens_per_second", metrics.decode_rate, _number),
        **shapes.read("prefill_tokens_per_second", metrics.prefill_rate, _number),
        **shapes.read("running_requests", metrics.running, int),
        **shapes.read("waiting_requests", metrics.waiting, int),
        "waiting_by_reason": {reason: int(count) for reason, count in metrics.waiting_by_reason},
        **shapes.read("finished_requests", metrics.finished_count, int),
        **shapes.read("failed_requests", metrics.failed_count, int),
        "finished_by_reason": {reason: int(count) for reason, count in metrics.finished},
        **shapes.read("ttft", metrics.ttft, _metric_shapes_latency),
        **shapes.read("itl", metrics.itl, _metric_shapes_latency),
        **shapes.read("e2e", metrics.e2e, _metric_shapes_latency),
        **shapes.read("queue", metrics.queue, _metric_shapes_latency),
        **shapes.read("kv_usage_percent", _percent(metrics.kv_usage), _number),
        **shapes.read("kv_capacity_tokens", metrics.kv_capacity_tokens, int),
        **shapes.read("prefix_hit_percent", _percent(metrics.prefix_hits), _number),
        **shapes.read("preemptions", metrics.preemptions, int),
        **shapes.read("speculation", metrics.drafting, _drafting),
        **shapes.read("energy_joules_per_token", metrics.energy, _number),
        **shapes.read("prompt_tokens_since_start", metrics.prompt_tokens, int),
        **shapes.read("generated_tokens_since_start", metrics.generated_tokens, int),
        "notes": list(metrics.notes),
    }


def _metric_shapes_latency(latency: Latency) -> Object:
    found: Object = {"count": latency.count}
    for name in ("p50", "p95", "p99"):
        found |= _metric_shapes_quantile(name, getattr(latency, name))
    return found | shapes.maybe("mean_seconds", _rounded(latency.mean), "the server keeps no sum")


def _metric_shapes_quantile(name: str, quantile: Quantile) -> Object:
    high = None if quantile.high == float("inf") else quantile.high
    return {
        f"{name}_seconds": round(quantile.value, 6),
        f"{name}_low_seconds": quantile.low,
        **shapes.maybe(f"{name}_high_seconds", high, "it is in the last bucket, which has no end"),
    }


def _drafting(drafting: Drafting) -> Object:
    silent = "the server does not tell"
    share = None if drafting.acceptance is None else _number(drafting.acceptance * 100)
    return {
        **shapes.maybe("acceptance_percent", share, silent),
        **shapes.maybe("accepted_length_tokens", _rounded(drafting.length), silent),
        "acceptance_by_position_percent": [_number(each * 100) for each in drafting.positions],
        **shapes.maybe("drafted_tokens", None if drafting.drafted is None else int(drafting.drafted), silent),
    }


def sample_object(sample: Sample, values: Mapping[MetricId, float]) -> Object:
    """One line of `--watch`: the series that have a value now."""
    return {
        "id": sample.engine,
        "at": shapes.moment(sample.at),
        "restarted": sample.restarted,
        **{metric.value: _number(value) for metric, value in values.items()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


HEADING_LINES: Final = 20
"""So often the heading is repeated under `--watch`."""
LATENCIES: Final = (("ttft", "TTFT"), ("itl", "inter-token"), ("e2e", "end to end"), ("queue", "queue"))


@dataclass(frozen=True, slots=True)
class _Found:
    """Everything that one look gave."""

    view: EngineView
    now: EngineMetrics
    ever: EngineMetrics | None
    parts: dict[str, EngineMetrics]
    gpu: Reading[GpuReading]
    at: float


def metrics(session: Session, name: str, seconds: float) -> None:
    """One look of `seconds`: speeds over that time, latencies over it and since the engine's start."""

    async def work(context: Context) -> _Found:
        view = await _serving(context, name)
        session.err.say(f"Looking for {seconds:g} s ...", "dim")
        first: float | None = None
        async with _samples(context, view.name) as samples:
            async for sample in samples:
                first = sample.at if first is None else first
                if sample.at - first >= seconds:
                    break
        return _found(context, view)

    found = session.run(work)
    if session.as_json:
        parts = {rank: engine_object(part) for rank, part in found.parts.items()}
        session.out.json(
            {
                "id": found.view.name,
                "at": shapes.moment(found.at),
                **engine_object(found.now),
                "since_start": engine_object(found.ever) if found.ever else None,
                "engines": parts,
                **shapes.read("gpu", found.gpu, shapes.gpu),
            }
        )
        return
    session.out.lines(labelled(_pairs(found), session.out.terminal.width))
    session.out.line()
    session.out.table(_latency_table(found))
    for note in found.now.notes:
        session.err.say(note, "dim")


def _found(context: Context, view: EngineView) -> _Found:
    collector = context.metrics
    now = value_of(collector.current(view.name))
    if now is None:
        raise EngineUnreachable(f"{view.name} told nothing.", "Look at its log: spark-tui logs " + view.name)
    ever, parts = value_of(collector.lifetime(view.name)), collector.parts(view.name)
    return _Found(view, now, ever, parts, context.store.world.gpu, context.clock.now())


async def _serving(context: Context, name: str) -> EngineView:
    """The engine of that name or id, which must serve. Raises ContainerNotFound or EngineUnreachable."""
    container = await find_container(context, name)
    views = await context.supervisor.look()
    view = next((view for view in views if view.container.id == container.id), None)
    if view is None or view.state is not EngineState.SERVING:
        state = "gone" if view is None else view.state.value.lower()
        raise EngineUnreachable(
            f"{container.name} does not serve ({state}): only an engine that serves has metrics.",
            f"See what it does: spark-tui logs {container.name}",
        )
    return view


@asynccontextmanager
async def _samples(context: Context, name: str) -> AsyncIterator[AsyncIterator[Sample]]:
    """The engine's samples as they come, while the box and its engines are watched. A look that fails raises its
    error in the consumer; a fault of the watch does too."""
    queue: asyncio.Queue[Sample] = asyncio.Queue()
    collector = context.metrics
    end = collector.subscribe(lambda sample: queue.put_nowait(sample) if sample.engine == name else None)
    works = (context.collectors.run(), context.supervisor.run(), collector.run())
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(work) for work in works]

    async def samples() -> AsyncGenerator[Sample, None]:
        while True:
            sample = await _first_of(queue.get(), tasks)
            if sample.gap:
                raise collector.error(name) or EngineUnreachable(
                    f"{name}: {sample.gap}.", f"See why: spark-tui logs {name}"
                )
            yield sample

    try:
        with collector.attend():
            async with aclosing(samples()) as stream:
                yield stream
    finally:
        end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_of(wanted: Coroutine[Any, Any, Sample], tasks: list[asyncio.Task[Any]]) -> Sample:
    """What `wanted` brings; raises the fault of a task that ends before."""
    waiting = asyncio.ensure_future(wanted)
    try:
        await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            for task in tasks:
                if task.done():
                    task.result()
        return await waiting
    finally:
        waiting.cancel()


# --- one look -----------------------------------------------------------------------------------------


def _pairs(found: _Found) -> tuple[tuple[str, str], ...]:
    now, ever = found.now, found.ever
    return (
        ("engine", "  ".join(filter(None, (found.view.name, found.view.model, found.view.version)))),
        ("decode", _speed(now.decode_rate, ever.decode_rate if ever else None, 1)),
        ("prefill", _speed(now.prefill_rate, ever.prefill_rate if ever else None, 0)),
        ("requests", _requests(now, ever)),
        ("KV cache", _kv(now)),
        ("prefix hits", _told(now.prefix_hits, "{:.1%}")),
        ("preemptions", _told(now.preemptions_ever, "{:,.0f} since the start")),
        ("speculation", _speculation(now, ever)),
        ("GPU", _gpu(found)),
    )


def _told(reading: Reading[Any], shape: str) -> str:
    value = value_of(reading)
    return f"n/a: {reason_of(reading)}" if value is None else shape.format(value)


def _speed(now: Reading[float], ever: Reading[float] | None, decimals: int) -> str:
    mean = value_of(ever) if ever is not None else None
    text = _told(now, f"{{:,.{decimals}f}} tok/s")
    return text if mean is None else f"{text} (mean since the start {mean:,.{decimals}f})"


def _requests(now: EngineMetrics, ever: EngineMetrics | None) -> str:
    waits = [f"{count:.0f} {reason}" for reason, count in now.waiting_by_reason if count]
    text = f"{_told(now.running, '{:.0f}')} running, {_told(now.waiting, '{:.0f}')} waiting"
    text += f" ({', '.join(waits)})" if waits else ""
    total = value_of(ever.finished_count) if ever else None
    if total is None or ever is None:
        return text
    reasons = [f"{count:,.0f} {reason}" for reason, count in ever.finished if count]
    return f"{text}; {total:,.0f} finished since the start" + (f" ({', '.join(reasons)})" if reasons else "")


def _kv(now: EngineMetrics) -> str:
    capacity = value_of(now.kv_capacity_tokens)
    usage = _told(now.kv_usage, "{:.1%}")
    return f"{usage} of {human_count(capacity)} tokens" if capacity else usage


def _speculation(now: EngineMetrics, ever: EngineMetrics | None) -> str:
    drafting = value_of(now.drafting)
    since = ""
    if drafting is None and ever is not None:
        drafting, since = value_of(ever.drafting), " since the start"
    return f"n/a: {reason_of(now.drafting)}" if drafting is None else _drafts(drafting) + since


def _drafts(drafting: Drafting) -> str:
    share = "" if drafting.acceptance is None else f"{drafting.acceptance:.0%} accepted"
    length = "" if drafting.length is None else f"{drafting.length:.2f} tokens per step"
    positions = "by position " + " ".join(f"{share:.0%}" for share in drafting.positions) if drafting.positions else ""
    return ", ".join(filter(None, (share, length, positions)))


def _gpu(found: _Found) -> str:
    reading = value_of(found.gpu)
    if reading is None:
        return f"n/a: {reason_of(found.gpu)}"
    energy = value_of(found.now.energy)
    spent = () if energy is None else (f"{energy:.2f} J per token",)
    return "  ".join((*reading.figures, *spent)) or "n/a"


def _latency_table(found: _Found) -> Table:
    columns = (Column("LATENCY"), Column("OVER"), *(Column(name, right=True) for name in ("P50", "P95", "P99")))
    rows: list[tuple[Cell | str, ...]] = []
    for attribute, label in LATENCIES:
        for metrics, over in ((found.now, human_duration(found.now.seconds or 0.0)), (found.ever, "all")):
            reading: Reading[Latency] | None = getattr(metrics, attribute) if metrics else None
            latency = value_of(reading) if reading is not None else None
            if latency is not None:
                rows.append((label, over, *_latency(latency)))
            elif over == "all" and reading is not None:
                rows.append((label, over, "", "", "", "", "", Cell(reason_of(reading), "dim")))
    more = (Column("MEAN", right=True), Column("COUNT", right=True), Column("", flexible=True))
    return Table((*columns, *more), tuple(rows))


def _latency(latency: Latency) -> tuple[str, ...]:
    mean = "" if latency.mean is None else _seconds(latency.mean)
    quantiles = (latency.p50, latency.p95, latency.p99)
    return (*(_quantile(quantile) for quantile in quantiles), mean, human_count(latency.count), "")


def _quantile(quantile: Quantile) -> str:
    """`0.56 s (0.5-0.75)`: the estimate, and the bucket that the true value is in."""
    if quantile.high == float("inf"):
        return f"over {quantile.low:g} s"
    return f"{_seconds(quantile.value)} ({quantile.low:g}-{quantile.high:g})"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


# --- second by second ---------------------------------------------------------------------------------

WATCHED: Final = (
    ("DECODE", MetricId.DECODE_RATE, 8),
    ("PREFILL", MetricId.PREFILL_RATE, 8),
    ("RUN", MetricId.RUNNING, 4),
    ("WAIT", MetricId.WAITING, 4),
    ("TTFT95", MetricId.TTFT_P95, 7),
    ("ITL50", MetricId.ITL_P50, 6),
    ("KV%", MetricId.KV_USAGE, 5),
    ("HIT%", MetricId.PREFIX_HITS, 5),
    ("ACC%", MetricId.ACCEPTANCE, 5),
    ("GPU%", MetricId.GPU_UTILIZATION, 5),
    ("W", MetricId.GPU_POWER, 5),
)
"""Title, series and width of the columns of `--watch`."""


def watch_metrics(session: Session, name: str, count: int | None) -> None:
    """A line each second until Ctrl-C, or `count` of them. Raises the engine's error when it can no longer be asked."""

    async def work(context: Context) -> None:
        view = await _serving(context, name)
        written = 0
        async with _samples(context, view.name) as samples:
            async for sample in samples:
                _write(session, context, sample, heading=written % HEADING_LINES == 0)
                written += 1
                if count is not None and written >= count:
                    break

    session.run(work)


def _write(session: Session, context: Context, sample: Sample, *, heading: bool) -> None:
    host = {metric: context.metrics.series("", metric, 10.0).last for metric in MetricId if metric.of_host}
    values = {**{metric: value for metric, value in host.items() if value is not None}, **sample.values}
    if session.as_json:
        session.out.json_line(sample_object(sample, values))
        return
    if heading:
        session.out.line("TIME      " + " ".join(f"{title:>{width}}" for title, _, width in WATCHED))
    cells = (f"{_cell(values.get(metric), metric):>{width}}" for _, metric, width in WATCHED)
    moment = (shapes.moment(sample.at) or "")[11:19]
    session.out.line(f"{moment}  " + " ".join(cells) + ("  restarted" if sample.restarted else ""))


def _cell(value: float | None, metric: MetricId) -> str:
    return "-" if value is None else f"{value:.{metric.decimals}f}"
