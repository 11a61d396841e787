"""One engine under measurement: whom to ask, with what prompts, and what has come of it so far."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from spark_tui.domain.bench.conditions import Conditions
from spark_tui.domain.bench.level import Pass, levels
from spark_tui.domain.bench.plan import BenchPlan, PromptForm, Segment
from spark_tui.domain.bench.prompts import LEAST_POOL, PROSE, Vocabulary, pool_text, prompt_ids, prompt_text
from spark_tui.domain.bench.record import RequestRecord
from spark_tui.domain.bench.run import BenchRun, BoxSample, Ending, box_figures, plan_caveats, result_caveats
from spark_tui.domain.bench.server_side import between, cross_check, others
from spark_tui.domain.bench.statistics import distribution
from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.engine.metric_names import Family
from spark_tui.domain.engine.metric_page import EMPTY_PAGE, MetricPage
from spark_tui.domain.engine.runtimes import VLLM, runtime_named
from spark_tui.domain.errors import ApiKeyRejected, EngineFailed, SparkError, UnreachableError
from spark_tui.services.ports_bench import Load, LoadDriver, Shot, Tick, Volley
from spark_tui.services.ports_metrics import MetricsSource

WARM_UP_TOKENS: Final = 16
CALIBRATION_WORDS: Final = 200
OnTick = Callable[[Tick], None]


class BenchSession:
    """Made for one run. `samples` are filled by whoever watches the box."""

    def __init__(
        self, driver: LoadDriver, metrics: MetricsSource, endpoint: Endpoint, plan: BenchPlan, conditions: Conditions,
        *, at: float, salt: int,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.conditions = conditions
        self.endpoint = endpoint
        self.id = uuid.uuid4().hex[:10]
        self.samples: list[BoxSample] = []
        self.pair = ""
        self.notes: list[str] = []
        """What else has to be known of this run."""
        self._driver = driver
        self._metrics = metrics
        self.at = at
        self.salt = salt
        """The same one gives another session the same prompts."""
        self._words: Vocabulary | None = None
        self._words_per_token = 0.75
        self._passes: list[Pass] = []
        self._lateness: list[float] = []
        self._before = EMPTY_PAGE
        self._after = EMPTY_PAGE
        self._busy = 0.0

    @property
    def name(self) -> str:
        """The engine's."""
        return self.conditions.engine

    # --- before ---------------------------------------------------------------------------------------

    async def prepare(self) -> int | None:
        """Learns the model's vocabulary; returns the context length where the server tells it with that.

        A server that cannot tokenize is asked with words instead, whose number of tokens one request shows.
        """
        model = self.conditions.served_name
        try:
            pool, context = await self._driver.tokenize(self.endpoint, model, pool_text())
            prose, _ = await self._driver.tokenize(self.endpoint, model, PROSE)
        except (ApiKeyRejected, UnreachableError):
            raise
        except SparkError:  # no such page: its prompts are measured instead
            await self._calibrate()
            return None
        different = tuple(sorted(set(pool)))
        if len(different) < LEAST_POOL or not prose:
            await self._calibrate()
            return context
        self._words = Vocabulary(different, prose)
        return context

    async def _calibrate(self) -> None:
        shot = Shot(0, " ".join((PROSE.split() * 2)[:CALIBRATION_WORDS]), CALIBRATION_WORDS, 2)
        (record,) = await self._send((shot,), 1, asyncio.Event(), lambda _: None)
        if not record.prompt_tokens:
            raise EngineFailed(
                f"{self.name} did not answer a first request: {record.error or 'it reports no usage'}.",
                f"Read why: spark-tui logs {self.name}",
            )
        self._words_per_token = CALIBRATION_WORDS / record.prompt_tokens

    async def warm_up(self, stop: asyncio.Event, tick: OnTick) -> None:
        """Short requests at every level, whose times are thrown away: kernels are compiled, graphs captured.

        Raises EngineFailed when not one of them is answered: there is no point in going on.
        """
        for streams in sorted({1, *self.plan.concurrency}):
            if stop.is_set() or not self.plan.warmup:
                return
            output = max(2, min(WARM_UP_TOKENS, self.plan.output_tokens))
            asked = self.plan.input_tokens if self.plan.concurrency else min(self.plan.depths)
            segment = Segment(0, streams, streams * self.plan.warmup, asked, output)
            records = await self._send(await self._shots(segment), streams, stop, tick)
            if not stop.is_set() and not any(record.chunks for record in records):
                why = next((record.error for record in records if record.error), "no answer")
                raise EngineFailed(
                    f"{self.name} answered none of {len(records)} warm-up requests: {why}.",
                    f"Read why: spark-tui logs {self.name}",
                )

    async def begin(self) -> None:
        """Takes the server's own figures before the first measured request."""
        self._lateness.clear()
        self._before = await self._page()
        self._busy = self._before.total(Family.RUNNING) or 0.0

    # --- measuring ------------------------------------------------------------------------------------

    async def measure(self, segment: Segment, stop: asyncio.Event, tick: OnTick) -> Pass:
        """One segment, to its end or to the stop."""
        shots = await self._shots(segment)
        records = await self._send(shots, segment.streams, stop, tick)
        sent = tuple(record for record in records if record.sent > 0)
        done = Pass(segment, sent, finished=not stop.is_set() and len(sent) == segment.requests)
        if sent:
            self._passes.append(done)
        return done

    async def _send(
        self, shots: tuple[Shot, ...], streams: int, stop: asyncio.Event, tick: OnTick
    ) -> tuple[RequestRecord, ...]:
        load = Load(self.conditions.served_name, shots, streams, self.plan.temperature)
        records: tuple[RequestRecord, ...] = ()
        async with aclosing(self._driver.drive(self.endpoint, load, stop)) as driven:
            async for told in driven:
                if isinstance(told, Volley):
                    records = told.records
                    self._lateness += told.lateness
                else:
                    tick(told)
        return records

    async def _shots(self, segment: Segment) -> tuple[Shot, ...]:
        return tuple([await self._shot(segment, number) for number in range(segment.requests)])

    async def _shot(self, segment: Segment, number: int) -> Shot:
        if self._words is None:
            text = prompt_text(self.plan, self.salt, segment, number, self._words_per_token)
            return Shot(number, text, segment.input_tokens, segment.output_tokens)
        ids = prompt_ids(self.plan, self.salt, segment, number, self._words)
        if self.plan.form is PromptForm.TOKENS:
            return Shot(number, tuple(ids), segment.input_tokens, segment.output_tokens)
        model = self.conditions.served_name
        text = await self._driver.detokenize(self.endpoint, model, ids)
        counted, _ = await self._driver.tokenize(self.endpoint, model, text)
        return Shot(number, text, len(counted), segment.output_tokens)

    # --- after ----------------------------------------------------------------------------------------

    async def end(self) -> None:
        """Takes the server's own figures after the last one."""
        self._after = await self._page()

    async def _page(self) -> MetricPage:
        """The page of vLLM, whose counters are known to count what ours count; empty for others, and without one."""
        if self._driver.simulated or runtime_named(self.endpoint.runtime) is not VLLM:
            return EMPTY_PAGE
        try:
            return await self._metrics.read(self.endpoint)
        except SparkError:
            return EMPTY_PAGE  # the figures then stand without the server's own beside them

    def run(self, seconds: float, ending: Ending = Ending.COMPLETED, reason: str = "") -> BenchRun:
        """Everything so far."""
        records = [record for each in self._passes for record in each.records]
        side = between(self._before, self._after)
        found = BenchRun(
            id=self.id,
            at=self.at,
            plan=self.plan,
            conditions=self.conditions,
            levels=levels(self._passes),
            ending=ending,
            reason=reason,
            seconds=seconds,
            box=box_figures(
                self.samples,
                sum(each.seconds for each in self._passes),
                sum(record.completion_tokens or 0 for record in records),
            ),
            server=side,
            checks=cross_check(side, records) if side is not None else (),
            pair=self.pair,
            lateness=distribution(self._lateness),
        )
        theirs = others(side, records) if side is not None else 0
        caveats = [*self.notes, *plan_caveats(self.plan, self.conditions), *result_caveats(found, theirs)]
        if self._busy >= 1:
            caveats.append(f"The engine was busy with {self._busy:.0f} requests of others when the measurement began.")
        if self._words is None:
            caveats.append("The server cannot tokenize: prompt lengths are near what was asked for, not exact.")
        return replace(found, caveats=tuple(dict.fromkeys(caveats)))
