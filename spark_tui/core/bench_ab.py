"""Two launches measured in turn on a box that holds only one of them at a time."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_tui.core.bench import (
    Benchmark,
    BenchReporter,
    BenchSession,
    HostWatch,
    OnProgress,
    new_salt,
    not_answering,
    to_its_end,
)
from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.jobs import Step, StepState
from spark_tui.core.launch import Launcher, LaunchRequest, launched_with
from spark_tui.core.preflight import Preflight
from spark_tui.domain.bench.plan import BenchPlan, Segment, segments
from spark_tui.domain.bench.run import BenchRun
from spark_tui.domain.engine.state import Exposure
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.domain.presets.preset import Preset, PresetCatalogue
from spark_tui.domain.settings import ExposureChoice
from spark_tui.services.ports import Clock

_CONTAINER: Final = "container="


def running_engine(other: str) -> str:
    """The container of an A/B with `container=NAME`, which runs already; empty for any other comparison."""
    return other.removeprefix(_CONTAINER).strip() if other.startswith(_CONTAINER) else ""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two. `name` is its container's, `request` brings it up, `what` tells it apart in a few words."""

    name: str
    request: LaunchRequest
    what: str


class ABPlanner:
    """Plans such comparisons; changes nothing."""

    def __init__(self, catalogue: Callable[[], PresetCatalogue], preflight: Preflight) -> None:
        self._catalogue = catalogue
        self._preflight = preflight

    def plan(self, view: EngineView, other: str) -> tuple[Side, Side]:
        """A running engine as it is, and `other`: changes of its launch (`max_num_seqs=8 image=vllm:nightly`), or the
        name of a preset. Raises RefusedError or UsageError, with the way out, for what cannot be launched."""
        preset, now = self._launched(view)
        first = Side(view.name, LaunchRequest(preset, now, replace_running=True), "current settings")
        second = self._changed(view, preset, other) if "=" in other else self._preset(other)
        before = self._preflight.dry_plan(preset, now)
        after = self._preflight.dry_plan(second.request.preset, second.request.overrides)
        if replace(before.spec, labels=()) == replace(after.spec, labels=()):
            raise UsageError(f"{view.name} already uses {other}.", "Give another value, or another preset.")
        return first, second

    def _launched(self, view: EngineView) -> tuple[Preset, Overrides]:
        container = view.container
        if not container.ours:
            raise RefusedError(
                f"Not started by spark-tui: {view.name}. It cannot be restarted for an A/B.",
                "Compare it with another serving engine, or launch it from a preset.",
            )
        preset = self._catalogue().get(container.preset)
        if preset is None:
            raise RefusedError(
                f"The preset {container.preset} of {view.name} is not available.",
                "Launch it from another preset: spark-tui presets list",
            )
        pairs = launched_with(container)
        return preset, self._where_it_is(view, overrides_from_pairs(pairs))

    def _where_it_is(self, view: EngineView, overrides: Overrides) -> Overrides:
        lan = view.exposure in (Exposure.LAN, Exposure.LAN_NO_KEY)
        return replace(
            overrides, name=view.name, port=view.port, exposure=ExposureChoice.LAN if lan else ExposureChoice.LOCAL,
            api_key=bool(view.container.api_key_file),
        )  # fmt: skip

    def _changed(self, view: EngineView, preset: Preset, text: str) -> Side:
        try:
            words = shlex.split(text)
        except ValueError:
            raise UsageError(f"A quote in {text} is not closed.", "Write for example: max_num_seqs=8") from None
        changes = pairs_from(words)
        for key in ("name", "port", "exposure", "api_key"):
            if key in changes:
                raise UsageError(
                    f"{key} does not affect performance.", "Compare a setting of the engine: max_num_seqs=8"
                )
        if image := changes.pop("image", ""):
            preset = replace(preset, image=image)
        overrides = overrides_from_pairs({**launched_with(view.container), **changes})
        request = LaunchRequest(preset, self._where_it_is(view, overrides), replace_running=True)
        return Side(view.name, request, " ".join(words))

    def _preset(self, name: str) -> Side:
        preset = self._catalogue().get(name)
        if preset is None:
            raise UsageError(
                f"{name} is neither a serving engine nor a preset.",
                "Give a preset, container=NAME, image=IMAGE, or a setting: max_num_seqs=8",
            )
        return Side(preset.name, LaunchRequest(preset, Overrides(), replace_running=True), f"preset {preset.name}")


BACK_SECONDS: Final = 90.0
"""How long a program that is left waits until the engine of before is on its way again."""


def starts_of(plan: BenchPlan) -> int:
    """How often an engine is started: once in each pass, and once more where the last one to be measured is not the
    one that ran before."""
    return plan.passes + plan.passes % 2


class ABRunner:
    """Compares launches. One object serves many."""

    def __init__(
        self, benchmark: Benchmark, launcher: Launcher, supervisor: EngineSupervisor, sides: ABPlanner, clock: Clock
    ) -> None:
        self._benchmark = benchmark
        self._launcher = launcher
        self._supervisor = supervisor
        self._sides = sides
        self._clock = clock

    def sides(self, view: EngineView, other: str) -> tuple[Side, Side]:
        """See ABPlanner.plan."""
        return self._sides.plan(view, other)

    async def run(
        self, sides: tuple[Side, Side], plan: BenchPlan, report: OnProgress, *, stop: asyncio.Event | None = None
    ) -> tuple[BenchRun, ...]:
        """Measures both, and keeps the results; of one alone where the other one never came to serve.

        The first side runs when this is called. Ends, keeps and raises as `Benchmark.run`; raises the launch's error
        when nothing was measured by then.
        """
        ended = stop or asyncio.Event()
        return await to_its_end(self._work(sides, plan, report, ended), ended, BACK_SECONDS)

    async def _work(
        self, sides: tuple[Side, Side], plan: BenchPlan, report: OnProgress, stop: asyncio.Event
    ) -> tuple[BenchRun, ...]:
        box = self._benchmark.begin(plan, stop)
        first = await self._benchmark.session(sides[0].name, plan, new_salt(), self._clock.now())
        turn = _ABRun(
            self, self._benchmark, sides, first, BenchReporter([first], report, self._clock, sides=2), box, stop
        )
        failure: SparkError | None = None
        try:
            await turn.all()
        except SparkError as error:
            failure = error
        finally:
            await self._benchmark.close()
            await self._back(turn)
        if failure is not None and not turn.reporter.measured:
            raise failure
        return self._benchmark.ended(turn.sessions, turn.reporter, failure, box.reason if stop.is_set() else None)

    async def _back(self, turn: _ABRun) -> None:
        """The engine of before starts again; nobody waits until it serves."""
        side = turn.sides[0]
        if turn.up == 0:
            return
        turn.reporter.launching(side.name, "starts again as it was")
        try:
            await self.stop_other(turn.sides, 0)
            await self._launcher.launch(replace(side.request, wait=False, warm=False, force=True), _silent)
        except SparkError as error:
            turn.note(f"{side.name} could not be started again as it was: {error.summary}")
            self._supervisor.say(f"{side.name} was not started again after the A/B: {error.summary}")

    async def stop_other(self, sides: tuple[Side, Side], wanted: int) -> None:
        """Another container that holds the memory ends; one of the same name is replaced by the launch itself."""
        await self._supervisor.refresh()  # the last launch may have made another container of that name
        other = sides[1 - wanted].name
        watch = self._supervisor.find(other)
        if other != sides[wanted].name and watch is not None and watch.container.running:
            await self._supervisor.stop(other)

    async def bring_up(self, sides: tuple[Side, Side], wanted: int, reporter: BenchReporter) -> None:
        """One side serves, and the other one has ended."""
        side = sides[wanted]

        def tell(step: Step) -> None:
            if step.state is StepState.RUNNING:
                reporter.launching(side.name, f"{step.label} {step.detail}".strip())

        reporter.launching(side.name, side.what)
        await self.stop_other(sides, wanted)
        await self._launcher.launch(side.request, tell)

    async def session(self, name: str, like: BenchSession) -> BenchSession:
        """The other side's, with the same prompts."""
        return await self._benchmark.session(name, like.plan, like.salt, self._clock.now())


class _ABRun:
    """One comparison under way. `up` is the side that runs, None while none is known to."""

    def __init__(
        self, runner: ABRunner, benchmark: Benchmark, sides: tuple[Side, Side], first: BenchSession,
        reporter: BenchReporter, box: HostWatch, stop: asyncio.Event,
    ) -> None:  # fmt: skip
        self.sides = sides
        self.sessions = [first]
        self.reporter = reporter
        self.up: int | None = 0
        self._runner = runner
        self._benchmark = benchmark
        self._box = box
        self._stop = stop
        self._fresh = True

    def note(self, text: str) -> None:
        """Has to be known of both runs."""
        for session in self.sessions:
            session.notes.append(text)

    async def all(self) -> None:
        """Every pass, each side once in it."""
        planned = segments(self.sessions[0].plan)
        for number in range(1, self.sessions[0].plan.passes + 1):
            for wanted in (0, 1) if number % 2 else (1, 0):
                if self._stop.is_set():
                    return
                await self._one(wanted, [each for each in planned if each.number == number])

    async def _one(self, wanted: int, planned: list[Segment]) -> None:
        if self.up != wanted:
            self.up, self._fresh = None, True
            if not await self._unless_stopped(self._runner.bring_up(self.sides, wanted, self.reporter)):
                return
            self.up = wanted
        session = await self._session(wanted)
        if self._fresh:
            await self._benchmark.prepare(session, self.reporter, self._stop)
            self._fresh = False
        async with self._box.watching():
            for segment in planned:
                if self._stop.is_set():
                    return
                why = await self._benchmark.segment(session, segment, self.reporter, self._box, self._stop)
                if why is not None and not self._stop.is_set():
                    raise not_answering(session, why)

    async def _session(self, wanted: int) -> BenchSession:
        if wanted == len(self.sessions):
            first = self.sessions[0]
            second = await self._runner.session(self.sides[1].name, first)
            first.pair, second.pair, second.at = second.id, first.id, first.at
            for session, side, mark in ((first, self.sides[0], "A"), (second, self.sides[1], "B")):
                session.notes.append(
                    f"This is {mark} of an A/B: {side.what}. The engine was restarted between passes, which "
                    "reset its counters."
                )
            self.sessions.append(second)
            self.reporter.joined(second)
        return self.sessions[wanted]

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether it came to its end: a launch takes minutes, and who ends the comparison does not wait for it."""
        launching, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((launching, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (launching, stopped):
                if not task.done():
                    task.cancel()
            await asyncio.gather(launching, stopped, return_exceptions=True)
        if launching.cancelled():
            return False
        launching.result()
        return True


def _silent(_: Step) -> None:
    """The steps of a launch that nobody waits for."""
