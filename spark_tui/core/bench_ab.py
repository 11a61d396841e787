"""Two launches measured in turn on a box that holds only one of them at a time."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_tui.core.bench import (
    Benchmark,
    BenchSession,
    BoxWatch,
    Course,
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


@dataclass(frozen=True, slots=True)
class Side:
    """One of two. `name` is its container's, `request` brings it up, `what` tells it apart in a few words."""

    name: str
    request: LaunchRequest
    what: str


class Sides:
    """Plans such comparisons; changes nothing."""

    def __init__(self, catalogue: Callable[[], PresetCatalogue], preflight: Preflight) -> None:
        self._catalogue = catalogue
        self._preflight = preflight

    def plan(self, view: EngineView, other: str) -> tuple[Side, Side]:
        """A running engine as it is, and `other`: changes of its launch (`max_num_seqs=8 kv_cache_dtype=fp8`), or the
        name of a preset. Raises RefusedError or UsageError, with the way out, for what cannot be launched."""
        preset, now = self._launched(view)
        first = Side(view.name, LaunchRequest(preset, now, replace_running=True), "as it runs now")
        second = self._changed(view, preset, other) if "=" in other else self._preset(other)
        before = self._preflight.dry_plan(preset, now)
        after = self._preflight.dry_plan(second.request.preset, second.request.overrides)
        if replace(before.spec, labels=()) == replace(after.spec, labels=()):
            raise UsageError(f"{other} changes nothing: {view.name} runs so.", "Give another value, or another preset.")
        return first, second

    def _launched(self, view: EngineView) -> tuple[Preset, Overrides]:
        container = view.container
        if not container.ours:
            raise RefusedError(
                f"spark-tui did not start {view.name}, and cannot start it anew.",
                "Compare it with another engine that serves, or launch it from a preset.",
            )
        preset = self._catalogue().get(container.preset)
        if preset is None:
            raise RefusedError(
                f"The preset {container.preset}, from which {view.name} was launched, is not here.",
                "Launch it from a preset that is: spark-tui presets list",
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
                raise UsageError(f"`{key}` changes no figure.", "Compare a setting of the engine: max_num_seqs=8")
        overrides = overrides_from_pairs({**launched_with(view.container), **changes})
        request = LaunchRequest(preset, self._where_it_is(view, overrides), replace_running=True)
        return Side(view.name, request, " ".join(words))

    def _preset(self, name: str) -> Side:
        preset = self._catalogue().get(name)
        if preset is None:
            raise UsageError(
                f"{name} is no engine that serves, and no preset.",
                "Name one of them, or a change of this engine's launch: max_num_seqs=8",
            )
        return Side(preset.name, LaunchRequest(preset, Overrides(), replace_running=True), f"preset {preset.name}")


BACK_SECONDS: Final = 90.0
"""How long a program that is left waits until the engine of before is on its way again."""


def starts_of(plan: BenchPlan) -> int:
    """How often an engine is started: once in each pass, and once more where the last one to be measured is not the
    one that ran before."""
    return plan.passes + plan.passes % 2


class Turns:
    """Compares launches. One object serves many."""

    def __init__(
        self, benchmark: Benchmark, launcher: Launcher, supervisor: EngineSupervisor, sides: Sides, clock: Clock
    ) -> None:
        self._benchmark = benchmark
        self._launcher = launcher
        self._supervisor = supervisor
        self._sides = sides
        self._clock = clock

    def sides(self, view: EngineView, other: str) -> tuple[Side, Side]:
        """See Sides.plan."""
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
        turn = _Turn(self, self._benchmark, sides, first, Course([first], report, self._clock, sides=2), box, stop)
        failure: SparkError | None = None
        try:
            await turn.all()
        except SparkError as error:
            failure = error
        finally:
            await self._benchmark.close()
            await self._back(turn)
        if failure is not None and not turn.course.measured:
            raise failure
        return self._benchmark.ended(turn.sessions, turn.course, failure, box.reason if stop.is_set() else None)

    async def _back(self, turn: _Turn) -> None:
        """The engine of before starts again; nobody waits until it serves."""
        side = turn.sides[0]
        if turn.up == 0:
            return
        turn.course.launching(side.name, "starts again as it was")
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

    async def bring_up(self, sides: tuple[Side, Side], wanted: int, course: Course) -> None:
        """One side serves, and the other one has ended."""
        side = sides[wanted]

        def tell(step: Step) -> None:
            if step.state is StepState.RUNNING:
                course.launching(side.name, f"{step.label} {step.detail}".strip())

        course.launching(side.name, side.what)
        await self.stop_other(sides, wanted)
        await self._launcher.launch(side.request, tell)

    async def session(self, name: str, like: BenchSession) -> BenchSession:
        """The other side's, with the same prompts."""
        return await self._benchmark.session(name, like.plan, like.salt, self._clock.now())


class _Turn:
    """One comparison under way. `up` is the side that runs, None while none is known to."""

    def __init__(
        self, turns: Turns, benchmark: Benchmark, sides: tuple[Side, Side], first: BenchSession, course: Course,
        box: BoxWatch, stop: asyncio.Event,
    ) -> None:  # fmt: skip
        self.sides = sides
        self.sessions = [first]
        self.course = course
        self.up: int | None = 0
        self._turns = turns
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
            if not await self._unless_stopped(self._turns.bring_up(self.sides, wanted, self.course)):
                return
            self.up = wanted
        session = await self._session(wanted)
        if self._fresh:
            await self._benchmark.prepare(session, self.course, self._stop)
            self._fresh = False
        async with self._box.watching():
            for segment in planned:
                if self._stop.is_set():
                    return
                why = await self._benchmark.segment(session, segment, self.course, self._box, self._stop)
                if why is not None and not self._stop.is_set():
                    raise not_answering(session, why)

    async def _session(self, wanted: int) -> BenchSession:
        if wanted == len(self.sessions):
            first = self.sessions[0]
            second = await self._turns.session(self.sides[1].name, first)
            first.pair, second.pair, second.at = second.id, first.id, first.at
            for session, side, mark in ((first, self.sides[0], "A"), (second, self.sides[1], "B")):
                session.notes.append(
                    f"This is {mark} of an A/B: {side.what}. The engine was started anew between passes, and its own "
                    "counters with it."
                )
            self.sessions.append(second)
            self.course.joined(second)
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
