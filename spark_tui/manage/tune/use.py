"""A measured search for better settings of a preset, one trial after the other, and the engine of before at its end.

What was found is written down before and after each trial: a search that was cut off is resumed, or dropped, and the
engine of before comes back either way.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.invocation import SETTABLE, TOOLS
from spark_tui.base.errors import MeasurementVoid, RefusedError, SparkError, UsageError
from spark_tui.base.executors import end_tasks, in_thread
from spark_tui.base.finding import Severity, value_of
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.jobs import Step, StepState
from spark_tui.base.journal import Journal
from spark_tui.base.ports import CheckpointSource, Clock, StateFiles
from spark_tui.base.quantities import human_duration
from spark_tui.catalog.fit.model.draft import Draft
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.use.draft import Drafts
from spark_tui.catalog.fit.use.fit import LaunchChecks, MemoryGate, WillNotFit
from spark_tui.catalog.presets.model.command import settable, tool_calls_of
from spark_tui.catalog.presets.model.dialects.recipe_files import comment, sub_table, to_sparkrun, with_value, yaml_text
from spark_tui.catalog.presets.model.overrides import Overrides, all_pairs, overrides_from_pairs
from spark_tui.catalog.presets.model.preset import MappingValue, Preset, PresetCatalogue
from spark_tui.catalog.presets.model.rules.context import given_settings
from spark_tui.catalog.presets.use.imports import RecipeStore
from spark_tui.catalog.presets.use.rights import catalogue
from spark_tui.manage.tune.model import (
    PASSES,
    PER_LAUNCH,
    Ladder,
    Trial,
    TrialOutcome,
    TuneGoal,
    best_settings,
    clearly_worse,
    context_outcome,
    ladders,
    load_of,
    next_trial,
    outcome_of,
)
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.results.model.compare import compare
from spark_tui.observe.results.model.run import BenchRun, RunOutcome
from spark_tui.run.launch.use.launch import DEFAULT_READY_TIMEOUT_SECONDS, Launcher, LaunchRequest, request_of
from spark_tui.use.bench.use.ab import ABPlanner, Variant
from spark_tui.use.bench.use.bench import (
    RESTORE_SECONDS,
    Benchmark,
    BenchProgress,
    BenchStep,
    finish_when_cancelled,
    unless_stopped,
)

DEFAULT_MINUTES: Final = 120.0
WATCH_SECONDS: Final = 0.5
LEAST_PATIENCE: Final = 120.0
"""For a start or a measurement of a trial, however fast the baseline was."""
START_FACTOR, MEASURE_FACTOR = 3, 10
"""A trial that takes this many times as long as the baseline hangs."""
NOTHING_LEFT, TIME_OVER = "nothing is left to try", "the time is over"
RESUME: Final = "Continue it: spark-tui tune {name} --resume\nDrop it: spark-tui tune {name} --discard"


class TuneRecord(Struct, frozen=True):
    """A search as it is written down. Times in seconds; `limit` is what it may take in all, `spent` what it took.

    `settings` are the pairs of the launch that is the baseline, `share` the number of an automatic memory share, and
    `given` all settings as its command has them. `ran`: the engine served before; `stopped` are engines that make room
    for it. `under_way` is the key and value of the trial that was begun last. `context_limit`: the model's, in tokens.
    """

    preset: str
    engine: str
    goal: TuneGoal
    limit: float
    streams: int
    input_tokens: int
    output_tokens: int
    at: float
    settings: Mapping[str, str]
    share: float | None
    given: Mapping[str, str]
    takes: tuple[str, ...]
    ran: bool
    context_limit: int | None = None
    stopped: tuple[str, ...] = ()
    spent: float = 0.0
    trials: tuple[Trial, ...] = ()
    under_way: tuple[str, str] | None = None
    finished: bool = False
    ended: str = ""

    @property
    def searched(self) -> tuple[Ladder, ...]:
        return ladders(self.goal, self.given, self.takes, context_limit=self.context_limit, streams=self.streams)


class TuneProgress(Struct, frozen=True):
    """How far a search is: the trial under way, and how far its benchmark or a launch is."""

    record: TuneRecord
    spent: float
    trial: tuple[str, str] | None = None
    bench: BenchProgress | None = None
    detail: str = ""


OnTune = Callable[[TuneProgress], None]


class Tuner(Struct, eq=False):
    """Plans searches, runs them one at a time, and saves what they found. `acts` reads what the memory guard did."""

    benchmark: Benchmark
    planner: ABPlanner
    launcher: Launcher
    supervisor: EngineSupervisor
    checks: LaunchChecks
    gate: MemoryGate
    checkpoints: CheckpointSource
    history: History
    catalogue: Callable[[], PresetCatalogue]
    recipes: RecipeStore | None
    drafts: Drafts
    journal: Journal[TuneRecord]
    clock: Clock
    acts: Callable[[], tuple[GuardEntry, ...]] = tuple

    @classmethod
    def from_context(cls, context: Context) -> Tuner:
        return cls(
            context[Benchmark],
            context[ABPlanner],
            context[Launcher],
            context[EngineSupervisor],
            context[LaunchChecks],
            context[MemoryGate],
            context.checkpoints,
            context[History],
            partial(catalogue, context),
            context.find(RecipeStore),
            context[Drafts],
            searches(context.ports.state),
            context.clock,
            *([context.guarding.journal.entries] if context.ports.has("guarding") else []),
        )

    # --- plan and record ------------------------------------------------------------------------------

    def record(self, name: str = "") -> TuneRecord | None:
        """The search that is written down, of any preset or of that one. Raises RefusedError for a file that cannot be
        read."""
        found = self.journal.read("")
        return found if found is not None and name in ("", found.preset) else None

    async def plan(
        self,
        preset: Preset,
        goal: TuneGoal,
        *,
        minutes: float = DEFAULT_MINUTES,
        streams: int = 8,
        input_tokens: int = 1024,
        output_tokens: int = 128,
    ) -> TuneRecord:
        """What will be searched, from the engine of the preset as it runs, else from the preset itself.

        Raises RefusedError while an unfinished search is written down, where nothing can be tuned, and for a preset
        that does not fit with all others stopped.
        """
        if (left := self.record()) is not None and not left.finished:
            raise RefusedError(f"The search for {left.preset} was cut off.", RESUME.format(name=left.preset))
        view = next(
            (
                each
                for each in self.supervisor.views()
                if each.container.ours and each.container.running and each.container.preset == preset.name
            ),
            None,
        )
        overrides = request_of(view, self.catalogue()).overrides if view is not None else Overrides()
        verdict = await self.checks.judge(preset, overrides)
        if view is None and verdict.fit.blocked and not verdict.fit.stops:
            raise WillNotFit(preset.name, verdict.fit)
        checkpoint = value_of(await in_thread(self.checkpoints.read, preset.model, preset.model_revision))
        limit = checkpoint.max_position_embeddings if checkpoint is not None else None
        found = TuneRecord(
            preset=preset.name,
            engine=verdict.plan.spec.name,
            goal=goal,
            limit=60 * minutes,
            streams=streams,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            at=self.clock.now(),
            settings=all_pairs(overrides),
            share=overrides.gpu_memory_utilization if overrides.auto_share else None,
            given=given_settings(verdict.plan),
            takes=tuple(key for key in SETTABLE if settable(preset, key)),
            ran=view is not None,
            context_limit=limit,
            stopped=() if view is not None else verdict.fit.stops,
        )
        if not found.searched:
            raise RefusedError(
                f"Nothing to tune for {goal.value}: {preset.name} takes none of the settings.",
                "Choose another goal, or another preset.",
            )
        return found

    # --- search ---------------------------------------------------------------------------------------

    async def run(self, record: TuneRecord, report: OnTune, *, stop: asyncio.Event | None = None) -> TuneRecord:
        """Searches until nothing is left to try or the time is over; a record with trials continues.

        A cancelled caller, or `stop`, ends it early: what was found stays written down, and the engine of before comes
        back. So it does after an error, which is raised: the baseline's launch or measurement failed.
        """
        ended = stop or asyncio.Event()
        with self.journal.claimed(""):
            return await finish_when_cancelled(
                _Search(self, self._crashed(record), report, ended).work(), ended, RESTORE_SECONDS
            )

    def _crashed(self, record: TuneRecord) -> TuneRecord:
        """A trial under which the program or the machine ended is not repeated: it may have been the cause."""
        if record.under_way is None:
            return record
        key, value = record.under_way
        base = tuple(best_settings(record.trials).items())
        trial = Trial(key, value, base, TrialOutcome.FAILED, "spark-tui or the machine ended during this trial")
        return replace(record, trials=(*record.trials, trial), under_way=None)

    async def discard(self, record: TuneRecord, report: OnTune) -> None:
        """Drops what was found, and brings the engine of before back."""
        with self.journal.claimed(""):
            if not record.finished:
                await self.restore(record, lambda text: report(TuneProgress(record, record.spent, detail=text)))
            self.journal.drop("")

    def baseline(self, record: TuneRecord, changes: Mapping[str, str] | None = None) -> LaunchRequest:
        """The launch of the settings before, with `changes`. Raises RefusedError where the preset is gone."""
        preset = self.catalogue().get(record.preset)
        if preset is None:
            raise RefusedError(f"The preset {record.preset} is not available.", "See: spark-tui presets list")
        overrides = overrides_from_pairs({**record.settings, **(changes or {})})
        if overrides.auto_share:
            overrides = replace(overrides, gpu_memory_utilization=record.share)
        return LaunchRequest(preset, overrides, replace_running=True)

    async def restore(self, record: TuneRecord, say: Callable[[str], None]) -> None:
        """The engine of before starts again with its settings, without waiting until it serves; one that did not run
        is stopped, and those that made room for it start again. Raises the first error after trying all of it."""
        failed: list[SparkError] = []
        try:
            await self.supervisor.refresh()  # an abandoned launch may have made another container of that name
            if record.ran:
                say(f"{record.engine} starts again as before")
                request = replace(self.baseline(record), wait=False, warm=False, force=True, fetch=False)
                await self.launcher.launch(request, lambda _: None)
            else:
                watch = self.supervisor.find(record.engine)
                if watch is not None and watch.container.running and watch.container.preset == record.preset:
                    await self.supervisor.stop(record.engine)
        except SparkError as error:
            failed.append(error)
        for name in record.stopped:
            say(f"{name} starts again")
            try:
                await self.supervisor.restart(name, settle=self.gate.await_return)
            except SparkError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    # --- what it found --------------------------------------------------------------------------------

    async def save(self, record: TuneRecord, name: str, about: str) -> Preset:
        """Writes the preset with the settings that won, as one of the person's own. Raises RefusedError where none won
        or the name is taken, UsageError for settings that a recipe cannot hold."""
        changes = best_settings(record.trials)
        if not changes:
            raise RefusedError("No other setting won: nothing to save.", f"Launch it as it is: {record.preset}")
        request, recipes = self.baseline(record, changes), self.recipes
        preset, overrides = request.preset, request.overrides
        if recipes is None:
            raise RefusedError("No preset folder to write to.", "Start without --demo.")
        found = recipes.recipe(preset.file)
        if not isinstance(found.document, MappingValue):
            raise RefusedError(f"{preset.file} holds no recipe any more.", "Restore it.")
        if overrides.auto_share:  # the preset's own share; the launch decides
            overrides = replace(overrides, auto_share=False, gpu_memory_utilization=None)
        overrides = replace(overrides, port=None if overrides.port == preset.default("port") else overrides.port)
        try:
            document = to_sparkrun(preset, found.document, overrides).document
        except UsageError as error:
            pairs = " ".join(f"--set {key}={shlex.quote(value)}" for key, value in changes.items())
            raise UsageError(error.summary, f"Launch it so: spark-tui up {record.preset} {pairs}") from None
        if tool_calls_of(preset).on and preset.default(TOOLS) is None:  # only built-in presets get the parsers unasked
            document = with_value(document, "defaults", with_value(sub_table(document, "defaults"), TOOLS, "on"))
        text = comment((f"Made by spark-tui from its preset {preset.name}.", about)) + yaml_text(document)
        return self.drafts.save(Draft(replace(preset, name=name), text), name)


def searches(state: StateFiles) -> Journal[TuneRecord]:
    """The one search that is under way, was cut off or was the last."""
    return Journal(
        state,
        TuneRecord,
        "tune",
        lambda _: "",
        damaged=("The record of the last search cannot be read.", "Remove it: rm {path}"),
        busy=("Another spark-tui is tuning a preset.", "Wait for its end, or stop it there."),
    )


class _Search:
    """One search under way. `best` is the launch that the next trial is measured against."""

    def __init__(self, tuner: Tuner, record: TuneRecord, report: OnTune, stop: asyncio.Event) -> None:
        self._tuner = tuner
        self._record = record
        self._report = report
        self._stop = stop
        self._clock = tuner.clock
        self._began = self._clock.monotonic() - record.spent
        self._starts: list[float] = []
        """Seconds of the starts that came to serve."""
        self._bench: BenchProgress | None = None
        self._moved = 0.0
        self._why = ""
        self._out_of_time = False

    @property
    def _spent(self) -> float:
        return self._clock.monotonic() - self._began

    @property
    def _ended(self) -> bool:
        return self._stop.is_set() or self._out_of_time

    async def work(self) -> TuneRecord:
        try:
            await self._trials()
        finally:
            self._keep(spent=self._spent)
            await self._tuner.restore(self._record, self._say)
            if not self._record.trials and not self._record.finished:  # nothing to resume
                self._tuner.journal.drop("")
        return self._record

    async def _trials(self) -> None:
        self._keep()
        for name in self._record.stopped:
            self._say(f"stopping {name}")
            await self._tuner.supervisor.stop(name)
        best = self._tuner.baseline(self._record, best_settings(self._record.trials))
        while not self._stop.is_set():
            proposed = next_trial(self._record.searched, self._record.given, self._record.trials)
            longest = max((trial.seconds for trial in self._record.trials if trial.runs), default=0.0)
            if proposed is None or self._spent + longest > self._record.limit:
                self._keep(finished=True, ended=NOTHING_LEFT if proposed is None else TIME_OVER)
                return
            best = await self._serve(best)
            trial, request = (None, None) if self._ended else await self._trial(*proposed)
            if trial is None:  # stopped, or out of time: as if it had not begun
                over = self._out_of_time and not self._stop.is_set()
                self._keep(under_way=None, finished=over, ended=TIME_OVER if over else "")
                return
            best = request or best
            self._keep(trials=(*self._record.trials, trial), under_way=None, spent=self._spent)

    async def _serve(self, request: LaunchRequest) -> LaunchRequest:
        """The launch that serves now; it is the given one with a memory share as a number."""
        began = self._clock.monotonic()

        def follow(step: Step) -> None:
            if step.state is StepState.RUNNING:
                self._say(f"{step.label} {step.detail}".strip())

        await self._tuner.supervisor.refresh()
        async with self._watched(until_stopped=True) as ended:
            launch = await unless_stopped(self._tuner.launcher.launch(request, follow), ended)
        if launch.cancelled():
            if not self._stop.is_set() and not self._record.trials:
                raise RefusedError(
                    f"{self._record.engine} did not serve within {human_duration(self._record.limit)}.",
                    "Give it more time: --minutes",
                )
            return request
        launched = launch.result()
        if not launched.already_running:
            self._starts.append(self._clock.monotonic() - began)
        return replace(request_of(launched.view, self._tuner.catalogue()), fetch=False)  # it is there

    # --- one trial ------------------------------------------------------------------------------------

    async def _trial(self, key: str, value: str) -> tuple[Trial | None, LaunchRequest | None]:
        """Its result, and where it won its launch, which runs then. No result: it was stopped or ran out of time."""
        tuner, began, began_at = self._tuner, self._clock.monotonic(), self._clock.now()
        trial = Trial(key, value, tuple(best_settings(self._record.trials).items()), TrialOutcome.REFUSED)
        view = tuner.supervisor.get(self._record.engine).view()
        try:
            sides = tuner.planner.plan(view, f"{key}={shlex.quote(value)}")
            first, second = (self._local(side) for side in sides)
            request = second.request or tuner.baseline(self._record)
            await tuner.gate.refresh()
            verdict = await tuner.checks.judge(request.preset, request.overrides)
        except (UsageError, RefusedError) as error:
            return replace(trial, reason=error.summary), None
        if refusal := _refusal(verdict):
            return replace(trial, reason=refusal), None
        self._keep(under_way=(key, value))
        try:
            runs = await self._measure(first, second)
        except MeasurementVoid as error:
            if not error.variant:  # the settings before: this trial has told nothing
                self._keep(under_way=None)
                raise
            return replace(trial, outcome=TrialOutcome.FAILED, reason=error.summary), None
        finally:
            self._bench = None
        seconds = self._clock.monotonic() - began
        if self._ended:
            return None, None
        trial = replace(trial, seconds=seconds, runs=tuple(run.id for run in runs if run.levels))
        trial = self._judged(trial, runs)
        acts = [act for act in await in_thread(tuner.acts) if act.at >= began_at and act.engine == self._record.engine]
        if acts and trial.outcome is not TrialOutcome.BETTER:
            act = f"memory guard: {acts[-1].act} ({acts[-1].reason})"
            trial = replace(trial, outcome=TrialOutcome.FAILED, reason=act)
        if trial.outcome is not TrialOutcome.BETTER:
            return trial, None
        try:
            return trial, await self._serve(request)
        except SparkError as error:
            return replace(trial, outcome=TrialOutcome.FAILED, reason=error.summary), None

    def _local(self, side: Variant) -> Variant:
        """Without a look at the Hub: the model served already."""
        return replace(side, request=None if side.request is None else replace(side.request, fetch=False))

    async def _measure(self, first: Variant, second: Variant) -> tuple[BenchRun, ...]:
        plan = load_of(
            self._record.goal,
            streams=self._record.streams,
            input_tokens=self._record.input_tokens,
            output_tokens=self._record.output_tokens,
        )
        async with self._watched() as ended:

            def follow(progress: BenchProgress) -> None:
                now, last = self._clock.monotonic(), self._bench
                if last is None or (last.step, last.done, last.engine) != (
                    progress.step,
                    progress.done,
                    progress.engine,
                ):
                    if last is not None and last.step is BenchStep.LAUNCHING and progress.step is BenchStep.PREPARING:
                        self._starts.append(now - self._moved)
                    self._moved = now
                self._bench = progress
                if self._record.goal is not TuneGoal.CONTEXT and len(progress.runs) == 2:
                    before, after = (run.levels[0].pass_rates if run.levels else () for run in progress.runs)
                    if clearly_worse(before, after):
                        ended.set()
                self._say("")

            return await self._tuner.benchmark.run((first, second), plan, follow, stop=ended, per_launch=PER_LAUNCH)

    def _judged(self, trial: Trial, runs: tuple[BenchRun, ...]) -> Trial:
        """The outcome of a measurement that came to its end, or that was clear early."""
        if self._why:
            return replace(trial, outcome=TrialOutcome.FAILED, reason=self._why)
        one, two = runs[0], runs[-1]
        if len(runs) == 1 and sum(level.passes for level in one.levels) < PER_LAUNCH:
            raise RefusedError(f"The settings before cannot be measured: {one.reason}.", "Free memory, then try again.")
        whole = len(runs) == 2 and bool(two.levels) and two.levels[0].passes == PASSES
        if len(runs) == 1 or (two.ending in (RunOutcome.FAILED, RunOutcome.STOPPED) and not whole):
            return replace(trial, outcome=TrialOutcome.FAILED, reason=two.reason)
        row = next(iter(compare(one, two).rows), None)
        if row is None:
            return replace(trial, outcome=TrialOutcome.FAILED, reason=two.reason or "nothing was measured")
        contexts = [(run.conditions.context_tokens, run.conditions.kv_tokens) for run in (one, two)]
        low, high = (row.interval.low, row.interval.high) if row.interval is not None else (None, None)
        trial = replace(
            trial,
            ratio=row.ratio,
            low=low,
            high=high,
            before=row.first.output_rate,
            after=row.second.output_rate,
            context_before=_reach(*contexts[0]),
            context_after=_reach(*contexts[1]),
        )
        if self._record.goal is TuneGoal.CONTEXT:
            return replace(trial, outcome=context_outcome(contexts[0], contexts[1], high))
        if not whole:
            return replace(trial, outcome=TrialOutcome.WORSE, reason="clearly slower, ended early")
        return replace(trial, outcome=outcome_of(row.ratio, row.interval))

    # --- watching -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _watched(self, *, until_stopped: bool = False) -> AsyncIterator[asyncio.Event]:
        """An event that is set when the search is stopped, out of time, or its benchmark hangs; `_why` says so."""
        ended = asyncio.Event()
        self._why, self._moved = "", self._clock.monotonic()
        task = asyncio.create_task(self._watch(ended, hangs=not until_stopped))
        try:
            yield ended
        finally:
            await end_tasks(task)

    async def _watch(self, ended: asyncio.Event, *, hangs: bool) -> None:
        baseline = 0.0
        while not ended.is_set():
            await self._clock.sleep(WATCH_SECONDS)
            bench, quiet = self._bench, self._clock.monotonic() - self._moved
            if self._spent > self._record.limit:
                self._out_of_time = True
            elif hangs and bench is not None:
                if bench.step is BenchStep.MEASURING and bench.done < PER_LAUNCH:
                    baseline = max(baseline, quiet)
                elif quiet > (patience := self._patience(bench.step, baseline)):
                    self._why = f"no end after {human_duration(patience)} ({bench.step.value})"
            if self._why or self._out_of_time or self._stop.is_set():
                ended.set()

    def _patience(self, step: BenchStep, measured: float) -> float:
        """Seconds that a step of a trial may take: by the baseline's, where one was seen."""
        if step is not BenchStep.LAUNCHING:
            return max(LEAST_PATIENCE, MEASURE_FACTOR * measured)
        past = (start.seconds for start in self._tuner.history.good_starts(self._record.preset))
        known = [*self._starts, *(each for each in past if each is not None)]
        preset = self._tuner.catalogue().get(self._record.preset)
        most = (preset.ready_timeout_seconds if preset else None) or DEFAULT_READY_TIMEOUT_SECONDS
        return min(most, max(LEAST_PATIENCE, START_FACTOR * max(known))) if known else most

    def _say(self, text: str) -> None:
        self._report(TuneProgress(self._record, self._spent, self._record.under_way, self._bench, text))

    def _keep(self, **changes: Any) -> None:
        self._record = replace(self._record, **changes)
        self._tuner.journal.write(self._record)
        self._say("")


def _refusal(verdict: LaunchVerdict) -> str:
    """Why a launch is not tried; empty where it may be."""
    wrong = next((each.summary for each in verdict.findings if each.severity is Severity.ERROR), "")
    return wrong or (verdict.text if verdict.fit.blocked else "")


def _reach(context: int | None, room: int | None) -> int | None:
    """The longest request in tokens."""
    known = [each for each in (context, room) if each is not None]
    return min(known, default=None)
