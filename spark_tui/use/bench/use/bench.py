"""Benchmarks: of one engine, of two that run, in turn, or of two launches on a machine that holds one at a time."""

from __future__ import annotations

import asyncio
import platform
import random
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

import spark_tui
from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.container import LABEL_NODES, ContainerFacts
from spark_tui.base.engine.metrics_page import EMPTY_PAGE, Family, MetricPage, restarted
from spark_tui.base.engine.runtimes import VLLM, runtime_named
from spark_tui.base.engine.state import Endpoint, Health
from spark_tui.base.errors import (
    ApiKeyRejected,
    ContainerNotFound,
    EngineFailed,
    EngineUnreachable,
    MeasurementVoid,
    RefusedError,
    SparkError,
    UnreachableError,
    UsageError,
)
from spark_tui.base.executors import end_tasks, pause
from spark_tui.base.finding import Ok, value_of
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.jobs import Step, StepState
from spark_tui.base.ports import (
    MEASURES,
    Clock,
    ContainerEngine,
    GpuProbe,
    HostProbe,
    MetricsSource,
    StateFiles,
    port_named,
)
from spark_tui.base.quantities import gib
from spark_tui.catalog.fit.use.fit import MemoryGate
from spark_tui.observe.engines.use.engines import EngineSupervisor, EngineWatch
from spark_tui.observe.memory.use.guard import guard_policy
from spark_tui.observe.results.model.plan import (
    LEAST_POOL,
    PROSE,
    BenchPlan,
    Conditions,
    PromptForm,
    Segment,
    Vocabulary,
    check_context,
    check_plan,
    conditions_of,
    pool_text,
    prompt_ids,
    prompt_text,
    segments,
)
from spark_tui.observe.results.model.record import RequestRecord, between, cross_check, distribution, others
from spark_tui.observe.results.model.run import (
    BenchRun,
    HostSample,
    Pass,
    RunOutcome,
    host_figures,
    levels,
    plan_caveats,
    result_caveats,
    warm_ups,
)
from spark_tui.observe.results.use import Results, measured_bandwidth
from spark_tui.run.launch.use.edit import Editor
from spark_tui.run.launch.use.launch import Launcher
from spark_tui.use.bench.model.load import Load, LoadEvent, LoadResult, RequestSpec, Tick
from spark_tui.use.bench.use.ab import Variant

CALIBRATION_WORDS: Final = 200
OnTick = Callable[[Tick], None]
T = TypeVar("T")


@port_named("load")
class LoadDriver(Protocol):
    """Sends load and takes the time. Measured and simulated ones are the same to the core."""

    simulated: bool

    def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        """Ticks while it runs, then the LoadResult, once, last. A failing request is a record and no exception.

        When `stop` is set no further request is sent, those under way are cut off and recorded as cancelled, and the
        records follow as at any other end. Raises SparkError when there is no way to send anything at all.
        """

    async def tokenize(self, endpoint: Endpoint, model: str, text: str) -> tuple[tuple[int, ...], int | None]:
        """The token ids of a text, without special ones, and the engine's context length where it says it. Raises the
        API part of the error tree, BadRequest where the server cannot tokenize."""

    async def detokenize(self, endpoint: Endpoint, model: str, tokens: Sequence[int]) -> str: ...
    async def close(self) -> None: ...


class BenchSession(Struct, eq=False):
    """One engine's part of one benchmark. `samples` are filled by a HostWatch, `notes` are caveats of this run. The
    same `salt` gives two sessions the same prompts."""

    _driver: LoadDriver
    _metrics: MetricsSource
    endpoint: Endpoint
    plan: BenchPlan
    conditions: Conditions
    at: float
    salt: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:10])
    samples: list[HostSample] = []
    pair: str = ""
    notes: list[str] = []
    _words: Vocabulary | None = None
    _words_per_token: float = 0.75
    _passes: list[Pass] = []
    _lateness: list[float] = []
    _before: MetricPage = EMPTY_PAGE
    _after: MetricPage = EMPTY_PAGE

    @property
    def name(self) -> str:
        return self.conditions.engine

    async def prepare(self) -> int | None:
        """Learns the model's vocabulary; returns the context length where the server reports it with that.

        A server that cannot tokenize is asked with words instead, whose number of tokens one request shows.
        """
        context, model = None, self.conditions.served_name
        try:
            pool, context = await self._driver.tokenize(self.endpoint, model, pool_text())
            prose, _ = await self._driver.tokenize(self.endpoint, model, PROSE)
            different = tuple(sorted(set(pool)))
            if len(different) >= LEAST_POOL and prose:
                self._words = Vocabulary(different, prose)
                return context
        except (ApiKeyRejected, UnreachableError):
            raise
        except SparkError:  # no such page
            context = None
        words = " ".join((PROSE.split() * 2)[:CALIBRATION_WORDS])
        (record,) = await self._send((RequestSpec(0, words, CALIBRATION_WORDS, 2),), 1, asyncio.Event(), lambda _: None)
        if not record.prompt_tokens:
            raise EngineFailed(
                f"{self.name} did not answer a first request: {record.error or 'it reports no usage'}.",
                f"Read why: spark-tui logs {self.name}",
            )
        self._words_per_token = CALIBRATION_WORDS / record.prompt_tokens
        return context

    async def warm_up(self, stop: asyncio.Event, tick: OnTick) -> None:
        """Short requests at every level, whose times are thrown away: kernels are compiled, graphs captured.

        Raises EngineFailed when not one of them is answered.
        """
        for segment in warm_ups(self.plan):
            if stop.is_set():
                return
            records = await self._send(await self._requests(segment), segment.streams, stop, tick)
            if not stop.is_set() and not any(record.chunks for record in records):
                why = next((record.error for record in records if record.error), "no answer")
                raise EngineFailed(
                    f"{self.name} answered none of {len(records)} warm-up requests: {why}.",
                    f"Read why: spark-tui logs {self.name}",
                )

    async def begin(self) -> None:
        self._lateness.clear()
        self._before = await page_of(self._driver, self._metrics, self.endpoint)

    async def measure(self, segment: Segment, stop: asyncio.Event, tick: OnTick) -> Pass:
        """One segment, to its end or to the stop."""
        records = await self._send(await self._requests(segment), segment.streams, stop, tick)
        sent = tuple(record for record in records if record.sent > 0)
        done = Pass(segment, sent, finished=not stop.is_set() and len(sent) == segment.requests)
        if sent:
            self._passes.append(done)
        return done

    async def end(self) -> None:
        self._after = await page_of(self._driver, self._metrics, self.endpoint)

    async def _send(
        self, requests: tuple[RequestSpec, ...], streams: int, stop: asyncio.Event, tick: OnTick
    ) -> tuple[RequestRecord, ...]:
        load = Load(self.conditions.served_name, requests, streams, self.plan.temperature)
        records: tuple[RequestRecord, ...] = ()
        async with aclosing(self._driver.drive(self.endpoint, load, stop)) as driven:
            async for event in driven:
                if isinstance(event, LoadResult):
                    records = event.records
                    self._lateness += event.lateness
                else:
                    tick(event)
        return records

    async def _requests(self, segment: Segment) -> tuple[RequestSpec, ...]:
        model, found = self.conditions.served_name, []
        for number in range(segment.requests):
            prompt: tuple[int, ...] | str
            length = segment.input_tokens
            if self._words is None:
                prompt = prompt_text(self.plan, self.salt, segment, number, self._words_per_token)
            else:
                prompt = tuple(prompt_ids(self.plan, self.salt, segment, number, self._words))
                if self.plan.form is PromptForm.TEXT:
                    prompt = await self._driver.detokenize(self.endpoint, model, prompt)
                    length = len((await self._driver.tokenize(self.endpoint, model, prompt))[0])
            found.append(RequestSpec(number, prompt, length, segment.output_tokens))
        return tuple(found)

    def run(self, seconds: float, ending: RunOutcome = RunOutcome.COMPLETED, reason: str = "") -> BenchRun:
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
            host=host_figures(
                self.samples,
                sum(each.seconds for each in self._passes),
                sum(record.completion_tokens or 0 for record in records),
            ),
            server=side,
            checks=cross_check(side, records) if side is not None else (),
            pair=self.pair,
            lateness=distribution(self._lateness),
        )
        by_others = others(side, records) if side is not None else 0
        caveats = [*self.notes, *plan_caveats(self.plan, self.conditions), *result_caveats(found, by_others)]
        busy = self._before.total(Family.RUNNING) or 0.0
        if busy >= 1:
            caveats.append(f"The engine was busy with {busy:.0f} requests of others when the measurement began.")
        if self._words is None:
            caveats.append("The server cannot tokenize: prompt lengths are near what was asked for, not exact.")
        return replace(found, caveats=tuple(dict.fromkeys(caveats)))


async def page_of(driver: LoadDriver, metrics: MetricsSource, endpoint: Endpoint | None) -> MetricPage:
    """The page of vLLM, whose counters count what ours count; empty for others, and without one."""
    if driver.simulated or endpoint is None or runtime_named(endpoint.runtime) is not VLLM:
        return EMPTY_PAGE
    try:
        return await metrics.read(endpoint)
    except SparkError:
        return EMPTY_PAGE


# --- progress ---------------------------------------------------------------------------------------------


class BenchStep(StrEnum):
    LAUNCHING = "launching"
    PREPARING = "preparing"
    WARM_UP = "warming up"
    MEASURING = "measuring"
    DONE = "done"


class BenchProgress(Struct, frozen=True):
    """How far a benchmark is. `done` and `total` count segments; `requests_done`, `requests_running` and
    `requests_total` are those of this segment, `rate` the pieces that came per second just now (tokens, where the
    engine does not speculate). `runs` holds what was measured so far, a run per engine. `seconds_left` is a guess from
    the segments that are over, None before there is one. `detail` is how far a launch is, `measured` the id of the run
    that has the last segment."""

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
    measured: str = ""

    def run_of(self, engine: str) -> BenchRun | None:
        """What an engine has so far; of one that is compared with itself, the variant that was measured last."""
        runs = [run for run in self.runs if run.conditions.engine == engine]
        return next((run for run in runs if run.id == self.measured), next(iter(runs), None))


OnProgress = Callable[[BenchProgress], None]

# --- memory -----------------------------------------------------------------------------------------------

SAMPLE_SECONDS: Final = 1.0
STRIKES: Final = 3
"""Samples in a row below the floor before a run is stopped: as the memory guard's, and before it acts."""


def check_memory(memory: MemInfo | None, floor: int) -> None:
    """Raises RefusedError when there is too little memory to begin. Bytes."""
    if memory is not None and memory.usable < floor:
        raise RefusedError(
            f"Only {gib(memory.usable)} GiB of memory is usable, less than the guard's floor of {gib(floor)} GiB: load "
            "could end in a freeze.",
            "Stop another engine first, or lower guard_serving_gib in the settings.",
        )


class HostWatch(Struct, eq=False):
    """Adds to `samples`, which may be exchanged while it watches. Sets `stop` when memory is short, and `reason`."""

    _host: HostProbe
    _gpu: GpuProbe
    _clock: Clock
    _floor: int
    _stop: asyncio.Event
    samples: list[HostSample] = []
    reason: str = ""
    _low: int = 0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            await end_tasks(task)

    async def _run(self) -> None:
        while True:
            memory, gpu = self._host.memory(), await self._gpu.read()
            found, device = value_of(memory), gpu.value if isinstance(gpu, Ok) else None
            self.samples.append(
                HostSample(
                    at=self._clock.monotonic(),
                    usable_bytes=found.usable if found else None,
                    used_bytes=found.used if found else None,
                    power_watts=device.power_watts if device else None,
                    temperature_c=device.temperature_c if device else None,
                    sm_clock_mhz=device.sm_clock_mhz if device else None,
                    utilization_percent=device.utilization_percent if device else None,
                )
            )
            if found is not None and isinstance(memory, Ok):
                self._low = self._low + 1 if found.usable < self._floor else 0
                if self._low >= STRIKES and not self._stop.is_set():
                    below = f"below the guard's floor of {gib(self._floor)} GiB"
                    self.reason = f"available memory fell to {gib(found.usable)} GiB, {below}"
                    self._stop.set()
            await self._clock.sleep(SAMPLE_SECONDS)


# --- the engine -------------------------------------------------------------------------------------------

ENDING_SECONDS: Final = 10.0
"""What does not answer any more may be about to end, and its log with it."""


class EngineCheck:
    """Whether the engines of a measurement stay the same processes from `begin` to its end. One that ended is started
    again if this `restores`. Sets `stop` as soon as one is gone."""

    def __init__(self, bench: Benchmark, stop: asyncio.Event, *, restores: bool = True) -> None:
        self._bench = bench
        self._stop = stop
        self._restores = restores
        self._begun: list[tuple[EngineWatch, ContainerFacts, MetricPage]] = []

    async def begin(self, *names: str) -> None:
        """These are measured from now on, as they run now."""
        watches = [await self._bench.supervisor.watch(name) for name in names]
        self._begun = [
            (watch, watch.container, await page_of(self._bench.driver, self._bench.metrics, watch.endpoint))
            for watch in watches
        ]

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Raises MeasurementVoid at the end, or in place of another error, where one is not the same or does not answer
        any more."""
        failure: SparkError | None = None
        task = asyncio.create_task(self._watch())
        try:
            yield
        except SparkError as error:
            failure = error
        finally:
            await end_tasks(task)
        lost = failure.summary if isinstance(failure, UnreachableError) else ""
        engine, done = self._begun[0][1].name, ""
        for watch, before, page in self._begun:
            silent = await self._silent(watch, page)
            if why := await self._gone(before) or silent:
                engine, lost = before.name, f"{before.name} {why}."
                done += f"{await self._restored(watch, before)} " if self._restores else ""
        if lost:
            done += by_front_end(f"Read why: {key_of('show_logs')}", f"Read why: spark-tui logs {engine}")
            raise MeasurementVoid(f"Void: {lost} Nothing is kept.", done, engine=engine) from failure
        if failure is not None:
            raise failure

    async def _watch(self) -> None:
        while not self._stop.is_set():
            await self._bench.clock.sleep(SAMPLE_SECONDS)
            if any([await self._gone(before) for _, before, _ in self._begun]):
                self._stop.set()

    async def _gone(self, before: ContainerFacts) -> str:
        """What became of its process; empty where it runs, or Docker is silent: then its server is asked at the end."""
        try:
            now = (await self._bench.supervisor.watch(before.id)).container
        except SparkError as error:
            return "is gone" if isinstance(error, ContainerNotFound) else ""
        if not now.running:
            return f"ended (exit code {now.exit_code})"
        return "was restarted" if now.start != before.start else ""

    async def _silent(self, watch: EngineWatch, page: MetricPage) -> str:
        """What its server says at the end; empty where it may be the same, or is late."""
        if (health := await watch.check_health()) in (Health.NOT_LISTENING, Health.DEAD):
            return f"does not answer any more: {health.value}"
        again = restarted(page, await page_of(self._bench.driver, self._bench.metrics, watch.endpoint))
        return "was restarted: its counters began again" if again else ""

    async def _restored(self, watch: EngineWatch, before: ContainerFacts) -> str:
        """Starts again what ended by itself; says what was done."""
        now = watch.container
        if now.running and (now.start != before.start or await watch.check_health() is Health.OK):
            return f"{before.name} runs again."
        await pause(self._bench.clock, ENDING_SECONDS, watch.log_read)
        await self._gone(before)
        if watch.container.name != before.name or await watch.was_stopped():
            return f"{before.name} was stopped, and stays stopped."
        try:
            await self._bench.supervisor.restart(before.id, settle=self._bench.gate.await_return)
        except SparkError as error:
            return f"{before.name} could not be started again: {error.summary}"
        return f"{before.name} was started again."


# --- the runner -------------------------------------------------------------------------------------------

END_SECONDS: Final = 20.0
"""How long a cancelled benchmark may take to end."""
RESTORE_SECONDS: Final = 90.0
"""The same for one that launches: the engine of before is started again."""
SETTLE_SECONDS: Final = 0.5
"""After the last answer the server still counts it."""
MOST_SILENT: Final = 2
"""Segments in a row without a single answer after which a running engine is taken for dead; a launched one: 1."""


class Benchmark(Struct, frozen=True):
    """Measures, and keeps the results. `memory_floor` in bytes."""

    driver: LoadDriver
    metrics: MetricsSource
    docker: ContainerEngine
    host: HostProbe
    gpu: GpuProbe
    supervisor: EngineSupervisor
    launcher: Launcher
    results: Results
    clock: Clock
    memory_floor: int
    state: StateFiles
    gate: MemoryGate
    editor: Callable[[], Editor]

    @classmethod
    def from_context(cls, context: Context) -> Benchmark:
        return cls(
            context[LoadDriver],
            context.ports.metrics,
            context.docker,
            context.host,
            context.ports.gpu,
            context[EngineSupervisor],
            context[Launcher],
            context[Results],
            context.clock,
            guard_policy(context).serving_floor,
            context.ports.state,
            context[MemoryGate],
            lambda: context[Editor],
        )

    async def run(
        self,
        variants: Sequence[Variant],
        plan: BenchPlan,
        report: OnProgress,
        *,
        stop: asyncio.Event | None = None,
        per_launch: int = 1,
    ) -> tuple[BenchRun, ...]:
        """Measures one engine, or two in turn (A B, B A, A B ...) with the same prompts, and keeps the results.

        Variants with a request are launched for their turns of `per_launch` passes; the first one runs when this is
        called and is started again at the end. Where the second one never came to serve, only the first one's run is
        returned.

        Setting `stop`, or cancelling the task, ends it early; what was measured by then is kept as well, and a
        cancelled task still ends with CancelledError. Raises MeasurementVoid, and keeps nothing, where an engine ended
        or was restarted meanwhile: one that ended runs again. Raises UsageError for a senseless plan, ContextOverflow
        for one that the engine's context cannot hold, EngineUnreachable and the like when it cannot be asked at all,
        RefusedError when memory is short already, and a launch's error when nothing was measured by then.
        """
        ended = stop or asyncio.Event()
        check_plan(plan)
        check_memory(value_of(self.host.memory()), self.memory_floor)
        run = _Run(self, variants, plan, report, ended, per_launch)
        names = set()
        for variant in variants:
            with suppress(ContainerNotFound):  # it is still to be launched
                names.add((await self.supervisor.watch(variant.name)).container.name)
        with self.claim(*names):
            return await finish_when_cancelled(run.work(), ended, RESTORE_SECONDS if run.launches else END_SECONDS)

    @contextmanager
    def claim(self, *names: str) -> Iterator[None]:
        """Meanwhile other programs ask before they disturb these engines."""
        claimed = [name for name in names if self.state.claim(MEASURES + name)]
        try:
            yield
        finally:
            for name in claimed:
                self.state.release(MEASURES + name)

    async def session(self, name: str, plan: BenchPlan, salt: int, at: float) -> BenchSession:
        """A session with an engine that serves. Raises as `run`."""
        endpoint, conditions = await self.target(name)
        check_context(plan, conditions.context_tokens)
        return BenchSession(self.driver, self.metrics, endpoint, plan, conditions, at=at, salt=salt)

    async def target(self, name: str) -> tuple[Endpoint, Conditions]:
        """The address of an engine, and everything that decides its figures. Raises the error that says why it cannot
        be asked."""
        watch = await self.supervisor.watch(name)
        endpoint, health = await watch.reach()
        await watch.settled()
        view = watch.view()
        image = view.container.image_id or view.container.image
        if health is not Health.OK or not view.served_name:
            raise watch.not_ready(health)
        served = next((model for model in view.models if model.id == view.served_name), None)
        return endpoint, conditions_of(
            view,
            host=self.host.identity(),
            image=await self.docker.image(image) if image else None,
            gpu=value_of(await self.gpu.read()),
            now=self.clock.now(),
            tool_version=spark_tui.__version__,
            python=platform.python_version(),
            context=served.max_model_len if served else None,
            bandwidth=measured_bandwidth(self.state, view.container.listed(LABEL_NODES)),
            simulated=self.driver.simulated,
        )


class _Run:
    """One benchmark under way. `launches`: its variants are started for their turns."""

    def __init__(
        self,
        bench: Benchmark,
        variants: Sequence[Variant],
        plan: BenchPlan,
        report: OnProgress,
        stop: asyncio.Event,
        per_launch: int,
    ) -> None:
        self.launches = all(variant.request is not None for variant in variants)
        self._bench = bench
        self._variants = tuple(variants)
        self._plan = plan
        self._report = report
        self._stop = stop
        self._per_launch = per_launch
        self._clock = bench.clock
        self._host = HostWatch(bench.host, bench.gpu, bench.clock, bench.memory_floor, stop)
        self._check = EngineCheck(bench, stop, restores=not self.launches)
        self._salt = random.SystemRandom().getrandbits(32)
        self._at = bench.clock.now()
        self._began = bench.clock.monotonic()
        self._sessions: list[BenchSession] = []
        self._silent: dict[str, int] = {}
        self._up: int | None = 0
        """The launched variant that runs; None while none is known to."""
        self._progress = BenchProgress(
            BenchStep.PREPARING, self._variants[0].name, total=len(segments(plan)) * len(self._variants)
        )
        self._measuring_since = 0.0
        self._last_tick = (0.0, 0)

    async def work(self) -> tuple[BenchRun, ...]:
        failure: SparkError | None = None
        with await self._promise():
            try:
                await (self._measure_launched() if self.launches else self._measure_running())
            except MeasurementVoid as error:
                failure, error.variant, self._up = error, self._up or 0, None
            except SparkError as error:
                failure = error
            finally:
                await self._bench.driver.close()
                await self._restore()
        measured = any(run.levels for run in self._progress.runs)
        if failure is not None and (not measured or isinstance(failure, MeasurementVoid)):
            raise failure
        ending, reason = RunOutcome.COMPLETED, ""
        if self._stop.is_set():
            ending = RunOutcome.STOPPED if self._host.reason else RunOutcome.CANCELLED
            reason = self._host.reason or "stopped before its end"
        elif failure is not None:
            ending, reason = RunOutcome.FAILED, failure.summary
        runs = tuple(session.run(self._seconds, ending, reason) for session in self._sessions)
        for run in runs if measured else ():
            self._bench.results.keep(run)
        self._publish(step=BenchStep.DONE, runs=runs)
        return runs

    # --- in turn --------------------------------------------------------------------------------------

    def _turns(self) -> Iterator[tuple[int, list[Segment]]]:
        """Which variant measures what, one after the other: A B, B A, A B ... by segments, or by passes where each turn
        may be a launch. What drifts in one direction then favours neither."""
        planned = segments(self._plan)
        groups = [[segment] for segment in planned]
        if self.launches:
            begins = range(1, self._plan.passes + 1, self._per_launch)
            groups = [[each for each in planned if 0 <= each.number - first < self._per_launch] for first in begins]
        order = list(range(len(self._variants)))
        for number, group in enumerate(groups):
            for at in order[:: -1 if number % 2 else 1]:
                yield at, group

    async def _measure_running(self) -> None:
        for variant in self._variants:
            await self._open(variant)
        if len({session.endpoint.base_url for session in self._sessions}) < len(self._sessions):
            raise UsageError("The two engines are one and the same.", "Name another one for the comparison.")
        await self._check.begin(*(variant.name for variant in self._variants))
        async with self._host.watching(), self._check.watching():
            for session in self._sessions:
                await self._prepare(session)
                await session.begin()
            for at, group in self._turns():
                await self._segments(self._sessions[at], group)
            await self._clock.sleep(SETTLE_SECONDS)
            for session in self._sessions:
                await session.end()

    async def _promise(self) -> AbstractContextManager[None]:
        """What ran before comes back also where this program ends before its end."""
        first, second = self._variants[0], self._variants[-1]
        if first.request is None or second.request is None:
            return nullcontext()
        watch = await self._bench.supervisor.watch(first.name)
        return self._bench.editor().promised(watch.view(), first.request, second.request, second.name)

    async def _measure_launched(self) -> None:
        await self._open(self._variants[0])
        fresh = True
        for at, group in self._turns():
            if self._stop.is_set():
                return
            if self._up != at:
                self._up, fresh = None, True
                launching = await unless_stopped(self._bring_up(at), self._stop)
                if launching.cancelled():
                    return
                launching.result()
                self._up = at
            if at == len(self._sessions):
                await self._open(self._variants[at])
                for session, variant, mark in zip(self._sessions, self._variants, "AB", strict=True):
                    session.notes.append(
                        f"This is {mark} of an A/B: {variant.what}. The engine was restarted between passes, which "
                        "reset its counters."
                    )
            if fresh:
                await self._check.begin(self._variants[at].name)
            async with self._host.watching(), self._check.watching():
                if fresh:
                    await self._prepare(self._sessions[at])
                fresh = False
                await self._segments(self._sessions[at], group)

    async def _open(self, variant: Variant) -> None:
        self._sessions.append(await self._bench.session(variant.name, self._plan, self._salt, self._at))
        if len(self._sessions) == 2:
            one, two = self._sessions
            one.pair, two.pair = two.id, one.id

    async def _prepare(self, session: BenchSession) -> None:
        self._publish(step=BenchStep.PREPARING, engine=session.name)
        context = await session.prepare()
        if context is not None and session.conditions.context_tokens is None:
            session.conditions = replace(session.conditions, context_tokens=context)
        check_context(session.plan, session.conditions.context_tokens)
        self._publish(step=BenchStep.WARM_UP, engine=session.name)
        await session.warm_up(self._stop, lambda _: None)

    async def _segments(self, session: BenchSession, group: Sequence[Segment]) -> None:
        """Measures them. Raises EngineUnreachable for an engine that answers nothing any more."""
        for segment in group:
            if self._stop.is_set():
                return
            self._measuring_since = self._measuring_since or self._clock.monotonic()
            self._last_tick = (self._clock.monotonic(), 0)
            self._publish(
                step=BenchStep.MEASURING,
                engine=session.name,
                segment=segment,
                rate=None,
                requests_done=0,
                requests_running=0,
                requests_total=segment.requests,
            )
            self._host.samples = session.samples
            done = await session.measure(segment, self._stop, self._tick)
            self._publish(
                done=self._progress.done + 1,
                requests_done=0,
                requests_running=0,
                measured=session.id,
                runs=tuple(each.run(self._seconds) for each in self._sessions),
            )
            silent = bool(done.records) and not any(record.chunks for record in done.records)
            self._silent[session.id] = self._silent.get(session.id, 0) + 1 if silent else 0
            if self._silent[session.id] >= (1 if self.launches else MOST_SILENT) and not self._stop.is_set():
                raise EngineUnreachable(
                    f"{session.name} does not answer any more: {done.records[0].error or 'no answer'}.",
                    f"Read why: spark-tui logs {session.name}",
                )

    # --- launches -------------------------------------------------------------------------------------

    async def _bring_up(self, wanted: int) -> None:
        variant = self._variants[wanted]

        def follow(step: Step) -> None:
            if step.state is StepState.RUNNING:
                self._publish(
                    step=BenchStep.LAUNCHING, engine=variant.name, detail=f"{step.label} {step.detail}".strip()
                )

        self._publish(step=BenchStep.LAUNCHING, engine=variant.name, detail=variant.what)
        await self._stop_other(wanted)
        if variant.request is not None:
            await self._bench.launcher.launch(variant.request, follow)

    async def _stop_other(self, wanted: int) -> None:
        """Stops the other container; one of the same name is replaced by the launch itself."""
        supervisor = self._bench.supervisor
        await supervisor.refresh()  # the last launch may have made another container of that name
        other = self._variants[1 - wanted].name
        watch = supervisor.find(other)
        if other != self._variants[wanted].name and watch is not None and watch.container.running:
            await supervisor.stop(other)

    async def _restore(self) -> None:
        """Starts the engine of before again, and does not wait until it serves."""
        variant = self._variants[0]
        if self._up == 0 or variant.request is None:
            return
        self._publish(step=BenchStep.LAUNCHING, engine=variant.name, detail="starts again as it was")
        try:
            await self._stop_other(0)
            request = replace(variant.request, wait=False, warm=False, force=True)
            await self._bench.launcher.launch(request, lambda _: None)
        except SparkError as error:
            for session in self._sessions:
                session.notes.append(f"{variant.name} could not be started again as it was: {error.summary}")
            self._bench.supervisor.say(f"{variant.name} was not started again after the A/B: {error.summary}")

    # --- progress -------------------------------------------------------------------------------------

    @property
    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began

    def _tick(self, tick: Tick) -> None:
        now, rate = self._clock.monotonic(), self._progress.rate
        at, pieces = self._last_tick
        if now > at:
            latest = max(0.0, (tick.pieces - pieces) / (now - at))
            rate = latest if rate is None else 0.7 * rate + 0.3 * latest
            self._last_tick = (now, tick.pieces)
        self._publish(rate=rate, requests_done=tick.done, requests_running=tick.running)

    def _publish(self, *, detail: str = "", **changes: Any) -> None:
        found = replace(self._progress, detail=detail, seconds=self._seconds, **changes)
        left = None
        if found.done:
            left = (self._clock.monotonic() - self._measuring_since) / found.done * (found.total - found.done)
        self._progress = replace(found, seconds_left=left)
        self._report(self._progress)


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> asyncio.Task[T]:
    """The work as a task that has ended, cancelled where `stop` was set before: a launch takes minutes."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(working, stopped)
    return working


async def finish_when_cancelled(work: Coroutine[None, None, T], stop: asyncio.Event, seconds: float) -> T:
    """Runs the work in a task of its own. A cancelled caller sets `stop` and waits up to `seconds` for its end."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        try:
            await asyncio.wait((task,), timeout=seconds)
        finally:  # a caller that is cancelled a second time leaves no task behind
            await end_tasks(task)
        raise
