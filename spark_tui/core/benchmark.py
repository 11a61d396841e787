"""Benchmarks of engines that serve: one alone, or two in turn.

What is measured is kept whatever ends it: the person, memory that runs short, an engine that dies. Two engines are
measured in turn, segment by segment, never at the same moment: they share one pool of memory and one GPU. That needs
room for both; where there is none, measure one, launch the other, measure that, and compare the two results.
"""

from __future__ import annotations

import asyncio
import platform
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Final

import spark_tui
from spark_tui.core.bench_box import BoxWatch
from spark_tui.core.bench_progress import BenchStep, Course, OnProgress
from spark_tui.core.bench_session import BenchSession
from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.results import Results
from spark_tui.domain.bench.conditions import conditions_of
from spark_tui.domain.bench.plan import BenchPlan, Segment, check_context, check_plan, segments
from spark_tui.domain.bench.run import BenchRun, Ending
from spark_tui.domain.engine.endpoint import Endpoint, Health
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import EngineDead, EngineUnreachable, SparkError, UsageError
from spark_tui.domain.reading import value_of
from spark_tui.services.ports import Clock, ContainerEngine, GpuProbe, HostProbe
from spark_tui.services.ports_bench import LoadDriver
from spark_tui.services.ports_metrics import MetricsSource

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
        course = Course(sessions, report, self._clock)
        failure: SparkError | None = None
        try:
            async with box.watching():
                await self._measure(sessions, course, box, stop)
        except SparkError as error:
            if not course.measured:
                raise
            failure = error
        finally:
            await self.close()
        return self.ended(sessions, course, failure, box.reason if stop.is_set() else None)

    def begin(self, plan: BenchPlan, stop: asyncio.Event) -> BoxWatch:
        """Refuses what makes no sense, or has no memory; returns who watches the box."""
        check_plan(plan)
        box = BoxWatch(self._host, self._gpu, self._clock, self._floor, stop)
        box.check()
        return box

    async def close(self) -> None:
        """The helper that sends the load is there for as long as a measurement."""
        await self._driver.close()

    def ended(
        self, sessions: Sequence[BenchSession], course: Course, failure: SparkError | None, stopped: str | None
    ) -> tuple[BenchRun, ...]:
        """Keeps what was measured. `stopped` is None for what came to its end, else what the box stopped it for; empty
        when a person did."""
        ending, reason = Ending.COMPLETED, ""
        if failure is not None:
            ending, reason = Ending.FAILED, failure.summary
        if stopped is not None:
            ending = Ending.STOPPED if stopped else Ending.CANCELLED
            reason = stopped or "stopped before its end"
        runs = tuple(session.run(course.seconds, ending, reason) for session in sessions)
        if course.measured:
            for run in runs:
                self._results.keep(run)
        course.tell(BenchStep.DONE, runs=runs)
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

    async def prepare(self, session: BenchSession, course: Course, stop: asyncio.Event) -> None:
        """Learns what prompts are made of, and warms the engine up."""
        course.tell(BenchStep.PREPARING, session)
        context = await session.prepare()
        if context is not None and session.conditions.context_tokens is None:
            session.conditions = replace(session.conditions, context_tokens=context)
        check_context(session.plan, session.conditions.context_tokens)
        course.tell(BenchStep.WARM_UP, session)
        await session.warm_up(stop, lambda _: None)

    async def _measure(
        self, sessions: Sequence[BenchSession], course: Course, box: BoxWatch, stop: asyncio.Event
    ) -> None:
        for session in sessions:
            await self.prepare(session, course, stop)
            await session.begin()
        await self._segments(sessions, course, box, stop)
        await self._clock.sleep(SETTLE_SECONDS)
        for session in sessions:
            await session.end()

    async def _segments(
        self, sessions: Sequence[BenchSession], course: Course, box: BoxWatch, stop: asyncio.Event
    ) -> None:
        silent = dict.fromkeys(sessions, 0)
        for number, segment in enumerate(segments(sessions[0].plan)):
            for session in sessions if number % 2 == 0 else reversed(sessions):
                if stop.is_set():
                    return
                why = await self.segment(session, segment, course, box, stop)
                silent[session] = silent[session] + 1 if why is not None else 0
                if silent[session] >= MOST_SILENT and not stop.is_set():
                    raise not_answering(session, why or "")

    async def segment(
        self, session: BenchSession, segment: Segment, course: Course, box: BoxWatch, stop: asyncio.Event
    ) -> str | None:
        """Measures one segment. Returns why not a single request was answered; None when one was, or none was sent."""
        course.begin(session, segment)
        box.samples = session.samples
        done = await session.measure(segment, stop, course.tick)
        course.end()
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
        await asyncio.wait((task,), timeout=seconds)
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
