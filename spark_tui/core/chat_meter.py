"""What the engine's own metrics say of one answer: how long it waited, and what speculation brought.

Counters are read when a question goes out and when its answer is over; what lies between is the answer's, if no other
request ran. The reading never delays a question and never fails one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from spark_tui.domain.conversation import EngineSide
from spark_tui.domain.errors import SparkError

if TYPE_CHECKING:
    from spark_tui.core.chat_target import ChatTarget
    from spark_tui.domain.engine.metric_page import MetricPage
    from spark_tui.services.ports_metrics import MetricsSource


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Counters of an engine since its start; None: it has none such. Of vLLM: the sum and count of
    `request_queue_time_seconds`, `spec_decode_num_draft_tokens_total` and `spec_decode_num_accepted_tokens_total`."""

    queue_seconds: float | None = None
    requests: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None


ReadCounters: TypeAlias = "Callable[[ChatTarget], Awaitable[EngineCounters | None]]"
"""Reads them; None when the engine has none to read. Must not raise."""


def counters_of(page: MetricPage) -> EngineCounters:
    """What of a metrics page an answer is measured by."""
    from spark_tui.domain.engine.metric_names import Family, Part

    def sum_of(part: Part) -> float | None:
        values = [value for slot, value in page.groups.get(Family.QUEUE, {}).items() if slot.part is part]
        return sum(values) if values else None

    return EngineCounters(
        sum_of(Part.SUM), sum_of(Part.COUNT), page.total(Family.DRAFT_TOKENS), page.total(Family.ACCEPTED)
    )


def meter_on(source: MetricsSource) -> EngineMeter:
    """A meter that reads metrics pages; an engine without one is not measured."""

    async def read(target: ChatTarget) -> EngineCounters | None:
        try:
            return counters_of(await source.read(target.endpoint))
        except SparkError:
            return None  # a figure that nobody waits for: the answer itself tells what is wrong with the engine

    return EngineMeter(read)


def engine_side(before: EngineCounters, after: EngineCounters) -> EngineSide | None:
    """The difference; None when nothing can be told, or when the engine was started anew in between."""
    requests = _grown(before.requests, after.requests)
    queue = _grown(before.queue_seconds, after.queue_seconds)
    drafted = _grown(before.drafted_tokens, after.drafted_tokens)
    accepted = _grown(before.accepted_tokens, after.accepted_tokens)
    if not requests and not drafted:
        return None
    return EngineSide(
        queue / requests if queue is not None and requests else None,
        int(drafted) if drafted else None,
        int(accepted) if drafted and accepted is not None else None,
        shared=bool(requests and requests > 1),
    )


def _grown(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or after < before:
        return None
    return after - before


class EngineMeter:
    """Measures answers on engines whose counters can be read."""

    def __init__(self, read: ReadCounters) -> None:
        self._read = read
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, target: ChatTarget) -> Measure:
        """Starts reading at once, beside the question."""
        return Measure(self, target)

    async def read(self, target: ChatTarget) -> EngineCounters | None:
        """The counters now."""
        return await self._read(target)

    def keep(self, task: asyncio.Task[None]) -> None:
        """A task that goes on after its answer is over."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Waits until the answers that are over are measured."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def close(self) -> None:
        """Ends what is still being read."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


class Measure:
    """One answer's counters."""

    def __init__(self, meter: EngineMeter, target: ChatTarget) -> None:
        self._meter = meter
        self._target = target
        self._before = asyncio.ensure_future(meter.read(target))

    def end(self, measured: Callable[[EngineSide], None], written: Callable[[], None]) -> None:
        """The answer is over: tells what was measured, then that it can be written down; both in a moment."""
        self._meter.keep(asyncio.ensure_future(self._end(measured, written)))

    async def _end(self, measured: Callable[[EngineSide], None], written: Callable[[], None]) -> None:
        try:
            before, after = await self._before, await self._meter.read(self._target)
            side = engine_side(before, after) if before is not None and after is not None else None
            if side is not None:
                measured(side)
        finally:
            written()
