"""Benchmarks of engines that serve: one alone, or two in turn."""

from __future__ import annotations

import asyncio
import platform
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import spark_tui
from spark_tui.core.engines import EngineSupervisor
from spark_tui.domain.bench.compare import Comparison, compare
from spark_tui.domain.bench.conditions import Conditions, conditions_of
from spark_tui.domain.bench.plan import (
    LEAST_POOL,
    PROSE,
    BenchPlan,
    PromptForm,
    Segment,
    Vocabulary,
    check_context,
    check_plan,
    pool_text,
    prompt_ids,
    prompt_text,
    segments,
)
from spark_tui.domain.bench.published import Beside, beside
from spark_tui.domain.bench.record import RequestRecord
from spark_tui.domain.bench.run import (
    BenchRun,
    BoxSample,
    Ending,
    Pass,
    Result,
    Status,
    box_figures,
    levels,
    memory_reason,
    plan_caveats,
    result_caveats,
    result_of,
)
from spark_tui.domain.bench.server_side import between, cross_check, others
from spark_tui.domain.bench.statistics import distribution
from spark_tui.domain.engine.runtimes import VLLM, runtime_named
from spark_tui.domain.engine.state import Endpoint, Health
from spark_tui.domain.errors import (
    ApiKeyRejected,
    EngineDead,
    EngineFailed,
    EngineUnreachable,
    RefusedError,
    SparkError,
    UnreachableError,
    UsageError,
)
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.metrics.page import EMPTY_PAGE, Family, MetricPage
from spark_tui.domain.quantities import gib
from spark_tui.domain.reading import Ok, value_of
from spark_tui.services.ports import (
    Clock,
    ContainerEngine,
    GpuProbe,
    HostProbe,
    Load,
    LoadDriver,
    LoadResult,
    MetricsSource,
    RequestSpec,
    ResultStore,
    Tick,
)

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
        request = RequestSpec(0, " ".join((PROSE.split() * 2)[:CALIBRATION_WORDS]), CALIBRATION_WORDS, 2)
        (record,) = await self._send((request,), 1, asyncio.Event(), lambda _: None)
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
            records = await self._send(await self._requests(segment), streams, stop, tick)
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
        requests = await self._requests(segment)
        records = await self._send(requests, segment.streams, stop, tick)
        sent = tuple(record for record in records if record.sent > 0)
        done = Pass(segment, sent, finished=not stop.is_set() and len(sent) == segment.requests)
        if sent:
            self._passes.append(done)
        return done

    async def _send(
        self, requests: tuple[RequestSpec, ...], streams: int, stop: asyncio.Event, tick: OnTick
    ) -> tuple[RequestRecord, ...]:
        load = Load(self.conditions.served_name, requests, streams, self.plan.temperature)
        records: tuple[RequestRecord, ...] = ()
        async with aclosing(self._driver.drive(self.endpoint, load, stop)) as driven:
            async for told in driven:
                if isinstance(told, LoadResult):
                    records = told.records
                    self._lateness += told.lateness
                else:
                    tick(told)
        return records

    async def _requests(self, segment: Segment) -> tuple[RequestSpec, ...]:
        return tuple([await self._request(segment, number) for number in range(segment.requests)])

    async def _request(self, segment: Segment, number: int) -> RequestSpec:
        if self._words is None:
            text = prompt_text(self.plan, self.salt, segment, number, self._words_per_token)
            return RequestSpec(number, text, segment.input_tokens, segment.output_tokens)
        ids = prompt_ids(self.plan, self.salt, segment, number, self._words)
        if self.plan.form is PromptForm.TOKENS:
            return RequestSpec(number, tuple(ids), segment.input_tokens, segment.output_tokens)
        model = self.conditions.served_name
        text = await self._driver.detokenize(self.endpoint, model, ids)
        counted, _ = await self._driver.tokenize(self.endpoint, model, text)
        return RequestSpec(number, text, len(counted), segment.output_tokens)

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


class BenchStep(StrEnum):
    """What is being done."""

    LAUNCHING = "launching"
    PREPARING = "preparing"
    WARM_UP = "warming up"
    MEASURING = "measuring"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """How far a benchmark is. `done` and `total` count segments; `requests_done`, `requests_running` and
    `requests_total` are those of this segment, `rate` the pieces that came per second just now (tokens, where the
    engine does not speculate). `runs` holds what was measured so far, a run per engine. `seconds_left` is a guess from
    the segments that are over, None before there is one. `detail` is how far a launch is."""

    step: BenchStep
    engine: str
    runs: tuple[BenchRun, ...] = ()
    segment: Segment | None = None
    done: int = 0
    total: int = 0
    requests_done: int = 0
    requests_running: int = 0
    requests_total: int = 0
    rate: float | None = None
    seconds: float = 0.0
    seconds_left: float | None = None
    detail: str = ""


OnProgress = Callable[[BenchProgress], None]


class BenchReporter:
    """Turns what a benchmark does into reports. `sides` says how many sessions there will be, where not all are known
    from the beginning."""

    def __init__(self, sessions: Sequence[BenchSession], report: OnProgress, clock: Clock, sides: int = 0) -> None:
        self._sessions = list(sessions)
        self._report = report
        self._clock = clock
        self._began = clock.monotonic()
        self._total = len(segments(sessions[0].plan)) * max(sides, len(sessions))
        self._done = 0
        self._measuring_since = 0.0
        self._session = sessions[0]
        self._segment: Segment | None = None
        self._runs: tuple[BenchRun, ...] = ()
        self._last: tuple[float, int] = (0.0, 0)
        self._rate: float | None = None

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock.monotonic() - self._began

    @property
    def measured(self) -> bool:
        """There is something to keep."""
        return bool(self._runs) and any(run.levels for run in self._runs)

    def joined(self, session: BenchSession) -> None:
        """A further engine is measured from now on."""
        self._sessions.append(session)

    def begin(self, session: BenchSession, segment: Segment) -> None:
        """A segment begins."""
        if not self._measuring_since:
            self._measuring_since = self._clock.monotonic()
        self._session, self._segment = session, segment
        self._last, self._rate = (self._clock.monotonic(), 0), None
        self.tell(BenchStep.MEASURING, session)

    def launching(self, name: str, detail: str) -> None:
        """An engine is brought up for its turn."""
        self.tell(BenchStep.LAUNCHING, engine=name, detail=detail)

    def tick(self, tick: Tick) -> None:
        """It goes on."""
        now = self._clock.monotonic()
        at, pieces = self._last
        if now > at:
            rate = max(0.0, (tick.pieces - pieces) / (now - at))
            self._rate = rate if self._rate is None else 0.7 * self._rate + 0.3 * rate
            self._last = (now, tick.pieces)
        self.tell(BenchStep.MEASURING, self._session, tick)

    def end(self) -> None:
        """A segment is over: the figures so far are worth showing."""
        self._done += 1
        self._runs = tuple(session.run(self.seconds) for session in self._sessions)
        self.tell(BenchStep.MEASURING, self._session)

    def tell(
        self,
        step: BenchStep,
        session: BenchSession | None = None,
        tick: Tick | None = None,
        *,
        runs: tuple[BenchRun, ...] | None = None,
        engine: str = "",
        detail: str = "",
    ) -> None:
        """Reports."""
        segment = self._segment
        self._report(
            BenchProgress(
                step=step,
                engine=engine or (session or self._session).name,
                runs=self._runs if runs is None else runs,
                segment=segment,
                done=self._done,
                total=self._total,
                requests_done=tick.done if tick else 0,
                requests_running=tick.running if tick else 0,
                requests_total=segment.requests if segment else 0,
                rate=self._rate,
                seconds=self.seconds,
                seconds_left=self._left(),
                detail=detail,
            )
        )

    def _left(self) -> float | None:
        if not self._done:
            return None
        spent = self._clock.monotonic() - self._measuring_since
        return spent / self._done * (self._total - self._done)


LEAST_ID = 3


class Results:
    """Every front end's way to the results."""

    def __init__(self, store: ResultStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def keep(self, run: BenchRun) -> Result:
        """Keeps a run. Raises SparkError when it cannot be written."""
        result = result_of(run)
        self._store.add(result)
        return result

    def mark(
        self,
        model: str,
        status: Status,
        *,
        quantization: str = "",
        runtime: str = "",
        platform: str = "",
        engine: str = "",
        reason: str = "",
    ) -> Result:
        """Keeps a verdict without a measurement: it works, it failed and why, it is still to be tried.

        Raises UsageError for a failure without a reason: it would help nobody.
        """
        if status is Status.BENCHMARKED:
            raise UsageError("Benchmarked is what was measured.", "Measure it: spark-tui bench NAME")
        if status is Status.FAILED and not reason.strip():
            raise UsageError("A failure needs its reason.", "Say in a few words what went wrong.")
        result = Result(
            uuid.uuid4().hex[:10], self._clock.now(), status, model, quantization, runtime, platform, engine, reason
        )
        self._store.add(result)
        return result

    def delete(self, results: Sequence[Result]) -> int:
        """Deletes results for good, and returns how many were there. Of two that were measured in turn, the other one
        stays. Raises SparkError."""
        return self._store.remove({result.id for result in results})

    def all(self) -> tuple[Result, ...]:
        """Every result, the newest first. Raises SparkError when the store cannot be read."""
        return tuple(sorted(self._store.all(), key=lambda result: -result.at))

    def problems(self) -> tuple[str, ...]:
        """What the last reading had to leave out, in words."""
        return self._store.problems()

    def find(self, key: str) -> Result:
        """A result by its id or the beginning of it, or the newest one of an engine or model by that name.

        `last` is the newest of all. Raises UsageError when there is none, or when several ids begin so.
        """
        kept = self.all()
        if not kept:
            which = "" if key == "last" else f" {key}: nothing was measured"
            raise UsageError(f"There is no result{which} yet.", "Measure an engine: spark-tui bench NAME")
        if key == "last":
            return kept[0]
        exact = [result for result in kept if result.id == key]
        begun = [result for result in kept if len(key) >= LEAST_ID and result.id.startswith(key)]
        if len(begun) > 1 and not exact:
            raise UsageError(f"{len(begun)} results begin with {key}.", "Give more of the id: spark-tui results list")
        named = [result for result in kept if key in (result.engine, result.model)]
        found = next(iter((*exact, *begun, *named)), None)
        if found is None:
            raise UsageError(f"There is no result {key}.", "spark-tui results list shows what there is.")
        return found

    def measured(self, key: str) -> BenchRun:
        """The run of a result. Raises UsageError for a verdict without one."""
        named = [result for result in self.all() if key in (result.engine, result.model) and result.run is not None]
        result = named[0] if named else self.find(key)
        if result.run is None:
            raise UsageError(f"{result.id} was not measured: it is {result.status.value}.", "Name a benchmark.")
        return result.run

    def history(self, run: BenchRun) -> tuple[BenchRun, ...]:
        """This box's earlier runs of the same model and the same load, the newest first."""
        earlier = [result.run for result in self.all() if result.run is not None and result.run.at < run.at]
        return tuple(
            before
            for before in earlier
            if before.conditions.model == run.conditions.model and compare(before, run).comparable
        )

    def compare(self, first: str, second: str) -> Comparison:
        """Two results, the second beside the first. Raises UsageError where one cannot be found."""
        return compare(self.measured(first), self.measured(second))

    def published(self, run: BenchRun) -> tuple[Beside, ...]:
        """What others published that is like this run, the most alike first."""
        from spark_tui.domain.bench.published import SOURCES, references

        return beside(run, references(), SOURCES)


SAMPLE_SECONDS: Final = 1.0
STRIKES: Final = 3
"""Looks in a row below the floor before a run is stopped: as the memory guard's, and before it acts."""


class HostWatch:
    """Adds to `samples`, which may be exchanged while it watches. Sets `stop` when memory is short, and `reason`."""

    def __init__(self, host: HostProbe, gpu: GpuProbe, clock: Clock, floor: int, stop: asyncio.Event) -> None:
        self.samples: list[BoxSample] = []
        self.reason = ""
        self._host = host
        self._gpu = gpu
        self._clock = clock
        self._floor = floor
        self._stop = stop
        self._low = 0

    def check(self) -> None:
        """Raises RefusedError when there is too little memory to begin."""
        memory = value_of(self._host.memory())
        if memory is not None and memory.usable < self._floor:
            raise RefusedError(
                f"Only {gib(memory.usable)} GiB of memory is usable, less than the guard's floor of "
                f"{gib(self._floor)} GiB: load could end in a freeze.",
                "Stop another engine first, or lower guard_serving_gib in the settings.",
            )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watches while the body runs."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._look()
            await self._clock.sleep(SAMPLE_SECONDS)

    async def _look(self) -> None:
        memory, gpu = self._host.memory(), await self._gpu.read()
        mem, device = value_of(memory), gpu.value if isinstance(gpu, Ok) else None
        self.samples.append(
            BoxSample(
                at=self._clock.monotonic(),
                usable_bytes=mem.usable if mem else None,
                used_bytes=mem.used if mem else None,
                power_watts=device.power_watts if device else None,
                temperature_c=device.temperature_c if device else None,
                sm_clock_mhz=device.sm_clock_mhz if device else None,
                utilization_percent=device.utilization_percent if device else None,
            )
        )
        if mem is None or not isinstance(memory, Ok):
            return
        self._low = self._low + 1 if mem.usable < self._floor else 0
        if self._low >= STRIKES and not self._stop.is_set():
            self.reason = memory_reason(mem.usable, self._floor)
            self._stop.set()


END_SECONDS: Final = 20.0
"""How long what is under way may take to end after it was told to."""
SETTLE_SECONDS: Final = 0.5
"""After the last answer the server still counts it."""
MOST_SILENT: Final = 2
"""So many segments in a row without a single answer, and the engine is taken for dead."""


class Benchmark:
    """Measures, and keeps the results."""

    def __init__(
        self,
        driver: LoadDriver,
        metrics: MetricsSource,
        docker: ContainerEngine,
        host: HostProbe,
        gpu: GpuProbe,
        supervisor: EngineSupervisor,
        results: Results,
        clock: Clock,
        memory_floor: int,
    ) -> None:
        self._driver = driver
        self._metrics = metrics
        self._docker = docker
        self._host = host
        self._gpu = gpu
        self._supervisor = supervisor
        self._results = results
        self._clock = clock
        self._floor = memory_floor

    async def run(
        self, name: str, plan: BenchPlan, report: OnProgress, *, stop: asyncio.Event | None = None
    ) -> BenchRun:
        """Measures one engine, by its container's name or id, and keeps the result.

        Setting `stop`, or cancelling the task, ends it early; what was measured by then is kept as well, and a
        cancelled task still ends with CancelledError. Raises UsageError for a senseless plan, ContextOverflow for one
        that the engine's context cannot hold, EngineUnreachable and the like when it cannot be asked at all, and
        RefusedError when memory is short already.
        """
        (found,) = await self._guarded((name,), plan, report, stop or asyncio.Event())
        return found

    async def versus(
        self, first: str, second: str, plan: BenchPlan, report: OnProgress, *, stop: asyncio.Event | None = None
    ) -> tuple[BenchRun, BenchRun]:
        """Measures two running engines in turn, A B, B A, A B ..., with the same prompts. Else like `run`."""
        one, two = await self._guarded((first, second), plan, report, stop or asyncio.Event())
        return one, two

    async def _guarded(
        self, names: Sequence[str], plan: BenchPlan, report: OnProgress, stop: asyncio.Event
    ) -> tuple[BenchRun, ...]:
        return await to_its_end(self._work(names, plan, report, stop), stop, END_SECONDS)

    # --- the work -------------------------------------------------------------------------------------

    async def _work(
        self, names: Sequence[str], plan: BenchPlan, report: OnProgress, stop: asyncio.Event
    ) -> tuple[BenchRun, ...]:
        box = self.begin(plan, stop)
        sessions = await self._sessions(names, plan)
        reporter = BenchReporter(sessions, report, self._clock)
        failure: SparkError | None = None
        try:
            async with box.watching():
                await self._measure(sessions, reporter, box, stop)
        except SparkError as error:
            if not reporter.measured:
                raise
            failure = error
        finally:
            await self.close()
        return self.ended(sessions, reporter, failure, box.reason if stop.is_set() else None)

    def begin(self, plan: BenchPlan, stop: asyncio.Event) -> HostWatch:
        """Refuses what makes no sense, or has no memory; returns who watches the box."""
        check_plan(plan)
        box = HostWatch(self._host, self._gpu, self._clock, self._floor, stop)
        box.check()
        return box

    async def close(self) -> None:
        """The helper that sends the load is there for as long as a measurement."""
        await self._driver.close()

    def ended(
        self, sessions: Sequence[BenchSession], reporter: BenchReporter, failure: SparkError | None, stopped: str | None
    ) -> tuple[BenchRun, ...]:
        """Keeps what was measured. `stopped` is None for what came to its end, else what the box stopped it for; empty
        when a person did."""
        ending, reason = Ending.COMPLETED, ""
        if failure is not None:
            ending, reason = Ending.FAILED, failure.summary
        if stopped is not None:
            ending = Ending.STOPPED if stopped else Ending.CANCELLED
            reason = stopped or "stopped before its end"
        runs = tuple(session.run(reporter.seconds, ending, reason) for session in sessions)
        if reporter.measured:
            for run in runs:
                self._results.keep(run)
        reporter.tell(BenchStep.DONE, runs=runs)
        return runs

    async def _sessions(self, names: Sequence[str], plan: BenchPlan) -> list[BenchSession]:
        salt, now = new_salt(), self._clock.now()
        found = [await self.session(name, plan, salt, now) for name in names]
        if len(found) == 2:
            one, two = found
            if one.endpoint.base_url == two.endpoint.base_url:
                raise UsageError("The two engines are one and the same.", "Name another one for the comparison.")
            one.pair, two.pair = two.id, one.id
        return found

    async def session(self, name: str, plan: BenchPlan, salt: int, now: float) -> BenchSession:
        """What is measured of one engine. The same salt gives two engines the same prompts. Raises as `run`."""
        endpoint, view = await self.target(name)
        served = next((model for model in view.models if model.id == view.served_name), None)
        conditions = conditions_of(
            view,
            host=self._host.identity(),
            image=await self._docker.image(view.container.image_id or view.container.image),
            gpu=value_of(await self._gpu.read()),
            now=now,
            tool_version=spark_tui.__version__,
            python=platform.python_version(),
            context=served.max_model_len if served else None,
            simulated=self._driver.simulated,
        )
        check_context(plan, conditions.context_tokens)
        return BenchSession(self._driver, self._metrics, endpoint, plan, conditions, at=now, salt=salt)

    async def prepare(self, session: BenchSession, reporter: BenchReporter, stop: asyncio.Event) -> None:
        """Learns what prompts are made of, and warms the engine up."""
        reporter.tell(BenchStep.PREPARING, session)
        context = await session.prepare()
        if context is not None and session.conditions.context_tokens is None:
            session.conditions = replace(session.conditions, context_tokens=context)
        check_context(session.plan, session.conditions.context_tokens)
        reporter.tell(BenchStep.WARM_UP, session)
        await session.warm_up(stop, lambda _: None)

    async def _measure(
        self, sessions: Sequence[BenchSession], reporter: BenchReporter, box: HostWatch, stop: asyncio.Event
    ) -> None:
        for session in sessions:
            await self.prepare(session, reporter, stop)
            await session.begin()
        await self._segments(sessions, reporter, box, stop)
        await self._clock.sleep(SETTLE_SECONDS)
        for session in sessions:
            await session.end()

    async def _segments(
        self, sessions: Sequence[BenchSession], reporter: BenchReporter, box: HostWatch, stop: asyncio.Event
    ) -> None:
        silent = dict.fromkeys(sessions, 0)
        for number, segment in enumerate(segments(sessions[0].plan)):
            for session in sessions if number % 2 == 0 else reversed(sessions):
                if stop.is_set():
                    return
                why = await self.segment(session, segment, reporter, box, stop)
                silent[session] = silent[session] + 1 if why is not None else 0
                if silent[session] >= MOST_SILENT and not stop.is_set():
                    raise not_answering(session, why or "")

    async def segment(
        self, session: BenchSession, segment: Segment, reporter: BenchReporter, box: HostWatch, stop: asyncio.Event
    ) -> str | None:
        """Measures one segment. Returns why not a single request was answered; None when one was, or none was sent."""
        reporter.begin(session, segment)
        box.samples = session.samples
        done = await session.measure(segment, stop, reporter.tick)
        reporter.end()
        if not done.records or any(record.chunks for record in done.records):
            return None
        return done.records[0].error

    # --- whom to ask ----------------------------------------------------------------------------------

    async def target(self, name: str) -> tuple[Endpoint, EngineView]:
        """Where an engine is asked, and what is known of it. Raises the error that says why it cannot be."""
        watch = await self._supervisor.watch(name)
        container = watch.container
        if not container.running:
            raise EngineUnreachable(
                f"{container.name} does not run ({container.status.value}).",
                f"Start it: spark-tui restart {container.name}",
            )
        endpoint = watch.endpoint
        if endpoint is None:
            raise EngineUnreachable(
                f"{container.name} publishes no port.",
                "Launch it from a preset, or publish its port: docker run -p ...",
            )
        health = await watch.check_health()
        if health is Health.DEAD:
            raise EngineDead(
                f"The engine of {container.name} is dead, only its web server answers.",
                f"Read why: spark-tui logs {container.name}\nStart it again: spark-tui restart {container.name}",
            )
        await watch.settled()
        view = watch.view()
        if health is not Health.OK or not view.served_name:
            raise EngineUnreachable(
                f"{container.name} is not ready yet: its port {view.port} says {health.value}.",
                f"Follow its start: spark-tui logs {container.name} -f",
            )
        return endpoint, view


async def to_its_end(
    work: Coroutine[None, None, tuple[BenchRun, ...]], stop: asyncio.Event, seconds: float
) -> tuple[BenchRun, ...]:
    """The work in a task of its own: a cancelled caller still lets it come to its end and keep what it has."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        try:
            await asyncio.wait((task,), timeout=seconds)
        finally:  # a caller that is cancelled a second time leaves no task behind
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        raise


def new_salt() -> int:
    """A run's own: its prompts are in nobody's cache."""
    return random.SystemRandom().getrandbits(32)


def not_answering(session: BenchSession, why: str) -> EngineUnreachable:
    """The engine is taken for dead."""
    return EngineUnreachable(
        f"{session.name} does not answer any more: {why or 'no answer'}.",
        f"Read why: spark-tui logs {session.name}",
    )
